"""Losses."""

from __future__ import annotations

from generator import filled, finite, index_line, is_float
from makers import maker

from .linear import inline

LOSSES = "mse_loss l1_loss smooth_l1_loss huber_loss".split()


@maker(2)
def losses(g):
    a = g.pick(is_float, filled)
    b = a and g.like(a, is_float)
    if not b:
        return False
    return g.add(
        f"F.{g.rng.choice(LOSSES)}({a}, {b}, reduction='{g.rng.choice(('mean', 'sum', 'none'))}')",
        a,
        b,
        kind="accumulated",
        terms=256,
    )


@maker(3)
def class_losses(g):
    a = g.pick(is_float, filled, finite, lambda t: t.dim() == 2)
    if not a:
        return False
    (n, c), device, rng = g.tensor(a).shape, g.device_of[a], g.rng
    target = index_line(g, c, n, device)
    reduction = f"reduction='{rng.choice(('mean', 'sum', 'none'))}'"
    weight = f"{inline(g, (c,), a)}.abs()"
    same = inline(g, (n, c), a)
    sign = f"({inline(g, (n, c), a)}.sign() + 0.5).sign()"
    text = rng.choice(
        (
            f"F.cross_entropy({a}, {target}, {reduction})",
            f"F.cross_entropy({a}, {target}, weight={weight}, label_smoothing=0.1, {reduction})",
            f"F.cross_entropy({a}, {target}, ignore_index=0, {reduction})",
            f"F.cross_entropy({a}, {same}.softmax(1), {reduction})",
            f"F.nll_loss({a}.log_softmax(1), {target}, {weight}, {reduction})",
            f"F.multi_margin_loss({a}, {target}, p={rng.randrange(1, 3)}, {reduction})",
            f"F.multilabel_soft_margin_loss({a}, {same}.gt(0).to({g.tensor(a).dtype}), {reduction})",
            f"F.binary_cross_entropy_with_logits({a}, {same}.sigmoid(), pos_weight={weight}, {reduction})",
            f"F.binary_cross_entropy({a}.sigmoid() * 0.8 + 0.1, {same}.sigmoid(), {reduction})",
            f"F.kl_div({a}.log_softmax(1), {same}.softmax(1), {reduction})",
            f"F.soft_margin_loss({a}, {sign}, {reduction})",
            f"F.hinge_embedding_loss({a}, {sign}, {reduction})",
            f"F.margin_ranking_loss({a}, {same}, {sign}, margin=0.3, {reduction})",
            f"F.poisson_nll_loss({a}.clamp(-3, 3), {same}.abs(), {reduction})",
            f"F.gaussian_nll_loss({a}, {same}, {same}.abs() + 0.5, {reduction})",
            f"F.triplet_margin_loss({a}, {same}, {inline(g, (n, c), a)}, {reduction})",
            f"F.cosine_embedding_loss({a}, {same}, {sign}[:, 0], {reduction})",
            f"F.multilabel_margin_loss({a}, torch.zeros(({n}, {c}), dtype=torch.int64, device=dev({device})) - 1, {reduction})",
        )
    )
    return g.add(text, a, kind="accumulated", terms=4096 * n * c)


@maker(1)
def ctc(g):
    a = g.pick(is_float, filled, finite, lambda t: t.dim() == 3 and t.shape[2] > 1)
    if not a:
        return False
    (steps, n, c), device = g.tensor(a).shape, g.device_of[a]
    target = index_line(g, c, 2 * n, device, 1)
    lengths = ", ".join(f"torch.tensor({[k] * n}, device=dev({device}))" for k in (steps, 2))
    reduction = g.rng.choice(("mean", "sum", "none"))
    return g.add(
        f"F.ctc_loss({a}.log_softmax(2), {target}.view({n}, 2), {lengths}, reduction='{reduction}', zero_infinity=True)",
        a,
        kind="accumulated",
        terms=4096 * steps,
    )
