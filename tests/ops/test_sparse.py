"""Sparse tensors in every layout, against the CPU: values, structure, gradients, errors."""

import contextlib
import copy
import io
import itertools
import pickle
import warnings

import pytest
import torch
import torch.nn.functional as F
from child import run_forked
from family import DEVICE, no_fallback, tensor

warnings.filterwarnings("ignore", message="Sparse .* tensor support is in beta")

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
DTYPES = (*FLOATS, torch.complex64, torch.complex128, torch.int64, torch.int32, torch.uint8, torch.bool)
TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 5e-2, torch.float32: 1e-4, torch.complex64: 1e-4}
INDICES = {
    torch.sparse_csr: ("crow_indices", "col_indices"), torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"), torch.sparse_bsc: ("ccol_indices", "row_indices"),
    torch.sparse_coo: (), torch.strided: (),
}  # fmt: skip


def same(actual, expected, device=DEVICE):
    if isinstance(expected, tuple | list):
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            same(a, e, device)
        return
    if not isinstance(expected, torch.Tensor):
        assert actual == expected
        return
    a, e = actual.detach(), expected.detach()
    assert a.device == torch.device(device)
    assert (a.dtype, a.shape, a.layout) == (e.dtype, e.shape, e.layout)
    if e.layout == torch.sparse_coo:
        assert (a.sparse_dim(), a.dense_dim()) == (e.sparse_dim(), e.dense_dim())
        if a.is_coalesced() and e.is_coalesced():
            assert torch.equal(a.indices().cpu(), e.indices())
    for name in INDICES[e.layout]:
        there, here = getattr(a, name)(), getattr(e, name)()
        assert there.dtype == here.dtype and torch.equal(there.cpu(), here), name
    a, e = dense(a.cpu()), dense(e)
    t = TOLERANCE.get(e.dtype, 1e-9)
    torch.testing.assert_close(a, e, rtol=t, atol=t, equal_nan=True)


def moved(x):
    return x.detach().to(DEVICE).requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x


def dense(x):
    return x.to_dense() if isinstance(x, torch.Tensor) and x.layout != torch.strided else x


def check(fn, *args):
    """The device's result is the CPU's; where the CPU has no sparse kernel, what dense tensors give."""
    args = [x.detach() if isinstance(x, torch.Tensor) else x for x in args]
    try:
        expected = fn(*(x.clone() if isinstance(x, torch.Tensor) else x for x in args))
    except Exception as error:
        if not any(words in str(error) for words in ("not implemented for", "MKL", "on CPU")):
            raise
        try:
            expected = fn(*(dense(x).clone() for x in args))
        except Exception:
            return
        actual = dense(fn(*map(moved, args)))
        same(actual, dense(expected))
        return
    same(fn(*map(moved, args)), expected)


def check_or_both_refuse(fn, *args):
    try:
        fn(*(x.clone() for x in args))
    except RuntimeError:
        with pytest.raises(RuntimeError):
            fn(*map(moved, args))
        return
    check(fn, *args)


def check_gradients(fn, *args):
    def run(*given):
        leaves = [x.clone().requires_grad_() for x in given]
        out = fn(*leaves)
        out = dense(out)
        (out * torch.arange(out.numel(), device=out.device).view(out.shape)).sum().backward()
        return [x.grad for x in leaves]

    check(run, *args)


def coo(*sizes, nnz=20, dtype=torch.float32, dense=0):
    """Not coalesced: places repeat."""
    places = [
        torch.randint(0, s, (nnz,), generator=torch.Generator().manual_seed(s + k))
        for k, s in enumerate(sizes[: len(sizes) - dense])
    ]
    return torch.sparse_coo_tensor(
        torch.stack(places), tensor(nnz, *sizes[len(sizes) - dense :], dtype=dtype), sizes
    )


def matrix(m, n, dtype=torch.float32, seed=0):
    keep = torch.rand(m, n, generator=torch.Generator().manual_seed(seed + m)) < 0.4
    return tensor(m, n, dtype=dtype, seed=seed) * keep


