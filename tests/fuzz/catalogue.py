"""What fuzzed programs are made of: tables of expressions, and functions where operands depend on each other.

`a`, `b`, … in an expression stand for operands that the generator picks.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from generator import (
    FLOATS,
    INTEGERS,
    Generator,
    filled,
    finite,
    has_dims,
    index_line,
    is_bool,
    is_float,
    is_integer,
    is_number,
    is_real,
    writable,
)

from program import LAYOUTS, Program

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
REDUCTIONS = "sum mean amax amin prod var std logsumexp norm nansum".split()
EXACT_REDUCTIONS = "amax amin argmax argmin all any count_nonzero".split()
IN_PLACE_UNARY = "neg_ abs_ relu_ zero_ floor_ sigmoid_ tanh_ square_".split()
LOSSES = "mse_loss l1_loss smooth_l1_loss huber_loss".split()


# Each maker tries to add a line and returns whether it did.
MAKERS: list[tuple[int, Callable[[Generator], bool]]] = []


def maker(weight: int):
    def register(function):
        MAKERS.append((weight, function))
        return function

    return register


@maker(6)
def unary(g):
    a, name = g.pick(is_float), g.rng.choice(UNARY)
    if not a or (name == "signbit" and g.tensor(a).isnan().any()):  # nothing says which sign a NaN gets
        return False
    return g.add(f"torch.{name}({a})", a, kind="rounded")


@maker(2)
def unary_positive(g):
    a = g.pick(is_float)
    return bool(a) and g.add(f"torch.{g.rng.choice(UNARY_POSITIVE)}({a}.abs() + 0.5)", a, kind="rounded")


@maker(1)
def with_roots(g):
    """Functions whose relative error has no bound near a root."""
    a = g.pick(is_float)
    name = g.rng.choice(("lgamma", "digamma", "erfinv", "logit"))
    return bool(a) and g.add(f"torch.{name}(torch.sigmoid({a}) + 0.01)", a, kind="accumulated", terms=64)


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
            "torch.angle({})",
        )
    )
    return bool(a) and g.add(
        name.format(a), a, kind="rounded" if "abs" in name or "angle" in name else "exact"
    )


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
    return g.add(f"torch.{name}({a}, {b}{alpha})", a, b, kind="accumulated")


@maker(2)
def binary_float(g):
    a = g.pick(is_float)
    b = a and g.like(a, is_float)
    return bool(b) and g.add(f"torch.{g.rng.choice(BINARY_FLOAT)}({a}, {b})", a, b, kind="accumulated")


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


@maker(6)
def reduction(g):
    a = g.pick(is_float, filled)
    if not a:
        return False
    t = g.tensor(a)
    dim = "" if g.rng.random() < 0.3 or not t.dim() else f", dim={g.axis(a)}, keepdim={g.rng.random() < 0.5}"
    if t.dim() > 1 and dim and g.rng.random() < 0.3:
        dim = f", dim={tuple(g.rng.sample(range(t.dim()), 2))}, keepdim={g.rng.random() < 0.5}"
    name = g.rng.choice(REDUCTIONS)
    if name == "logsumexp" and not dim:
        dim = ", dim=0"
    return g.add(
        f"torch.{name}({a}{dim})",
        a,
        kind="accumulated",
        terms=t.numel() * (64 if name in ("var", "std", "prod") else 1),
    )


@maker(4)
def exact_reduction(g):
    a = g.pick(is_real)
    name = g.rng.choice(EXACT_REDUCTIONS)
    if not a:
        return False
    dim = "" if g.rng.random() < 0.3 or not g.tensor(a).dim() else f", dim={g.axis(a)}"
    return g.add(f"torch.{name}({a}{dim})", a)


@maker(2)
def integer_sum(g):
    a = g.pick(lambda t: is_integer(t) or is_bool(t))
    name = g.rng.choice(("sum", "prod", "cumsum({}, dim=0)", "max", "min"))
    return bool(a) and g.add(f"torch.{name}".format(a) if "{" in name else f"torch.{name}({a})", a)


@maker(2)
def min_max(g):
    a = g.pick(is_real, filled, has_dims)
    if not a:
        return False
    name, dim = g.rng.choice(("max", "min", "cummax", "cummin", "median")), g.axis(a)
    if name == "median" and g.tensor(a).stride(dim) == 0:
        return False  # PyTorch's CPU kernel then reads memory that it has not written
    return g.add(f"torch.{name}({a}, dim={dim})[{g.rng.randrange(1)}]", a)


@maker(3)
def scan(g):
    a = g.pick(is_float, has_dims)
    if not a:
        return False
    name = g.rng.choice(("cumsum", "cumprod", "logcumsumexp", "softmax", "log_softmax"))
    return g.add(
        f"torch.{name}({a}, dim={g.axis(a)})", a, kind="accumulated", terms=64 * max(1, g.tensor(a).numel())
    )


@maker(3)
def order(g):
    a = g.pick(is_real, has_dims)
    if not a:
        return False
    d, down = g.axis(a), g.rng.random() < 0.5
    out = g.rng.randrange(2)
    if g.rng.random() < 0.6:
        return g.add(f"torch.sort({a}, dim={d}, descending={down}, stable=True)[{out}]", a)
    k = g.rng.randrange(0, g.tensor(a).shape[d] + 1)
    return g.add(f"torch.topk({a}, {k}, dim={d}, largest={down})[0]", a)


@maker(2)
def selection(g):
    a = g.pick(is_bool)
    if not a:
        return False
    if g.rng.random() < 0.5:
        return g.add(f"torch.nonzero({a})", a)
    b = g.like(a)
    return bool(b) and g.add(f"torch.masked_select({b}, {a})", b, a)


@maker(1)
def unique(g):
    a = g.pick(is_real, lambda t: finite(t))
    return bool(a) and g.add(
        f"torch.unique({a}, return_inverse=True, return_counts=True)[{g.rng.randrange(3)}]", a
    )


@maker(14)
def view(g):
    a = g.pick()
    if not a:
        return False
    t, rng = g.tensor(a), g.rng
    d = g.axis(a)
    size = t.shape[d] if t.dim() else 1
    start = rng.randrange(0, size + 1)
    order = list(range(t.dim()))
    rng.shuffle(order)
    choices = [
        f"{a}.permute({order})",
        f"{a}.transpose({d}, {g.axis(a)})",
        f"{a}.narrow({d}, {start}, {rng.randrange(0, size - start + 1)})",
        f"{a}.select({d}, {rng.randrange(-size, size) if size else 0})",
        f"{a}[{', '.join([':'] * (d % max(1, t.dim())) + [f'{start}::{rng.randrange(1, 4)}'])}]",
        f"{a}.unsqueeze({rng.randrange(0, t.dim() + 1)})",
        f"{a}.squeeze()",
        f"{a}.flatten()",
        f"{a}.reshape(-1)",
        f"{a}.reshape({[t.numel() // 2, 2] if t.numel() % 2 == 0 else [t.numel()]})",
        f"{a}.expand({[2, *t.shape]})",
        f"{a}.diagonal({rng.randrange(-1, 2)})",
        f"{a}.unfold({d}, {rng.randrange(1, max(2, size))}, {rng.randrange(1, 3)})",
        f"{a}.movedim({d}, 0)",
        f"torch.split({a}, 2, dim={d})[0]",
        f"torch.chunk({a}, 2, dim={d})[-1]",
        f"{a}.unbind({d})[0]",
        f"{a}.T" if t.dim() == 2 else f"{a}.mT",
        f"{a}.detach()",
        f"{a}.view_as({a})",
    ]
    return g.add(rng.choice(choices), a)


@maker(6)
def movement(g):
    a = g.pick()
    if not a:
        return False
    t, rng = g.tensor(a), g.rng
    d = g.axis(a)
    choices = [
        f"{a}.clone()",
        f"{a}.contiguous()",
        f"{a}.flip({[d]})",
        f"{a}.roll({rng.randrange(-3, 4)}, {d})" if t.dim() else f"{a}.clone()",
        f"{a}.repeat({[2] * max(1, t.dim())})",
        f"torch.tril({a}, {rng.randrange(-1, 2)})",
        f"torch.triu({a}, {rng.randrange(-1, 2)})",
        f"torch.stack([{a}, {a}], dim={d})",
        f"{a}.repeat_interleave(2, dim={d})" if t.dim() else f"{a}.repeat(2)",
        f"torch.rot90({a})",
        f"{a}.clone(memory_format=torch.channels_last)" if t.dim() == 4 else f"{a}.clone()",
        f"torch.zeros_like({a})",
        f"torch.full_like({a}, 3)",
        f"{a}.new_ones((2, 3))",
        f"torch.diag({a})" if t.dim() in (1, 2) else f"{a}.clone()",
        f"torch.meshgrid({a}, {a}, indexing='ij')[1].contiguous()" if t.dim() == 1 else f"{a}.clone()",
    ]
    return g.add(rng.choice(choices), a)


@maker(3)
def cat(g):
    a = g.pick(has_dims)
    if not a:
        return False
    d = g.axis(a)
    mine = g.tensor(a).shape

    def joins(t):
        return t.dim() == len(mine) and all(
            i == d % len(mine) or t.shape[i] == mine[i] for i in range(t.dim())
        )

    b = g.pick(joins, device=g.device_of[a])
    return bool(b) and g.add(f"torch.cat([{a}, {b}, {a}], dim={d})", a, b)


@maker(4)
def conversion(g):
    a = g.pick(is_real)
    if not a:
        return False
    dtype = g.rng.choice((*FLOATS, *INTEGERS, torch.bool))
    t = g.tensor(a)
    # A float outside the integer's range has no defined value.
    whole = not dtype.is_floating_point and is_float(t)
    source = f"torch.nan_to_num({a}, 0, 0, 0).clamp({0 if dtype == torch.uint8 else -99}, 99)" if whole else a
    return g.add(f"{source}.to({dtype})", a)


@maker(2)
def other_device(g):
    a = g.pick()
    if not a or g.program.devices == 1:
        return False
    device = g.rng.randrange(g.program.devices)
    if not g.add(f"{a}.to(dev({device}), copy=True)", a):
        return False
    g.device_of[f"v{g.count}"] = device
    return True


@maker(8)
def in_place(g):
    a = g.pick(is_float, writable)
    if not a:
        return False
    b = g.like(a, is_real, lambda t: t.dim() <= g.tensor(a).dim())
    rng = g.rng
    choices = [(f"{a}.{rng.choice(IN_PLACE_UNARY)}()", (a,), "rounded"), (f"{a}.fill_({g.number()})", (a,), "exact"),
               (f"{a}.clamp_(-3, 3)", (a,), "exact")]  # fmt: skip
    if b:
        # An operand that overlaps what is written has no defined value, and PyTorch does not always refuse.
        apart = g.tensor(a).untyped_storage().data_ptr() != g.tensor(b).untyped_storage().data_ptr()
        if apart or b == a:
            name = rng.choice(("add_", "sub_", "mul_", "copy_"))
            choices += [(f"{a}.{name}({b})", (a, b), "accumulated")] * 4
    expression, uses, kind = rng.choice(choices)
    return g.add(expression, *uses, writes=(a,), kind=kind, makes=False)


@maker(3)
def masked_in_place(g):
    a = g.pick(writable)
    m = a and g.like(a, is_bool, lambda t: t.dim() <= g.tensor(a).dim())
    if not m or g.tensor(a).untyped_storage().data_ptr() == g.tensor(m).untyped_storage().data_ptr():
        return False
    if g.rng.random() < 0.5 and g.tensor(a).shape == g.tensor(m).shape:
        return g.add(f"{a}[{m}] = 1", a, m, writes=(a,), makes=False)
    return g.add(f"{a}.masked_fill_({m}, 1)", a, m, writes=(a,), makes=False)


@maker(2)
def slice_assignment(g):
    a = g.pick(writable, has_dims)
    if not a:
        return False
    size = g.tensor(a).shape[0]
    low = g.rng.randrange(0, size + 1)
    return g.add(
        f"{a}[{low}::{g.rng.randrange(1, 3)}] = {g.rng.choice(('0', '1'))}", a, writes=(a,), makes=False
    )


@maker(5)
def indexing(g):
    a = g.pick(has_dims, filled)
    if not a:
        return False
    t, rng, device = g.tensor(a), g.rng, g.device_of[a]
    d = g.axis(a) % t.dim()
    size = t.shape[d]
    count = rng.randrange(1, 6)
    index = index_line(g, size, count, device)
    return g.add(
        rng.choice(
            (
                f"{a}.index_select({d}, {index})",
                f"{a}[{', '.join([':'] * d + [index_line(g, size, count, device, -size)])}]",
                f"torch.gather({a}, {d}, torch.zeros_like({a}, dtype=torch.int64))",
                f"torch.take({a}, {index_line(g, t.numel(), count, device, -t.numel())})",
                f"torch.take_along_dim({a}, torch.argsort({a}.real, dim={d}, stable=True), {d})",
            )
        ),
        a,
    )


@maker(4)
def index_writes(g):
    a = g.pick(has_dims, filled, writable, is_real, is_number)
    if not a:
        return False
    t, rng, device = g.tensor(a), g.rng, g.device_of[a]
    d = g.axis(a) % t.dim()
    size, count = t.shape[d], rng.randrange(1, 5)
    part = [*t.shape]
    part[d] = count
    source = f"make({tuple(part)}, {t.dtype}, {rng.randrange(10**6)}, 'contiguous', dev({device}))"
    index = index_line(g, size, count, device)
    name = rng.choice(("index_add_", "index_fill_", "scatter_add_", "index_put_", "scatter_reduce_"))
    if name == "index_add_":
        line = f"{a}.index_add_({d}, {index}, {source})"
    elif name == "index_fill_":
        line = f"{a}.index_fill_({d}, {index}, 2)"
    elif name == "index_put_":
        one = f"make({(count, *t.shape[1:])}, {t.dtype}, {rng.randrange(10**6)}, 'contiguous', dev({device}))"
        line = f"{a}.index_put_(({index_line(g, t.shape[0], count, device)},), {one}, accumulate=True)"
    else:
        wide = f"({index}).view({[count if i == d else 1 for i in range(t.dim())]}).expand({part})"
        line = f"{a}.scatter_add_({d}, {wide}, {source})"
        if name == "scatter_reduce_":
            line = (
                f"{a}.scatter_reduce_({d}, {wide}, {source}, '{rng.choice(('sum', 'amax', 'amin', 'mean'))}')"
            )
            if not is_float(t):
                line = line.replace("'mean'", "'amax'")
    return g.add(line, a, writes=(a,), makes=False, kind="accumulated", terms=64 * count)


def distinct(t):
    """No element twice: PyTorch's CPU may add equal products one by one, whose rounding all goes one way."""
    return all(stride or n == 1 for stride, n in zip(t.stride(), t.shape, strict=True))


