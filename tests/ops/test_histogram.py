"""bincount, histc, histogram and histogramdd."""

import pytest
import torch
from family import DEVICE, check, no_fallback, tensor, to_device


def test_bincount():
    for dtype in (torch.int64, torch.int32, torch.uint8):
        i = tensor(50, dtype=dtype).abs().to(dtype)
        check(torch.bincount, i)
        check(torch.bincount, i, minlength=12)
        check(lambda i, w: torch.bincount(i, w), i, tensor(50))
        check(lambda i, w: torch.bincount(i, w), i, tensor(50, dtype=torch.float64))
        check(lambda i, w: torch.bincount(i, w), i, tensor(50, dtype=torch.int32))
    check(torch.bincount, torch.zeros(0, dtype=torch.int64), minlength=3)
    for bad in (torch.tensor([1, -1]), torch.zeros(2, 2, dtype=torch.int64), torch.ones(3)):
        with pytest.raises(RuntimeError):
            torch.bincount(to_device(bad))
    with no_fallback():
        to_device(torch.tensor([1, 2, 2])).bincount()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_histc(dtype):
    x = tensor(3, 40, dtype=dtype)
    check(torch.histc, x)
    check(torch.histc, x, bins=7, min=-1, max=1)
    check(torch.histc, torch.ones(5, dtype=dtype), bins=4)
    check(torch.histc, torch.zeros(0, dtype=dtype), bins=4)
    check(torch.histc, torch.tensor([0.0, 1, float("nan"), 2], dtype=dtype), bins=4, min=0, max=2)
    with pytest.raises(RuntimeError):
        torch.histc(to_device(torch.tensor([0.0, float("inf")])))
    with no_fallback():
        to_device(x).histc(10)


def counted(values, bins, low, high):
    """histc of integers, as CUDA counts them: by whole arithmetic."""
    if low == high:
        low, high = (min(values), max(values)) if values else (low, high)
    if low == high:
        low, high = low - 1, high + 1
    counts = [0] * bins
    for v in values:
        if low <= v <= high:
            counts[min((v - low) * bins // (high - low), bins - 1)] += 1
    return counts


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int16, torch.int8, torch.uint8])
def test_histc_of_integers(dtype):
    # The CPU has none of them.  Public code counts the tokens of each expert with it on "cuda".
    x = tensor(3, 40, dtype=dtype, low=0, high=9)
    for t in (x, x.t(), x[:, ::3], x[:, :0], x[1, 7]):
        for bins, low, high in ((9, 0, 8), (4, 0, 3), (5, 2, 7), (100, 0, 0), (1, 0, 9), (7, -3, 30)):
            there = t.to("fl:1") if bins == 1 else to_device(t)
            with no_fallback():
                out = torch.histc(there, bins, low, high)
            assert out.dtype == dtype and out.device == there.device
            assert out.tolist() == counted(t.flatten().tolist(), bins, low, high)
    out = torch.empty(2, dtype=dtype, device="fl")
    with pytest.warns(UserWarning, match="resize"):
        torch.histc(to_device(x), 3, 0, 8, out=out)
    assert out.tolist() == counted(x.flatten().tolist(), 3, 0, 8)


def test_histc_of_integers_refuses():
    x = to_device(torch.tensor([-(2**62), 2**62]))
    for arguments, error in (((0,), RuntimeError), ((3, 5, 1), RuntimeError), ((3,), NotImplementedError)):
        with pytest.raises(error, match=r"torch\.histc\(\)"):
            torch.histc(x, *arguments)
    with pytest.raises(RuntimeError, match="one dtype"):
        torch.histc(x, 3, 0, 1, out=torch.empty(3, device="fl"))
    with pytest.raises(NotImplementedError, match="Bool"):
        torch.histc(x > 0, 3)


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_histogram(density, weighted):
    x, w = tensor(3, 40), tensor(3, 40, seed=1).abs()
    more = [w] if weighted else []
    check(lambda x, *w: torch.histogram(x, 10, weight=w[0] if w else None, density=density), x, *more)
    check(
        lambda x, *w: torch.histogram(x, 10, range=(-1.0, 2.0), weight=w[0] if w else None, density=density),
        x,
        *more,
    )
    edges = torch.tensor([-2.0, -0.5, 0.25, 0.25, 1, 3])
    check(
        lambda x, b, *w: torch.histogram(x, b, weight=w[0] if w else None, density=density), x, edges, *more
    )
    points = tensor(60, 2)
    more = [w.flatten()[:60]] if weighted else []
    check(
        lambda x, *w: torch.histogramdd(x, [3, 5], weight=w[0] if w else None, density=density), points, *more
    )
    check(lambda x, a, b, *w: torch.histogramdd(x, [a, b], weight=w[0] if w else None, density=density), points,
          torch.tensor([-1.0, 0, 2]), torch.tensor([-2.0, 1, 1.5, 2]), *more)  # fmt: skip


def test_edges_belong_to_the_right_bin():
    x = torch.linspace(0, 1, 101)
    check(lambda x: torch.histogram(x, 10), x)
    check(lambda x: torch.histogram(x, 33, range=(0.0, 1.0)), x)
    check(lambda x, b: torch.histogram(x, b), x, torch.linspace(0, 1, 11))


def test_operands_on_two_devices():
    x, edges = torch.rand(20), torch.linspace(0, 1, 5)
    for a, b in (("cpu", DEVICE), (DEVICE, "cpu"), (DEVICE, "fl:1")):
        here, there = x.to(a), edges.to(b)
        with pytest.raises(RuntimeError, match="same device"):
            torch.histogram(here, there)
        with pytest.raises(RuntimeError, match="same device"):
            torch.histogram(here, 4, weight=x.to(b))
        with pytest.raises(RuntimeError, match="same device"):
            torch.histogram(here, 4, out=(torch.empty(0, device=b), torch.empty(0, device=b)))
        with pytest.raises(RuntimeError, match="same device"):
            torch.histogramdd(here.view(10, 2), [there, there])
        with pytest.raises(RuntimeError, match="same device"):
            torch.histogramdd(here.view(10, 2), [2, 2], weight=x[:10].to(b))
