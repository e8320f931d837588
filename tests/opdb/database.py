"""PyTorch's operator database, and what every test over it needs: samples, copies on the device, comparison.

Every test asks the same question: does the device do what the CPU does with the same inputs? `outcome` runs something
and keeps what happened, an exception included, so that two outcomes can be compared.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import warnings

import numpy
import torch
from torch.testing._internal import common_methods_invocations as definitions, common_utils
from torch.utils._pytree import tree_leaves, tree_map

from torch_fl.coverage import HOST_ARGUMENTS


def set_rng_seed(seed=1234):
    """torch.manual_seed without the accelerators that are not there: for each it formats a stack, half of the run."""
    torch.default_generator.manual_seed(seed)
    torch.fl.manual_seed_all(seed)
    random.seed(seed)
    numpy.random.seed(seed)


common_utils.set_rng_seed = set_rng_seed  # what PyTorch's samples call
# PyTorch seeds random operators anew at each call of a sample, which would hide that an operator is random.
definitions.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)

DEVICE = "fl:0"
OPERATORS = definitions.op_db
FOREACH = [
    op
    for part in ("unary", "binary", "pointwise", "reduce", "other")
    for op in getattr(definitions, f"foreach_{part}_op_db")
]

# Relative and absolute, as in PyTorch's own comparison of two devices (test_ops.py, test_compare_cpu), or narrower.
TOLERANCE = {
    torch.float64: 1e-7, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2,
    torch.complex128: 1e-7, torch.complex64: 1e-4, torch.complex32: 1e-2,
}  # fmt: skip
# The CPU's own float32 result is that far from its float64 result.
LOOSER = {
    "matrix_exp": 1e-3, "logcumsumexp": 5e-3, "native_layer_norm": 1e-3, "nn.functional.grid_sample": 1e-3,
    "Muon": 2e-2, "LBFGS": 2e-3,
}  # fmt: skip
UNINITIALISED = {
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_", "resize_as_",
}  # fmt: skip
# Strides are those that PyTorch predicts for devices (test_fake_tensors), and others on the CPU.
AS_PREDICTED = {"nonzero_static"}

FAST_SAMPLES = 3  # an operator, dtype and test
EVERY_SAMPLES = 400


def operators(when=None, dtypes=None, of=None, once=False):
    """Parametrises a test by `op` and `dtype`: those operators of the database for which when(op) is true.

    `dtypes` is the order in which the fast selection looks for the one dtype that it takes; with `once` there is
    never another."""

    def mark(test):
        test.operators = (
            when,
            dtypes or (torch.float32, torch.complex64, torch.int64, torch.bool),
            of or OPERATORS,
            once,
        )
        return test

    return mark


def dtypes_of(op, gradient=False):
    return op.supported_backward_dtypes("cpu") if gradient else op.supported_dtypes("cpu")


def tolerance(op, dtype):
    """For what an operator computes from numbers of a dtype; from integers it is float32."""
    return max(TOLERANCE.get(dtype, TOLERANCE[torch.float32]), LOOSER.get(op.name, 0.0))


def samples(op, dtype, every: bool, kind: str = "sample", **kwargs):
    """A few samples spread over the first ones, or, with every, nearly all."""
    set_rng_seed(1234)
    make = {"sample": op.sample_inputs, "reference": getattr(op, "reference_inputs", op.sample_inputs)}[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if every:
            return list(itertools.islice(make("cpu", dtype, **kwargs), EVERY_SAMPLES))
        first = list(itertools.islice(make("cpu", dtype, **kwargs), 6 * FAST_SAMPLES))
    step = max((len(first) - 1) / max(FAST_SAMPLES - 1, 1), 1)
    return [first[int(i * step)] for i in range(min(FAST_SAMPLES, len(first)))]


class Copier:
    """Copies nested arguments to a device: strides, offsets, what shares memory, conj and neg bits stay."""

    def __init__(self, device):
        self.device, self.storages, self.tensors = torch.device(device), {}, {}

    def __call__(self, nest):
        return tree_map(self.copy, nest)

    def copy(self, x):
        if isinstance(x, (torch.device, str)) and str(x) == "cpu":
            return type(x)(self.device)
        if not isinstance(x, torch.Tensor):
            return x
        if id(x) not in self.tensors:
            self.tensors[id(x)] = (x, self.moved(x.detach()).requires_grad_(x.requires_grad))
        return self.tensors[id(x)][1]

    def moved(self, t):
        if t.layout is not torch.strided or t.is_nested or t.is_quantized or not t.is_cpu:
            return t.to(self.device, copy=True)
        if t.is_conj():
            return self.moved(t.conj()).conj()
        if t.is_neg():
            return self.moved(torch._neg_view(t))._neg_view()
        storage, key = t.untyped_storage(), (t.untyped_storage()._cdata, t.dtype)
        if key not in self.storages:
            whole = torch.empty(0, dtype=t.dtype).set_(storage)
            self.storages[key] = whole.to(self.device, copy=True)
        # A view whose base is not known to autograd: the copy is a leaf as the sample was.
        alias = torch.empty(0, dtype=t.dtype, device=self.device)
        return alias.set_(self.storages[key].untyped_storage(), t.storage_offset(), t.size(), t.stride())

    def copies(self):
        return [c for _, c in self.tensors.values()]


def outcome(function, *args, **kwargs):
    """(result, exception, messages of warnings) of function(*args); one of the first two is None."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            result = function(*args, **kwargs)
            torch.fl.synchronize()  # a wrong index is found by the device
            return result, None, [str(w.message) for w in said]
        except Exception as error:
            return None, error, [str(w.message) for w in said]


