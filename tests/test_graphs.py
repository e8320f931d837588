"""Capture and replay: torch.fl.CUDAGraph, torch.accelerator.Graph, and what neither can hold."""

import gc
import threading
import warnings

import pytest
import torch
from child import run_child
from torch import nn

D = "fl:0"
two_devices = pytest.mark.skipif(torch.fl.device_count() < 2, reason="needs FL_SIM_DEVICES=2")


def captured(work, **arguments):
    """A graph of what work() launches, after a run of it outside the graph, and work()'s result."""
    side = torch.fl.Stream(D)
    with torch.fl.stream(side):
        work()
    torch.fl.synchronize(D)
    graph = torch.fl.CUDAGraph()
    with torch.fl.graph(graph, **arguments):
        result = work()
    return graph, result


@pytest.fixture(autouse=True)
def first_device():
    torch.fl.set_device(0)
    yield
    torch.fl.synchronize(D)


def test_a_replay_works_on_what_is_in_memory_then():
    x = torch.zeros(1000, device=D)
    graph, y = captured(lambda: (x * 2 + 1).relu())
    for value in (3.0, -5.0, 0.25):
        x.fill_(value)
        graph.replay()
        assert torch.equal(y.cpu(), torch.full((1000,), max(2 * value + 1, 0)))


def test_a_capture_leaves_no_trace():
    x, running = torch.arange(8.0, device=D), torch.zeros(3, device=D)
    part, whole = x[2:5], torch.ones(4, 4, device=D)
    before = torch.fl.get_rng_state(D)
    graph = torch.fl.CUDAGraph()
    with torch.fl.graph(graph):
        part.add_(100)
        running.lerp_(torch.full_like(running, 10.0), 0.5)
        whole.t()[1].mul_(7)
        x.index_add_(0, torch.zeros(1, dtype=torch.long, device=D) + 7, running[:1])
        whole.zero_()
        torch.rand(5, device=D)
    assert torch.equal(x.cpu(), torch.arange(8.0)) and not running.any() and whole.cpu().eq(1).all()
    assert torch.equal(torch.fl.get_rng_state(D), before)
    graph.replay()
    expected = torch.arange(8.0)
    expected[2:5] += 100
    expected[7] += 5
    assert torch.equal(x.cpu(), expected) and running.cpu().eq(5).all() and not whole.any()
    graph.replay()
    assert running.cpu().eq(7.5).all() and x[7].item() == 7 + 5 + 7.5


def test_in_place_work_counts_once_a_replay():
    x = torch.zeros((), device=D, dtype=torch.int64)
    graph = torch.fl.CUDAGraph()
    with torch.fl.graph(graph):
        x += 1
    assert x.item() == 0
    for _ in range(5):
        graph.replay()
    assert x.item() == 5


def test_accelerator_graph():
    x = torch.zeros(100, device=D)
    graph = torch.accelerator.Graph()
    with torch.Stream(D), graph:
        x += 1
    assert not x.any()
    graph.replay()
    graph.replay()
    assert x.cpu().eq(2).all()
    assert len(graph.pool()) == 2
    graph.reset()
    with pytest.raises(RuntimeError, match="no capture"):
        graph.replay()
    with torch.Stream(D), graph:
        x -= 3
    graph.replay()
    assert x.cpu().eq(-1).all()


