"""Inputs of every layout give what they give on the CPU, in the same strides."""

import re

import torch
from database import compare, operators, samples, tolerance


def strided(change):
    """The layout for dense tensors with dimensions; others stay."""

    def layout(t):
        if t.layout is not torch.strided or t.is_nested or t.dim() == 0 or t.is_quantized:
            return t
        return change(t.detach()).requires_grad_(t.requires_grad)

    return layout


def transposed(t):
    return t.transpose(0, -1).clone(memory_format=torch.contiguous_format).transpose(0, -1)


def channels_last(t):
    if t.dim() == 4:
        return t.contiguous(memory_format=torch.channels_last)
    return t.contiguous(memory_format=torch.channels_last_3d) if t.dim() == 5 else t


def offset(t):
    memory = torch.zeros(t.numel() + 3, dtype=t.dtype)
    memory[3:].copy_(t.flatten())
    return memory[3:].view(t.shape)


def is_negatable(t):
    return t.is_complex() or (t.is_floating_point() and t.itemsize > 1)


LAYOUTS = {
    "transposed": strided(transposed),
    "gaps": strided(lambda t: torch.stack([t, t], -1)[..., 0]),
    "offset": strided(offset),
    "expanded": strided(lambda t: t[:1].expand(t.shape) if t.shape[0] else t),
    "channels_last": strided(channels_last),
}
# Rows that are one row make a singular matrix: its factors are what rounding makes of it.
FACTORS = r"(linalg\.)?(cholesky(_ex|_inverse)?|lu(_factor)?(_ex)?|inv(_ex)?|solve(_ex|_triangular)?|tensorsolve)"
BITS = {
    "conj": strided(lambda t: t.conj().resolve_conj().conj() if t.is_complex() else t),
    "neg": strided(lambda t: torch._neg_view(torch.neg(t)) if is_negatable(t) else t),
}


def call(op, inp, args, kwargs):
    return op.op(inp, *args, **kwargs)


def over(op, dtype, every, layouts):
    for sample in samples(op, dtype, every)[slice(None) if every else slice(1, 3)]:
        for name, change in layouts.items():
            if name == "expanded" and re.fullmatch(FACTORS, op.name):
                continue
            try:
                # Arguments that are written, such as running means, cannot have elements in one place.
                compare(op, call, sample, tolerance(op, dtype), change=change, change_rest=name != "expanded")
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from error


@operators()
def test_layouts(op, dtype, every):
    over(op, dtype, every, LAYOUTS)


@operators(dtypes=(torch.complex64, torch.float32))
def test_conj_and_neg(op, dtype, every):
    over(op, dtype, every, BITS if dtype.is_complex else {"neg": BITS["neg"]})
