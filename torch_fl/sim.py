"""torch.fl.sim: faults to order from the embedded chip, to test what a program does about them.

    with torch.fl.sim.faults("alloc:3"):        # the third device allocation fails
        ...

Orders are separated by commas; N counts from 1, from the moment they are set, and "N+" means that one
and every later one:

    alloc:N          the N-th device allocation gives torch.OutOfMemoryError
    kernel=NAME:N    the N-th launch of NAME fails; found when its stream is synchronized
    hang=NAME:N      the N-th launch of NAME does not end until the orders change, or limit passes
    lost=DEVICE:N    the device is lost when its N-th launch runs, for the rest of the process
    limit:MS         how long a hang lasts at most, in milliseconds

NAME is an entry of the chip's table ("gemm", `torch-fl ops --claims` lists them), "transfer" or "any".
The environment variable FL_SIM_FAULTS takes the same orders.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from . import _native

__all__ = ["clear_faults", "fault_counters", "faults", "set_faults"]


class _Counters(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("allocations", "launches", "delivered")]


class _Table(ctypes.Structure):  # sim_faults in chips/sim/faults.h
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("set", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p)),
        ("counters", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Counters))),
    ]


@cache
def _table() -> _Table:
    address = _native.chip_extension("sim", "sim.faults", 1)
    if not address:
        raise RuntimeError("torch-fl: this sim chip takes no fault orders")
    return _Table.from_address(address)


def set_faults(orders: str) -> None:
    """Replace all orders.  ValueError when they make no sense; the former ones then stay."""
    if _table().set(orders.encode()) != 0:
        raise ValueError(_native.take_chip_error() or f"the sim chip refuses {orders!r}")


def clear_faults() -> None:
    """Forget all orders, and end every hang.  Lost devices stay lost."""
    set_faults("")


def fault_counters() -> dict[str, int]:
    """Allocations, launches and delivered faults since the orders were set."""
    counters = _Counters()
    _table().counters(ctypes.byref(counters))
    return {name: getattr(counters, name) for name, _ in _Counters._fields_}


@contextmanager
def faults(orders: str) -> Iterator[None]:
    """Context manager: the orders hold within."""
    set_faults(orders)
    try:
        yield
    finally:
        clear_faults()
