"""Gradients of one operator or of a few."""

from __future__ import annotations

import torch
from generator import filled, finite, index_line
from makers import maker

from .linear import inline, not_long


@maker(5)
def gradients(g):
    a = g.pick(lambda t: t.dtype in (torch.float32, torch.float64), filled, finite)
    if not a:
        return False
    t = g.tensor(a)
    body = g.rng.choice(
        [f"x.{n}()" for n in ("sin", "tanh", "exp", "sigmoid", "square", "sum", "mean", "relu", "flatten", "abs")]
        + [f"F.{n}(x)" for n in ("gelu", "silu", "softplus", "elu")]
        + [f"x.softmax({g.axis(a)})", "x * x + x", "x / (x.abs() + 1)", "x.t()" if t.dim() <= 2 else "x.mT", "x[..., :1]",
           "x.cumsum(-1)" if t.dim() else "x + 1", "x.amax()", "torch.cat([x, x * 2])" if t.dim() else "x * 2", "x.var()",
           "x @ x.mT" if t.dim() == 2 else "x.expand(2, *x.shape)", "x.sort(-1, stable=True)[0]" if t.dim() else "x"]
    )  # fmt: skip
    return g.add(f"grad(lambda x: {body}, {a})", a, kind="accumulated", terms=10**3 * t.numel())


@maker(4)
def more_gradients(g):
    a = g.pick(lambda t: t.dtype in (torch.float32, torch.float64), filled, finite, lambda t: t.dim() > 0)
    if not a:
        return False
    t, d, device, rng = g.tensor(a), g.axis(a), g.device_of[a], g.rng
    size = t.shape[d]
    index = index_line(g, size, 4, device)
    # eps=1: of values that are nearly equal the variance, and its gradient, is what rounding makes of it.
    bodies = [
        f"x.index_select({d}, {index})", f"x.index_add({d}, {index}, x.index_select({d}, {index}))", "x.log_softmax(-1)",
        f"x.logsumexp({d})", "(x.flatten()[:8].tanh() * 0.1 + 1).prod()", f"x.cumprod({d})", f"x.cummax({d})[0]", "x.roll(1)",
        f"x.norm(dim={d})", f"torch.var_mean(x, {d})[0]", "x.flip(0)", "x.diff(dim=0)",
        "torch.where(x > 0, x, x * 2)", "x.clamp(-1, 1)", "torch.maximum(x, x.flip(0))", "F.pad(x, (1, 2))",
        "torch.hypot(x, x + 3)", "torch.atan2(x, x + 3)", "torch.lerp(x, x * 2, 0.3)", "x.to(torch.float64)", "x.mT @ x" if t.dim() > 1 else "x",
        "x.index_put((torch.zeros(2, dtype=torch.int64, device=x.device),), x[:1], accumulate=True)",
        "F.layer_norm(x, x.shape[-1:], eps=1).tanh()", "F.rms_norm(x, x.shape[-1:])", "x.expand(3, *x.shape).sum(0)", "F.gelu(x, approximate='tanh')",
        "F.mse_loss(x, x.flip(0))", "F.smooth_l1_loss(x, x * 2)", "torch.special.i0(x.tanh())", "torch.lgamma(x.sigmoid() + 1)", "x.triu() if x.dim() > 1 else x",
        "torch.einsum('...i,...i->...', x, x)", f"torch.stack([x, x * 2], {d})", f"x.unfold({d}, 1, 1)", "x.repeat(2, *[1] * (x.dim() - 1))",
    ]  # fmt: skip
    # Of nearly equal values it is rounding that is divided by.
    if (t.std(d, correction=0) > 1e-3 * t.abs().amax()).all():
        bodies.append(f"x.std({d})")
    if t.dim() == 4:
        # Of channels-last images whose gradient lies otherwise the CPU's batch norm gives other values.
        bodies += ["F.max_pool2d(x, 2, padding=1)", "F.avg_pool2d(x, 1)", "F.interpolate(x, scale_factor=2, mode='bicubic')",
                   "F.interpolate(x, (3, 5), mode='bilinear', antialias=True)", f"F.conv2d(x, {inline(g, (2, t.shape[1], 2, 2), a)}, padding=1)",
                   "F.pixel_shuffle(x.repeat(1, 4, 1, 1), 2)", "F.group_norm(x, 1, eps=1)", "F.batch_norm(x.contiguous(), None, None, training=True, eps=1)",
                   "F.pad(x, (1, 1), mode='reflect')", "F.adaptive_avg_pool2d(x, 2)", "F.adaptive_max_pool2d(x, 2)", "F.unfold(x, 1)",
                   f"F.conv_transpose2d(x, {inline(g, (t.shape[1], 2, 2, 2), a)}, stride=2)",
                   f"F.grid_sample(x, {inline(g, (t.shape[0], 2, 2, 2), a)} * 0.7, align_corners=False)"] * 2  # fmt: skip
    if t.dim() == 2:
        n, c = t.shape
        bodies += [f"F.cross_entropy(x, {index_line(g, c, n, device)})", f"F.nll_loss(x, {index_line(g, c, n, device)})", "torch.cdist(x, x * 2, compute_mode='donot_use_mm_for_euclid_dist')",
                   f"F.embedding({index_line(g, n, 5, device)}, x)", f"F.embedding_bag({index_line(g, n, 6, device)}.view(2, 3), x)",
                   f"F.linear(x, {inline(g, (3, c), a)})", f"torch.addmm({inline(g, (n, 3), a)}, x, {inline(g, (c, 3), a)})",
                   "F.cosine_similarity(x, x.flip(0) + 1)",
                   "F.multi_margin_loss(x, torch.zeros(x.shape[0], dtype=torch.int64, device=x.device))"] * 2  # fmt: skip
        if not_long(t):
            matrix = "x.mT.tanh() @ x.tanh() + 9 * torch.eye(x.shape[1], dtype=x.dtype, device=x.device)"
            bodies += [f"torch.linalg.inv({matrix})"] * 2
    if t.dim() == 3:
        bodies += [
            "F.scaled_dot_product_attention(x, x, x)",
            "F.max_pool1d(x, 1)",
            "torch.bmm(x, x.mT)",
            "F.interpolate(x, 5, mode='linear')",
        ] * 2
    return g.add(f"grad(lambda x: {rng.choice(bodies)}, {a})", a, kind="accumulated", terms=10**4 * t.numel())
