"""Compare a function on the device with the same on the CPU: values, dtypes, shapes, gradients, what is written."""

import contextlib

import reference
import torch
from reference import to_device  # noqa: F401
from torch.utils._pytree import tree_leaves


def tensor(*shape, dtype=torch.float32, seed=0):
    return reference.make(shape, dtype, seed)


def layouts(t):
    """The tensor in each layout that a kernel may meet."""
    return [make(t) for make in reference.LAYOUTS.values()]


@contextlib.contextmanager
def no_fallback():
    torch.fl.config.fallback = "error"
    try:
        yield
    finally:
        torch.fl.config.fallback = "warn"


def assert_same(got, want, rtol=None, atol=None):
    reference.assert_same(got, want, tolerance=None if rtol is None else max(rtol, atol or 0))


def check(function, *args, grad=False, rtol=None, atol=None, **kwargs):
    """On the device as on the CPU; grad: the gradients of all inputs that require them, too."""
    tolerance = None if rtol is None and atol is None else max(rtol or 0, atol or 0)

    def run(*args, **kwargs):
        result = function(*args, **kwargs)
        if not grad:
            return result
        leaves = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.requires_grad]
        outs = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
        seeds = [reference.make(o.shape, o.dtype, 7).to(o.device) for o in outs]
        return result, torch.autograd.grad(outs, leaves, seeds, allow_unused=True)

    reference.check(run, *args, tolerance=tolerance, **kwargs)
