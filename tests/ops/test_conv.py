import itertools

import pytest
import torch
import torch.nn.functional as F
from family import DEVICE, check, no_fallback, tensor, to_device


def run(
    rank,
    batch,
    channels,
    out,
    size,
    kernel,
    transposed=False,
    dtype=torch.float32,
    format=None,
    bias=True,
    **kwargs,
):
    groups = kwargs.get("groups", 1)
    x = tensor(batch, channels, *[size] * rank, dtype=dtype)
    shape = (channels, out // groups) if transposed else (out, channels // groups)
    w = tensor(*shape, *[kernel] * rank, dtype=dtype, seed=1) / (kernel**rank)
    b = tensor(out, dtype=dtype, seed=2) if bias else None
    if format:
        x = x.contiguous(memory_format=format)
    f = getattr(F, f"conv{'_transpose' if transposed else ''}{rank}d")
    args = [t.requires_grad_() for t in (x, w, b) if t is not None]
    wide = {torch.float16: 1e-2, torch.bfloat16: 6e-2}.get(dtype, 2e-4)
    with no_fallback():
        return check(f, *args, grad=True, rtol=wide, atol=wide, **kwargs)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_ranks(rank, transposed):
    for stride, padding, dilation in [(1, 0, 1), (2, 1, 1), (1, 2, 2)]:
        run(rank, 2, 4, 6, 9, 3, transposed, stride=stride, padding=padding, dilation=dilation)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_groups(transposed, groups):
    run(2, 2, 4, 8, 7, 3, transposed, groups=groups, padding=1)
    run(2, 2, 4, 8, 7, 3, transposed, groups=groups, bias=False)


# One channel a group, in whole and broken blocks of a vector's channels.
@pytest.mark.parametrize("channels", [2, 8, 20, 33])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_depthwise(channels, dtype):
    for kernel, stride, padding, dilation in [(3, 1, 1, 1), (3, 2, 0, 2), (5, 2, 3, 1), (1, 1, 0, 1)]:
        for format in (None, torch.channels_last):
            run(2, 2, channels, channels, 13, kernel, dtype=dtype, format=format, groups=channels, stride=stride,
                padding=padding, dilation=dilation)  # fmt: skip
    run(2, 2, channels, 2 * channels, 9, 3, dtype=dtype, groups=channels)
    run(1, 2, channels, channels, 9, 3, dtype=dtype, groups=channels)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_dtypes(dtype):
    run(2, 2, 4, 6, 8, 3, dtype=dtype, padding=1)


def test_channels_last():
    y = run(2, 2, 4, 6, 8, 3, format=torch.channels_last, padding=1)
    assert y.is_contiguous(memory_format=torch.channels_last)
    y = run(3, 2, 4, 6, 5, 3, format=torch.channels_last_3d)
    assert y.is_contiguous(memory_format=torch.channels_last_3d)
    w = to_device(tensor(6, 4, 3, 3)).contiguous(memory_format=torch.channels_last)
    assert F.conv2d(to_device(tensor(1, 4, 8, 8)), w).is_contiguous(memory_format=torch.channels_last)


# Lines are made contiguous first; with one channel or place they may be channels-last as well, and the filters may.
@pytest.mark.parametrize("channels, length", [(5, 6), (5, 1), (1, 6)])
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_formats_of_lines(channels, length, turned):
    x, w = (tensor(*s) for s in ((2, length, channels), (3, 2, channels)))
    x, w = (t.mT.contiguous() if not flag else t for t, flag in zip((x, w), turned))

    def both(x, w, f=F.conv1d, **more):
        x, w = (t.mT if flag else t for t, flag in zip((x, w), turned))
        y = f(x, w, **more)
        return y, *torch.autograd.grad((y * y).sum(), (x, w))

    check(both, x.requires_grad_(), w.requires_grad_(), padding=1, strides=True)
    w = w.detach().transpose(0, 1 + turned[1]).contiguous().requires_grad_()
    check(both, x, w, f=F.conv_transpose1d, strides=True)


@pytest.mark.parametrize("f", [F.conv2d, F.conv_transpose2d])
def test_formats_of_gradients(f):
    images, filters = tensor(2, 5, 6, 7), tensor(*((3, 5) if f is F.conv2d else (5, 3)), 2, 2)
    for last in ((), (0,), (1,), (0, 1)):

        def both(*operands, last=last):
            x, w = (
                t.contiguous(memory_format=torch.channels_last) if i in last else t
                for i, t in enumerate(operands)
            )
            y = f(x, w)
            return y, *torch.autograd.grad((y * y).sum(), (x, w))

        check(both, images.requires_grad_(), filters.requires_grad_(), strides=True)


def test_strided_input():
    check(F.conv2d, tensor(2, 4, 9, 18)[..., ::2], tensor(3, 4, 3, 3))
    check(F.conv2d, tensor(2, 9, 9, 4).permute(0, 3, 1, 2), tensor(3, 3, 3, 4).permute(0, 3, 1, 2))
    check(F.conv2d, tensor(1, 4, 9, 9).expand(3, 4, 9, 9), tensor(3, 4, 3, 3))


def test_output_padding_and_unbatched():
    check(F.conv_transpose2d, tensor(2, 4, 5, 5), tensor(4, 3, 3, 3), stride=2, output_padding=1, padding=1)
    check(F.conv2d, tensor(4, 9, 9), tensor(3, 4, 3, 3))
    check(F.conv2d, tensor(2, 4, 9, 9), tensor(3, 4, 3, 3), padding="same")


def test_rectangles():
    check(F.conv2d, tensor(2, 4, 9, 12), tensor(3, 4, 3, 5), stride=(2, 1), padding=(0, 2), dilation=(1, 2))


def test_empty():
    check(F.conv2d, tensor(0, 4, 9, 9), tensor(3, 4, 3, 3))
    x, w = tensor(0, 4, 9, 9).requires_grad_(), tensor(3, 4, 3, 3).requires_grad_()
    check(F.conv2d, x, w, grad=True)


def test_double_backward():
    def f(x, w):
        y = F.conv2d(x, w, padding=1)
        (g,) = torch.autograd.grad(y.pow(2).sum(), x, create_graph=True)
        return torch.autograd.grad(g.pow(2).sum(), (x, w))

    check(
        f,
        tensor(1, 2, 5, 5).requires_grad_(),
        (tensor(3, 2, 3, 3) / 9).requires_grad_(),
        rtol=1e-3,
        atol=1e-2,
    )


@pytest.mark.parametrize("mask", list(itertools.product([True, False], repeat=3)))
def test_output_mask(mask):
    def f(g, x, w):
        grads = torch.ops.aten.convolution_backward(
            g, x, w, [3], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, mask
        )
        return [
            t for t, wanted in zip(grads, mask, strict=True) if wanted
        ]  # the CPU gives more than was asked for

    check(f, tensor(2, 3, 5, 5), tensor(2, 4, 7, 7), tensor(3, 4, 3, 3), atol=1e-4)


def test_errors():
    with pytest.raises(RuntimeError, match="expected input.*to have 4 channels"):
        F.conv2d(to_device(tensor(1, 3, 8, 8)), to_device(tensor(2, 4, 3, 3)))
    with pytest.raises(RuntimeError, match="Kernel size can't be greater"):
        F.conv2d(to_device(tensor(1, 4, 2, 2)), to_device(tensor(2, 4, 3, 3)))
    with pytest.raises(RuntimeError, match="same device"):
        F.conv2d(to_device(tensor(1, 4, 8, 8)), tensor(2, 4, 3, 3))


@pytest.mark.parametrize("device", ["meta", DEVICE])
def test_transposed_output_too_small(device):
    # As the meta device: along some dimensions an output may be empty, not along all.
    x, w = tensor(2, 3, 4, 2).to(device), tensor(3, 2, 2, 1).to(device)
    assert F.conv_transpose2d(x, w, padding=1).shape == (2, 2, 3, 0)
    for size, kernel, padding in (((2,), (1,), 1), ((4,), (1,), 2), ((2, 2), (1, 1), 1), ((4, 1), (2, 1), 1)):
        f = (F.conv_transpose1d, F.conv_transpose2d)[len(size) - 1]
        with pytest.raises(RuntimeError, match="Output size is too small|negative dimension"):
            f(tensor(2, 3, *size).to(device), tensor(3, 2, *kernel).to(device), padding=padding)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_integers(dtype):
    x, w = tensor(2, 4, 7, 6, dtype=dtype), tensor(6, 2, 3, 3, dtype=dtype)
    with no_fallback():
        check(lambda a, b, c: F.conv2d(a, b, c, stride=2, padding=1, groups=2), x, w, tensor(6, dtype=dtype))
        if dtype == torch.int64:  # the others have no transposed kernel on the CPU
            check(
                lambda a, b: F.conv_transpose2d(a, b, stride=2, output_padding=1),
                x,
                tensor(4, 3, 3, 3, dtype=dtype),
            )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "rank, channels, out, kernel, groups",
    [
        (2, 3, 8, 3, 1),
        (2, 5, 4, 2, 1),
        (2, 4, 5, 3, 1),
        (2, 33, 17, 1, 1),
        (2, 17, 33, 3, 1),
        (2, 6, 10, 3, 2),
        (2, 9, 9, 3, 9),
        (1, 7, 7, 5, 1),
        (3, 3, 5, 3, 1),
    ],
)
def test_nan_reaches_its_windows_alone(rank, channels, out, kernel, groups, dtype):
    """Not what a kernel fills pairs and vectors up with.  PyTorch's CPU is right in float32 alone."""
    x = tensor(2, channels, *[9] * rank, dtype=dtype)
    w = tensor(out, channels // groups, *[kernel] * rank, dtype=dtype)
    middle = (0, 0) + (4,) * rank
    x[middle] = float("nan")
    f = getattr(F, f"conv{rank}d")

    def nan(convert, format=torch.contiguous_format):
        a, b = (convert(t).detach() for t in (x, w))
        a, b = a.to(memory_format=format).requires_grad_(), b.requires_grad_()
        y = f(a, b, padding=kernel // 2, groups=groups)
        gradient = torch.ones_like(y)
        gradient[middle] = float("nan")
        y.backward(gradient)
        return [t.isnan().cpu() for t in (y, a.grad, b.grad)]

    want = nan(torch.Tensor.float)
    for format in [torch.contiguous_format, torch.channels_last][: 1 + (rank == 2)]:
        for g, h, what in zip(nan(to_device, format), want, ("y", "x", "w"), strict=True):
            assert torch.equal(g, h), (what, format)
