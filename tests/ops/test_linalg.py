import itertools

import pytest
import torch
from family import assert_same, check, layouts, no_fallback, tensor, to_device

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
BATCHES = [(), (3,), (2, 3), (0,)]


def well_conditioned(*shape, dtype=torch.float32, seed=0):
    """Triangles of it have inverses that are not much larger than it."""
    n = shape[-1]
    return tensor(*shape, dtype=dtype, seed=seed) / n + 2 * torch.eye(n, dtype=dtype)


def positive(*shape, dtype=torch.float32):
    a = tensor(*shape, dtype=dtype)
    return a @ a.mH / shape[-1] + torch.eye(shape[-1], dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 5, 32, 33, 100])
def test_triangular_systems(n, dtype):
    with no_fallback():
        for batch in BATCHES:
            a = well_conditioned(*batch, n, n, dtype=dtype)
            for upper in (False, True):
                for unit in (False, True):
                    check(lambda a, b: torch.linalg.solve_triangular(a, b, upper=upper, unitriangular=unit), a,
                          tensor(*batch, n, 4, dtype=dtype), rtol=1e-3, atol=1e-4)  # fmt: skip
                check(lambda a, b: torch.linalg.solve_triangular(a.mH, b, upper=upper, left=False), a,
                      tensor(*batch, 3, n, dtype=dtype), rtol=1e-3, atol=1e-4)  # fmt: skip
                check(lambda a, b: torch.triangular_solve(b, a, upper=upper, transpose=True), a,
                      tensor(*batch, n, 4, dtype=dtype), rtol=1e-3, atol=1e-4)  # fmt: skip


def test_triangular_layouts_and_out():
    with no_fallback():
        for a in layouts(well_conditioned(6, 6)):
            for b in layouts(tensor(6, 4)):
                check(lambda a, b: torch.linalg.solve_triangular(a, b, upper=True), a, b)
        out = torch.zeros(6, 8, device="fl:0")[:, ::2]
        a, b = well_conditioned(6, 6), tensor(6, 4)
        torch.linalg.solve_triangular(to_device(a), to_device(b), upper=False, out=out)
        assert_same(out, torch.linalg.solve_triangular(a, b, upper=False))
        check(
            lambda a, b: torch.linalg.solve_triangular(a, b, upper=True),
            well_conditioned(2, 3, 5, 5),
            tensor(5, 4),
        )
        check(lambda a, b: torch.linalg.solve_triangular(a, b, upper=True), well_conditioned(5, 5).requires_grad_(),
              tensor(5, 2).requires_grad_(), grad=True)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 4, 32, 40, 90])
def test_cholesky(n, dtype):
    with no_fallback():
        for batch in BATCHES:
            a = positive(*batch, n, n, dtype=dtype)
            for upper in (False, True):
                check(lambda t: torch.linalg.cholesky(t, upper=upper), a)
                if torch.__version__ < (2, 14):  # an error from then on
                    check(lambda t: torch.cholesky(t, upper=upper), a)
                check(lambda t: torch.linalg.cholesky_ex(t, upper=upper), a)
                factor = torch.linalg.cholesky(a, upper=upper)
                check(lambda f: torch.cholesky_inverse(f, upper=upper), factor, rtol=1e-3, atol=1e-4)
                check(lambda b, f: torch.cholesky_solve(b, f, upper=upper), tensor(*batch, n, 3, dtype=dtype), factor,
                      rtol=1e-3, atol=1e-4)  # fmt: skip


def test_cholesky_of_what_is_not_positive():
    a = torch.stack(
        [torch.eye(4), torch.diag(torch.tensor([1.0, 2, -1, 1])), torch.diag(torch.tensor([0.0, 1, 1, 1]))]
    )
    for t in (a, a.to(torch.complex64)):
        assert (
            torch.linalg.cholesky_ex(to_device(t)).info.tolist()
            == torch.linalg.cholesky_ex(t).info.tolist()
            == [0, 3, 1]
        )
        with pytest.raises(torch.linalg.LinAlgError, match="not positive-definite"):
            torch.linalg.cholesky(to_device(t))


