"""Elementwise operators: every line of the tables, over dtypes, layouts, broadcasting, out= and in-place."""

import itertools

import pytest
import torch
from family import LAYOUTS, assert_same, check, check_or_refused, to_device, uniform
from torch.nn import functional as F

UNARY = """abs acos acosh asin asinh atan atanh ceil cos cosh digamma erf erfc erfinv exp exp2 expm1 floor frac i0 lgamma
log log10 log1p log2 logical_not neg reciprocal round rsqrt sgn sigmoid sign signbit sin sinc sinh sqrt tan tanh trunc
isposinf isneginf isnan isinf isfinite nan_to_num logit relu positive square deg2rad rad2deg
special.entr special.erfcx special.i0e special.i1 special.i1e special.log_ndtr special.ndtri conj_physical angle bitwise_not""".split()
BINARY = """add sub mul div floor_divide remainder fmod atan2 bitwise_and bitwise_or bitwise_xor bitwise_left_shift
bitwise_right_shift logical_and logical_or logical_xor eq ne lt le gt ge maximum minimum fmax fmin copysign hypot
nextafter gcd lcm heaviside xlogy special.xlog1py logaddexp logaddexp2 pow ldexp true_divide float_power""".split()
ACTIVATIONS = {
    "elu": F.elu, "selu": F.selu, "celu": F.celu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "hardsigmoid": F.hardsigmoid, "hardswish": F.hardswish, "hardtanh": F.hardtanh, "hardshrink": F.hardshrink,
    "softshrink": F.softshrink, "leaky_relu": F.leaky_relu, "logsigmoid": F.logsigmoid, "mish": F.mish, "relu": F.relu,
    "relu6": F.relu6, "silu": F.silu, "softplus": F.softplus, "softsign": F.softsign, "tanhshrink": F.tanhshrink,
    "threshold": lambda x: F.threshold(x, 0.1, 20.0), "sigmoid": torch.sigmoid, "tanh": torch.tanh,
}  # fmt: skip
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
COMPLEX = (torch.complex64, torch.complex128)
SPECIAL = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0, -1.0, 0.5, 3.0, 1e-20, 80.0]


def named(name):
    owner = torch
    for part in name.split("."):
        owner = getattr(owner, part)
    return owner


# The CPU's own 16-bit kernels round in between where ours round once.
def wide(dtype):
    margin = {torch.float16: 5e-3, torch.bfloat16: 4e-2}.get(dtype)
    return {"rtol": margin, "atol": margin}


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.uint8, torch.bool, *COMPLEX], ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, dtype):
    low, high = (
        (0.05, 0.95) if name in ("acos", "asin", "atanh", "erfinv", "logit", "special.ndtri") else (-3.0, 3.0)
    )
    low = 1.0 if name in ("acosh", "lgamma", "digamma") else low
    x = uniform((7, 5), dtype, low=low, high=high)
    check_or_refused(named(name), x, **wide(dtype))


@pytest.mark.parametrize("name", UNARY)
def test_unary_special_values(name):
    check_or_refused(named(name), torch.tensor(SPECIAL), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["exp", "neg", "logical_not", "sigmoid"])
def test_unary_layouts(name, layout):
    for shape in ((), (0,), (1,), (5, 0, 2), (33, 17), (2, 3, 4, 5)):
        x = LAYOUTS[layout](uniform(shape, torch.float32))
        check(named(name), x)
        out = LAYOUTS[layout](torch.empty_like(named(name)(x)))
        check(lambda x, out, f=named(name): f(x, out=out), x, out)


@pytest.mark.parametrize("dtypes", [
    (torch.float32, torch.float32), (torch.float64, torch.float64), (torch.float16, torch.float16),
    (torch.bfloat16, torch.bfloat16), (torch.int64, torch.int64), (torch.int8, torch.int8), (torch.uint8, torch.uint8),
    (torch.bool, torch.bool), (torch.int32, torch.float32), (torch.int64, torch.int16), (torch.bool, torch.int64),
    (torch.float32, torch.float64), (torch.float16, torch.float32), (torch.complex64, torch.complex64),
    (torch.float64, torch.complex64),
], ids=lambda d: f"{d[0]}-{d[1]}".replace("torch.", ""))  # fmt: skip
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, dtypes):
    a, b = uniform((6, 7), dtypes[0], 1), uniform((6, 7), dtypes[1], 2)
    if name in ("floor_divide", "remainder", "fmod", "div", "true_divide") or "shift" in name:
        b = uniform((6, 7), dtypes[1], 2, low=1.0, high=4.0)
    if name in ("pow", "float_power"):
        a, b = uniform((6, 7), dtypes[0], 1, low=0.5), uniform((6, 7), dtypes[1], 2, low=0.0)
    check_or_refused(
        named(name),
        a,
        b,
        **wide(torch.result_type(a, b)),
    )