def cannot(error) -> bool:
    """Does the CPU lack a kernel, which says nothing about what the device should do?"""
    text = str(error)
    return any(
        words in text
        for words in (
            "not implemented for",
            "not supported for",
            "Unsupported dtype",
            "Could not run",
            "does not support",
            "not yet supported",
            "Unsupported memory format. Supports only",
            "<= std::numeric_limits<integer_t>::max()",
        )
    ) or isinstance(error, NotImplementedError)


def agree_on_exceptions(got, want):
    """Fails unless both raised the same type or neither raised; true when there are results to compare."""
    (_, g, _), (_, w, _) = got, want
    if w is None:
        if g is not None:
            raise AssertionError(f"raises {type(g).__name__}: {str(g)[:300]}") from g
        return True
    if cannot(w):
        return False
    assert g is not None, f"no exception, but the CPU raises {type(w).__name__}: {str(w)[:200]}"
    assert type(g) is type(w), (
        f"raises {type(g).__name__}: {str(g)[:200]}; the CPU {type(w).__name__}: {str(w)[:200]}"
    )
    return False


def strides_that_matter(t):
    """Of dimensions with more than one element, in a tensor that has any."""
    return [s for s, n in zip(t.stride(), t.shape) if n > 1] if t.numel() else []


def same(got, want, tol=0.0, values=True, strides=True, device=DEVICE, where="result", bits=True):
    got, want = tree_leaves(got), tree_leaves(want)
    assert len(got) == len(want), f"{where}: {len(got)} parts, not {len(want)}"
    for i, (g, w) in enumerate(zip(got, want)):
        at = f"{where} {i}" if len(want) > 1 else where
        if not isinstance(w, torch.Tensor):
            if isinstance(w, (float, complex)) and type(g) is type(w):
                assert not values or g == w or (g != g and w != w) or abs(g - w) <= tol + tol * abs(w), (
                    f"{at}: {g}, not {w}"
                )
            elif not isinstance(w, (torch.device, str)):
                assert type(g) is type(w) and (not values or g == w), f"{at}: {g!r}, not {w!r}"
            continue
        assert g.layout == w.layout, f"{at}: layout {g.layout}, not {w.layout}"
        assert g.dtype == w.dtype, f"{at}: {g.dtype}, not {w.dtype}"
        assert g.shape == w.shape, f"{at}: shape {list(g.shape)}, not {list(w.shape)}"
        # A sample that names the accelerator gets it for both.
        assert device is None or not w.is_cpu or g.device == torch.device(device), f"{at}: on {g.device}"
        if w.layout is torch.strided and not w.is_nested:
            if bits and w._is_view():  # else whether a product is conjugated lazily is its own affair
                assert g.is_conj() == w.is_conj() and g.is_neg() == w.is_neg(), (
                    f"{at}: conj or neg bit differs"
                )
            if strides:
                assert strides_that_matter(g) == strides_that_matter(w), (
                    f"{at}: strides {g.stride()}, not {w.stride()} of {list(w.shape)}"
                )
        if values:
            g, w = g.detach().cpu(), w.detach().cpu()
            if w.dtype is torch.complex32:  # which the CPU cannot conjugate
                g, w = (
                    t.conj().to(torch.complex64).conj() if t.is_conj() else t.to(torch.complex64)
                    for t in (g, w)
                )
            if w.is_complex() and w.layout is torch.strided:
                # What an infinite part makes of a product is the formula's accident: the CPU's own gives NaN.
                finite = w.isfinite()
                g, w = g[finite], w[finite]
            exact = not (w.is_floating_point() or w.is_complex()) or w.dtype.itemsize == 1
            torch.testing.assert_close(
                g,
                w,
                rtol=0 if exact else tol,
                atol=0 if exact else tol,
                equal_nan=True,
                check_stride=False,
                msg=lambda m: f"{at}: {m}",
            )


