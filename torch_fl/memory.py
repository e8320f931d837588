"""Memory of devices: statistics, limits, the cache, pools, snapshots."""

from __future__ import annotations

import collections
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from typing_extensions import deprecated

from . import _native
from ._utils import Device, device_index
from .memory_history import (
    _allocation_traceback as _allocation_traceback,
    _dump_snapshot as _dump_snapshot,
    _get_memory_metadata as _get_memory_metadata,
    _record_memory_history as _record_memory_history,
    _save_memory_usage as _save_memory_usage,
    _save_segment_usage as _save_segment_usage,
    _set_memory_metadata as _set_memory_metadata,
    _snapshot as _snapshot,
    memory_snapshot as memory_snapshot,
)

__all__ = [
    "MemPool",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "caching_allocator_disabled",
    "caching_allocator_enable",
    "change_current_allocator",
    "device_memory_used",
    "empty_cache",
    "get_allocator_backend",
    "get_per_process_memory_fraction",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "list_gpu_processes",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
    "use_mem_pool",
]


def caching_allocator_alloc(size: int, device: Device = None, stream: Any = None) -> int:
    """The address of memory without a tensor, for other libraries; caching_allocator_delete frees it.

    stream: whose work uses it (a stream or its id); by default the device's current one.
    """
    index = device_index(device)
    if stream is None:
        stream = _native.current_stream(index)[0]
    elif isinstance(stream, torch.Stream):
        stream = stream.stream_id
    if not isinstance(stream, int):
        raise TypeError("Invalid type for stream argument, must be `torch.fl.Stream` or `int`, the id of one")
    return _native.raw_alloc(size, index, stream)


def caching_allocator_delete(mem_ptr: int) -> None:
    """Free what caching_allocator_alloc returned."""
    _native.raw_delete(mem_ptr)


def caching_allocator_enable(value: bool = True) -> None:
    """Whether freed memory is kept for later requests; without it each request is one of the device's own."""
    _native.set_caching(bool(value))
    if not value:
        _native.empty_cache()


@contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    """Context manager: without the cache, for the whole process."""
    before = _native.caching()
    caching_allocator_enable(False)
    try:
        yield
    finally:
        caching_allocator_enable(before)


def change_current_allocator(allocator: Any) -> None:
    """Refused: every chip's memory comes from one allocator of torch-fl's."""
    raise RuntimeError(
        "torch-fl: the allocator cannot be replaced: it serves all chips above their own malloc, and graphs, "
        "pools and statistics rest on it. torch.fl.config has its settings."
    )


class MemPool:
    """A pool of memory of its own on the current device, for what is allocated within use_mem_pool.

    use_on_oom: its free memory may serve any request that would fail otherwise.  no_split: each request
    gets a whole segment.  Its memory goes back to the device when the pool and its tensors are gone.
    """

    def __init__(self, allocator: Any = None, use_on_oom: bool = False, no_split: bool = False) -> None:
        if allocator is not None:
            raise RuntimeError(
                "torch-fl: a memory pool takes no allocator of its own: memory comes from the chip"
            )
        self._pool = _native.MemPool(bool(use_on_oom), bool(no_split))

    @property
    def id(self) -> tuple[int, int]:
        """The pool's name, also for graphs."""
        return self._pool.id

    @property
    def device(self) -> int:
        """The index of its device."""
        return self._pool.device

    @property
    def allocator(self) -> None:
        """None: pools have no allocator of their own."""
        return None

    def use_count(self) -> int:
        """How many hold the pool: this object, graphs, and use_mem_pool."""
        return self._pool.use_count()

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """Its segments, as memory_snapshot has them."""
        return memory_snapshot(self.id, include_traces=include_traces)


@contextmanager
def use_mem_pool(pool: MemPool, device: Device = None) -> Iterator[None]:
    """Context manager: what this thread allocates on the device comes from the pool."""
    index = device_index(device)
    _native.begin_pool_route(index, pool.id)
    try:
        yield
    finally:
        _native.end_pool_route(index, pool.id)


def empty_cache() -> None:
    """Give cached memory that no tensor uses back to the device."""
    _native.empty_cache()


def memory_stats(device: Device = None) -> dict[str, Any]:
    """Counters of the caching allocator, under the names of torch.cuda.memory_stats."""
    return _flat(memory_stats_as_nested_dict(device))


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """The same, nested by the parts of the names."""
    return _native.memory_stats(device_index(device))


