"""Special functions against the CPU's, over wide arguments; those made of mandatory opcodes on the template chip too."""


import pytest
import torch
from child import run_beside_template
from family import DEVICE, check, no_fallback

BESSEL = [
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_i0", "modified_bessel_i1",
    "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1",
    "spherical_bessel_j0",
]  # fmt: skip
CHEBYSHEV = [f"{prefix}chebyshev_polynomial_{kind}" for prefix in ("", "shifted_") for kind in "tuvw"]
OTHERS = ["hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"]
# PyTorch's own Bessel functions of float64 are good to 1e-6 just beyond 5, its airy_ai to 2e-5 just below -2.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


def points(dtype):
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 8, 2, -3, 1e5, 1, -1])
    return torch.cat([torch.linspace(-40, 40, 1601), torch.logspace(-30, 2.5, 200), special]).to(dtype)


def assert_near(got, want, tolerance, **kwargs):
    torch.testing.assert_close(got.cpu(), want, rtol=tolerance, atol=tolerance, equal_nan=True, **kwargs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", BESSEL)
def test_bessel(name, dtype):
    f, x = getattr(torch.special, name), points(dtype)
    rough = "bessel_j" in name or "bessel_y" in name or name == "airy_ai"
    with no_fallback():
        got = f(x.to(DEVICE))
    assert_near(got, f(x), 1e-4 if rough and name != "spherical_bessel_j0" else TOLERANCE[dtype])


# To 16 digits.
@pytest.mark.parametrize(("name", "x", "value"), [
    ("bessel_j0", 5.2, -0.11029043979098647), ("bessel_j1", 5.2, -0.3432230058719219),
    ("bessel_j0", 30.0, -0.08636798358104021), ("bessel_y0", 5.2, -0.33125093481988444),
    ("bessel_y1", 12.5, -0.1538382565375012), ("airy_ai", -2.4, -0.04333414044030945),
    ("airy_ai", -7.25, 0.32374057321118616), ("modified_bessel_k1", 3.5, 0.022239392925923834),
])  # fmt: skip
def test_values(name, x, value):
    got = getattr(torch.special, name)(torch.tensor(x, dtype=torch.float64, device=DEVICE)).item()
    assert abs(got - value) < 1e-14


@pytest.mark.parametrize("name", OTHERS)
def test_unsigned_degrees(name):
    f, x = getattr(torch.special, name), torch.linspace(-1, 1, 12)
    n = torch.arange(12).to(torch.uint64)
    with no_fallback():
        got = f(x.to(DEVICE), n.to(DEVICE))
    assert_near(got, f(x, n), 1e-4)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.bool])
def test_integers_and_out(dtype):
    x = torch.tensor([0, 1, 1, 0]).to(dtype) if dtype == torch.bool else torch.arange(-5, 9).to(dtype)
    for name in BESSEL:
        f = getattr(torch.special, name)
        assert_near(f(x.to(DEVICE)), f(x), 1e-4)
        out = torch.empty(x.numel() * 2, dtype=torch.float64, device=DEVICE)[::2]
        assert_near(f(x.to(DEVICE), out=out), f(x).double(), 1e-4)


# Where float32 overflows, and PyTorch's recurrence goes on to NaN, a rounding error decides.
def within(t, want):
    return (
        torch.where(want.isnan() | (want.abs() > 1e30), 0, t.cpu())
        if want.dtype == torch.float32
        else t.cpu()
    )


@pytest.mark.parametrize("name", ["laguerre_polynomial_l", "legendre_polynomial_p", "hermite_polynomial_h"])
def test_degrees_that_no_int64_holds(name):
    # On the CPU they have no polynomial; a recurrence up to 1e20 would not end.
    degrees = torch.tensor([1e20, 3, float("inf"), -1e20, float("nan"), 40])
    check(getattr(torch.special, name), torch.linspace(0.1, 0.9, 6), degrees)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CHEBYSHEV + OTHERS)
def test_polynomials(name, dtype):
    f = getattr(torch.special, name)
    special = torch.tensor([0.0, -0.0, 1, -1, 0.5, torch.inf, -torch.inf, torch.nan, 1e-30])
    x = torch.cat([torch.linspace(-3, 3, 61), special]).to(dtype)[:, None]
    n = torch.tensor([-3, 0, 1, 2, 3, 5, 6, 7, 9, 10, 15, 16, 17, 31, 32, 33, 46, 2.7]).to(dtype)
    tolerance = 1e-3 if dtype == torch.float32 else 1e-9
    with no_fallback():
        got = f(x.to(DEVICE), n.to(DEVICE))
        whole = f(x.to(DEVICE), 40)
        one = f(0.25, n.to(DEVICE))
        short = f(x.to(DEVICE), n.to(DEVICE)[:8].long())
    assert_near(within(got, f(x, n)), within(f(x, n), f(x, n)), tolerance)
    assert_near(within(whole, f(x, 40)), within(f(x, 40), f(x, 40)), tolerance)
    assert_near(one, f(0.25, n), tolerance)
    assert_near(short, f(x, n[:8].long()), tolerance)
    assert f(torch.empty(0, 3, device=DEVICE), torch.ones(3, device=DEVICE)).shape == (0, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_incomplete_gamma(dtype):
    a = torch.cat([torch.logspace(-3, 4, 50), torch.tensor([0, 1, 2, 10, torch.inf, torch.nan, -1])]).to(
        dtype
    )[:, None]
    r = torch.cat([torch.logspace(-2, 1, 40), torch.tensor([0, 1, torch.inf, torch.nan, -1])]).to(dtype)
    x = torch.where((a * r).isnan(), r, a * r)
    for f in (torch.special.gammainc, torch.special.gammaincc):
        with no_fallback():
            got = f(a.to(DEVICE), x.to(DEVICE))
        # In float32 PyTorch itself loses digits where a is large.
        assert_near(got, f(a, x), {torch.float64: 1e-8, torch.float32: 2e-3, torch.float16: 5e-3}[dtype])
    b = torch.linspace(0.5, 6, 9, dtype=torch.float64)
    there = b.to(DEVICE).requires_grad_()
    here = b.clone().requires_grad_()
    for t in (here, there):
        torch.special.gammainc(torch.full_like(t, 2.5), t).sum().backward()
    assert_near(there.grad, here.grad, 1e-9)


def test_polygamma():
    for dtype in (torch.int8, torch.int64, torch.float32, torch.float64):
        x = torch.arange(-4, 12).to(dtype)
        for n in range(5):
            assert_near(torch.polygamma(n, x.to(DEVICE)), torch.polygamma(n, x), 1e-5)


def test_on_mandatory_opcodes():
    code = f"""
        import torch
        torch.fl.config.fallback = "error"
        x = torch.cat([torch.linspace(-12, 12, 97), torch.tensor([0, torch.inf, torch.nan])])
        for name in {BESSEL!r}:
            f = getattr(torch.special, name)
            torch.testing.assert_close(f(x.to("template:0")).cpu(), f(x), rtol=1e-4, atol=1e-4, equal_nan=True)
        x, n = torch.linspace(-2, 2, 21)[:, None], torch.tensor([-1.0, 0, 1, 2, 7, 17, 20])
        for name in {CHEBYSHEV + OTHERS!r}:
            f = getattr(torch.special, name)
            got = f(x.to("template:0"), n.to("template:0")).cpu()
            torch.testing.assert_close(got, f(x, n), rtol=1e-3, atol=1e-3)
    """
    run_beside_template(code, timeout=100)