def draws(op, sample) -> bool:
    """Does it draw from the CPU's generator?"""
    copier = Copier("cpu")
    set_rng_seed(3)
    before = torch.get_rng_state()
    _, error, _ = outcome(lambda: op.op(copier(sample.input), *copier(sample.args), **copier(sample.kwargs)))
    return error is None and not torch.equal(before, torch.get_rng_state())


def compare(op, call, sample, tol, strides=True, change=None, change_rest=True, finish=True):
    """call(op, input, args, kwargs) on the CPU and on the device: exceptions, results, inputs afterwards.

    `change` makes another layout of the input first, and with change_rest of every other tensor.  Returns whether there
    was something to compare."""
    here, there = Copier("cpu"), Copier(DEVICE)
    original = (sample.input, sample.args, sample.kwargs)
    if change is not None:
        other = tree_map(lambda t: change(t) if isinstance(t, torch.Tensor) else t, original)
        original = other if change_rest else (other[0], *original[1:])

    def run(copier):
        where = copier
        inp, args, kwargs = where(original[0]), where(original[1]), where(original[2])
        if op.name in HOST_ARGUMENTS:
            args, kwargs = Copier("cpu")(original[1]), Copier("cpu")(original[2])
        set_rng_seed(5)
        result = call(op, inp, args, kwargs)
        return sample.output_process_fn_grad(result) if finish else result

    strides = strides and op.name not in AS_PREDICTED
    state = torch.get_rng_state()
    set_rng_seed(5)
    drawn = torch.get_rng_state()
    want = outcome(run, here)
    random = not torch.equal(drawn, torch.get_rng_state())
    torch.set_rng_state(state)
    got = outcome(run, there)
    if not agree_on_exceptions(got, want):
        return False
    values = not (random or op.name in UNINITIALISED or getattr(op, "has_nondeterministic_output", False))
    moved = bool(there.tensors) or "device" in sample.kwargs
    same(got[0], want[0], tol, values, strides, DEVICE if moved else None)
    same(there.copies(), here.copies(), tol, values, strides, None, "argument afterwards")
    return True


@contextlib.contextmanager
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
