"""The gradients of gamma and Dirichlet numbers, in all regions of their approximations."""

import pytest
import torch
from family import DEVICE, assert_same, no_fallback, to_device

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
# Of results computed in double from the same numbers, as the CPU's in float64.
NEAR = {torch.float64: 1e-7, torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}


def check(function, *numbers):
    """The device's result against that of the CPU in double, whose own float32 series lose three digits."""
    dtype = numbers[0].dtype
    want = function(*(t.double() for t in numbers)).to(dtype)
    with no_fallback():
        got = function(*(to_device(t) for t in numbers))
    assert_same(got, want, rtol=NEAR[dtype], atol=1e-12 if dtype == torch.float64 else 1e-7)


def gamma_numbers(dtype):
    """Parameters from tiny to large, and for each the numbers from far below to far above."""
    a = torch.logspace(-2, 4, 61, dtype=torch.float64)[:, None]
    about = a + a.sqrt() * torch.linspace(-4, 4, 82)
    x = torch.cat([a * torch.logspace(-3, 1, 81, dtype=torch.float64), about], 1)
    # What a parameter above 8 does not give: there the CPU's powers underflow, and its result is 0.
    x = torch.where(a > 8, x.maximum(a / 5), x.clamp(min=1e-6))
    return a.expand_as(x).to(dtype).contiguous(), x.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gamma(dtype):
    a, x = gamma_numbers(dtype)
    check(torch._standard_gamma_grad, a, x)
    check(torch._standard_gamma_grad, a.t().contiguous().t(), torch.stack([x, x], -1)[..., 0])
    check(torch._standard_gamma_grad, a[3, 0], x[3, 5])
    check(torch._standard_gamma_grad, a[:, :1], x)
    check(torch._standard_gamma_grad, a[:0], x[:0])


def test_gamma_is_the_derivative():
    """Against differences of the distribution function; the approximations are good to a few in 1000."""
    steps = torch.logspace(-1, 2, 25, dtype=torch.float64)
    a, x = torch.meshgrid(steps, steps, indexing="ij")
    distribution, h = torch.special.gammainc, 1e-4
    density = torch.exp((a - 1) * x.log() - x - torch.lgamma(a))
    want = -(distribution(a * (1 + h), x) - distribution(a * (1 - h), x)) / (2 * h * a) / density
    likely = (distribution(a, x) > 1e-3) & (distribution(a, x) < 1 - 1e-3)
    got = torch._standard_gamma_grad(a.to(DEVICE), x.to(DEVICE)).cpu()
    torch.testing.assert_close(got[likely], want[likely], rtol=5e-3, atol=0)


def dirichlet_numbers(dtype):
    steps = torch.logspace(-1.5, 2.5, 21, dtype=torch.float64)
    a, b = (t.flatten() for t in torch.meshgrid(steps, steps, indexing="ij"))
    mean, deviation = a / (a + b), (a * b / (a + b + 1)).sqrt() / (a + b)
    evenly = torch.linspace(0.001, 0.999, 61, dtype=torch.float64)[:, None].expand(-1, len(a))
    near = mean + deviation * torch.linspace(-3, 3, 62, dtype=torch.float64)[:, None]
    x = torch.cat([evenly, near.clamp(1e-4, 1 - 1e-4)])
    return [t.to(dtype).expand_as(x).contiguous() for t in (x, a, a + b)]


@pytest.mark.parametrize("dtype", DTYPES[:2])
def test_dirichlet(dtype):
    x, a, total = dirichlet_numbers(dtype)
    check(torch._dirichlet_grad, x, a, total)
    check(torch._dirichlet_grad, x.t(), a.t().contiguous(), total.t())
    check(torch._dirichlet_grad, x[:0], a[:0], total[:0])


@pytest.mark.parametrize("dtype", DTYPES[:2])
def test_reparametrised_samples(dtype):
    for distribution in (
        lambda p: torch.distributions.Gamma(p, p + 1),
        lambda p: torch.distributions.Beta(p, p + 1),
        lambda p: torch.distributions.Dirichlet(p),
    ):
        p = torch.linspace(0.3, 12, 40, dtype=dtype).reshape(8, 5).to(DEVICE).requires_grad_()
        with no_fallback():
            (distribution(p).rsample() ** 2).sum().backward()
        assert p.grad.isfinite().all() and (p.grad != 0).any()
