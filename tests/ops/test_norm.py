import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
from family import assert_same, check, no_fallback, tensor, to_device

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
LOOSE = {torch.float16: 1e-2, torch.bfloat16: 8e-2}


def loose(dtype):
    return {"rtol": LOOSE[dtype], "atol": LOOSE[dtype]} if dtype in LOOSE else {"rtol": 1e-4, "atol": 1e-4}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(6, 5), (4, 5, 7), (4, 5, 6, 3), (2, 5, 3, 4, 2)])
def test_batch_norm(dtype, training, shape):
    def f(x, m, v, w, b):
        return F.batch_norm(x, m, v, w, b, training, 0.3)

    with no_fallback():
        check(
            f,
            tensor(*shape, dtype=dtype).requires_grad_(),
            tensor(5, dtype=dtype),
            tensor(5, dtype=dtype).abs() + 0.5,
            tensor(5, dtype=dtype).requires_grad_(),
            tensor(5, dtype=dtype).requires_grad_(),
            grad=True,
            **loose(dtype),
        )


def test_batch_norm_updates_running_statistics():
    here = torch.nn.BatchNorm2d(5, momentum=0.2)
    there = copy.deepcopy(here).to("fl")
    for seed in range(3):
        x = tensor(4, 5, 6, 6, seed=seed) * 2 + 1
        assert_same(there(to_device(x)), here(x), 1e-4, 1e-4)
    assert_same(there.running_mean, here.running_mean)
    assert_same(there.running_var, here.running_var)
    assert there.num_batches_tracked.item() == 3
    here.eval(), there.eval()
    assert_same(there(to_device(x)), here(x), 1e-4, 1e-4)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_variants(training):
    x = tensor(4, 5, 6, 6).contiguous(memory_format=torch.channels_last).requires_grad_()
    stats = [tensor(5), tensor(5).abs() + 1]

    def f(x, m, v):
        return F.batch_norm(x, m, v, None, None, training)

    y = check(f, x, *stats, grad=True, rtol=1e-4, atol=1e-4)
    assert y.is_contiguous(memory_format=torch.channels_last)
    check(
        lambda t: F.batch_norm(t, None, None, training=True),
        tensor(4, 5, 6).requires_grad_(),
        grad=True,
        atol=1e-4,
    )
    check(f, tensor(4, 5, 6, 12)[..., ::2], *stats)
    # mixed precision: parameters stay in float32
    check(
        lambda t, m, v, w: F.batch_norm(t, m, v, w, w, training),
        tensor(4, 5, 6, dtype=torch.bfloat16).requires_grad_(),
        *stats,
        tensor(5).requires_grad_(),
        grad=True,
        rtol=8e-2,
        atol=8e-2,
    )


def test_instance_norm_and_legit():
    with no_fallback():
        check(
            lambda x, m, v: F.instance_norm(x, m, v),
            tensor(3, 4, 5, 5),
            tensor(4),
            tensor(4).abs() + 1,
            atol=1e-4,
        )
        check(
            lambda x, m, v: torch._native_batch_norm_legit(x, None, None, m, v, True, 0.1, 1e-5),
            tensor(3, 4, 5),
            tensor(4),
            tensor(4).abs() + 1,
            atol=1e-4,
        )


@pytest.mark.parametrize(
    "shape, strides",
    [
        ((1, 5, 3, 3), (1, 1, 15, 5)),
        ((1, 5, 3, 3), (45, 1, 15, 5)),
        ((2, 1, 4, 4), (16, 1, 4, 1)),
        ((2, 1, 3, 4), (48, 1, 8, 1)),
        ((2, 5, 1, 3), (15, 1, 1, 5)),
        ((1, 5, 2, 2, 2), (1, 1, 20, 10, 5)),
    ],
)
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_keeps_the_order_whatever_dimensions_of_size_1_say(shape, strides, training):
    def f(x):
        statistics = (x.new_zeros(shape[1]), x.new_ones(shape[1]))
        return F.batch_norm(x.as_strided(shape, strides), *statistics, training=training)

    with no_fallback():
        check(f, torch.randn(40 * 3), strides=True)


def test_batch_norm_empty():
    check(lambda x: F.batch_norm(x, None, None, training=True), tensor(0, 5, 4, 4))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "shape,normalized", [((4, 8), (8,)), ((2, 3, 8), (8,)), ((2, 3, 8), (3, 8)), ((8,), (8,)), ((0, 8), (8,))]
)
def test_layer_norm(dtype, shape, normalized):
    with no_fallback():
        check(
            lambda x, w, b: F.layer_norm(x, normalized, w, b),
            tensor(*shape, dtype=dtype).requires_grad_(),
            tensor(*normalized, dtype=dtype).requires_grad_(),
            tensor(*normalized, dtype=dtype, seed=1).requires_grad_(),
            grad=True,
            **loose(dtype),
        )
        check(
            lambda x: F.layer_norm(x, normalized),
            tensor(*shape, dtype=dtype).requires_grad_(),
            grad=True,
            **loose(dtype),
        )


