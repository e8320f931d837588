"""Cumulation, sorting and selection, against the CPU."""

import pytest
import torch
from family import DEVICE, check, layouts, no_fallback, tensor, to_device

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
LARGE = 2**16 + 1


def distinct(*shape, dtype=torch.float32, seed=0):
    """No two equal values: the CPU leaves open which of equal ones some operators report."""
    count = torch.Size(shape).numel()
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).reshape(shape)
    return ((order - count // 2) / (1 if dtype in INTEGERS else 8)).to(dtype)


# -------------------------------------------------------------------- cumulation
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS + [torch.bool, torch.complex64])
def test_cumsum_and_cumprod(dtype):
    with no_fallback():
        for x in layouts(tensor(3, 5, 4, dtype=dtype)):
            for dim in (0, 1, -1):
                check(torch.cumsum, x, dim)
                check(torch.cumprod, x, dim)
        check(torch.cumsum, tensor(3, 700, dtype=dtype), 1)
        check(torch.cumsum, tensor(700, 3, dtype=dtype), 0)
        for shape in [(), (0,), (2, 0, 3), (1,)]:
            check(torch.cumsum, tensor(*shape, dtype=dtype), 0)
            check(torch.cumprod, tensor(*shape, dtype=dtype), 0)


def test_cumsum_long_and_dtypes():
    with no_fallback():
        for dtype in (torch.float32, torch.int64, torch.float64):
            check(torch.cumsum, tensor(LARGE, dtype=dtype), 0)
        check(torch.cumsum, torch.ones(3, LARGE, dtype=torch.bfloat16), 1, dtype=torch.float32)
        check(lambda x: x.cumsum(0, dtype=torch.float16), tensor(40, dtype=torch.int32))
        check(lambda x: x.cumprod(0, dtype=torch.float64), tensor(40))
        check(lambda x: x.cumsum_(1), tensor(3, 4))
        check(lambda x: x.cumsum_(0), tensor(7, dtype=torch.int16))
        check(lambda x: x.cumprod_(1), tensor(3, 4))
        check(lambda x, o: torch.cumsum(x, 1, out=o), tensor(3, 4), torch.zeros(3, 8)[:, ::2])
        check(lambda x, o: torch.cumsum(x, 1, out=o), tensor(3, 4), torch.zeros(0))
        check(torch.cumsum, torch.tensor([1.0, float("inf"), 2.0, float("-inf"), float("nan")]), 0)
        check(torch.cumprod, torch.tensor([3.0, 0.0, float("inf"), 1.0]), 0)
    check(torch.cumsum, torch.full((20,), 2**62, dtype=torch.int64), 0)
    with pytest.raises(NotImplementedError):
        torch.cumsum(torch.ones(3, device=DEVICE), 0, dtype=torch.bool)
    with pytest.raises(IndexError):
        torch.cumsum(torch.ones(3, device=DEVICE), 1)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS + [torch.bool])
