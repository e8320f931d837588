"""The command torch-fl."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="torch-fl", description="Plain PyTorch on any AI chip.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    doctor = commands.add_parser("doctor", help="check this installation and run real maths on each device")
    doctor.add_argument("chip", nargs="*", metavar="CHIP.so", help="chip libraries to check too")
    doctor.add_argument("--json", action="store_true", help="print the findings as JSON")
    doctor.add_argument("--timeout", type=float, default=120, help="seconds for each check (%(default)s)")
    doctor.set_defaults(run=_doctor)

    devices = commands.add_parser("devices", help="list the devices")
    devices.set_defaults(run=_devices)

    config = commands.add_parser("config", help="list the settings with their values")
    form = config.add_mutually_exclusive_group()
    form.add_argument("--toml", action="store_true", help="as a settings file: torch-fl.toml")
    form.add_argument("--docs", action="store_true", help="as the table in docs/settings.md")
    config.set_defaults(run=_config)

    ops = commands.add_parser("ops", help="show how operators ran in the last run, or run on each chip here")
    ops.add_argument("report", nargs="?", help="what `torch-fl run --report` wrote; else the last run's")
    ops.add_argument("--chips", action="store_true", help="run PyTorch's operators on each chip; minutes")
    ops.add_argument("--match", default="", metavar="REGEX", help="--chips: operators whose names match")
    ops.add_argument("--dtypes", default="f32", help="--chips: f32,i64,… or all (%(default)s)")
    ops.add_argument("--claims", action="store_true", help="show what each chip claims to do natively")
    ops.set_defaults(run=_ops)

    run = commands.add_parser("run", help="run a script; devices, memory, time and operators at the end")
    run.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting for this run; repeatable"
    )
    run.add_argument("--report", metavar="FILE", help="write the report as JSON as well")
    run.add_argument("--limit", type=int, metavar="N", help="print the first N operators only")
    run.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module, as with python -m")
    run.add_argument("script", metavar="SCRIPT")
    run.add_argument("arguments", nargs=argparse.REMAINDER, metavar="…")
    run.set_defaults(run=_run)

    include = commands.add_parser("include", help="print the folder of the headers for chip authors")
    include.set_defaults(run=_include)

    chosen = parser.parse_args(arguments)
    chosen.words = sys.argv[1:] if arguments is None else arguments
    return chosen.run(chosen)


def _doctor(chosen: argparse.Namespace) -> int:
    from . import doctor

    return doctor.run(chosen.chip, as_json=chosen.json, timeout=chosen.timeout)


def _module():
    """torch.fl, or an end with the reason why it is not there."""
    import torch

    from . import _load

    if not hasattr(torch, "fl"):
        raise SystemExit(f"torch-fl is not usable: {_load.failure}")
    return torch.fl


def _devices(chosen: argparse.Namespace) -> int:
    fl = _module()
    for index in range(fl.device_count()):
        p = fl.get_device_properties(index)
        print(f"fl:{index}  {p.chip:<12} {p.name:<28} {p.total_memory / 2**30:8.1f} GiB  {p.uuid}")
    if not fl.device_count():
        print(fl.describe_devices())
    return 0 if fl.device_count() else 1


def _config(chosen: argparse.Namespace) -> int:
    _module()
    from . import config

    if chosen.docs or chosen.toml:
        print(*(config.docs_table() if chosen.docs else config.as_toml()), sep="\n")
        return 0
    refusals = {}
    for row in config.rows().values():
        value = "refused" if row["refusal"] else row["value"] or "-"
        print(f"{row['name']:<28} {value:<12} {row['environment']:<32} {row['sentence']}")
        print(
            f"{'':<41} {'(' + row['allowed'] + ')':<32} {'' if row['source'] == 'default' else row['source']}"
        )
        if row["refusal"]:
            refusals[row["refusal"]] = None
    for text in refusals:
        print(text, file=sys.stderr)
    return 1 if refusals else 0


def _ops(chosen: argparse.Namespace) -> int:
    if chosen.claims:
        _module()
        from . import _native

        for chip in _native.chips():
            print(f"{chip['name']} {chip['release']}")
            for entry, dtypes in chip["claims"].items():
                print(f"  {entry.lower():<20} {' '.join(dtypes)}")
        return 0
    if chosen.chips:
        return _measure(chosen)
    from .report import OpCounts, format_op_report
    from .run import last_report_path

    path = Path(chosen.report) if chosen.report else last_report_path()
    try:
        saved = json.loads(path.read_text())
    except OSError as error:
        print(f"no report: {error}. Run a script with: torch-fl run SCRIPT", file=sys.stderr)
        return 1
    report = {}
    for name, numbers in saved["operators"].items():
        site = numbers.pop("first_call_site")
        report[name] = OpCounts(numbers)
        report[name].first_call_site = site
    print(f"{saved['script']}:")
    print(format_op_report(report))
    return 0


def _measure(chosen: argparse.Namespace) -> int:
    """The tables of docs/operators.md for this machine's chips."""
    fl = _module()
    from . import coverage

    devices = range(fl.device_count())
    chips = dict.fromkeys(fl.get_device_properties(index).chip.split(":")[0] for index in devices)
    dtypes = list(coverage.DTYPES) if chosen.dtypes == "all" else chosen.dtypes.split(",")
    if unknown := set(dtypes) - set(coverage.DTYPES):
        known = ", ".join(coverage.DTYPES)
        print(f"--dtypes: no {', '.join(sorted(unknown))}; there are {known}", file=sys.stderr)
        return 2
    for chip in chips:
        found = coverage.measure(chip, dtypes, ops=chosen.match)
        print(f"# Operators on {chip}", "", coverage.LEGEND, "", sep="\n")
        for dtype in dtypes:
            print(f"In {dtype}, {coverage.share(coverage.column(found, dtype).values())}.")
        print("", *coverage.table({d: coverage.column(found, d) for d in dtypes}), sep="\n")
        print("", *coverage.fallbacks(found, dtypes[0]), "", sep="\n")
    return 0


def _run(chosen: argparse.Namespace) -> int:
    _module()
    from . import _native, run
    from .config import config

    if not chosen.module:
        run.under_the_scripts_settings(chosen.script, chosen.words)
    rows = {row["name"]: row for row in _native.settings()}
    for assignment in chosen.set:
        name, _, value = assignment.partition("=")
        try:
            setattr(config, name, value)
        except (AttributeError, ValueError) as error:
            print(f"torch-fl run: {error}", file=sys.stderr)
            return 2
        os.environ[rows[name]["environment"]] = value  # for the script's children
    return run.run(chosen.script, chosen.arguments, chosen.module, chosen.report, chosen.limit)


def _include(chosen: argparse.Namespace) -> int:
    folder = Path(__file__).resolve().parent
    inside = folder / "include"
    print(inside if inside.is_dir() else folder.parent / "include")
    return 0


if __name__ == "__main__":
    sys.exit(main())