@pytest.mark.parametrize("name", ["add", "mul", "lt", "maximum", "pow", "atan2"])
def test_binary_broadcast_and_layouts(name):
    for (s, t), (la, lb) in itertools.product(
        [((4, 5), (5,)), ((4, 1), (1, 5)), ((), (3,)), ((2, 0), (1, 1)), ((3, 1, 4), (2, 4))],
        itertools.product(LAYOUTS, repeat=2),
    ):
        check(
            named(name),
            LAYOUTS[la](uniform(s, torch.float32, 1, low=0.1)),
            LAYOUTS[lb](uniform(t, torch.float32, 2)),
        )


@pytest.mark.parametrize("number", [2, 2.5, True, -1, 0.1, 1 << 40])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool], ids=str
)
def test_numbers(dtype, number):
    x = uniform((9,), dtype)
    for f in (lambda x: x + number, lambda x: number - x, lambda x: x * number, lambda x: x < number,
              lambda x: torch.clamp(x, max=number), lambda x: x == number):  # fmt: skip
        check_or_refused(f, x, **wide(dtype))


@pytest.mark.parametrize("name", ["add_", "mul_", "sub_", "div_", "pow_", "clamp_min_", "maximum"])
def test_in_place_and_out_on_views(name):
    base = uniform((6, 8), torch.float32, 1, low=0.5)

    def step(base, other):
        view = base.t()[1:5, ::2]
        if name == "maximum":
            return torch.maximum(view, other, out=view)
        return getattr(view, name)(other if name != "clamp_min_" else 1.0)

    check(step, base, uniform((4, 3), torch.float32, 2, low=0.5))


IN_PLACE = [
    lambda x, y: x.add_(y), lambda x, y: x.sub_(y, alpha=2), lambda x, y: x.mul_(y), lambda x, y: x.div_(y),
    lambda x, y: x.pow_(y), lambda x, y: x.fmod_(y), lambda x, y: x.remainder_(y), lambda x, y: x.lt_(y),
    lambda x, y: x.atan2_(y), lambda x, y: x.div_(y, rounding_mode="floor"), lambda x, y: x.addcmul_(y, y),
    lambda x, y: x.lerp_(y, 0.5), lambda x, y: x.clamp_(max=y), lambda x, y: x.bitwise_and_(y), lambda x, y: x.xlogy_(y),
    lambda x, y: x.pow_(2), lambda x, y: x.exp_(), lambda x, y: x.relu_(), lambda x, y: x.neg_(), lambda x, y: x.clamp_(1, 2),
    lambda x, y: F.silu(x, inplace=True), lambda x, y: F.leaky_relu(x, inplace=True), lambda x, y: x.sigmoid_(),
]  # fmt: skip


@pytest.mark.parametrize("f", IN_PLACE)
@pytest.mark.parametrize("dtypes", [(torch.float32, torch.float32), (torch.int64, torch.int64), (torch.int32, torch.float32),
                                    (torch.float16, torch.float32), (torch.float32, torch.int64), (torch.bool, torch.bool)], ids=str)  # fmt: skip
@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 4), ()), ((4,), (3, 4)), ((), (3,)), ((3, 1), (3, 4))])
def test_in_place_is_the_cpus_or_refused_as_there(f, dtypes, shapes):
    x, y = (uniform(s, t, k, low=1.0, high=3.0) for k, (s, t) in enumerate(zip(shapes, dtypes, strict=True)))
    try:
        f(x.clone(), y)
    except NotImplementedError:
        return  # PyTorch has no kernel for the dtype; the chip may
    except Exception as error:
        there = x.to("fl")
        with pytest.raises(type(error)) as got:
            f(there, y.to("fl"))
        assert torch.equal(there.cpu(), x), "nothing has been changed"
        if "broadcast shape" in str(error) or "can't be cast" in str(error):
            assert str(got.value) == str(error)
        return
    check(f, x, y, **wide(dtypes[0]))