def _flat(nested: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                if isinstance(name, tuple):  # a pool
                    name = "_".join(str(part) for part in name)
                walk(f"{prefix}.{name}" if prefix else name, inner)
        else:
            flat[prefix] = value

    walk("", nested)
    return collections.OrderedDict(sorted(flat.items()))


def _bytes(what: str, when: str, device: Device) -> int:
    return _native.memory_stats(device_index(device))[what]["all"][when]


def memory_allocated(device: Device = None) -> int:
    """Bytes that tensors occupy."""
    return _bytes("allocated_bytes", "current", device)


def max_memory_allocated(device: Device = None) -> int:
    """The most bytes that tensors have occupied since the last reset."""
    return _bytes("allocated_bytes", "peak", device)


def memory_reserved(device: Device = None) -> int:
    """Bytes that the allocator holds, the cached ones included."""
    return _bytes("reserved_bytes", "current", device)


def max_memory_reserved(device: Device = None) -> int:
    """The most bytes that the allocator has held since the last reset."""
    return _bytes("reserved_bytes", "peak", device)


@deprecated("`memory_cached` has been renamed to `memory_reserved`", category=FutureWarning)
def memory_cached(device: Device = None) -> int:
    """The old name of memory_reserved."""
    return memory_reserved(device=device)


@deprecated("`max_memory_cached` has been renamed to `max_memory_reserved`", category=FutureWarning)
def max_memory_cached(device: Device = None) -> int:
    """The old name of max_memory_reserved."""
    return max_memory_reserved(device=device)


def reset_peak_memory_stats(device: Device = None) -> None:
    """Peaks start again at what is in use now."""
    _native.reset_peak_memory_stats(device_index(device))


def reset_max_memory_allocated(device: Device = None) -> None:
    """The old name of reset_peak_memory_stats, which resets all peaks."""
    _warn_all_peaks("reset_max_memory_allocated")
    reset_peak_memory_stats(device=device)


def reset_max_memory_cached(device: Device = None) -> None:
    """The old name of reset_peak_memory_stats, which resets all peaks."""
    _warn_all_peaks("reset_max_memory_cached")
    reset_peak_memory_stats(device=device)


def _warn_all_peaks(name: str) -> None:
    text = f"{name} now calls reset_peak_memory_stats, which resets /all/ peak memory stats."
    warnings.warn(text, FutureWarning, stacklevel=3)


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Counts of what was allocated and freed start again at zero."""
    _native.reset_accumulated_memory_stats(device_index(device))


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Free and total bytes of a device, as the chip says."""
    return tuple(_native.mem_get_info(device_index(device)))


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Limit what this process may allocate to a share of the device's memory."""
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    _native.set_memory_fraction(fraction, device_index(device))


def get_per_process_memory_fraction(device: Device = None) -> float:
    """The limit that set_per_process_memory_fraction or FL_MEMORY_FRACTION set."""
    return _native.get_memory_fraction(device_index(device))


def device_memory_used(device: Device = None) -> int:
    """Bytes of the device's memory that are in use, by any process."""
    free, total = mem_get_info(device)
    return total - free


def get_allocator_backend() -> str:
    """ "native": torch-fl's own caching allocator."""
    return "native"


def host_memory_stats() -> dict[str, Any]:
    """Counters of pinned host memory, under the names of torch.cuda.host_memory_stats."""
    return _flat(host_memory_stats_as_nested_dict())


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """The same, nested by the parts of the names."""
    return _native.host_memory_stats()


def reset_peak_host_memory_stats() -> None:
    """Peaks of pinned host memory start again at what is in use now."""
    _native.reset_peak_host_memory_stats()


def reset_accumulated_host_memory_stats() -> None:
    """Counts of pinned host memory start again at zero."""
    _native.reset_accumulated_host_memory_stats()


_SUMMARY = [
    ("allocated_bytes", "Allocated memory"),
    ("active_bytes", "Active memory"),
    ("requested_bytes", "Requested memory"),
    ("reserved_bytes", "GPU reserved memory"),
    ("inactive_split_bytes", "Non-releasable memory"),
    ("allocation", "Allocations"),
    ("active", "Active allocs"),
    ("segment", "GPU reserved segments"),
    ("inactive_split", "Non-releasable allocs"),
]
_OVERSIZE = [("oversize_allocations", "Oversize allocations"), ("oversize_segments", "Oversize GPU segments")]


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """A table of the allocator's numbers for a person, in the form of torch.cuda.memory_summary."""
    index = device_index(device)
    stats = memory_stats(index)

    def number(value: int, scale: int, kind: str) -> str:
        units, step, limit = ("B  ", "KiB", "MiB", "GiB", "TiB", "PiB"), 1024, 768 * 1024
        if "bytes" not in kind:
            units, step, limit = (" ", "K", "M"), 1000, 750 * 1000
        unit = 0
        while scale >= limit and unit + 1 < len(units):
            value, scale, unit = value // step, scale // step, unit + 1
        return f"{value:6d} {units[unit]}" if "bytes" in kind else f"{value:7d} {units[unit]} "

    columns = ("current", "peak", "allocated", "freed")
    lines = [
        "=" * 75,
        f" {'':16} PyTorch {torch.device('fl').type} memory summary, device ID {index:<17d} ",
        "-" * 75,
        f"{'device OOMs: ' + str(stats['num_ooms']):>36} | "
        f"{'malloc retries: ' + str(stats['num_alloc_retries']):>35} ",
        "=" * 75,
        "        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  ",
    ]
    for kind, title in _SUMMARY:
        lines.append("-" * 75)
        scales = [stats[f"{kind}.all.{column}"] for column in columns]
        pools = [
            ("all", title),
            ("large_pool", "      from large pool"),
            ("small_pool", "      from small pool"),
        ]
        for pool, name in pools[: 1 if abbreviated else 3]:
            row = [number(stats[f"{kind}.{pool}.{c}"], s, kind) for c, s in zip(columns, scales, strict=True)]
            lines.append(f" {name:<21} | {' | '.join(row)} ")
    for kind, title in _OVERSIZE:
        lines.append("-" * 75)
        row = [number(stats[f"{kind}.{c}"], stats[f"{kind}.{c}"], kind) for c in columns]
        lines.append(f" {title:<21} | {' | '.join(row)} ")
    lines.append("=" * 75)
    return "|" + "|\n|".join(lines) + "|\n"


def list_gpu_processes(device: Device = None) -> str:
    """The processes on a device and their memory: this one alone, as the chip ABI knows of no other."""
    index = device_index(device)
    reserved = memory_reserved(index)
    if not reserved:
        return f"GPU:{index}\nno processes are running"
    return f"GPU:{index}\nprocess {os.getpid():>10d} uses {reserved / (1024 * 1024):>12.3f} MB GPU memory"
