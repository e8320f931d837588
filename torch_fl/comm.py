"""Copies between several devices, as PyTorch's C part has them for torch.cuda.comm and nn.DataParallel.

Names and arguments are those of torch/csrc/cuda/python_comm.cpp, which a PyTorch without CUDA lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import torch

from . import _native, streams as _streams


def _broadcast(tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
    """The tensor on each device; on its own one it is not copied."""
    return [tensor.to(torch.device("fl", index), non_blocking=True) for index in devices]


def _broadcast_out(tensor: torch.Tensor, outs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    for out in outs:
        if out.shape != tensor.shape:
            raise ValueError(
                f"expected every output to have the shape {tuple(tensor.shape)} of the tensor, "
                f"but got {tuple(out.shape)}"
            )
        out.copy_(tensor, non_blocking=True)
    return outs


def _broadcast_coalesced(
    tensors: Sequence[torch.Tensor], devices: Sequence[int], buffer_size: int
) -> list[list[torch.Tensor]]:
    """The tensors on each device, by device.  Copies are queued one behind another: nothing to coalesce."""
    if any(t.device != torch.device("fl", devices[0]) for t in tensors):
        raise RuntimeError(f"all tensors must be on devices[0]: {devices[0]}")
    return [
        list(tensors),
        *([t.to(torch.device("fl", i), non_blocking=True) for t in tensors] for i in devices[1:]),
    ]


def _on(stream: torch.Stream | None):
    return nullcontext() if stream is None else _streams.StreamContext(stream)


def _scatter(
    tensor: torch.Tensor,
    devices: Sequence[int],
    chunk_sizes: Sequence[int] | None,
    dim: int,
    streams: Sequence[torch.Stream | None] | None,
) -> list[torch.Tensor]:
    """Parts of the tensor along a dimension, one on each device, copied on the given streams."""
    if not devices:
        raise ValueError("expected at least one device to scatter to")
    if chunk_sizes is None:
        parts = tensor.chunk(len(devices), dim)
    else:
        parts = tensor.split_with_sizes(list(chunk_sizes), dim)
    moved = []
    for i, part in enumerate(parts):
        with _on(streams[i] if streams is not None else None):
            moved.append(part.to(torch.device("fl", devices[i]), non_blocking=True))
    return moved


def _scatter_out(
    tensor: torch.Tensor,
    outs: Sequence[torch.Tensor],
    dim: int,
    streams: Sequence[torch.Stream | None] | None,
) -> Sequence[torch.Tensor]:
    parts = tensor.split_with_sizes([out.size(dim) for out in outs], dim)
    for i, (out, part) in enumerate(zip(outs, parts, strict=True)):
        with _on(streams[i] if streams is not None else None):
            out.copy_(part, non_blocking=True)
    return outs


def _gather(tensors: Sequence[torch.Tensor], dim: int, destination: int | None) -> torch.Tensor:
    """The tensors joined along a dimension on one device; -1 is the CPU, None the current device."""
    index = _native.current_device() if destination is None else destination
    device = torch.device("cpu") if index == -1 else torch.device("fl", index)
    return torch.cat([t.to(device, non_blocking=index != -1) for t in tensors], dim)


def _gather_out(tensors: Sequence[torch.Tensor], out: torch.Tensor, dim: int) -> torch.Tensor:
    parts = out.split_with_sizes([t.size(dim) for t in tensors], dim)
    for part, t in zip(parts, tensors, strict=True):
        part.copy_(t, non_blocking=True)
    return out