def samples(dtype):
    yield coo(5, 6, dtype=dtype)
    yield coo(5, 6, dtype=dtype).coalesce()
    yield coo(5, 6, 3, dtype=dtype, dense=1)
    yield coo(4, 3, 5, dtype=dtype, nnz=30)
    yield torch.sparse_coo_tensor(torch.zeros(2, 0, dtype=torch.int64), tensor(0, dtype=dtype), (5, 6))
    yield torch.sparse_coo_tensor(torch.zeros(2, 0, dtype=torch.int64), tensor(0, dtype=dtype), (0, 6))
    yield coo(7, dtype=dtype, nnz=9)


LAYOUTS = {
    "coo": lambda d: d.to_sparse(),
    "csr": lambda d: d.to_sparse_csr(),
    "csc": lambda d: d.to_sparse_csc(),
    "bsr": lambda d: d.to_sparse_bsr((2, 3)),
    "bsc": lambda d: d.to_sparse_bsc((2, 3)),
}
layouts = pytest.mark.parametrize("layout", LAYOUTS)
dtypes = pytest.mark.parametrize("dtype", DTYPES)


@dtypes
def test_coordinates(dtype):
    number = dtype != torch.bool
    with no_fallback():
        for t in samples(dtype):
            last = t.dim() - 1
            check(lambda t: t.coalesce(), t)
            check(lambda t: t.to_dense(), t)
            check(lambda t: t + t, t)
            check(lambda t: t.coalesce() + t.coalesce(), t)
            check(lambda t: t.clone().add_(t), t)
            check(lambda t: torch.add(t.to_dense(), t), t)
            check(lambda t: t.to_dense().transpose(0, last).contiguous().transpose(0, last).add_(t), t)
            check(lambda t: t * t, t)
            check(lambda t: t.coalesce() * t.coalesce(), t)
            check(lambda t: t * t.to_dense(), t)
            check(lambda t: torch.stack([t.to_dense(), t.to_dense()]) * t, t)
            check(lambda t: t.to_dense().sparse_mask(t), t)
            check(lambda t: (t + t).sparse_mask(t.coalesce()), t)
            check(lambda t: t._sparse_mask_projection(t.coalesce()), t)
            check(lambda t: t.transpose(0, t.sparse_dim() - 1), t)
            check(lambda t: torch.cat([t, t]), t)
            check(lambda t: t.unsqueeze(1), t)
            check(lambda t: torch.zeros_like(t).copy_(t), t)
            check(lambda t: t.to_dense().to_sparse(), t)
            check(lambda t: t.to_dense().to_sparse(1), t)
            check(lambda t: t.to(torch.complex128), t)
            if number:
                check(lambda t: t * 3, t)
                check(lambda t: t.mul_(2), t)
                check(lambda t: t - t.coalesce(), t)
                check(lambda t: torch.add(t, t, alpha=3), t)
                check(lambda t: t.abs() if not t.is_complex() else -t, t)
            for dim in (0, last):
                check_or_both_refuse(lambda t, dim=dim: torch.sparse.sum(t, dim), t)
            if t.shape[0] > 2:
                check(lambda t: t.index_select(0, torch.tensor([1, 1, 0, -1, 2], device=t.device)), t)
                check(lambda t: t.index_select(last, torch.tensor([2, 1, 2], device=t.device)), t)
                check(lambda t: t.select(0, 1), t)
                check(lambda t: t.narrow_copy(0, 1, 2), t)


def number(*values, coalesced):
    return torch.sparse_coo_tensor(
        torch.zeros(0, len(values)), torch.tensor(values), (), is_coalesced=coalesced
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8])
def test_numbers_that_are_sparse(dtype):
    """Which elements the product keeps does not depend on the order of the factors."""
    ones = [number(3.0, coalesced=True), number(2.0, 1.0, coalesced=False), number(3.0, coalesced=False)]
    others = [number(4, 5, coalesced=False), number(4, coalesced=True), number(6, coalesced=False)]
    others += [coo(5, dtype=dtype), coo(5, 3, dtype=dtype, dense=1).coalesce()]
    with no_fallback():
        for one, other in itertools.product(ones, others):
            for a, b in ((one, other), (other, one)):
                check(lambda a, b: [a * b, (a * b)._nnz(), (a * b).is_coalesced()], a, b)
        for t in others:  # without a value the CPU multiplies by one that is not initialised
            empty = number(coalesced=True).to(DEVICE)
            assert (t.to(DEVICE) * empty)._nnz() == (empty * t.to(DEVICE))._nnz() == 0