@maker(5)
def products(g):
    a = g.pick(is_float, lambda t: t.dim() in (1, 2, 3), distinct)
    if not a:
        return False
    dtype, device, rng = g.tensor(a).dtype, g.device_of[a], g.rng
    b = g.pick(lambda t: t.dtype == dtype and t.dim() in (1, 2, 3), distinct, device=device)
    k = g.tensor(a).shape[-1]
    # Mostly an operand that fits; sometimes one that need not.
    if not b or rng.random() < 0.7:
        b = f"make(({k}, {rng.randrange(1, 9)}), {dtype}, {rng.randrange(10**6)}, {rng.choice(LAYOUTS[:4])!r}, dev({device}))"
    form = rng.choice(
        (
            "torch.matmul({a}, {b})",
            "{a} @ {b}",
            "torch.matmul({a}, {b}).relu()",
            "F.linear({a}, {b}.mT.contiguous())",
        )
    )
    uses = [a] + ([b] if b in g.device_of else [])
    return g.add(form.format(a=a, b=b), *uses, kind="accumulated", terms=64 * max(1, k))


@maker(3)
def images(g):
    a = g.pick(is_float, filled, lambda t: t.dim() == 4)
    if not a:
        return False
    t, rng, device = g.tensor(a), g.rng, g.device_of[a]
    channels = t.shape[1]
    weight = f"make(({rng.randrange(1, 5)}, {channels}, 2, 2), {t.dtype}, {rng.randrange(10**6)}, 'contiguous', dev({device}))"
    return g.add(
        rng.choice(
            (
                f"F.conv2d({a}, {weight}, padding=1)",
                f"F.conv2d({a}, {weight}, stride=2, padding=1)",
                f"F.max_pool2d({a}, 2, padding=1)",
                f"F.avg_pool2d({a}, 2, stride=1)",
                f"F.adaptive_avg_pool2d({a}, 2)",
                f"F.interpolate({a}, scale_factor=2, mode='nearest')",
                f"F.interpolate({a}, scale_factor=2, mode='bilinear')",
                f"F.pad({a}, (1, 1, 1, 0), mode='{rng.choice(('constant', 'replicate', 'reflect', 'circular'))}')",
                # contiguous: where the operand is channels-last only the CPU's result is, too
                f"F.group_norm({a}.contiguous(), 1)",
                f"F.pixel_shuffle({a}.repeat(1, 4, 1, 1), 2)",
                f"F.unfold({a}, 2, padding=1)",
            )
        ),
        a,
        kind="accumulated",
        terms=256 * max(1, channels),
    )


