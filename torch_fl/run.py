"""`torch-fl run`: a script as Python runs it, and a summary at the end."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import importlib.machinery
import io
import json
import os
import pkgutil
import runpy
import subprocess
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import _native
from .report import format_op_report, op_report

CONFIG_FILE = "torch-fl.toml"


def last_report_path() -> Path:
    """Where `torch-fl run` leaves its report for `torch-fl ops`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torch-fl" / "last-run.json"


def under_the_scripts_settings(script: str, again: list[str]) -> None:
    """Start over with the settings file beside the script, when nothing else names one.

    torch-fl's settings are read by `import torch`, before this function runs; a new program in this process
    (same number, same terminal, same signals) reads the right ones.
    """
    beside = Path(script).resolve().parent / CONFIG_FILE
    if "FL_CONFIG" not in os.environ and not Path(CONFIG_FILE).exists() and beside.is_file():
        os.environ["FL_CONFIG"] = str(beside)
        flags = subprocess._args_from_interpreter_flags()
        os.execv(sys.executable, [sys.executable, *flags, "-m", "torch_fl.cli", *again])


def run(script: str, arguments: list[str], module: bool, report: str | None, limit: int | None) -> int:
    """Run a script or module as `python` does, in this process; its exceptions and exit status pass through.

    The summary is written last: after the script's threads have ended and its exit handlers have run.
    """
    if not module and not os.path.exists(script):
        print(f"torch-fl run: can't open file {os.path.abspath(script)!r}: no such file", file=sys.stderr)
        return 2
    sys.argv = [script, *arguments]
    summary = Summary(report, limit)
    atexit.register(summary.write)
    _native.watch_devices()
    try:
        _execute(script, module)
    except SystemExit:
        raise
    except BaseException:
        sys.excepthook = _without_our_frames(sys.excepthook)  # the script's own, if it set one
        raise
    return 0


def _execute(script: str, module: bool) -> None:
    # A module of its own, for good: threads and exit handlers of the script use it after its last line.
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__builtins__ = builtins
    if module:
        _first_in_path(os.getcwd())
        runpy._run_module_as_main(script)
    elif os.path.isdir(script) or importlib.machinery.PathFinder.find_spec("__main__", [script]):
        runpy.run_path(script, run_name="__main__")  # a folder or archive with a __main__.py
    else:
        path = os.path.abspath(script)
        _first_in_path(os.path.dirname(os.path.realpath(script)))
        main.__file__, main.__cached__ = path, None
        main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
        exec(_code(path), vars(main))


def _first_in_path(folder: str) -> None:
    """In the place of the folder of the command torch-fl, which is in none with python -P."""
    if getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, folder)
    else:
        sys.path[0] = folder


def _code(path: str) -> types.CodeType:
    with io.open_code(path) as file:
        code = pkgutil.read_code(file)  # of a .pyc
    if code is None:
        with io.open_code(path) as file:
            code = compile(file.read(), path, "exec")
    return code


_OURS = {__file__, str(Path(__file__).with_name("cli.py")), runpy.__file__, "<frozen runpy>"}


def _without_our_frames(show: Callable[..., None]) -> Callable[..., None]:
    """The hook for an exception that ends the script, so that it is shown as `python script.py` shows it."""

    def hook(kind: type, error: BaseException, traceback: types.TracebackType | None) -> None:
        shown, first = traceback, traceback
        while shown and (shown is first or shown.tb_frame.f_code.co_filename in _OURS):
            shown = shown.tb_next
        error.__traceback__ = shown
        show(kind, error, shown)

    return hook


class Summary:
    """What the run used: devices, memory, time and fallbacks; the report of each operator in a file."""

    def __init__(self, report: str | None, limit: int | None) -> None:
        self.report, self.limit = report, limit
        self.process = os.getpid()
        self.start = time.perf_counter()

    def write(self) -> None:
        if os.getpid() != self.process:
            return  # a child that the script forked, and that ends as it does
        seconds = time.perf_counter() - self.start
        _native.stop_watching()
        operators = op_report()
        lines = [format_op_report(operators, limit=self.limit), *self.devices(seconds)]
        lines.append(self.fallbacks(operators))
        with contextlib.suppress(OSError, ValueError):  # nobody reads, or the script closed it
            print(*lines, sep="\n", flush=True)
        self.save(operators)

    def devices(self, seconds: float) -> list[str]:
        lines = [f"{'device':<24}{'peak memory':>16}{'time on the device':>22}"]
        for device in _native.devices() if _native.chips_loaded() else []:
            index = device["index"]
            if not _native.is_open(index):
                continue
            peak = _native.memory_stats(index)["allocated_bytes"]["all"]["peak"]
            busy = min(_native.busy_seconds(index), seconds)
            name = f"fl:{index} ({device['name']}, {device['device_name']})"
            lines.append(f"{name:<24}{peak / 2**20:>12.1f} MiB{busy:>12.2f} s, {busy / seconds:>4.0%}")
        if len(lines) == 1:
            return [f"no device was used in {seconds:.2f} s"]
        return [*lines, f"{'the script':<24}{'':>16}{seconds:>12.2f} s"]

    @staticmethod
    def fallbacks(operators: dict[str, Any]) -> str:
        fell = {name: counts for name, counts in operators.items() if counts["fallback"]}
        if not fell:
            return "fallbacks: none" if operators else "fallbacks: none; no operator has run on a device"
        calls = sum(counts["fallback"] for counts in fell.values())
        spent = sum(counts["seconds"] for counts in fell.values())
        names = ", ".join(sorted(fell))
        return f"fallbacks: {calls} calls of {len(fell)} operators on the CPU, {spent:.2f} s: {names}"

    def save(self, operators: dict[str, Any]) -> None:
        saved = {"script": " ".join(sys.argv), "operators": {
            name: {**counts, "first_call_site": counts.first_call_site} for name, counts in operators.items()
        }}  # fmt: skip
        for path in {last_report_path(), Path(self.report or last_report_path())}:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(saved, indent=1))
            except OSError as error:
                print(f"torch-fl run: the report is not saved: {error}", file=sys.stderr)
