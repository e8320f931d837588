"""Elementwise operators of one, two and three operands."""

from __future__ import annotations

import torch
from generator import finite, is_bool, is_float, is_integer, is_number, is_real
from makers import maker

UNARY = """
    abs neg sin cos tanh sigmoid exp expm1 erf floor ceil trunc round sign square frac positive asinh atan sinh
    cosh erfc exp2 deg2rad rad2deg sgn nan_to_num isnan isfinite isinf signbit
""".split()
UNARY_POSITIVE = "sqrt rsqrt log log2 log10 log1p reciprocal".split()
ACTIVATIONS = """
    relu gelu silu softplus elu selu celu leaky_relu hardtanh hardswish hardsigmoid mish softsign logsigmoid relu6
    tanhshrink hardshrink softshrink
""".split()
BINARY = "add sub mul maximum minimum atan2 copysign fmax fmin".split()
BINARY_FLOAT = "hypot logaddexp logaddexp2 xlogy atan2".split()
COMPARISONS = "eq ne lt le gt ge logical_and logical_or logical_xor".split()
BITWISE = "bitwise_and bitwise_or bitwise_xor".split()
INTEGER_UNARY = "abs neg sign square bitwise_not".split()
INTEGER_BINARY = (
    "torch.gcd({a} // 2, {b} // 2)",  # of the least integer and another PyTorch's may be negative
    "torch.lcm({a} % 7, {b} % 7)",
    "torch.remainder({a}, {b} | 1)",
    "torch.fmod({a}, {b} | 1)",
    "torch.floor_divide({a}, {b} | 1)",
    "torch.bitwise_left_shift({a}, {b} % 5)",
    "torch.bitwise_right_shift({a}, {b} % 5)",
    "torch.pow({a} % 5, ({b} % 4).abs())",
    "torch.clamp({a}, max={b})",
    # The CPU views what it cannot, and rounds a 0-d operand to the other's dtype.
    "torch.isin({a}.contiguous().view(-1), {b}.contiguous().view(-1))",
    "torch.heaviside({a}, {b})",
)
SPECIAL = """
    i0 i0e i1 i1e bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_i0 modified_bessel_i1 modified_bessel_k0
    modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1 spherical_bessel_j0 airy_ai entr erfcx
    ndtr log_ndtr sinc gammaln psi exp2 expit log1p
""".split()
SPECIAL_BINARY = """
    xlog1py xlogy zeta gammainc gammaincc chebyshev_polynomial_t chebyshev_polynomial_u hermite_polynomial_h
    laguerre_polynomial_l legendre_polynomial_p
""".split()


def no_negative_zero(a: str) -> str:
    """Which of 0 and -0 a maximum, a limit or an order takes is not said; what shows the sign sees 0."""
    return f"({a} + 0)"


@maker(6)
def unary(g):
    a, name = g.pick(is_float), g.rng.choice(UNARY)
    if not a or (name == "signbit" and g.tensor(a).isnan().any()):  # nothing says which sign a NaN gets
        return False
    operand = no_negative_zero(a) if name == "signbit" else a
    return g.add(f"torch.{name}({operand})", a, kind="rounded")


@maker(2)
def unary_positive(g):
    a = g.pick(is_float)
    return bool(a) and g.add(f"torch.{g.rng.choice(UNARY_POSITIVE)}({a}.abs() + 0.5)", a, kind="rounded")


@maker(1)
def with_roots(g):
    """Functions whose relative error has no bound near a root."""
    a = g.pick(is_float)
    name = g.rng.choice(("lgamma", "digamma", "erfinv", "logit"))
    # Between 0.05 and 0.95: near 1 a logit is the rounding of its argument.
    return bool(a) and g.add(
        f"torch.{name}(torch.sigmoid({a}) * 0.9 + 0.05)", a, kind="accumulated", terms=64
    )


