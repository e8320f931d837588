"""Snapshots that PyTorch's memory viewer reads, the recorded history, memory pools, and memory without tensors."""

import pickle
import sys
import threading

import pytest
import torch
from torch.cuda import _memory_viz as viz

D = "fl:0"
memory = torch.fl.memory


@pytest.fixture
def history():
    torch.fl.empty_cache()
    memory._record_memory_history("all", max_entries=10000, clear_history=True, stacks="python")
    yield
    memory._record_memory_history(None, clear_history=True)


def allocate_here(n):
    return torch.empty(n, device=D)


def trace():
    """The first device's entries; each look at them is one as well."""
    return [e for e in memory._snapshot()["device_traces"][0] if e["action"] != "snapshot"]


def test_history_has_actions_and_lines(history):
    x = allocate_here(3 << 20)
    address, size = x.data_ptr(), 12 << 20
    del x
    torch.fl.empty_cache()
    entries = trace()
    wanted = ["segment_alloc", "alloc", "free_requested", "free_completed", "segment_free"]
    assert [e["action"] for e in entries] == wanted
    assert all(e["addr"] == address and e["size"] == size for e in entries)
    alloc = entries[1]
    assert alloc["stream"] == 0 and alloc["pool_id"] == (0, 0) and alloc["time_us"] > 1.6e15
    frames = alloc["frames"]
    assert [f["name"] for f in frames[:2]] == ["allocate_here", "test_history_has_actions_and_lines"]
    assert frames[0]["filename"].endswith("test_memory_history.py") and frames[0]["line"] > 10


def test_the_viewer_reads_a_snapshot(history, tmp_path, monkeypatch):
    viz_memory, viz_segments = viz.memory, viz.segments
    kept = [allocate_here(1 << 18), allocate_here(100), torch.ones(1000, device=D) * 2]
    freed = allocate_here(1 << 20)
    del freed
    path = tmp_path / "snapshot.pickle"
    memory._dump_snapshot(str(path))
    snapshot = pickle.loads(path.read_bytes())
    assert set(snapshot) >= {"segments", "device_traces", "allocator_settings", "external_annotations"}

    def lines(text):  # the script that draws them comes from the network
        return text

    for draw in (viz.segments, viz.memory):
        assert "allocate_here" in draw(snapshot, format_flamegraph=lines)
    assert "alloc" in viz.trace(snapshot) and len(viz.segsum(snapshot)) > 100
    viz.compare(snapshot["segments"], memory._snapshot()["segments"], format_flamegraph=lines)
    for page in (viz.trace_plot, viz.segment_plot):
        text = page(snapshot)
        assert "<html" in text or "<script" in text
    monkeypatch.setattr(viz, "memory", lambda s: viz_memory(s, format_flamegraph=lines))
    monkeypatch.setattr(viz, "segments", lambda s: viz_segments(s, format_flamegraph=lines))
    memory._save_memory_usage(str(tmp_path / "m.svg"), snapshot)
    memory._save_segment_usage(str(tmp_path / "s.svg"), snapshot)
    assert (tmp_path / "m.svg").stat().st_size and (tmp_path / "s.svg").stat().st_size
    assert len(kept) == 3


def test_blocks_say_who_allocated_them(history):
    x = allocate_here(1000)
    blocks = [b for s in torch.fl.memory_snapshot() for b in s["blocks"] if b["address"] == x.data_ptr()]
    assert (
        len(blocks) == 1 and blocks[0]["state"] == "active_allocated" and blocks[0]["requested_size"] == 4000
    )
    assert blocks[0]["frames"][0]["name"] == "allocate_here"
    traceback = memory._allocation_traceback(x.data_ptr())
    assert traceback[0]["name"] == "allocate_here"
    assert memory._allocation_traceback(12345) is None
    memory._record_memory_history(None)
    y = torch.empty(10, device=D)
    assert memory._allocation_traceback(y.data_ptr()) is None