def general(*shape, dtype):
    """Not symmetric, pivots far from the diagonal, well conditioned."""
    n = min(shape[-2:])
    return tensor(*shape, dtype=dtype) + 4 * torch.eye(*shape[-2:], dtype=dtype).roll(n // 2, -2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (33, 33), (90, 90), (70, 40), (40, 70), (6, 2), (2, 6), (3, 0)])
def test_lu(shape, dtype):
    near = {"rtol": 1e-3, "atol": 1e-3}
    with no_fallback():
        for batch in BATCHES:
            a = general(*batch, *shape, dtype=dtype) if min(shape) else tensor(*batch, *shape, dtype=dtype)
            check(torch.linalg.lu_factor, a, **near)
            check(torch.linalg.lu_factor_ex, a.mT, **near)
            p, low, up = check(torch.linalg.lu, a, **near)
            assert_same(p @ low @ up, a, **near)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_comes_from_lu(dtype):
    near = {"rtol": 1e-3, "atol": 1e-4}
    with no_fallback():
        for n in (0, 1, 2, 5, 40):
            for batch in BATCHES:
                a, b = general(*batch, n, n, dtype=dtype), tensor(*batch, n, 3, dtype=dtype)
                check(torch.linalg.inv, a, **near)
                check(torch.linalg.det, a / (6 if n > 10 else 1), rtol=2e-3, atol=1e-4)
                check(torch.linalg.slogdet, a, **near)
                check(torch.linalg.solve, a, b, **near)
                check(lambda a, b: torch.linalg.solve(a, b.mT, left=False), a, b, **near)
                if len(batch) == 1:
                    check(torch.linalg.solve, a, b[0, :, 0].expand(batch[0], n) if batch[0] else b[..., 0], **near)
        for t in layouts(general(6, 6, dtype=dtype)):
            for f in (torch.linalg.inv, torch.linalg.det, lambda t: torch.linalg.solve(t, t @ t)):
                check(f, t, **near)
                check(f, t.detach().requires_grad_(), grad=True, **near)


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_go_into_any_strides(dtype):
    """PyTorch's wrappers for the CPU put what they do not like into host memory."""
    near = {"rtol": 1e-3, "atol": 1e-4}
    a, s, b = general(5, 5, dtype=dtype), positive(5, 5, dtype=dtype), tensor(5, 5, dtype=dtype)
    lu, pivots = torch.linalg.lu_factor(a)
    square, wide = torch.empty(5, 5, dtype=dtype), torch.empty(5, 5, 2, dtype=dtype)
    for out in (square.new_empty(0), square, square.t(), wide[..., 0], square.new_empty(7)):
        with no_fallback():
            for f, *inputs in (
                (lambda a, o: torch.linalg.inv(a, out=o), a),
                (lambda a, b, o: torch.linalg.solve(a, b, out=o), a, b),
                (lambda a, o: torch.linalg.cholesky(a, out=o), s),
                (lambda a, o: torch.linalg.cholesky(a, upper=True, out=o), s),
                (lambda f, p, b, o: torch.linalg.lu_solve(f, p, b, out=o), lu, pivots, b),
                (lambda f, p, b, o: torch.linalg.lu_solve(f, p, b, left=False, adjoint=True, out=o), lu, pivots, b),
                (lambda a, b, o: torch.linalg.solve_triangular(a, b, upper=True, out=o), a, b),
                (lambda a, b, o: torch.triangular_solve(b, a, out=(o, o.new_empty(0)))[0], a, b),
                (lambda a, o: torch.linalg.lu_factor(a, out=(o, torch.empty(0, dtype=torch.int32, device=o.device)))[0],
                 a),
                (lambda a, o: torch.linalg.lu(a, out=(o.new_empty(0), o, o.new_empty(5, 5)))[1], a),
                (lambda f, p, o: torch.lu_unpack(f, p, out=(o.new_empty(5, 5), o.new_empty(0), o))[2], lu, pivots),
            ):  # fmt: skip
                check(f, *inputs, out, strides=True, **near)
    for f in (torch.linalg.inv, torch.linalg.det, torch.linalg.cholesky):
        with pytest.raises(RuntimeError, match="Expected out tensor to have device"):
            f(to_device(s), out=torch.empty(5, 5, dtype=dtype))
    for move in ((to_device, lambda t: t), (lambda t: t, to_device)):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            torch.linalg.solve(move[0](a), move[1](b))
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            torch.linalg.solve_triangular(move[0](a), move[1](b), upper=True)
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            torch.linalg.lu_solve(move[0](lu), move[0](pivots), move[1](b))
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            torch.lu_unpack(move[0](lu), move[1](pivots))


def test_lu_of_singular_matrices():
    a = torch.stack([torch.eye(4), torch.zeros(4, 4), torch.diag(torch.tensor([1.0, 2, 0, 1])), torch.ones(4, 4)])
    for t in (a, a.to(torch.complex64), a.double()):
        got, want = torch.linalg.lu_factor_ex(to_device(t)), torch.linalg.lu_factor_ex(t)
        assert got.info.tolist() == want.info.tolist() == [0, 1, 3, 2]
        assert_same(tuple(got), tuple(want))
        assert torch.linalg.det(to_device(t)).tolist() == [1, 0, 0, 0]
        assert torch.linalg.inv_ex(to_device(t)).info.tolist() == [0, 1, 3, 2]
        for f in (torch.linalg.inv, lambda x: torch.linalg.solve(x, x)):
            with pytest.raises(torch.linalg.LinAlgError, match="singular"):
                f(to_device(t))
        with pytest.raises(RuntimeError, match=r"\(Batch element 1\): U\[1,1\] is zero"):
            torch.linalg.lu_factor(to_device(t))
    for f in (torch.linalg.inv, torch.linalg.det, torch.linalg.slogdet):
        with pytest.raises(RuntimeError, match="square"):
            f(to_device(tensor(3, 4)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 5), (3, 70, 40), (40, 70), (0, 3, 3)])
