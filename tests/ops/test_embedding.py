import pytest
import torch
import torch.nn.functional as F
from family import check, no_fallback, tensor, to_device


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(6,), (2, 3), (), (0,), (2, 3, 4)])
def test_embedding(dtype, shape):
    index = torch.randint(0, 10, shape, generator=torch.Generator().manual_seed(1))
    with no_fallback():
        for kwargs in ({}, {"padding_idx": 3}, {"scale_grad_by_freq": True}):
            check(
                lambda w, i: F.embedding(i, w, **kwargs),
                tensor(10, 4, dtype=dtype).requires_grad_(),
                index,
                grad=True,
            )


def test_layouts():
    index = torch.tensor([[1, 2, 1], [0, 9, 9]])
    check(lambda w, i: F.embedding(i, w), tensor(4, 10).t().requires_grad_(), index, grad=True)
    check(lambda w, i: F.embedding(i.t(), w), tensor(10, 4).requires_grad_(), index, grad=True)
    check(lambda w, i: F.embedding(i.int(), w), tensor(10, 4).requires_grad_(), index, grad=True)
    check(
        lambda w, i: F.embedding(i, w).transpose(0, 1).sum(0),
        tensor(10, 4).requires_grad_(),
        index,
        grad=True,
    )


def test_frequent_rows_add_up_in_float32():
    w = to_device(torch.zeros(2, 1, dtype=torch.float16)).requires_grad_()
    F.embedding(torch.zeros(4096, dtype=torch.int64, device="fl:0"), w).sum().backward()
    assert w.grad[0].item() == 4096


def test_out_of_range_raises():
    w = to_device(tensor(10, 4))
    with pytest.raises(IndexError, match="index 10 is out of bounds"):
        F.embedding(to_device(torch.tensor([10])), w).cpu()
    assert F.embedding(to_device(torch.tensor([9])), w).cpu().shape == (1, 4)


def test_what_indices_are_is_said_before_where_they_are():
    """A module that was left on the host, and numbers instead of indices: the second is the first fault."""
    table, numbers, offsets = tensor(4, 3), to_device(torch.tensor([1.5])), to_device(torch.tensor([0]))
    with pytest.raises(RuntimeError, match="'indices' to have one of the following scalar types: Long, Int"):
        F.embedding(numbers, table)
    with pytest.raises(RuntimeError, match="expected indices and offsets of type Long or Int"):
        F.embedding_bag(numbers, table, offsets)
    with pytest.raises(RuntimeError, match="weight has to be a 2D Tensor, but got Tensor of dimension 1"):
        torch.embedding_bag(table[0].to("fl"), offsets, offsets)
    with pytest.raises(RuntimeError, match="on the same device"):
        F.embedding(to_device(torch.tensor([1])), table)