def test_out_of_another_dtype_is_cast_or_refused():
    a, b = uniform((5,), torch.float32, 1), uniform((5,), torch.float32, 2)
    check_or_refused(lambda a, b, o: torch.add(a, b, out=o), a, b, torch.empty(5, dtype=torch.float64))
    check_or_refused(lambda a, b, o: torch.add(a, b, out=o), a, b, torch.empty(5, dtype=torch.int64))
    check_or_refused(lambda a, b, o: torch.add(a, b, out=o), *(uniform((5,), torch.uint8, s, high=200.0) for s in (3, 4)),
          torch.empty(5, dtype=torch.int32))  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_activation_and_gradient(name, dtype):
    def both(x):
        x = x.detach().requires_grad_()
        y = ACTIVATIONS[name](x)
        return y, torch.autograd.grad(y, x, torch.ones_like(y))[0]

    margin = wide(dtype)
    if dtype == torch.float32:
        margin = {"rtol": 1e-4, "atol": 1e-4}
    if name == "hardsigmoid" and dtype == torch.float64:
        margin = {"rtol": 1e-7, "atol": 1e-7}  # the CPU multiplies by 1/6 in float32
    check(both, uniform((31,), dtype, low=-5.0, high=5.0), **margin)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.complex64], ids=str
)
def test_three_operands(dtype):
    x, y, z = (uniform((4, 5), dtype, s, low=1.0) for s in (1, 2, 3))
    value = 2 if not dtype.is_floating_point and not dtype.is_complex else 0.5
    check(lambda x, y, z: torch.addcmul(x, y, z, value=value), x, y, z, **wide(dtype))
    check_or_refused(lambda x, y, z: torch.addcdiv(x, y, z, value=value), x, y, z, **wide(dtype))
    check(lambda x, y, z: torch.where(x.abs() > 2, y, z), x, y, z)
    if dtype.is_floating_point or dtype.is_complex:
        check(lambda x, y, z: torch.lerp(x, y, z), x, y, z, **wide(dtype))
        for weight in (0.3, 0.5 - 1e-9, 0.5, 0.7, -1, 1):
            check(lambda x, y, _, w=weight: torch.lerp(x, y, w), x, y, z, **wide(dtype))
    if not dtype.is_complex:
        check(lambda x, y, z: torch.clamp(x, torch.minimum(y, z), torch.maximum(y, z)), x, y, z)


def test_where_mixes_numbers_dtypes_and_masks():
    c, x = uniform((3, 4), torch.bool), uniform((3, 4), torch.float32)
    check(lambda c, x: torch.where(c, x, 0), c, x)
    check(lambda c, x: torch.where(c, x, torch.tensor(1.5, dtype=torch.float64)), c, x)
    check(lambda c, x: torch.where(c[:, :1], x.to(torch.int64), x), c, x)
    check(lambda c, x: x.masked_fill(c, -1.0), c, x)
    check(lambda c, x: x.t().masked_fill_(c.t(), 2.0), c, x)