@maker(3)
def norms(g):
    a = g.pick(is_float, filled, lambda t: t.dim() >= 2, finite)
    if not a:
        return False
    t = g.tensor(a)
    text = g.rng.choice(
        (
            f"F.layer_norm({a}, ({t.shape[-1]},))",
            f"F.rms_norm({a}, ({t.shape[-1]},))",
            f"F.normalize({a}, dim=-1)",
            f"torch._weight_norm({a}, {a}.flatten()[: {t.shape[0]}].reshape(-1, *[1] * {t.dim() - 1}), 0)",
            f"F.batch_norm({a}, None, None, training=True)",
        )
    )
    return g.add(text, a, kind="accumulated", terms=10**4 * t.numel())


@maker(2)
def losses(g):
    a = g.pick(is_float, filled)
    b = a and g.like(a, is_float)
    if not b:
        return False
    return g.add(
        f"F.{g.rng.choice(LOSSES)}({a}, {b}, reduction='{g.rng.choice(('mean', 'sum', 'none'))}')",
        a,
        b,
        kind="accumulated",
        terms=256,
    )


@maker(5)
def gradients(g):
    a = g.pick(lambda t: t.dtype in (torch.float32, torch.float64), filled, finite)
    if not a:
        return False
    t = g.tensor(a)
    body = g.rng.choice(
        [f"x.{n}()" for n in ("sin", "tanh", "exp", "sigmoid", "square", "sum", "mean", "relu", "flatten", "abs")]
        + [f"F.{n}(x)" for n in ("gelu", "silu", "softplus", "elu")]
        + [f"x.softmax({g.axis(a)})", "x * x + x", "x / (x.abs() + 1)", "x.t()" if t.dim() <= 2 else "x.mT", "x[..., :1]",
           "x.cumsum(-1)" if t.dim() else "x + 1", "x.amax()", "torch.cat([x, x * 2])" if t.dim() else "x * 2", "x.var()",
           "x @ x.mT" if t.dim() == 2 else "x.expand(2, *x.shape)", "x.sort(-1, stable=True)[0]" if t.dim() else "x"]
    )  # fmt: skip
    return g.add(f"grad(lambda x: {body}, {a})", a, kind="accumulated", terms=10**3 * t.numel())


