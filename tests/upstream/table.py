"""Results of run.py as a page: what became of each file's tests, and why some are not the device's to pass.

    python tests/upstream/table.py results.jsonl … > docs/pytorch_tests.md

Of a test that is in several results the last one counts.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import pathlib
import textwrap

import exclusions

OUTCOMES = ["passed", "failed", "excluded", "cpu fails too", "skipped"]
HEAD = """# PyTorch's own tests

PyTorch's device-generic test files, of its release {source}, on `sim` with PyTorch {torch} ({date}):

    python tests/upstream/run.py pytorch-{source}/test --out results.jsonl
    python tests/upstream/table.py results.jsonl > docs/pytorch_tests.md

The files are of another release than the PyTorch they run with. A test that fails on its CPU as well says nothing of
the device and is counted apart; skipped are the tests that PyTorch has for other devices, or for what is not installed.
A test that crashes or does not end within the time it is given has failed.{note}

"""


def records(paths):
    """By file and test."""
    found = {}
    for path in paths:
        for line in path.read_text().splitlines():
            record = json.loads(line)
            found[record["file"], record["test"]] = record
    return found


def table(found):
    counts = collections.defaultdict(collections.Counter)
    for (file, _), record in found.items():
        outcome = record["outcome"]
        counts[file][outcome if outcome in OUTCOMES else "failed"] += 1
    yield "| file | " + " | ".join(OUTCOMES) + " |"
    yield "|---|" + "---:|" * len(OUTCOMES)
    total = sum(counts.values(), collections.Counter())
    rows = [(file, counts[file]) for file in exclusions.FILES if file in counts]
    for file, row in [*rows, ("all", total)]:
        yield f"| {file} | " + " | ".join(str(row[o]) for o in OUTCOMES) + " |"


def reasons(found):
    counts = collections.Counter(
        (file, record["message"]) for (file, _), record in found.items() if record["outcome"] == "excluded"
    )
    yield "| file | tests | excluded because |"
    yield "|---|---:|---|"
    for (file, why), n in sorted(counts.items()):
        yield f"| {file} | {n} | {why} |"


def main():
    import torch

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="+", type=pathlib.Path)
    parser.add_argument(
        "--source", default="v2.6.0", help="the release of PyTorch that the test files are of"
    )
    parser.add_argument("--note", default="", help="what the reader must know of this run")
    options = parser.parse_args()
    found = records(options.results)
    head = HEAD.format(
        source=options.source,
        torch=torch.__version__.split("+")[0],
        date=datetime.date.today(),
        note="\n\n" + textwrap.fill(options.note, 120) if options.note else "",
    )
    print(head + "\n".join(table(found)))
    failed = [(*k, r) for k, r in sorted(found.items()) if r["outcome"] in ("failed", "crashed", "hung")]
    if failed:
        print("\n## Failed\n")
        for file, test, record in failed:
            print(f"- {file} {test}: {' '.join(record['message'].split())[:160]}")
    print("\n## Excluded\n\n" + "\n".join(reasons(found)))


if __name__ == "__main__":
    main()
