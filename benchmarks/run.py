"""Measure torch-fl's sim chip side by side with PyTorch's CPU device, in one run.

    python benchmarks/run.py [--only REGEX] [--quick] [--out benchmarks/RESULTS.md]

Prints ratios as it goes and writes the table itself.  Everything is measured in turns (ours, CPU, ours, …)
and the median of the ratios is reported, so that a noisy machine disturbs both alike.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from steps import Maker, gpt2_step, lstm_step, resnet50_step, unet_step

HERE = Path(__file__).resolve().parent
ROWS: list[tuple[str, str, str, str, str]] = []


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def row(name: str, ours: str, theirs: str, ratio: str, bound: str) -> None:
    ROWS.append((name, ours, theirs, ratio, bound))
    print(f"{name:44} {ours:>14} {theirs:>14} {ratio:>8}   wanted {bound}", flush=True)


def write(path: Path, command: str, ours: str, theirs: str) -> None:
    """The rows so far as a table."""
    lines = [
        "# Results", "",
        f"Written by `{command}` on {datetime.date.today()}: {processor()}, {os.cpu_count()} cores, "
        f"PyTorch {torch.__version__}, Python {platform.python_version()}.", "",
        f"| measured | {ours} | {theirs} | ratio | wanted |", "|---|---|---|---|---|",
        *(f"| {' | '.join(r)} |" for r in ROWS), "",
    ]  # fmt: skip
    path.write_text("\n".join(lines))
    print(f"\nwritten to {path}")


# ------------------------------------------------------------------ host time of small operators
def host_ns(call, calls: int) -> float:
    """Nanoseconds on the host of one call, the device's queue being emptied outside the clock."""
    total = 0
    for _ in range(calls // 200):
        start = time.perf_counter_ns()
        for _ in range(200):
            call()
        total += time.perf_counter_ns() - start
        torch.accelerator.synchronize()
    return total / (calls // 200 * 200)


def small_operators(quick: bool) -> None:
    torch.set_grad_enabled(False)
    cases = {
        "add": lambda a, b: lambda: torch.add(a, b),
        "mul": lambda a, b: lambda: torch.mul(a, b),
        "relu_": lambda a, b: lambda: torch.relu_(a),
        "sum": lambda a, b: lambda: torch.sum(a),
        "view": lambda a, b: lambda: a.view(8, 2),
        "empty": lambda a, b: lambda d=a.device: torch.empty(16, device=d),
    }
    for name, make in cases.items():
        calls = {}
        for device in ("fl", "cpu"):
            a, b = torch.ones(16, device=device), torch.ones(16, device=device)
            calls[device] = make(a, b)
            host_ns(calls[device], 2000)
        pairs = [(host_ns(calls["fl"], 4000), host_ns(calls["cpu"], 4000)) for _ in range(5 if quick else 45)]
        ratio = statistics.median(o / c for o, c in pairs)
        ours, theirs = (statistics.median(p[i] for p in pairs) for i in (0, 1))
        row(
            f"host time, {name} of 16 elements",
            f"{ours:.0f} ns",
            f"{theirs:.0f} ns",
            f"{ratio:.2f}",
            "<= 1.5",
        )
    torch.set_grad_enabled(True)


# ------------------------------------------------------------------ below PyTorch
def bare_layer() -> None:
    program = HERE.parent / "build" / "benchmarks" / "bare_layer"
    if not program.exists():
        raise SystemExit(f"{program} is not built; run make bench")
    chip = Path(importlib.util.find_spec("torch_fl").origin).parent / "chips" / "libfl_sim.so"
    environment = {**os.environ, "FL_CHIP_PATH": str(chip)}
    out = subprocess.run([program], check=True, capture_output=True, text=True, env=environment).stdout
    for line in out.splitlines():
        name, ns, bound = line.split("\t")
        row(name, f"{float(ns):.1f} ns", "", "", f"<= {bound} ns")


# ------------------------------------------------------------------ training steps
def training(
    name: str, make: Maker, bound: float, pairs: int, devices: tuple[str, str] = ("fl", "cpu")
) -> float:
    """Throughput of the first device against the second; returns seconds of the first one's step."""
    steps = [make(device) for device in devices]
    losses = [[step().item() for _ in range(5)] for step in steps]
    worst = max(abs(o - c) / abs(c) for o, c in zip(*losses, strict=True))
    times = []
    for _ in range(pairs):
        seconds = []
        for step in steps:
            start = time.perf_counter()
            step().item()
            seconds.append(time.perf_counter() - start)
        times.append(seconds)
    ratio = statistics.median(c / o for o, c in times)
    ours, theirs = (statistics.median(t[i] for t in times) for i in (0, 1))
    row(
        name,
        f"{1e3 * ours:.0f} ms",
        f"{1e3 * theirs:.0f} ms",
        f"{ratio:.2f}",
        f">= {bound} of the throughput",
    )
    row(f"{name}: first 5 losses differ by", f"{worst:.1e}", "", "", "<= 1e-4 relative")
    return ours


def launches() -> int:
    return sum(int(c["native"] + c["composed"] + c["fallback"]) for c in torch.fl.op_report().values())


def fallbacks() -> int:
    return sum(int(c["fallback"]) for c in torch.fl.op_report().values())


def memory(name: str, make: Maker) -> None:
    """Peak reserved memory against the peak of what live tensors asked for."""
    step = make("fl")
    step()
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()
    torch.accelerator.reset_peak_memory_stats()
    step().item()
    stats = torch.accelerator.memory_stats()
    reserved, live = stats["reserved_bytes.all.peak"], stats["requested_bytes.all.peak"]
    row(
        f"{name}: peak memory",
        f"{reserved / 2**20:.0f} MiB",
        f"{live / 2**20:.0f} MiB",
        f"{reserved / live:.3f}",
        "<= 1.15",
    )


def layer_share(step_seconds: float, make: Maker) -> None:
    """An upper bound of the layer's share: its whole host time per launch, as if none of it were hidden."""
    step = make("fl")
    step().item()
    before = launches()
    fallen = fallbacks()
    step().item()
    count = launches() - before
    a, b, out = (torch.ones(16, device="fl") for _ in range(3))
    with torch.no_grad():
        per_launch = (
            statistics.median(host_ns(lambda: torch.mul(a, b, out=out), 4000) for _ in range(9)) * 1e-9
        )
    share = 100 * count * per_launch / step_seconds
    row(f"ResNet-50: host time of {count} launches", f"{share:.3f} %", "of the step", "", "< 0.5 %")
    row("ResNet-50: fallbacks in a step", str(fallbacks() - fallen), "", "", "0")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only",
        default=".",
        help="run the sections that match: bare, operators, resnet, gpt, lstm, unet, memory",
    )
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--out", default=str(HERE / "RESULTS.md"))
    args = parser.parse_args()
    wanted = re.compile(args.only)
    pairs = 3 if args.quick else 7
    threads = torch.get_num_threads()
    print(f"{processor()}, {os.cpu_count()} cores; PyTorch {torch.__version__}, {threads} threads\n")
    print(f"{'':44} {'sim':>14} {'PyTorch CPU':>14} {'ratio':>8}")
    if wanted.search("bare"):
        bare_layer()
    if wanted.search("operators"):
        small_operators(args.quick)
    if wanted.search("resnet"):
        seconds = training("ResNet-50 training step, batch 8, 224×224", resnet50_step, 1.2, pairs)
        layer_share(seconds, resnet50_step)
    if wanted.search("gpt"):
        training("GPT-2-small training step, 2×128 tokens", gpt2_step, 1.3, pairs)
    if wanted.search("lstm"):
        training("LSTM training step, 20×35 tokens, 2×200 wide", lstm_step, 1.0, pairs)
    if wanted.search("unet"):
        training("U-Net training step, batch 4, 128×128", unet_step, 1.0, pairs)
    if wanted.search("memory"):
        memory("ResNet-50 step", resnet50_step)
        memory("GPT-2-small step", gpt2_step)
    if args.only == ".":
        write(Path(args.out), "make bench", "sim chip", "PyTorch's CPU device")


if __name__ == "__main__":
    sys.exit(main())
