"""Embedding bags, segment reductions, index_reduce, and spmm composed on a chip of mandatory entries."""


import pytest
import torch
import torch.nn.functional as F
from child import run_beside_template
from family import check, no_fallback, tensor, to_device


def index(*shape, high=10, seed=1, dtype=torch.int64):
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


OFFSETS = torch.tensor([0, 3, 3, 4, 9])  # an empty bag, one of one, and the rest


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2])
def test_embedding_bag(dtype, mode, padding):
    w = tensor(10, 7, dtype=dtype).requires_grad_()
    for last in (False, True):
        offsets = torch.cat([OFFSETS, torch.tensor([17])]) if last else OFFSETS
        kwargs = {"mode": mode, "padding_idx": padding, "include_last_offset": last}
        tolerance = {"rtol": 2e-2, "atol": 2e-2} if dtype in (torch.float16, torch.bfloat16) else {}
        check(
            lambda w, i, o: F.embedding_bag(i, w, o, **kwargs), w, index(17), offsets, grad=True, **tolerance
        )
        check(lambda w, i, o: F.embedding_bag(i, w, o, **kwargs), w.detach(), index(17), offsets, **tolerance)
    check(
        lambda w, i: F.embedding_bag(i, w, mode=mode, padding_idx=padding),
        w,
        index(4, 5),
        grad=True,
        rtol=2e-2,
        atol=2e-2,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("index_dtype", [torch.int64, torch.int32])
def test_embedding_bag_maximum_of_nan(dtype, padding, index_dtype):
    """A maximum is the first row until a larger one comes: NaN stays where it is first, and is else passed over."""
    special = torch.tensor([torch.nan, torch.inf, -torch.inf, -0.0, 0.0, 1.0])
    w = special[index(10, 33, high=6)].to(dtype)
    w[3] = torch.nan
    i, offsets = index(40, dtype=index_dtype), torch.tensor([0, 1, 4, 4, 7, 12, 20, 31], dtype=index_dtype)

    def run(w, i, o):
        w = w.detach().requires_grad_()
        out = F.embedding_bag(i, w, o, mode="max", padding_idx=padding)
        weights = torch.arange(out.numel(), device=w.device).view_as(out).to(w.dtype)
        (grad,) = torch.autograd.grad(out, w, weights)
        return out, torch.where(out.isnan(), 1, out).signbit(), grad  # a NaN has any sign

    tolerance = {"rtol": 2e-2, "atol": 2e-2} if dtype in (torch.float16, torch.bfloat16) else {}
    check(run, w, i, offsets, **tolerance)
    check(run, w.t().contiguous().t(), i, offsets, **tolerance)
    with no_fallback():
        F.embedding_bag(to_device(i), to_device(w), to_device(offsets), mode="max", padding_idx=padding).sum()


def test_embedding_bag_weighted():
    w, s = tensor(10, 7).requires_grad_(), tensor(17, seed=3).requires_grad_()
    for kwargs in ({}, {"padding_idx": 3}):
        check(
            lambda w, i, o, s: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=s, **kwargs),
            w,
            index(17),
            OFFSETS,
            s,
            grad=True,
        )


def test_embedding_bag_scaled_by_frequency():
    """Each use of a row counts 1 / how often it is used.  (PyTorch's CPU takes other rows' counts.)"""
    w = to_device(tensor(10, 7)).requires_grad_()
    F.embedding_bag(
        to_device(index(17)), w, to_device(OFFSETS), mode="sum", scale_grad_by_freq=True
    ).sum().backward()
    assert w.grad.cpu().equal((index(17).bincount(minlength=10) > 0).float().unsqueeze(1).expand(10, 7))


def test_embedding_bag_without_fallback():
    w = to_device(tensor(10, 7)).requires_grad_()
    with no_fallback():
        for mode in ("sum", "mean", "max"):
            F.embedding_bag(to_device(index(17)), w, to_device(OFFSETS), mode=mode).sum().backward()


