"""Values, shapes, dtypes, strides and exceptions over PyTorch's reference inputs, against the CPU."""

from database import FOREACH, compare, operators, samples, tolerance


def call(op, inp, args, kwargs):
    return op.op(inp, *args, **kwargs)


@operators()
def test_values(op, dtype, every):
    for i, sample in enumerate(samples(op, dtype, every, "reference")):
        try:
            compare(op, call, sample, tolerance(op, dtype))
        except AssertionError as error:
            raise AssertionError(f"sample {i}, {sample}: {error}") from error


@operators(of=FOREACH)
def test_foreach_values(op, dtype, every):
    for sample in samples(op, dtype, every):
        compare(op, call, sample, tolerance(op, dtype))
        if op.inplace_variant not in (None, op.op):
            compare(
                op,
                lambda o, x, args, kwargs: [o.inplace_variant(x, *args, **kwargs), x][1],
                sample,
                tolerance(op, dtype),
            )
