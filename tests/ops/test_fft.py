import pytest
import torch
from child import run_beside_template
from family import DEVICE, assert_same, check, layouts, no_fallback, tensor, to_device

COMPLEX = [torch.complex64, torch.complex128]
LENGTHS = [1, 2, 3, 4, 5, 7, 8, 12, 13, 16, 31, 37, 60, 97, 128, 211, 1000, 1009]


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("n", LENGTHS)
def test_lengths(n, dtype):
    tolerance = 1e-4 if dtype == torch.complex64 else 1e-11
    x = tensor(3, n, dtype=dtype)
    with no_fallback():
        for f in (torch.fft.fft, torch.fft.ifft, torch.fft.hfft, torch.fft.irfft):
            if f is torch.fft.fft or f is torch.fft.ifft or n > 1:
                check(f, x, atol=tolerance * n**0.5, rtol=tolerance)
        for f in (torch.fft.rfft, torch.fft.ihfft, torch.fft.fft):
            check(f, x.real.contiguous(), atol=tolerance * n**0.5, rtol=tolerance)


@pytest.mark.parametrize("n", [4096, 10007, 65536, 100000, 2 * 65537])
def test_long_lines(n):
    x = tensor(n, dtype=torch.complex64)
    with no_fallback():
        check(torch.fft.fft, x, atol=1e-6 * n**0.5 * 20)
        check(torch.fft.rfft, x.real.contiguous(), atol=1e-6 * n**0.5 * 20)
        check(lambda t: torch.fft.ifft(torch.fft.fft(t)), x)
        check(lambda t: torch.fft.irfft(torch.fft.rfft(t), n), x.real.contiguous())


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_norms_and_dimensions(norm):
    x = tensor(4, 6, 5, dtype=torch.complex64)
    with no_fallback():
        for dims in [(0,), (1,), (2,), (0, 1), (-1, 0), (0, 1, 2)]:
            for f in (torch.fft.fftn, torch.fft.ifftn, torch.fft.irfftn, torch.fft.hfftn):
                check(lambda t: f(t, dim=dims, norm=norm), x, strides=True)
            for f in (torch.fft.rfftn, torch.fft.ihfftn, torch.fft.fftn):
                check(lambda t: f(t, dim=dims, norm=norm), x.real.contiguous(), strides=True)
        check(lambda t: torch.fft.fft(t, n=9, norm=norm), x, strides=True)
        check(lambda t: torch.fft.irfft(t, n=9, norm=norm), x, strides=True)
        check(lambda t: torch.fft.irfft2(t, s=(3, 7), norm=norm), x, strides=True)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_layouts_and_lazy_bits(dtype):
    with no_fallback():
        for x in layouts(tensor(6, 4, 5, dtype=dtype)):
            for dim in (0, 1, 2):
                check(torch.fft.fft, x, dim=dim, strides=True)
            check(lambda t: torch.fft.fft2(t.conj()), x, strides=True)
            check(lambda t: torch.fft.ifft(t.imag.neg()), x)
        check(lambda t: torch.fft.fft(t.expand(3, 4, 5)), tensor(4, 5, dtype=dtype))
        check(lambda t: torch.fft.fft(t.flip(-1)[..., ::2]), tensor(4, 10, dtype=dtype))


def test_strides():
    """The transformed dimensions are the fastest, in the order of their strides; the others as they were."""
    x = tensor(3, 4, 2, 6, dtype=torch.complex64)
    forms = [x, x.permute(2, 0, 3, 1), x.transpose(0, -1).contiguous().transpose(0, -1)]
    with no_fallback():
        for t in forms:
            for dims in [(0,), (2,), (1, 3), (3, 1), (0, 1), (2, 0, 1), (0, 1, 2, 3)]:
                for f in (torch.fft.fftn, torch.fft.ifftn, torch.fft.irfftn, torch.fft.hfftn):
                    check(f, t, dim=dims, strides=True)
                for f in (torch.fft.rfftn, torch.fft.ihfftn, torch.fft.fftn):
                    check(f, t.real, dim=dims, strides=True)
    for device in ("cpu", "fl:1"):
        with pytest.raises(RuntimeError, match="to have device"):
            torch.fft.fft(to_device(x), out=torch.empty(0, dtype=x.dtype, device=device))


def test_strides_of_windows():
    """Windows lie over each other, so that two of their strides are equal."""
    x = torch.randn(3, 4, 7, 5).to(memory_format=torch.channels_last)
    with no_fallback():
        for across in (2, 3):
            for dim in range(5):
                for f in (torch.fft.fft, torch.fft.rfft, torch.fft.ihfft, torch.fft.irfft):
                    check(lambda t: f(t.unfold(across, 3, 1), dim=dim), x, strides=True)


