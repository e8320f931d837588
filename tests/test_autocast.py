"""Autocast: CUDA's cast lists, nesting, GradScaler."""

import pytest
import torch

D = "fl:0"


def both(f, dtype=torch.float16):
    with torch.autocast("fl", dtype=dtype):
        return f()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_lists(dtype):
    a, b = torch.ones(4, 4, device=D), torch.ones(4, 4, device=D)
    conv, image = torch.nn.Conv2d(1, 1, 3).to(D), torch.ones(1, 1, 8, 8, device=D)
    low = [
        lambda: a @ b,
        lambda: torch.addmm(a, a, b),
        lambda: torch.bmm(a[None], b[None]),
        lambda: torch.nn.functional.linear(a, b),
        lambda: conv(image),
    ]
    for f in low:
        assert both(f, dtype).dtype == dtype
    h = a.to(dtype)
    wide = [
        lambda: h.exp(),
        lambda: torch.log(h),
        lambda: torch.softmax(h, -1),
        lambda: torch.nn.functional.layer_norm(h, (4,)),
        lambda: h.sum(),
        lambda: h.cumsum(0),
        lambda: torch.nn.functional.mse_loss(h, h),
        lambda: torch.nn.functional.cross_entropy(h, torch.zeros(4, dtype=torch.long, device=D)),
    ]
    for f in wide:
        assert both(f, dtype).dtype == torch.float32
    assert both(lambda: torch.addcmul(a, h, h), dtype).dtype == torch.float32
    assert both(lambda: h + h, dtype).dtype == dtype
    assert both(lambda: a + a, dtype).dtype == torch.float32


def test_off_inside_on_and_default_dtype():
    a = torch.ones(4, 4, device=D)
    with torch.autocast("fl"):
        assert (a @ a).dtype == torch.get_autocast_dtype("fl") == torch.float16
        with torch.autocast("fl", enabled=False):
            assert (a @ a).dtype == torch.float32
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert (a @ a).dtype == torch.float16
    assert (a @ a).dtype == torch.float32


def test_gradients_come_back_in_the_parameters_dtype():
    layer = torch.nn.Linear(4, 4).to(D)
    x = torch.randn(2, 4, device=D)
    loss = both(lambda: layer(x).float().pow(2).mean())
    loss.backward()
    assert layer.weight.grad.dtype == torch.float32
    reference = torch.nn.Linear(4, 4)
    reference.load_state_dict({k: v.cpu() for k, v in layer.state_dict().items()})
    reference(x.cpu()).pow(2).mean().backward()
    torch.testing.assert_close(layer.weight.grad.cpu(), reference.weight.grad, rtol=2e-2, atol=2e-3)


def test_binary_cross_entropy_is_refused():
    p = torch.full((3,), 0.5, device=D)
    with pytest.raises(RuntimeError, match="unsafe to autocast"):
        both(lambda: torch.nn.functional.binary_cross_entropy(p, p))


def test_grad_scaler_skips_steps_with_overflow():
    p = torch.nn.Parameter(torch.ones(3, device=D))
    optimizer = torch.optim.SGD([p], lr=1.0)
    scaler = torch.amp.GradScaler("fl", init_scale=4.0)
    scaler.scale((p * 2).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert p.detach().cpu().tolist() == [-1, -1, -1] and scaler.get_scale() == 4
    optimizer.zero_grad()
    scaler.scale((p * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert p.detach().cpu().tolist() == [-1, -1, -1] and scaler.get_scale() == 2