@maker(2)
def out_forms(g):
    a = g.pick(is_float)
    if not a:
        return False
    shape = list(g.tensor(a).shape)
    text = g.rng.choice(
        (
            "torch.add({a}, {a}, out=torch.empty({s}, dtype={t}, device=dev({d})))",
            "torch.exp({a}, out=torch.empty({s}, dtype={t}, device=dev({d})).mT.contiguous().mT)"
            if len(shape) > 1
            else "torch.neg({a}, out=torch.empty(0, dtype={t}, device=dev({d})))",
        )
    )
    return g.add(text.format(a=a, s=shape, t=g.tensor(a).dtype, d=g.device_of[a]), a, kind="accumulated")


@maker(2)
def foreach(g):
    a = g.pick(is_float)
    b = a and g.pick(is_float, device=g.device_of[a])
    name = g.rng.choice(
        (
            "_foreach_add([{a}, {b}], 2)",
            "_foreach_mul([{a}, {b}], [{a}, {b}])",
            "_foreach_exp([{a}, {b}])",
            "_foreach_neg([{b}, {a}])",
            "_foreach_norm([{a}, {b}])",
        )
    )
    return bool(b) and g.add(
        f"torch.{name.format(a=a, b=b)}[1]", a, b, kind="accumulated", terms=64 * max(1, g.tensor(b).numel())
    )


def generate(seed: int, devices: int) -> Program:
    """The program of a seed: 5 to 50 operators over a few tensors."""
    torch.manual_seed(seed)
    g = Generator(seed, devices)
    for _ in range(g.rng.randrange(2, 5)):
        g.source()
    wanted = g.rng.randrange(5, 51)
    weights = [weight for weight, _ in MAKERS]
    for _ in range(4 * wanted):
        if len(g.program.steps) >= wanted + 3:
            break
        if g.rng.random() < 0.08:
            g.source()
        g.rng.choices(MAKERS, weights)[0][1](g)
    return g.program
