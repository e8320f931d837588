"""Mixed precision: torch.amp for this device, under the names of torch.cuda.amp."""

from __future__ import annotations

import functools
from typing import Any

import torch

from . import _native

__all__ = ["GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd"]


def get_amp_supported_dtype() -> list[torch.dtype]:
    """What autocast may compute in on the current device: the dtypes that its chip declares to store."""
    devices, index = _native.devices(), _native.current_device()
    names = ("float16", "bfloat16", "float32")
    stored = devices[index]["storage"] if index < len(devices) else names
    return [getattr(torch, name) for name in names if name in stored]


def amp_definitely_not_available() -> bool:
    """Whether there is no device for mixed precision."""
    return not _native.device_count()


class autocast(torch.amp.autocast_mode.autocast):
    """torch.autocast("fl", …)."""

    def __init__(
        self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True
    ) -> None:
        super().__init__("fl", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler("fl", …)."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__(
            "fl",
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
            enabled=enabled,
        )


def custom_fwd(fwd: Any = None, *, cast_inputs: torch.dtype | None = None) -> Any:
    """torch.amp.custom_fwd for this device."""
    if fwd is None:
        return functools.partial(custom_fwd, cast_inputs=cast_inputs)
    return torch.amp.custom_fwd(fwd, device_type="fl", cast_inputs=cast_inputs)


def custom_bwd(bwd: Any) -> Any:
    """torch.amp.custom_bwd for this device."""
    return torch.amp.custom_bwd(bwd, device_type="fl")
