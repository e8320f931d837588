import math

import pytest
import torch
from family import check, layouts, no_fallback, tensor, to_device

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
DIMS = [0, 1, -1, (0, 2), (0, 1, 2), (-1, -2)]


@pytest.mark.parametrize("dtype", FLOATS + INTS)
def test_sum(dtype):
    with no_fallback():
        for x in layouts(tensor(3, 4, 5, dtype=dtype)):
            check(torch.sum, x)
            for dim in DIMS:
                for keepdim in (False, True):
                    check(torch.sum, x, dim=dim, keepdim=keepdim)


@pytest.mark.parametrize("dtype", FLOATS + [torch.complex64])
def test_mean(dtype):
    with no_fallback():
        for x in layouts(tensor(3, 4, 5, dtype=dtype)):
            check(torch.mean, x)
            check(torch.mean, x, dim=(0, 2), keepdim=True)
    with pytest.raises(RuntimeError, match="could not infer output dtype"):
        to_device(tensor(3, dtype=torch.int64)).mean()


def test_dtype_argument():
    check(torch.sum, tensor(4, 5, dtype=torch.float16), dtype=torch.float32)
    check(torch.sum, tensor(4, 5), dim=1, dtype=torch.float64)
    check(torch.sum, tensor(4, 5, dtype=torch.int32), dtype=torch.float32)
    check(torch.mean, tensor(4, 5, dtype=torch.int64), dtype=torch.float32)
    check(torch.prod, tensor(4, 5, dtype=torch.int8), dtype=torch.int64)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (0, 3), (3, 0), (3, 0, 2)])
def test_edges(shape):
    x = tensor(*shape)
    check(torch.sum, x)
    check(torch.mean, x)
    check(torch.prod, x)
    check(torch.all, x)
    check(torch.any, x)
    check(torch.norm, x)
    check(torch.count_nonzero, x)
    if x.dim():
        check(torch.sum, x, dim=0)
        check(torch.sum, x, dim=-1)
        check(torch.var, x, dim=-1)
    if x.numel() == 0:
        for f in (torch.amax, torch.max, torch.argmax):
            with pytest.raises((RuntimeError, IndexError)):
                f(to_device(x))


def test_broadcast_input():
    x = tensor(1, 4).expand(3, 4)
    check(torch.sum, x, dim=0)
    check(torch.var, x, dim=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.float16])
def test_prod_all_any(dtype):
    with no_fallback():
        for x in layouts(tensor(3, 4, dtype=dtype)):
            check(torch.prod, x)
            check(torch.prod, x, 1)
            for f in (torch.all, torch.any):
                check(f, x)
                check(f, x, 0)
                check(f, x, (0, 1))
    check(torch.all, tensor(4, dtype=torch.uint8))


@pytest.mark.parametrize("dtype", FLOATS + INTS)
def test_extrema(dtype):
    with no_fallback():
        for x in layouts(tensor(3, 4, 5, dtype=dtype, low=-100, high=100)):
            for f in (torch.amax, torch.amin):
                check(f, x)
                check(f, x, dim=(0, 2))
            for f in (torch.max, torch.min):
                check(f, x)
                check(lambda t, d: f(t, d), x, 1)
                check(lambda t, d: f(t, d, keepdim=True), x, 0)
            if dtype != torch.bool:
                for f in (torch.argmax, torch.argmin):
                    check(f, x)
                    check(f, x, dim=2)
                    check(f, x, dim=0, keepdim=True)
            check(torch.aminmax, x, dim=1)


def test_ties_and_nan():
    x = torch.tensor([[1.0, 3, 3, 2], [float("nan"), 5, float("nan"), 9], [-1, -1, -1, -1]])
    for f in (torch.max, torch.min):
        check(lambda t: f(t, 1), x)
        check(f, x)
    check(torch.argmax, x)
    check(torch.amin, x, dim=1)
    check(torch.nansum, x)
    check(torch.nansum, x, dim=1)


@pytest.mark.parametrize("dtype", FLOATS)
def test_variance(dtype):
    with no_fallback():
        for x in layouts(tensor(6, 4, 5, dtype=dtype)):
            for f in (torch.var, torch.std):
                check(f, x)
                check(f, x, dim=(0, 2), correction=0)
                check(f, x, dim=1, correction=2, keepdim=True)
            check(torch.var_mean, x, dim=0)
            check(torch.std_mean, x)


def test_variance_does_not_cancel():
    check(torch.var, tensor(1000) + 1e4, rtol=1e-3)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize(
    "values", [[1, math.inf, 2], [math.inf] * 3, [1] * 20 + [-math.inf], [math.nan, 1, 2]], ids=str
)
def test_variance_of_what_is_not_finite(values):
    x = torch.tensor(values, dtype=torch.float32)
    for layout in (x, x.view(-1, 1).expand(-1, 33).contiguous(), x.repeat(3, 1)):
        check(torch.var, layout)
        check(lambda x: torch.var_mean(x, dim=0)[0], layout)
        check(torch.std, layout, dim=-1)


def test_variance_without_freedom():
    check(torch.var, tensor(1))
    check(torch.std, tensor(3, 1), dim=1)


@pytest.mark.parametrize("p", [0, 1, 2, 3, 0.5, float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.complex64])
def test_norms(p, dtype):
    x = tensor(5, 6, dtype=dtype)
    with no_fallback():
        check(torch.linalg.vector_norm, x, p)
        check(torch.linalg.vector_norm, x, p, dim=1)
        check(lambda t: torch.norm(t, p, dim=0), x)


def test_out_and_strides():
    x = tensor(4, 5)
    check(lambda t, o: torch.sum(t, 1, out=o), x, torch.zeros(8)[::2])
    check(lambda t, o: torch.mean(t, 0, keepdim=True, out=o), x, torch.zeros(1, 5))
    check(lambda t, o: torch.amax(t, 0, out=o), x, torch.zeros(5))
    check(
        lambda t, v, i: torch.max(t, 1, out=(v, i)), x, torch.zeros(4), torch.zeros(8, dtype=torch.int64)[::2]
    )


@pytest.mark.parametrize(
    "f", [torch.sum, torch.mean, torch.prod, torch.amax, torch.logsumexp, torch.var, torch.std]
)
def test_gradients(f):
    check(lambda t: f(t, dim=1), tensor(3, 4, 5).requires_grad_(), grad=True)


def test_half_accumulates_wide():
    x = to_device(torch.ones(70000, dtype=torch.float16) * 0.5)
    assert x.sum().item() == 35008  # 35000 rounded to float16
    assert abs(x.mean().item() - 0.5) < 1e-3


def test_int64_is_exact():
    big = torch.tensor([2**53 + 1, 2**62, -(2**62), 3])
    check(torch.sum, big)
    check(torch.max, big)
    check(torch.prod, torch.tensor([2**31 + 1, 2**30 + 1]))


def test_large():
    check(torch.sum, tensor(513, 1025), rtol=1e-4, atol=1e-2)
    check(torch.sum, tensor(513, 1025), dim=0, atol=1e-3)
    check(torch.argmax, tensor(100, 333), dim=1)


def test_bad_dim():
    with pytest.raises(IndexError):
        to_device(tensor(3, 4)).sum(dim=2)
