import pytest
import torch
from family import assert_same, check, no_fallback, tensor, to_device

SHAPES = [(3, 4), (7,), (), (0,), (2, 3, 5), (1,)]


def lists(dtype=torch.float32, seed=0):
    return [tensor(*s, dtype=dtype, seed=seed + i) for i, s in enumerate(SHAPES)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_binary(dtype):
    a, b = lists(dtype), [t.abs() + 1 for t in lists(dtype, 50)]
    scalars = [1.5, 2, 3, 4, 5, 6] if dtype.is_floating_point else [1, 2, 3, 4, 5, 6]
    for name in ("add", "sub", "mul", "div", "maximum", "minimum"):
        f, g = getattr(torch, f"_foreach_{name}"), getattr(torch, f"_foreach_{name}_")
        check(f, a, b)
        check(f, a, 2)
        check(f, a, scalars)
        if name != "div" or dtype.is_floating_point:
            check(g, a, b)
            check(g, a, 2)
            check(g, a, scalars)
    check(torch._foreach_add, a, b, alpha=2)
    check(torch._foreach_mul, a, torch.tensor(3, dtype=dtype))
    check(lambda x, y: torch._foreach_sub_(x, y, alpha=3), a, b)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_numbers_are_those_of_the_loop(dtype):
    """Bit by bit: an optimizer must not depend on foreach."""
    a, b, c = ([to_device(tensor(701, dtype=dtype, seed=3 * n + k)) for k in range(3)] for n in range(3))
    for name in ("add", "sub"):
        for alpha in (0.1, -0.3, 1):
            each = getattr(torch, f"_foreach_{name}")(a, b, alpha=alpha)
            loop = [getattr(torch, name)(x, y, alpha=alpha) for x, y in zip(a, b, strict=True)]
            assert all(torch.equal(x, y) for x, y in zip(each, loop, strict=True)), (name, alpha)
    for name in ("addcmul", "addcdiv"):
        each = getattr(torch, f"_foreach_{name}")(a, b, c, 0.01)
        loop = [getattr(torch, name)(x, y, z, value=0.01) for x, y, z in zip(a, b, c, strict=True)]
        assert all(torch.equal(x, y) for x, y in zip(each, loop, strict=True)), name
    for weight in (0.01, 0.9):
        each = torch._foreach_lerp(a, b, weight)
        loop = [torch.lerp(x, y, weight) for x, y in zip(a, b, strict=True)]
        assert all(torch.equal(x, y) for x, y in zip(each, loop, strict=True)), weight
    for name in ("mul", "div", "add", "sub"):
        each = getattr(torch, f"_foreach_{name}")(a, 0.3)
        loop = [getattr(torch, name)(x, 0.3) for x in a]
        assert all(torch.equal(x, y) for x, y in zip(each, loop, strict=True)), name


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]
)
def test_powers_are_those_of_the_loop(dtype):
    a = [to_device(tensor(701, dtype=dtype, seed=k)) for k in range(3)]
    exponents = [0, 1, 2, 3, 0.5, -0.5, -1, 0.75, 2.5]
    for each, one in [(torch._foreach_pow(a, e), [e] * 3) for e in exponents] + [
        (torch._foreach_pow(a, exponents[k : k + 3]), exponents[k : k + 3]) for k in (0, 3, 6)
    ]:
        for x, e, made in zip(a, one, each, strict=True):
            assert_same(made, x.pow(e).cpu(), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_ternary_and_unary(dtype):
    a, b, c = lists(dtype), lists(dtype, 9), [t.abs() + 1 for t in lists(dtype, 77)]
    with no_fallback():
        check(torch._foreach_addcmul, a, b, c, 0.5)
        check(torch._foreach_addcdiv, a, b, c, [1.0, 2, 3, 4, 5, 6])
        check(torch._foreach_addcdiv_, a, b, c, -0.1)
        check(torch._foreach_lerp_, a, b, 0.1)
        check(torch._foreach_lerp, a, b, 0.9)
        check(torch._foreach_pow, c, 2)
        for name in ("sqrt", "reciprocal", "neg", "exp", "log", "sigmoid", "tanh"):
            check(getattr(torch, f"_foreach_{name}"), c)
            check(getattr(torch, f"_foreach_{name}_"), c)
        check(torch._foreach_zero_, a)
        check(torch._foreach_copy_, a, b)
        check(torch._foreach_norm, a, atol=1e-2 if dtype == torch.float16 else 1e-5)


def test_mixed_lists_take_the_slow_path():
    check(
        torch._foreach_add,
        [tensor(3), tensor(4, dtype=torch.float64)],
        [tensor(3), tensor(4, dtype=torch.float64)],
    )
    check(torch._foreach_mul_, [tensor(3, 8)[:, ::2], tensor(5, 3).t()], [tensor(3, 4), tensor(3, 5)])
    check(
        torch._foreach_copy_,
        [tensor(3), tensor(4)],
        [tensor(3, dtype=torch.float16), tensor(4, dtype=torch.float16)],
    )


@pytest.mark.parametrize("scalars", [[], [1.0], [1.0, 2.0, 3.0]])
def test_a_number_for_each_tensor(scalars):
    """Two tensors, and none, one or three numbers."""
    tensors = [torch.ones(2, device="fl"), torch.ones(2, device="fl")]
    for name in ("add", "sub", "mul", "div", "pow", "maximum", "minimum", "clamp_min", "clamp_max"):
        for fn in (getattr(torch, f"_foreach_{name}"), getattr(torch, f"_foreach_{name}_")):
            with pytest.raises(RuntimeError, match="must have same number of elements as scalar list"):
                fn(tensors, scalars)
    for name in ("addcmul", "addcdiv"):
        for fn in (getattr(torch, f"_foreach_{name}"), getattr(torch, f"_foreach_{name}_")):
            with pytest.raises(RuntimeError, match="must have same number of elements as scalar list"):
                fn(tensors, tensors, tensors, scalars)
    assert torch.stack(tensors).eq(1).all()


OPTIMIZERS = [
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}),
    (torch.optim.SGD, {"lr": 0.1, "maximize": True}),
    (torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.1}),
    (torch.optim.Adam, {"lr": 0.01, "amsgrad": True, "maximize": True}),
    (torch.optim.AdamW, {"lr": 0.01}),
    (torch.optim.AdamW, {"lr": 0.01, "amsgrad": True, "betas": (0.8, 0.95)}),
    (torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.2, "weight_decay": 0.01}),
    (torch.optim.Adagrad, {"lr": 0.1, "initial_accumulator_value": 0.3, "maximize": True}),
]


