"""A hundred operators × small, medium and large shapes: the sim chip against PyTorch's CPU, in one run.

    python benchmarks/ops.py [--only REGEX] [--quick] [--out benchmarks/OPERATORS.md]

Medium and large: time until the result is there, in turns (ours, CPU, ours, …), the median of the
ratios; above 1 the chip is faster. Small: the host's time of a call against the CPU operator's whole
time; below 1 the call is cheaper.
"""

from __future__ import annotations

import argparse
import datetime
import math
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from run import processor

# a, b, c: matrices [n, n]; v [n]; images x [8, channels, side, side]; indices i [n], g [n, n]; mask m,
# integers k, positive p and bfloat16 h [n, n]; q [4, 4, n, 32]; see Tensors.
OPERATORS: dict[str, Callable] = {
    "add": lambda t: torch.add(t.a, t.b),
    "sub alpha": lambda t: torch.sub(t.a, t.b, alpha=2),
    "mul": lambda t: torch.mul(t.a, t.b),
    "div": lambda t: torch.div(t.a, t.b),
    "add scalar": lambda t: t.a + 1.5,
    "add_ in place": lambda t: t.c.add_(t.b, alpha=1e-6),
    "add broadcast row": lambda t: t.a + t.b[0],
    "add transposed": lambda t: t.a + t.b.T,
    "addcmul": lambda t: torch.addcmul(t.a, t.a, t.b, value=0.5),
    "lerp": lambda t: torch.lerp(t.a, t.b, 0.3),
    "maximum": lambda t: torch.maximum(t.a, t.b),
    "pow 2": lambda t: t.a**2,
    "pow tensor": lambda t: torch.pow(t.p, t.b),
    "remainder int": lambda t: torch.remainder(t.k, 7),
    "floor_divide int": lambda t: torch.floor_divide(t.k, 3),
    "lt": lambda t: t.a < t.b,
    "where": lambda t: torch.where(t.m, t.a, t.b),
    "masked_fill": lambda t: t.a.masked_fill(t.m, 0),
    "clamp": lambda t: t.a.clamp(-1, 1),
    "abs": lambda t: t.a.abs(),
    "neg": lambda t: -t.a,
    "exp": lambda t: t.a.exp(),
    "log": lambda t: t.p.log(),
    "sqrt": lambda t: t.p.sqrt(),
    "rsqrt": lambda t: t.p.rsqrt(),
    "sin": lambda t: t.a.sin(),
    "tanh": lambda t: t.a.tanh(),
    "sigmoid": lambda t: t.a.sigmoid(),
    "erf": lambda t: t.a.erf(),
    "relu": lambda t: t.a.relu(),
    "gelu": lambda t: F.gelu(t.a),
    "silu": lambda t: F.silu(t.a),
    "softplus": lambda t: F.softplus(t.a),
    "leaky_relu": lambda t: F.leaky_relu(t.a),
    "to bfloat16": lambda t: t.a.bfloat16(),
    "bfloat16 add": lambda t: t.h + t.h,
    "sum": lambda t: t.a.sum(),
    "sum rows": lambda t: t.a.sum(1),
    "sum columns": lambda t: t.a.sum(0),
    "mean": lambda t: t.a.mean(),
    "amax": lambda t: t.a.amax(1),
    "argmax": lambda t: t.a.argmax(1),
    "max dim": lambda t: t.a.max(1)[0],
    "var": lambda t: t.a.var(1),
    "norm": lambda t: t.a.norm(),
    "logsumexp": lambda t: t.a.logsumexp(1),
    "any": lambda t: t.m.any(1),
    "softmax": lambda t: t.a.softmax(1),
    "log_softmax": lambda t: t.a.log_softmax(1),
    "cumsum": lambda t: t.a.cumsum(1),
    "sort": lambda t: t.a.sort(1)[0],
    "topk": lambda t: t.a.topk(min(8, t.n), 1)[0],
    "nonzero": lambda t: t.m.nonzero(),
    "masked_select": lambda t: t.a.masked_select(t.m),
    "unique": lambda t: t.k.unique(),
    "index_select": lambda t: t.a.index_select(0, t.i),
    "index columns": lambda t: t.a[:, t.i],
    "gather": lambda t: t.a.gather(1, t.g),
    "scatter_add": lambda t: t.c.scatter_add(1, t.g, t.b),
    "index_add": lambda t: t.c.index_add(0, t.i, t.b),
    "embedding": lambda t: F.embedding(t.g[:, :8], t.a),
    "cat": lambda t: torch.cat([t.a, t.b]),
    "cat columns": lambda t: torch.cat([t.a, t.b], 1),
    "stack": lambda t: torch.stack([t.a, t.b]),
    "transpose copy": lambda t: t.a.T.contiguous(),
    "permute copy": lambda t: t.x.permute(0, 2, 3, 1).contiguous(),
    "flip": lambda t: t.a.flip(1),
    "roll": lambda t: t.a.roll(3, 1),
    "tril": lambda t: t.a.tril(),
    "pad": lambda t: F.pad(t.x, (1, 1, 1, 1)),
    "pad reflect": lambda t: F.pad(t.x, (1, 1, 1, 1), mode="reflect"),
    "mm": lambda t: t.a @ t.b,
    "mm transposed": lambda t: t.a @ t.b.T,
    "addmm": lambda t: torch.addmm(t.v, t.a, t.b),
    "bmm": lambda t: torch.bmm(t.q[0], t.q[1].mT),
    "linear gelu": lambda t: F.gelu(F.linear(t.a, t.b, t.v)),
    "mv": lambda t: t.a @ t.v,
    "conv 3x3": lambda t: F.conv2d(t.x, t.w3, padding=1),
    "conv 1x1": lambda t: F.conv2d(t.x, t.w1),
    "conv depthwise": lambda t: F.conv2d(t.x, t.wd, padding=1, groups=t.x.shape[1]),
    "max_pool": lambda t: F.max_pool2d(t.x, 2),
    "avg_pool": lambda t: F.avg_pool2d(t.x, 2),
    "adaptive_avg_pool": lambda t: F.adaptive_avg_pool2d(t.x, 1),
    "interpolate nearest": lambda t: F.interpolate(t.x, scale_factor=2, mode="nearest"),
    "interpolate bilinear": lambda t: F.interpolate(t.x, scale_factor=2, mode="bilinear"),
    "grid_sample": lambda t: F.grid_sample(t.x, t.grid, align_corners=False),
    "batch_norm": lambda t: F.batch_norm(t.x, None, None, training=True),
    "layer_norm": lambda t: F.layer_norm(t.a, (t.n,), t.v, t.v),
    "group_norm": lambda t: F.group_norm(t.x, 2),
    "attention": lambda t: F.scaled_dot_product_attention(t.q, t.q, t.q),
    "attention causal": lambda t: F.scaled_dot_product_attention(t.q, t.q, t.q, is_causal=True),
    "cross_entropy": lambda t: F.cross_entropy(t.a, t.i),
    "mse_loss": lambda t: F.mse_loss(t.a, t.b),
    "dropout": lambda t: F.dropout(t.a, 0.1),
    "randn": lambda t: torch.randn_like(t.a),
    "rfft": lambda t: torch.fft.rfft(t.a),
    "foreach add": lambda t: torch._foreach_add(t.list, 1.0),
}
SLOW = 0.7  # of the CPU's throughput: measured twice more, the middle counts, and the table says why
_WAKES = (
    "in a row it is faster than the CPU's; alone, the stream's thread has to be woken for a few microseconds"
)
REASONS = {
    "norm": _WAKES,
    "mv": _WAKES,
    "bfloat16 add": "blocks are widened, added and rounded in turn; the CPU's kernel does it in registers",
    "gelu": "erf is the C library's, called for each vector; the CPU's kernel is generated by oneDNN",
    "grid_sample": "four gathers and a weighted sum, which pass through memory; the CPU's kernel is one",
}
SIZES = {"small": (8, 4, 6), "medium": (256, 16, 28), "large": (1024, 32, 56)}  # n, channels, side