def test_new_tensors_are_of_the_layout_that_is_asked_for():
    """Also once there is a fallback, which without a tensor among the arguments knows the layout alone."""
    strided = torch.ones(2, 3, device=DEVICE)
    assert strided.to_sparse().layout == torch.sparse_coo
    for layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        for fn in (
            lambda: torch.empty_like(strided, layout=layout),
            lambda: torch.empty_strided((2, 3), (3, 1), layout=layout, device=DEVICE),
        ):
            with pytest.raises(NotImplementedError, match=r"Could not run 'aten::empty_strided'"):
                fn()


@pytest.mark.parametrize(
    "name",
    [
        "sin",
        "sqrt",
        "sign",
        "floor",
        "tanh",
        "isnan",
        "relu",
        "expm1",
        "signbit",
        "asin",
        "neg",
        "nan_to_num",
    ],
)
def test_unary(name):
    fn = getattr(torch, name)
    with no_fallback():
        for t in samples(torch.float32):
            check(fn, t)
        for make in list(LAYOUTS.values())[1:] if name != "nan_to_num" else ():
            check(fn, make(matrix(6, 9)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_softmax(dtype):
    for t in samples(dtype):
        for dim in range(t.dim()):
            check(lambda t, dim=dim: torch.sparse.softmax(t, dim), t)
            check(lambda t, dim=dim: torch.sparse.log_softmax(t, dim), t)


@dtypes
@layouts
def test_layouts(layout, dtype):
    make = LAYOUTS[layout]
    with no_fallback():
        for shape in ((6, 9), (0, 6), (8, 6)):
            d = matrix(*shape, dtype=dtype)
            check(make, d)
            t = make(d)
            for to in LAYOUTS.values():
                check_or_both_refuse(to, t)
            check(lambda t: t.to_dense(), t)
            check(lambda t: t.t(), t)
            check(lambda t: t.clone(), t)
            check(lambda t: t.zero_(), t)
            check(lambda t: t.to(torch.complex128), t)
            check_or_both_refuse(lambda t, u: u.copy_(t), t, make(d if dtype == torch.bool else d * 2))
            if dtype != torch.bool:
                check_or_both_refuse(lambda t: t * 2, t)
            if dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128):
                other = make(matrix(*shape, dtype=dtype, seed=5))
                if layout in ("coo", "csr") or (
                    layout == "bsr" and shape[0]
                ):  # the CPU's sums of others fail
                    check(lambda t, u: t + u, t, other)
                    check(lambda t, u: t.add_(u, alpha=2), t, other)
                if layout in ("coo", "csr"):
                    check(lambda t, u: t * u, t, other)
                if layout in ("coo", "csr", "csc"):
                    check(lambda t, u: u + t, t, matrix(*shape, dtype=dtype, seed=3))


@layouts
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128])
def test_products(layout, dtype):
    make = LAYOUTS[layout]
    with no_fallback():
        for m, n in ((6, 9), (0, 6), (8, 6)):
            t = make(matrix(m, n, dtype))
            x, wide = tensor(n, 5, dtype=dtype), tensor(m, 5, dtype=dtype)
            check(lambda t, x: t @ x, t, x)
            check(lambda t, x: t @ x, t, x.t().contiguous().t())
            check(
                lambda t, x: torch.mm(t, x, out=torch.empty(len(t), 5, dtype=x.dtype, device=x.device)), t, x
            )
            check(lambda t, x, s: torch.addmm(s, t, x, beta=2, alpha=3), t, x, wide)
            check(lambda t, x, s: torch.addmm(s, t, x), t, x, tensor(5, dtype=dtype))
            if layout in ("coo", "csr", "csc"):
                check(lambda t, x: t @ x, t, tensor(n, dtype=dtype))
            if layout in ("csr", "csc"):
                check(lambda t, x: x @ t, t, tensor(5, m, dtype=dtype))
                check(lambda t: (t @ t.t()).to_dense(), t)
            if layout == "coo":
                check(lambda t: torch.sparse.mm(t, t.t()), t)
                check(torch.hspmm, t, x)
                check(torch.smm, t, x)
                check(
                    lambda t, x, s: torch.sspaddmm(s, t, x, beta=2, alpha=3),
                    t,
                    x,
                    matrix(m, 5, dtype).to_sparse(),
                )
    batch = torch.stack([matrix(4, 6, dtype), matrix(4, 6, dtype, seed=2)]).to_sparse()
    check(torch.bmm, batch, tensor(2, 6, 3, dtype=dtype))


