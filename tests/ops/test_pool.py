import pytest
import torch
import torch.nn.functional as F
from family import check, no_fallback, tensor, to_device


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
@pytest.mark.parametrize(
    "kwargs", [{}, {"stride": 1}, {"padding": 1}, {"dilation": 2}, {"ceil_mode": True, "padding": 1}]
)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_max_pool(rank, kwargs, dtype):
    f = getattr(F, f"max_pool{rank}d")
    with no_fallback():
        check(
            lambda x: f(x, 3, return_indices=True, **kwargs),
            tensor(2, 3, *[8] * rank, dtype=dtype).requires_grad_(),
            grad=True,
            **({"atol": 5e-3} if dtype == torch.float16 else {}),
        )
        check(lambda x: f(x, 3, **kwargs), tensor(3, *[8] * rank, dtype=dtype))


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"stride": 1},
        {"padding": 1},
        {"ceil_mode": True},
        {"padding": 1, "count_include_pad": False},
        {"ceil_mode": True, "padding": 1, "stride": 2},
    ],
)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_avg_pool(rank, kwargs):
    f = getattr(F, f"avg_pool{rank}d")
    with no_fallback():
        check(lambda x: f(x, 3, **kwargs), tensor(2, 3, *[8] * rank).requires_grad_(), grad=True)
        if rank > 1:
            check(
                lambda x: f(x, 3, divisor_override=5, **kwargs),
                tensor(2, 3, *[8] * rank).requires_grad_(),
                grad=True,
            )


@pytest.mark.parametrize("output", [1, 2, 3, 7, 11])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_adaptive_avg_pool(rank, output):
    f = getattr(F, f"adaptive_avg_pool{rank}d")
    with no_fallback():
        check(lambda x: f(x, output), tensor(2, 3, *[7] * rank).requires_grad_(), grad=True)
        check(lambda x: f(x, output), tensor(3, *[7] * rank))


def test_channels_last():
    x = tensor(2, 4, 8, 8).contiguous(memory_format=torch.channels_last).requires_grad_()
    for f in (
        lambda t: F.max_pool2d(t, 2),
        lambda t: F.avg_pool2d(t, 2),
        lambda t: F.adaptive_avg_pool2d(t, 3),
    ):
        assert check(f, x, grad=True).is_contiguous(memory_format=torch.channels_last)


def test_ties_nan_and_strides():
    check(lambda x: F.max_pool2d(x, 2, return_indices=True), torch.zeros(1, 1, 4, 4))
    check(lambda x: F.max_pool2d(x, 2, return_indices=True), torch.tensor([[[[1.0, float("nan")], [3, 2]]]]))
    check(lambda x: F.max_pool2d(x, 2), tensor(2, 3, 8, 16)[..., ::2])
    check(lambda x: F.max_pool2d(x, 2), tensor(0, 3, 8, 8))
    check(lambda x: F.max_pool2d(x, 3, 1).sum(), tensor(1, 1, 6, 6).requires_grad_(), grad=True)


def test_errors():
    with pytest.raises(RuntimeError):
        F.max_pool2d(to_device(tensor(1, 1, 4, 4)), 2, padding=2)


@pytest.mark.parametrize(
    ("shape", "args"),
    [
        ((1, 0, 4, 4, 4), (2,)),
        ((0, 4, 4, 4), (2,)),
        ((1, 1, 4, 0, 4), (2,)),
        ((1, 1, 4, 4, 4), ((2, 2),)),
        ((1, 1, 4, 4, 4), (2, (1, 1))),
        ((1, 1, 4, 4, 4), (2, 1, (0, 0))),
        ((1, 1, 4, 4, 4), (2, 1, 0, (1, 1))),
        ((1, 1, 4, 4, 4), (0,)),
        ((1, 1, 4, 4, 4), (2, 1, 2)),
        ((1, 1, 4, 4, 4), (5,)),
        ((4, 4, 4), (2,)),
    ],
)
def test_max_pool3d_refuses_what_the_cpu_refuses(shape, args):
    for device in ("cpu", "fl:0"):
        with pytest.raises(RuntimeError):
            F.max_pool3d(torch.zeros(shape, device=device), *args)
    assert F.max_pool3d(torch.zeros(0, 1, 4, 4, 4, device="fl:0"), 2).shape == (0, 1, 2, 2, 2)


def test_channels_last_without_batch():
    x = tensor(1, 6, 7, 8, 9).contiguous(memory_format=torch.channels_last_3d).squeeze(0).requires_grad_()
    for kernel in (2, (7, 3, 4)):
        check(lambda x, k: F.max_pool3d(x, k, return_indices=True), x, kernel, strides=True, grad=True)
    check(lambda x: F.max_pool3d(x, 2), tensor(6, 7, 8, 9), strides=True)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("kind", ["avg", "max"])
def test_adaptive_to_nothing_has_no_gradient(kind, rank):
    for device in ("cpu", "fl:0"):
        x = torch.ones(2, 3, *[4] * rank, device=device, requires_grad=True)
        y = getattr(F, f"adaptive_{kind}_pool{rank}d")(x, 0)
        assert y.numel() == 0
        with pytest.raises(RuntimeError, match="Expected grad_output to have non-zero size"):
            y.sum().backward()
