import pytest
import torch
import torch.nn.functional as F
from family import assert_same, check, layouts, no_fallback, tensor, to_device

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
ALL = FLOATS + [torch.int64, torch.int32, torch.uint8, torch.complex64]


@pytest.mark.parametrize("dtype", ALL)
def test_mm_dtypes(dtype):
    check(torch.mm, tensor(5, 7, dtype=dtype), tensor(7, 3, dtype=dtype))


def test_mm_layouts():
    with no_fallback():
        for a in layouts(tensor(6, 8)):
            for b in layouts(tensor(8, 5, seed=1)):
                check(torch.mm, a, b)
                check(torch.mm, b.t(), a.t())


@pytest.mark.parametrize(
    "shapes", [((0, 3), (3, 4)), ((3, 0), (0, 4)), ((3, 2), (2, 0)), ((1, 1), (1, 1)), ((1, 300), (300, 1))]
)
def test_mm_edges(shapes):
    check(torch.mm, tensor(*shapes[0]), tensor(*shapes[1]))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bias", [(4,), (1, 4), (3, 4), (3, 1), (1,), ()])
def test_addmm(dtype, bias):
    with no_fallback():
        for beta, alpha in [(1, 1), (0, 2), (-0.5, 1.5)]:
            check(
                torch.addmm,
                tensor(*bias, dtype=dtype),
                tensor(3, 6, dtype=dtype),
                tensor(6, 4, dtype=dtype),
                beta=beta,
                alpha=alpha,
            )
    c, a, b = (to_device(tensor(*s, dtype=dtype)) for s in (bias, (3, 0), (0, 4)))
    assert_same(
        torch.addmm(c, a, b, beta=0.5), c.cpu().expand(3, 4) * 0.5
    )  # the CPU forgets to broadcast here


def test_beta_zero_ignores_nan():
    check(torch.addmm, torch.full((3, 4), float("nan")), tensor(3, 5), tensor(5, 4), beta=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex64])
def test_bmm_baddbmm(dtype):
    for a in layouts(tensor(4, 3, 5, dtype=dtype)):
        check(torch.bmm, a, tensor(4, 5, 2, dtype=dtype))
        check(torch.baddbmm, tensor(3, 2, dtype=dtype), a, tensor(4, 5, 2, dtype=dtype), beta=2, alpha=3)
    check(torch.bmm, tensor(1, 3, 5, dtype=dtype).expand(4, 3, 5), tensor(4, 5, 2, dtype=dtype))


def test_out_is_strided_and_aliased():
    a, b = to_device(tensor(4, 4)), to_device(tensor(4, 4, seed=3))
    expected = a.cpu() @ b.cpu()
    gappy = torch.zeros(8, 12, device="fl:0")[::2, ::3]
    torch.mm(a, b, out=gappy)
    assert_same(gappy, expected)
    column_major = torch.empty(4, 4, device="fl:0").t()
    torch.mm(a, b, out=column_major)
    assert_same(column_major, expected)
    torch.mm(a, b, out=a)
    assert_same(a, expected)


def test_in_place_addmm():
    check(lambda c, a, b: c.addmm_(a, b, beta=0.5, alpha=2), tensor(3, 4), tensor(3, 6), tensor(6, 4))
    check(lambda c, a, b: c.t().addmm_(a, b), tensor(4, 3), tensor(3, 6), tensor(6, 4))
    check(lambda c, a, b: c.baddbmm_(a, b), tensor(2, 3, 4), tensor(2, 3, 6), tensor(2, 6, 4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex64])
def test_vectors(dtype):
    with no_fallback():
        for m in (
            tensor(4, 6, dtype=dtype),
            tensor(6, 4, dtype=dtype).t(),
            tensor(4, 12, dtype=dtype)[:, ::2],
        ):
            check(torch.mv, m, tensor(6, dtype=dtype))
            check(torch.mv, m, tensor(12, dtype=dtype)[::2])
            check(lambda m, v: torch.mv(m.conj(), v.conj()), m, tensor(6, dtype=dtype))
        check(
            lambda m, v, o: torch.mv(m, v, out=o),
            tensor(4, 6, dtype=dtype),
            tensor(6, dtype=dtype),
            torch.zeros(4, dtype=dtype),
        )
        check(torch.dot, tensor(9, dtype=dtype), tensor(9, dtype=dtype, seed=2))
        check(torch.vdot, tensor(9, dtype=dtype), tensor(9, dtype=dtype, seed=2))
        check(torch.dot, tensor(18, dtype=dtype)[::2], tensor(9, dtype=dtype, seed=2))
        check(
            torch.addmv,
            tensor(4, dtype=dtype),
            tensor(4, 6, dtype=dtype),
            tensor(6, dtype=dtype),
            beta=2,
            alpha=3,
        )
        check(
            torch.addbmm,
            tensor(3, 2, dtype=dtype),
            tensor(4, 3, 5, dtype=dtype),
            tensor(4, 5, 2, dtype=dtype),
        )
    check(torch.dot, tensor(0, dtype=dtype), tensor(0, dtype=dtype))
    check(torch.mv, tensor(4, 0, dtype=dtype), tensor(0, dtype=dtype))
    for m, v in (((4, 6), (5,)), ((6,), (6,)), ((4, 6), (6, 1))):
        with pytest.raises(RuntimeError, match="size mismatch|matrix @ vector"):
            torch.mv(tensor(*m, dtype=dtype).to("fl"), tensor(*v, dtype=dtype).to("fl"))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n, k", [(1, 7), (5, 1), (70, 33), (300, 1000), (1100, 129)])
