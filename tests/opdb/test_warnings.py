"""An operator says on the device what it says on the CPU: no warning more, none less."""

import pytest
import torch
from database import DEVICE, HOST_ARGUMENTS, Copier, operators, outcome, samples


def said(op, sample, device):
    copier = Copier(device)
    host = Copier("cpu") if op.name in HOST_ARGUMENTS else copier
    inputs = copier(sample.input), host(sample.args), host(sample.kwargs)
    _, error, messages = outcome(lambda: op.op(inputs[0], *inputs[1], **inputs[2]))
    # Where in PyTorch it was raised, and that the operator ran on the CPU, are no matter of the operator's.
    messages = {m.split(" (Triggered")[0] for m in messages if "on the CPU" not in m}
    # PyTorch says once for each process and way of making a tensor that complex halves are experimental.
    return error is None, {m for m in messages if "ComplexHalf" not in m}


@pytest.fixture(autouse=True)
def always():
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


@operators()
def test_warnings(op, dtype, every):
    for sample in samples(op, dtype, every):
        fine, wanted = said(op, sample, "cpu")
        ours, got = said(op, sample, DEVICE)
        if fine and ours:
            assert got == wanted