def test_what_is_kept_is_chosen():
    try:
        memory._record_memory_history("state", clear_history=True)
        kept = [allocate_here(10) for _ in range(5)]
        assert memory._allocation_traceback(kept[0].data_ptr())
        assert [e["action"] for e in memory._snapshot()["device_traces"][0]] == ["snapshot"]  # the last alone
        memory._record_memory_history("all", context=None, clear_history=True)
        kept.append(allocate_here(10))
        assert [e["action"] for e in trace()] == ["alloc"] and "frames" not in trace()[0]
        memory._record_memory_history(
            "all", context="alloc", skip_actions=["free_requested", "snapshot"], clear_history=True
        )
        x = allocate_here(10)
        del x
        entries = memory._snapshot()["device_traces"][0]
        assert [e["action"] for e in entries] == ["alloc", "free_completed"]
        assert "frames" in entries[0] and "frames" not in entries[1]
        memory._record_memory_history("all", max_entries=4, skip_actions=["snapshot"], clear_history=True)
        addresses = [allocate_here(n * 1000 + 1).data_ptr() for n in range(6)]
        entries = trace()
        # Of each of the last tensors: alloc, free_requested, free_completed.
        wanted = ["free_completed", "alloc", "free_requested", "free_completed"]
        assert [e["action"] for e in entries] == wanted and entries[-1]["addr"] == addresses[-1]
        memory._record_memory_history(True, trace_alloc_max_entries=3, skip_actions=["snapshot"])
        assert trace() == entries[1:]
    finally:
        memory._record_memory_history(None, clear_history=True)
    assert trace() == []
    for name, bad in {
        "enabled": "some",
        "context": "much",
        "stacks": "rust",
        "skip_actions": "sneeze",
    }.items():
        with pytest.raises(ValueError, match=f"{name}.*{bad}"):
            memory._record_memory_history(**{name: [bad] if name == "skip_actions" else bad})
    with pytest.raises(RuntimeError, match="compile contexts"):
        memory._record_memory_history(compile_context=True)
    assert memory._record_memory_history.__signature__.parameters["max_entries"].default == sys.maxsize


def test_history_of_several_threads_and_cpp_frames():
    memory._record_memory_history("all", stacks="all", clear_history=True, max_entries=100000)
    try:

        def work():
            for n in range(200):
                torch.empty(n + 1, device=D)

        threads = [threading.Thread(target=work) for _ in range(3)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        entries = trace()
        assert sum(e["action"] == "alloc" for e in entries) == 600
        assert sum(e["action"] == "free_completed" for e in entries) == 600
        assert all(any(f["name"] == "work" for f in e["frames"]) for e in entries if e["action"] == "alloc")
    finally:
        memory._record_memory_history(None, clear_history=True)


def test_metadata_and_exhaustion_are_in_the_history(history):
    memory._set_memory_metadata("epoch 3")
    assert memory._get_memory_metadata() == "epoch 3"
    x = allocate_here(10)
    memory._set_memory_metadata("")
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 50, device=D)
    entries = trace()
    assert next(e for e in entries if e["action"] == "alloc")["user_metadata"] == "epoch 3"
    oom = next(e for e in entries if e["action"] == "oom")
    assert oom["device_free"] > 0 and oom["size"] >= 1 << 50 and "addr" not in oom
    assert x.numel() == 10


# -------------------------------------------------------------------------- pools


def test_a_pool_keeps_its_memory_apart():
    pool = torch.fl.MemPool()
    assert pool.use_count() == 1 and pool.id[0] == 0 and pool.id[1] > 0 and pool.allocator is None
    outside = torch.empty(5 << 20, device=D)
    del outside
    with torch.fl.use_mem_pool(pool):
        assert pool.use_count() == 2
        x = torch.empty(5 << 20, device=D)
        seen = []
        thread = threading.Thread(target=lambda: seen.append(torch.empty(6 << 20, device=D)))
        thread.start()
        thread.join()
    assert pool.use_count() == 1
    segments = pool.snapshot()
    assert sum(s["total_size"] for s in segments) == 20 << 20
    assert all(s["segment_pool_id"] == pool.id for s in segments)
    address = x.data_ptr()
    assert segments[0]["address"] <= address < segments[0]["address"] + segments[0]["total_size"]
    del x
    y = torch.empty(5 << 20, device=D)
    assert y.data_ptr() != address
    with torch.fl.use_mem_pool(pool):
        assert torch.empty(5 << 20, device=D).data_ptr() == address
    stats = torch.fl.memory_stats_as_nested_dict(D)["reserved_bytes_by_private_pools"][pool.id]
    assert stats["all"]["current"] == 20 << 20
    key = f"reserved_bytes_by_private_pools.0_{pool.id[1]}.all.current"
    assert torch.fl.memory_stats(D)[key] == 20 << 20


