"""Convolution, pooling, resampling, normalisation and recurrent cells."""

from __future__ import annotations

import torch
from generator import filled, finite, is_float
from makers import maker

from .linear import inline


def halves_are_finite(t):
    """The CPU's convolutions of channels-last halves read past an odd number of channels: NaN times 0."""
    return t.dtype not in (torch.float16, torch.bfloat16) or finite(t)


@maker(3)
def images(g):
    a = g.pick(is_float, filled, lambda t: t.dim() == 4, halves_are_finite)
    if not a:
        return False
    t, rng, device = g.tensor(a), g.rng, g.device_of[a]
    channels = t.shape[1]
    weight = f"make(({rng.randrange(1, 5)}, {channels}, 2, 2), {t.dtype}, {rng.randrange(10**6)}, 'contiguous', dev({device}))"
    return g.add(
        rng.choice(
            (
                f"F.conv2d({a}, {weight}, padding=1)",
                f"F.conv2d({a}, {weight}, stride=2, padding=1)",
                f"F.max_pool2d({a}, 2, padding=1)",
                f"F.avg_pool2d({a}, 2, stride=1)",
                f"F.adaptive_avg_pool2d({a}, 2)",
                f"F.interpolate({a}, scale_factor=2, mode='nearest')",
                f"F.interpolate({a}, scale_factor=2, mode='bilinear')",
                f"F.pad({a}, (1, 1, 1, 0), mode='{rng.choice(('constant', 'replicate', 'reflect', 'circular'))}')",
                # contiguous: where the operand is channels-last only the CPU's result is, too
                f"F.group_norm({a}.contiguous(), 1)",
                f"F.pixel_shuffle({a}.repeat(1, 4, 1, 1), 2)",
                f"F.unfold({a}, 2, padding=1)",
            )
        ),
        a,
        kind="accumulated",
        terms=256 * max(1, channels),
    )


@maker(3)
def norms(g):
    a = g.pick(is_float, filled, lambda t: t.dim() >= 2, finite)
    if not a:
        return False
    t = g.tensor(a)
    text = g.rng.choice(
        (
            f"F.layer_norm({a}, ({t.shape[-1]},))",
            f"F.rms_norm({a}, ({t.shape[-1]},))",
            f"torch._weight_norm({a}, {a}.flatten()[: {t.shape[0]}].reshape(-1, *[1] * {t.dim() - 1}), 0)",
            f"F.normalize({a}, dim=-1)",
            f"F.batch_norm({a}, None, None, training=True)",
        )
    )
    return g.add(text, a, kind="accumulated", terms=10**4 * t.numel())