@maker(2)
def activation(g):
    a, name = g.pick(is_float), g.rng.choice(ACTIVATIONS)
    # logsigmoid is contiguous on the CPU, and in the operand's order on CUDA, the meta device and here.
    order = ".contiguous()" if name == "logsigmoid" else ""
    # accumulated: gelu of a negative number is a difference of two that are close
    return bool(a) and g.add(f"F.{name}({a}{order})", a, kind="accumulated")


@maker(2)
def integer_unary(g):
    a = g.pick(is_integer)
    return bool(a) and g.add(f"torch.{g.rng.choice(INTEGER_UNARY)}({a})", a)


@maker(2)
def complex_unary(g):
    a = g.pick(lambda t: t.dtype.is_complex)
    name = g.rng.choice(
        (
            "torch.real({})",
            "torch.imag({})",
            "{}.conj()",
            "torch.view_as_real({}.resolve_conj())",
            "-{}",
            "torch.abs({})",
            "{}.conj().resolve_conj()",
            # Right of the cut, at which rounding, or the sign of a zero, decides between one angle and another.
            "torch.angle({0} + {0}.abs() + 1)",
        )
    )
    if not a or ("angle" in name and not finite(g.tensor(a))):  # PyTorch's CPU makes more of an infinity NaN
        return False
    return g.add(name.format(a), a, kind="rounded" if "abs" in name or "angle" in name else "exact")


@maker(8)
def binary(g):
    a = g.pick(is_number, is_real)
    b = a and g.like(a, is_real)
    if not b:
        return False
    name = g.rng.choice(BINARY)
    if name == "copysign" and g.tensor(b).isnan().any():
        return False
    alpha = f", alpha={g.rng.choice((2, 3, -1))}" if name in ("add", "sub") and g.rng.random() < 0.3 else ""
    second = far_from_cut(b) if name == "atan2" else no_negative_zero(b) if name == "copysign" else b
    return g.add(f"torch.{name}({a}, {second}{alpha})", a, b, kind="accumulated")


def far_from_cut(b: str) -> str:
    """An angle's second operand: near 0 and below it, rounding decides between one angle and another."""
    return f"({b}.abs() + 1)"


@maker(2)
def binary_float(g):
    a = g.pick(is_float)
    b = a and g.like(a, is_float)
    name = g.rng.choice(BINARY_FLOAT)
    second = far_from_cut(b) if name == "atan2" else b
    return bool(b) and g.add(f"torch.{name}({a}, {second})", a, b, kind="accumulated")


@maker(3)
def binary_scalar(g):
    a = g.pick()
    sign = g.rng.choice(("+", "-", "*", "/", "**2 +", "%", "//"))
    number = g.rng.choice(("2", "3", "-2", "0.5", "True"))
    return bool(a) and g.add(f"{a} {sign} {number}", a, kind="accumulated")


@maker(2)
def division(g):
    a = g.pick(is_real)
    b = a and g.like(a, is_number, is_real)
    if not b:
        return False
    # Never by zero: for integers that is an error, at a time of the device's own.
    divisor = f"({b} | 1)" if is_integer(g.tensor(b)) else b
    how = g.rng.choice(("None", "'floor'", "'trunc'"))
    return g.add(f"torch.div({a}, {divisor}, rounding_mode={how})", a, b, kind="accumulated")


@maker(3)
def comparison(g):
    a = g.pick(is_real)
    b = a and g.like(a, is_real)
    return bool(b) and g.add(f"torch.{g.rng.choice(COMPARISONS)}({a}, {b})", a, b)


@maker(2)
def bitwise(g):
    a = g.pick(lambda t: is_integer(t) or is_bool(t))
    b = a and g.like(a, lambda t: is_integer(t) or is_bool(t))
    return bool(b) and g.add(f"torch.{g.rng.choice(BITWISE)}({a}, {b})", a, b)