def test_cummax_and_cummin(dtype):
    with no_fallback():
        for x in layouts(tensor(3, 9, 4, dtype=dtype)):
            for dim in (0, 1, 2):
                check(torch.cummax, x, dim)
                check(torch.cummin, x, dim)
        check(torch.cummax, tensor(dtype=dtype), 0)
        check(torch.cummin, tensor(0, 3, dtype=dtype), 0)
        check(torch.cummax, tensor(LARGE, dtype=dtype), 0)
    if dtype.is_floating_point:
        check(torch.cummax, torch.tensor([1, float("nan"), 2, float("nan"), 0], dtype=dtype), 0)
        check(torch.cummin, torch.tensor([1, float("nan"), 2, float("nan"), 0], dtype=dtype), 0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_logcumsumexp(dtype):
    with no_fallback():
        for x in layouts(tensor(3, 5, 4, dtype=dtype)):
            check(torch.logcumsumexp, x, 1)
            check(torch.logcumsumexp, x, 2)
        infinite = torch.tensor([float("-inf"), 3, float("-inf"), float("inf"), 1, float("nan")], dtype=dtype)
        check(torch.logcumsumexp, infinite, 0)
        check(torch.logcumsumexp, infinite[:3] * 1, 0)
    for shape in [(0, 3), (2, 3), ()]:
        for device in ("cpu", DEVICE):
            with pytest.raises(IndexError, match="out of range"):
                torch.logcumsumexp(torch.zeros(shape, dtype=dtype, device=device), 2)
    for device in ("cpu", DEVICE):
        x = torch.zeros(2, 3, dtype=dtype, device=device)
        with pytest.raises(RuntimeError, match="single memory location"):
            torch.logcumsumexp(x, 1, out=torch.zeros(3, dtype=dtype, device=device).expand(2, 3))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_logcumsumexp_of_complex_numbers(dtype):
    with no_fallback():
        for x in layouts(tensor(3, 17, 4, dtype=dtype) * 3):
            for dim in (0, 1, 2):
                check(torch.logcumsumexp, x, dim, rtol=1e-3, atol=1e-3)
        check(torch.logcumsumexp, tensor(5, dtype=dtype) * 400, 0)
        check(torch.logcumsumexp, tensor(dtype=dtype), 0)
        check(torch.logcumsumexp, tensor(0, 3, dtype=dtype), 0)


def test_gradients_of_cumulation():
    x = tensor(3, 5)
    x[1, 2] = 0
    with no_fallback():
        for f in (torch.cumsum, torch.cumprod, torch.logcumsumexp):
            check(f, x.clone().requires_grad_(), 1, grad=True)
        check(lambda x: torch.cummax(x, 1).values, x.clone().requires_grad_(), grad=True)
        check(lambda x: torch.cummin(x, 0).values, x.clone().requires_grad_(), grad=True)


# ------------------------------------------------------------------- sorting
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS + [torch.bool])
def test_sort(dtype):
    with no_fallback():
        for x in layouts(tensor(3, 40, 4, dtype=dtype)):
            for dim in (0, 1, -1):
                for descending in (False, True):
                    check(
                        lambda x, dim, down: torch.sort(x, dim=dim, descending=down, stable=True),
                        x,
                        dim,
                        descending,
                    )
        check(lambda x: torch.sort(x, stable=True), tensor(LARGE, dtype=dtype))
        check(lambda x: torch.argsort(x, dim=0, stable=True), tensor(40, 3, dtype=dtype))
        check(lambda x: torch.sort(x), tensor(dtype=dtype))
        check(lambda x: torch.sort(x), tensor(3, 0, dtype=dtype))
        check(torch.msort, tensor(9, 3, dtype=dtype))


def test_sort_specials():
    x = torch.tensor([float("nan"), 0.0, -0.0, float("inf"), -1, float("-inf"), float("nan"), -0.0, 0.0])
    with no_fallback():
        for descending in (False, True):
            got = to_device(x).sort(stable=True, descending=descending)
            want = x.sort(stable=True, descending=descending)
            assert got.indices.cpu().equal(want.indices)
            assert torch.signbit(got.values.cpu())[1:-2].equal(torch.signbit(want.values)[1:-2])
        check(
            lambda x, v, i: torch.sort(x, out=(v, i)),
            distinct(4, 5),
            torch.zeros(4, 10)[:, ::2],
            torch.zeros(4, 5).long(),
        )
        check(
            lambda x, v, i: torch.sort(x, out=(v, i)), distinct(4, 5), torch.zeros(0), torch.zeros(0).long()
        )

        def in_place(x):
            torch.sort(x, dim=0, stable=True, out=(x, torch.empty(0, dtype=torch.int64, device=x.device)))
            return x

        check(in_place, x.clone())
        check(in_place, torch.tensor([2**62 + 1, 2**62, -(2**63), 2**63 - 1]))
    with pytest.raises(RuntimeError, match="complex"):
        torch.sort(torch.ones(3, dtype=torch.complex64, device=DEVICE))


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_topk_and_kthvalue(dtype):
    x = distinct(5, 9, dtype=dtype) if dtype != torch.uint8 else torch.randperm(45).reshape(5, 9).to(dtype)
    with no_fallback():
        for y in layouts(x):
            for dim in (0, 1):
                for k in (1, 3, 5):
                    for largest in (False, True):
                        check(lambda y, k, dim, up: torch.topk(y, k, dim, largest=up), y, k, dim, largest)
                    check(torch.kthvalue, y, k, dim)
                    check(torch.kthvalue, y, k, dim, True)
        check(torch.topk, x, 0)
        check(torch.topk, x[0, 0], 1)
        check(torch.kthvalue, x[0, 0], 1)
    with pytest.raises(RuntimeError, match="out of range"):
        torch.topk(to_device(x), 10)