def test_a_pools_memory_goes_back_with_it():
    torch.fl.empty_cache()
    before = torch.fl.memory_reserved(D)
    pool = torch.fl.MemPool()
    with torch.fl.use_mem_pool(pool):
        x = torch.empty(5 << 20, device=D)
        y = torch.empty(5 << 20, device=D)
    del x
    torch.fl.empty_cache()
    assert torch.fl.memory_reserved(D) == before + (40 << 20)
    del pool
    y.fill_(3)
    assert y.cpu().eq(3).all()
    del y
    torch.fl.empty_cache()
    assert torch.fl.memory_reserved(D) == before


def test_pools_nest_and_are_of_a_device():
    one, two = torch.fl.MemPool(), torch.fl.MemPool(no_split=True)
    with torch.fl.use_mem_pool(one, 0):
        a = torch.empty(100, device=D)
        with torch.fl.use_mem_pool(two, D):
            b = torch.empty(100, device=D)
            b2 = torch.empty(100, device=D)
        c = torch.empty(100, device=D)
    assert [len(p.snapshot()) for p in (one, two)] == [1, 2]
    assert all(len(s["blocks"]) == 1 for s in two.snapshot())
    assert len({t.data_ptr() for t in (a, b, b2, c)}) == 4
    native = __import__("torch_fl")._native
    with pytest.raises(RuntimeError, match="do not go to that"):
        native.end_pool_route(0, one.id)


def test_a_willing_pool_helps_on_exhaustion():
    from child import run_forked

    code = """
    import torch
    D = "fl:0"
    for willing in (False, True):
        pool = torch.fl.MemPool(use_on_oom=willing)
        with torch.fl.use_mem_pool(pool):
            x = torch.empty(60 << 20, dtype=torch.uint8, device=D)
        del x
        try:
            y = torch.empty(50 << 20, dtype=torch.uint8, device=D)
            assert willing
            del y
        except torch.OutOfMemoryError:
            assert not willing
        del pool
    """
    run_forked(code, FL_SIM_MEMORY="100M")


def test_without_the_cache():
    torch.fl.empty_cache()
    before = torch.fl.memory_reserved(D)
    with torch.fl.memory.caching_allocator_disabled():
        x = torch.empty(1000, device=D)
        assert torch.fl.memory_reserved(D) == before + 4096
        y = torch.ones(1000, device=D) + 1
        del x
        assert y.cpu().eq(2).all()
        del y
        assert torch.fl.memory_reserved(D) == before
    z = torch.empty(3 << 20, device=D)
    del z
    assert torch.fl.memory_reserved(D) > before


def test_memory_without_a_tensor():
    before = torch.fl.memory_allocated(D)
    address = torch.fl.caching_allocator_alloc(1000, D)
    other = torch.fl.caching_allocator_alloc(1 << 20, 0, torch.fl.Stream(D))
    assert address and other and torch.fl.memory_allocated(D) == before + 1024 + (1 << 20)
    torch.fl.caching_allocator_delete(address)
    torch.fl.caching_allocator_delete(other)
    assert torch.fl.memory_allocated(D) == before
    for bad in (address, 12345):
        with pytest.raises(RuntimeError, match="begins at"):
            torch.fl.caching_allocator_delete(bad)
    torch.fl.caching_allocator_delete(0)
    with pytest.raises(TypeError, match="stream"):
        torch.fl.caching_allocator_alloc(10, D, "here")


def test_summary_and_processes():
    x = torch.empty(1 << 20, device=D)
    text = torch.fl.memory_summary(D)
    assert all(line.startswith("|") and line.endswith("|") and len(line) == 77 for line in text.splitlines())
    assert "Allocated memory" in text and "from large pool" in text
    assert len(torch.fl.memory_summary(D, abbreviated=True)) < len(text)
    assert "MB GPU memory" in torch.fl.list_gpu_processes(D)
    for old in (torch.fl.memory_cached, torch.fl.max_memory_cached, torch.fl.reset_max_memory_allocated):
        with pytest.warns(FutureWarning):
            old(D)
    assert x.numel()
