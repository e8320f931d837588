"""Copies: every dtype to every other, layouts on both sides, across devices, pinned and not, lazy bits."""

import itertools

import pytest
import torch
from child import run_child
from family import LAYOUTS, assert_same, check_or_refused, to_device, uniform

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
          torch.float32, torch.float64, torch.complex64, torch.complex128, torch.uint16, torch.uint32, torch.uint64,
          torch.float8_e4m3fn, torch.float8_e5m2]  # fmt: skip


@pytest.mark.parametrize("a", DTYPES, ids=str)
def test_casts(a):
    x = uniform((5, 7), torch.float32, low=0.0).to(a)
    for b in DTYPES:
        got, want = x.to("fl:0").to(b), x.to(b)
        assert got.dtype == want.dtype
        assert torch.equal(got.cpu().view(torch.uint8), want.view(torch.uint8)), (a, b)
        assert torch.equal(x.to("fl:0").to("cpu", b).view(torch.uint8), want.view(torch.uint8)), (a, b)
        assert torch.equal(x.to("fl:0", b).cpu().view(torch.uint8), want.view(torch.uint8)), (a, b)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (17, 5), (2, 3, 4, 5)], ids=str)
def test_layouts_on_both_sides(shape):
    x = uniform(shape, torch.float32)
    for a, b in itertools.product(LAYOUTS, repeat=2):
        source, target = LAYOUTS[a](x), LAYOUTS[b](torch.zeros(shape))
        there, landing = to_device(source), to_device(target)
        landing.copy_(there)
        assert_same(landing, x)
        landing.zero_().copy_(source)  # from the host
        assert_same(landing, x)
        target.copy_(there)  # to the host
        assert_same(target, x)


def test_gaps_are_not_touched():
    host = torch.zeros(4, 6)
    there = torch.ones(4, 6, device="fl:0")
    host[:, ::2].copy_(there[:, ::2])
    assert host[:, 1::2].sum() == 0 and host[:, ::2].sum() == 12
    there[:, 1::2].copy_(torch.full((4, 3), 5.0))
    assert there[:, ::2].sum().item() == 12 and there[:, 1::2].sum().item() == 60


def test_overlapping_source_and_target():
    check_or_refused(lambda x: x[1:].copy_(x[:-1]), torch.arange(100.0))
    check_or_refused(lambda x: x.copy_(x.t()), uniform((9, 9), torch.float32))


def test_broadcast_and_refused_shapes():
    check_or_refused(lambda a, b: a.copy_(b), torch.zeros(3, 4), uniform((4,), torch.float32))
    check_or_refused(lambda a, b: a.copy_(b), torch.zeros(3, 4), uniform((5,), torch.float32))
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        torch.zeros(1, device="fl:0").expand(3).copy_(torch.ones(3, device="fl:0"))


def test_lazy_bits():
    z = uniform((3, 4), torch.complex64)
    there = to_device(z)
    assert_same(there.conj().cpu(), z.conj().resolve_conj())
    target = torch.zeros(3, 4, dtype=torch.complex64, device="fl:0")
    target.conj().copy_(there)
    assert_same(target, z.conj().resolve_conj())
    assert_same(z.conj().to("fl:0"), z.conj().resolve_conj())
    assert_same(there.conj().imag.clone(), z.conj().imag.resolve_neg())


def test_values_that_do_not_fit_are_refused():
    for dtype, value in (
        (torch.uint8, 300),
        (torch.int8, -200),
        (torch.int32, 1 << 40),
        (torch.float16, 1e6),
    ):
        check_or_refused(lambda x, v=value: x.fill_(v), torch.zeros(3, dtype=dtype))


def test_scalars_come_back_exactly():
    for dtype, value in (
        (torch.int64, 2**63 - 1),
        (torch.float64, 0.1),
        (torch.bool, True),
        (torch.complex64, 1 + 2j),
    ):
        assert torch.tensor([value], dtype=dtype).to("fl:0").item() == value
    with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
        torch.ones(2, device="fl:0").item()


