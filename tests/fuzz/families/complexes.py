"""Complex numbers and Fourier transforms."""

from __future__ import annotations

import torch
from generator import filled, finite, has_dims, is_float
from makers import maker


def is_complex(t):
    return t.dtype.is_complex


SMOOTH = "exp sin cos tanh sqrt rsqrt reciprocal square sigmoid sinh cosh log log2 log10 log1p expm1".split()


@maker(1)
def complex_functions(g):
    """Away from zero, where several of them have a pole."""
    a = g.pick(is_complex, finite)
    name = g.rng.choice(SMOOTH)
    return bool(a) and g.add(
        f"torch.{name}(torch.complex(torch.tanh({a}.real) + 2, torch.tanh({a}.imag)))",
        a,
        kind="accumulated",
        terms=64,
    )


@maker(1)
def complex_reductions(g):
    a = g.pick(is_complex, filled, finite)
    if not a:
        return False
    t = g.tensor(a)
    dim = f", dim={g.axis(a)}" if t.dim() else ""
    name = g.rng.choice(("sum", "mean", "prod", "norm", "cumsum", "cumprod", "var", "std"))
    if name.startswith("cum") and not dim:
        return False
    factors = t.numel() if name.endswith("prod") else 1
    terms = t.numel() * max(256, t.numel() if name == "norm" else 1)
    return g.add(f"torch.{name}({a}{dim})", a, kind="accumulated", terms=terms, factors=factors)


@maker(1)
def complex_products(g):
    a = g.pick(is_complex, lambda t: t.dim() == 2, finite)
    if not a:
        return False
    text = g.rng.choice(
        ("{0} @ {0}.mT", "{0} @ {0}.mH", "torch.outer({0}[0], {0}[0])", "torch.vdot({0}[0], {0}[0])")
    )
    return g.add(text.format(a), a, kind="accumulated", terms=64 * max(1, g.tensor(a).shape[-1]))


@maker(2)
def fourier(g):
    a = g.pick(lambda t: t.dtype in (torch.float32, torch.float64, torch.complex64), filled, finite, has_dims)
    if not a:
        return False
    t, d, rng = g.tensor(a), g.axis(a), g.rng
    norm = rng.choice(("'ortho'", "'backward'", "'forward'"))
    size = rng.choice(("None", str(rng.randrange(1, 10))))
    names = ["fft", "ifft", "hfft", "irfft"] + ([] if t.dtype.is_complex else ["rfft", "ihfft"])
    texts = [f"torch.fft.{rng.choice(names)}({a}, {size}, {d}, {norm})", f"torch.fft.fftshift({a}, {d})",
             f"torch.fft.ifftshift({a})"]  # fmt: skip
    if t.dim() > 1:
        texts.append(f"torch.fft.{rng.choice(('fft2', 'ifft2', 'fftn', 'irfft2'))}({a}, norm={norm})")
    text = rng.choice(texts)
    shift = "shift" in text
    return g.add(text, a, kind="exact" if shift else "accumulated", terms=64 * t.numel() ** 2)


@maker(1)
def made_complex(g):
    a = g.pick(is_float)
    b = a and g.pick(
        lambda t: t.shape == g.tensor(a).shape and t.dtype == g.tensor(a).dtype, device=g.device_of[a]
    )
    if not b:
        return False
    return g.add(
        g.rng.choice((f"torch.complex({a}, {b})", f"torch.polar({a}.abs(), {b})")),
        a,
        b,
        kind="accumulated",
        terms=4,
    )
