"""Run a function on the device and on the CPU, and compare all that it touched; arguments for it."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = "fl:0"
TOLERANCE = {
    torch.float16: (2e-3, 2e-3),
    torch.bfloat16: (2e-2, 2e-2),
    torch.float32: (2e-5, 1e-5),
    torch.float64: (1e-10, 1e-10),
    torch.complex64: (2e-5, 1e-5),
    torch.complex128: (1e-10, 1e-10),
}


def to_device(nest, device: str = DEVICE):
    """Copies with the same strides, offset and memory behind them; a tensor in two places stays one."""
    seen: dict[int, torch.Tensor] = {}

    def move(t):
        if not isinstance(t, torch.Tensor):
            return t
        if id(t) not in seen:
            flat = torch.empty(0, dtype=t.dtype).set_(t.detach().untyped_storage())
            there = flat.to(device, copy=True).as_strided(t.size(), t.stride(), t.storage_offset())
            seen[id(t)] = there.requires_grad_(t.requires_grad)
        return seen[id(t)]

    return tree_map(move, nest)


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
    here, there = to_device(args, "cpu"), to_device(args, device)
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


def check_or_refused(fn, *args, rtol=None, atol=None):
    """check; where the CPU raises, the device raises the same type."""
    try:
        fn(*to_device(args, "cpu"))
    except Exception as error:
        if "not implemented for" not in str(error):  # a dtype that the CPU lacks: the device may have it
            with pytest.raises(type(error)):
                fn(*to_device(args))
        return
    check(fn, *args, rtol=rtol, atol=atol)


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


def uniform(shape, dtype: torch.dtype, seed: int = 0, low: float = -3.0, high: float = 3.0) -> torch.Tensor:
    """Evenly spread values, whole ones of integers; of BOOL any."""
    g = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(shape, generator=g) > 0.5
    parts = [torch.rand(shape, generator=g, dtype=torch.float64) * (high - low) + low for _ in range(2)]
    values = torch.complex(*parts) if dtype.is_complex else parts[0]
    if dtype == torch.uint8:
        values = values.abs()
    return (values if dtype.is_complex or dtype.is_floating_point else values.round()).to(dtype)


# Each makes of a dense tensor one of the same shape and values.
LAYOUTS = {
    "dense": lambda t: t,
    "transposed": lambda t: t.transpose(0, -1).contiguous().transpose(0, -1) if t.dim() > 1 else t,
    "gaps": lambda t: torch.zeros(*t.shape, 2, dtype=t.dtype)[..., 0].copy_(t),
    "offset": lambda t: torch.zeros(t.numel() + 3, dtype=t.dtype)[3:].view(t.shape).copy_(t),
}


def layouts(t: torch.Tensor):
    """The tensor in several layouts, each once."""
    return [arrange(t) for name, arrange in LAYOUTS.items() if name != "transposed" or t.dim() > 1]