@pytest.mark.parametrize("cls,options", OPTIMIZERS)
@pytest.mark.parametrize("mode", [{}, {"foreach": False}, {"foreach": True}, {"fused": True}])
def test_optimizers(cls, options, mode):
    here = [tensor(*s, seed=i).requires_grad_() for i, s in enumerate([(4, 5), (7,), (3, 2, 2)])]
    there = [to_device(p).requires_grad_() for p in here]
    a, b = cls(here, **options), cls(there, **options, **mode)
    with no_fallback():
        for step in range(4):
            for i, (p, q) in enumerate(zip(here, there)):
                g = tensor(*p.shape, seed=100 * step + i)
                p.grad, q.grad = g, to_device(g)
            a.step(), b.step()
    assert_same(there, [p.detach() for p in here], 1e-5, 1e-6)


@pytest.mark.parametrize("cls", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad])
def test_tensor_learning_rate(cls):
    here, there = tensor(4, 5).requires_grad_(), to_device(tensor(4, 5)).requires_grad_()
    a, b = cls([here], lr=torch.tensor(0.05), foreach=False), cls([there], lr=torch.tensor(0.05), fused=True)
    here.grad, there.grad = tensor(4, 5, seed=1), to_device(tensor(4, 5, seed=1))
    a.step(), b.step()
    assert_same(there, here.detach(), 1e-5, 1e-6)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("cls", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad])
def test_gradient_scaler_skips_infinities(fused, cls):
    p = to_device(tensor(4, 5)).requires_grad_()
    optimizer = cls([p], lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler("fl", init_scale=8.0, growth_interval=2)
    before = p.detach().clone()
    for value, changed, scale in [(1.0, True, 8), (float("inf"), False, 4), (1.0, True, 4), (1.0, True, 8)]:
        optimizer.zero_grad()
        scaler.scale((p * value).sum()).backward()
        with no_fallback():
            scaler.step(optimizer)
            scaler.update()
        assert (not torch.equal(p, before)) == changed
        assert scaler.get_scale() == scale
        before = p.detach().clone()


def test_clip_grad_norm():
    here = [tensor(*s, seed=i).requires_grad_() for i, s in enumerate([(4, 5), (7,)])]
    there = [to_device(p).requires_grad_() for p in here]
    for i, (p, q) in enumerate(zip(here, there)):
        p.grad = tensor(*p.shape, seed=i + 5) * 10
        q.grad = to_device(p.grad)
    with no_fallback():
        n = torch.nn.utils.clip_grad_norm_(there, 1.0)
    assert_same(n, torch.nn.utils.clip_grad_norm_(here, 1.0), 1e-5, 1e-5)
    assert_same([q.grad for q in there], [p.grad for p in here], 1e-5, 1e-5)


def test_sizes_beyond_one_launch():
    many = [tensor(3, seed=i) for i in range(700)]
    check(torch._foreach_add_, many, 1)
