import pytest
import torch
from family import DEVICE, check, layouts, no_fallback, tensor, to_device

DTYPES = [torch.float32, torch.float16, torch.int64, torch.bool, torch.complex64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_cat(dtype):
    with no_fallback():
        for x in layouts(tensor(3, 4, 5, dtype=dtype)):
            for dim in (0, 1, -1):
                check(lambda a, b, d: torch.cat([a, b, a], d), x, tensor(3, 4, 5, dtype=dtype, seed=1), dim)
            check(lambda a: torch.stack([a, a + a], 1), x)


def test_cat_edges():
    with no_fallback():
        check(lambda a, b: torch.cat([a, b]), tensor(3), tensor(2, dtype=torch.int64))
        check(lambda a, b: torch.cat([a, b]), tensor(3, 4), tensor(0))
        check(lambda a, b: torch.cat([a, b], 1), tensor(3, 4), tensor(3, 0))
        check(lambda a, b, o: torch.cat([a, b], out=o), tensor(3, 4), tensor(2, 4), torch.zeros(5, 8)[:, ::2])
        check(
            lambda a, b: torch.cat([a, b]),
            tensor(2, 3, 4, 4).contiguous(memory_format=torch.channels_last),
            tensor(1, 3, 4, 4).contiguous(memory_format=torch.channels_last),
            strides=True,
        )
        check(
            lambda a, b: torch.cat([a, b], 1),
            tensor(2, 3).requires_grad_(),
            tensor(2, 1).requires_grad_(),
            grad=True,
        )
    # Lazily conjugated and negated parts, and such a result.
    c = tensor(3, 4, dtype=torch.complex64)
    check(lambda a, b: torch.cat([a.conj(), b, b.conj()], 1), c, c)
    check(lambda a: torch.cat([a.conj().imag, a.imag]), c)
    check(lambda a, o: torch.cat([a, a.conj()], out=o.conj()), c, torch.zeros(6, 4, dtype=torch.complex64))
    # More dimensions than the ABI has.
    check(lambda a: torch.cat([a, a]), tensor(*[1] * 15, 2, 1, 2).transpose(15, 16))
    with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
        torch.cat([to_device(tensor(3, 4)), to_device(tensor(3, 5))])
    with pytest.raises(RuntimeError, match="same device"):
        torch.cat([to_device(tensor(3, 4)), tensor(3, 4)])


@pytest.mark.parametrize("dtype", DTYPES)
def test_flip_roll_triangles(dtype):
    with no_fallback():
        for x in layouts(tensor(3, 4, 5, dtype=dtype)):
            check(torch.flip, x, (0, 2))
            check(torch.flip, x, ())
            check(torch.roll, x, 2, 1)
            check(torch.roll, x, (1, -1), (0, 2))
            check(torch.roll, x, 3)
            for k in (-1, 0, 2):
                check(torch.triu, x, k)
                check(torch.tril, x, k)
                check(lambda t: t.tril_(k), x)
    check(torch.flip, tensor(0, 3, dtype=dtype), (0,))
    check(torch.triu, tensor(0, 3, dtype=dtype))


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.uint8]
)
def test_ranges(dtype):
    def same(f):
        here, there = f("cpu"), f("fl:0")
        assert here.dtype == there.dtype
        torch.testing.assert_close(there.cpu(), here)

    with no_fallback():
        for arguments in [(10,), (3, 11), (2, 20, 3), (0,), (5, 5)]:
            same(lambda d: torch.arange(*arguments, dtype=dtype, device=d))
        if dtype.is_floating_point:
            same(lambda d: torch.arange(0, 1, 0.1, dtype=dtype, device=d))
            same(lambda d: torch.arange(5, -5, -0.75, dtype=dtype, device=d))
        for steps in (0, 1, 2, 7, 50):
            same(lambda d: torch.linspace(3, 40, steps, dtype=dtype, device=d))
            if not dtype.is_floating_point:
                same(lambda d: torch.linspace(-3, 5, steps, dtype=dtype, device=d))
            # An integer dtype drops the ends' fractions first.
            same(lambda d: torch.linspace(4.3, 0.6, steps, dtype=dtype, device=d))
            same(lambda d: torch.linspace(2, 49.9, steps, dtype=dtype, device=d))
            same(lambda d: torch.logspace(0.7, 3.2, steps, base=2, dtype=dtype, device=d))
        same(lambda d: torch.eye(4, dtype=dtype, device=d))
        same(lambda d: torch.eye(3, 5, dtype=dtype, device=d))
        same(
            lambda d: torch.zeros(12, dtype=dtype, device=d)[::2].copy_(
                torch.arange(6, dtype=dtype, device=d)
            )
        )
    same(lambda d: torch.arange(2**53, 2**53 + 4, device=d))
    if dtype == torch.uint8:
        for function in (torch.linspace, torch.logspace):
            with pytest.raises(RuntimeError, match="cannot be converted to type uint8_t without overflow"):
                function(3, 300, 4, dtype=dtype, device="fl:0")


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_triangle_indices(dtype):
    for name in ("tril_indices", "triu_indices"):
        f = getattr(torch, name)
        with no_fallback():
            for rows, columns in ((4, 4), (3, 7), (7, 3), (1, 1), (0, 4), (4, 0), (40, 33)):
                for offset in (-50, -4, -1, 0, 1, 2, 50):
                    got = f(rows, columns, offset, dtype=dtype, device=DEVICE)
                    want = f(rows, columns, offset, dtype=dtype)
                    assert got.dtype == dtype and got.shape == want.shape and torch.equal(got.cpu(), want)
        with pytest.raises(RuntimeError, match="row must be non-negative"):
            f(-1, 3, device=DEVICE)
        with pytest.raises(NotImplementedError, match="not implemented for 'Float'"):
            f(3, 3, dtype=torch.float32, device=DEVICE)


