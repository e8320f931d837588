"""Reductions, scans, order, and what counts or looks up values."""

from __future__ import annotations

import torch
from generator import filled, finite, has_dims, is_bool, is_float, is_integer, is_real
from makers import maker

REDUCTIONS = "sum mean amax amin prod var std logsumexp norm nansum".split()
EXACT_REDUCTIONS = "amax amin argmax argmin all any count_nonzero".split()


@maker(6)
def reduction(g):
    a = g.pick(is_float, filled)
    if not a:
        return False
    t = g.tensor(a)
    dim = "" if g.rng.random() < 0.3 or not t.dim() else f", dim={g.axis(a)}, keepdim={g.rng.random() < 0.5}"
    if t.dim() > 1 and dim and g.rng.random() < 0.3:
        dim = f", dim={tuple(g.rng.sample(range(t.dim()), 2))}, keepdim={g.rng.random() < 0.5}"
    name = g.rng.choice(REDUCTIONS)
    if name == "logsumexp" and not dim:
        dim = ", dim=0"
    # The CPU adds the squares of a norm one by one; of equal ones every rounding goes one way.
    more = {"var": 64, "std": 64, "prod": 64, "norm": t.numel()}
    return g.add(
        f"torch.{name}({a}{dim})",
        a,
        kind="accumulated",
        terms=t.numel() * more.get(name, 1),
        factors=t.numel() if name == "prod" else 1,
    )


@maker(4)
def exact_reduction(g):
    a = g.pick(is_real)
    name = g.rng.choice(EXACT_REDUCTIONS)
    if not a:
        return False
    dim = "" if g.rng.random() < 0.3 or not g.tensor(a).dim() else f", dim={g.axis(a)}"
    return g.add(f"torch.{name}({a}{dim})", a)


@maker(2)
def integer_sum(g):
    a = g.pick(lambda t: is_integer(t) or is_bool(t))
    name = g.rng.choice(("sum", "prod", "cumsum({}, dim=0)", "max", "min"))
    return bool(a) and g.add(f"torch.{name}".format(a) if "{" in name else f"torch.{name}({a})", a)


@maker(2)
def min_max(g):
    a = g.pick(is_real, filled, has_dims)
    if not a:
        return False
    name, dim = g.rng.choice(("max", "min", "cummax", "cummin", "median")), g.axis(a)
    if name == "median" and g.tensor(a).stride(dim) == 0:
        return False  # PyTorch's CPU kernel then reads memory that it has not written
    return g.add(f"torch.{name}({a}, dim={dim})[{g.rng.randrange(1)}]", a)


@maker(3)
def scan(g):
    a = g.pick(is_float, has_dims)
    if not a:
        return False
    name = g.rng.choice(("cumsum", "cumprod", "logcumsumexp", "softmax", "log_softmax"))
    count = max(1, g.tensor(a).numel())
    return g.add(
        f"torch.{name}({a}, dim={g.axis(a)})",
        a,
        kind="accumulated",
        terms=64 * count,
        factors=count if name in ("cumprod", "cumsum") else 1,
    )


@maker(3)
def order(g):
    a = g.pick(is_real, has_dims)
    if not a:
        return False
    d, down = g.axis(a), g.rng.random() < 0.5
    out = g.rng.randrange(2)
    if g.rng.random() < 0.6:
        return g.add(f"torch.sort({a}, dim={d}, descending={down}, stable=True)[{out}]", a)
    k = g.rng.randrange(0, g.tensor(a).shape[d] + 1)
    return g.add(f"torch.topk({a}, {k}, dim={d}, largest={down})[0]", a)


@maker(2)
def selection(g):
    a = g.pick(is_bool)
    if not a:
        return False
    if g.rng.random() < 0.5:
        return g.add(f"torch.nonzero({a})", a)
    b = g.like(a)
    return bool(b) and g.add(f"torch.masked_select({b}, {a})", b, a)


@maker(1)
def unique(g):
    a = g.pick(is_real, lambda t: finite(t))
    # In which order NaNs come is what the CPU's sort, which is not stable, makes of it.
    return bool(a) and g.add(
        f"torch.unique({a}.nan_to_num(), return_inverse=True, return_counts=True)[{g.rng.randrange(3)}]", a
    )


