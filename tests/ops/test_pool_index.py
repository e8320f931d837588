import pytest
import torch
import torch.nn.functional as F
from family import check, no_fallback, tensor, to_device

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("output", [1, 2, 3, 7, 9])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_adaptive_max_pool(rank, output, dtype):
    f = getattr(F, f"adaptive_max_pool{rank}d")
    with no_fallback():
        check(
            lambda x: f(x, output, return_indices=True),
            tensor(2, 3, *[7] * rank, dtype=dtype).requires_grad_(),
            grad=True,
            atol=2e-2,
        )
        check(lambda x: f(x, output, return_indices=True), tensor(3, *[7] * rank, dtype=dtype))


# Of several NaN in a window the last is the winner, of several equal values the first.
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_winners(dtype):
    nan = float("nan")
    samples = torch.tensor([[[0.3, 0.4]]], dtype=dtype)
    for row in ([nan] * 6, [1, nan, 2, nan, nan, 3.0], [nan, 1, nan, 2, 5.0, 3], [2.0, 2, 1, 2, 2, 2]):
        x = torch.tensor(row, dtype=dtype).view(1, 1, 6)
        with no_fallback():
            for size in (1, 3, 4):
                check(lambda t, n=size: F.adaptive_max_pool1d(t, n, return_indices=True), x)
            check(lambda t: F.max_pool1d(t, 3, 2, 1, return_indices=True), x)
            check(lambda t: F.adaptive_max_pool2d(t, (1, 2), return_indices=True), x.view(1, 1, 2, 3))
            check(lambda t: F.adaptive_max_pool3d(t, (1, 1, 2), return_indices=True), x.view(1, 1, 1, 2, 3))
            check(lambda t: F.max_pool3d(t, (1, 2, 2), 1, return_indices=True), x.view(1, 1, 1, 2, 3))
            check(lambda t, s: F.fractional_max_pool2d(t, 2, output_size=1, return_indices=True, _random_samples=s),
                  x.view(1, 1, 2, 3), samples)  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rank", [2, 3])
def test_fractional_max_pool(rank, dtype):
    f = getattr(F, f"fractional_max_pool{rank}d")
    samples = torch.rand(2, 3, rank, generator=torch.Generator().manual_seed(1)).to(dtype)
    for size in (1, 4, 5):
        with no_fallback():
            check(lambda x, s, n=size: f(x, 2, output_size=n, return_indices=True, _random_samples=s),
                  tensor(2, 3, *[9] * rank, dtype=dtype).requires_grad_(), samples, grad=True, atol=2e-2)  # fmt: skip
    check(
        lambda x, s: f(x, 2, output_size=3, _random_samples=s),
        tensor(3, *[9] * rank, dtype=dtype),
        samples[:1],
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_max_unpool(rank, dtype):
    def f(x):
        y, index = getattr(F, f"max_pool{rank}d")(x, 2, return_indices=True)
        return getattr(F, f"max_unpool{rank}d")(y, index, 2)

    with no_fallback():
        check(f, tensor(2, 3, *[6] * rank, dtype=dtype).requires_grad_(), grad=True)
        check(f, tensor(3, *[6] * rank, dtype=dtype))


def test_max_unpool_layout_and_errors():
    x = tensor(2, 4, 3, 3).contiguous(memory_format=torch.channels_last)
    check(
        lambda t, i: F.max_unpool2d(t, i, 2),
        x,
        torch.arange(9).view(3, 3).expand(2, 4, 3, 3).contiguous(memory_format=torch.channels_last),
    )
    with pytest.raises(RuntimeError):
        F.max_unpool2d(to_device(x), to_device(torch.zeros(2, 4, 3, 3)).int(), 2)
    y = F.max_unpool2d(to_device(x), to_device(torch.full((2, 4, 3, 3), 99)), 2)
    with pytest.raises(RuntimeError, match="index 99 is out of bounds"):
        y.cpu()
    assert F.max_unpool2d(to_device(x), to_device(torch.zeros(2, 4, 3, 3, dtype=torch.long)), 2).shape == (
        2,
        4,
        6,
        6,
    )


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"stride": 1, "padding": 1},
        {"ceil_mode": True},
        {"padding": 1, "count_include_pad": False},
        {"divisor_override": 4},
    ],
)
def test_average_of_integers(kwargs):
    with no_fallback():
        check(lambda x: F.avg_pool2d(x, 3, **kwargs), tensor(2, 3, 8, 8, dtype=torch.int64, low=-50, high=50))
        check(
            lambda x: F.avg_pool3d(x, 3, **kwargs), tensor(2, 3, 8, 8, 8, dtype=torch.int64, low=-50, high=50)
        )


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_lp_pool(rank):
    with no_fallback():
        check(
            lambda x: getattr(F, f"lp_pool{rank}d")(x.abs(), 2, 3, 2, True),
            tensor(2, 3, *[8] * rank).requires_grad_(),
            grad=True,
        )
