"""Operands on two devices are refused, and both devices are named."""

import re

import torch
from database import DEVICE, Copier, operators, outcome, samples
from torch.utils._pytree import tree_leaves, tree_map

# Of an operand they read the shape or copy the elements, or they take one of the host by their documentation.
TAKE_OTHERS = set(
    """
    as_strided_scatter atleast_1d atleast_2d atleast_3d broadcast_tensors diagonal_scatter diff expand_as histogramdd
    index_put reshape_as resize_as_ select_scatter slice_scatter tensor_split to view_as
    _unsafe_masked_index _unsafe_masked_index_put_accumulate __getitem__
    """.split()
)


def tensors_of(sample):
    return [t for t in tree_leaves((sample.input, sample.args, sample.kwargs)) if isinstance(t, torch.Tensor)]


def takes_several(op):
    return op.name not in TAKE_OTHERS and not op.name.startswith("jiterator")


@operators(when=takes_several, once=True)
def test_mixed_devices(op, dtype, every):
    for sample in samples(op, dtype, every):
        operands = tensors_of(sample)
        if len(operands) < 2 or any(t.layout is not torch.strided for t in operands):
            continue
        for host in range(len(operands)):
            # A tensor without dimensions is a number, and where the others are, they are all that counts.
            others = [t for i, t in enumerate(operands) if i != host and t.dim() and t.numel()]
            if operands[host].dim() == 0 or operands[host].numel() == 0 or not others:
                continue
            number = iter(range(len(operands)))

            def place(t, number=number, host=host):
                if not isinstance(t, torch.Tensor):
                    return t
                return Copier("cpu" if next(number) == host else DEVICE)(t)

            inp, args, kwargs = tree_map(place, (sample.input, sample.args, sample.kwargs))
            _, error, _ = outcome(lambda: op.op(inp, *args, **kwargs))
            what = f"operand {host} of {len(operands)} on the host"
            assert isinstance(error, RuntimeError), f"{what}: {error!r}"
            assert "cpu" in str(error) and re.search(r"(fl|cuda):0", str(error)), f"{what}: {error}"
