import pytest
import torch
import torch.nn.functional as F
from family import check, layouts, no_fallback, tensor, to_device


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64]
)
@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"stride": 2},
        {"padding": 2},
        {"dilation": 2},
        {"stride": (3, 1), "padding": (1, 2), "dilation": (1, 3)},
    ],
)
def test_unfold_and_fold(kwargs, dtype):
    with no_fallback():
        check(
            lambda x: F.unfold(x, (3, 2), **kwargs),
            tensor(2, 3, 8, 9, dtype=dtype).requires_grad_(),
            grad=True,
        )
        columns = F.unfold(tensor(2, 3, 8, 9, dtype=dtype), (3, 2), **kwargs)
        check(lambda x: F.fold(x, (8, 9), (3, 2), **kwargs), columns.requires_grad_(), grad=True)
        check(lambda x: F.fold(x[0], (8, 9), (3, 2), **kwargs), columns.detach())


def test_unfold_layouts():
    for x in layouts(tensor(2, 3, 6, 7)):
        check(lambda t: F.unfold(t, 3, padding=1), x)
    check(lambda t: F.unfold(t, 2), tensor(0, 3, 6, 7))
    check(lambda t: F.unfold(t, 2), tensor(2, 3, 6, 7) > 0)


@pytest.mark.parametrize(("size", "step"), [(3, 1), (3, 2), (2, 3), (5, 5), (1, 1), (7, 2)])
def test_gradient_of_unfold(size, step):
    with no_fallback():
        check(lambda x: x.unfold(1, size, step) * 2, tensor(3, 17, 4).requires_grad_(), grad=True)
        check(
            lambda x: x.unfold(-1, size, step) * 2,
            tensor(3, 17, dtype=torch.float16).requires_grad_(),
            grad=True,
            atol=1e-2,
        )
    check(lambda x: x.unfold(0, 1, 1), torch.tensor(2.0, requires_grad=True), grad=True)


def test_shuffles():
    with no_fallback():
        for x in (
            tensor(2, 12, 4, 6),
            tensor(2, 12, 4, 6).contiguous(memory_format=torch.channels_last),
            tensor(2, 12, 5, dtype=torch.int32),
        ):
            check(lambda t: F.channel_shuffle(t, 3), x, strides=True)
        x = tensor(2, 12, 4, 6).requires_grad_()
        for f in (
            lambda t: F.channel_shuffle(t, 4),
            lambda t: F.pixel_shuffle(t, 2),
            lambda t: F.pixel_unshuffle(t, 2),
        ):
            check(f, x, grad=True)


def test_errors():
    for bad in (lambda x: F.unfold(x, 9), lambda x: F.fold(x, 4, 2), lambda x: F.channel_shuffle(x, 2)):
        with pytest.raises(RuntimeError):
            bad(to_device(tensor(1, 3, 4, 4)))
