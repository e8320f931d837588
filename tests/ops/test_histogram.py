"""bincount, histc, histogram and histogramdd."""

import pytest
import torch
from family import check, no_fallback, tensor, to_device


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