def test_between_devices():
    run_child("""
        import torch
        x = torch.arange(10000.0).view(100, 100)
        a = x.to("fl:0")
        for b in (a.to("fl:1"), a.t().to("fl:2").t(), a.to("fl:3", torch.float64).float()):
            assert torch.equal(b.cpu(), x)
        c = torch.zeros(100, 200, device="fl:1")
        c[:, ::2].copy_(a)
        assert torch.equal(c.cpu()[:, ::2], x) and c[:, 1::2].sum().item() == 0
        for _ in range(200):
            y = a.to("fl:1") + 1
            assert y[99, 99].item() == 10000.0
        try:
            a + c[:, ::2]
        except RuntimeError as e:
            assert "fl:0" in str(e) and "fl:1" in str(e) or "cuda:0" in str(e) and "cuda:1" in str(e), e
        else:
            raise SystemExit("no error")
    """, FL_SIM_DEVICES="4")  # fmt: skip


def test_large():
    x = torch.arange(3 << 20, dtype=torch.int64)
    assert torch.equal(x.to("fl:0").cpu(), x)
    assert torch.equal(x.to("fl:0").view(3, -1).t().contiguous().cpu(), x.view(3, -1).t())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.int64, torch.complex128], ids=str)
def test_rows_of_any_length_and_offset(dtype):
    for columns in (3, 31, 70, 1500, 9001):
        x = uniform((4, columns + 40), torch.float32, low=-9.0).to(dtype)
        d = x.to("fl:0")
        for offset in (0, 1, 3, 17, 33):
            part, on_device = x[:, offset : offset + columns], d[:, offset : offset + columns]
            assert torch.equal(on_device.contiguous().cpu(), part.contiguous())
            assert torch.equal(on_device.flip(1).cpu(), part.flip(1))
            assert torch.equal(on_device.roll(offset, 1).cpu(), part.roll(offset, 1))
            into, expected = torch.zeros_like(d), torch.zeros_like(x)
            into[:, 40 - offset : 40 - offset + columns] = on_device
            expected[:, 40 - offset : 40 - offset + columns] = part
            assert torch.equal(into.cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_parts_of_complex_numbers_both_ways(dtype):
    for n in (1, 5, 257, 1000):
        z = uniform((3, n), dtype)
        d = z.to("fl:0")
        for part in (torch.real, torch.imag):
            assert torch.equal((part(d) + 1).cpu(), part(z) + 1)
            assert torch.equal((part(d).flip(1) + part(d)).cpu(), part(z).flip(1) + part(z))
            assert torch.equal(part(d).flip(1).to(torch.bfloat16).cpu(), part(z).flip(1).to(torch.bfloat16))


@pytest.mark.parametrize("write_to", ["original", "view", "clone"])
def test_lazy_clone(write_to):
    """Whoever is written to, the other keeps its values, and memory is freed once."""
    for x in (torch.arange(12.0).view(3, 4), torch.arange(12.0).view(3, 4).t()[1:], torch.zeros(0), torch.ones(1).expand(5)):
        there = to_device(x)
        clone = there._lazy_clone()
        assert clone.stride() == x.stride() and clone.storage_offset() == x.storage_offset()
        target = {"original": there, "view": there.view_as(there), "clone": clone}[write_to]
        target[:1] += 1
        changed = to_device(x, "cpu")
        changed[:1] += 1
        assert_same(there, x if write_to == "clone" else changed)
        assert_same(clone, changed if write_to == "clone" else x)
        del there, target, clone


def test_complex_half_is_experimental():
    run_child(
        """
        import warnings
        import torch
        t = torch.zeros(2, dtype=torch.complex32, device="fl")
        for make in (lambda: torch.empty(2, dtype=torch.complex32, device="fl"),
                     lambda: torch.empty_strided((2, 2), (1, 2), dtype=torch.complex32, device="fl"),
                     lambda: t + 1):
            with warnings.catch_warnings(record=True) as caught:
                torch.set_warn_always(True)
                make()
            assert any("ComplexHalf support is experimental" in str(w.message) for w in caught), caught
        """
    )


def test_strides_for_each_dimension():
    for sizes, strides in (((2,), ()), ((), (1,)), ((2, 3), (1,))):
        for device in ("cpu", "fl:0"):
            with pytest.raises(RuntimeError, match="must match dimensionality of strides"):
                torch.ones((), device=device).new_empty_strided(sizes, strides)