class Tensors:
    """The operands of one size on one device."""

    def __init__(self, device: str, n: int, channels: int, side: int):
        torch.manual_seed(n)
        self.n = n
        make = {
            "a": torch.randn(n, n), "b": torch.randn(n, n), "c": torch.randn(n, n), "v": torch.randn(n),
            "p": torch.rand(n, n) + 0.1, "h": torch.randn(n, n).bfloat16(), "m": torch.rand(n, n) < 0.5,
            "k": torch.randint(0, 1000, (n, n)), "i": torch.randint(0, n, (n,)),
            "g": torch.randint(0, n, (n, n)),
            "x": torch.randn(8, channels, side, side), "w3": torch.randn(channels, channels, 3, 3),
            "w1": torch.randn(2 * channels, channels, 1, 1), "wd": torch.randn(channels, 1, 3, 3),
            "q": torch.randn(4, 4, min(n, 512), 32), "grid": torch.rand(8, side, side, 2) * 2 - 1,
        }  # fmt: skip
        for name, value in make.items():
            setattr(self, name, value.to(device))
        self.list = [torch.randn(n, device=device) for _ in range(30)]


def seconds(call: Callable, operands: Tensors, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call(operands)
    torch.accelerator.synchronize()
    return (time.perf_counter() - start) / repeats


def host_seconds(call: Callable, operands: Tensors, repeats: int) -> float:
    """Of the host alone; the device's queue is emptied outside the clock, before it is full."""
    total = 0.0
    for _ in range(repeats // 20):
        start = time.perf_counter()
        for _ in range(20):
            call(operands)
        total += time.perf_counter() - start
        torch.accelerator.synchronize()
    return total / (repeats // 20 * 20)


def measure(
    call: Callable, ours: Tensors, cpu: Tensors, small: bool, quick: bool
) -> tuple[float, float, float]:
    """(ours, CPU's) seconds of a call, and the ratio: small ours/CPU, else CPU/ours."""
    clock = host_seconds if small else seconds
    for _ in range(3):
        call(ours), call(cpu)
    torch.accelerator.synchronize()
    once = max(seconds(call, cpu, 1), 1e-7)
    repeats = 200 if small else max(1, min(200, int(0.01 / once)))
    pairs = [(clock(call, ours, repeats), clock(call, cpu, repeats)) for _ in range(3 if quick else 9)]
    ratio = statistics.median(o / c if small else c / o for o, c in pairs)
    return statistics.median(o for o, _ in pairs), statistics.median(c for _, c in pairs), ratio


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(v) for v in values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", metavar="REGEX", default="", help="operators whose name matches")
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    torch.set_grad_enabled(False)
    names = [name for name in OPERATORS if re.search(chosen.only, name)]
    sizes = chosen.sizes.split(",")
    rows: dict[str, list[str]] = {name: [] for name in names}
    means = {}
    for size in sizes:
        ours, cpu = Tensors("fl", *SIZES[size]), Tensors("cpu", *SIZES[size])
        ratios = []
        for name in names:
            runs = [measure(OPERATORS[name], ours, cpu, size == "small", chosen.quick)]
            if size != "small" and runs[0][2] < SLOW:
                # Is it the operator, or a bad moment of the machine?
                runs += [measure(OPERATORS[name], ours, cpu, False, chosen.quick) for _ in range(2)]
            o, c, ratio = sorted(runs, key=lambda run: run[2])[len(runs) // 2]
            ratios.append(ratio)
            rows[name].append(f"{ratio:.2f}")
            print(f"{size:8}{name:24}{1e6 * o:12.1f} µs{1e6 * c:12.1f} µs{ratio:8.2f}", flush=True)
        means[size] = geometric_mean(ratios)
        print(f"{size}: geometric mean {means[size]:.2f}", flush=True)
    if chosen.out:
        write(chosen.out, sizes, rows, means)


def write(out: Path, sizes: list[str], rows: dict[str, list[str]], means: dict[str, float]) -> None:
    shapes = "; ".join(f"{s}: n {n}, channels {c}, side {d}" for s, (n, c, d) in SIZES.items() if s in sizes)
    lines = [
        "# Operators against PyTorch's CPU device",
        "",
        f"Written by `python benchmarks/ops.py` on {datetime.date.today()}, PyTorch {torch.__version__}, "
        f"{processor()}, {torch.get_num_threads()} threads. {shapes}.",
        "",
        "Medium and large: throughput of the sim chip over the CPU's (above 1 is faster). Small: the "
        "host's time of a call over the CPU operator's whole time (below 1 is cheaper).",
        "",
        "| operator | " + " | ".join(sizes) + " |",
        "|---|" + "---:|" * len(sizes),
        *(f"| {name} | " + " | ".join(row) + " |" for name, row in rows.items()),
        "| **geometric mean** | " + " | ".join(f"**{means[s]:.2f}**" for s in sizes) + " |",
        "",
    ]
    for name, row in rows.items():
        slow = [
            f"{ratio} ({s})"
            for s, ratio in zip(sizes, row, strict=True)
            if s != "small" and float(ratio) < SLOW
        ]
        if slow:
            lines.append(f"Below 0.7: {name}, {', '.join(slow)}: {REASONS.get(name, 'not explained')}.")
    out.write_text("\n".join(lines))
    print(f"written: {out}")


if __name__ == "__main__":
    main()