def test_layer_norm_strided_and_large_mean():
    check(lambda x: F.layer_norm(x, (6,)), tensor(6, 4).t())
    check(lambda x: F.layer_norm(x, (64,)), tensor(4, 64) + 1000, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norm(dtype, groups):
    with no_fallback():
        check(
            lambda x, w, b: F.group_norm(x, groups, w, b),
            tensor(2, 6, 4, 5, dtype=dtype).requires_grad_(),
            tensor(6, dtype=dtype).requires_grad_(),
            tensor(6, dtype=dtype, seed=1).requires_grad_(),
            grad=True,
            **loose(dtype),
        )
        check(
            lambda x: F.group_norm(x, groups),
            tensor(2, 6, 4, dtype=dtype).requires_grad_(),
            grad=True,
            **loose(dtype),
        )


@pytest.mark.parametrize("channels", [6, 1])
@pytest.mark.parametrize("format", [torch.channels_last, torch.channels_last_3d])
def test_group_norm_keeps_channels_last(format, channels):
    x = tensor(2, channels, 4, 5) if format is torch.channels_last else tensor(2, channels, 3, 4, 5)
    with no_fallback():
        check(
            lambda x: F.group_norm(x, min(3, channels)),
            x.contiguous(memory_format=format).requires_grad_(),
            grad=True,
            strides=True,
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rms_norm(dtype):
    with no_fallback():
        check(
            lambda x, w: F.rms_norm(x, (8,), w),
            tensor(3, 4, 8, dtype=dtype).requires_grad_(),
            tensor(8, dtype=dtype).requires_grad_(),
            grad=True,
            **loose(dtype),
        )
        check(
            lambda x: F.rms_norm(x, (4, 8), eps=1e-3),
            tensor(3, 4, 8, dtype=dtype).requires_grad_(),
            grad=True,
            **loose(dtype),
        )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(4, 3, 5), (6, 7), (5,), (3, 0, 2), (2, 3, 4, 5)])
def test_weight_norm(dtype, shape):
    for dim in {0, len(shape) - 1}:
        lengths = [size if d == dim else 1 for d, size in enumerate(shape)]
        for v in (
            tensor(*shape, dtype=dtype),
            tensor(*shape[::-1], dtype=dtype).permute(*range(len(shape))[::-1]),
        ):
            g = tensor(*lengths, dtype=dtype, seed=3)
            with no_fallback():
                check(lambda v, g, dim=dim: torch._weight_norm(v, g, dim), v.requires_grad_(), g.requires_grad_(), grad=True,
                      **loose(dtype))  # fmt: skip
    w, norm = torch._weight_norm_interface(
        to_device(tensor(4, 3, dtype=dtype)), to_device(tensor(4, 1, dtype=dtype))
    )
    assert w.dtype == dtype and norm.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


def test_weight_norm_of_modules_twice_differentiable():
    here = torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv1d(4, 6, 3), dim=2)
    there = copy.deepcopy(here).to("fl:1")
    x = tensor(2, 4, 9)
    results = []
    for layer, batch in ((here, x), (there, x.to("fl:1"))):
        parameters = list(layer.parameters())
        (g,) = torch.autograd.grad(layer(batch).square().sum(), parameters[1:2], create_graph=True)
        results.append(torch.autograd.grad(g.square().sum(), parameters))
    assert_same(*results[::-1], rtol=1e-4, atol=1e-3)
    zero = torch.zeros(2, 3)
    check(lambda v, g: torch._weight_norm(v, g, 0), zero, torch.ones(2, 1))
    with pytest.raises(RuntimeError, match="lengths"):
        torch._weight_norm_interface(to_device(zero), to_device(torch.ones(1, 1)))
    with pytest.raises(RuntimeError, match="first or the last"):
        torch._weight_norm_interface(to_device(torch.zeros(2, 3, 4)), to_device(torch.ones(1, 3, 1)), 1)


# A dimension of size 1 has any stride: it may say neither that its neighbours follow each other nor that they do not.
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(3, 2, 2, 1, 4), (2, 1, 1, 2, 3), (3, 2, 1, 2)])
def test_batch_norm_of_permuted_images(shape, training):
    def results(x, rest, seed):
        y = F.batch_norm(x, *rest, training=training)
        return y.detach(), *torch.autograd.grad(y, (x, rest[2]), seed)

    channels, seed = shape[1], tensor(*shape, seed=3)
    rest = [tensor(channels), tensor(channels, seed=1).abs() + 0.5, tensor(channels, seed=2).requires_grad_()]
    for order in itertools.permutations(range(len(shape))):
        x = tensor(*(shape[d] for d in order))
        turned = [order.index(d) for d in range(len(shape))]
        there = to_device(x).permute(turned).requires_grad_()
        # Contiguous on the CPU, whose gradient is wrong for some orders.
        here = x.permute(turned).contiguous().requires_grad_()
        assert_same(
            results(there, to_device(rest), to_device(seed)), results(here, to_device(rest, "cpu"), seed)
        )
