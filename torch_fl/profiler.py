"""Where a vendor's profiler is to look: torch.cuda.profiler's names.

Nothing listens: the chip ABI has no profiler of a vendor's, and without one torch.cuda's functions do nothing
either.  torch.profiler records what runs on a device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["profile", "start", "stop"]


def start() -> None:
    """The part of the program to be profiled begins."""


def stop() -> None:
    """The part of the program to be profiled ends."""


@contextmanager
def profile() -> Iterator[None]:
    """Context manager: the part of the program to be profiled."""
    start()
    try:
        yield
    finally:
        stop()
