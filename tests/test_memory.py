"""The caching allocator as PyTorch shows it: numbers, peaks, the limit, exhaustion, the profiler."""

import pytest
import torch
from child import run_forked

D = "fl:0"


@pytest.fixture(autouse=True)
def settled():
    torch.empty(1, device=D)
    torch.fl.synchronize()
    torch.fl.empty_cache()
    torch.fl.reset_peak_memory_stats(D)
    torch.fl.reset_accumulated_memory_stats(D)


def test_statistics_have_pytorchs_keys():
    stats = torch.accelerator.memory_stats(D)
    assert len(stats) == 122
    for kind in ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes"):
        for pool in ("all", "small_pool", "large_pool"):
            for column in ("current", "peak", "allocated", "freed"):
                assert stats[f"{kind}.{pool}.{column}"] >= 0
    own = torch.fl.memory_stats(D)
    assert {k for k in stats if "private" not in k and k != "num_oom_rejections"} <= set(own)


def test_allocated_and_peak_follow_tensors():
    before = torch.accelerator.memory_allocated(D)
    x = torch.empty(1 << 20, device=D)
    assert torch.accelerator.memory_allocated(D) - before == 4 << 20
    y = torch.empty(1 << 20, device=D)
    del x, y
    assert torch.accelerator.memory_allocated(D) == before
    assert torch.accelerator.max_memory_allocated(D) - before == 8 << 20
    torch.accelerator.reset_peak_memory_stats(D)
    assert torch.accelerator.max_memory_allocated(D) == before


def test_memory_is_used_again_and_given_back():
    x = torch.empty(5 << 20, device=D)
    address = x.data_ptr()
    del x
    assert torch.empty(5 << 20, device=D).data_ptr() == address
    assert torch.accelerator.memory_reserved(D) >= 20 << 20
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved(D) < 20 << 20


def test_empty_tensors_cost_nothing():
    before = torch.fl.memory_allocated(D)
    tensors = [torch.empty(0, 3, device=D) for _ in range(10)]
    assert torch.fl.memory_allocated(D) == before and tensors[0].data_ptr() == 0


def test_free_and_total():
    free, total = torch.accelerator.get_memory_info(D)
    assert 0 < free <= total == torch.fl.get_device_properties(D).total_memory
    assert torch.fl.mem_get_info(D)[1] == total


def test_snapshot_adds_up():
    x = torch.empty(100_000, device=D)
    segments = [s for s in torch.fl.memory_snapshot() if s["device"] == 0]
    assert sum(s["total_size"] for s in segments) == torch.fl.memory_reserved(D)
    live = [b for s in segments for b in s["blocks"] if b["state"] == "active_allocated"]
    assert sum(b["size"] for b in live) == torch.fl.memory_allocated(D)
    mine = [b for b in live if b["address"] == x.data_ptr()]
    assert len(mine) == 1 and mine[0]["requested_size"] == 400_000
    for s in segments:
        at = s["address"]
        for b in s["blocks"]:
            assert b["address"] == at
            at += b["size"]
        assert at == s["address"] + s["total_size"]


def test_exhaustion_is_torch_outofmemoryerror_and_the_process_goes_on():
    total = torch.fl.mem_get_info(D)[1]
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(2 * total, dtype=torch.uint8, device=D)
    text = str(caught.value)
    assert "sim:0" in text and "GiB" in text
    assert torch.fl.memory_stats(D)["num_ooms"] == 1
    assert torch.ones(3, device=D).sum().item() == 3


def test_the_limit_is_kept():
    before = torch.fl.get_per_process_memory_fraction(D)
    total = torch.fl.mem_get_info(D)[1]
    torch.fl.set_per_process_memory_fraction(0.01, D)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(total // 50, dtype=torch.uint8, device=D)
        torch.empty(total // 400, dtype=torch.uint8, device=D)
    finally:
        torch.fl.set_per_process_memory_fraction(before, D)


def test_cached_memory_is_given_back_before_giving_up():
    out = run_forked(
        """
        import torch
        blocks = [torch.empty(8 << 20, dtype=torch.uint8, device="fl") for _ in range(6)]
        del blocks
        torch.empty(40 << 20, dtype=torch.uint8, device="fl")
        print(torch.fl.memory_stats("fl:0")["num_alloc_retries"])
        """,
        FL_SIM_MEMORY="64M",
        FL_SIM_DEVICES="1",
    )
    assert int(out.stdout) >= 1


def test_the_profiler_sees_memory():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as p:
        x = torch.empty(1 << 20, device=D)
        del x
    memory = [e for e in p.profiler.kineto_results.events() if e.name() == "[memory]"]
    sizes = [e.nbytes() for e in memory if e.device_type() == torch._C._autograd.DeviceType.PrivateUse1]
    assert 4 << 20 in sizes and -(4 << 20) in sizes


def test_lazy_clone_copies_on_write():
    x = torch.arange(4.0).to(D)
    y = torch._lazy_clone(x)
    assert y.data_ptr() is not None
    y.add_(1)
    assert x.cpu().tolist() == [0, 1, 2, 3] and y.cpu().tolist() == [1, 2, 3, 4]
