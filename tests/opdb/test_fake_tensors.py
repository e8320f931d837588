"""What FakeTensorMode and the meta device predict is what the device gives: shape, dtype, strides, device."""

import torch
from database import DEVICE, UNINITIALISED, Copier, operators, outcome, samples, strides_that_matter
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map


def traits(nest, device=True):
    return [
        (
            list(t.shape),
            t.dtype,
            strides_that_matter(t) if t.layout is torch.strided and not t.is_nested else None,
            t.device.type if device else None,
        )
        for t in tree_leaves(nest)
        if isinstance(t, torch.Tensor)
    ]


def real(op, sample, device):
    copier = Copier(device)
    return traits(op.op(copier(sample.input), *copier(sample.args), **copier(sample.kwargs)))


def fake(op, sample, device):
    copier = Copier(device)
    nest = copier(sample.input), copier(sample.args), copier(sample.kwargs)
    with FakeTensorMode() as mode:
        inp, args, kwargs = tree_map(
            lambda t: mode.from_tensor(t) if isinstance(t, torch.Tensor) else t, nest
        )
        return traits(op.op(inp, *args, **kwargs))


@operators()
def test_fake_tensors(op, dtype, every):
    for sample in samples(op, dtype, every)[: None if every else 2]:
        if (
            op.name in UNINITIALISED
            and not isinstance(sample.input, torch.Tensor)
            and "device" not in sample.kwargs
        ):
            continue
        there, error, _ = outcome(real, op, sample, DEVICE)
        if error is not None:
            continue
        predicted, error, _ = outcome(fake, op, sample, DEVICE)
        if error is None and predicted == there:
            continue
        # Where the prediction for the CPU is wrong in the same way, it is PyTorch's.
        here, (on_cpu, cpu_error, _) = real(op, sample, "cpu"), outcome(fake, op, sample, "cpu")
        if error is not None:
            assert type(error) is type(cpu_error), f"{sample}: {type(error).__name__}: {str(error)[:300]}"
        else:
            strip = lambda all: [(s, d, st) for s, d, st, _ in all]  # noqa: E731
            assert cpu_error is None and strip(there) == strip(here) and on_cpu != here, (
                f"{sample}: predicted {predicted}, is {there}; CPU {here}"
            )