def test_topk_of_many():
    with no_fallback():
        x = distinct(LARGE * 3)
        for k in (1, 10, 500, LARGE):
            check(lambda x, k: torch.topk(x, k), x, k)
            check(lambda x, k: torch.topk(x, k, largest=False), x, k)
        check(lambda x: torch.topk(x, 3, dim=0), distinct(70, 40))
        y = distinct(40, 300)
        y[::3, 7] = float("nan")
        check(lambda x: torch.topk(x, 1).values, y)
        check(
            lambda x, v, i: torch.topk(x, 2, out=(v, i)),
            distinct(4, 9),
            torch.zeros(4, 4)[:, ::2],
            torch.zeros(0).long(),
        )


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize("f", [torch.median, torch.nanmedian])
def test_median(f, dtype):
    with no_fallback():
        for x in layouts(tensor(4, 7, 6, dtype=dtype)):
            check(f, x)
            for dim in (0, 1, 2):
                check(f, x, dim)
                check(f, x, dim, True)
        check(f, tensor(dtype=dtype))
        check(f, tensor(dtype=dtype), 0)
        check(f, tensor(LARGE, dtype=dtype))
        if dtype.is_floating_point:
            x = tensor(4, 7, dtype=dtype)
            x[0, 3] = x[0, 5] = float("nan")
            check(f, x)
            check(f, x, 1)
            check(f, x, 0)
            x[2] = float("nan")  # which of them is up to the CPU's algorithm
            check(lambda x: f(x, 1).values, x)
    check(
        lambda x, v, i: f(x, 1, out=(v, i)),
        tensor(4, 7, dtype=dtype),
        torch.zeros(4, dtype=dtype),
        torch.zeros(0).long(),
    )
    with pytest.raises(IndexError):
        f(torch.ones(3, 0, device=DEVICE), 1)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS + [torch.bool])
def test_mode(dtype):
    with no_fallback():
        for x in layouts(tensor(4, 9, 6, dtype=dtype)):
            for dim in (0, 1, 2):
                check(lambda x, dim: torch.mode(x, dim), x, dim)
        check(
            lambda x: torch.mode(x, 0, True),
            tensor(9, 3, dtype=dtype).round() if dtype.is_floating_point else tensor(9, 3, dtype=dtype),
        )
        check(torch.mode, tensor(dtype=dtype))
        check(
            lambda x, v, i: torch.mode(x, 0, out=(v, i)),
            tensor(9, 3, dtype=dtype),
            torch.zeros(3, dtype=dtype),
            torch.zeros(3).long(),
        )


def test_gradients_of_order():
    with no_fallback():
        for f in (lambda x: x.sort(1).values, lambda x: x.topk(2).values, lambda x: x.kthvalue(2, 0).values,
                  lambda x: x.median(), lambda x: x.median(1).values, lambda x: x.nanmedian(1, True).values,
                  lambda x: x.mode(1).values, lambda x: x.msort()):  # fmt: skip
            check(f, distinct(4, 5).requires_grad_(), grad=True)


