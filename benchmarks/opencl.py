"""Measure the OpenCL chip beside its driver, CLBlast, the sim chip and PyTorch's CPU device, in one run.

    python benchmarks/opencl.py --program PATH [--only REGEX] [--quick] [--peer DIR] [--out FILE]

PATH is fl-opencl-benchmark, which chips/opencl builds: what needs no PyTorch is measured there.  Both sides
take turns, and the median of the ratios is reported: of throughput, or of the host's time for a launch.
DIR holds pytorch_ocl, the package that a build of pytorch_dlprim for this PyTorch makes.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Before PyTorch is imported: both chips, this one first.
os.environ.setdefault("FL_VISIBLE_DEVICES", "opencl:0,sim:0")
# Sides take turns: the threads of the one that waits sleep, where libgomp's would spin on the other's cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# PoCL's threads have a core each.  Else both often start on one, and a product of 512 ends before they part.
os.environ.setdefault("POCL_AFFINITY", "1")

import torch
import torch_fl_opencl
from run import HERE, processor, row, training, write
from steps import gpt2_step, resnet50_step

FIRST_STEP = """
import sys, time
sys.path.insert(0, sys.argv[1])
from steps import resnet50_step
step = resnet50_step("opencl")
times = []
for _ in range(3):
    start = time.perf_counter()
    step().item()
    times.append(time.perf_counter() - start)
    time.sleep(3)  # kernels are compiled behind the scenes
print(times[0], min(times[1:]))
"""


def below_pytorch(program: str) -> None:
    command = [program, *torch_fl_opencl.libraries()]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    for line in out.stdout.splitlines():
        name, ours, theirs, ratio = line.split("\t")
        if name == "launch":
            row(
                "host time of a launch, against the driver's own",
                f"{float(ours):.0f} ns",
                f"{float(theirs):.0f} ns",
                f"{1 / float(ratio):.2f}",
                "<= 1.3",
            )
        else:
            n = int(name.split()[1])
            speed = [f"{2e-9 * n**3 / float(seconds):.0f} GFLOPS" for seconds in (ours, theirs)]
            row(f"gemm of {n}, against CLBlast", *speed, ratio, ">= 5")


def products(rounds: int) -> None:
    for n in (512, 1024, 2048):
        pairs = [[torch.randn(n, n).to(device) for _ in range(2)] for device in ("opencl", "cpu")]
        times = []
        for _ in range(rounds + 1):
            seconds = []
            for a, b in pairs:
                start = time.perf_counter()
                torch.mm(a, b)
                torch.accelerator.synchronize()
                seconds.append(time.perf_counter() - start)
            times.append(seconds)
        times = times[1:]
        speed = [f"{2e-9 * n**3 / statistics.median(t[i] for t in times):.0f} GFLOPS" for i in (0, 1)]
        ratio = statistics.median(t[1] / t[0] for t in times)
        row(f"matmul of {n}, against PyTorch's CPU", *speed, f"{ratio:.2f}", ">= 0.7")


def first_steps() -> None:
    """The first step of a process, with nothing compiled and with all of it, in caches of their own."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "FL_VISIBLE_DEVICES": "opencl",
            "FL_OPENCL_CACHE": f"{folder}/ours",
            "POCL_CACHE_DIR": f"{folder}/pocl",
        }
        for name, bound in (("compiled", 30), ("again, in a second process", 2)):
            out = subprocess.run(
                [sys.executable, "-c", FIRST_STEP, str(HERE)],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            first, later = map(float, out.stdout.split())
            row(
                f"ResNet-50, the first step {name}",
                f"{first:.1f} s",
                f"{later:.1f} s later",
                f"+{first - later:.1f} s",
                f"less than {bound} s more",
            )


def resnet18(peer: str, steps: int) -> None:
    """Forward and backward, against pytorch_dlprim on the same driver: two backends, two processes."""
    measured = []
    for device, modules, environment in (
        ("opencl:0", [], {"FL_VISIBLE_DEVICES": "opencl"}),
        ("ocl:0", ["pytorch_ocl"], {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONPATH": peer}),
    ):
        out = subprocess.run(
            [sys.executable, str(HERE / "resnet18.py"), device, str(steps), *modules],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        *times, norm = map(float, out.stdout.splitlines()[-1].split())
        measured.append((statistics.median(times), norm))
    (ours, norm), (theirs, norm_there) = measured
    name = "ResNet-18 forward and backward, batch 8, 224×224, against pytorch_dlprim"
    row(name, f"{ours * 1e3:.0f} ms", f"{theirs * 1e3:.0f} ms", f"{theirs / ours:.1f}", ">= 3")
    row(
        f"{name}: the first gradient's norm differs by",
        f"{abs(norm / norm_there - 1):.1e}",
        "",
        "",
        "<= 1e-4 relative",
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--program", required=True)
    parser.add_argument("--only", default=".", help="which sections: bare, matmul, first, resnet, gpt, peer")
    parser.add_argument("--peer", help="the folder that pytorch_ocl is in")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--out", default=str(HERE / "OPENCL.md"))
    args = parser.parse_args()
    wanted = re.compile(args.only)
    pairs = 3 if args.quick else 7
    print(f"{torch.cuda.get_device_name(0)}; {processor()}; PyTorch {torch.__version__}\n")
    if wanted.search("bare"):
        below_pytorch(args.program)
    if wanted.search("matmul"):
        products(5 if args.quick else 15)
    if wanted.search("first"):
        first_steps()
    for name, title, make in (
        ("resnet", "ResNet-50 training step, batch 8, 224×224", resnet50_step),
        ("gpt", "GPT-2-small training step, 2×128 tokens", gpt2_step),
    ):
        if wanted.search(name):
            training(f"{title}, against sim", make, 0.5, pairs, ("opencl", "sim"))
            training(f"{title}, against PyTorch's CPU", make, 0.5, pairs, ("opencl", "cpu"))
    if args.peer and wanted.search("peer"):
        resnet18(args.peer, 2 if args.quick else 4)
    if args.only == ".":
        write(Path(args.out), "make bench-opencl", "OpenCL chip", "the other")


if __name__ == "__main__":
    sys.exit(main())