def test_embedding_bag_edges():
    w = tensor(10, 7)
    check(lambda w, i, o: F.embedding_bag(i, w, o), w, index(17, dtype=torch.int32), OFFSETS.int())
    check(lambda w, i, o: F.embedding_bag(i, w, o), w, index(17, dtype=torch.int32), OFFSETS)
    check(lambda w, i, o: F.embedding_bag(i, w, o), w, index(0), torch.tensor([0, 0, 0]))
    check(lambda w, i, o: F.embedding_bag(i, w, o, mode="max"), w, index(0), torch.tensor([0, 0]))
    check(lambda w, i, o: F.embedding_bag(i, w.t(), o), tensor(7, 10), index(17), OFFSETS)
    check(
        lambda w, i, o: F.embedding_bag(i, w, o),
        tensor(500, 130),
        index(70000, high=500),
        torch.arange(0, 70000, 7),
        rtol=1e-4,
        atol=1e-4,
    )
    with pytest.raises(RuntimeError, match="index 10 is out of bounds"):
        F.embedding_bag(to_device(torch.tensor([10])), to_device(w), to_device(torch.tensor([0]))).cpu()
    assert F.embedding_bag(
        to_device(torch.tensor([9])), to_device(w), to_device(torch.tensor([0]))
    ).cpu().shape == (1, 7)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize(
    ("offsets", "last", "text"),
    [
        ([0, 9], False, "9.*size 5"),  # more than there are indices
        ([0, 5], True, "5.*size 5"),
        ([0, -3], False, "-3.*size 5"),
        ([1, 2], False, "1.*size 1"),  # the first bag begins behind the first index
        ([-1, 2], False, "-1.*size 1"),
    ],
)
def test_embedding_bag_offsets_out_of_range(offsets, last, text, mode, dtype):
    w, i, o = to_device(tensor(10, 7)), to_device(index(4, dtype=dtype)), torch.tensor(offsets, dtype=dtype)
    with pytest.raises(RuntimeError, match=f"index {text}.*embedding_bag"):
        F.embedding_bag(i, w, to_device(o), mode=mode, include_last_offset=last)
        torch.fl.synchronize()
    assert F.embedding_bag(i, w, to_device(torch.tensor([0, 4], dtype=dtype)), mode=mode).isfinite().all()


def test_renorm():
    for p in (1.0, 2.0, float("inf")):
        check(lambda w, i: F.embedding(i, w, max_norm=1.0, norm_type=p), tensor(10, 4), index(3, 4))
        check(lambda x: torch.renorm(x, p, 1, 2.0), tensor(4, 5, 3).requires_grad_(), grad=True)
    check(lambda x: x.renorm_(2, 0, 1.5), tensor(4, 5, dtype=torch.complex64))
    with no_fallback():
        to_device(tensor(4, 5)).renorm(2, 0, 1.0)


