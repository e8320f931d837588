"""Operators follow their tensors, not the current device."""

import pytest
import torch
import torch.nn.functional as F
from family import check, tensor, to_device

pytestmark = pytest.mark.skipif(torch.fl.device_count() < 2, reason="needs FL_SIM_DEVICES=2")

CASES = [
    (torch.mm, [(3, 4), (4, 5)]), (torch.sum, [(3, 4)]), (torch.softmax, [(3, 4), 1]), (lambda x: x.var(0), [(3, 4)]),
    (lambda x: F.layer_norm(x, (4,)), [(3, 4)]), (lambda x, w: F.conv2d(x, w), [(1, 2, 6, 6), (3, 2, 3, 3)]),
    (lambda x: F.max_pool2d(x, 2), [(1, 2, 6, 6)]), (lambda x: F.batch_norm(x, None, None, training=True), [(4, 3)]),
    (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), [(1, 2, 4, 8)] * 3), (lambda x: torch.cat([x, x]), [(3, 4)]),
    (lambda x: torch.flip(x, (0,)), [(3, 4)]), (lambda x: x.tril(), [(3, 4)]), (lambda x: torch._foreach_mul([x, x], 2), [(3, 4)]),
]  # fmt: skip


@pytest.mark.parametrize("f,shapes", CASES)
def test_result_is_where_the_tensors_are(f, shapes):
    args = [tensor(*s).requires_grad_() if isinstance(s, tuple) else s for s in shapes]
    check(f, *args, device="fl:1", grad=True, atol=1e-4)


@pytest.mark.parametrize("f", [
    torch.mm, lambda a, b: torch.cat([a, b]), lambda a, b: F.linear(a, b), lambda a, b: torch.gather(a, 0, b.long()),
    lambda a, b: F.embedding(a.long().clamp(0, 3), b),
])  # fmt: skip
def test_two_devices_in_one_call_are_refused(f):
    with pytest.raises(RuntimeError, match="same device"):
        f(to_device(tensor(4, 4)), to_device(tensor(4, 4), "fl:1"))


def test_random_and_ranges_on_the_second_device():
    for t in (torch.rand(3, device="fl:1"), torch.arange(3, device="fl:1"), torch.randperm(5, device="fl:1")):
        assert t.device == torch.device("fl:1") and t.cpu().numel() >= 3
