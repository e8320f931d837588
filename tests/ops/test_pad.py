import pytest
import torch
import torch.nn.functional as F
from family import check, no_fallback, tensor, to_device

MODES = ["reflect", "replicate", "circular", "constant"]
PADS = {
    1: [(2, 3), (0, 1), (-1, 2), (2, -3), (-1, -1)],
    2: [(1, 2, 3, 1), (0, 0, 2, 0), (-1, 2, 1, -2), (3, 0, -1, 0)],
    3: [(1, 2, 0, 1, 2, 1), (2, 0, -1, 1, 0, 3)],
}


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("mode", MODES)
def test_pad(mode, rank):
    for pad in PADS[rank]:
        if mode == "circular" and min(pad) < 0:
            continue
        for shape in ((2, 3, *[5] * rank), (3, *[4] * rank)):
            with no_fallback():
                check(lambda x, p=pad: F.pad(x, p, mode=mode), tensor(*shape).requires_grad_(), grad=True)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.complex64,
        torch.complex128,
        torch.uint8,
        torch.int64,
    ],
)
@pytest.mark.parametrize("mode", MODES[:2])
def test_dtypes(mode, dtype):
    x = tensor(2, 3, 6, 5, dtype=dtype)
    grad = dtype.is_floating_point or dtype.is_complex
    with no_fallback():
        check(lambda t: F.pad(t, (2, 1, 3, 0), mode=mode), x.requires_grad_(grad), grad=grad)


@pytest.mark.parametrize("mode", MODES[:2])
def test_layouts(mode):
    for x in (
        tensor(2, 4, 5, 6).contiguous(memory_format=torch.channels_last),
        tensor(2, 3, 6, 10)[..., ::2],
        tensor(0, 3, 4, 4),
    ):
        with no_fallback():
            check(lambda t: F.pad(t, (1, 2, 2, 1), mode=mode), x.requires_grad_(), grad=True, strides=True)
    with no_fallback():  # three of four dimensions, without batches
        check(lambda t: F.pad(t, (1, 2, 2, 1, 1, 1), mode=mode), tensor(3, 4, 5, 6).to(memory_format=torch.channels_last),
              strides=True)  # fmt: skip
    out = torch.empty(2, 9, device="fl:0").t()[:8]
    torch.ops.aten.reflection_pad1d.out(to_device(tensor(2, 4)), [2, 2], out=out.t())
    assert torch.equal(out.t().cpu(), F.pad(tensor(2, 4)[None], (2, 2), mode="reflect")[0])


def test_errors():
    x = to_device(tensor(1, 1, 4, 4))
    for pad, mode in (((4, 0, 0, 0), "reflect"), ((0, 0, 0, 5), "reflect"), ((-4, 0, 0, -4), "replicate")):
        with pytest.raises(RuntimeError):
            F.pad(x, pad, mode=mode)