VIEWS = {"conj": lambda v: v.conj(), "neg": torch._neg_view, "imag": lambda v: v.conj().imag}


@pytest.mark.parametrize("view", VIEWS)
@layouts
def test_views_that_wait_for_their_operation(layout, view):
    """Conjugated and negated views as the dense factor, the addend, the output, and as a sparse tensor's values.

    Against dense products: with coordinates, PyTorch's CPU takes the views' elements as they are stored."""
    view_of, t = VIEWS[view], matrix(4, 6, dtype=torch.complex64)
    b, c = (tensor(*s, dtype=torch.complex64, seed=n) for n, s in enumerate([(6, 2), (4, 2)]))
    sparse, m, x, y = t, b, view_of(b), view_of(c)
    if view == "imag":
        sparse, m = t.real, b.real
    s, dm, dx, dy = (
        LAYOUTS[layout](sparse.to(DEVICE)),
        m.to(DEVICE),
        view_of(b.to(DEVICE)),
        view_of(c.to(DEVICE)),
    )
    with no_fallback():
        same(s @ dx, sparse @ x)
        same(s @ dx[:, 0], sparse @ x[:, 0])
        same(torch.addmm(dy, s, dx, alpha=2, beta=3), torch.addmm(y, sparse, x, alpha=2, beta=3))
        out = view_of(torch.zeros(4, 2, dtype=torch.complex64, device=DEVICE))
        same(torch.addmm(dy, s, dx, out=out).resolve_conj().resolve_neg(), torch.addmm(y, sparse, x))
        if layout != "coo":
            same(dx.mT @ s.mT, x.mT @ sparse.mT)
        else:
            batched = torch.bmm(torch.stack([s, s]), torch.stack([dm, dm]).conj())
            same(batched, torch.bmm(torch.stack([sparse, sparse]), torch.stack([m, m]).conj()))
        at, values = (sparse.to_sparse().indices(), sparse.to_sparse().values())
        there = torch.complex(values, values) if view == "imag" else values
        stored = torch.sparse_coo_tensor(at.to(DEVICE), view_of(there.to(DEVICE)), (4, 6))
        same(stored @ dm, torch.sparse_coo_tensor(at, view_of(there), (4, 6)).to_dense() @ m)


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_compressed_rows(index):
    with no_fallback():
        for dtype in (torch.float32, torch.float64):
            c = matrix(6, 9, dtype).to_sparse_csr()
            c = torch.sparse_csr_tensor(
                c.crow_indices().to(index), c.col_indices().to(index), c.values(), c.shape
            )
            a, b, x = tensor(6, 7, dtype=dtype), tensor(7, 9, dtype=dtype), tensor(9, 4, dtype=dtype)
            check(lambda c, a, b: torch.sparse.sampled_addmm(c, a, b, beta=2, alpha=3), c, a, b)
            check(
                lambda c, a, b: torch.sparse.sampled_addmm(c, a, b),
                c,
                torch.stack([a, -a]),
                torch.stack([b, b]),
            )
            for reduce in ("sum", "mean", "amax", "amin"):
                check(lambda c, x, r=reduce: torch.sparse.mm(c, x, r), c, x)
                check_gradients(lambda c, x, r=reduce: torch.sparse.mm(c, x, r), c, x)
            for dim in (0, 1, (0, 1)):
                check(lambda c, d=dim: torch._sparse_csr_sum(c, d, True), c)
                check(lambda c, d=dim: torch._sparse_csr_prod(c, d, True), c)
            check(lambda c: c + c, c)
            check(lambda c, x: c @ x, c, x)


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_gradients(layout):
    t = LAYOUTS[layout](matrix(6, 9))
    with no_fallback():
        check_gradients(lambda t: t.to_dense(), t)
        check_gradients(lambda t, x: t @ x, t, tensor(9, 3))
        check_gradients(lambda t, x, s: torch.sparse.addmm(s, t, x), t, tensor(9, 3), tensor(6, 3))
        check_gradients(lambda t: t * 2, t)
    if layout != "coo":
        return
    for given in (t, coo(6, 9)):
        for fn in (
            lambda t: torch.sparse.sum(t), lambda t: torch.sparse.sum(t, 0), lambda t: torch.sparse.sum(t, (0, 1)),
            lambda t: t * t, lambda t: t + t, lambda t: torch.sparse.mm(t, t.t()), lambda t: t.coalesce().values(),
            lambda t: torch.sparse.softmax(t, 1), lambda t: torch.sparse.log_softmax(t, 0),
        ):  # fmt: skip
            check_gradients(fn, given)
    place = torch.tensor([[0, 1, 1], [2, 0, 0]])
    check_gradients(lambda v: torch.sparse_coo_tensor(place.to(v.device), v, (3, 4)).to_dense(), tensor(3))
    check_gradients(lambda d: d.to_sparse(), matrix(5, 6))
    check_gradients(lambda d: torch.gather(d, 1, place.to(d.device), sparse_grad=True), tensor(2, 3))