def operators():
    gen = torch.Generator().manual_seed(0)

    def rand(*sizes, dtype=torch.float32):
        return torch.rand(*sizes, generator=gen).to(dtype).to(D)

    image, vector, matrix = rand(2, 4, 9, 9), rand(64), rand(8, 12)
    weight, index = rand(6, 4, 3, 3), torch.tensor([3, 0, 0, 7], device=D)
    norm = nn.BatchNorm2d(4).to(D)
    q = rand(2, 3, 10, 8)
    return {
        "elementwise with scalars": lambda: torch.addcmul(vector, vector, vector, value=0.5).clamp_(0.2, 0.9),
        "broadcast": lambda: matrix + matrix[0] * matrix[:, :1],
        "reduce": lambda: (
            matrix.sum(1),
            matrix.amax(0),
            matrix.argmin(1),
            matrix.std(),
            matrix.logsumexp(0),
        ),
        "gemm": lambda: torch.addmm(matrix[:, 0], matrix, matrix.t(), beta=0.5, alpha=2.0),
        "gather": lambda: (matrix[index], matrix.gather(1, index.expand(8, 4)), matrix[:, index]),
        "scatter": lambda: matrix.index_add(0, index, matrix[:4]).index_put((index,), matrix[0, 0]),
        "softmax": lambda: (matrix.softmax(1), matrix.t().log_softmax(0)),
        "norms": lambda: (nn.functional.layer_norm(matrix, (12,)), nn.functional.group_norm(image, 2)),
        "batch norm": lambda: (norm(image), norm.running_mean.clone()),
        "conv": lambda: nn.functional.conv2d(image, weight, stride=2, padding=1),
        "pool": lambda: (
            nn.functional.max_pool2d(image, 3, return_indices=True),
            nn.functional.avg_pool2d(image, 2),
        ),
        "attention": lambda: nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True),
        "scan, sort": lambda: (matrix.cumsum(1), matrix.sort(0), vector.topk(5)),
        "many tensors": lambda: torch._foreach_add([vector, matrix, image], [vector, matrix, image], alpha=3),
        "half": lambda: (matrix.half() @ matrix.half().t(), vector.bfloat16() * 3),
        "complex": lambda: torch.fft.rfft(matrix),
        "resampling": lambda: nn.functional.interpolate(image, scale_factor=1.5, mode="bilinear"),
        "strange layouts": lambda: image.permute(3, 1, 0, 2).flip(1)[::2].contiguous(),
        "zero sizes": lambda: (matrix[:0] + 1, matrix[:0].sum(0)),
    }


@pytest.mark.parametrize("name", operators())
def test_replays_give_what_eager_gives(name):
    work = operators()[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing falls back
        graph, result = captured(work)
        results = torch.utils._pytree.tree_leaves(result)
        for r in results:
            r.fill_(0)
        graph.replay()
        graph_results = [r.cpu().clone() for r in results]
        expected = torch.utils._pytree.tree_leaves(work())
    if name == "batch norm":  # running statistics moved by one run more
        expected, graph_results = expected[:1], graph_results[:1]
    assert len(graph_results) == len(expected)
    for got, want in zip(graph_results, expected, strict=True):
        assert torch.equal(got, want.cpu())


def test_batch_norm_statistics_move_with_each_replay():
    x, norm, reference = torch.randn(16, 3, device=D), nn.BatchNorm1d(3).to(D), nn.BatchNorm1d(3)
    graph = torch.fl.CUDAGraph()
    with torch.fl.graph(graph):
        norm(x)
    assert not norm.running_mean.any() and norm.num_batches_tracked.item() == 0
    for _ in range(3):
        graph.replay()
        reference(x.cpu())
    torch.testing.assert_close(norm.running_mean.cpu(), reference.running_mean)
    torch.testing.assert_close(norm.running_var.cpu(), reference.running_var)
    assert norm.num_batches_tracked.item() == 3


# ------------------------------------------------------------------------ training


def small_net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)).to(D)


@pytest.mark.parametrize("make", [
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    lambda p: torch.optim.AdamW(p, lr=torch.tensor(1e-2, device=D), capturable=True),
])  # fmt: skip
def test_a_whole_training_step(make):
    generator = torch.Generator().manual_seed(1)
    batches = [
        (torch.randn(8, 16, generator=generator), torch.randn(8, 4, generator=generator)) for _ in range(6)
    ]

    def step(net, optimizer, x, y):
        optimizer.zero_grad(set_to_none=False)
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    eager, graphed = small_net(), small_net()
    eager_optimizer, graphed_optimizer = make(eager.parameters()), make(graphed.parameters())
    x, y = torch.zeros(8, 16, device=D), torch.zeros(8, 4, device=D)
    losses, graph_losses = [], []
    side = torch.fl.Stream(D)
    for i, (bx, by) in enumerate(batches):
        losses.append(step(eager, eager_optimizer, bx.to(D), by.to(D)).item())
        x.copy_(bx), y.copy_(by)
        if i < 2:  # the first steps make the optimizer's state
            side.wait_stream(torch.fl.current_stream(D))
            with torch.fl.stream(side):
                graph_losses.append(step(graphed, graphed_optimizer, x, y).item())
            torch.fl.synchronize(D)
            continue
        if i == 2:
            graph = torch.fl.CUDAGraph()
            with torch.fl.graph(graph):
                loss = step(graphed, graphed_optimizer, x, y)
        graph.replay()
        graph_losses.append(loss.item())
    assert graph_losses == pytest.approx(losses, rel=1e-6)
    for a, b in zip(eager.parameters(), graphed.parameters(), strict=True):
        torch.testing.assert_close(a.cpu(), b.cpu(), rtol=1e-6, atol=1e-7)


