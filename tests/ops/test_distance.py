"""cdist, pdist, cross products, and the small operators beside them."""

import pytest
import torch
from family import check, no_fallback, tensor, to_device

INF = float("inf")


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, INF])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cdist(p, dtype):
    a, b = tensor(5, 4, dtype=dtype).requires_grad_(), tensor(7, 4, dtype=dtype, seed=1).requires_grad_()
    with no_fallback():
        check(torch.cdist, a, b, p=p, grad=True, rtol=1e-3)
        check(torch.cdist, a.detach(), a.detach(), p=p)
    check(torch.cdist, tensor(2, 1, 3, 4, dtype=dtype), tensor(5, 2, 4, dtype=dtype), p=p)
    check(torch.cdist, tensor(4, 5, dtype=dtype).t(), tensor(7, 4, dtype=dtype), p=p)
    check(torch.cdist, tensor(0, 4, dtype=dtype), b.detach(), p=p)
    check(torch.cdist, tensor(3, 0, dtype=dtype), tensor(2, 0, dtype=dtype), p=p)


def test_euclidean_by_products():
    check(
        torch.cdist,
        tensor(40, 8).requires_grad_(),
        tensor(30, 8, seed=2).requires_grad_(),
        grad=True,
        rtol=1e-3,
        atol=1e-4,
    )
    check(
        lambda a, b: torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist"),
        tensor(40, 8),
        tensor(30, 8, seed=2),
    )


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, INF])
def test_pdist(p):
    with no_fallback():
        check(torch.pdist, tensor(6, 4).requires_grad_(), p=p, grad=True, rtol=1e-3)
    check(torch.pdist, tensor(1, 4), p=p)
    check(torch.pdist, tensor(3, 0), p=p)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8, torch.int64, torch.complex64])
def test_cross(dtype):
    a, b = tensor(4, 3, 5, dtype=dtype), tensor(4, 3, 5, dtype=dtype, seed=1)
    with no_fallback():
        check(torch.linalg.cross, a, b, dim=1)
        check(torch.linalg.cross, a, b[:1], dim=1)
        check(
            lambda a, b, o: torch.linalg.cross(a, b, dim=1, out=o),
            a,
            b,
            torch.zeros(5, 3, 4, dtype=dtype).transpose(0, 2),
        )
        check(torch.cross, a.transpose(0, 1).contiguous(), b.transpose(0, 1), dim=0)
    check(torch.linalg.cross, torch.zeros(0, 3, dtype=dtype), torch.zeros(0, 3, dtype=dtype))
    with pytest.raises(RuntimeError):
        torch.linalg.cross(to_device(a), to_device(b), dim=0)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
)
def test_hash_tensor(dtype):
    x = tensor(5, 6, 7, dtype=dtype)
    with no_fallback():
        for dims in ([], [0], [1, 2]):
            got, want = torch.hash_tensor(to_device(x), dims), torch.hash_tensor(x, dims)
            assert got.dtype == want.dtype and got.shape == want.shape and (got.cpu() == want).all()


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int8, torch.complex64]
)
def test_logspace(dtype):
    for args in ((0, 2, 5), (1, 0, 4), (2, 2, 1), (0, 1, 0)):
        want, got = (torch.logspace(*args, base=3, dtype=dtype, device=d) for d in ("cpu", "fl"))
        torch.testing.assert_close(got.cpu(), want, rtol=2e-2 if dtype == torch.bfloat16 else 1e-5, atol=0)
    want, got = (torch.logspace(-1.5, 2.7, 9, dtype=dtype, device=d) for d in ("cpu", "fl"))
    torch.testing.assert_close(got.cpu(), want, rtol=2e-2 if dtype == torch.bfloat16 else 1e-5, atol=0)


def test_frexp_and_shuffle():
    for dtype in (torch.float32, torch.float64, torch.float16):
        with no_fallback("aten::frexp"):
            check(torch.frexp, tensor(5, 6, dtype=dtype))
            check(torch.frexp, tensor(6, 5, dtype=dtype).t())
    with no_fallback():
        check(lambda x: torch.channel_shuffle(x, 2), tensor(2, 4, 3, 3))
        check(torch.nn.functional.channel_shuffle, tensor(2, 6, 3), groups=3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_alpha_beside_half_tensors(dtype):
    """A sum takes numbers in the tensor's dtype: bit for bit as the CPU."""
    x = tensor(256, dtype=dtype)  # the CPU's loop for what is left over rounds otherwise
    for f in (lambda x: x + 0.3337, lambda x: x.add(x, alpha=0.3337), lambda x: x.sub(x, alpha=0.3337)):
        check(f, x, rtol=0, atol=0)
