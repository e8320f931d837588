"""Reading and writing by index."""

from __future__ import annotations

from generator import filled, finite, has_dims, index_line, is_bool, is_float, is_number, is_real, writable
from makers import maker


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


@maker(2)
def more_index_writes(g):
    a = g.pick(has_dims, filled, writable, is_number, is_real)
    if not a:
        return False
    t, rng, device = g.tensor(a), g.rng, g.device_of[a]
    d = g.axis(a) % t.dim()
    size, count = t.shape[d], rng.randrange(1, 5)

    def values(shape):
        return f"make({tuple(shape)}, {t.dtype}, {rng.randrange(10**6)}, 'contiguous', dev({device}))"

    part = [*t.shape]
    part[d] = count
    index = index_line(g, size, count, device)
    # Which of two writes to one place is last is not said: those indices are all different.
    once = f"torch.tensor({rng.sample(range(size), min(size, count))}, device=dev({device}))"
    few = [*t.shape]
    few[d] = min(size, count)
    keep = rng.random() < 0.5
    how = rng.choice(("prod", "amax", "amin", "mean"))
    wide = f"({index}).view({[count if i == d else 1 for i in range(t.dim())]}).expand({part})"
    flat = rng.sample(range(t.numel()), min(t.numel(), count))
    lines = [
        f"{a}.index_copy_({d}, {once}, {values(few)})",
        f"{a}.put_(torch.tensor({flat}, device=dev({device})), {values([len(flat)])})",
        f"{a}.put_({index_line(g, t.numel(), count, device)}, {values([count])}, accumulate=True)",
        f"{a}.index_reduce_({d}, {index}, {values(part)}, '{how}', include_self={keep})",
        f"{a}.scatter_reduce_({d}, {wide}, {values(part)}, '{how}', include_self={keep})",
        f"{a}.scatter_({d}, {wide}, 1)",
        f"{a}.scatter_({d}, {wide}, {values(part)}, reduce='{rng.choice(('add', 'multiply'))}')",
        f"{a}.index_add_({d}, {index}, {values(part)}, alpha=2)",
    ]
    return g.add(rng.choice(lines), a, writes=(a,), makes=False, kind="accumulated", terms=4096 * count)


@maker(2)
def masks(g):
    m = g.pick(is_bool, has_dims)
    a = m and g.like(m, lambda t: t.dim() == g.tensor(m).dim() and t.shape == g.tensor(m).shape)
    if not a:
        return False
    same = f"torch.arange({g.tensor(m).numel()}, device=dev({g.device_of[m]})).to({g.tensor(a).dtype})"
    text = g.rng.choice(
        (f"{a}[{m}]", f"torch.masked_scatter({a}, {m}, {same})", f"{a}.masked_fill({m}, 1)", f"torch.argwhere({m})",
         f"torch.where({m}, {a}, 0)", f"{a}[{m}.nonzero(as_tuple=True)]", f"torch.count_nonzero({m}, dim=0)")
    )  # fmt: skip
    return g.add(text, m, a)


@maker(1)
def embeddings(g):
    a = g.pick(is_float, filled, lambda t: t.dim() == 2)
    if not a:
        return False
    rows, device, rng = g.tensor(a).shape[0], g.device_of[a], g.rng
    index = index_line(g, rows, 6, device)
    if rng.random() < 0.4:
        return g.add(f"F.embedding({index}.view(2, 3), {a})", a)
    # The largest of a bag with a NaN: PyTorch's comparison keeps the NaN only where it stands first.
    mode = rng.choice(("sum", "mean", "max") if finite(g.tensor(a)) else ("sum", "mean"))
    offsets = f"torch.tensor([0, {rng.randrange(7)}, 6], device=dev({device}))"
    return g.add(f"F.embedding_bag({index}, {a}, {offsets}, mode='{mode}')", a, kind="accumulated", terms=64)


@maker(1)
def wrong_indices(g):
    """An index out of range: the CPU's type of error, and what follows on the stream is unharmed."""
    a = g.pick(has_dims, filled, is_float)
    if not a:
        return False
    t, device = g.tensor(a), g.device_of[a]
    size = t.shape[0]
    index = f"torch.tensor([0, {g.rng.choice((size, -size - 1, size + 99))}], device=dev({device}))"
    wide = f"{index}.view({[2] + [1] * (t.dim() - 1)})"
    text = g.rng.choice(
        (
            f"{a}[{index}]",
            f"{a}.index_fill(0, {index}, 2)",
            f"{a}.index_put(({index},), torch.ones((), dtype={t.dtype}, device=dev({device})))",
            f"{a}.take({index} * {t.numel()})",
            f"{a}.gather(0, {wide})",
            f"{a}.scatter(0, {wide}, 1)",
            f"{a}.scatter_add(0, {wide}, {wide}.to({t.dtype}))",
            f"{a}.scatter_reduce(0, {wide}, {wide}.to({t.dtype}), 'amax')",
            f"{a}.index_copy(0, {index}, {a}[:1].repeat({[2] + [1] * (t.dim() - 1)}))",
        )
    )
    return g.refused(text, a)
