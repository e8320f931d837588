"""Compare an operator on the device with the CPU, over dtypes and layouts."""

from __future__ import annotations

import torch
from torch.utils._pytree import tree_map

DEVICE = "fl:0"
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
COMPLEX = (torch.complex64, torch.complex128)
TOLERANCE = {
    torch.float64: 1e-10, torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2,
    torch.complex64: 2e-5, torch.complex128: 1e-10,
}  # fmt: skip


def make(shape, dtype: torch.dtype, seed: int = 0, low: float = -3.0, high: float = 3.0) -> torch.Tensor:
    """Values that the dtype can hold; a pure function of the arguments."""
    g = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(shape, generator=g) > 0.5
    if dtype.is_complex:
        parts = [torch.rand(shape, generator=g, dtype=torch.float64) * (high - low) + low for _ in range(2)]
        return torch.complex(*parts).to(dtype)
    values = torch.rand(shape, generator=g, dtype=torch.float64) * (high - low) + low
    if dtype == torch.uint8:
        values = values.abs()
    return values.round().to(dtype) if not dtype.is_floating_point else values.to(dtype)


# Each makes, from a dense tensor, one of the same shape and values in another layout.
LAYOUTS = {
    "contiguous": lambda t: t.contiguous(),
    "transposed": lambda t: (
        t.transpose(0, -1).contiguous().transpose(0, -1) if t.dim() > 1 else t.contiguous()
    ),
    "gaps": lambda t: torch.stack([t, t], -1)[..., 0],
    "offset": lambda t: (
        torch.cat([t.flatten()[:1].expand(3), t.flatten()])[3:].view(t.shape) if t.numel() else t
    ),
}


def to_device(nest, device: str = DEVICE):
    """Copies with the strides kept; a tensor in two places stays one."""
    seen: dict[int, torch.Tensor] = {}

    def move(x):
        if not isinstance(x, torch.Tensor):
            return x
        if id(x) not in seen:
            flat = torch.empty(0, dtype=x.dtype).set_(x.detach().untyped_storage())
            there = flat.to(device).as_strided(x.size(), x.stride(), x.storage_offset())
            seen[id(x)] = there.requires_grad_(x.requires_grad)
        return seen[id(x)]

    return tree_map(move, nest)


def assert_same(got, want, tolerance: float | None = None) -> None:
    flat_got, flat_want = torch.utils._pytree.tree_leaves(got), torch.utils._pytree.tree_leaves(want)
    assert len(flat_got) == len(flat_want)
    for g, w in zip(flat_got, flat_want, strict=True):
        if not isinstance(w, torch.Tensor):
            assert g == w
            continue
        assert g.dtype == w.dtype and g.shape == w.shape
        t = TOLERANCE.get(w.dtype, 0.0) if tolerance is None else tolerance
        torch.testing.assert_close(g.detach().cpu(), w.detach(), rtol=t, atol=t, equal_nan=True)


def check(function, *args, tolerance: float | None = None, device: str = DEVICE, **kwargs) -> None:
    """function(*args) on the device equals the CPU's: values, dtype, shape; or both raise the same type."""
    there_args, there_kwargs = to_device((args, kwargs), device)
    try:
        want = function(*args, **kwargs)
    except Exception as error:
        if "not implemented for" in str(error):  # a dtype that the CPU lacks: the device may have it
            return
        try:
            function(*there_args, **there_kwargs)
        except type(error):
            return
        raise AssertionError(f"the CPU raises {error!r}, the device does not") from None
    assert_same(function(*there_args, **there_kwargs), want, tolerance)
    assert_same(there_args, args, tolerance)  # what was written in place, and what must not have been
