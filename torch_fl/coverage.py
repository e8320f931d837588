"""How operators run on a chip: `torch-fl ops --chips`, and docs/operators.md.

An operator's way is the worst that any of its parts ran: native, composed, on the CPU (fallback), or
refused. PyTorch's own database of operators says what to run, each in every dtype that PyTorch's CPU
supports, forward, on a few samples. Right results are checked by the tests, not here.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import os
import re
import subprocess
import sys
import warnings

import torch

DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
    "c128": torch.complex128, "c64": torch.complex64, "c32": torch.complex32, "i64": torch.int64,
    "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool,
}  # fmt: skip
# From the worst to the best; a refusal is an exception where the CPU has none.
WAYS = ("refused", "fallback", "composed", "native")
SIGNS = {"refused": "✗", "fallback": "F", "composed": "C", "native": "N", "view": "V", None: ""}
LEGEND = (
    "**N** native: one entry of the chip. **C** composed from several. **F** fallback: some part of it ran "
    "on the CPU. **V** a view, or nothing to launch. ✗ refused. Empty: PyTorch's CPU has no kernel for the "
    "dtype. An operator that PyTorch itself builds from others has the worst of theirs."
)
DECOMPOSITION = "a dense decomposition: LAPACK's, on the chip's memory where the host can map it"
# Why an operator still runs on the CPU; one without a line here says so.
REASONS = {
    f"aten::{name}": DECOMPOSITION
    for name in """_linalg_svd _linalg_eigh _linalg_eigvals linalg_eig linalg_inv_ex _linalg_solve_ex
    linalg_lu linalg_lu_factor_ex _linalg_slogdet _linalg_det linalg_ldl_factor_ex linalg_ldl_solve
    linalg_lstsq linalg_qr geqrf ormqr""".split()
}
# Arguments after the first stay on the CPU, by their documentation.
HOST_ARGUMENTS = {"tensor_split"}

Found = dict[str, dict[str, tuple[str, list[str]]]]  # operator → dtype → (way, ATen operators that fell back)


def reason(name: str) -> str:
    return REASONS.get(name, "no reason given")


def way_of(counts: dict) -> str:
    """The worst way that an operator of a report ran."""
    return next((way for way in WAYS[1:] if counts[way]), "view")


def share(ways) -> str:
    """ "7 of 8 operators run without the CPU (87.5%)" """
    ways = [way for way in ways if way]
    left = sum(way in ("refused", "fallback") for way in ways)
    known = len(ways)
    return f"{known - left} of {known} operators run without the CPU ({1 - left / max(known, 1):.1%})"


# ------------------------------------------------------------------- measuring
def _database():
    """PyTorch's operators, their random samples the same in every process."""
    try:
        from torch.testing._internal import common_methods_invocations as definitions, common_utils
    except ImportError as error:
        raise SystemExit(f"PyTorch's operators need more: {error}. pip install expecttest numpy") from None

    def seed(number: int = 1234) -> None:
        torch.default_generator.manual_seed(number)
        torch.fl.manual_seed_all(number)

    common_utils.set_rng_seed = seed  # PyTorch's own asks every kind of accelerator
    definitions.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    return definitions.op_db, seed


def _moved(nest, device: torch.device):
    def move(x):
        if isinstance(x, torch.Tensor):
            return x.detach().to(device).requires_grad_(x.requires_grad)
        return device if isinstance(x, torch.device) or x == "cpu" else x

    return torch.utils._pytree.tree_map(move, nest)


def _attempt(op, sample, device: torch.device) -> bool:
    rest = torch.device("cpu") if op.name in HOST_ARGUMENTS else device
    inputs = _moved(sample.input, device), _moved(sample.args, rest), _moved(sample.kwargs, rest)
    torch.fl.reset_op_report()
    try:
        op.op(inputs[0], *inputs[1], **inputs[2])
    except Exception:
        return False
    return True


def run_one(op, dtype: torch.dtype, samples: int) -> tuple[str | None, list[str]]:
    """(the worst way, the ATen operators that fell back); None: the CPU cannot, "view": no operator ran."""
    ways, fell, ran = set(), set(), False
    for sample in itertools.islice(op.sample_inputs("cpu", dtype), samples):
        if not _attempt(op, sample, torch.device("cpu")):
            continue
        ran = True
        if not _attempt(op, sample, torch.device("fl:0")):
            ways.add("refused")
        for name, counts in torch.fl.op_report().items():
            ways.update(way for way in WAYS[1:] if counts[way])
            if counts["fallback"]:
                fell.add(name)
    if not ran:
        return None, []
    return next((way for way in WAYS if way in ways), "view"), sorted(fell)


def _part(chosen: argparse.Namespace) -> None:
    """One process's share of the operators; a line of JSON each."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    operators, seed = _database()
    for number, op in enumerate(operators):
        if number % chosen.jobs != chosen.part or not re.search(chosen.ops, op.full_name):
            continue
        for name in chosen.dtypes.split(","):
            if DTYPES[name] not in op.supported_dtypes("cpu"):
                continue
            seed()
            way, fell = run_one(op, DTYPES[name], chosen.samples)
            print(json.dumps([op.full_name, name, way, fell]), flush=True)


def measure(chip: str, dtypes: list[str], samples: int = 2, jobs: int = 1, ops: str = "") -> Found:
    """Run the operators that match `ops` on the first device of a chip, in processes of their own."""
    # Not -m: the package imports this module before Python would run it.
    command = [sys.executable, "-c", "from torch_fl.coverage import main; main()"]
    command += ["--dtypes", ",".join(dtypes), "--samples", str(samples), "--ops", ops, "--jobs", str(jobs)]
    environment = {**os.environ, "FL_VISIBLE_DEVICES": f"{chip}:0", "FL_FALLBACK": "quiet"}
    parts = [
        subprocess.Popen(
            [*command, "--part", str(part)], stdout=subprocess.PIPE, text=True, env=environment
        )
        for part in range(jobs)
    ]
    found: Found = collections.defaultdict(dict)
    for process in parts:
        for line in process.communicate()[0].splitlines():
            op, dtype, way, fell = json.loads(line)
            found[op][dtype] = (way, fell)
        if process.returncode:
            raise SystemExit(f"measuring {chip} ended with exit code {process.returncode}")
    return dict(sorted(found.items()))


# -------------------------------------------------------------------- printing
def table(columns: dict[str, dict[str, str | None]]) -> list[str]:
    """Markdown: a row for each operator, a column for each of {"f32": {"add": "native"}}."""
    rows = sorted({op for column in columns.values() for op in column})
    lines = ["| operator | " + " | ".join(columns) + " |", "|---|" + ":-:|" * len(columns)]
    lines += [f"| {op} | " + " | ".join(SIGNS[c.get(op)] for c in columns.values()) + " |" for op in rows]
    return lines


def column(found: Found, dtype: str) -> dict[str, str | None]:
    return {op: row[dtype][0] for op, row in found.items() if dtype in row}


def fallbacks(found: Found, dtype: str) -> list[str]:
    """Markdown: the ATen operators that ran on the CPU, and why."""
    callers = collections.Counter(name for row in found.values() for name in row.get(dtype, ("", []))[1])
    lines = ["| ATen operator | entries that call it | why |", "|---|---:|---|"]
    return lines + [f"| `{name}` | {count} | {reason(name)} |" for name, count in sorted(callers.items())]


def main() -> None:
    parser = argparse.ArgumentParser(description="One process of a measurement.")
    parser.add_argument("--dtypes", required=True)
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--ops", required=True)
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("--part", type=int, required=True)
    _part(parser.parse_args())
