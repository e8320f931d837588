"""PyTorch's module database: outputs, gradients of inputs and parameters, and buffers afterwards, against the CPU."""

import copy

import pytest
import torch
from database import DEVICE, TOLERANCE, Copier, quiet, same, set_rng_seed
from known import marks
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_leaves


def cases():
    for info in module_db:
        for training in (True, False) if info.train_and_eval_differ else (True,):
            label = f"{info.name.removeprefix('nn.')}{'' if training else '-eval'}"
            yield pytest.param(info, training, id=label, marks=marks("test_modules", label, torch.float32))


def differentiable(nest):
    return [t for t in tree_leaves(nest) if isinstance(t, torch.Tensor) and t.requires_grad]


def trained(module, forward, device):
    copier = Copier(device)
    there = copy.deepcopy(module).to(device)
    args, kwargs = copier(forward.args), copier(forward.kwargs)
    set_rng_seed(5)
    before = torch.get_rng_state()
    out = there(*args, **kwargs)
    random = not torch.equal(before, torch.get_rng_state())
    outs = differentiable(out)
    g = torch.Generator().manual_seed(7)
    torch.autograd.backward(
        outs, [torch.randn(o.shape, generator=g, dtype=torch.float64).to(o.dtype).to(device) for o in outs]
    )
    gradients = [t.grad for t in differentiable((args, kwargs))], [p.grad for p in there.parameters()]
    return (out, gradients, list(there.buffers())), random


@pytest.mark.parametrize(("info", "training"), list(cases()))
def test_modules(info, training, every):
    dtype = torch.float32
    with quiet():
        set_rng_seed(1234)
        inputs = info.module_inputs_func(
            info, device="cpu", dtype=dtype, requires_grad=True, training=training
        )
        inputs = [m for m in inputs if m.forward_input is not None]
        for case in inputs if every else inputs[:: max(len(inputs) // 3, 1)]:
            set_rng_seed(1234)
            made = case.constructor_input
            module = info.module_cls(*made.args, **made.kwargs).to(dtype).train(training)
            if info.is_lazy:
                module(*Copier("cpu")(case.forward_input.args), **Copier("cpu")(case.forward_input.kwargs))
            want, random = trained(module, case.forward_input, "cpu")
            got, _ = trained(module, case.forward_input, DEVICE)
            same(got, want, TOLERANCE[dtype], values=not random, strides=False)
