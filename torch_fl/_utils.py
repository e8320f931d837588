"""Device arguments as PyTorch's device modules take them."""

from __future__ import annotations

from typing import Any

import torch

from . import _native

Device = Any  # None, an index, "fl:1", "sim:1", torch.device


def device_index(device: Device = None) -> int:
    """The index that a device argument means; None and a device without index are the current one."""
    if isinstance(device, int) and not isinstance(device, bool):
        return device
    if device is None:
        return _native.current_device()
    if isinstance(device, str):
        device = torch.device(device)
    if not isinstance(device, torch.device):
        kind = type(device).__name__
        raise TypeError(f"expected an index, a device string or a torch.device, not {kind}: {device!r}")
    ours = torch.device("fl").type  # "cuda" while the CUDA view is on
    if device.type != ours:
        raise ValueError(f"expected a device of type {ours!r}, but got {str(device)!r}")
    return _native.current_device() if device.index is None else device.index


def _get_device_index(device: Device, optional: bool = False, allow_cpu: bool = False) -> int:
    """The same with the signature that PyTorch calls on device modules."""
    if isinstance(device, str):
        device = torch.device(device)
    if allow_cpu and isinstance(device, torch.device) and device.type == "cpu":
        return -1
    if not optional and (device is None or (isinstance(device, torch.device) and device.index is None)):
        raise ValueError(f"expected a device with an index, or an index, but got {device!r}")
    return device_index(device)
