"""out=: resizing and its warning, dtypes, devices, strides that stay, memory that overlaps; all as on the CPU."""

import torch
from database import (
    DEVICE,
    UNINITIALISED,
    Copier,
    agree_on_exceptions,
    draws,
    operators,
    outcome,
    same,
    samples,
    tolerance,
)
from torch.utils._pytree import tree_leaves, tree_map

RESIZED = "An output with one or more elements was resized"


def tensors(nest):
    return [t for t in tree_leaves(nest) if isinstance(t, torch.Tensor)]


def transposed(t):
    return torch.empty(t.shape[::-1], dtype=t.dtype, device=t.device).permute(*range(t.dim() - 1, -1, -1))


def gaps(t):
    return torch.empty(*t.shape, 2, dtype=t.dtype, device=t.device)[..., 0]


def other(t, dtype):
    return torch.empty(t.shape, dtype=dtype, device=t.device)


# Each makes what is given as out= for one part of the result.
OUTS = {
    "right": lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device),
    "empty": lambda t: torch.empty(0, dtype=t.dtype, device=t.device),
    "wrong shape": lambda t: torch.ones(*t.shape, 2, dtype=t.dtype, device=t.device),
    "larger": lambda t: torch.ones(t.numel() * 2 + 5, dtype=t.dtype, device=t.device),
    "transposed": transposed,
    "gaps": gaps,
    "integer": lambda t: other(t, torch.int32),
    "double": lambda t: other(t, torch.float64),
    "complex": lambda t: other(t, torch.complex128),
    # With memory for all elements: kernels of the CPU that do not check write as if it were contiguous.
    "expanded": lambda t: torch.empty(t.numel() + 1, dtype=t.dtype, device=t.device).as_strided(
        t.shape, [0] * t.dim()
    ),
    "requires grad": lambda t: other(t, t.dtype).requires_grad_(t.is_floating_point() or t.is_complex()),
}


# The CPU's kernel writes beyond the memory of these.
CRASHES = {(op, "transposed") for op in ("linalg.lu", "lu_unpack", "tril", "triu")}


def story(op, sample, make, device):
    """out= as it is afterwards, what the functional form gives, facts about both calls."""
    copier = Copier(device)
    inp, args, kwargs = copier(sample.input), copier(sample.args), copier(sample.kwargs)
    expected = op.op(inp, *args, **kwargs)
    # arange and its like are on the CPU where nothing names a device.
    out = tree_map(lambda t: make(t.detach().to(device)) if isinstance(t, torch.Tensor) else t, expected)
    before = [(t.data_ptr(), t._version, t.numel()) for t in tensors(out)]
    result = op.op(inp, *args, **kwargs, out=out)
    facts = [
        (t.data_ptr() == where or not n or not t.numel(), t._version > version, r is t)
        for (where, version, n), t, r in zip(before, tensors(out), tensors(result))
    ]
    return [t.detach() for t in tensors(out)], tensors(expected), facts


def compare_values(out, out_cpu, expected, tol):
    """With the CPU's out=, or, because some of its kernels write as if that were contiguous, its functional form."""
    try:
        same(out, out_cpu, tol, strides=False, bits=False)
    except AssertionError:
        same(
            out,
            [e.to(o.dtype) for e, o in zip(expected, out_cpu)],
            tol,
            strides=False,
            bits=False,
            where="out",
        )


def plain(sample):
    """PyTorch forbids out= together with gradients."""
    return not any(t.requires_grad for t in tensors((sample.input, sample.args, sample.kwargs)))


@operators(when=lambda op: op.supports_out)
def test_out(op, dtype, every):
    chosen = [s for s in samples(op, dtype, every) if plain(s)]
    for sample in chosen if every else chosen[1:2] or chosen:
        random = op.name in UNINITIALISED or draws(op, sample)
        for name, make in OUTS.items():
            if (op.name, name) in CRASHES:
                continue
            want, got = outcome(story, op, sample, make, "cpu"), outcome(story, op, sample, make, DEVICE)
            if name == "expanded" and "single memory location" in str(got[1]):
                continue  # the device always refuses, the CPU sometimes
            try:
                if not agree_on_exceptions(got, want) or name == "expanded":
                    continue
                (out, _, facts), (out_cpu, expected, facts_cpu) = got[0], want[0]
                same(out, out_cpu, values=False, bits=False, where="out")
                if not random:
                    compare_values(out, out_cpu, expected, tolerance(op, dtype))
                assert facts == facts_cpu, (
                    f"(memory kept, version raised, returned): {facts}, not {facts_cpu}"
                )
                warned = [any(RESIZED in m for m in o[2]) for o in (got, want)]
                assert warned[0] or not warned[1], "no warning that it was resized"
            except AssertionError as error:
                raise AssertionError(f"{name}, {sample}: {error}") from error


@operators(when=lambda op: op.supports_out)
def test_out_elsewhere(op, dtype, every):
    """out= on another device than the inputs is refused."""
    for sample in [s for s in samples(op, dtype, every) if plain(s)][:1]:
        if not isinstance(sample.input, torch.Tensor) or sample.input.dim() == 0 or op.name == "histogramdd":
            continue
        copier = Copier(DEVICE)
        nest = copier(sample.input), copier(sample.args), copier(sample.kwargs)
        expected, error, _ = outcome(lambda nest=nest: op.op(nest[0], *nest[1], **nest[2]))
        if error is not None or not tensors(expected):
            continue
        for device in ("cpu", "fl:1"):
            out = tree_map(
                lambda t, d=device: (
                    torch.empty(t.shape, dtype=t.dtype, device=d) if isinstance(t, torch.Tensor) else t
                ),
                expected,
            )
            _, error, _ = outcome(lambda nest=nest, out=out: op.op(nest[0], *nest[1], **nest[2], out=out))
            assert isinstance(error, (RuntimeError, NotImplementedError)), f"out= on {device}: {error!r}"