def test_lu_without_pivots(shape, dtype):
    """The CPU has none."""
    n = min(shape[-2:])
    a = tensor(*shape, dtype=dtype) / n + 2 * torch.eye(*shape[-2:], dtype=dtype)
    with no_fallback():
        lu, pivots = torch.linalg.lu_factor(to_device(a), pivot=False)
        p, low, up = torch.linalg.lu(to_device(a), pivot=False)
    assert p.numel() == 0 and (pivots.cpu() == torch.arange(1, n + 1)).all()
    assert_same(low @ up, a, rtol=1e-3, atol=1e-4)
    low = lu.tril(-1)[..., :n] + torch.eye(shape[-2], n, dtype=dtype, device=lu.device)
    assert_same(low @ lu.triu()[..., :n, :], a, rtol=1e-3, atol=1e-4)


def test_pivots_among_equals():
    """The first of several is taken, as by LAPACK."""
    a = torch.tensor([[1.0, 2, 3], [-1, 5, 1], [1, 7, 2]])
    assert_same(tuple(torch.linalg.lu_factor(to_device(a))), tuple(torch.linalg.lu_factor(a)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_factored_systems(dtype):
    for n in (1, 3, 40, 130):
        for batch in ((), (3,)):
            a = well_conditioned(*batch, n, n, dtype=dtype).flip(-2)
            lu, pivots = torch.linalg.lu_factor(a)
            with no_fallback():
                check(torch.lu_unpack, lu, pivots)
                for adjoint in (False, True):
                    check(lambda f, p, b: torch.linalg.lu_solve(f, p, b, adjoint=adjoint), lu, pivots,
                          tensor(*batch, n, 3, dtype=dtype), rtol=1e-3, atol=1e-4)  # fmt: skip
                    check(lambda f, p, b: torch.linalg.lu_solve(f, p, b, left=False, adjoint=adjoint), lu, pivots,
                          tensor(*batch, 3, n, dtype=dtype), rtol=1e-3, atol=1e-4)  # fmt: skip
    lu, pivots = torch.linalg.lu_factor(tensor(5, 3, dtype=dtype))
    check(torch.lu_unpack, lu, pivots)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 5), (7, 4), (2, 3, 6, 2), (0, 3, 3), (3, 0), (50, 40)])
