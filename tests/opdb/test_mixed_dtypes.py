"""An operand of another dtype is refused, or read as what it is: no kernel takes its memory for the first one's."""

import torch
from database import DEVICE, UNINITIALISED, Copier, draws, operators, outcome, samples, tolerance
from torch.utils._pytree import tree_leaves, tree_map

OTHER = {
    torch.float32: torch.float64,
    torch.float64: torch.float32,
}  # the samples' numbers are the same in both


def tensors_of(nest):
    return [t for t in tree_leaves(nest) if isinstance(t, torch.Tensor)]


def takes_several(op):
    return op.name not in UNINITIALISED and not op.name.startswith("jiterator")


@operators(when=takes_several, dtypes=[torch.float32], once=True)
def test_mixed_dtypes(op, dtype, every):
    for sample in samples(op, dtype, every):
        original = (sample.input, sample.args, sample.kwargs)
        operands = tensors_of(original)
        if len(operands) < 2 or any(t.layout is not torch.strided for t in operands) or draws(op, sample):
            continue

        def run(changed=None):
            # Copies of its own: running statistics change.
            number, there = iter(range(len(operands))), Copier(DEVICE)

            def place(t):
                if not isinstance(t, torch.Tensor):
                    return t
                t = t.detach()
                return there(t.to(OTHER[dtype]) if next(number) == changed else t)

            inp, args, kwargs = tree_map(place, original)
            return outcome(lambda: op.op(inp, *args, **kwargs))

        want, error, _ = run()
        if error is not None:
            continue
        for changed, operand in enumerate(operands):
            if operand.dtype != dtype:
                continue
            got, error, _ = run(changed)
            if error is not None:
                continue
            for g, w in zip(tensors_of(got), tensors_of(want), strict=True):
                common = torch.promote_types(g.dtype, w.dtype)
                torch.testing.assert_close(
                    g.to(common),
                    w.to(common),
                    rtol=10 * tolerance(op, dtype),
                    atol=10 * tolerance(op, dtype),
                    equal_nan=True,
                    check_stride=False,
                    msg=lambda m, n=changed: f"operand {n} of {len(operands)} in {OTHER[dtype]}: {m}",
                )
