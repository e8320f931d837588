import pytest
import torch
from child import run_forked
from family import assert_same, check, no_fallback, tensor, to_device

TYPES = [torch.qint8, torch.quint8, torch.qint32]


def values(*shape):
    return torch.cat([tensor(*shape).flatten() * 4, torch.tensor([0.0, 0.25, -0.75, 1e6, -1e6])])


def same_quantized(there, here):
    assert there.is_quantized and not there.is_cpu and there.dtype == here.dtype
    assert there.qscheme() == here.qscheme() and there.shape == here.shape
    assert_same(there.int_repr(), here.int_repr())
    assert_same(there.dequantize(), here.dequantize(), rtol=1e-6)
    if here.qscheme() == torch.per_tensor_affine:
        assert (there.q_scale(), there.q_zero_point()) == (here.q_scale(), here.q_zero_point())
    else:
        assert_same(there.q_per_channel_scales(), here.q_per_channel_scales())
        assert_same(there.q_per_channel_zero_points(), here.q_per_channel_zero_points())
        assert there.q_per_channel_axis() == here.q_per_channel_axis()


@pytest.mark.parametrize("dtype", TYPES)
def test_per_tensor(dtype):
    x = values(50, 7)
    for scale, zero in [(0.5, 0), (0.1, 3), (0.03, 100)]:
        with no_fallback():
            there = torch.quantize_per_tensor(x.to("fl"), scale, zero, dtype)
        same_quantized(there, torch.quantize_per_tensor(x, scale, zero, dtype))
    there = torch.quantize_per_tensor(x.to("fl"), torch.tensor(0.5), torch.tensor(2), dtype)
    same_quantized(there, torch.quantize_per_tensor(x, 0.5, 2, dtype))


def test_what_lies_half_way():
    """PyTorch 2.13 adds the zero point before it rounds, 2.14 after."""
    x = torch.tensor([0.25, -0.75, 0.75, 1.25, -0.25, -1.25]).repeat(2, 1)
    for zero in (0, 3, -4):
        q = torch.quantize_per_tensor(x.to("fl"), 0.5, zero, torch.qint8)
        same_quantized(q, torch.quantize_per_tensor(x, 0.5, zero, torch.qint8))
        for zeros in (torch.full((2,), zero), torch.full((2,), zero + 0.5)):
            scales, dtype = torch.full((2,), 0.5), torch.quint8 if zeros.is_floating_point() else torch.qint8
            q = torch.quantize_per_channel(x.to("fl"), scales.to("fl"), zeros.to("fl"), 0, dtype)
            same_quantized(q, torch.quantize_per_channel(x, scales, zeros, 0, dtype))


@pytest.mark.parametrize("dtype", [torch.qint8, torch.quint8])
def test_dynamic(dtype):
    x = tensor(30, 5)
    same_quantized(
        torch.quantize_per_tensor_dynamic(x.to("fl"), dtype, False),
        torch.quantize_per_tensor_dynamic(x, dtype, False),
    )


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_per_channel(dtype, axis):
    x = tensor(3, 4, 5) * 3
    n = x.shape[axis]
    scales, zeros = torch.arange(1, n + 1) * 0.07, torch.arange(n)
    with no_fallback():
        there = torch.quantize_per_channel(x.to("fl"), scales.to("fl"), zeros.to("fl"), axis, dtype)
    same_quantized(there, torch.quantize_per_channel(x, scales, zeros, axis, dtype))
    if dtype == torch.quint8:
        there = torch.quantize_per_channel(x.to("fl"), scales.to("fl"), zeros.to("fl") + 0.5, axis, dtype)
        same_quantized(there, torch.quantize_per_channel(x, scales, zeros + 0.5, axis, dtype))


@pytest.mark.parametrize("dtype", TYPES)
def test_copies_and_views(dtype):
    x = tensor(4, 6)
    here = torch.quantize_per_tensor(x, 0.1, 2, dtype)
    there = here.to("fl")
    same_quantized(there, here)
    back = there.cpu()
    assert (
        back.is_quantized
        and torch.equal(back.int_repr(), here.int_repr())
        and back.q_scale() == here.q_scale()
    )
    channels = torch.quantize_per_channel(x, torch.rand(4) + 0.1, torch.arange(4), 0, dtype)
    same_quantized(channels.to("fl"), channels)
    for f in [lambda t: t.clone(), lambda t: t.view(6, 4), lambda t: t.reshape(-1), lambda t: t.t(), lambda t: t[1],
              lambda t: t[:, 2:4], lambda t: t.unsqueeze(0), lambda t: t[None].squeeze(0), lambda t: t.t().contiguous()]:  # fmt: skip
        same_quantized(f(there), f(here))
    assert torch.equal(there, here.to("fl")) and not torch.equal(there, (here.to("fl"))[:, :3])
    target = torch.quantize_per_tensor(x * 0, 0.1, 2, dtype).to("fl")
    target.copy_(x.to("fl"))
    same_quantized(target, here)
    assert "quantization_scheme" in repr(there)