# ------------------------------------------------------------------ selection
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS + [torch.bool, torch.complex64])
def test_nonzero(dtype):
    with no_fallback():
        for x in layouts(tensor(3, 5, 4, dtype=dtype) * tensor(3, 5, 4, dtype=torch.bool)):
            check(torch.nonzero, x, strides=True)
            check(lambda x: torch.nonzero(x, as_tuple=True), x)
            check(torch.argwhere, x)
            check(torch.nonzero_static, x, size=7)
            assert torch.nonzero_static(to_device(x), size=7).stride() == (1, 7)
            check(lambda x: torch.nonzero_static(x, size=99, fill_value=5), x)
        for shape in [(), (0,), (2, 0, 3), (1,), (LARGE,)]:
            check(torch.nonzero, tensor(*shape, dtype=dtype))
        check(torch.nonzero, torch.zeros(3, 4, dtype=dtype))
        check(lambda x, o: torch.nonzero(x, out=o), tensor(3, 4, dtype=dtype), torch.zeros(0).long())
        check(torch.where, tensor(3, 4, dtype=dtype))


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.int64, torch.uint8, torch.bool, torch.complex64]
)
def test_masks(dtype):
    mask = tensor(3, 5, 4, dtype=torch.bool)
    with no_fallback():
        for x in layouts(tensor(3, 5, 4, dtype=dtype)):
            for m in layouts(mask):
                check(torch.masked_select, x, m)
                check(lambda x, m, s: x.masked_scatter(m, s), x, m, tensor(60, dtype=dtype))
                check(lambda x, m, s: x.masked_scatter_(m, s), x, m, tensor(10, 6, dtype=dtype))
            check(torch.masked_select, x, mask[1, :, :1])
            check(lambda x, m: x[m], x, mask[:, 0, 0])
            check(lambda x, m: x[:, m], x, mask[1])
            check(lambda x, m, s: x.masked_scatter_(m, s), x, mask[0, 0], tensor(60, dtype=dtype))
        check(torch.masked_select, tensor(4, dtype=dtype), mask[:, :, :1])
        check(torch.masked_select, tensor(dtype=dtype), torch.tensor(True))
        check(torch.masked_select, tensor(0, 3, dtype=dtype), torch.zeros(0, 3, dtype=torch.bool))
        check(
            lambda x, m, o: torch.masked_select(x, m, out=o),
            tensor(3, 5, 4, dtype=dtype),
            mask,
            torch.zeros(0, dtype=dtype),
        )
        large = tensor(LARGE, dtype=dtype)
        check(torch.masked_select, large, tensor(LARGE, dtype=torch.bool))

        def put(x, m, v):
            x[m] = v
            return x

        check(put, tensor(3, 5, 4, dtype=dtype), mask, tensor(int(mask.sum()), dtype=dtype))
        check(put, tensor(3, 5, 4, dtype=dtype), mask[:, 0, 0], tensor(5, 4, dtype=dtype))


def test_out_of_nonzero_and_masked_select():
    x = to_device(torch.tensor([1.0, 0, 2]))
    for out in (torch.zeros(0, device=DEVICE), torch.zeros(0, dtype=torch.int32, device=DEVICE)):
        with pytest.raises(RuntimeError, match="scalar type Long"):
            torch.nonzero(x, out=out)
        with pytest.raises(RuntimeError, match="scalar type Long"):
            torch.nonzero_static(x, size=2, out=out)
    for a, b in (("cpu", DEVICE), (DEVICE, "cpu"), (DEVICE, "fl:1")):
        t, out = x.to(a), torch.zeros(0, dtype=torch.int64, device=b)
        with pytest.raises(RuntimeError, match="same device"):
            torch.nonzero(t, out=out)
        with pytest.raises(RuntimeError, match="same device"):
            torch.nonzero_static(t, size=2, out=out)
        with pytest.raises(RuntimeError, match="same device"):
            torch.masked_select(t, t != 0, out=torch.zeros(0, device=b))
    one = torch.zeros(1, 1, dtype=torch.int64, device=DEVICE)
    for f in (torch.nonzero, lambda x, out: torch.nonzero_static(x, size=2, out=out)):
        with pytest.raises(RuntimeError, match="single memory location"):
            f(x, out=one.expand(2, 1))


def test_masks_gradients_and_errors():
    mask = tensor(3, 5, dtype=torch.bool)
    with no_fallback():
        check(torch.masked_select, tensor(3, 5).requires_grad_(), mask, grad=True)
        check(torch.masked_select, tensor(5).requires_grad_(), mask, grad=True)
        check(
            torch.masked_scatter,
            tensor(3, 5).requires_grad_(),
            mask,
            tensor(3, 5).requires_grad_(),
            grad=True,
        )
    x, m = to_device(tensor(3, 5)), torch.ones(3, 5, dtype=torch.bool, device=DEVICE)
    with pytest.raises((IndexError, RuntimeError)):  # too short a source
        x.masked_scatter(m, torch.ones(4, device=DEVICE)).cpu()
    with pytest.raises(RuntimeError):
        x.masked_scatter(m, torch.ones(0, device=DEVICE)).cpu()
    with pytest.raises(RuntimeError, match="BoolTensor"):
        torch.masked_select(x, m.long())
    with pytest.raises(RuntimeError, match="same device"):
        torch.masked_select(x, m.cpu())
    assert (x + 1).cpu().isfinite().all()


