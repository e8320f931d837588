"""First and second derivatives against finite differences, in double precision on the device."""

import functools

import torch
from database import DEVICE, HOST_ARGUMENTS, Copier, operators, outcome, quiet, samples, set_rng_seed
from torch.utils._pytree import tree_leaves, tree_map


def checked(op, sample, device, check):
    """The exception of a check on one device; None when it passes or there is nothing to check."""
    copier = Copier(device)
    rest = Copier("cpu") if op.name in HOST_ARGUMENTS else copier
    nest = copier(sample.input), rest(sample.args), rest(sample.kwargs)
    leaves = [t for t in tree_leaves(nest) if isinstance(t, torch.Tensor) and t.requires_grad]
    if not leaves or sum(t.numel() for t in leaves) > 2000:
        return None

    def function(*values):
        set_rng_seed(5)  # random operators: the same numbers each time
        by_id = {id(leaf): value for leaf, value in zip(leaves, values)}
        inp, args, kwargs = tree_map(lambda t: by_id.get(id(t), t), nest)
        out = sample.output_process_fn_grad(op.gradcheck_wrapper(op.op, inp, *args, **kwargs))
        outs = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
        return tuple(t for t in outs if t.is_floating_point() or t.is_complex())

    with quiet():
        return outcome(check, function, leaves)[1]


def gradient_check(op, dtype, every, check):
    for sample in samples(op, dtype, every, requires_grad=True)[: None if every else 2]:
        error = checked(op, sample, DEVICE, check)
        # Where the CPU fails too (a point that is not differentiable, a change of dtype), it is not the device's.
        if error is not None and checked(op, sample, "cpu", check) is None:
            raise AssertionError(f"{sample}: {type(error).__name__}: {str(error)[:600]}") from error


def options(op):
    return {
        "fast_mode": True,
        "nondet_tol": max(op.gradcheck_nondet_tol, 0.0),
        "check_undefined_grad": False,
        "check_batched_grad": False,
    }


ORDER = (torch.float64, torch.complex128)


@operators(when=lambda op: op.supports_autograd, dtypes=ORDER)
def test_gradcheck(op, dtype, every):
    gradient_check(op, dtype, every, functools.partial(torch.autograd.gradcheck, **options(op)))


@operators(when=lambda op: op.supports_autograd and op.supports_gradgrad, dtypes=ORDER)
def test_gradgradcheck(op, dtype, every):
    gradient_check(
        op,
        dtype,
        every,
        functools.partial(torch.autograd.gradgradcheck, gen_non_contig_grad_outputs=True, **options(op)),
    )
