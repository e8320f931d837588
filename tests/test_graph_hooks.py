"""What is called when a graph is captured, ready, replayed and gone: PyTorch 2.14's names, with any PyTorch."""

import functools
import gc
import weakref

import pytest
import torch
from capture import D, captured, first_device  # noqa: F401 - a fixture for each test

ON_A_GRAPH = {
    "capture_start": "register_capture_start_hook",
    "capture_end": "register_capture_end_hook",
    "instantiate": "register_post_instantiate_hook",
    "replay_start": "register_replay_start_hook",
    "replay_end": "register_replay_end_hook",
}
ON_ALL = {moment: f"register_graph_{moment}_hook" for moment in ON_A_GRAPH}


def recorded(graph, said):
    own = [
        getattr(graph, name)(lambda g, m=m: said.append((m, g is graph))) for m, name in ON_A_GRAPH.items()
    ]
    everywhere = [
        getattr(torch.fl.graphs, name)(lambda g, m=m: said.append(("any " + m, g is graph)))
        for m, name in ON_ALL.items()
    ]
    return [*own, *everywhere]


@pytest.mark.parametrize("keep_graph", [False, True])
def test_each_moment_in_order(keep_graph):
    x, said = torch.zeros(3, device=D), []
    graph = torch.fl.CUDAGraph(keep_graph=keep_graph)
    handles = recorded(graph, said)
    with torch.fl.graph(graph):
        x += 1
    graph.replay()
    graph.replay()
    moments = ["capture_start", "capture_end", "instantiate", *["replay_start", "replay_end"] * 2]
    # A kept graph is made ready by its first replay; else it is at the end of the capture, as on CUDA.
    assert said == [(word, True) for moment in moments for word in ("any " + moment, moment)]
    for handle in handles:
        handle.remove()
    graph.replay()
    assert len(said) == 2 * len(moments) and x.eq(3).all()


def test_a_graph_that_is_made_ready_by_hand_is_so_once():
    x, said = torch.zeros(3, device=D), []
    graph = torch.fl.CUDAGraph(keep_graph=True)
    with torch.fl.graph(graph):
        x += 1
    graph.register_post_instantiate_hook(lambda g: said.append(1))
    graph.instantiate()
    graph.replay()
    assert said == [1] and x.eq(1).all()
    graph.reset()
    with torch.fl.graph(graph):
        x += 10
    graph.replay()
    assert said == [1, 1] and x.eq(11).all()


def test_what_a_hook_launches_at_the_start_is_captured():
    x = torch.zeros(3, device=D)
    graph = torch.fl.CUDAGraph()
    graph.register_capture_start_hook(lambda g: x.add_(100))
    with torch.fl.graph(graph):
        x += 1
    assert not x.any()
    graph.replay()
    assert x.eq(101).all()


def test_errors_of_hooks():
    """Those of the graph's own go on; those of hooks for all graphs do not disturb a graph that knows nothing."""
    x = torch.zeros(3, device=D)

    def bad(g):
        raise ValueError("of the hook")

    handles = [getattr(torch.fl.graphs, name)(bad) for name in ON_ALL.values()]
    graph, _ = captured(lambda: x.add_(1))
    before = x.clone()
    graph.replay()
    for handle in handles:
        handle.remove()
    ends = []
    graph.register_replay_end_hook(ends.append)
    start = graph.register_replay_start_hook(bad)
    with pytest.raises(ValueError, match="of the hook"):
        graph.replay()
    assert torch.equal(x, before + 1) and not ends  # not submitted
    start.remove()
    graph.replay()
    assert torch.equal(x, before + 2) and ends == [graph]
    ended = torch.fl.CUDAGraph()
    ended.register_capture_end_hook(bad)
    with pytest.raises(ValueError, match="of the hook"), torch.fl.graph(ended):
        x += 1
    assert not torch.fl.is_current_stream_capturing() and (x * 2).sum() == 6 * x[0]


@pytest.mark.parametrize("way", ["reset", "gone"])
def test_what_a_graph_holds_until_it_ends(way):
    said, kept, early = [], torch.ones(4, device=D), torch.ones(4, device=D)
    references = weakref.ref(kept), weakref.ref(early)
    everywhere = torch.fl.graphs.register_graph_destroy_hook(said.append)
    graph, y = captured(functools.partial(torch.mul, kept, 2))
    everywhere.remove()
    graph.register_destroy_callback(lambda: 1 / 0)
    graph.register_destroy_callback(lambda: said.append("end"), synchronize_before_release=True)
    graph.register_destroy_callback(lambda: said.append("never")).remove()
    graph.retain_object(kept)
    removed = graph.retain_object(early)
    del kept, early
    removed.remove()
    gc.collect()
    assert references[0]() is not None and references[1]() is None
    graph.replay()
    assert y.eq(2).all() and not said
    if way == "reset":
        graph.reset()
        assert said == ["end"] and references[0]() is None
        graph.register_destroy_callback(lambda: said.append("again"))
    del graph
    gc.collect()
    assert references[0]() is None
    assert said == (["end", "again"] if way == "reset" else ["end"])


def test_hooks_for_the_end_of_all_graphs():
    said = []
    handle = torch.fl.graphs.register_graph_destroy_hook(said.append)
    x = torch.zeros(3, device=D)
    graph, _ = captured(lambda: x.add_(1))
    graph.reset()
    assert said == [set()]
    del graph
    gc.collect()
    assert said == [set(), set()]
    handle.remove()
    graph, _ = captured(lambda: x.add_(1))
    del graph
    gc.collect()
    assert len(said) == 2


def test_pools():
    x = torch.zeros(3, device=D)
    graph, _ = captured(lambda: x + 1)
    assert graph.pools() == [graph.pool()]
    pool, other = torch.fl.MemPool(), torch.fl.CUDAGraph()
    with torch.fl.graph(other, pool=pool):
        y = x + 2
    other.replay()
    assert other.pool() == pool.id and y.eq(2).all()