def test_printing_stays_on_the_device():
    with no_fallback():
        for t in (tensor(3, 4), tensor(2000), tensor(3, dtype=torch.int64), tensor(3, dtype=torch.complex64),
                  torch.tensor([1.0, float("nan"), 1e9]), tensor(2, 3, dtype=torch.bool)):  # fmt: skip
            assert repr(to_device(t)).startswith("tensor(")


# --------------------------------------------------------------------- unique
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS + [torch.bool])
def test_unique(dtype):
    with no_fallback():
        for x in layouts((tensor(3, 7, 4, dtype=dtype) * 1).to(dtype)):
            for inverse in (False, True):
                for counts in (False, True):
                    check(
                        lambda x, i, c: torch.unique(x, return_inverse=i, return_counts=c), x, inverse, counts
                    )
                    check(
                        lambda x, i, c: torch.unique_consecutive(x, return_inverse=i, return_counts=c),
                        x,
                        inverse,
                        counts,
                    )
        check(lambda x: torch.unique(x, return_inverse=True, return_counts=True), tensor(dtype=dtype))
        check(lambda x: torch.unique(x, return_inverse=True, return_counts=True), tensor(2, 0, dtype=dtype))
        check(lambda x: torch.unique(x, sorted=False, return_inverse=True), tensor(LARGE, dtype=dtype))
        for dim in (0, 1, 2):
            rows = tensor(4, 5, 3, dtype=dtype, low=0, high=2)
            rows = rows.index_select(dim, torch.tensor([1, 0, 1, 1, 2][: rows.shape[dim]]))
            check(lambda x, d: torch.unique(x, dim=d, return_inverse=True, return_counts=True), rows, dim)
            check(
                lambda x, d: torch.unique_consecutive(x, dim=d, return_inverse=True, return_counts=True),
                rows,
                dim,
            )


def test_unique_specials():
    with no_fallback():
        x = torch.tensor([2.0, float("nan"), 1, float("nan"), 2, float("inf"), 0.0, -0.0])
        check(lambda x: torch.unique(x, return_inverse=True, return_counts=True), x)
        check(lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True), x)
        check(lambda x: torch.unique(x, dim=0, return_counts=True), torch.randint(0, 2, (200, 7)))
        check(lambda x: torch.unique(x, dim=0), torch.zeros(0, 3))
    with pytest.raises(RuntimeError, match="0 sized"):
        torch.unique(torch.zeros(3, 0, device=DEVICE), dim=0)


# --------------------------------------------------------------------- search
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_searchsorted(dtype):
    sorted_rows, values = tensor(3, 11, dtype=dtype).sort(-1).values, tensor(3, 8, dtype=dtype)
    with no_fallback():
        for right in (False, True):
            for int32 in (False, True):
                check(
                    lambda s, v, r, i: torch.searchsorted(s, v, right=r, out_int32=i),
                    sorted_rows,
                    values,
                    right,
                    int32,
                )
                check(
                    lambda s, v, r, i: torch.bucketize(v, s, right=r, out_int32=i),
                    sorted_rows[0],
                    values,
                    right,
                    int32,
                )
        check(torch.searchsorted, sorted_rows[0], values.t())
        check(lambda s: torch.searchsorted(s, 1), sorted_rows[0])
        check(lambda s: torch.bucketize(1, s), sorted_rows[0])
        check(torch.searchsorted, sorted_rows[:, :0], values)
        check(torch.searchsorted, sorted_rows, values[:, :0])
        shuffled = tensor(3, 11, dtype=dtype)
        order = shuffled.sort(dim=-1, stable=True).indices
        check(lambda s, v, o: torch.searchsorted(s, v, sorter=o, side="right"), shuffled, values, order)
        check(
            lambda s, v, o: torch.searchsorted(s, v, out=o),
            sorted_rows,
            values,
            torch.zeros(3, 16).long()[:, ::2],
        )
        check(torch.searchsorted, sorted_rows, tensor(3, 8, dtype=torch.float64))
        check(torch.searchsorted, tensor(LARGE, dtype=dtype).sort().values, tensor(500, dtype=dtype))