@maker(3)
def convolutions(g):
    a = g.pick(is_float, filled, lambda t: t.dim() in (2, 3, 4, 5), halves_are_finite)
    if not a:
        return False
    t, rng = g.tensor(a), g.rng
    rank = t.dim() - rng.choice((1, 2))
    if rank not in (1, 2, 3):
        return False
    channels = t.shape[-rank - 1]
    groups = rng.choice([n for n in (1, 1, 2, channels) if channels % n == 0])
    out = groups * rng.randrange(1, 4)
    kernel = [rng.randrange(1, 4) for _ in range(rank)]
    # PyTorch's CPU crashes on a row of one element with kernel 1, stride 2, padding 1 and dilation 2.
    dilation = 1 if kernel == [1] else rng.randrange(1, 3)
    more = f"stride={rng.randrange(1, 3)}, padding={rng.randrange(3)}, dilation={dilation}, groups={groups}"
    if rng.random() < 0.3:
        weight = inline(g, (channels, out // groups, *kernel), a)
        # Without padding: whether an output may be empty, the CPU's kernels of float32 and float64 disagree.
        more = f"stride={rng.randrange(1, 3)}, groups={groups}, dilation={dilation}"
        text = f"F.conv_transpose{rank}d({a}, {weight}, {inline(g, (out,), a)}, {more})"
    else:
        text = f"F.conv{rank}d({a}, {inline(g, (out, channels // groups, *kernel), a)}, {inline(g, (out,), a)}, {more})"
    # The order in memory of an image of one row, and of groups whose channels are of one element each, is an
    # accident of the CPU.
    if rank == 1 or (groups > 1 and t.shape[-rank:].numel() == 1):
        text += ".contiguous()"
    return g.add(text, a, kind="accumulated", terms=256 * channels * 27)


@maker(3)
def pooling(g):
    a = g.pick(is_float, filled, lambda t: t.dim() in (3, 4, 5))
    if not a:
        return False
    t, rng = g.tensor(a), g.rng
    rank = t.dim() - 2
    kernel, stride = rng.randrange(1, 4), rng.randrange(1, 4)
    padding, ceil = rng.randrange(kernel // 2 + 1), rng.random() < 0.5
    size = rng.randrange(1, 4)
    # A dilated window over padding may hold nothing, and what stands for its index is an accident.
    dilation = 1 if padding or ceil else rng.randrange(1, 3)
    if rng.random() < 0.5:
        text = rng.choice(
            (
                f"F.max_pool{rank}d({a}, {kernel}, {stride}, {padding}, {dilation}, {ceil}, True)[{rng.randrange(2)}]",
                f"F.adaptive_max_pool{rank}d({a}, {size}, return_indices=True)[{rng.randrange(2)}]",
                # Of one dimension PyTorch has a kernel of the CPU's alone, whose results are contiguous.
                f"F.max_pool{rank}d({a}{'.contiguous()' * (rank == 1)}, {kernel}, {stride}, {padding})",
                f"F.max_unpool{rank}d(*F.max_pool{rank}d({a}, 2, return_indices=True), 2)",
            )
        )
        return g.add(text, a)
    count = rng.random() < 0.5
    text = rng.choice(
        (
            f"F.avg_pool{rank}d({a}, {kernel}, {stride}, {padding}, {ceil}, {count})",
            f"F.adaptive_avg_pool{rank}d({a}, {size})",
            f"F.lp_pool{rank}d({a}.abs() + 0.1, {rng.randrange(1, 4)}, {kernel}, {stride}, {ceil})",
        )
    )
    return g.add(text, a, kind="accumulated", terms=64 * 27)


@maker(3)
def resampling(g):
    a = g.pick(is_float, filled, lambda t: t.dim() in (3, 4, 5))
    if not a:
        return False
    rank, rng = g.tensor(a).dim() - 2, g.rng
    size = tuple(rng.randrange(1, 9) for _ in range(rank))
    smooth = {1: ["linear"], 2: ["bilinear", "bicubic"], 3: ["trilinear"]}[rank]
    mode = rng.choice(["nearest", "nearest-exact", "area", *smooth])
    more = f", align_corners={rng.random() < 0.5}" if mode in smooth else ""
    # Not to a width of 1, where PyTorch's CPU repeats the first row, channels-last apart.
    if mode in ("bilinear", "bicubic") and size[-1] > 1 and rng.random() < 0.4:
        more += ", antialias=True"
    return g.add(f"F.interpolate({a}, {size}, mode='{mode}'{more})", a, kind="accumulated", terms=4096)


@maker(2)
def sampling(g):
    # Not of halves, whose coordinates PyTorch's CPU rounds until they name other points.
    a = g.pick(
        lambda t: t.dtype in (torch.float32, torch.float64), filled, finite, lambda t: t.dim() in (4, 5)
    )
    if not a:
        return False
    t, rng = g.tensor(a), g.rng
    rank = t.dim() - 2
    grid = f"({inline(g, (t.shape[0], 3, *(2,) * (rank - 1), rank), a)} * 0.8)"
    mode = rng.choice(("bilinear", "nearest", *(("bicubic",) if rank == 2 else ())))
    padding = rng.choice(("zeros", "border", "reflection"))
    return g.add(
        f"F.grid_sample({a}, {grid}, '{mode}', '{padding}', {rng.random() < 0.5})",
        a,
        kind="accumulated",
        terms=4096,
    )


@maker(2)
def more_norms(g):
    a = g.pick(is_float, filled, finite, lambda t: t.dim() >= 3)
    if not a:
        return False
    t, rng = g.tensor(a), g.rng
    c = t.shape[1]
    groups = rng.choice([n for n in (1, 2, c) if c % n == 0])
    w, b = inline(g, (c,), a), inline(g, (c,), a)
    mean, var = inline(g, (c,), a), f"({inline(g, (c,), a)}.abs() + 0.5)"
    tail = tuple(t.shape[-2:])
    text = rng.choice(
        (
            f"F.group_norm({a}.contiguous(), {groups}, {w}, {b})",
            f"F.batch_norm({a}, {mean}, {var}, {w}, {b})",
            f"F.batch_norm({a}, {mean}, {var}, {w}, {b}, training=True)",
            f"F.instance_norm({a}.contiguous(), weight={w}, bias={b})",
            f"F.layer_norm({a}, {tail}, {inline(g, tail, a)}, {inline(g, tail, a)})",
            f"F.local_response_norm({a}, 2)",
        )
    )
    return g.add(text, a, kind="accumulated", terms=10**4 * t.numel())


@maker(2)
def cells(g):
    a = g.pick(lambda t: t.dtype in (torch.float32, torch.float64), filled, finite, lambda t: t.dim() == 2)
    if not a:
        return False
    (n, k), h = g.tensor(a).shape, 3
    # contiguous: only the CPU, which composes a GRU's cell, gives the result the order of the hidden state
    hidden = f"{inline(g, (n, h), a)}.contiguous()"
    name, gates = g.rng.choice(
        (("lstm_cell", 4), ("gru_cell", 3), ("rnn_tanh_cell", 1), ("rnn_relu_cell", 1))
    )
    state = f"({hidden}, {inline(g, (n, h), a)})" if name == "lstm_cell" else hidden
    weights = ", ".join(inline(g, s, a) for s in ((gates * h, k), (gates * h, h), (gates * h,), (gates * h,)))
    which = f"[{g.rng.randrange(2)}]" if name == "lstm_cell" else ""
    return g.add(f"torch.{name}({a}, {state}, {weights}){which}", a, kind="accumulated", terms=4096 * k)