def test_one_row_or_one_column(dtype, n, k):
    """A vector times a matrix reads the matrix along what is contiguous."""
    bound = {torch.float16: 2e-2, torch.bfloat16: 2e-1}.get(dtype, 1e-4)
    x, bias = tensor(k, dtype=dtype, seed=1), tensor(n, dtype=dtype, seed=2)
    with no_fallback():
        for m in (
            tensor(n, k, dtype=dtype),
            tensor(k, n, dtype=dtype).t(),
            tensor(n, 2 * k, dtype=dtype)[:, ::2],
        ):
            check(torch.mv, m, x, atol=bound, rtol=bound)
            check(torch.mm, x[None], m.t(), atol=bound, rtol=bound)
            check(torch.mm, m, x[:, None], atol=bound, rtol=bound)
            check(torch.addmv, bias, m, x, beta=0.5, alpha=-2, atol=bound, rtol=bound)
            check(torch.nn.functional.linear, x[None], m, bias, atol=bound, rtol=bound)
        check(torch.bmm, tensor(3, 1, k, dtype=dtype), tensor(3, k, n, dtype=dtype), atol=bound, rtol=bound)
        check(torch.bmm, tensor(3, n, k, dtype=dtype), tensor(3, k, 1, dtype=dtype), atol=bound, rtol=bound)


# Rows a multiple of half a page apart, which the sim chip copies where the other operand has 8 to 384 rows.
@pytest.mark.parametrize(
    "m, k, n", [(7, 70, 512), (8, 64, 512), (130, 70, 1024), (384, 65, 512), (385, 64, 512), (33, 100, 1)]
)
def test_rows_that_share_sets_of_the_cache(m, k, n):
    a, b, many = tensor(m, k), tensor(k, n), tensor(3, k, n)
    wide = tensor(k, 1024)[:, :n]
    for right in (b, wide):
        check(torch.mm, a, right)
        check(lambda a, b: b.t() @ a.t(), a, right)
    check(torch.bmm, tensor(3, m, k), many)
    check(lambda a, b: torch.bmm(b.transpose(1, 2), a.transpose(1, 2)), tensor(3, m, k), many)
    check(lambda a, b: torch.bmm(a, b.expand(3, -1, -1)), tensor(3, m, k), wide)
    check(lambda a, b: torch.bmm(a.expand(3, -1, -1), b), a, many)
    check(lambda c, a, b: c.addmm_(a, b, alpha=0.5, beta=2), tensor(m, n), a, b)
    square = to_device(tensor(512, 512)[:384])
    want = square[:, :384] @ square.clone()
    assert torch.equal(torch.mm(square[:, :384], square, out=square), want)


@pytest.mark.parametrize("shape", [(5, 8), (2, 5, 8), (2, 3, 5, 8), (8,), (0, 8)])
def test_linear_and_gradients(shape):
    with no_fallback():
        check(
            torch.nn.functional.linear,
            tensor(*shape).requires_grad_(),
            tensor(6, 8).requires_grad_(),
            tensor(6).requires_grad_(),
            grad=True,
        )
        check(torch.matmul, tensor(*shape).requires_grad_(), tensor(8, 3).requires_grad_(), grad=True)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64]
)
def test_addr(dtype):
    c, a, b = tensor(3, 4, dtype=dtype), tensor(3, dtype=dtype), tensor(4, dtype=dtype)
    numbers = [{}, {"beta": 0}, {"alpha": 0}] + [{"beta": 2, "alpha": 3}] * (dtype != torch.bool)
    with no_fallback():
        for kwargs in numbers:
            for x in layouts(c):
                check(torch.addr, x, a, b, **kwargs)
                check(lambda c, a, b: c.addr_(a, b, **kwargs), x, a, b)
            check(torch.addr, c[:1, :1], a, b, **kwargs)
            check(
                lambda c, a, b, o: torch.addr(c, a, b, out=o, **kwargs), c, a, b, torch.zeros(0, dtype=dtype)
            )
            check(torch.addr, tensor(0, 4, dtype=dtype), tensor(0, dtype=dtype), b, **kwargs)
        if dtype.is_floating_point:
            check(torch.addr, torch.full((3, 4), float("nan"), dtype=dtype), a, b, beta=0)
            check(torch.addr, c.requires_grad_(), a.requires_grad_(), b.requires_grad_(), beta=0.5, grad=True)
    there = [to_device(t.detach()) for t in (c, a, b)]
    torch.fl.reset_op_report()
    torch.addr(*there)
    assert torch.fl.op_report()["aten::addr"]["native"] == 1
    for out in (torch.empty(3, 4, dtype=dtype), torch.empty(3, 4, dtype=dtype, device="fl:1")):
        with pytest.raises(RuntimeError, match="same device"):
            torch.addr(*there, out=out)


