"""Making a failing program small, and writing it as a script of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import program as program_module
from program import Program, Step


def without(steps: list[Step], gone: set[int]) -> list[Step]:
    """The steps less those at `gone` and less all that needs what those made."""
    missing: set[str] = set()
    left = []
    for number, step in enumerate(steps):
        if number in gone or missing.intersection(step.uses):
            missing.update(step.makes)
        else:
            left.append(step)
    return left


def shrink(program: Program, fails: Callable[[Program], bool]) -> Program:
    """The smallest program found that still fails: drops runs of steps, halving their length down to one."""
    steps = program.steps
    length = max(1, len(steps) // 2)
    while True:
        start, smaller = len(steps), False
        while start > 0:
            low = max(0, start - length)
            candidate = without(steps, set(range(low, start)))
            if len(candidate) < len(steps) and candidate and fails(replace(program, steps=candidate)):
                steps, smaller = candidate, True
                start = min(low, len(steps))
            else:
                start = low
        if length == 1 and not smaller:
            return replace(program, steps=steps)
        length = max(1, length // 2)


HEAD = '''"""{what}

Found by the fuzzer: seed {seed}, {devices} device(s). Runs on the CPU and on the device and compares after every line:

    FL_SIM_DEVICES={devices} python {name}
"""
'''


def write_script(program: Program, text: str, path: Path) -> None:
    """A file that needs this project's libraries but none of its test code."""
    steps = "\n".join(f"    {step!r}," for step in program.steps)
    source = inspect.getsource(program_module).split('"""', 2)[2].lstrip()  # without its docstring
    head = HEAD.format(what=text, seed=program.seed, devices=program.devices, name=path.name)
    path.write_text(
        f"{head}\n{source}\n\nSTEPS = [\n{steps}\n]\n\n"
        f'if __name__ == "__main__":\n    replay(Program({program.seed}, {program.devices}, STEPS))\n'
    )