def test_reflectors(shape, dtype):
    a, tau = torch.geqrf(tensor(*shape, dtype=dtype))
    with no_fallback():
        check(torch.linalg.householder_product, a, tau, rtol=1e-3, atol=1e-4)
        if tau.shape[-1] > 1:
            check(torch.linalg.householder_product, a, tau[..., :1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_matrix_exp(dtype):
    with no_fallback():
        for shape in [(1, 1), (4, 4), (3, 5, 5), (2, 0, 0), (0, 3, 3)]:
            for scale in (1e-6, 0.1, 1, 8):
                check(torch.linalg.matrix_exp, tensor(*shape, dtype=dtype) * scale, rtol=2e-3, atol=1e-4)
        mixed = tensor(4, 3, 3, dtype=dtype) * torch.tensor([0, 1e-3, 1, 10]).view(4, 1, 1).to(dtype)
        check(torch.linalg.matrix_exp, mixed, rtol=2e-3, atol=1e-4)
    check(torch.linalg.matrix_exp, tensor(3, 3, dtype=dtype).requires_grad_(), grad=True, rtol=1e-3)
    assert torch.linalg.matrix_exp(to_device(torch.full((2, 2), float("nan"), dtype=dtype))).isnan().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_cholesky_solve_gives_columns(dtype):
    for shape, right in [((3, 3), (3, 2)), ((2, 3, 3), (2, 3, 4)), ((2, 1, 40, 40), (5, 40, 3))]:
        factor = torch.linalg.cholesky(positive(*shape, dtype=dtype))
        b = tensor(*right, dtype=dtype)
        with no_fallback():
            for upper in (False, True):
                f = factor.mH.contiguous() if upper else factor
                check(torch.cholesky_solve, b, f, upper=upper, strides=True, rtol=1e-3, atol=1e-4)
                check(torch.cholesky_solve, b.mT.contiguous().mT, f, upper=upper, strides=True, rtol=1e-3, atol=1e-4)
            check(lambda b, f, o: torch.cholesky_solve(b, f, out=o), b, factor, torch.zeros(0, dtype=dtype), rtol=1e-3, atol=1e-4)  # fmt: skip


def test_small():
    with no_fallback():
        for dtype in (torch.float32, torch.int64, torch.int32, torch.complex64, torch.float16):
            for t in layouts(tensor(4, 5, dtype=dtype)):
                check(torch.trace, t)
            check(torch.linalg.cross, tensor(4, 3, dtype=dtype), tensor(4, 3, dtype=dtype, seed=2))
        check(lambda a, b: torch.linalg.cross(a, b, dim=0), tensor(3, 5), tensor(3, 1))
        check(torch.trace, tensor(0, 3))
        check(torch.trace, tensor(3, 3).requires_grad_(), grad=True)
    with pytest.raises(RuntimeError, match="expected a matrix"):
        torch.trace(to_device(tensor(3)))
    with pytest.raises(RuntimeError, match="expected scalar type Half but found Float"):
        torch.linalg.cross(to_device(tensor(4, 3, dtype=torch.float16)), to_device(tensor(4, 3)))


def test_triangular_solves_of_views_that_wait_for_their_operation():
    views = [lambda t: t, lambda t: t.conj(), torch._neg_view]
    matrix, right = well_conditioned(5, 5, dtype=torch.complex64), tensor(5, 3, dtype=torch.complex64)
    for of_a, of_b in itertools.product(views, repeat=2):
        a, b = of_a(to_device(matrix)), of_b(to_device(right.clone()))
        want = torch.linalg.solve_triangular(of_a(matrix).resolve_neg(), of_b(right).resolve_neg(), upper=True)
        assert_same(torch.linalg.solve_triangular(a, b, upper=True), want, rtol=1e-4, atol=1e-4)
        for out in (torch.empty_like(b), of_a(torch.empty(0, dtype=b.dtype, device=b.device)), b):
            torch.linalg.solve_triangular(a, b, upper=True, out=out)
            assert_same(out.resolve_conj().resolve_neg(), want.resolve_conj(), rtol=1e-4, atol=1e-4)