@maker(2)
def statistics(g):
    a = g.pick(is_float, filled, has_dims)
    if not a:
        return False
    t, d, rng = g.tensor(a), g.axis(a), g.rng
    p = rng.choice((1, 2, 3, "float('inf')", 0))
    text = rng.choice(
        (
            f"torch.var_mean({a}, dim={d}, correction={rng.randrange(2)})[{rng.randrange(2)}]",
            f"torch.std_mean({a}, dim={d})[{rng.randrange(2)}]",
            f"torch.nanmean({a}, dim={d})",
            f"torch.linalg.vector_norm({a}, {p}, dim={d})",
            f"torch.cumulative_trapezoid({a}, dim={d})",
            f"torch.trapezoid({a}, dim={d})",
            f"torch.diff({a}, dim={d})",
            f"torch.logsumexp({a}, dim={d}, keepdim=True)",
            f"F.softmin({a}, dim={d})",
            f"torch.cov({a}.flatten()[:9])",
            f"torch.renorm({a}, 2, {d}, 1.5)",
        )
    )
    # The CPU adds these terms one by one, and of equal ones every rounding goes one way.
    factors = t.numel() if "vector_norm" in text or "trapezoid" in text else 1
    return g.add(text, a, kind="accumulated", terms=64 * t.numel(), factors=factors)


@maker(2)
def quantiles(g):
    a = g.pick(is_float, filled, has_dims)
    if not a:
        return False
    d, rng = g.axis(a), g.rng
    if rng.random() < 0.5:
        # rounded: of the two zeros either may be the smaller, and the CPU goes on with the device's
        picked = (f"torch.aminmax({a}, dim={d})[{rng.randrange(2)}]", f"torch.nanmedian({a})", f"torch.median({a})",
                  f"torch.kthvalue({a}, 1, dim={d})[0]", f"torch.msort({a})", f"torch.argsort({a}, dim={d}, stable=True)")  # fmt: skip
        return g.add(rng.choice(picked), a, kind="rounded")
    how = rng.choice(("linear", "lower", "higher", "midpoint", "nearest"))
    name = rng.choice(("quantile", "nanquantile"))
    return g.add(f"torch.{name}({a}, 0.25, dim={d}, interpolation='{how}')", a, kind="accumulated")


@maker(2)
def counting(g):
    a = g.pick(is_real, lambda t: finite(t), filled)
    if not a:
        return False
    device, rng = g.device_of[a], g.rng
    edges = f"make((7,), {g.tensor(a).dtype}, {8 * rng.randrange(10**5) + 1}, 'contiguous', dev({device})).sort()[0]"
    right = rng.random() < 0.5
    text = rng.choice(
        (
            f"torch.searchsorted({edges}, {a}, right={right})",
            f"torch.bucketize({a}, {edges}, right={right})",
            f"torch.bincount(({a}.flatten() % 7).long().abs())",
            f"torch.bincount(({a}.flatten() % 7).long().abs(), minlength=9)",
            f"torch.unique_consecutive({a}, return_inverse=True, return_counts=True)[{rng.randrange(3)}]",
            f"torch.histc({a}.float().round(), 4, -2, 2)",
            f"torch.histogram({a}.float().round(), 5, range=(-3., 3.))[0]",
        )
    )
    return g.add(text, a)


@maker(1)
def segments(g):
    # Not of halves, in which the CPU adds up: of 2066 values around 1 its sum is off by 4 %, the device's by 0.1 %.
    a = g.pick(lambda t: t.dtype in (torch.float32, torch.float64), filled, has_dims)
    if not a:
        return False
    t, device, rng = g.tensor(a), g.device_of[a], g.rng
    cut = rng.randrange(t.shape[0] + 1)
    lengths = f"torch.tensor([{cut}, 0, {t.shape[0] - cut}], device=dev({device}))"
    name = rng.choice(("sum", "mean", "max", "min", "prod"))
    # The CPU adds one by one: the sum of 3075 numbers, 1025 of them equal, is off by 1e-5 there.
    return g.add(
        f"torch.segment_reduce({a}.contiguous(), '{name}', lengths={lengths}, axis=0, initial=1.0)",
        a,
        kind="accumulated",
        terms=64 * t.numel(),
        factors=t.numel() if name in ("sum", "mean", "prod") else 1,
    )