@maker(2)
def complex_binary(g):
    a = g.pick(lambda t: t.dtype.is_complex)
    b = a and g.like(a)
    return bool(b) and g.add(
        f"torch.{g.rng.choice(('add', 'sub', 'mul'))}({a}, {b})", a, b, kind="accumulated", terms=4
    )


@maker(2)
def where(g):
    a = g.pick(is_bool)
    b = a and g.like(a)
    c = b and g.like(b)
    return bool(c) and g.add(f"torch.where({a}, {b}, {c})", a, b, c)


@maker(3)
def ternary(g):
    a = g.pick(is_float)
    b = a and g.like(a, is_float)
    c = b and g.like(b, is_float)
    if not c:
        return False
    name = g.rng.choice(
        (
            "torch.addcmul({a}, {b}, {c}, value=0.5)",
            "torch.lerp({a}, {b}, {c})",
            "torch.clamp({a}, {b}, {c})",
            "torch.addcdiv({a}, {b}, {c}.abs() + 1)",
        )
    )
    return g.add(name.format(a=a, b=b, c=c), a, b, c, kind="accumulated", terms=4)


@maker(2)
def clamp(g):
    a = g.pick(is_real)
    text = g.rng.choice(("{}.clamp(-1, 2)", "{}.clamp(min=0)", "{}.clamp_max(1.5)", "torch.clip({}, -2, 2)"))
    return bool(a) and g.add(text.format(a), a)


@maker(2)
def integer_binary(g):
    a = g.pick(is_integer)
    b = a and g.like(a, is_integer)
    return bool(b) and g.add(g.rng.choice(INTEGER_BINARY).format(a=a, b=b), a, b)


@maker(2)
def special(g):
    """Special functions where all of them are smooth: between 0.1 and 3.1."""
    a = g.pick(is_float)
    if not a:
        return False
    x = f"{a}.sigmoid() * 3 + 0.1"
    if g.rng.random() < 0.6:
        name = g.rng.choice(SPECIAL)
        # In float64 PyTorch's CPU is off by up to 9e-7 (against 40 digits), the device by 1e-15.
        if name.startswith("bessel_") and g.tensor(a).dtype == torch.float64:
            return False
        return g.add(f"torch.special.{name}({x})", a, kind="accumulated", terms=64)
    name = g.rng.choice(SPECIAL_BINARY)
    other = {"zeta": f"{a}.cos() + 2.5", "gammainc": f"{a}.cos() + 2", "gammaincc": f"{a}.cos() + 2"}.get(
        name, "3"
    )
    if name == "zeta":  # its pole is at 1
        x = f"{a}.sigmoid() * 3 + 2"
    if "polynomial" in name:  # of NaN PyTorch's CPU returns memory that it has not written
        x = f"{a}.nan_to_num().tanh()"
    first = f"torch.special.{name}({x}, {other})"
    return g.add(first, a, kind="accumulated", terms=64)


@maker(1)
def remainders(g):
    a = g.pick(is_float)
    b = a and g.like(a, is_float)
    if not b:
        return False
    # A quotient next to a whole number goes either way: both operands are small whole numbers and halves.
    x, y = (
        f"({a}.nan_to_num(0, 0, 0).clamp(-9, 9) * 2).round()",
        f"({b}.nan_to_num(0, 0, 0).abs().clamp(0, 9).round() + 1)",
    )
    name = g.rng.choice(("remainder", "fmod", "floor_divide", "nextafter", "ldexp", "heaviside"))
    return g.add(f"torch.{name}({x}, {y})", a, b, kind="accumulated")


@maker(1)
def fake_quantized(g):
    a = g.pick(lambda t: is_float(t) and finite(t) and str(t.dtype) == "torch.float32")
    return bool(a) and g.add(
        f"torch.fake_quantize_per_tensor_affine({a}, 0.125, 3, -8, 120)", a, kind="rounded"
    )


@maker(1)
def frexp(g):
    a = g.pick(is_float, finite)
    return bool(a) and g.add(f"torch.frexp({a})[{g.rng.randrange(2)}]", a)
