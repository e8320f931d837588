"""What the CUDA view costs: the same calls with the view on and off, in turns, in one process.

python benchmarks/cuda_view.py
"""

from __future__ import annotations

import time

import torch

import torch_fl

ROUNDS, CALLS = 100, 300


def cases(name: str) -> dict[str, object]:
    x = torch.ones(1, device=name)
    out = torch.ones(1, device=name)
    cpu = torch.ones(1)
    return {
        "add(x, x, out=)": lambda: torch.add(x, x, out=out),
        "x + x": lambda: x + x,
        "x.view(1, 1)": lambda: x.view(1, 1),
        "x.add_(1)": lambda: x.add_(1),
        "torch.empty(1, device=)": lambda: torch.empty(1, device=name),
        "x.is_cuda": lambda: x.is_cuda,
        "x.device": lambda: x.device,
        "add on the CPU": lambda: torch.add(cpu, cpu, out=cpu),
    }


def nanoseconds(call) -> float:
    begin = time.perf_counter_ns()
    for _ in range(CALLS):
        call()
    spent = time.perf_counter_ns() - begin
    torch.fl.synchronize()
    return spent / CALLS


def main() -> None:
    spent: dict[str, dict[bool, list[float]]] = {}
    for turn in range(2 * ROUNDS):
        on = bool((turn + turn // 2) % 2)  # off, on, on, off, …: a drift of the machine meets both
        with torch_fl.cuda_view(on):
            for case, call in cases("cuda" if on else "fl").items():
                if turn < 2:
                    nanoseconds(call)  # warms up
                spent.setdefault(case, {False: [], True: []})[on].append(nanoseconds(call))
    # The least of many short rounds: what else the machine does only ever adds.
    print(f"{'':<26}{'off, ns':>9}{'on, ns':>9}{'on / off':>10}")
    for case, times in spent.items():
        off, on = min(times[False]), min(times[True])
        print(f"{case:<26}{off:>9.0f}{on:>9.0f}{on / off:>10.3f}")


if __name__ == "__main__":
    main()
