"""Devices: how many, which one is current, what they are."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

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
    "get_gencode_flags",
    "get_sync_debug_mode",
    "has_half",
    "init",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "is_tf32_supported",
    "set_device",
    "set_sync_debug_mode",
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


class DeviceProperties(NamedTuple):  # a dataclass costs import torch ten times as much
    """What a chip says about a device, with the names of torch.cuda's properties.

    What the chip ABI does not tell of a device (its caches, clocks, registers) is 0.
    """

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
    is_integrated: bool
    pci_domain_id: int = 0
    pci_bus_id: int = 0
    pci_device_id: int = 0
    is_multi_gpu_board: bool = False
    warp_size: int = 0
    max_threads_per_block: int = 0
    max_threads_per_multi_processor: int = 0
    regs_per_multiprocessor: int = 0
    shared_memory_per_block: int = 0
    shared_memory_per_block_optin: int = 0
    shared_memory_per_multiprocessor: int = 0
    L2_cache_size: int = 0
    clock_rate: int = 0
    memory_clock_rate: int = 0
    memory_bus_width: int = 0

    @property
    def gcnArchName(self) -> str:
        """The chip's name, where ROCm has that of an architecture."""
        return self.chip


# How chips with a PCI address name their identity: "0000:65:00.0".
_PCI = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.[0-7]", re.IGNORECASE)


def get_device_properties(device: Device = None) -> DeviceProperties:
    """Name, memory, capability and identity of a device; does not start it."""
    index = device_index(device)
    found = _native.devices()
    if not 0 <= index < len(found):
        raise RuntimeError(f"torch-fl: there is no device {index}; {describe_devices()}")
    d = found[index]
    pci = _PCI.search(d["identity"])
    domain, bus, slot = (int(part, 16) for part in pci.groups()) if pci else (0, 0, 0)
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
        is_integrated=d["host_addressable"],
        pci_domain_id=domain,
        pci_bus_id=bus,
        pci_device_id=slot,
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


has_half: bool = True


def get_gencode_flags() -> str:
    """Empty, as get_arch_list() is."""
    return ""


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the current device's chip declares bfloat16: to store it, or, without emulation, to compute in.

    What it only stores is computed in float32, and results are rounded.
    """
    if not is_available():
        return False
    device = _native.devices()[_native.current_device()]
    return "bfloat16" in device["storage" if including_emulation else "arithmetic"]


def is_tf32_supported() -> bool:
    """False: float32 is float32 on a chip."""
    return False


_SYNC_MODES = ("default", "warn", "error")


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """When the host waits for a stream: nothing ("default", 0), a warning ("warn", 1), an error ("error", 2).

    Seen are .item(), copies to and from the host that do not stay behind, operators on the CPU, and
    Stream.synchronize(); synchronize() of a device is not.
    """
    if isinstance(debug_mode, str):
        if debug_mode not in _SYNC_MODES:
            raise RuntimeError("invalid value of debug_mode, expected one of `default`, `warn`, `error`")
        debug_mode = _SYNC_MODES.index(debug_mode)
    if debug_mode not in range(len(_SYNC_MODES)):
        raise RuntimeError("invalid value of debug_mode, expected one of 0, 1, 2")
    _native.set_sync_debug_mode(debug_mode)


def get_sync_debug_mode() -> int:
    """0, 1 or 2: what set_sync_debug_mode set."""
    return _native.get_sync_debug_mode()


def ipc_collect() -> None:
    """Nothing to do: device memory is not shared between processes."""
