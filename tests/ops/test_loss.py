import pytest
import torch
import torch.nn.functional as F
from family import check, no_fallback, tensor, to_device


def targets(*shape, classes=5, ignore=None, seed=0):
    t = torch.randint(0, classes, shape, generator=torch.Generator().manual_seed(seed))
    if ignore is not None and t.dim():
        t.view(-1)[::3] = ignore
    return t


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(7, 5), (2, 5, 3, 4), (5,), (3, 5, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_cross_entropy(reduction, weighted, shape, dtype):
    x = tensor(*shape, dtype=dtype).requires_grad_()
    t = targets(*(shape[:1] + shape[2:] if len(shape) > 1 else ()), ignore=-100)
    w = tensor(5, dtype=dtype).abs() + 0.1 if weighted else None
    with no_fallback():
        check(
            lambda x, t, *w: F.cross_entropy(x, t, w[0] if w else None, reduction=reduction),
            x,
            t,
            *([w] if weighted else []),
            grad=True,
            **({"rtol": 1e-2, "atol": 1e-2} if dtype == torch.float16 else {}),
        )


def test_nll_variants():
    check(lambda x, t: F.nll_loss(x, t, ignore_index=2), tensor(9, 5).requires_grad_(), targets(9), grad=True)
    check(lambda x, t: F.nll_loss(x, t), tensor(4, 5), targets(4, ignore=-100)[:1].expand(4))
    check(F.nll_loss, tensor(0, 5), targets(0))
    check(lambda x, t: F.nll_loss(x, t, reduction="sum"), tensor(0, 5), targets(0))
    check(F.nll_loss, tensor(5, 7).t().requires_grad_(), targets(7), grad=True)
    check(
        lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1),
        tensor(9, 5).requires_grad_(),
        targets(9),
        grad=True,
    )


def test_target_out_of_range_raises():
    x = to_device(tensor(4, 5))
    with pytest.raises((IndexError, RuntimeError)):
        F.nll_loss(x, to_device(torch.tensor([0, 1, 5, 2]))).item()
    assert F.nll_loss(x, to_device(torch.tensor([0, 1, 4, 2]))).isfinite().item()


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_elementwise_losses(reduction):
    a, b = tensor(4, 5).requires_grad_(), tensor(4, 5, seed=1)
    for f in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss):
        check(f, a, b, reduction=reduction, grad=True)
    p, t = tensor(4, 5).sigmoid().requires_grad_(), tensor(4, 5, seed=1).sigmoid()
    check(F.binary_cross_entropy, p, t, reduction=reduction, grad=True)
    check(F.binary_cross_entropy_with_logits, a, t, reduction=reduction, grad=True)
    check(F.kl_div, p.detach().log().requires_grad_(), t, reduction=reduction, grad=True)
