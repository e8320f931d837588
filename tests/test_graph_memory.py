"""The memory of graphs: whose it is, when it is free, pools, exhaustion, threads."""

import gc
import threading

import pytest
import torch
from capture import D, captured, first_device  # noqa: F401 - a fixture for each test
from child import run_child


def test_a_graphs_memory_is_its_own():
    x = torch.ones(1 << 18, device=D)
    graph, y = captured(lambda: (x + 1) * (x + 2))
    address, want = y.data_ptr(), y.numel() * [6.0]
    graph.replay()
    del y
    gc.collect()
    filler = [torch.full((1 << 18,), 7.0, device=D) for _ in range(4)]
    assert address not in {f.data_ptr() for f in filler}
    graph.replay()
    torch.fl.synchronize(D)
    assert all(f.cpu().eq(7).all() for f in filler) and len(want) == 1 << 18


def test_memory_within_a_capture_is_used_again():
    x = torch.ones(1 << 18, device=D)

    def work():
        y = x
        for _ in range(20):
            y = y + 1
        return y

    graph, y = captured(work)
    pool = [s for s in torch.fl.memory_snapshot() if s["segment_pool_id"] == graph.pool()]
    assert pool and sum(s["total_size"] for s in pool) <= 20 << 20
    assert pool == torch.fl.memory_snapshot(graph.pool())
    graph.replay()
    assert y.cpu().eq(21).all()


def test_graphs_share_a_pool():
    pool = torch.fl.graph_pool_handle()
    x = torch.ones(1 << 18, device=D)
    first, second = torch.fl.CUDAGraph(), torch.fl.CUDAGraph()
    with torch.fl.graph(first, pool=pool):
        y = x + 1
    with torch.fl.graph(second, pool=first.pool()):
        z = y * 3
    assert first.pool() == second.pool() == pool
    for value in (1.0, 4.0):
        x.fill_(value)
        first.replay()
        second.replay()
        assert z.cpu().eq(3 * (value + 1)).all()


def test_a_deleted_graphs_memory_goes_back():
    x = torch.ones(3 << 20, device=D)
    torch.fl.empty_cache()
    before = torch.fl.memory_reserved(D)
    graph, y = captured(lambda: x + 1)
    torch.fl.empty_cache()
    assert torch.fl.memory_reserved(D) >= before + (12 << 20)
    graph.replay()
    graph.reset()
    del y
    torch.fl.empty_cache()
    assert torch.fl.memory_reserved(D) == before


def test_many_graphs_leave_nothing_behind():
    x = torch.ones(1000, device=D)

    def once():
        graph = torch.fl.CUDAGraph()
        with torch.fl.graph(graph):
            y = x + 1
            x.mul_(1)
            torch.rand(5000, device=D)
        graph.replay()
        return y

    once()
    gc.collect()
    torch.fl.empty_cache()
    before = torch.fl.memory_reserved(D)
    pools = torch.fl.memory_stats_as_nested_dict(D)["reserved_bytes_by_private_pools"]
    for _ in range(30):
        once()
    gc.collect()
    torch.fl.empty_cache()
    assert torch.fl.memory_reserved(D) == before
    assert torch.fl.memory_stats_as_nested_dict(D)["reserved_bytes_by_private_pools"].keys() == pools.keys()


def test_a_graph_is_dropped_while_its_replay_runs():
    a = torch.full((768, 768), 1 / 768, device=D)

    def running():
        graph, stream = torch.fl.CUDAGraph(), torch.fl.Stream(D)
        with torch.fl.graph(graph):
            b = a @ a
            for _ in range(8):
                b = b @ a
        with torch.fl.stream(stream):
            graph.replay()
        return graph

    for drop in (torch.fl.CUDAGraph.reset, lambda graph: None):
        graph = running()
        drop(graph)
        del graph
        torch.fl.empty_cache()
        others = [torch.full((768, 768), 7.0, device=D) for _ in range(6)]
        torch.fl.synchronize(D)
        assert all(t.eq(7).all().item() for t in others)


def test_a_pool_of_tensors_and_graphs():
    pool = torch.fl.MemPool()
    with torch.fl.use_mem_pool(pool):
        static = torch.zeros(1000, device=D)
    graph = torch.fl.CUDAGraph()
    with torch.fl.graph(graph, pool=pool.id):
        static += 1
        y = static * 2
    assert static.cpu().eq(0).all() and pool.use_count() == 2
    graph.replay()
    assert static.cpu().eq(1).all() and y.cpu().eq(2).all()
    del graph
    gc.collect()
    assert pool.use_count() == 1


def test_captures_on_several_threads():
    def work(number):
        x, stream = torch.full((100,), float(number), device=D), torch.fl.Stream(D)
        for _ in range(10):
            graph = torch.fl.CUDAGraph()
            with torch.fl.stream(stream):
                graph.capture_begin()
                y = x + number
                graph.capture_end()
                graph.replay()
                stream.synchronize()
            results.append(y.cpu().eq(2 * number).all().item())
            if number % 2:
                torch.fl.synchronize(D)

    results = []
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 40


def test_a_process_may_end_within_a_capture():
    code = """
    import torch
    x = torch.ones(3, device="fl:0")
    torch.fl.stream(torch.fl.Stream()).__enter__()
    graph = torch.fl.CUDAGraph()
    graph.capture_begin()
    y = x + 1
    """
    assert not run_child(code).stderr


def test_exhaustion_within_a_capture():
    x = torch.ones(3, device=D)
    with pytest.raises(torch.OutOfMemoryError), torch.fl.graph(torch.fl.CUDAGraph()):
        x.add_(1)
        torch.empty(1 << 50, device=D)
    assert x.cpu().eq(1).all() and not torch.fl.is_current_stream_capturing()


def test_pinned_copies_are_part_of_a_graph():
    source, result = torch.zeros(100).pin_memory(), torch.zeros(100).pin_memory()
    x = torch.zeros(100, device=D)
    graph = torch.fl.CUDAGraph()
    with torch.fl.graph(graph):
        x.copy_(source, non_blocking=True)
        result.copy_(x + 1, non_blocking=True)
    assert not result.any()
    for value in (1.0, 2.0):
        source.fill_(value)
        graph.replay()
        torch.fl.synchronize(D)
        assert result.eq(value + 1).all()
