"""The in-place form of every operator that has one: the result, the object, the memory, the version."""

import torch
from database import compare, operators, samples, tolerance


def has_in_place(op):
    return op.inplace_variant is not None and op.inplace_variant is not op.op


def in_place(op, inp, args, kwargs):
    where, version = inp.data_ptr(), inp._version
    out = op.inplace_variant(inp, *args, **kwargs)
    same_memory = inp.data_ptr() == where or inp.numel() == 0
    return inp, out is inp, same_memory, inp._version - version


@operators(when=has_in_place)
def test_in_place(op, dtype, every):
    for sample in samples(op, dtype, every):
        if sample.broadcasts_input:
            continue
        compare(op, in_place, sample, tolerance(op, dtype), finish=False)


def gaps(t):
    """The same values with a hole after each."""
    if t.layout is not torch.strided or t.dim() == 0:
        return t
    return torch.stack([t, t], -1)[..., 0].detach().requires_grad_(t.requires_grad)


@operators(when=has_in_place)
def test_in_place_on_gaps(op, dtype, every):
    for sample in samples(op, dtype, every):
        if sample.broadcasts_input:
            continue
        compare(op, in_place, sample, tolerance(op, dtype), change=gaps, finish=False)