def test_views_and_repeats():
    with no_fallback():
        x = tensor(3, 4, 6)
        check(lambda t: t.repeat(2, 1, 3), x)
        check(lambda t: torch.nn.functional.pad(t, (1, 2, 0, 1)), x)
        check(lambda t: torch.nn.functional.one_hot(t, 5), torch.tensor([0, 4, 2]))
        check(lambda t: torch.nn.functional.pixel_shuffle(t, 2), tensor(2, 8, 3, 3))
        check(lambda t: t.unfold(1, 2, 1).contiguous(), x)
        check(lambda t: t.chunk(2, 2)[1].contiguous(), x)
        check(lambda t: torch.meshgrid(t, t, indexing="ij"), tensor(4))


def test_narrow_copy_and_types_of_cat():
    x = tensor(4, 3)
    for out in (torch.empty(0), torch.zeros(3, 2).t(), torch.zeros(2, 3, 2)[..., 1]):
        want = torch.empty_like(out).copy_(out).resize_(2, 3).copy_(x[1:3])
        there = to_device(out)
        got = torch.narrow_copy(x.to(DEVICE), 0, 1, 2, out=there)
        assert got is there and torch.equal(got.cpu(), want)
    assert torch.equal(torch.narrow_copy(x.to(DEVICE), 1, 0, 0).cpu(), x[:, :0])
    with pytest.raises(TypeError, match="can't be cast"):
        torch.cat([x.to(DEVICE)], out=torch.empty(4, 3, dtype=torch.int32, device=DEVICE))


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64], ids=str)
def test_numbers_of_unsigned_types(dtype):
    top = 2 ** (8 * dtype.itemsize) - 1
    with no_fallback():
        for number in (0, 1, top // 2 + 1, top, -1):
            check(lambda d, n: torch.full((3, 5), n, dtype=dtype, device=d.device)[:, 1:], torch.ones(()), number)
            check(lambda t, n: t.fill_(n), torch.zeros(4, 6, dtype=dtype)[:, ::2], number)
    for number in (2.0 * top, 1e30, float("nan")):
        with pytest.raises(RuntimeError, match="without overflow"):
            torch.zeros(3, dtype=dtype, device=DEVICE).fill_(number)


def test_ranges_into_one_place():
    for fill in (torch.linspace, torch.logspace):
        with pytest.raises(RuntimeError, match="unsupported operation"):
            fill(1, 10, 10, out=torch.zeros(1, device=DEVICE).expand(10))


def test_dimensions_that_pytorch_does_not_reduce():
    x = torch.rand((1,) * 65, device=DEVICE)
    assert 0 <= x.item() < 1
    for device in ("cpu", DEVICE):
        with pytest.raises(RuntimeError, match="64 dims"):
            torch.zeros((1,) * 65, device=device).sum(0)


@pytest.mark.parametrize("shape", [(1,) * 40, (2,) * 18, (2, 1, 3) * 6], ids=["ones", "twos", "mixed"])
def test_many_dimensions(shape):
    """More dimensions than a launch takes, most of which join."""
    x = tensor(*shape)
    with no_fallback():
        check(lambda t: t.clone().fill_(3), x)
        check(lambda t: t * 2 + t.flip(0, -1), x)
        check(lambda t: t.sum(), x)
        check(lambda t: (t.sum(0), t.amax(-1), t.argmax(2), t.mean((0, 2))), x, rtol=1e-4)
        check(lambda t, i: t.index_select(2, i), x, torch.tensor([0, 0]))
        check(lambda t: torch.cat([t, t], 1), x)
        check(lambda t, i: t.gather(0, i), x, torch.zeros(shape, dtype=torch.int64))
        torch.manual_seed(3)
        there = torch.rand(shape, device=DEVICE)
        torch.manual_seed(3)
        assert torch.equal(there.flatten(), torch.rand(x.numel(), device=DEVICE))
    check(lambda t: t.permute(*reversed(range(t.dim()))).contiguous(), x)
    check(lambda t: t.permute(*reversed(range(t.dim()))).clone().add_(1), x)