def test_made_from_integers():
    ints = torch.tensor([[1, 2], [3, -4]], dtype=torch.int8)
    same_quantized(
        torch._make_per_tensor_quantized_tensor(ints.to("fl"), 0.5, 1),
        torch._make_per_tensor_quantized_tensor(ints, 0.5, 1),
    )
    s, z = torch.tensor([0.5, 2.0]), torch.tensor([0, 1])
    same_quantized(torch._make_per_channel_quantized_tensor(ints.to("fl"), s.to("fl"), z.to("fl"), 1),
                   torch._make_per_channel_quantized_tensor(ints, s, z, 1))  # fmt: skip
    empty = torch._empty_affine_quantized([2, 3], scale=0.5, zero_point=4, dtype=torch.quint8, device="fl")
    assert empty.q_scale() == 0.5 and empty.q_zero_point() == 4 and empty.shape == (2, 3)


def test_everything_else_says_what_to_do():
    t = torch.quantize_per_tensor(tensor(3).to("fl"), 0.1, 0, torch.qint8)
    for f in (lambda: t + t, lambda: torch.relu(t), lambda: t.sum()):
        with pytest.raises(NotImplementedError, match="dequantize"):
            f()
    with pytest.raises(RuntimeError, match="dequantize"):
        torch.zeros(3, device="fl").copy_(t)


def test_the_first_quantized_tensor_of_a_process():
    programs = [
        "torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)",
        "torch._empty_affine_quantized([3], scale=0.1, zero_point=0, dtype=torch.qint8, device='fl')",
        "torch._make_per_tensor_quantized_tensor(x.to(torch.int8), 0.1, 0)",
        "torch.quantize_per_tensor(x.cpu(), 0.1, 0, torch.qint8).to('fl')",
    ]
    for made in programs:
        done = run_forked(f"import torch; x = torch.ones(3, device='fl'); {made}.sum()", check=False)
        assert "NotImplementedError" in done.stderr and "dequantize" in done.stderr, made


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fake_quantize(dtype):
    x = values(20, 6).to(dtype).requires_grad_()
    with no_fallback():
        check(lambda t: torch.fake_quantize_per_tensor_affine(t, 0.1, 3, 0, 255), x, grad=True)
        check(lambda t: torch.fake_quantize_per_tensor_affine(t, 0.25, 0, -128, 127), x, grad=True)
        for on in (0, 1):
            check(lambda t, s, z, e: torch._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(t, s, z, e, -8, 7), x,
                  torch.tensor([0.3]), torch.tensor([1], dtype=torch.int32), torch.tensor([on]))  # fmt: skip
        y = tensor(4, 5, 6, dtype=dtype).requires_grad_()
        for zeros in (torch.arange(5, dtype=torch.int32), torch.arange(5) + 0.25):
            check(
                lambda t, s, z: torch.fake_quantize_per_channel_affine(t, s, z, 1, 0, 15),
                y,
                torch.rand(5) + 0.1,
                zeros,
                grad=True,
            )
        if dtype == torch.float32:  # the learnable ones take no other
            check(lambda t, s, z: torch._fake_quantize_learnable_per_tensor_affine(t, s, z, -8, 7, 0.5), x,
                  torch.tensor([0.3], requires_grad=True), torch.tensor([1.0], requires_grad=True), grad=True)  # fmt: skip
            check(lambda t, s, z: torch._fake_quantize_learnable_per_channel_affine(t, s, z, 1, 0, 15, 0.5), y,
                  (torch.rand(5) + 0.1).requires_grad_(), torch.arange(5.0).requires_grad_(), grad=True)  # fmt: skip


def observed(x, observe, quantize, running, bounds, symmetric, rows):
    """Results and state of the fused observer, after one call and after another."""
    state = [t.clone() for t in running]
    flags = [torch.tensor([flag], device=x.device) for flag in (observe, quantize)]
    results = []
    for t in (x, x * 1.7 - 0.2):
        out = torch.ops.aten._fused_moving_avg_obs_fq_helper(
            t, *flags, *state, 0.3, *bounds, 0, rows, symmetric
        )
        results += [*out, *(s.clone() for s in state)]
    return results


