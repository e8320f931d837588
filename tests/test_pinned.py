"""Pinned host memory: pinning, transfers that really do not block, reuse, DataLoader."""

import pytest
import torch

D = "fl:0"


def test_pinning():
    x = torch.arange(10.0)
    assert not x.is_pinned()
    p = x.pin_memory()
    assert p.is_pinned() and p.device.type == "cpu" and torch.equal(p, x)
    assert p[3:].is_pinned() and p.pin_memory().data_ptr() == p.data_ptr()
    assert torch.empty(5, pin_memory=True).is_pinned()
    assert not torch.empty(5).is_pinned()
    assert torch.empty(0, pin_memory=True).numel() == 0


def test_the_copy_reads_the_source_when_the_stream_gets_there():
    a = torch.full((1536, 1536), 1.0, device=D)
    p = torch.full((1024,), 1.0).pin_memory()
    torch.fl.synchronize()
    for _ in range(6):
        torch.mm(a, a)
    x = p.to(D, non_blocking=True)
    busy = not torch.fl.current_stream().query()
    p.fill_(2.0)
    torch.fl.synchronize()
    assert busy and bool((x.cpu() == 2).all())


def test_a_blocking_copy_has_read_its_source():
    p = torch.full((1024,), 1.0).pin_memory()
    x = p.to(D)
    p.fill_(2.0)
    assert bool((x.cpu() == 1).all())


def test_pinned_memory_in_use_is_not_given_out_again():
    a = torch.full((1536, 1536), 1.0, device=D)
    torch.mm(a, a)
    torch.fl.synchronize()
    for _ in range(6):
        torch.mm(a, a)
    p = torch.full((5000,), 3.0).pin_memory()
    address = p.data_ptr()
    x = p.to(D, non_blocking=True)
    del p
    q = torch.empty(5000, pin_memory=True)
    assert not torch.fl.current_stream().query()
    assert q.data_ptr() != address
    q.fill_(4.0)
    torch.fl.synchronize()
    assert bool((x.cpu() == 3).all())


def test_to_cpu_non_blocking_is_pinned_and_right_after_synchronize():
    x = torch.arange(1000.0).to(D)
    y = x.to("cpu", non_blocking=True)
    torch.fl.synchronize()
    assert y.is_pinned() and torch.equal(y, torch.arange(1000.0))


def test_cached_and_given_back():
    torch.accelerator.empty_host_cache()
    p = torch.empty(1 << 20, dtype=torch.uint8, pin_memory=True)
    stats = torch.fl.host_memory_stats()
    assert stats["active_bytes.current"] >= 1 << 20
    address = p.data_ptr()
    del p
    q = torch.empty(1 << 20, dtype=torch.uint8, pin_memory=True)
    assert q.data_ptr() == address
    del q
    held = torch.fl.host_memory_stats()["allocated_bytes.current"]
    torch.accelerator.empty_host_cache()
    assert torch.fl.host_memory_stats()["allocated_bytes.current"] <= held - (1 << 20)


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader_pins(workers):
    data = torch.utils.data.TensorDataset(torch.arange(64.0).reshape(16, 4), torch.arange(16))
    loader = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True, num_workers=workers)
    total = torch.zeros((), device=D)
    for x, y in loader:
        assert x.is_pinned() and y.is_pinned()
        total += x.to(D, non_blocking=True).sum() + y.to(D, non_blocking=True).sum()
    assert total.item() == sum(range(64)) + sum(range(16))
