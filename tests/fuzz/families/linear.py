"""Products of matrices, solving, distances and attention."""

from __future__ import annotations

import torch
from generator import filled, finite, is_float
from makers import maker

from program import LAYOUTS


def distinct(t):
    """No element twice: PyTorch's CPU may add equal products one by one, whose rounding all goes one way."""
    return all(stride or n == 1 for stride, n in zip(t.stride(), t.shape, strict=True))


@maker(5)
def products(g):
    a = g.pick(is_float, lambda t: t.dim() in (1, 2, 3), distinct)
    if not a:
        return False
    dtype, device, rng = g.tensor(a).dtype, g.device_of[a], g.rng
    b = g.pick(lambda t: t.dtype == dtype and t.dim() in (1, 2, 3), distinct, device=device)
    k = g.tensor(a).shape[-1]
    # Mostly an operand that fits; sometimes one that need not.
    if not b or rng.random() < 0.7:
        b = f"make(({k}, {rng.randrange(1, 9)}), {dtype}, {rng.randrange(10**6)}, {rng.choice(LAYOUTS[:4])!r}, dev({device}))"
    form = rng.choice(
        (
            "torch.matmul({a}, {b})",
            "{a} @ {b}",
            "torch.matmul({a}, {b}).relu()",
            "F.linear({a}, {b}.mT.contiguous())",
        )
    )
    uses = [a] + ([b] if b in g.device_of else [])
    # Elements of different places may be equal, too, and then a long sum is off by one rounding a term.
    terms, factors = max(1, k) * max(64, k), max(1, k // 64)
    return g.add(form.format(a=a, b=b), *uses, kind="accumulated", terms=terms, factors=factors)


def not_long(t):
    """Whether a matrix of its last size is factored in less than a second: of 4099 it takes minutes."""
    return t.shape[-1] <= 64


def inline(g, shape, like: str) -> str:
    t = g.tensor(like)
    layout = g.rng.choice(LAYOUTS[:4])
    return f"make({tuple(shape)}, {t.dtype}, {8 * g.rng.randrange(10**5) + 1}, {layout!r}, dev({g.device_of[like]}))"


@maker(3)
def more_products(g):
    a = g.pick(is_float, filled, lambda t: t.dim() == 2, distinct)
    if not a:
        return False
    (m, k), rng = g.tensor(a).shape, g.rng
    n = rng.randrange(1, 9)
    b, c, v = inline(g, (k, n), a), inline(g, (rng.choice((1, m)), n), a), inline(g, (k,), a)
    text = rng.choice(
        (
            f"torch.addmm({c}, {a}, {b}, beta=0.5, alpha=2)",
            f"torch.addmv({inline(g, (m,), a)}, {a}, {v})",
            f"torch.addr({a}, {inline(g, (m,), a)}, {v})",
            f"torch.einsum('ij,jk->ki', {a}, {b})",
            f"torch.einsum('ij,ij->i', {a}, {a})",
            f"torch.baddbmm({inline(g, (3, m, n), a)}, {a}.expand(3, {m}, {k}), {inline(g, (3, k, n), a)})",
            f"torch.tensordot({a}, {b}, dims=1)",
            f"torch.kron({a}, {inline(g, (2, 2), a)})",
            f"torch.mv({a}, {v})",
            f"torch.linalg.multi_dot([{a}, {b}, {inline(g, (n, 2), a)}])",
            f"F.bilinear({a}, {a}, {inline(g, (2, k, k), a)})",
            f"torch.chain_matmul({a}, {b})",
            f"F.linear({a}, {inline(g, (n, k), a)}, {inline(g, (n,), a)})",
            f"torch.cross({inline(g, (m, 3), a)}, {inline(g, (m, 3), a)})",
        )
    )
    return g.add(text, a, kind="accumulated", terms=4096 * k * k)


@maker(2)
def distances(g):
    a = g.pick(is_float, filled, finite, lambda t: t.dim() == 2)
    if not a:
        return False
    (m, k), p = g.tensor(a).shape, g.rng.choice((0, 1, 2, 3, "float('inf')"))
    b = inline(g, (m, k), a)
    text = g.rng.choice(
        (
            f"torch.cdist({a}, {inline(g, (3, k), a)}, p={p}, compute_mode='donot_use_mm_for_euclid_dist')",
            f"F.pairwise_distance({a}, {b})",
            f"F.cosine_similarity({a}, {b})",
            f"F.pdist({a}, {p})",
            f"torch.dist({a}, {b}, {p})",
        )
    )
    return g.add(text, a, kind="accumulated", terms=4096 * k)


@maker(2)
def solving(g):
    """Of a symmetric matrix whose condition is small: eigenvalues between 4 and 4 + 8 rows."""
    a = g.pick(
        lambda t: t.dtype in (torch.float32, torch.float64), filled, finite, lambda t: t.dim() == 2, not_long
    )
    if not a:
        return False
    (rows, k), device = g.tensor(a).shape, g.device_of[a]
    x = f"({a}.mT.sigmoid() @ {a}.sigmoid() + 4 * torch.eye({k}, dtype={g.tensor(a).dtype}, device=dev({device})))"
    b = inline(g, (k, 3), a)
    text = g.rng.choice(
        (
            f"torch.linalg.inv({x})",
            f"torch.linalg.solve({x}, {b})",
            f"torch.linalg.cholesky({x})",
            f"torch.linalg.slogdet({x})[1]",
            f"torch.linalg.solve_triangular({x}.triu(), {b}, upper=True)",
            f"torch.cholesky_solve({b}, torch.linalg.cholesky({x}))",
            f"torch.linalg.lu_factor({x})[0]",
            f"torch.cholesky_inverse(torch.linalg.cholesky({x}))",
            f"torch.linalg.matrix_power({x} / 16, 3)",
            # A norm of about 1: errors grow with the exponential of it.
            f"torch.linalg.matrix_exp({x} / {16 + g.tensor(a).numel()})",
            f"torch.linalg.eigvalsh({x})",
            f"torch.linalg.svdvals({x})",
        )
    )
    # The products are positive and may be equal: their sum's roundings go one way.
    return g.add(text, a, kind="accumulated", terms=4096 * k * k, factors=rows)


@maker(2)
def attention(g):
    a = g.pick(is_float, filled, finite, lambda t: t.dim() in (3, 4))
    if not a:
        return False
    *lead, steps, width = g.tensor(a).shape
    keys = g.rng.randrange(1, 7)
    k, v = inline(g, (*lead, keys, width), a), inline(g, (*lead, keys, 3), a)
    mask = g.rng.choice(("", ", is_causal=True", f", attn_mask={inline(g, (steps, keys), a)}", ", scale=0.3"))
    # Elsewhere than on the CPU results lie in memory as the queries do, to the strides of dimensions of size 1.
    queries = f"{a}.clone(memory_format=torch.contiguous_format)"
    return g.add(
        f"F.scaled_dot_product_attention({queries}, {k}, {v}{mask})",
        a,
        kind="accumulated",
        terms=4096 * width * keys,
    )