def test_make_graphed_callables():
    plain, net = small_net(), small_net()
    sample = torch.randn(8, 16, device=D, requires_grad=True)
    graphed = torch.fl.make_graphed_callables(net, (sample,))
    assert graphed is net
    for seed in range(3):
        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(seed)).to(D)
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        plain.zero_grad(), net.zero_grad()
        plain(a).square().sum().backward()
        graphed(b).square().sum().backward()
        torch.testing.assert_close(a.grad.cpu(), b.grad.cpu())
        for p, q in zip(plain.parameters(), net.parameters(), strict=True):
            torch.testing.assert_close(p.grad.cpu(), q.grad.cpu())
    net.eval()
    assert torch.allclose(net(x).cpu(), plain(x).cpu())
    with pytest.raises(AssertionError, match="only Tensors"):
        torch.fl.make_graphed_callables(plain, (3.0,))


def test_make_graphed_callables_of_several():
    first, second = nn.Linear(4, 4).to(D), nn.Linear(4, 2).to(D)
    expected = nn.Sequential(first, second)
    x = torch.randn(5, 4, device=D, requires_grad=True)
    want = expected(x)
    (want_grad,) = torch.autograd.grad(want.sum(), x)
    want = want.detach().cpu()
    hidden = torch.randn(5, 4, device=D, requires_grad=True)
    one, two = torch.fl.make_graphed_callables((first, second), ((x,), (hidden,)))
    y = two(one(x))
    (grad,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(y.detach().cpu(), want)
    torch.testing.assert_close(grad.cpu(), want_grad.cpu())


# ------------------------------------------------------------------ random numbers


def test_each_replay_draws_the_next_numbers():
    torch.fl.manual_seed(42)
    eager = [torch.rand(10, device=D).cpu() for _ in range(4)]
    after = torch.fl.get_rng_state(D)

    torch.fl.manual_seed(42)
    graph = torch.fl.CUDAGraph()
    with torch.fl.graph(graph):
        x = torch.rand(10, device=D)
    drawn = []
    for _ in range(4):
        graph.replay()
        drawn.append(x.cpu())
    assert all(torch.equal(a, b) for a, b in zip(eager, drawn, strict=True))
    assert torch.equal(torch.fl.get_rng_state(D), after)
    torch.fl.manual_seed(42)
    graph.replay()
    assert torch.equal(x.cpu(), eager[0])


def test_several_draws_and_generators_in_one_graph():
    one, two = torch.Generator(D).manual_seed(5), torch.Generator(D).manual_seed(5)
    other = torch.Generator(D).manual_seed(5)

    def draw(a, b):
        return (
            torch.rand(7, device=D, generator=a),
            torch.randn(9, device=D, generator=b),
            torch.rand(3, device=D, generator=a),
        )

    torch.rand(1, device=D, generator=two)
    torch.rand(1, device=D, generator=other)
    reference = torch.Generator(D).manual_seed(5)
    eager = [[t.cpu() for t in draw(reference, other)] for _ in range(3)]
    graph = torch.fl.CUDAGraph()
    with torch.fl.graph(graph):
        result = draw(one, two)
    for want in eager:
        graph.replay()
        assert all(torch.equal(a, b.cpu()) for a, b in zip(want, result, strict=True))


def test_dropout_changes_with_each_replay():
    x = torch.ones(1000, device=D)
    graph, y = captured(lambda: nn.functional.dropout(x, 0.5))
    graph.replay()
    first = y.cpu()
    graph.replay()
    assert not torch.equal(first, y.cpu()) and 300 < first.count_nonzero() < 700


def test_every_distribution_in_a_graph():
    weights = torch.rand(10, device=D)

    def draw():
        return (
            torch.randperm(20, device=D), torch.multinomial(weights, 3, replacement=True), torch.bernoulli(weights),
            torch.randint(0, 1 << 40, (4,), device=D), torch.empty(5, device=D).exponential_(),
            torch.empty(5, device=D, dtype=torch.float64).normal_(), torch.rand(3, 4, device=D).bernoulli_(0.3),
        )  # fmt: skip

    torch.fl.manual_seed(8)
    eager = [[t.cpu() for t in draw()] for _ in range(3)]
    torch.fl.manual_seed(8)
    graph = torch.fl.CUDAGraph()
    with torch.fl.graph(graph):
        result = draw()
    for want in eager:
        graph.replay()
        assert all(torch.equal(a, b.cpu()) for a, b in zip(want, result, strict=True))


def test_the_first_random_number_of_a_process_may_be_in_a_graph():
    code = """
    import torch
    x = torch.zeros(3, device="fl:0")
    graph = torch.fl.CUDAGraph()
    with torch.fl.graph(graph):
        y = torch.rand(5, device="fl:0")
    graph.replay()
    first = y.cpu()
    graph.replay()
    assert first.min() >= 0 and not torch.equal(first, y.cpu())
    """
    run_child(code)


def test_a_generator_is_not_seeded_within_a_capture():
    torch.fl.manual_seed(1)
    graph = torch.fl.CUDAGraph()
    with pytest.raises(RuntimeError, match="seed or state"), torch.fl.graph(graph):
        torch.fl.manual_seed(1)  # the same seed is no change, as on CUDA
        torch.fl.manual_seed(2)


# ------------------------------------------------------------------------- memory


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


# ------------------------------------------------------------------------ streams


def test_work_of_other_streams_that_wait_is_captured():
    x = torch.ones(1000, device=D)
    side = torch.fl.Stream(D)
    graph = torch.fl.CUDAGraph()
    with torch.fl.graph(graph):
        y = x + 1
        side.wait_stream(torch.fl.current_stream(D))
        with torch.fl.stream(side):
            assert torch.fl.is_current_stream_capturing()
            z = y * 2
        torch.fl.current_stream(D).wait_stream(side)
        w = z + y
    assert not torch.fl.is_current_stream_capturing()
    x.fill_(3)
    graph.replay()
    assert w.cpu().eq(12).all()


def test_is_current_stream_capturing():
    assert not torch.fl.is_current_stream_capturing()
    seen = []
    with torch.fl.graph(torch.fl.CUDAGraph()):
        assert torch.fl.is_current_stream_capturing()
        thread = threading.Thread(target=lambda: seen.append(torch.fl.is_current_stream_capturing()))
        thread.start()
        thread.join()
        with torch.fl.stream(torch.fl.default_stream(D)):
            assert not torch.fl.is_current_stream_capturing()
    assert seen == [False] and not torch.fl.is_current_stream_capturing()


def test_other_threads_work_on_during_a_capture():
    x, results = torch.ones(1000, device=D), []

    def work():
        for i in range(50):
            results.append((torch.full((10,), float(i), device=D) * 2).sum().item())

    graph = torch.fl.CUDAGraph()
    with torch.fl.graph(graph):
        thread = threading.Thread(target=work)
        thread.start()
        for _ in range(50):
            x.add_(1)
        thread.join()
    assert results == [20.0 * i for i in range(50)] and x.cpu().eq(1).all()
    graph.replay()
    assert x.cpu().eq(51).all()


def test_replays_on_several_streams_are_in_order():
    x = torch.zeros(1 << 16, device=D)
    graph = torch.fl.CUDAGraph()
    with torch.fl.graph(graph):
        for _ in range(20):
            x.add_(1).mul_(1)
    for _ in range(5):
        with torch.fl.stream(torch.fl.Stream(D)):
            graph.replay()
    torch.fl.synchronize(D)
    assert x.cpu().eq(100).all()


@two_devices
def test_a_graph_of_the_second_device():
    with torch.fl.device(1):
        x = torch.ones(100, device="fl:1")
        graph = torch.fl.CUDAGraph()
        with torch.fl.graph(graph, stream=torch.fl.Stream(1)):
            y = x + 1
    x.fill_(5)
    graph.replay()  # of its own device, whichever is current
    assert y.device.index == 1 and y.cpu().eq(6).all()


# ------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(("what", "work"), [
    ("wait for the device", lambda x: torch.fl.synchronize(D)),
    ("wait for the device", lambda x: torch.fl.current_stream(D).synchronize()),
    ("wait for the device", lambda x: torch.fl.current_stream(D).query()),
    ("not pinned", lambda x: x.sum().item()),
    ("not pinned", lambda x: x.cpu()),
    ("not pinned", lambda x: print(x)),
    ("not pinned", lambda x: bool(x.any())),
    ("not pinned", lambda x: torch.ones(3).to(D)),
    ("not pinned", lambda x: x.nonzero()),
    ("on the CPU", lambda x: torch.linalg.eigvals(x.reshape(2, 2))),
])  # fmt: skip
def test_refused_within_a_capture(what, work):
    x = torch.arange(4.0, device=D)
    graph = torch.fl.CUDAGraph()
    with pytest.raises(RuntimeError, match=what), torch.fl.graph(graph):
        x.add_(1)
        work(x)
    assert not torch.fl.is_current_stream_capturing()
    with pytest.raises(RuntimeError, match="no capture"):
        graph.replay()
    assert torch.equal(x.cpu(), torch.arange(4.0))
    with torch.fl.graph(graph):  # it can be captured again
        x.add_(1)
    graph.replay()
    assert torch.equal(x.cpu(), torch.arange(4.0) + 1)


