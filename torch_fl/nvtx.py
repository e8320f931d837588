"""Ranges of a program that a profiler shows: torch.cuda.nvtx's names upon torch.profiler's own ranges."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]

_open = threading.local()  # of a thread: its nested ranges
_started: dict[int, Any] = {}  # of the process: ranges that any thread may end
_numbers = itertools.count(1)


def _enter(msg: str) -> Any:
    opened = torch.autograd.profiler.record_function(str(msg))
    opened.__enter__()
    return opened


def range_push(msg: str) -> int:
    """Begin a range within those of this thread; returns how many it lies in."""
    ranges = _open.__dict__.setdefault("ranges", [])
    ranges.append(_enter(msg))
    return len(ranges) - 1


def range_pop() -> int:
    """End the innermost range of this thread; returns how many it lay in, or -2 without any."""
    ranges = _open.__dict__.setdefault("ranges", [])
    if not ranges:
        return -2
    ranges.pop().__exit__(None, None, None)
    return len(ranges)


def range_start(msg: str) -> int:
    """Begin a range that any thread may end: the number is range_end's."""
    number = next(_numbers)
    _started[number] = _enter(msg)
    return number


def range_end(range_id: int) -> None:
    """End the range that range_start began."""
    if (started := _started.pop(range_id, None)) is not None:
        started.__exit__(None, None, None)


def mark(msg: str) -> None:
    """A point in the program."""
    _enter(msg).__exit__(None, None, None)


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """Context manager and decorator: a range; msg may have str.format's fields."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