@pytest.mark.parametrize("reduce", ["sum", "mean", "min", "max", "prod"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("initial", [None, 1.5])
def test_segment_reduce(reduce, dtype, initial):
    x = tensor(9, 4, dtype=dtype)
    x[2, 1] = 0
    lengths = torch.tensor([2, 0, 3, 4])
    for axis, lengths in (
        (0, torch.tensor([2, 0, 3, 4])),
        (1, torch.tensor([[1, 3, 0], [2, 0, 2], [4, 0, 0]])),
    ):
        data = (x if axis == 0 else tensor(3, 4, 5, dtype=dtype)).clone().requires_grad_()
        offsets = F.pad(lengths.cumsum(-1), (1, 0))
        kwargs = {"axis": axis, **({} if initial is None else {"initial": initial})}
        tolerance = {"rtol": 5e-2, "atol": 5e-2} if dtype == torch.bfloat16 else {}
        check(
            lambda d, n: torch.segment_reduce(d, reduce, lengths=n, **kwargs),
            data,
            lengths,
            grad=True,
            **tolerance,
        )
        check(
            lambda d, o: torch.segment_reduce(d, reduce, offsets=o, **kwargs),
            data,
            offsets,
            grad=True,
            **tolerance,
        )


@pytest.mark.parametrize("initial", [None, 2.0, 0.0])
def test_segment_product_gradient(initial):
    """Zeros and NaN, alone and among others of their segment."""
    nan = float("nan")
    data = [1, nan, 3, 4, 5, 5, 0, 2, 0, 0, 7, nan, nan, 2, 0, nan, 3, 0]
    kwargs = {} if initial is None else {"initial": initial}
    check(
        lambda d, n: torch.segment_reduce(d, "prod", lengths=n, **kwargs),
        torch.tensor(data, dtype=torch.float64).requires_grad_(),
        torch.tensor([1, 2, 3, 2, 3, 3, 3, 1, 0]),
        grad=True,
    )


def test_segment_reduce_other_names():
    offsets = torch.tensor([0, 2, 2, 5])
    for name in ("amax", "amin"):
        check(lambda d, o, name=name: torch._segment_reduce(d, name, offsets=o), tensor(5, 2), offsets)


def test_segment_reduce_refusals():
    x, n = to_device(tensor(9)), to_device(torch.tensor([4, 4]))
    with pytest.raises(RuntimeError):
        torch.segment_reduce(x, "sum", lengths=n)
    with pytest.raises(RuntimeError, match="unsupported"):
        torch.segment_reduce(x, "median", lengths=n, unsafe=True)
    check(
        lambda d, n: torch.segment_reduce(d, "sum", lengths=n, unsafe=True), tensor(9), torch.tensor([4, 4])
    )


@pytest.mark.parametrize("reduce", ["amax", "amin", "prod", "mean"])
@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.int64, torch.uint8])
def test_index_reduce(reduce, include, dtype):
    x, i = tensor(6, 4, dtype=dtype), torch.tensor([1, 4, 1, 0, 1])
    with no_fallback():
        check(
            lambda x, i, s: x.index_reduce(0, i, s, reduce, include_self=include),
            x,
            i,
            tensor(5, 4, dtype=dtype, seed=2),
        )
        check(
            lambda x, i, s: x.index_reduce_(1, i, s, reduce, include_self=include),
            x,
            i.int() % 4,
            tensor(6, 5, dtype=dtype, seed=2),
        )
        check(
            lambda x, i, s: x.scatter_reduce(0, i, s, reduce, include_self=include),
            x,
            index(5, 4, high=6),
            tensor(5, 4, dtype=dtype, seed=2),
        )
    check(
        lambda x, i, s: x.index_reduce(0, i, s, reduce),
        tensor(dtype=dtype),
        torch.tensor([0]),
        tensor(dtype=dtype, seed=1),
    )


@pytest.mark.parametrize("reduce", ["sum", "amax", "amin", "prod", "mean"])
def test_scatter_reduce_gradient(reduce):
    check(
        lambda x, i, s: x.scatter_reduce(0, i, s, reduce),
        tensor(6, 4).requires_grad_(),
        index(5, 4, high=6),
        tensor(5, 4, seed=2).requires_grad_(),
        grad=True,
    )


def test_second_device():
    if torch.fl.device_count() < 2:
        pytest.skip("one device")
    check(
        lambda w, i, o: F.embedding_bag(i, w, o, mode="mean"),
        tensor(10, 7),
        index(17),
        OFFSETS,
        device="fl:1",
    )


def test_composed_on_mandatory_entries():
    code = """
        import torch
        import torch.nn.functional as F

        torch.fl.config.fallback = "error"
        g = torch.Generator().manual_seed(0)
        w, i = torch.randn(10, 7, generator=g), torch.randint(0, 10, (17,), generator=g)
        o, s = torch.tensor([0, 3, 3, 4, 9]), torch.randn(17, generator=g)
        x, n = torch.randn(12, 3, generator=g), torch.tensor([5, 0, 1, 6])
        x[2] = float("nan")

        def results(device):
            there = [t.to(device) for t in (w, i, o, s, x, n)]
            W, I, O, S, X, N = there
            yield F.embedding_bag(I, W, O, mode="sum", per_sample_weights=S)
            for mode in ("sum", "mean", "max"):
                yield F.embedding_bag(I, W, O, mode=mode)
            for reduce in ("sum", "mean", "min", "max", "prod"):
                yield torch.segment_reduce(X, reduce, offsets=torch.tensor([0, 5, 5, 6, 12]).to(device), axis=0)

        for got, want in zip(results("template:0"), results("cpu")):
            torch.testing.assert_close(got.cpu(), want, equal_nan=True)
        print("composed")
    """
    assert "composed" in run_beside_template(code).stdout