def test_conj():
    a, b = tensor(4, 5, dtype=torch.complex64), tensor(4, 3, dtype=torch.complex64)
    check(lambda x, y: x.mH @ y, a, b)
    check(lambda x, y: torch.mm(x.conj().t(), y.conj()), a, b)


def test_half_sums_are_wide():
    a = torch.ones(1, 8192, dtype=torch.float16)
    assert (to_device(a) @ to_device(a).t()).item() == 8192


def test_errors():
    a, b = to_device(tensor(3, 4)), to_device(tensor(5, 6))
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        a @ b
    with pytest.raises(RuntimeError, match="same dtype"):
        torch.mm(a, b.double()[:4])
    with pytest.raises(RuntimeError, match="same device"):
        torch.mm(a, tensor(4, 4))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_out_dtype(dtype):
    # PyTorch's CPU device has no kernel for these: halves are multiplied into float32.
    a, b, c = (
        tensor(2, 5, 40, dtype=dtype),
        tensor(2, 40, 3, dtype=dtype, seed=1),
        tensor(3, dtype=dtype, seed=2),
    )
    there = to_device((a, b, c))
    products = {
        "mm": (lambda a, b, c, **k: torch.mm(a[0], b[0], **k), (5, 3)),
        "bmm": (lambda a, b, c, **k: torch.bmm(a, b, **k), (2, 5, 3)),
        "addmm": (lambda a, b, c, **k: torch.addmm(c, a[0], b[0], beta=2, alpha=0.5, **k), (5, 3)),
        "baddbmm": (lambda a, b, c, **k: torch.baddbmm(c, a, b, beta=2, alpha=0.5, **k), (2, 5, 3)),
    }
    for name, (product, shape) in products.items():
        want = product(a.float(), b.float(), c.float())
        with no_fallback():
            got = product(*there, out_dtype=torch.float32)
            out = torch.empty(shape, device="fl:0")
            assert product(*there, out_dtype=torch.float32, out=out) is out
        assert_same(got, want, what=name)
        assert_same(out, want, what=name)
        assert_same(product(there[0], there[1], there[2].float(), out_dtype=torch.float32), want, what=name)
        with pytest.raises(RuntimeError, match="out_dtype must be the same as input dtype or fp32"):
            product(*there, out_dtype=torch.float64)
        with pytest.raises(RuntimeError, match="out_dtype must be the same as the dtype of the provided out"):
            product(
                *there, out_dtype=torch.float32, out=torch.empty(shape, device="fl:0", dtype=torch.float64)
            )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_grouped_mm(dtype):
    # Experts' products; the second has no rows.
    ends = torch.tensor([2, 2, 12], dtype=torch.int32)

    def product(a, b, ends):
        return F.grouped_mm(a, b, offs=ends)

    transposed = tensor(16, 12, dtype=dtype).t()  # PyTorch refuses strides that are no multiples of 16 bytes
    for a in (
        tensor(12, 16, dtype=dtype),
        transposed if dtype.itemsize == 4 else tensor(12, 32, dtype=dtype)[:, 16:],
    ):
        for b in (tensor(3, 16, 8, dtype=dtype), tensor(3, 8, 16, dtype=dtype).transpose(1, 2)):
            with no_fallback():
                check(product, a.requires_grad_(), b.requires_grad_(), ends, grad=True)
            # PyTorch leaves rows beyond the last offset as they are.
            check(lambda a, b, ends: product(a, b, ends)[:9], a.detach(), b.detach(), ends - ends // 4)
    with no_fallback():
        check(F.grouped_mm, tensor(3, 4, 16, dtype=dtype), tensor(3, 16, 8, dtype=dtype))
        ends = torch.tensor([3, 7, 16], dtype=torch.int32)
        check(product, tensor(8, 16, dtype=dtype), tensor(16, 24, dtype=dtype), ends)
    with pytest.raises(RuntimeError):
        F.grouped_mm(to_device(tensor(4, 16, dtype=dtype)), to_device(tensor(1, 8, 8, dtype=dtype)),
                     offs=to_device(ends[:1]))  # fmt: skip
