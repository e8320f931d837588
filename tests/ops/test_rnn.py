import pytest
import torch
from family import assert_same, no_fallback, tensor, to_device

CASES = [(torch.nn.LSTM, {}), (torch.nn.GRU, {}), (torch.nn.RNN, {}), (torch.nn.LSTM, {"num_layers": 2, "bidirectional": True}),
         (torch.nn.GRU, {"bias": False, "batch_first": True}), (torch.nn.LSTM, {"proj_size": 3})]  # fmt: skip


@pytest.mark.parametrize("cls,options", CASES)
def test_recurrent_layers(cls, options):
    torch.manual_seed(0)
    here = cls(4, 6, **options)
    there = cls(4, 6, **options).to("fl:0")
    there.load_state_dict(here.state_dict())
    x, y = tensor(5, 3, 4).requires_grad_(), to_device(tensor(5, 3, 4).requires_grad_())
    with no_fallback():
        got, want = there(y), here(x)
        got[0].pow(2).sum().backward()
    want[0].pow(2).sum().backward()
    assert_same(got, want, 1e-4, 1e-5)
    assert_same(
        [p.grad for p in (*there.parameters(), y)], [p.grad for p in (*here.parameters(), x)], 1e-4, 1e-4
    )


@pytest.mark.parametrize("cls", [torch.nn.LSTMCell, torch.nn.GRUCell])
def test_cells(cls):
    torch.manual_seed(0)
    here = cls(4, 6)
    there = cls(4, 6).to("fl:0")
    there.load_state_dict(here.state_dict())
    assert_same(there(to_device(tensor(3, 4))), here(tensor(3, 4)), 1e-4, 1e-5)
