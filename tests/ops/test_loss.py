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


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_weights_are_of_the_inputs_dtype(dtype):
    """As on the CPU, also where there is nothing to weigh."""
    found = f"expected scalar type Float but found {'Half' if dtype == torch.float16 else 'Double'}"
    for sizes, classes in (((4, 5), 5), ((0, 5), 5), ((0, 0), 0), ((2, 5, 3, 4), 5), ((0, 5, 3, 4), 5)):
        x, w = to_device(tensor(*sizes)), to_device(tensor(classes, dtype=dtype))
        t = to_device(targets(*(sizes[:1] + sizes[2:])))
        for loss in (F.nll_loss, F.cross_entropy) if len(sizes) == 2 else (F.nll_loss,):
            with pytest.raises(RuntimeError, match=found):
                loss(x, t, w)
        if len(sizes) == 2 and classes:
            with pytest.raises(RuntimeError, match=found):
                F.multi_margin_loss(x, t, weight=w)


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


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_binary_cross_entropy(reduction, dtype):
    x, t = tensor(6, 5, dtype=dtype).sigmoid(), tensor(6, 5, dtype=dtype, seed=1).sigmoid()
    x[0, 0], x[1, 1] = 0, 1
    w = tensor(5, dtype=dtype).abs()
    with no_fallback("aten::_assert_async.msg"):
        check(
            F.binary_cross_entropy,
            x.clone().requires_grad_(),
            t,
            reduction=reduction,
            grad=True,
            rtol=1e-2 if dtype == torch.float16 else None,
        )
        check(lambda x, t, w: F.binary_cross_entropy(x, t, w, reduction=reduction), x.t().clone().requires_grad_(), t.t(),
              w[:1].expand(6), grad=True, strides=True, rtol=1e-2 if dtype == torch.float16 else None)  # fmt: skip
        check(lambda x, t: F.binary_cross_entropy(x.t(), t.t(), reduction=reduction), x, t, strides=True,
              rtol=1e-2 if dtype == torch.float16 else None)  # fmt: skip
    check(F.binary_cross_entropy, x[:0], t[:0], reduction=reduction)
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        F.binary_cross_entropy(to_device(x + 1), to_device(t), reduction=reduction).cpu()


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_margin_losses(reduction):
    x = tensor(7, 5).requires_grad_()
    with no_fallback():
        for p in (1, 2):
            check(F.multi_margin_loss, x, targets(7), p=p, margin=0.7, reduction=reduction, grad=True)
            check(lambda x, t, w: F.multi_margin_loss(x, t, p=p, weight=w, reduction=reduction), x, targets(7),
                  tensor(5).abs(), grad=True)  # fmt: skip
        labels = torch.tensor([[3, 0, -1, 1, 2], [-1, 0, 0, 0, 0], [1, 1, 2, 3, 4]])
        check(F.multilabel_margin_loss, tensor(3, 5).requires_grad_(), labels, reduction=reduction, grad=True)
    check(F.multi_margin_loss, tensor(5).requires_grad_(), targets(), reduction=reduction, grad=True)
    check(F.multilabel_margin_loss, tensor(5).requires_grad_(), labels[0], reduction=reduction, grad=True)
    with pytest.raises(RuntimeError):
        F.multi_margin_loss(to_device(x), to_device(targets(6)), reduction=reduction)
    with pytest.raises((IndexError, RuntimeError)):
        F.multi_margin_loss(to_device(x), to_device(targets(7) + 5), reduction=reduction).cpu()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_ctc(dtype, reduction):
    x = tensor(9, 4, 6, dtype=dtype).log_softmax(2).requires_grad_()
    inputs, lengths = torch.tensor([9, 7, 5, 9]), torch.tensor([3, 2, 0, 4])
    padded = torch.tensor([[1, 2, 2, 0], [3, 3, 0, 0], [0, 0, 0, 0], [5, 4, 3, 2]])
    flat = torch.tensor([1, 2, 2, 3, 3, 5, 4, 3, 2])
    with no_fallback():
        for t in (padded, flat, flat.int()):
            check(
                lambda x, t: F.ctc_loss(x, t, inputs.tolist(), lengths.tolist(), reduction=reduction),
                x,
                t,
                grad=True,
            )
            check(
                lambda x, t, i, n: F.ctc_loss(x, t, i, n, reduction=reduction),
                x,
                t,
                inputs,
                lengths,
                grad=True,
            )
    impossible = torch.tensor([2, 7, 5, 9])  # two steps for three labels
    for zero in (False, True):
        check(
            lambda x, t: F.ctc_loss(
                x, t, impossible.tolist(), lengths.tolist(), reduction=reduction, zero_infinity=zero
            ),
            x,
            flat,
        )
    check(
        lambda x, t: F.ctc_loss(
            x, t, impossible.tolist(), lengths.tolist(), reduction=reduction, zero_infinity=True
        ),
        x,
        flat,
        grad=True,
    )
    for bad in ([10, 7, 5, 9], [9, 7, 5]):
        with pytest.raises(RuntimeError):
            F.ctc_loss(to_device(x), to_device(flat), bad, lengths.tolist())


def test_rrelu():
    x = tensor(40, 50)
    check(lambda x: F.rrelu(x), x.clone().requires_grad_(), grad=True)
    there = to_device(x).requires_grad_()
    with no_fallback():
        y = F.rrelu(there, 0.1, 0.3, training=True)
        y.sum().backward()
    slope = there.grad.cpu()
    assert (slope[x > 0] == 1).all() and slope[x <= 0].min() >= 0.1 and slope[x <= 0].max() <= 0.3
    torch.testing.assert_close(y.detach().cpu(), x * slope)
    transposed = to_device(x.t())
    assert F.rrelu(transposed).is_contiguous() and F.rrelu(transposed, training=True).is_contiguous()  # as the CPU's
    z = to_device(x)
    assert F.rrelu_(z, training=True) is z and (z.cpu()[x > 0] == x[x > 0]).all()