def test_a_refusal_that_was_swallowed_is_told_at_the_end():
    x = torch.ones(3, device=D)
    graph = torch.fl.CUDAGraph()
    with pytest.raises(RuntimeError, match="capture is of no use.*not pinned"), torch.fl.graph(graph):
        with pytest.raises(RuntimeError):
            x.cpu()
        x.add_(1)
    accelerator = torch.accelerator.Graph()
    with pytest.raises(RuntimeError, match="capture is of no use"), torch.Stream(D), accelerator:
        x.sum().item()


def test_events_of_a_capture_mark_no_time():
    with torch.fl.graph(torch.fl.CUDAGraph()):
        event = torch.fl.Event(enable_timing=True)
        event.record()
    with pytest.raises(RuntimeError, match="no point in time"):
        event.synchronize()
    with pytest.raises(RuntimeError, match="no point in time"):
        torch.fl.current_stream(D).wait_event(event)
    event.record()
    event.synchronize()
    outside = torch.fl.Stream(D).record_event()
    with (
        pytest.raises(RuntimeError, match="not recorded in the capture"),
        torch.fl.graph(torch.fl.CUDAGraph()),
    ):
        torch.fl.current_stream(D).wait_event(outside)


def test_refused_around_a_capture():
    x = torch.ones(3, device=D)
    graph = torch.fl.CUDAGraph()
    with pytest.raises(RuntimeError, match="no capture"):
        graph.replay()
    with pytest.raises(RuntimeError, match="not being captured"):
        graph.capture_end()
    with pytest.raises(RuntimeError, match="none before its capture"):
        graph.pool()
    with pytest.raises(RuntimeError, match="default"):
        graph.capture_begin()
    with torch.fl.graph(graph):
        x.add_(1)
        with pytest.raises(RuntimeError, match="already"):
            torch.fl.CUDAGraph().capture_begin()
    with pytest.raises(RuntimeError, match="reset"), torch.fl.graph(graph):
        pass
    with pytest.raises(RuntimeError, match="native handle"):
        graph.raw_cuda_graph()
    other = torch.fl.CUDAGraph()
    with pytest.raises(RuntimeError, match="replay of another graph"), torch.fl.graph(other):
        graph.replay()
    with pytest.raises(RuntimeError, match="annotations"):
        torch.fl.graph(graph, enable_annotations=True)
    with pytest.raises(RuntimeError, match="external"):
        torch.fl.Event(external=True)
    graph.replay()
    assert x.cpu().eq(2).all()


