"""Measure how each operator of PyTorch's database runs on chips, and write docs/operators.md.

    python tests/opdb/coverage.py [--chips sim,template] [--samples 2] [--jobs 2] [--ops REGEX] [--out docs/operators.md]

The first chip is measured in every dtype, the others in float32. A chip that is not installed is found by
FL_CHIP_PATH, as the template is: FL_CHIP_PATH=build/chips/libfl_template.so.
"""

from __future__ import annotations

import argparse
import collections
import datetime
from pathlib import Path

import torch

from torch_fl import coverage


def document(found: dict[str, coverage.Found], samples: int) -> str:
    chip, *others = found
    total = collections.Counter(way for row in found[chip].values() for way, _ in row.values() if way)
    columns = {dtype: coverage.column(found[chip], dtype) for dtype in coverage.DTYPES}
    columns |= {f"{other}, f32": coverage.column(found[other], "f32") for other in others}
    options = f" --chips {','.join(found)}" if others else ""
    lines = [
        f"# Operators on `{chip}`" + "".join(f" and `{other}`" for other in others),
        "",
        f"Measured on {datetime.date.today()} with PyTorch {torch.__version__} over its operator database, forward, by",
        "",
        f"    python tests/opdb/coverage.py{options} --samples {samples}",
        "",
        coverage.LEGEND,
        "",
    ]
    for name, rows in found.items():
        lines.append(f"In float32 on `{name}`, {coverage.share(coverage.column(rows, 'f32').values())}.")
    lines += [
        f"Over all dtypes on `{chip}`: "
        + ", ".join(f"{total[way]} {way}" for way in ("native", "composed", "view", "fallback", "refused"))
        + ".",
        "",
        *coverage.table(columns),
    ]
    for name, rows in found.items():
        lines += ["", f"## ATen operators that run on the CPU in float32 on `{name}`", ""]
        lines += coverage.fallbacks(rows, "f32")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--chips", default="sim", help="names with commas between them (%(default)s)")
    parser.add_argument("--samples", type=int, default=2, help="samples an operator and dtype (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--ops", default="", metavar="REGEX")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    found = {}
    for chip in chosen.chips.split(","):
        dtypes = ["f32"] if found else list(coverage.DTYPES)
        found[chip] = coverage.measure(chip, dtypes, chosen.samples, chosen.jobs, chosen.ops)
    text = document(found, chosen.samples)
    if chosen.out:
        chosen.out.write_text(text)
    print(text.split("\n| operator")[0])


if __name__ == "__main__":
    main()