def test_int64_is_exact():
    x = torch.tensor([2**53 + 1, -(2**62), 2**63 - 1, 7, -7])
    check(
        lambda x: (x + 1, x * 3, x // 2, x % 10, x == 2**53, torch.maximum(x, x - 1), x >> 3, -x, x.abs()), x
    )


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_integer_division_is_exact(dtype):
    # Numbers below 2^51 and above, in runs of their own and mixed; multiples of the divisor and their neighbours.
    top = 2**31 if dtype == torch.int32 else 2**63
    divisors = [d for d in (1, 2, 3, 7, 10, 2**15 + 1, 2**31 - 1, 2**31 + 1, 2**50 + 1, 2**62) if d < top]
    random = torch.Generator().manual_seed(0)
    for size in (2**30, 2**51, top):
        x = torch.randint(-min(size, top), min(size, top) - 1, (1000,), dtype=dtype, generator=random)
        x[:3] = torch.tensor([min(size, top) - 1, -min(size, top) + 1, 0])
        for divisor in divisors:
            for d in (divisor, -divisor):
                near = x // d * d
                for a in (x, near, near - 1):
                    a = torch.where(a == -top, 1, a)  # by -1 the CPU's own division ends the process
                    check(lambda a, d=d: (a // d, a % d, torch.fmod(a, d), torch.div(a, d, rounding_mode="trunc")), a)
        check(lambda a, b: (a // b, a % b), x, torch.where(x.roll(1) == 0, 1, x.roll(1)))


def test_division_by_zero_in_integers_raises_and_goes_on():
    x = torch.tensor([1, 2, 3]).to("fl:0")
    with pytest.raises(RuntimeError, match="division by zero"):
        (x // torch.tensor([1, 0, 1]).to("fl:0")).cpu()
    assert (x + 1).tolist() == [2, 3, 4]


@pytest.mark.parametrize(
    "loss", [F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy_with_logits]
)
def test_losses_and_gradients(loss):
    def both(x, y):
        x = x.detach().requires_grad_()
        value = loss(x, y)
        return value, torch.autograd.grad(value, x)[0]

    check(
        both,
        uniform((8, 3), torch.float32, 1),
        uniform((8, 3), torch.float32, 2, low=0.0, high=1.0),
        rtol=1e-5,
        atol=1e-5,
    )


def test_many_dimensions_and_many_elements():
    shape = (2, 1) * 10
    a, b = uniform(shape, torch.float32, 1), uniform((1, 2) * 10, torch.float32, 2)
    check(torch.add, a.permute(*reversed(range(20))), b.permute(*reversed(range(20))))
    big = uniform(((1 << 16) + 1,), torch.float32)
    check(lambda x: (x * 2 + 1).sigmoid(), big)


def test_a_cpu_tensor_that_is_no_number_is_refused():
    a = torch.ones(3, device="fl:0")
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        a + torch.ones(3)
    assert_same(a + torch.tensor(2.0), torch.full((3,), 3.0))


def test_conjugate_and_negative_views():
    z = uniform((3, 4), torch.complex64)
    check(lambda z: (z.conj() + 1, z.conj().imag * 2, z.conj().t() * z.t(), z.real + z.imag), z)
    there = to_device(z)
    assert_same(there.conj(), z.conj().resolve_conj())
    assert_same(there.conj().imag, z.conj().imag.resolve_neg())


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64], ids=str
)
def test_masked_fill(dtype):
    x, mask = uniform((4, 5), dtype), uniform((4, 5), torch.bool, 3)
    value = 1 if dtype != torch.float32 else float("-inf")
    check(lambda x, m: x.masked_fill(m, value), x, mask)
    check(lambda x, m: x.t().masked_fill_(m[:1].t(), value), x, mask)
    check(lambda x, m: x.masked_fill_(m, x[0, 0].clone()), x, mask)
    check(lambda x, m: x.masked_fill(m, torch.tensor(value).to(x.dtype)), x, mask)
    check_or_refused(lambda x, m: x.masked_fill_(m.to(torch.int32), value), x, mask)


def test_equal():
    x = uniform((4, 5), torch.float32)
    check(
        lambda x: (
            torch.equal(x, x.clone()),
            torch.equal(x, x + 1),
            torch.equal(x, x[:2]),
            torch.equal(x[:0], x[:0]),
        ),
        x,
    )


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum", "lt"])
@pytest.mark.parametrize("order", list(itertools.permutations(range(4)))[1::3] + [(0, 3, 1, 2)], ids=str)
def test_results_keep_the_order_of_dense_operands(name, order):
    # All operands in one memory format: TensorIterator then names the format instead of strides.
    a, b = (uniform((4, 5, 6, 3), torch.float32, seed=s).permute(order) for s in (1, 2))
    ours = getattr(torch, name)(to_device(a), to_device(b))
    theirs = getattr(torch, name)(a, b)
    assert_same(ours, theirs)
    assert ours.stride() == theirs.stride()


@pytest.mark.parametrize(
    "common", [torch.uint8, torch.int8, torch.int16, torch.float16, torch.bfloat16], ids=str
)
def test_a_scalar_tensor_takes_the_common_dtype_before_the_operation(common):
    # -8 beside uint8 is 248, and 2049 beside float16 is 2048, although registers are wider.
    x = torch.tensor([0, 3, 100, 120], dtype=torch.int64).to(common)
    scalars = [torch.tensor(v) for v in (-8, 300, 2049, 70001)]
    if common.is_floating_point:
        scalars += [torch.tensor(v) for v in (0.1, 1 + 2**-9, 1e-9)]
        x = torch.cat([x, torch.tensor([0.1, 1 + 2**-9, 0], dtype=common)])
    for scalar in scalars:
        for name in ("minimum", "maximum", "eq", "lt", "ge", "fmax"):
            check(getattr(torch, name), x, scalar)
        check(torch.where, x > 3, x, scalar)


def test_integers_beside_halves_are_rounded_to_them():
    integers = torch.tensor([2047, 2048, 2049, 2051, 4099, -2049])
    halves = integers.to(torch.float16)
    assert torch.eq(integers.to("fl"), halves.to("fl")).all()
    check(torch.eq, integers.view(2, 3).t(), halves.view(2, 3).t())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_out_does_not_change_what_is_computed(dtype):
    x = torch.tensor([33000.0, 1.5, 0.1, -7.0], dtype=dtype)
    for f in (torch.add, torch.true_divide, torch.atan2):
        for wide in (torch.float32, torch.float64, torch.complex64):
            want = f(x, x * 0.666, out=torch.empty(0, dtype=wide))
            got = f(x.to("fl:0"), (x * 0.666).to("fl:0"), out=torch.empty(0, dtype=wide, device="fl:0"))
            assert_same(got, want, *([0, 0] if f is not torch.atan2 else [4e-3, 4e-3]))
    got = torch.add(x.to("fl:0"), 1000, alpha=2, out=torch.empty(4, dtype=torch.float32, device="fl:0"))
    assert_same(got, torch.add(x, 1000, alpha=2, out=torch.empty(4)))
    x = torch.tensor([5, 250], dtype=torch.uint8)
    got = torch.sub(x.to("fl:0"), 8, out=torch.empty(2, device="fl:0"))
    assert_same(got, torch.sub(x, 8, out=torch.empty(2)))


def test_a_complex_value_for_a_real_tensor_is_refused():
    x, mask = torch.ones(2, dtype=torch.int64, device="fl:0"), torch.tensor(False, device="fl:0")
    with pytest.raises(RuntimeError, match="cannot be converted"):
        x.masked_fill_(mask, torch.tensor(1j, device="fl:0"))
    assert x.masked_fill(~mask, torch.tensor(3 + 0j, device="fl:0")).tolist() == [3, 3]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_complex_numbers_from_their_parts(dtype):
    check(torch.complex, uniform((5, 3), dtype, seed=1), uniform((5, 3), dtype, seed=2))
    if dtype != torch.float16:  # the CPU has no polar of halves
        check(torch.polar, uniform((5, 3), dtype, seed=1), uniform((5, 3), dtype, seed=2))


@pytest.mark.parametrize("count", [1, 3, 40])
def test_a_bound_that_is_reached_leaves_the_value(count):
    """-0 equals 0: clamp(min=0) has nothing to do."""
    functions = {
        "clamp": lambda x: x.clamp(0, 1), "clamp_min": lambda x: x.clamp(min=0), "clamp_max": lambda x: (-x).clamp(max=-0.0),
        "relu": F.relu, "relu_": lambda x: F.relu_(x.clone()), "relu6": F.relu6, "hardtanh": lambda x: F.hardtanh(x, 0, 1),
        "_foreach": lambda x: torch._foreach_clamp_min([x], 0.0)[0], "list": lambda x: torch._foreach_maximum([x], [0.0])[0],
    }  # fmt: skip
    zero = torch.full((count,), -0.0)
    for name, f in functions.items():
        got, want = f(zero.to("fl")).cpu(), f(zero)
        assert torch.equal(got.signbit(), want.signbit()) and not got.any(), name
    values = torch.tensor([float("nan"), 2.0, -2.0])
    for f in functions.values():
        torch.testing.assert_close(f(values.to("fl")).cpu(), f(values), equal_nan=True)
    nan = torch._foreach_clamp_min([zero.to("fl")], float("nan"))[0].cpu()
    assert nan.isnan().all()


def test_what_is_refused_is_refused_of_no_elements():
    for shape in ((3,), (0,), (2, 0)):
        flags = torch.zeros(shape, dtype=torch.bool)
        for f in (lambda x: x // True, lambda x: x - x, lambda x: -x, F.relu):
            with pytest.raises((NotImplementedError, RuntimeError)) as want:
                f(flags)
            with pytest.raises(want.type):
                f(flags.to("fl"))
    empty = torch.zeros(0, 3).to("fl")
    assert (empty.sin() + empty.double()).shape == (0, 3) and empty.half().exp().dtype == torch.half


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float32], ids=str)
@pytest.mark.parametrize("f", [F.glu, F.leaky_relu, F.hardshrink, F.logsigmoid, lambda x: F.prelu(x, x[:1, 0])])
def test_activations_of_integers_are_refused_as_on_the_cpu(f, dtype):
    check_or_refused(f, uniform((4, 6), dtype, 1))
