"""Run a function of one operator family on the device and on the CPU, and compare all that it touched."""

from __future__ import annotations

import contextlib

import torch
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = "fl:0"
TOLERANCE = {
    torch.float16: (2e-3, 2e-3),
    torch.bfloat16: (2e-2, 2e-2),
    torch.float32: (1e-4, 1e-5),
    torch.float64: (1e-9, 1e-9),
    torch.complex64: (1e-4, 1e-5),
    torch.complex128: (1e-9, 1e-9),
}


def moved(t: torch.Tensor, device: str) -> torch.Tensor:
    """A copy with the same strides, offset and memory behind it."""
    count = t.untyped_storage().nbytes() // t.element_size()
    flat = torch.as_strided(t.detach(), (count,), (1,), 0)
    flat = flat.clone() if device == "cpu" else flat.to(device)
    return flat.as_strided(t.size(), t.stride(), t.storage_offset()).requires_grad_(t.requires_grad)


def to_device(t: torch.Tensor, device: str = DEVICE) -> torch.Tensor:
    return moved(t, device)


def assert_same(actual, expected, rtol=None, atol=None, what="result"):
    actual, expected = tree_flatten(actual)[0], tree_flatten(expected)[0]
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        if not isinstance(e, torch.Tensor):
            assert a == e, what
            continue
        assert a.dtype == e.dtype and a.shape == e.shape, (
            f"{what}: {a.dtype}{list(a.shape)}, not {e.dtype}{list(e.shape)}"
        )
        r, t = TOLERANCE.get(e.dtype, (0, 0))
        torch.testing.assert_close(
            a.detach().cpu(), e.detach(), rtol=r if rtol is None else rtol, atol=t if atol is None else atol,
            equal_nan=True, msg=lambda m: f"{what}: {m}",
        )  # fmt: skip


def gradients(result, inputs):
    leaves = [t for t in tree_flatten(inputs)[0] if isinstance(t, torch.Tensor) and t.requires_grad]
    outs = [t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor) and t.requires_grad]
    g = torch.Generator().manual_seed(7)
    seeds = [torch.randn(o.shape, generator=g, dtype=torch.float64).to(o.dtype).to(o.device) for o in outs]
    return [x for x in torch.autograd.grad(outs, leaves, seeds, allow_unused=True) if x is not None]


def check(fn, *args, device=DEVICE, grad=False, rtol=None, atol=None, strides=False, **kwargs):
    """fn(*args) on both: results, arguments afterwards and gradients must agree.  Returns the device's result."""
    here, there = (
        tree_map(lambda t: moved(t, d) if isinstance(t, torch.Tensor) else t, args) for d in ("cpu", device)
    )
    expected, actual = fn(*here, **kwargs), fn(*there, **kwargs)
    assert_same(actual, expected, rtol, atol)
    for a, e in zip(tree_flatten(actual)[0], tree_flatten(expected)[0], strict=True):
        if isinstance(a, torch.Tensor):
            assert a.device == torch.device(device)
            assert not strides or a.stride() == e.stride(), f"strides {a.stride()}, not {e.stride()}"
    assert_same(there, here, rtol, atol, "argument afterwards")
    if grad:
        assert_same(gradients(actual, there), gradients(expected, here), rtol, atol, "gradient")
    return actual


@contextlib.contextmanager
def no_fallback(*allowed: str):
    """Nothing inside runs on the CPU, except the operators named."""
    before = {name: row["fallback"] for name, row in torch.fl.op_report().items()}
    yield
    after = {name: row["fallback"] for name, row in torch.fl.op_report().items()}
    fell = {
        name: n - before.get(name, 0)
        for name, n in after.items()
        if n > before.get(name, 0) and name not in allowed
    }
    assert not fell, f"ran on the CPU: {fell}"


def tensor(*shape, dtype=torch.float32, seed=0, low=-3, high=4) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed + 31 * len(shape) + sum(shape))
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=g).bool()
    if not (dtype.is_floating_point or dtype.is_complex):
        return torch.randint(max(low, 0) if dtype == torch.uint8 else low, high, shape, generator=g).to(dtype)
    parts = [torch.randn(shape, generator=g, dtype=torch.float64) for _ in range(2)]
    return (torch.complex(*parts) if dtype.is_complex else parts[0]).to(dtype)


def layouts(t: torch.Tensor):
    """The tensor in several layouts: as is, transposed in memory, with gaps, at an offset."""
    yield t
    if t.dim() >= 2:
        yield t.transpose(0, -1).contiguous().transpose(0, -1)
        yield torch.zeros(*t.shape[:-1], t.shape[-1] * 2, dtype=t.dtype)[..., ::2].copy_(t)
    if t.dim() >= 1 and t.shape[0]:
        yield torch.zeros(t.shape[0] + 2, *t.shape[1:], dtype=t.dtype)[2:].copy_(t)