def test_out_and_edges():
    x = tensor(4, 6, dtype=torch.complex64)
    there = to_device(x)
    out = torch.empty(6, 4, dtype=torch.complex64, device="fl:0").t()
    torch.fft.fft(there, out=out)
    assert_same(out, torch.fft.fft(x))
    torch.fft.fft(there, out=there)
    assert_same(there, torch.fft.fft(x))
    assert torch.fft.fft(there[:0]).shape == (0, 6)
    check(lambda t: torch.fft.fftshift(torch.fft.fftfreq(5, device=t.device)), tensor(1))
    for bad in [lambda t: torch.fft.fft(t[:, :0]), lambda t: torch.fft.fft(t.half())]:
        with pytest.raises(RuntimeError):
            bad(x.real)
        with pytest.raises(RuntimeError):
            bad(there.real)


def test_gradients():
    z, x = tensor(3, 8, dtype=torch.complex128), tensor(3, 9, dtype=torch.float64)
    with no_fallback():
        for f in (torch.fft.fft, torch.fft.ifft2, torch.fft.irfft, torch.fft.hfft):
            check(f, z.clone().requires_grad_(), grad=True)
        for f in (torch.fft.rfft, torch.fft.ihfft, torch.fft.rfft2):
            check(f, x.clone().requires_grad_(), grad=True)


def test_short_time_transforms():
    x = tensor(2, 400)

    def round_trip(t):
        window = torch.hann_window(64, device=t.device)
        s = torch.stft(t, 64, hop_length=16, window=window, center=False, return_complex=True)
        return s, torch.fft.irfft(s.transpose(1, 2), 64)

    with no_fallback():
        check(round_trip, x)
    check(lambda t: torch.istft(torch.stft(t, 64, window=torch.ones(64, device=t.device), return_complex=True), 64,
                                window=torch.ones(64, device=t.device)), x)  # fmt: skip


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_a_real_operand_may_begin_anywhere(offset):
    # Even lines are taken as complex numbers of two neighbours, which begin at even places only.
    x = tensor(40 + offset)[offset:].view(5, 8)
    with no_fallback():
        for f in (torch.fft.rfft, torch.fft.ihfft, torch.fft.fft, torch.fft.rfft2):
            check(f, x)


# Lines of real numbers: side by side, one after another, backwards, broadcast, from an odd place; from 4096 on one
# line is a matrix of its own.
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 2, 3, 16, 97, 194, 509, 1000, 2018, 4096, 20014, 3 * 65537])
def test_real_lines(n, dtype):
    torch.manual_seed(n)
    many = 19 if n < 5000 else 3
    x = torch.randn(many, n + 1, dtype=dtype)
    layouts = [(x[:, :n], 1), (x[:, 1:], 1), (x[:, :n].T.contiguous(), 0), (x[0, :n], 0),
               (x[:, :n].unsqueeze(1).expand(many, 2, n), -1)]  # fmt: skip

    def close(got, want):
        assert got.shape == want.shape and got.dtype == want.dtype
        bound = 8 * torch.finfo(dtype).eps * n.bit_length() * float(want.abs().max())
        assert float((got.cpu() - want).abs().max()) <= bound

    for line, dim in layouts:
        spectrum = torch.fft.rfft(line, dim=dim, norm="ortho")
        with no_fallback():
            close(torch.fft.rfft(line.to(DEVICE), dim=dim, norm="ortho"), spectrum)
            noise = spectrum + torch.randn_like(spectrum)  # whose first and middle value are not real
            for length in {n, 2 * (n // 2)} - {0}:
                back = torch.fft.irfft(noise, n=length, dim=dim, norm="forward")
                close(torch.fft.irfft(noise.to(DEVICE), n=length, dim=dim, norm="forward"), back)


def test_second_device():
    check(torch.fft.fft2, tensor(3, 100, dtype=torch.complex64), device="fl:1")


def test_from_matrix_products():
    """A chip without the entry: lengths that are one product, several, and a convolution."""
    run_beside_template(
        """
        import torch
        torch.fl.config.fallback = "error"
        for n in (1, 2, 9, 64, 67, 128, 131, 360, 1009):
            z = torch.randn(2, n, 3, dtype=torch.complex64)
            for f in (torch.fft.fft, torch.fft.ifft):
                got = f(z.to("template"), dim=1).cpu()
                torch.testing.assert_close(got, f(z, dim=1), rtol=1e-4, atol=2e-5 * n**0.5)
            x = z.real.contiguous()
            got = torch.fft.rfft(x.to("template"), dim=1)
            torch.testing.assert_close(got.cpu(), torch.fft.rfft(x, dim=1), rtol=1e-4, atol=2e-5 * n**0.5)
            torch.testing.assert_close(torch.fft.irfft(got, n, dim=1).cpu(), x, rtol=1e-4, atol=1e-4)
        """,
    )