def test_searchsorted_specials_and_errors():
    s = torch.tensor([-1.0, 0, 0, 2, float("inf"), float("nan"), float("nan")])
    with no_fallback():
        check(torch.searchsorted, s, torch.tensor([float("nan"), float("inf"), -0.0, 5, float("-inf")]))
        check(
            lambda s, v: torch.searchsorted(s, v, right=True),
            s,
            torch.tensor([float("nan"), float("inf"), -0.0, 5]),
        )
    d = to_device(s)
    for bad in (lambda: torch.searchsorted(d, d, side="left", right=True), lambda: torch.searchsorted(d.view(7, 1), d),
                lambda: torch.searchsorted(d, d, sorter=torch.full((7,), 9, device=DEVICE)),
                lambda: torch.bucketize(d, d.view(7, 1))):  # fmt: skip
        with pytest.raises(RuntimeError):
            bad()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8])
def test_isin(dtype):
    x = tensor(3, 40, dtype=dtype, low=-50, high=50)
    with no_fallback():
        for n in (0, 1, 5, 40, 100):
            test = x.flatten()[torch.arange(n) % 120] if n else x.flatten()[:0]
            for invert in (False, True):
                check(lambda x, t, i: torch.isin(x, t, invert=i), x, test, invert)
        check(lambda x: torch.isin(x, 3), x)
        check(lambda x: torch.isin(3, x), x)
        check(lambda x: torch.isin(x, x[0, :20].double()), x)
        check(torch.isin, x[0, 0], x[0])


@pytest.mark.parametrize("n", [1, 3, 16, 17, 40])
def test_isin_rounds_no_element_to_the_type_of_the_others(n):
    """PyTorch's CPU takes 256 as an int8, 0, where one element is sought among fewer than ten, and CUDA never."""
    with no_fallback():
        for element, others in ((256, torch.int8), (1 + 1e-9, torch.float32), (2**40 + 3, torch.int32)):
            element = torch.tensor(element, dtype=torch.float64 if others.is_floating_point else torch.int64)
            among = element.to(others).repeat(n)
            assert not torch.isin(element.to(DEVICE), among.to(DEVICE)).item()
            assert torch.isin(element.to(DEVICE), among.to(DEVICE), invert=True).item()
            assert torch.isin(among.to(DEVICE), among[0].to(DEVICE)).all()


def test_repeat_interleave():
    with no_fallback():
        for dtype in (torch.int64, torch.int32):
            check(torch.repeat_interleave, torch.tensor([2, 0, 3, 1], dtype=dtype))
            check(torch.repeat_interleave, torch.tensor([0, 0], dtype=dtype))
            check(torch.repeat_interleave, torch.tensor([], dtype=dtype))
        check(lambda x, r: x.repeat_interleave(r, dim=1), tensor(2, 4), torch.tensor([2, 0, 3, 1]))
        check(
            lambda x, r: x.repeat_interleave(r, dim=1, output_size=6),
            tensor(2, 4),
            torch.tensor([2, 0, 3, 1]),
        )
        check(lambda x: x.repeat_interleave(3), tensor(2, 4))
        check(
            lambda x, r: x.repeat_interleave(r, dim=0),
            tensor(4, 2).requires_grad_(),
            torch.tensor([2, 0, 3, 1]),
            grad=True,
        )
    with pytest.raises(RuntimeError, match="negative"):
        torch.repeat_interleave(torch.tensor([2, -1], device=DEVICE))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.complex64])
def test_trace_and_combinations(dtype):
    with no_fallback():
        check(torch.trace, tensor(4, 6, dtype=dtype))
        check(torch.trace, tensor(0, 6, dtype=dtype))
        check(lambda x: torch.combinations(x, 3), tensor(6, dtype=dtype))
    if dtype == torch.float32:
        check(torch.trace, tensor(4, 6).requires_grad_(), grad=True)
        check(lambda x: torch.quantile(x, 0.3, dim=1), tensor(4, 6))


def test_second_device():
    check(
        lambda x: (x.cumsum(1), *x.sort(dim=1, stable=True), x.nonzero(), x.unique(), x[x > 0]),
        tensor(5, 9),
        device="fl:1",
    )


def test_mode_out_dtypes():
    x = torch.ones(4, device=DEVICE, dtype=torch.uint8)
    for values, indices, what in ((torch.int8, torch.int64, "values"), (torch.uint8, torch.int8, "indices")):
        out = torch.ones(4, device=DEVICE, dtype=values), torch.ones(4, device=DEVICE, dtype=indices)
        with pytest.raises(RuntimeError, match=f"expected scalar type .* but got .* for {what}"):
            torch.mode(x, -1, True, out=out)
