"""Devices: how many, which one is current, what they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from . import _native
from ._utils import Device, device_index

__all__ = [
    "DeviceProperties",
    "can_device_access_peer",
    "current_device",
    "describe_devices",
    "device",
    "device_count",
    "device_of",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "init",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "set_device",
    "synchronize",
]

# torch.utils.checkpoint keeps the random state of devices whose module says so.
_initialized = True


def is_available() -> bool:
    """Whether there is a device.  Loads the chips on the first call, starts none of them."""
    return device_count() > 0


def device_count() -> int:
    """How many devices there are, over all chips."""
    return _native.device_count()


def current_device() -> int:
    """The index of the current device of this thread."""
    return _native.current_device()


def set_device(device: Device) -> None:
    """Make a device the current one of this thread.  A negative index does nothing, as in torch.cuda."""
    index = device_index(device)
    if index >= 0:
        _native.set_device(index)


def synchronize(device: Device = None) -> None:
    """Wait for all work of a device; raises the faults that it met."""
    _native.synchronize(device_index(device))


def init() -> None:
    """Nothing to do: a device starts when it is first used."""


def _lazy_init() -> None:
    # PyTorch calls it before the first tensor is made; a forked child can go no further.
    _native.lazy_init()


def is_initialized() -> bool:
    """Whether devices have been looked for in this process."""
    return _native.chips_loaded() and not _native.in_bad_fork()


def _is_in_bad_fork() -> bool:
    return _native.in_bad_fork()


def _is_compiled() -> bool:
    return True


def _exchange_device(index: int) -> int:
    return _native.exchange_device(index)


def _maybe_exchange_device(index: int) -> int:
    return _native.maybe_exchange_device(index)


class device:
    """Context manager: the current device within; None or a negative index changes nothing."""

    def __init__(self, device: Device) -> None:
        self.idx = -1 if device is None else device_index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _native.exchange_device(self.idx) if self.idx >= 0 else -1

    def __exit__(self, *exception: object) -> bool:
        if self.prev_idx >= 0:
            _native.exchange_device(self.prev_idx)
        return False


class device_of(device):
    """Context manager: the device of a tensor or storage; another kind of device changes nothing."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.device.type == torch.device("fl").type else -1)


@dataclass(frozen=True)
class DeviceProperties:
    """What a chip says about a device, with the names of torch.cuda's properties."""

    name: str
    total_memory: int
    major: int
    minor: int
    multi_processor_count: int
    uuid: str
    chip: str
    index: int
    alignment: int
    max_allocation: int
    software: bool

    @property
    def is_integrated(self) -> bool:
        return self.software

    @property
    def gcnArchName(self) -> str:
        return self.chip


def get_device_properties(device: Device = None) -> DeviceProperties:
    """Name, memory, capability and identity of a device; does not start it."""
    index = device_index(device)
    found = _native.devices()
    if not 0 <= index < len(found):
        raise RuntimeError(f"torch-fl: there is no device {index}; {describe_devices()}")
    d = found[index]
    return DeviceProperties(
        name=d["device_name"],
        total_memory=d["total_memory"],
        major=d["major"],
        minor=d["minor"],
        multi_processor_count=d["compute_units"],
        uuid=d["identity"],
        chip=d["name"],
        index=index,
        alignment=d["alignment"],
        max_allocation=d["max_alloc"],
        software=d["software"],
    )


def describe_devices() -> str:
    """A sentence for errors: which devices there are."""
    names = [f"fl:{i} ({d['name']})" for i, d in enumerate(_native.devices())]
    return "the devices are " + ", ".join(names) if names else "there is none; `torch-fl doctor` says why"


def get_device_name(device: Device = None) -> str:
    """What a person calls the device."""
    return get_device_properties(device).name


def get_device_capability(device: Device = None) -> tuple[int, int]:
    """The vendor's capability version: (major, minor)."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def can_device_access_peer(device: Device, peer_device: Device) -> bool:
    """Whether two devices are of one chip, which then copies between them itself."""
    one, other = get_device_properties(device), get_device_properties(peer_device)
    return one.index != other.index and one.chip.split(":")[0] == other.chip.split(":")[0]


def get_arch_list() -> list[str]:
    """Empty: chips bring their own kernels, and none is compiled for an architecture of NVIDIA's."""
    return []


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 can be computed in; every chip does (in float32, rounding results)."""
    return is_available()


def ipc_collect() -> None:
    """Nothing to do: device memory is not shared between processes."""
