"""Nested tensors of strided layout, and the layers that PyTorch evaluates with them."""

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from family import DEVICE, assert_same, no_fallback, tensor

PARTS = [tensor(2, 8), tensor(4, 8, seed=1), tensor(0, 8), tensor(1, 8, seed=2)]


@pytest.fixture(autouse=True)
def prototype():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The PyTorch API of nested tensors")
        yield


def both(f, parts=PARTS):
    """f of a nested tensor of the parts, on the device and on the CPU."""
    results = []
    for device in (DEVICE, "cpu"):
        result = f(torch.nested.nested_tensor([p.to(device) for p in parts], device=device))
        assert result.device == torch.device(device)
        results.append(list(result.unbind()) if result.is_nested else [result])
    assert_same(*results)


@pytest.mark.parametrize(
    "f",
    [
        lambda n: n.relu(),
        lambda n: F.gelu(n),
        lambda n: n.neg_(),
        lambda n: n.fill_(2),
        lambda n: n.zero_(),
        lambda n: n + n,
        lambda n: n * 2,
        lambda n: n.softmax(-1),
        lambda n: n.half().float(),
        lambda n: n.clone(),
        lambda n: n.transpose(1, 2).contiguous(),
        lambda n: n.bmm(n.transpose(1, 2)),
        lambda n: torch.cat([n, n]),
        lambda n: n.chunk(2, -1)[1].contiguous(),
        lambda n: n.unbind()[1],
        lambda n: n.select(0, 1),
        lambda n: torch.zeros_like(n).copy_(n),
        lambda n: n.cpu().to(n.device),
        lambda n: n.to_padded_tensor(3.0),
        lambda n: n.to_padded_tensor(0.0, (4, 6, 9)),
        lambda n: F.linear(n, torch.ones(3, 8, device=n.device), torch.ones(3, device=n.device)),
        lambda n: F.layer_norm(
            n, (8,), torch.full((8,), 2.0, device=n.device), torch.ones(8, device=n.device)
        ),
    ],
)
def test_on_the_device(f):
    with no_fallback():
        both(f)


def test_on_the_host():
    both(lambda n: n.sum(-1, keepdim=True))
    both(lambda n: torch.ones_like(n))


def test_gradients():
    grads = []
    for device in (DEVICE, "cpu"):
        n = torch.nested.nested_tensor(PARTS, device=device, requires_grad=True)
        w = tensor(8, 8, seed=5).to(device).requires_grad_()
        gain, bias = (tensor(8, seed=s).to(device).requires_grad_() for s in (6, 7))
        F.layer_norm(F.gelu(F.linear(n, w)), (8,), gain, bias).to_padded_tensor(0.0).square().sum().backward()
        grads.append([*n.grad.unbind(), w.grad, gain.grad, bias.grad])
    assert_same(*grads, rtol=1e-4, atol=1e-4)


def encoder(**kwargs):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, **kwargs)
    return torch.nn.TransformerEncoder(layer, 2).eval()


PADDING = torch.tensor([[0, 0, 0, 0, 0], [0, 0, 0, 1, 1], [0, 1, 1, 1, 1]]).bool()
CAUSAL = torch.ones(5, 5).triu(1).bool()


@pytest.mark.parametrize("layer", [{}, {"norm_first": True}, {"activation": "gelu"}], ids=str)
@pytest.mark.parametrize(
    "masks", [{}, {"src_key_padding_mask": PADDING}, {"mask": CAUSAL}], ids=["none", "padding", "causal"]
)
def test_transformer_encoder(masks, layer):
    here = encoder(**layer)
    there, x = copy.deepcopy(here).to(DEVICE), tensor(3, 5, 16)
    with torch.no_grad(), no_fallback():
        got = there(x.to(DEVICE), **{name: mask.to(DEVICE) for name, mask in masks.items()})
    with torch.no_grad():
        assert_same(got, here(x, **masks))


@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.parametrize("dim", [None, -1, 1])
def test_masked_softmax(kind, dim):
    x = tensor(2, 3, 4, 4)
    mask = tensor(*[(4, 4), (2, 4), (2, 3, 4, 4)][kind], dtype=torch.bool)
    with no_fallback():
        got = torch._masked_softmax(x.to(DEVICE), mask.to(DEVICE), dim, kind)
    shown = ~(mask[:, None, None] if kind == 1 else mask).expand_as(x)
    assert_same(got.cpu() * shown, torch._masked_softmax(x, mask, dim, kind).nan_to_num() * shown)
    with pytest.raises(RuntimeError, match="boolean"):
        torch._masked_softmax(x.to(DEVICE), mask.to(DEVICE).float(), dim, kind)
    with pytest.raises(RuntimeError, match="Mask shape should match"):
        torch._masked_softmax(x.to(DEVICE), mask.to(DEVICE)[1:], dim, kind)
