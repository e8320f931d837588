import pytest
import torch
import torch.nn.functional as F
from family import check, no_fallback, tensor, to_device

PADDINGS = ["zeros", "border", "reflection"]


def grid(*shape, dtype=torch.float32):
    return (tensor(*shape, dtype=torch.float64) * 0.7).to(dtype)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize(
    ("mode", "rank"), [("bilinear", 2), ("nearest", 2), ("bicubic", 2), ("bilinear", 3), ("nearest", 3)]
)
def test_grid_sample(mode, rank, padding, align):
    def f(x, g):
        return F.grid_sample(x, g, mode, padding, align)

    for channels, size, dtype in (
        (1, (6, 5, 4), torch.float64),
        (9, (6, 5, 4), torch.float32),
        (3, (1, 4, 1), torch.float32),
    ):
        x = tensor(2, channels, *size[:rank], dtype=dtype).requires_grad_()
        g = grid(2, *(3, 7, 2)[:rank], rank, dtype=dtype).requires_grad_()
        with no_fallback():
            check(
                f,
                x,
                g,
                grad=True,
                rtol=1e-3 if dtype == torch.float32 else None,
                atol=1e-3 if dtype == torch.float32 else None,
            )


@pytest.mark.parametrize("size", [(5, 6), (40, 30), (300, 200)])
@pytest.mark.parametrize(
    ("mode", "rank"), [("bilinear", 2), ("nearest", 2), ("bicubic", 2), ("bilinear", 3), ("nearest", 3)]
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_rounded_once(dtype, mode, rank, size):
    # Against float64: PyTorch's CPU computes coordinates in the half itself, so that it samples other points,
    # and counts those of a large image in 16 bits, so that it reads outside.  CUDA and the decomposition of
    # torch.compile compute in float32.
    space = (*size, 3)[:rank]
    x, g = tensor(2, 3, *space, dtype=dtype), grid(2, *(3, 7, 2)[:rank], rank, dtype=dtype)
    for padding in PADDINGS:
        for align in (False, True):

            def run(x, g, padding=padding, align=align):
                x, g = x.detach().requires_grad_(), g.detach().requires_grad_()
                y = F.grid_sample(x, g, mode, padding, align)
                weight = (torch.arange(y.numel(), device=y.device) % 7 - 3).view(y.shape).to(y.dtype)
                return y, *torch.autograd.grad(y, (x, g), weight)

            with no_fallback():
                results = run(to_device(x), to_device(g))
            for ours, exact in zip(results, run(x.double(), g.double()), strict=True):
                assert ours.dtype == dtype
                # Half a unit in the last place of the largest, and float32's own rounding near a root.
                allowed = torch.finfo(dtype).eps / 2 * exact.abs() + 1e-4 * exact.abs().max()
                assert ((ours.cpu().double() - exact).abs() <= allowed).all(), (padding, align)


def test_layouts_and_outside():
    last = tensor(2, 6, 5, 7).contiguous(memory_format=torch.channels_last)
    for x in (last, tensor(2, 6, 5, 14)[..., ::2]):
        check(
            lambda t, g: F.grid_sample(t, g, align_corners=False),
            x.requires_grad_(),
            grid(2, 4, 4, 2),
            grad=True,
        )
        check(
            lambda t, g: F.grid_sample(t, g, align_corners=False), x.detach(), grid(2, 2, 4, 4).movedim(1, -1)
        )
    check(lambda t, g: F.grid_sample(t, g, align_corners=False), tensor(0, 2, 4, 4), grid(0, 3, 3, 2))
    check(lambda t, g: F.grid_sample(t, g, align_corners=False), tensor(2, 2, 4, 4), grid(2, 0, 3, 2))
    # What is not sampled does not count, infinite as it is.
    x = torch.ones(1, 1, 3, 3)
    x[0, 0, 0, 0] = float("inf")
    check(
        lambda t, g: F.grid_sample(t, g, align_corners=False), x, torch.tensor([[[[9.0, 9.0], [0.0, 0.1]]]])
    )


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_places_among_hundreds_are_rounded_once(mode):
    # A second rounding moves a place of 345 by half a unit in the last place: 1e-4 of the result.
    x, g = tensor(1, 1, 345, 456) * 10, grid(1, 64, 64, 2)
    check(lambda x, g: F.grid_sample(x, g, mode, align_corners=False), x, g)


def test_affine_grid():
    with no_fallback():
        check(
            lambda t: F.affine_grid(t, (2, 3, 4, 5), align_corners=False),
            tensor(2, 2, 3).requires_grad_(),
            grad=True,
        )
        check(
            lambda t: F.affine_grid(t, (2, 3, 4, 5, 2), align_corners=True),
            tensor(2, 3, 4).requires_grad_(),
            grad=True,
        )


def test_errors():
    x = to_device(tensor(1, 1, 4, 4))
    with pytest.raises(RuntimeError):
        F.grid_sample(x, to_device(grid(2, 3, 3, 2)))
    with pytest.raises(RuntimeError):
        F.grid_sample(x, to_device(grid(1, 3, 3, 2)).double())
