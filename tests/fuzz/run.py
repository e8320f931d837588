"""Run random programs on the CPU and on a device, and compare after every line.

    python tests/fuzz/run.py [--seconds 1800] [--seed 1] [--devices 1,4] [--jobs 2] [--out fuzz-failures]

A difference, a crash or a hang is shrunk to the fewest lines and written to a script. Programs run in child
processes, a batch each, so that none of those ends the fuzzer. Exit code: 0 no difference, 1 differences.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pickle
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

import catalogue
from shrink import shrink, write_script

from program import Difference, Program, replay

BATCH = 25  # programs of one child process
LIMIT = 60.0  # seconds a program may take


def child(function, devices: int, timeout: float):
    """function() in a forked process: (result, None), or (the last seed, how the process ended)."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(read)
            os.environ["FL_SIM_DEVICES"] = str(devices)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            with os.fdopen(write, "wb") as pipe:
                try:
                    result = function(lambda seed: _note(pipe, seed))
                except Exception as error:
                    traceback.print_exc()
                    result = f"the fuzzer itself fails: {type(error).__name__}: {error}"
                pickle.dump(result, pipe)
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    deadline = time.monotonic() + timeout
    seed, result = None, None
    with os.fdopen(read, "rb") as pipe:
        while True:
            if not multiprocessing.connection.wait([pipe], max(0, deadline - time.monotonic())):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return seed, f"hangs for more than {timeout:.0f} s"
            try:
                result = pickle.load(pipe)
            except EOFError:
                break
            if isinstance(result, int):  # the seed that begins
                seed, deadline = result, time.monotonic() + timeout
                continue
            os.waitpid(pid, 0)
            return (seed, result) if isinstance(result, str) else (result, None)
    status = os.waitpid(pid, 0)[1]
    return seed, f"ends the process: {_ending(status)}"


def _note(pipe, seed: int) -> None:
    pickle.dump(seed, pipe)
    pipe.flush()


def _ending(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"signal {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exit code {os.WEXITSTATUS(status)}"


def prepare() -> None:
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)


def run_batch(seeds: list[int], devices: int):
    """The first seed that fails, as (seed, text), or the number of lines that ran."""

    def work(note):
        prepare()
        lines = 0
        for seed in seeds:
            note(seed)
            program = catalogue.generate(seed, devices)
            try:
                replay(program)
            except Difference as difference:
                return {"seed": seed, "text": f"line {difference.step}: {difference.text}"}
            lines += len(program.steps)
        return {"lines": lines}

    result, ending = child(work, devices, LIMIT)
    return {"seed": result, "text": ending} if ending else result


def failure_of(program: Program) -> str | None:
    """How a program fails in a process of its own; None when it does not."""

    def work(note):
        prepare()
        note(program.seed)
        try:
            replay(program)
        except Difference as difference:
            return {"text": difference.text}
        return {"text": None}

    result, ending = child(work, program.devices, LIMIT)
    return ending or result["text"]


def kind_of(text: str) -> str:
    """What has to stay the same while a program is shrunk."""
    for word in (
        "does not raise",
        "; the CPU",
        "ends the process",
        "hangs",
        "differ",
        "strides",
        "shape",
        "dtype",
    ):
        if word in text:
            return word
    return text.split(":")[0]


def generated(seed: int, devices: int) -> Program:
    """catalogue.generate in a child: this process never starts PyTorch's threads, so that it may fork."""

    def work(note):
        prepare()
        return catalogue.generate(seed, devices)

    result, ending = child(work, devices, LIMIT)
    if ending:
        raise RuntimeError(f"the program of seed {seed} {ending} while it is made")
    return result


def report(seed: int, devices: int, text: str, out: Path) -> Path | None:
    try:
        program = generated(seed, devices)
    except RuntimeError as error:  # the CPU's own fault: there is no program to shrink
        print(f"{error} ({devices} device(s))", flush=True)
        return None
    first = failure_of(program)
    if first is not None:
        program = shrink(
            program, lambda p: (found := failure_of(p)) is not None and kind_of(found) == kind_of(first)
        )
        text = failure_of(program) or first
    else:
        text += " (only after other programs in one process)"
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"seed-{seed}-devices-{devices}.py"
    write_script(program, text, path)
    print(f"seed {seed}, {devices} device(s): {text}\n  {len(program.steps)} lines in {path}", flush=True)
    for step in program.steps:
        print(f"    {step.line}", flush=True)
    return path


def worker(job: int, jobs: int, chosen: argparse.Namespace, counts) -> None:
    devices = [int(d) for d in chosen.devices.split(",")]
    end = time.monotonic() + chosen.seconds
    batch = job
    while time.monotonic() < end and (not chosen.programs or batch * BATCH < chosen.programs):
        n = devices[batch % len(devices)]
        seeds = [chosen.seed * 10**6 + batch * BATCH + i for i in range(BATCH)]
        while seeds:
            result = run_batch(seeds, n)
            if "lines" in result:
                with counts.get_lock():
                    counts[0] += len(seeds)
                    counts[1] += result["lines"]
                break
            with counts.get_lock():
                counts[2] += 1
            report(result["seed"], n, result["text"], chosen.out)
            seeds = seeds[seeds.index(result["seed"]) + 1 :]
            if counts[2] >= chosen.stop_after:
                return
        batch += jobs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--programs", type=int, help="end after this many, too")
    parser.add_argument("--seed", type=int, default=1, help="the first program's number, in millions")
    parser.add_argument("--devices", default="1,4", help="numbers of sim devices, in turns")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--stop-after", type=int, default=10, metavar="FAILURES")
    parser.add_argument("--out", type=Path, default=Path("fuzz-failures"))
    chosen = parser.parse_args()
    counts = multiprocessing.Array("q", 3)
    started = time.monotonic()
    context = multiprocessing.get_context("fork")
    workers = [
        context.Process(target=worker, args=(j, chosen.jobs, chosen, counts)) for j in range(chosen.jobs)
    ]
    for process in workers:
        process.start()
    for process in workers:
        process.join()
    programs, lines, failures = counts
    seconds = time.monotonic() - started
    print(f"{programs} programs, {lines} lines compared in {seconds:.0f} s: {failures} failures")
    broken = any(process.exitcode for process in workers)
    return 1 if failures or broken or not programs else 0


if __name__ == "__main__":
    sys.exit(main())