@pytest.mark.parametrize("make", [
    lambda p: torch.optim.SGD(p, lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    lambda p: torch.optim.SparseAdam(p, lr=0.1), lambda p: torch.optim.Adagrad(p, lr=0.1),
])  # fmt: skip
def test_embedding_and_its_optimizers(make):
    def train(weight, index):
        m = torch.nn.Embedding(*weight.shape, sparse=True, device=weight.device)
        with torch.no_grad():
            m.weight.copy_(weight)
        optimizer = make(m.parameters())
        for _ in range(4):
            optimizer.zero_grad()
            (m(index).pow(2).sum(-1) * torch.arange(3, device=weight.device)).sum().backward()
            assert m.weight.grad.is_sparse
            optimizer.step()
        return m.weight.detach()

    with no_fallback():
        check(train, tensor(5, 4), torch.tensor([[0, 2, 2], [3, 1, 0]]))


def test_embedding_padding():
    def run(weight, index):
        w = weight.clone().requires_grad_()
        F.embedding(index, w, padding_idx=2, sparse=True).pow(2).sum().backward()
        return w.grad

    check(run, tensor(5, 4), torch.tensor([[0, 2, 2], [3, 1, 0]]))


@layouts
def test_copies_of_all_kinds(layout):
    here = LAYOUTS[layout](matrix(6, 9))
    there = here.to(DEVICE)
    file = io.BytesIO()
    torch.save(there, file)
    file.seek(0)
    same(torch.load(file), here)
    file.seek(0)
    assert torch.equal(torch.load(file, map_location="cpu").to_dense(), here.to_dense())
    if layout == "coo":  # PyTorch's deepcopy knows no other
        same(copy.deepcopy(there), here)
    same(pickle.loads(pickle.dumps(there)), here)
    assert there.cpu().layout == here.layout and torch.equal(there.cpu().to_dense(), here.to_dense())
    assert "device='" in repr(there) and not there.is_pinned()


@pytest.mark.skipif(torch.fl.device_count() < 2, reason="needs two devices")
@layouts
def test_second_device(layout):
    here = LAYOUTS[layout](matrix(6, 9))
    there = here.to("fl:1")
    same(there, here, "fl:1")
    same(there + there, here + here, "fl:1")
    same(there @ tensor(9, 2).to("fl:1"), here.to_dense() @ tensor(9, 2), "fl:1")
    same(there.to_sparse(), here.to_sparse(), "fl:1")
    same(there.to(DEVICE), here)
    for other in (here.to(DEVICE), here):
        with pytest.raises(RuntimeError, match="device"):
            there + other
    with pytest.raises(RuntimeError, match="device"):
        there @ tensor(9, 2).to(DEVICE)


def test_bad_indices_are_said_in_pytorchs_words():
    def words(make):
        with pytest.raises(RuntimeError) as error:
            make()
        return str(error.value).split("\n")[0]

    place, values = torch.tensor([[0, 9], [1, 2]]), torch.ones(2)
    for indices, sizes in ((place, (3, 4)), (-place, (3, 4)), (place, (3, 4, 5))):
        here, there = (
            words(
                lambda d=d: torch.sparse_coo_tensor(indices.to(d), values.to(d), sizes, check_invariants=True)
            )
            for d in ("cpu", DEVICE)
        )
        assert here == there
    rows = (
        ([0, 1, 2], [0, 9]),
        ([1, 1, 2], [0, 1]),
        ([0, 2, 1], [0, 1]),
        ([0, 2, 2], [1, 0]),
        ([0, 2, 2], [1, 1]),
        ([0, 1, 3], [0, 1]),
    )
    for crow, col in rows:
        here, there = (
            words(lambda d=d: torch.sparse_csr_tensor(
                torch.tensor(crow, device=d), torch.tensor(col, device=d), values.to(d), (2, 3), check_invariants=True))
            for d in ("cpu", DEVICE)
        )  # fmt: skip
        assert here == there
    torch.sparse_csr_tensor(
        torch.tensor([0, 1, 2], device=DEVICE),
        torch.tensor([2, 0], device=DEVICE),
        values.to(DEVICE),
        (2, 3),
        check_invariants=True,
    )


def test_indices_that_nobody_checked_fault_and_the_process_goes_on():
    bad = torch.sparse_coo_tensor(
        torch.tensor([[0, 9], [1, 2]], device=DEVICE), torch.ones(2, device=DEVICE), (3, 4)
    )
    rows = torch.sparse_csr_tensor(
        torch.tensor([0, 1, 2], device=DEVICE),
        torch.tensor([0, 50], device=DEVICE),
        torch.ones(2, device=DEVICE),
        (2, 3),
    )
    for use, error in (
        (lambda: bad.to_dense(), IndexError),
        (lambda: bad @ torch.ones(4, 2, device=DEVICE), RuntimeError),  # as the CPU's
        (lambda: rows @ torch.ones(3, 2, device=DEVICE), RuntimeError),
    ):
        with pytest.raises(error, match="out of bounds|out of range"):
            use().cpu()
    check(lambda t: t.coalesce(), coo(5, 6))


def test_row_pointers_that_nobody_checked_stay_inside():
    rows = torch.sparse_csr_tensor(
        torch.tensor([0, 99, -5], device=DEVICE),
        torch.tensor([0, 1], device=DEVICE),
        torch.ones(2, device=DEVICE),
        (2, 3),
    )
    with contextlib.suppress(RuntimeError):
        (rows @ torch.ones(3, 2, device=DEVICE)).cpu()
    check(lambda t: t.coalesce(), coo(5, 6))


def test_many_elements():
    t = coo(1024, 1024, nnz=70000)
    check(lambda t: t.coalesce(), t)
    check(lambda t: t.to_sparse_csr(), t)
    check(lambda t, x: t @ x, t, tensor(1024, 3))


def test_what_only_the_cpu_has_is_announced_and_what_nobody_has_is_refused():
    c = (2 * torch.eye(4)).to_sparse_csr()
    before = torch.fl.op_report().get("aten::triangular_solve", {"fallback": 0})["fallback"]
    check(lambda a, b: torch.triangular_solve(b, a, upper=False)[0], c, torch.ones(4, 2))
    assert torch.fl.op_report()["aten::triangular_solve"]["fallback"] == before + 1
    for fn in (torch.cos, lambda t: t.max()):
        with pytest.raises(NotImplementedError, match="Could not run"):
            fn(coo(5, 6).to(DEVICE))


def test_the_first_sparse_tensor_of_a_process_falls_back_too():
    # The fallback for these tensors is set when the first is made.
    for made in ("x.to_sparse()", "x.cpu().to_sparse().to('fl')", "torch.zeros(3, device='fl', layout=torch.sparse_coo)",
                 "torch.sparse_coo_tensor([[0], [1]], [2.0], (2, 2), device='fl')"):  # fmt: skip
        done = run_forked(f"import torch; x = torch.eye(3, device='fl'); torch.cos({made})", check=False)
        assert "neither this device nor PyTorch's CPU has a kernel for them" in done.stderr, done.stderr
