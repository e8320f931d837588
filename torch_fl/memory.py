"""Memory of devices: statistics, limits, the cache."""

from __future__ import annotations

import collections
from typing import Any

from . import _native
from ._utils import Device, device_index

__all__ = [
    "device_memory_used",
    "empty_cache",
    "get_allocator_backend",
    "get_per_process_memory_fraction",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
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
    "memory_usage",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
]


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
    flat = collections.OrderedDict()

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                walk(f"{prefix}.{name}" if prefix else name, inner)
        else:
            flat[prefix] = value

    walk("", nested)
    return flat


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


memory_cached = memory_reserved
max_memory_cached = max_memory_reserved


def reset_peak_memory_stats(device: Device = None) -> None:
    """Peaks start again at what is in use now."""
    _native.reset_peak_memory_stats(device_index(device))


reset_max_memory_allocated = reset_peak_memory_stats
reset_max_memory_cached = reset_peak_memory_stats


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Counts of what was allocated and freed start again at zero."""
    _native.reset_accumulated_memory_stats(device_index(device))


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Free and total bytes of a device, as the chip says."""
    return tuple(_native.mem_get_info(device_index(device)))


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Limit what this process may allocate to a share of the device's memory."""
    if not 0 <= float(fraction) <= 1:
        raise ValueError(f"expected a fraction from 0 to 1, but got {fraction}")
    _native.set_memory_fraction(float(fraction), device_index(device))


def get_per_process_memory_fraction(device: Device = None) -> float:
    """The limit that set_per_process_memory_fraction or FL_MEMORY_FRACTION set."""
    return _native.get_memory_fraction(device_index(device))


def memory_snapshot(mempool_id: Any = None, include_traces: bool = True) -> list[dict[str, Any]]:
    """All segments and blocks of the allocator, in the format of torch.cuda.memory_snapshot."""
    return _native.memory_snapshot()


def memory_usage(device: Device = None) -> int:
    """Percent of the device's memory that is in use, by any process."""
    free, total = mem_get_info(device)
    return round(100 * (total - free) / total) if total else 0


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


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """A table of the allocator's numbers for a person."""
    index = device_index(device)
    stats = memory_stats(index)
    pools = ["all"] if abbreviated else ["all", "large_pool", "small_pool"]
    kinds = [("allocated_bytes", "allocated"), ("active_bytes", "active"), ("reserved_bytes", "reserved"),
             ("inactive_split_bytes", "inactive")]  # fmt: skip
    lines = [
        f"device {index}: out of memory {stats['num_ooms']} times, "
        f"{stats['num_alloc_retries']} retries after emptying the cache",
        f"{'bytes':<24}{'current':>16}{'peak':>16}{'allocated':>18}{'freed':>18}",
    ]
    for kind, title in kinds:
        for pool in pools:
            row = [stats[f"{kind}.{pool}.{column}"] for column in ("current", "peak", "allocated", "freed")]
            lines.append(f"{title + ' ' + pool:<24}{row[0]:>16,}{row[1]:>16,}{row[2]:>18,}{row[3]:>18,}")
    return "\n".join(lines)