@pytest.mark.parametrize("bounds", [(0, 255), (-128, 127), (-8, 7), (-(2**15), 2**15 - 1)])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("rows", [False, True])
def test_fused_observer(bounds, symmetric, rows):
    x, infinity = tensor(3, 4, 5), torch.full((3 if rows else 1,), torch.inf)
    fresh = infinity, -infinity, torch.ones_like(infinity), torch.zeros_like(infinity, dtype=torch.int32)
    known = infinity.clone().fill_(-0.7), infinity.clone().fill_(0.4), fresh[2] * 0.02, fresh[3] + 1
    # Values of one sign, all zero, tiny (a scale below the least one), one tiny and one 0, not contiguous.
    inputs = [x, x.abs(), -x.abs(), x * 0, x * 1e-7, x.abs() * 1e-6, -x.abs() * 1e-6, x.transpose(1, 2)]
    with no_fallback():
        for t in inputs:
            for running in (fresh, known):
                for flags in ((1, 1), (1, 0), (0, 1), (0, 0), (True, True)):
                    if not flags[0] and running is fresh:
                        continue  # a range that was never observed
                    check(lambda t, *r, f=flags: observed(t, *f, r, bounds, symmetric, rows), t, *running)


def test_fused_observer_module_and_errors():
    from torch.ao.quantization import FusedMovingAvgObsFakeQuantize

    def trained(device):
        torch.manual_seed(0)
        module = FusedMovingAvgObsFakeQuantize().to(device)
        x = tensor(4, 6).to(device).requires_grad_()
        out = module(module(x) * 2)
        out.sum().backward()
        return out, x.grad, module.scale, module.zero_point

    with no_fallback():
        assert_same(trained("fl:0"), trained("cpu"))
    rows = torch.ops.aten._fused_moving_avg_obs_fq_helper(
        x := tensor(3, 4).to("fl"), *torch.ones(2, 1, dtype=torch.int64, device="fl"),
        low := torch.empty(0, device="fl"), torch.empty(0, device="fl"), torch.empty(0, device="fl"),
        torch.empty(0, dtype=torch.int32, device="fl"), 0.1, 0, 255, 0, True, False,
    )  # fmt: skip
    assert torch.equal(low, x.amin(1)) and rows[1].all()
    one, on = torch.ones(1, device="fl"), torch.ones(1, device="fl")
    zero = torch.zeros(1, dtype=torch.int32, device="fl")
    for arguments, error in (
        ((0, 255, 1, True), "axis 0"),
        ((255, 0, 0, False), "quant_min should be less"),
        ((0, 255, 0, True), "expected 3"),
    ):
        with pytest.raises(RuntimeError, match=error):
            torch.ops.aten._fused_moving_avg_obs_fq_helper(
                x, on, on, one, one, one, zero, 0.1, *arguments, False
            )


def test_second_device():
    t = torch.quantize_per_tensor(tensor(5).to("fl:1"), 0.1, 0, torch.qint8)
    assert t.device.index == 1
    same_quantized(t.to("fl:0"), torch.quantize_per_tensor(tensor(5), 0.1, 0, torch.qint8))
    assert to_device(tensor(1)).device.index == 0


@pytest.mark.parametrize("dtype", TYPES)
def test_moves(dtype):
    x = tensor(4, 3, 5) * 3
    here = torch.quantize_per_tensor(x, 0.1, 5, dtype)
    there = torch.quantize_per_tensor(x.to("fl"), 0.1, 5, dtype)
    i = torch.tensor([2, 0, 0])
    with no_fallback():
        same_quantized(there.flip(0, -1), here.flip(0, -1))
        same_quantized(there.transpose(0, 1).flip(1), here.transpose(0, 1).flip(1))
        same_quantized(there.index_select(1, i.to("fl")), here.index_select(1, i))
    for sizes in ((0,), (2, 0, 3), (0, 4)):
        here = torch.quantize_per_tensor(torch.ones(sizes), 0.1, 5, dtype)
        there = torch.quantize_per_tensor(torch.ones(sizes, device="fl"), 0.1, 5, dtype)
        for d in range(len(sizes)):
            same_quantized(there.flip(d), here.flip(d))
        same_quantized(torch._make_per_tensor_quantized_tensor(there.int_repr(), 0.1, 5), here)
    scales = torch.full((3,), 0.1)
    channels = torch.quantize_per_channel(x.to("fl"), scales.to("fl"), scales.to("fl").long(), 1, dtype)
    with pytest.raises(RuntimeError, match="quantized per tensor"):
        channels.flip(0)
