"""Views, copies, conversions, other devices, and writing in place."""

from __future__ import annotations

import torch
from generator import FLOATS, INTEGERS, has_dims, is_bool, is_float, is_real, writable
from makers import maker

from .elementwise import no_negative_zero

IN_PLACE_UNARY = "neg_ abs_ relu_ zero_ floor_ sigmoid_ tanh_ square_".split()


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


@maker(3)
def more_views(g):
    a = g.pick(has_dims)
    if not a:
        return False
    t, rng, d = g.tensor(a), g.rng, g.axis(a)
    size = t.shape[d]
    sizes = [s for s in range(1, size + 1) if size % s == 0] or [1]
    part = rng.choice(sizes)
    if t.dtype.itemsize == 1 and t.dtype != torch.bool:
        as_bytes = f"{a}.view(torch.int8)"
    elif t.isnan().any():  # its bits are anyone's: several of the CPU's operators make one NaN of all
        as_bytes = f"{a}.view({t.dtype})"
    else:
        # A copy of booleans, too: written through the view they would be neither true nor false.
        whole = a if t.dtype == torch.bool else no_negative_zero(a)
        as_bytes = f"{whole}.clone(memory_format=torch.contiguous_format).view(torch.int8)"
    choices = [
        f"{a}.unflatten({d}, ({part}, {size // part}))",
        f"torch.tensor_split({a}, 3, dim={d})[{rng.randrange(3)}]",
        f"{a}[None, ..., {rng.randrange(size) if t.shape[-1] == size and size else 0}:]",
        f"{a}.swapaxes(0, {d})",
        f"torch.atleast_3d({a})",
        f"{a}.broadcast_to({[3, 1, *t.shape]})",
        f"{a}[..., None].squeeze(-1)",
        f"{a}.view({t.dtype})",
        as_bytes,
        f"{a}.contiguous().as_strided({[max(1, size // 2), 2]}, (1, 1))"
        if t.numel() > size // 2 + 2
        else f"{a}.T",
    ]
    return g.add(rng.choice(choices), a)


@maker(3)
def more_movement(g):
    a = g.pick(has_dims)
    if not a:
        return False
    t, rng, d = g.tensor(a), g.rng, g.axis(a)
    size = t.shape[d]
    at = rng.randrange(size) if size else 0
    choices = [
        f"torch.tile({a}, (2, 1))",
        f"{a}.fliplr()" if t.dim() > 1 else f"{a}.flip(0)",
        f"torch.block_diag({a}, {a})" if t.dim() <= 2 else f"torch.hstack([{a}, {a}])",
        f"torch.select_scatter({a}, torch.zeros_like({a}.select({d}, {at})), {d}, {at})",
        f"torch.slice_scatter({a}, torch.ones_like({a}.narrow({d}, {at}, {size - at})), {d}, {at}, {size})",
        f"torch.diagonal_scatter({a}, torch.ones_like({a}.diagonal()))",
        f"torch.diag_embed({a}, {rng.randrange(-1, 2)})",
        f"torch.combinations({a}[:5])" if t.dim() == 1 else f"torch.vstack([{a}, {a}])",
        f"torch.cartesian_prod({a}[:4], {a}[:3])" if t.dim() == 1 else f"torch.dstack([{a}, {a}])",
        f"torch.vander({a}[:4], 3)" if t.dim() == 1 and not t.dtype.is_floating_point else f"{a}.clone()",
        f"F.pad({a}, ({rng.randrange(-1, 3)}, {rng.randrange(0, 3)}), value=1)",
        f"torch.nn.functional.one_hot({a}.long().abs() % 5, 5)" if not t.dtype.is_complex and not t.dtype.is_floating_point
        else f"{a}.clone()",
        f"torch.tril_indices({max(1, size)}, 3, {rng.randrange(-1, 2)}, device=dev({g.device_of[a]}))",
        f"torch.arange(0, {size}, 0.5, device=dev({g.device_of[a]}))",
    ]  # fmt: skip
    return g.add(rng.choice(choices), a)


@maker(2)
def between_devices(g):
    """Into a tensor of another device, with conversion and broadcasting."""
    if g.program.devices == 1:
        return False
    a = g.pick(writable, is_float)
    b = a and g.pick(
        is_real,
        lambda t: (
            t.dim() <= g.tensor(a).dim() and t.shape == g.tensor(a).shape[g.tensor(a).dim() - t.dim() :]
        ),
    )
    if not b or g.tensor(a).untyped_storage().data_ptr() == g.tensor(b).untyped_storage().data_ptr():
        return False
    late = g.rng.choice(("", ", non_blocking=True"))
    return g.add(f"{a}.copy_({b}{late})", a, b, writes=(a,), makes=False)


@maker(1)
def through_the_host(g):
    a = g.pick()
    if not a:
        return False
    device = g.device_of[a]
    # clone: on the CPU, cpu() and from_numpy() share memory.
    plain = f"{a}.resolve_conj().resolve_neg().cpu()"
    choices = [f"{plain}.clone().to(dev({device}))", f"{plain}.clone().to(dev({device}), non_blocking=True)",
               f"torch.tensor({a}.tolist(), device=dev({device}))"]  # fmt: skip
    if g.tensor(a).dtype != torch.bfloat16:
        choices.append(f"torch.from_numpy({plain}.numpy()).clone().to(dev({device}))")
    text = g.rng.choice(choices)
    return g.add(text, a)


@maker(2)
def in_place_functions(g):
    a = g.pick(is_float, writable)
    if not a:
        return False
    t, rng, d = g.tensor(a), g.rng, g.axis(a)
    choices = [f"{a}.addcmul_({a}, {a}, value=0.1)", f"{a}.lerp_({a}, 0.5)", f"{a}.pow_(2)", f"{a}.nan_to_num_(0, 1, -1)",
               f"{a}.mul_(0.5).add_(1)", f"F.leaky_relu_({a})", f"F.hardtanh_({a})", f"{a}.copysign_(-1)"]  # fmt: skip
    if t.dim():
        choices += [f"{a}.cumsum_({d})"] if t.numel() else []
        choices += [f"{a}.transpose(0, {d}).mul_(2)", f"{a}[::2].add_(1)", f"{a}.select({d}, 0).zero_()"]
    if t.dim() == 2:
        choices += [f"{a}.tril_()", f"{a}.fill_diagonal_(2)", f"{a}.T.relu_()"]
    count, text = max(1, t.numel()), rng.choice(choices)
    factors = count if "cumsum" in text else 1
    return g.add(text, a, writes=(a,), kind="accumulated", terms=64 * count, factors=factors, makes=False)
