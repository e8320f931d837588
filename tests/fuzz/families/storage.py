"""Lists of tensors, results given as out=, and sparse tensors."""

from __future__ import annotations

import torch
from generator import filled, finite, is_float, is_number, is_real
from makers import maker

from .linear import inline


@maker(2)
def out_forms(g):
    a = g.pick(is_float)
    if not a:
        return False
    shape = list(g.tensor(a).shape)
    text = g.rng.choice(
        (
            "torch.add({a}, {a}, out=torch.empty({s}, dtype={t}, device=dev({d})))",
            "torch.exp({a}, out=torch.empty({s}, dtype={t}, device=dev({d})).mT.contiguous().mT)"
            if len(shape) > 1
            else "torch.neg({a}, out=torch.empty(0, dtype={t}, device=dev({d})))",
        )
    )
    return g.add(text.format(a=a, s=shape, t=g.tensor(a).dtype, d=g.device_of[a]), a, kind="accumulated")


@maker(2)
def foreach(g):
    a = g.pick(is_float)
    b = a and g.pick(is_float, device=g.device_of[a])
    name = g.rng.choice(
        (
            "_foreach_add([{a}, {b}], 2)",
            "_foreach_mul([{a}, {b}], [{a}, {b}])",
            "_foreach_exp([{a}, {b}])",
            "_foreach_neg([{b}, {a}])",
            "_foreach_norm([{a}, {b}])",
        )
    )
    return bool(b) and g.add(
        f"torch.{name.format(a=a, b=b)}[1]", a, b, kind="accumulated", terms=64 * max(1, g.tensor(b).numel())
    )


@maker(2)
def more_foreach(g):
    a = g.pick(is_float)
    b = a and g.pick(is_float, device=g.device_of[a])
    if not b:
        return False
    both = f"[{a}, {b}]"
    text = g.rng.choice(
        (
            f"torch._foreach_addcmul({both}, {both}, {both}, 0.5)",
            f"torch._foreach_addcdiv({both}, {both}, [{a}.abs() + 1, {b}.abs() + 1], [0.5, 2.0])",
            f"torch._foreach_lerp({both}, [{a} * 2, {b} + 1], 0.3)",
            f"torch._foreach_sub({both}, [1.0, 2.0])",
            f"torch._foreach_div({both}, [{a}.abs() + 1, {b}.abs() + 1])",
            f"torch._foreach_maximum({both}, 0.5)",
            f"torch._foreach_clamp_min({both}, -0.5)",
            f"torch._foreach_sqrt([{a}.abs() + 1, {b}.abs() + 1])",
            f"torch._foreach_pow([{a}.abs().clamp(0, 3), {b}.abs().clamp(0, 3)], 2)",
            f"torch._foreach_norm({both}, float('inf'))",
            f"torch._foreach_sigmoid({both})",
            f"torch._foreach_sign({both})",
        )
    )
    return g.add(
        f"{text}[{g.rng.randrange(2)}]", a, b, kind="accumulated", terms=64 * max(1, g.tensor(b).numel())
    )


@maker(2)
def more_out(g):
    """Into a view with gaps, into another dtype, and into what has to be resized."""
    a = g.pick(is_float)
    if not a:
        return False
    t, d = g.tensor(a), g.device_of[a]
    gaps = f"torch.empty({[*t.shape, 2]}, dtype={t.dtype}, device=dev({d}))[..., 0]"
    text = g.rng.choice(
        (
            f"torch.mul({a}, 2, out={gaps})",
            f"torch.tanh({a}, out={gaps})",
            f"torch.sum({a}, dim=(), out=torch.empty((), dtype={t.dtype}, device=dev({d})))",
            f"torch.add({a}, 1, out=torch.empty({list(t.shape)}, dtype=torch.float64, device=dev({d})))",
            f"torch.ge({a}, 0, out=torch.empty({list(t.shape)}, dtype=torch.float32, device=dev({d})))",
            f"torch.cat([{a}.flatten(), {a}.flatten()], out=torch.empty(0, dtype={t.dtype}, device=dev({d})))",
            f"torch.sort({a}.flatten(), stable=True, out=(torch.empty(0, dtype={t.dtype}, device=dev({d})), "
            f"torch.empty(0, dtype=torch.int64, device=dev({d}))))[{g.rng.randrange(2)}]",
            f"torch.clamp({a}, 0, 1, out={gaps})",
        )
    )
    return g.add(text, a, kind="accumulated", terms=64 * max(1, t.numel()))


@maker(2)
def sparse(g):
    a = g.pick(is_number, is_real, filled, finite, lambda t: t.dim() == 2)
    if not a:
        return False
    k = g.tensor(a).shape[1]
    thin = f"({a} * ({a} > 0))"
    b = inline(g, (k, 3), a)
    choices = [
        f"{thin}.to_sparse().to_dense()",
        f"{thin}.to_sparse().coalesce().values()",
        f"{thin}.to_sparse().indices()",
        f"{thin}.to_sparse_csr().to_dense()",
        f"{thin}.to_sparse_csr().col_indices()",
        f"({thin}.to_sparse() * 2).to_dense()",
        f"({thin}.to_sparse() + {thin}.to_sparse()).to_dense()",
        f"{thin}.to_sparse().transpose(0, 1).coalesce().to_dense()",
        f"{thin}.to_sparse(1).to_dense()",
        f"{thin}.to_sparse().index_select(0, torch.tensor([0, 0], device=dev({g.device_of[a]}))).to_dense()",
    ]
    # The CPU adds rows of halves in the half, and its sum stops growing where that does.
    if g.tensor(a).dtype not in (torch.float16, torch.bfloat16):
        choices.append(f"torch.sparse.sum({thin}.to_sparse(), 0).to_dense()")
    if is_float(g.tensor(a)):
        choices += [f"{thin}.to_sparse() @ {b}", f"{thin}.to_sparse_csr() @ {b}", f"torch.sparse.mm({thin}.to_sparse(), {b})",
                    f"torch.sparse.softmax({thin}.to_sparse(), 1).to_dense()", f"{thin}.to_sparse_csc().to_dense()"]  # fmt: skip
    return g.add(g.rng.choice(choices), a, kind="accumulated", terms=64 * k)
