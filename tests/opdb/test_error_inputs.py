"""What the CPU refuses the device refuses, with the same type of exception."""

import itertools

from database import DEVICE, Copier, operators, outcome, quiet


@operators(when=lambda op: op.error_inputs_func is not None, once=True)  # the errors name their dtypes
def test_errors(op, dtype, every):
    with quiet():
        errors = list(itertools.islice(op.error_inputs("cpu"), 60))
    for case in errors:
        sample = case.sample_input

        def run(device, sample=sample):
            copier = Copier(device)
            return op.op(copier(sample.input), *copier(sample.args), **copier(sample.kwargs))

        _, want, _ = outcome(run, "cpu")
        if want is None:  # PyTorch's table has errors of other devices
            continue
        result, got, _ = outcome(run, DEVICE)
        assert got is not None, f"{sample}: gives {result}, but the CPU raises {want!r}"
        assert isinstance(got, (type(want), case.error_type)), f"{sample}: raises {got!r}, the CPU {want!r}"
