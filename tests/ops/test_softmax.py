import pytest
import torch
import torch.nn.functional as F
from family import assert_same, check, layouts, no_fallback, tensor, to_device


@pytest.mark.parametrize("f", [torch.softmax, torch.log_softmax])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_softmax(f, dtype):
    with no_fallback():
        for x in layouts(tensor(3, 4, 5, dtype=dtype)):
            for dim in (0, 1, -1):
                check(f, x.detach().requires_grad_(), dim, grad=True)


@pytest.mark.parametrize("f", [torch.softmax, torch.log_softmax])
def test_edges(f):
    for shape in [(0, 3), (3, 0), (1,), (1, 1), (2, 5000)]:
        check(f, tensor(*shape), -1)
    check(f, tensor(), 0)
    check(f, torch.tensor([[1e4, 1e4, -1e4], [float("-inf"), 0, 1], [float("-inf")] * 3]), 1)
    x, out = to_device(tensor(3, 4)), torch.zeros(4, 3, device="fl:0").t()
    getattr(torch.ops.aten, "_" + f.__name__).out(x, 1, False, out=out)
    assert_same(out, f(tensor(3, 4), 1))  # the CPU ignores the strides of out=
    check(lambda x: f(x, -1, dtype=torch.float32), tensor(3, 4, dtype=torch.float16))
    check(lambda x: f(x, -1, dtype=torch.float32), tensor(3, 4, dtype=torch.int64))


def test_masked_attention_weights():
    x = tensor(2, 4, 6, 6)
    mask = torch.ones(6, 6).triu(1).bool()
    check(lambda t, m: F.softmax(t.masked_fill(m, float("-inf")), -1), x, mask)


def test_errors():
    with pytest.raises(IndexError):
        torch.softmax(to_device(tensor(3, 4)), 2)
    with pytest.raises(RuntimeError, match="not implemented for 'Long'"):
        torch.softmax(to_device(tensor(3, 4, dtype=torch.int64)), 1)