@two_devices
def test_another_device_does_not_join_a_capture():
    x, y = torch.ones(3, device=D), torch.ones(3, device="fl:1")
    with pytest.raises(RuntimeError, match="another device"), torch.fl.graph(torch.fl.CUDAGraph()):
        x.copy_(y)
    with pytest.raises(RuntimeError, match="another device"), torch.fl.graph(torch.fl.CUDAGraph()):
        torch.fl.Stream(1).wait_stream(torch.fl.current_stream(D))


def test_an_error_of_the_users_ends_the_capture():
    x = torch.ones(3, device=D)
    graph = torch.fl.CUDAGraph()
    with pytest.raises(ZeroDivisionError), torch.fl.graph(graph):
        x.add_(1)
        1 / 0  # noqa: B018
    assert not torch.fl.is_current_stream_capturing()
    assert x.sum().item() == 3


def test_keep_graph_and_debug_dump(tmp_path):
    x = torch.ones(2, 3, device=D)
    graph = torch.fl.CUDAGraph(keep_graph=True)
    with pytest.raises(RuntimeError, match="enable_debug_mode"):
        graph.debug_dump(str(tmp_path / "no.dot"))
    graph.enable_debug_mode()
    with torch.fl.graph(graph):
        x.add_(1)
        x.sum()
    graph.instantiate()
    graph.instantiate()
    graph.debug_dump(str(tmp_path / "graph.dot"))
    text = (tmp_path / "graph.dot").read_text()
    assert text.startswith("digraph") and "aten::add" in text and "aten::sum" in text and "->" in text
    graph.replay()
    assert x.cpu().eq(2).all()
    ready = torch.fl.CUDAGraph()
    with torch.fl.graph(ready):
        x.add_(1)
    with pytest.raises(RuntimeError, match="keep_graph"):
        ready.instantiate()


