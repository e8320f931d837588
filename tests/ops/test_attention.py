import pytest
import torch
import torch.nn.functional as F
from family import check, no_fallback, tensor, to_device

LOOSE = {torch.float16: 1e-2, torch.bfloat16: 6e-2, torch.float32: 1e-4, torch.float64: 1e-7}


def qkv(b=2, h=4, l=7, s=7, e=8, hk=None, dtype=torch.float32, ev=None):  # noqa: E741, the paper names it L
    hk = hk or h
    return [
        t.requires_grad_()
        for t in (
            tensor(b, h, l, e, dtype=dtype),
            tensor(b, hk, s, e, dtype=dtype, seed=1),
            tensor(b, hk, s, ev or e, dtype=dtype, seed=2),
        )
    ]


def run(*args, **kwargs):
    loose = LOOSE[args[0].dtype]
    with no_fallback():
        return check(F.scaled_dot_product_attention, *args, grad=True, rtol=loose, atol=loose, **kwargs)


@pytest.mark.parametrize("dtype", list(LOOSE))
@pytest.mark.parametrize("causal", [False, True])
def test_dtypes(dtype, causal):
    run(*qkv(dtype=dtype), is_causal=causal)


def test_shapes():
    run(*qkv(l=5, s=9))
    run(*qkv(l=5, s=9), is_causal=True)
    run(*qkv(ev=6))
    run(*qkv(b=1, h=1, l=1, s=1))
    run(*qkv(l=130, s=130, e=16), is_causal=True)
    run(*qkv(), scale=0.3)
    run(*[t.detach()[0].requires_grad_() for t in qkv()])


@pytest.mark.parametrize("shape", [(7, 7), (2, 1, 7, 7), (1, 4, 7, 7), (2, 4, 1, 7)])
def test_masks(shape):
    bias = tensor(*shape, seed=5)
    boolean = bias > -1
    boolean[..., 0] = True
    run(*qkv(), attn_mask=None)
    for mask in (bias, boolean):
        check(
            lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
            *qkv(),
            mask,
            grad=True,
            rtol=1e-4,
            atol=1e-4,
        )


def test_grouped_queries():
    check(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        *qkv(h=6, hk=2),
        grad=True,
        rtol=1e-4,
        atol=1e-4,
    )
    check(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True, is_causal=True),
        *qkv(h=4, hk=1),
        grad=True,
        rtol=1e-4,
        atol=1e-4,
    )


def test_gradient_of_the_mask_goes_through_math():
    check(
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
        *qkv(),
        tensor(7, 7).requires_grad_(),
        grad=True,
        rtol=1e-4,
        atol=1e-4,
    )


def test_strided_heads():
    x = tensor(2, 7, 3, 4, 8).requires_grad_()

    def f(t):
        q, k, v = (u.transpose(1, 2) for u in t.unbind(2))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 7, 32)

    check(f, x, grad=True, rtol=1e-4, atol=1e-4)


def test_dropout_runs_and_scales():
    torch.manual_seed(0)
    q, k, v = (to_device(t.detach()) for t in qkv(l=64, s=64))
    v = torch.ones_like(v)
    y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    assert abs(y.mean().item() - 1) < 0.1 and y.std().item() > 0.01


def test_multihead_module():
    torch.manual_seed(0)
    here = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    there = torch.nn.MultiheadAttention(16, 4, batch_first=True).to("fl")
    there.load_state_dict(here.state_dict())
    x = tensor(2, 5, 16)
    torch.testing.assert_close(
        there(*[to_device(x)] * 3, need_weights=False)[0].cpu(),
        here(x, x, x, need_weights=False)[0],
        rtol=1e-4,
        atol=1e-4,
    )


def test_results_lie_in_memory_as_the_queries_do():
    # What torch.compile is told by PyTorch's shape function.
    for order in ((0, 1, 2, 3), (0, 2, 1, 3), (2, 0, 1, 3)):
        for e in (8, 4):
            q, k, v = (torch.randn(2, 3, 5, n).permute(order).contiguous() for n in (8, 8, e))
            back = [order.index(d) for d in range(4)]
            q, k, v = (t.to("fl:0").permute(back).requires_grad_() for t in (q, k, v))
            out = F.scaled_dot_product_attention(q, k, v)
            want = torch.empty(2, 3, 5, e).permute(order).contiguous().permute(back)
            assert out.stride() == want.stride()
            grads = torch.autograd.grad(out, (q, k, v), torch.ones_like(out))
            assert [g.stride() for g in grads] == [t.stride() for t in (q, k, v)]


def test_an_undefined_gradient_gives_none():
    q, k, v = (t.detach().to("fl").requires_grad_() for t in qkv())
    out = torch._C._functions.UndefinedGrad()(F.scaled_dot_product_attention(q, k, v))
    assert torch.autograd.grad(out, (q, k, v), torch.ones_like(out), allow_unused=True) == (None, None, None)
