"""Views are views of what they are views of on the CPU, and writing through them counts versions."""

import torch
from database import DEVICE, HOST_ARGUMENTS, Copier, agree_on_exceptions, operators, outcome, samples
from torch.utils._pytree import tree_leaves


def relation(out, inp):
    """How a result stands to the input, apart from values."""
    if out.layout is not torch.strided or inp.layout is not torch.strided or out.is_nested or inp.is_nested:
        return "not strided"
    shares = out.untyped_storage()._cdata == inp.untyped_storage()._cdata
    return {
        "same object": out is inp,
        "shares memory": shares,
        "is a view": out._is_view(),
        "of the input": out._base is inp,
        "offset": out.storage_offset() if shares and out.numel() else 0,
        "strides": [s for s, n in zip(out.stride(), out.shape) if n > 1] if out.numel() else [],
        "version": out._version,
        "tracks": out.requires_grad,
        "node": type(out.grad_fn).__name__,
    }


def story(op, sample, device):
    copier = Copier(device)
    inp = copier(sample.input)
    if not isinstance(inp, torch.Tensor):
        return None
    rest = Copier("cpu") if op.name in HOST_ARGUMENTS else copier
    args, kwargs = rest(sample.args), rest(sample.kwargs)
    told = [inp._version]
    outs = [t for t in tree_leaves(op.op(inp, *args, **kwargs)) if isinstance(t, torch.Tensor)]
    told += [relation(out, inp) for out in outs]
    told.append(inp._version)
    for out in outs:
        if not out.requires_grad and out.layout is torch.strided and out._is_view() and out.numel():
            try:
                out.zero_()
            except RuntimeError as error:
                told.append(type(error).__name__)
            told += [out._version, inp._version]
    return told


def over(op, dtype, every, **kwargs):
    for sample in samples(op, dtype, every, **kwargs)[slice(None) if every else slice(0, 2)]:
        if not isinstance(sample.input, torch.Tensor):
            continue
        want, got = outcome(story, op, sample, "cpu"), outcome(story, op, sample, DEVICE)
        if agree_on_exceptions(got, want):
            assert got[0] == want[0], f"{sample}:\n{got[0]}, not\n{want[0]}"


@operators()
def test_views(op, dtype, every):
    over(op, dtype, every)


@operators(when=lambda op: op.supports_autograd)
def test_gradient_nodes(op, dtype, every):
    over(op, dtype, every, requires_grad=True)
