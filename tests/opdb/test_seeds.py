"""Random operators: the seed decides, a restored state repeats, and the numbers are distributed as on the CPU."""

import pytest
import torch
from database import DEVICE, UNINITIALISED, Copier, draws, operators, samples, set_rng_seed
from torch.utils._pytree import tree_leaves


def numbers(op, sample, device):
    copier = Copier(device)
    out = op.op(copier(sample.input), *copier(sample.args), **copier(sample.kwargs))
    return [
        t.detach().cpu()
        for t in tree_leaves(out)
        if isinstance(t, torch.Tensor) and t.layout is torch.strided
    ]


def equal(a, b):
    def plain(x):  # the CPU has no nan_to_num for complex halves
        return torch.nan_to_num(x.to(torch.complex64) if x.dtype is torch.complex32 else x)

    return all(x.dtype == y.dtype and torch.equal(plain(x), plain(y)) for x, y in zip(a, b))


@operators(when=lambda op: op.name not in UNINITIALISED)
def test_seed_decides(op, dtype, every):
    random = [s for s in samples(op, dtype, every) if draws(op, s)]
    for sample in random:
        inputs = [t for t in tree_leaves(sample.input) if isinstance(t, torch.Tensor)]
        if not inputs and "device" not in sample.kwargs:
            continue
        set_rng_seed(11)
        state = torch.fl.get_rng_state()
        first = numbers(op, sample, DEVICE)
        set_rng_seed(11)
        assert equal(first, numbers(op, sample, DEVICE)), f"{sample}: another result with the same seed"
        torch.fl.set_rng_state(state)
        assert equal(first, numbers(op, sample, DEVICE)), f"{sample}: another result from the restored state"


@operators(when=lambda op: op.name not in UNINITIALISED)
def test_seed_distribution(op, dtype, every):
    for sample in [s for s in samples(op, dtype, every) if draws(op, s)]:
        if (
            not sample.input.numel()
            if isinstance(sample.input, torch.Tensor)
            else "device" not in sample.kwargs
        ):
            continue
        moments = []
        for device in ("cpu", DEVICE):
            set_rng_seed(17)
            drawn = [numbers(op, sample, device) for _ in range(60)]
            values = torch.cat(
                [
                    t.flatten().to(torch.complex128 if t.is_complex() else torch.float64)
                    for ts in drawn
                    for t in ts
                ]
            )
            if values.is_complex():
                values = torch.view_as_real(values).flatten()
            if op.name == "cauchy":  # which has no moments
                values = values.atan()
            moments.append((values.nan_to_num().mean(), values.nan_to_num().std(), values.numel()))
        (mean, std, n), (mean_there, std_there, _) = moments
        if n < 120 or not std.isfinite():
            continue
        # Six standard errors, and room for heavy tails, whose own error is unknown.
        assert abs(mean - mean_there) <= 6 * max(std, std_there) * (2 / n) ** 0.5 + 1e-6, (
            f"{sample}: mean {mean_there}, not {mean}"
        )
        assert std_there <= 2 * std + 1e-6 and std <= 2 * std_there + 1e-6, (
            f"{sample}: deviation {std_there}, not {std}"
        )


@pytest.mark.parametrize("name", sorted(UNINITIALISED))
def test_uninitialised_memory_is_described(name):
    from database import OPERATORS

    op = next(o for o in OPERATORS if o.name == name)
    for sample in samples(op, torch.float32, True):
        found = []
        for device in ("cpu", DEVICE):
            copier = Copier(device)
            out = op.op(copier(sample.input), *copier(sample.args), **copier(sample.kwargs))
            found.append((out.shape, out.stride(), out.dtype, out.storage_offset()))
        assert found[0] == found[1], f"{sample}"
