"""Elementwise operators with two outputs, over the bits of halves, and of halves with numbers."""

import pytest
import torch
from family import DEVICE, assert_same, check, no_fallback, to_device

HALVES = [torch.float16, torch.bfloat16]
FLOATS = [*HALVES, torch.float32, torch.float64]


def wild(dtype, n=4099):
    g = torch.Generator().manual_seed(3)
    x = (
        torch.randn(n, generator=g, dtype=torch.float64)
        * torch.randn(n, generator=g, dtype=torch.float64).exp()
    )
    f = torch.finfo(dtype)
    special = [
        0.0,
        -0.0,
        torch.inf,
        -torch.inf,
        torch.nan,
        1,
        -1,
        f.max,
        -f.max,
        f.tiny,
        -f.tiny,
        f.smallest_normal / 2,
    ]
    return torch.cat([torch.tensor(special, dtype=torch.float64), x]).to(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_frexp(dtype):
    x = wild(dtype)[5:].reshape(-1, 2).t()
    with no_fallback():
        check(torch.frexp, x, rtol=0, atol=0)
        out = torch.empty(0, dtype=dtype, device=DEVICE), torch.empty(0, dtype=torch.int32, device=DEVICE)
        torch.frexp(x.to(DEVICE), out=out)
    assert torch.equal(out[0].cpu(), torch.frexp(x)[0]) and torch.equal(out[1].cpu(), torch.frexp(x)[1])
    assert torch.frexp(torch.empty(0, dtype=dtype, device=DEVICE))[1].numel() == 0


@pytest.mark.parametrize("dtype", FLOATS)
def test_nextafter(dtype):
    x = wild(dtype)
    y = torch.stack([x.flip(0), x, torch.zeros_like(x), torch.full_like(x, torch.inf)])
    with no_fallback():
        got = torch.nextafter(x.to(DEVICE), y.to(DEVICE))
        check(torch.nextafter, x[::2], y[0, ::2], rtol=0, atol=0)
        check(lambda a, b: a.nextafter_(b), x[5:].clone(), y[1, :-5], rtol=0, atol=0)
    want = torch.nextafter(x.expand_as(y), y)
    torch.testing.assert_close(got.cpu(), want, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(torch.signbit(got.cpu())[~want.isnan()], torch.signbit(want)[~want.isnan()])


@pytest.mark.parametrize("dtype", FLOATS)
def test_prelu_gradients(dtype):
    x, w = (
        torch.randn(4, 3, 5).to(dtype).requires_grad_(),
        torch.tensor([0.25, -1, 0]).to(dtype).requires_grad_(),
    )
    with no_fallback():
        check(torch.nn.functional.prelu, x, w, grad=True, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("number", [0.3, 1.7, -2.6])
def test_halves_by_numbers(dtype, number):
    x = wild(dtype)
    with no_fallback():
        for f in (torch.mul, torch.div, lambda a, b: torch.div(a, b, rounding_mode="trunc")):
            check(f, x, number, rtol=0, atol=0)
        check(lambda a: torch.div(a, a.flip(0) * number, rounding_mode="trunc"), x[12:], rtol=0, atol=0)
        for power in (0.5, -0.5, 2, -1):
            check(torch.pow, x, power, rtol=1e-2, atol=0)
        check(torch.logit, x, 1e-3, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("other", [torch.float32, torch.float64, torch.int64])
def test_halves_by_one_number_on_the_device(dtype, other):
    """One number keeps its digits, as on the CPU; several are rounded to the half, and so is a first operand."""
    x = torch.cat([wild(dtype), torch.arange(-40, 40, 0.375).to(dtype)])
    modes = (
        torch.mul,
        torch.div,
        lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        lambda a, b: torch.div(a, b, rounding_mode="floor"),
        torch.floor_divide,
        lambda a, b: a.clone().mul_(b),
    )
    with no_fallback():
        for value in (0.3, -2.6001, 70001):
            number = torch.tensor(value).to(other)
            if not number:
                continue
            for f in modes:
                check(f, x, number, rtol=0, atol=0)
                check(f, x[4], number, rtol=0, atol=0)
                if other == torch.int64:
                    check(f, x, number.view(1), rtol=0, atol=0)
                    check(f, x[:6], number.expand(6), rtol=0, atol=0)
            check(torch.mul, number, x[14:15], rtol=0, atol=0)
            check(torch.mul, number, x, rtol=0, atol=0)
        for f in modes:
            check(f, x, x[20:21], rtol=0, atol=0)
    scale = torch.tensor(65536.0, device=DEVICE)
    assert torch.equal(
        (torch.full((3,), 0.5, device=DEVICE, dtype=dtype) * scale).cpu().float(), torch.full((3,), 32768.0)
    )


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_logaddexp_of_complex(dtype):
    values = [
        0,
        1 - 2j,
        -3 + 0.5j,
        30j,
        complex(-torch.inf, 0),
        complex(torch.inf, 0),
        complex(torch.nan, 1),
        800 + 1j,
        -800 - 1j,
    ]
    x = torch.tensor(values, dtype=dtype)
    with no_fallback():
        check(torch.logaddexp, x[:, None], x[None])


def test_zeros_without_memory():
    zero = torch._efficientzerotensor((2, 3), device=DEVICE)
    assert zero.device == torch.device(DEVICE) and zero._is_zerotensor()
    assert torch.equal((zero + torch.ones(2, 3, device=DEVICE)).cpu(), torch.ones(2, 3))


def test_mvlgamma_out():
    x = torch.linspace(3, 9, 7)
    out = torch.empty(7, device=DEVICE)
    with no_fallback():
        torch.mvlgamma(x.to(DEVICE), 3, out=out)
    torch.testing.assert_close(out.cpu(), torch.mvlgamma(x, 3))


@pytest.mark.parametrize("dtype", FLOATS)
def test_glu_backward(dtype):
    glu = torch.nn.functional.glu
    x = wild(dtype)[5:4101].clamp(-50, 50).reshape(2, 8, 16, 16)
    with no_fallback():
        for dim in (0, 1, -1):
            for t in (x, x.to(memory_format=torch.channels_last), x.transpose(0, 3), x[:, ::2], x[:0]):
                if dtype in HALVES:  # the CPU rounds the sigmoid, of which 1 - s leaves little
                    grad = glu(t, dim) * 0.5 + 1
                    want = torch.ops.aten.glu_backward(grad.float(), t.float(), dim).to(dtype)
                    got = torch.ops.aten.glu_backward(to_device(grad), to_device(t), dim)
                    assert_same(got, want, rtol=torch.finfo(dtype).eps, atol=1e-6)
                else:
                    check(lambda t, dim=dim: glu(t, dim), t.detach().requires_grad_(), grad=True)
        backward = torch.ops.aten.glu_backward.grad_input
        for out in (torch.empty(0, dtype=dtype), torch.empty(4, 6, dtype=dtype).t()):
            check(lambda g, t, o: backward(g, t, 0, grad_input=o), x[0, 0, :3, :4], x[0, 1, :6, :4], out)
        check(lambda g, t: torch.ops.aten.glu_backward(g, t, 1), x[0, 0, :1, :1], x[0, 1, :3, :4])
    backward = torch.ops.aten.glu_backward
    a = x[0, 0].to(DEVICE)
    for grad, self, dim, error in (
        (a, a[0, 0], 0, RuntimeError),
        (a, a[:3], 0, RuntimeError),
        (a, a, 2, IndexError),
        (a[:3], a, 0, RuntimeError),
    ):
        with pytest.raises(error):
            backward(grad, self, dim)
    with pytest.raises(RuntimeError, match="dtype"):
        backward(a[:8].double() if dtype != torch.float64 else a[:8].float(), a, 0)