def test_a_fault_in_a_replay_names_the_operator():
    index, table = torch.zeros(4, dtype=torch.long, device=D), torch.ones(10, 2, device=D)
    graph = torch.fl.CUDAGraph()
    with torch.fl.graph(graph):
        table.index_select(0, index)
    index.fill_(99)
    graph.replay()
    with pytest.raises((IndexError, RuntimeError), match="index_select"):
        torch.fl.synchronize(D)


def test_input_liveness():
    x = torch.ones(3, device=D)
    graph = torch.fl.CUDAGraph()
    import torch_fl

    with torch_fl.cuda_view():
        with torch.fl.graph(graph, check_input_liveness=True):
            x + 1
        graph.replay()
        del x
        gc.collect()
        with pytest.raises(RuntimeError, match="dead tensor"):
            graph.replay()


def test_in_the_cuda_view():
    import torch_fl

    with torch_fl.cuda_view():
        x = torch.zeros(4, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=torch.cuda.graph_pool_handle()):
            assert (
                torch.cuda.is_current_stream_capturing() and torch.cuda.graphs.is_current_stream_capturing()
            )
            x += 1
        graph.replay()
        other = torch.accelerator.Graph()
        with torch.cuda.Stream(), other:
            x += 1
        other.replay()
        assert x.eq(2).all().item()
        net = torch.cuda.make_graphed_callables(nn.Linear(4, 4).cuda(), (torch.ones(2, 4, device="cuda"),))
        net(torch.ones(2, 4, device="cuda")).sum().backward()
        torch.cuda.memory._record_memory_history(max_entries=100)
        y = torch.ones(1000, device="cuda")
        names = [
            f["name"] for e in torch.cuda.memory._snapshot()["device_traces"][0] for f in e.get("frames", [])
        ]
        torch.cuda.memory._record_memory_history(None, clear_history=True)
        assert "test_in_the_cuda_view" in names and y.is_cuda
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool), torch.cuda.nvtx.range("here"):
            torch.empty(10, device="cuda")
        assert len(pool.snapshot()) == 1
