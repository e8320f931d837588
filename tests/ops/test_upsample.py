import pytest
import torch
import torch.nn.functional as F
from family import check, no_fallback, tensor, to_device

NEAREST = [("nearest", rank) for rank in (1, 2, 3)] + [("nearest-exact", rank) for rank in (1, 2, 3)]
WEIGHTED = [("linear", 1), ("bilinear", 2), ("trilinear", 3), ("bicubic", 2)]
SIZE = (5, 7, 4)
TARGETS = [{"size": (8, 3, 9)}, {"size": (5, 7, 4)}, {"size": (5, 14, 2)}, {"scale_factor": 2}, {"scale_factor": 0.6},
           {"scale_factor": 1.7, "recompute_scale_factor": False}, {"size": (70, 66, 4)}]  # fmt: skip


def kwargs_of(target, rank):
    return {k: v[:rank] if k == "size" else v for k, v in target.items()}


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize(("mode", "rank"), NEAREST)
def test_nearest(mode, rank, target):
    x = tensor(2, 4, *SIZE[:rank])
    with no_fallback():
        check(
            lambda t: F.interpolate(t, mode=mode, **kwargs_of(target, rank)),
            x.requires_grad_(),
            grad=True,
            rtol=1e-5,
            atol=1e-4,
        )
        for dtype in (torch.uint8, torch.float16, torch.bfloat16, torch.float64):
            x = tensor(2, 3, *SIZE[:rank], dtype=dtype, high=250)
            check(lambda t: F.interpolate(t, mode=mode, **kwargs_of(target, rank)), x, rtol=0, atol=0)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize(("mode", "rank"), WEIGHTED)
def test_weighted(mode, rank, target, align):
    def f(t, **more):
        return F.interpolate(t, mode=mode, align_corners=align, **kwargs_of(target, rank), **more)

    with no_fallback():
        for dtype in (torch.float32, torch.float64):
            check(f, tensor(2, 4, *SIZE[:rank], dtype=dtype).requires_grad_(), grad=True)
            if rank == 2:
                check(f, tensor(2, 4, *SIZE[:rank], dtype=dtype).requires_grad_(), grad=True, antialias=True)
        for dtype in (torch.float16, torch.bfloat16):
            check(
                f, tensor(2, 4, *SIZE[:rank], dtype=dtype).requires_grad_(), grad=True, rtol=5e-2, atol=5e-2
            )
        if rank == 2:  # bytes are rounded as PyTorch's CPU rounds them
            for channels in (3, 6):
                x = tensor(2, channels, *SIZE[:rank], dtype=torch.uint8, high=256)
                for more in ({}, {"antialias": True}):
                    check(f, x, **more)


@pytest.mark.parametrize("align", [False, True])
def test_lanczos(align):
    f = torch.ops.aten._upsample_lanczos2d_aa
    with no_fallback():
        for size in ([3, 4], [17, 9]):
            check(lambda t, s=size: f(t, s, align), tensor(2, 3, 8, 9).requires_grad_(), grad=True)


@pytest.mark.parametrize(("mode", "size"), [("linear", 1), ("bilinear", 2), ("trilinear", 3), ("bicubic", 2)])
def test_places_among_hundreds_are_rounded_once(mode, size):
    # 345 to 270 has a place that a second rounding moves by half a unit in the last place.
    x = tensor(1, 1, *[345] + [3] * (size - 1)) * 10
    grad = mode != "bicubic"  # of which the CPU's gradient has places of its own, rounded twice
    check(lambda t: F.interpolate(t, size=[270] + [4] * (size - 1), mode=mode), x.requires_grad_(), grad=grad)


def test_layouts():
    last = tensor(2, 6, 5, 7).contiguous(memory_format=torch.channels_last)
    for x in (last, tensor(2, 6, 5, 14)[..., ::2], tensor(2, 6, 7, 5).transpose(2, 3), tensor(0, 3, 4, 4)):
        for mode in ("nearest", "bilinear", "bicubic"):
            with no_fallback():
                check(
                    lambda t, m=mode: F.interpolate(t, scale_factor=2, mode=m),
                    x.requires_grad_(),
                    grad=True,
                    strides=True,
                )
    x, out = to_device(tensor(1, 2, 4, 4)), torch.empty(1, 2, 8, 16, device="fl:0")[..., ::2]
    torch.ops.aten.upsample_bilinear2d.out(x, [8, 8], False, out=out)
    torch.testing.assert_close(out.cpu(), F.interpolate(tensor(1, 2, 4, 4), size=(8, 8), mode="bilinear"))


def test_stays_asynchronous_and_correct_on_another_stream():
    x = to_device(tensor(2, 3, 5, 5))
    want = F.interpolate(tensor(2, 3, 5, 5), size=(9, 9), mode="bilinear")
    for _ in range(2):
        side = torch.fl.Stream()
        side.wait_stream(torch.fl.current_stream())  # x was made there
        with torch.fl.stream(side):
            torch.testing.assert_close(F.interpolate(x, size=(9, 9), mode="bilinear").cpu(), want)


def test_errors():
    x = to_device(tensor(1, 1, 4, 4))
    with pytest.raises(RuntimeError):
        F.interpolate(x, size=(0, 3), mode="bilinear")
