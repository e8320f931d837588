"""Fourier transforms: lengths with and without large factors, real and complex, layouts, norms."""

from __future__ import annotations

import pytest
import torch

# Odd, even, a power of two, prime, twice a prime, with a prime factor above 31; from 4096 on, one line is a matrix.
LENGTHS = (1, 2, 3, 16, 97, 194, 256, 509, 1000, 2018, 4096, 20014, 65536, 3 * 65537)
EPSILON = {torch.float32: 2**-23, torch.float64: 2**-52}


def close(got: torch.Tensor, want: torch.Tensor, length: int) -> None:
    """Errors of a transform grow with the logarithm of its length, in units of its largest result."""
    assert got.shape == want.shape and got.dtype == want.dtype
    bound = 8 * EPSILON[want.real.dtype] * max(1, length.bit_length()) * float(want.abs().max())
    assert float((got.cpu() - want).abs().max()) <= bound


def layouts(n: int, dtype: torch.dtype):
    """(tensor, dimension): lines side by side, one after another, far apart, backwards, from an odd place."""
    many = 19 if n < 5000 else 3
    x = torch.randn(many, n + 1, dtype=dtype)
    yield x[:, :n], 1
    yield x[:, 1:], 1
    yield x[:, :n].T.contiguous(), 0
    yield x[0, :n], 0
    yield x[:, :n].unfold(1, n, 1).transpose(1, 2).contiguous(), 1
    yield x[:, :n].unsqueeze(1).expand(many, 2, n), -1


@pytest.mark.parametrize("dtype", EPSILON, ids=str)
@pytest.mark.parametrize("n", LENGTHS)
def test_real(n, dtype):
    torch.manual_seed(n)
    for x, dim in layouts(n, dtype):
        spectrum = torch.fft.rfft(x, dim=dim, norm="ortho")
        close(torch.fft.rfft(x.to("fl"), dim=dim, norm="ortho"), spectrum, n)
        close(torch.fft.fft(x.to("fl"), dim=dim), torch.fft.fft(x, dim=dim), n)
        noise = spectrum + torch.randn_like(spectrum)  # whose first and middle value are not real
        for length in {n, 2 * (n // 2)} - {0}:
            back = torch.fft.irfft(noise, n=length, dim=dim, norm="forward")
            close(torch.fft.irfft(noise.to("fl"), n=length, dim=dim, norm="forward"), back, n)


@pytest.mark.parametrize("dtype", EPSILON, ids=str)
@pytest.mark.parametrize("n", LENGTHS)
def test_complex(n, dtype):
    torch.manual_seed(n)
    for x, dim in layouts(n, torch.complex(torch.zeros(0, dtype=dtype), torch.zeros(0, dtype=dtype)).dtype):
        for transform in (torch.fft.fft, torch.fft.ifft):
            close(transform(x.to("fl"), dim=dim), transform(x, dim=dim), n)


def test_several_dimensions():
    x = torch.randn(6, 8, 10)
    for name in ("rfftn", "rfft2", "ihfftn", "fftn", "hfft2", "irfftn", "irfft2", "ifft2"):
        transform = getattr(torch.fft, name)
        given = x + 0j if name in ("hfft2", "irfftn", "irfft2", "ifft2") else x
        close(transform(given.to("fl")), transform(given), 480)
    with torch.fl.device(0), torch.Stream("fl"):
        close(torch.fft.rfft(x.to("fl")), torch.fft.rfft(x), 10)


def test_gradient():
    x = torch.randn(5, 12, dtype=torch.float64)
    gradients = []
    for device in ("cpu", "fl"):
        leaf = x.to(device, copy=True).requires_grad_()
        torch.fft.irfft(torch.fft.rfft(leaf).pow(2), n=11).square().sum().backward()
        gradients.append(leaf.grad)
    close(gradients[1], gradients[0], 144)


def test_nothing_falls_back():
    before = torch.fl.op_report()
    torch.fft.irfft(torch.fft.rfft(torch.randn(7, 33, device="fl")), n=33)
    for name in ("aten::_fft_r2c", "aten::_fft_c2r"):
        assert torch.fl.op_report()[name]["fallback"] == before.get(name, {"fallback": 0})["fallback"]
