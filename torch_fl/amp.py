"""Mixed precision: torch.amp for this device, under the names of torch.cuda.amp."""

from __future__ import annotations

from typing import Any

import torch


def get_amp_supported_dtype() -> list[torch.dtype]:
    """What autocast may compute in."""
    return [torch.float16, torch.bfloat16, torch.float32]


class autocast(torch.amp.autocast_mode.autocast):
    """torch.autocast("fl", …)."""

    def __init__(self, enabled: bool = True, dtype: torch.dtype = torch.float16, **arguments: Any) -> None:
        super().__init__("fl", enabled=enabled, dtype=dtype, **arguments)


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler("fl", …)."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__("fl", **arguments)


def custom_fwd(fwd: Any = None, **arguments: Any) -> Any:
    """torch.amp.custom_fwd for this device."""
    return torch.amp.custom_fwd(fwd, device_type="fl", **arguments)


def custom_bwd(bwd: Any) -> Any:
    """torch.amp.custom_bwd for this device."""
    return torch.amp.custom_bwd(bwd, device_type="fl")
