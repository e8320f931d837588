"""Measure how each operator of PyTorch's database runs on a chip, and write docs/operators.md.

    python tests/opdb/coverage.py [--samples 3] [--jobs 2] [--ops REGEX] [--out docs/operators.md]

Every operator runs in every dtype that PyTorch's CPU supports, forward, on samples of the database. The table has the
worst way that any of its parts ran: native, composed or fallback. Right results are checked by the tests, not here.
FL_VISIBLE_DEVICES or FL_CHIP_PATH chooses the chip.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import itertools
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import torch

DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
    "c128": torch.complex128, "c64": torch.complex64, "c32": torch.complex32, "i64": torch.int64,
    "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool,
}  # fmt: skip
# From the worst to the best; a refusal is an exception where the CPU has none.
WAYS = ("refused", "fallback", "composed", "native")
# Why an operator still runs on the CPU; one without a line here says so.
DECOMPOSITION = "a dense decomposition: LAPACK's, on the chip's memory where the host can map it"
REASONS = {
    f"aten::{name}": DECOMPOSITION
    for name in """_linalg_svd _linalg_eigh _linalg_eigvals linalg_eig linalg_inv_ex _linalg_solve_ex linalg_lu
    linalg_lu_factor_ex _linalg_slogdet _linalg_det linalg_ldl_factor_ex linalg_ldl_solve linalg_lstsq linalg_qr geqrf
    ormqr""".split()
}
SIGNS = {"refused": "✗", "fallback": "F", "composed": "C", "native": "N", "view": "V", None: ""}


def run_one(op, dtype, samples: int) -> tuple[str | None, list[str]]:
    """(the worst way, the ATen operators that fell back); None: the CPU cannot, "view": no operator ran."""
    import database

    ways, fell, ran = set(), set(), False
    for sample in itertools.islice(op.sample_inputs("cpu", dtype), samples):
        if database.outcome(lambda s=sample: op.op(s.input, *s.args, **s.kwargs))[1] is not None:
            continue
        copier = database.Copier(database.DEVICE)
        host = database.Copier("cpu") if op.name in database.HOST_ARGUMENTS else copier
        inputs = copier(sample.input), host(sample.args), host(sample.kwargs)
        torch.fl.reset_op_report()
        error = database.outcome(lambda i=inputs: op.op(i[0], *i[1], **i[2]))[1]
        ran = True
        if error is not None:
            ways.add("refused")
        for name, counts in torch.fl.op_report().items():
            ways.update(way for way in WAYS[1:] if counts[way])
            if counts["fallback"]:
                fell.add(name)
    if not ran:
        return None, []
    return next((way for way in WAYS if way in ways), "view"), sorted(fell)


def part(chosen: argparse.Namespace) -> None:
    """One process's share of the operators; a line of JSON each."""
    import database

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for number, op in enumerate(database.OPERATORS):
        if number % chosen.jobs != chosen.part or not re.search(chosen.ops, op.full_name):
            continue
        for name, dtype in DTYPES.items():
            if dtype not in op.supported_dtypes("cpu"):
                continue
            database.set_rng_seed(1234)
            way, fell = run_one(op, dtype, chosen.samples)
            print(json.dumps([op.full_name, name, way, fell]), flush=True)


def measure(chosen: argparse.Namespace) -> dict[str, dict[str, tuple[str, list[str]]]]:
    command = [sys.executable, __file__, "--samples", str(chosen.samples), "--ops", chosen.ops]
    parts = [
        subprocess.Popen(
            [*command, "--jobs", str(chosen.jobs), "--part", str(p)], stdout=subprocess.PIPE, text=True
        )
        for p in range(chosen.jobs)
    ]
    found = collections.defaultdict(dict)
    for process in parts:
        for line in process.communicate()[0].splitlines():
            op, dtype, way, fell = json.loads(line)
            found[op][dtype] = (way, fell)
        if process.returncode:
            raise SystemExit(f"a part ended with exit code {process.returncode}")
    return dict(sorted(found.items()))


def share(found, dtype: str) -> collections.Counter:
    return collections.Counter(row[dtype][0] for row in found.values() if dtype in row and row[dtype][0])


def document(found, samples: int) -> str:
    chip = torch.fl.get_device_properties(0).chip.split(":")[0]
    total = collections.Counter(way for row in found.values() for way, _ in row.values() if way)
    reasons = collections.Counter(n for row in found.values() for n in row.get("f32", ("", []))[1])
    single = share(found, "f32")
    known = sum(single.values())
    lines = [
        f"# Operators on `{chip}`",
        "",
        f"Measured on {datetime.date.today()} with PyTorch {torch.__version__} over its operator database, forward, by",
        "",
        f"    python tests/opdb/coverage.py --samples {samples}",
        "",
        "**N** native: one entry of the chip. **C** composed from several. **F** fallback: some part of it ran on the CPU. "
        "**V** a view, or nothing to launch. ✗ refused. Empty: PyTorch's CPU has no kernel for the dtype. An operator "
        "that PyTorch itself builds from others has the worst of theirs.",
        "",
        f"In float32, {known - single['fallback'] - single['refused']} of {known} operators run without the CPU "
        f"({1 - (single['fallback'] + single['refused']) / max(known, 1):.1%}); over all dtypes "
        + ", ".join(f"{total[way]} {way}" for way in ("native", "composed", "view", "fallback", "refused"))
        + ".",
        "",
        "| operator | " + " | ".join(DTYPES) + " |",
        "|---|" + ":-:|" * len(DTYPES),
    ]
    for op, row in found.items():
        lines.append(f"| {op} | " + " | ".join(SIGNS[row.get(d, (None, []))[0]] for d in DTYPES) + " |")
    lines += [
        "",
        "## ATen operators that run on the CPU in float32",
        "",
        "| ATen operator | entries that call it | why |",
        "|---|---:|---|",
    ]
    lines += [
        f"| `{name}` | {count} | {REASONS.get(name, 'no reason given')} |"
        for name, count in sorted(reasons.items())
    ]
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--samples", type=int, default=3, help="samples an operator and dtype")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--ops", default="", metavar="REGEX")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    if chosen.part is not None:
        part(chosen)
        return
    text = document(measure(chosen), chosen.samples)
    if chosen.out:
        chosen.out.write_text(text)
    print(text.split("\n| operator")[0])


if __name__ == "__main__":
    main()
