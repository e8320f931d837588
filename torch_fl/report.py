"""The operator report: what ran how, and what fell back to the CPU."""

from __future__ import annotations

import sys
from typing import TextIO

from . import _native

TIERS = ("native", "composed", "fallback")


class OpCounts(dict):
    """Numbers of one operator: calls by tier, and bytes copied and seconds spent in fallbacks.

    Only numbers, so that reports can be added up; where the first fallback came from is the
    attribute first_call_site, "train.py:12" or None.
    """

    first_call_site: str | None = None

    @property
    def calls(self) -> int:
        return sum(self[tier] for tier in TIERS)


def op_report() -> dict[str, OpCounts]:
    """Every operator that ran on a device since the start or the last reset: {"aten::mm": OpCounts}."""
    report = {}
    for name, numbers in _native.op_report().items():
        counts = OpCounts((tier, numbers[tier]) for tier in TIERS)
        counts["bytes"], counts["seconds"] = numbers["fallback_bytes"], numbers["fallback_seconds"]
        counts.first_call_site = numbers["first_call_site"]
        report[name] = counts
    return report


def reset_op_report() -> None:
    """Count from zero."""
    _native.reset_op_report()


def format_op_report(report: dict[str, OpCounts] | None = None, limit: int | None = None) -> str:
    """A table for a person: fallbacks first, then by number of calls."""
    from . import coverage  # needs modules that import torch should not pay for

    if report is None:
        report = op_report()
    if not report:
        return "no operator has run on a torch-fl device"
    total = {tier: sum(counts[tier] for counts in report.values()) for tier in TIERS}
    rows = sorted(report.items(), key=lambda item: (-item[1]["fallback"], -item[1].calls, item[0]))
    width = max(len(name) for name, _ in rows)
    ways = {name: coverage.way_of(counts) for name, counts in rows}
    lines = [f"{'operator':<{width}}  way{'native':>9}{'composed':>10}{'fallback':>10}"]
    for name, counts in rows[:limit]:
        line = f"{name:<{width}}  {coverage.SIGNS[ways[name]]:<3}"
        line += f"{counts['native']:>9}{counts['composed']:>10}{counts['fallback']:>10}"
        if counts["fallback"]:
            cost = f"{_bytes(counts['bytes'])}, {counts['seconds']:.3f} s"
            line += f"  {cost}, first at {counts.first_call_site or 'an unknown line'}"
            line += f": {coverage.reason(name)}"
        lines.append(line)
    if limit is not None and len(rows) > limit:
        lines.append(f"… and {len(rows) - limit} more operators")
    lines.append(f"{len(rows)} operators: {total['native']} calls native, {total['composed']} composed, "
                 f"{total['fallback']} on the CPU (fallbacks)")  # fmt: skip
    lines.append(coverage.share(ways.values()))
    return "\n".join(lines)


def _bytes(number: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1000
    raise AssertionError


def print_op_report(file: TextIO | None = None, limit: int | None = None) -> None:
    """Print the table."""
    print(format_op_report(limit=limit), file=file or sys.stdout)
