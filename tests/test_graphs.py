"""Capture and replay: torch.fl.CUDAGraph, torch.accelerator.Graph, and what neither can hold."""

import gc
import threading
import warnings

import pytest
import torch
from capture import D, captured, first_device  # noqa: F401 - a fixture for each test
from torch import nn

two_devices = pytest.mark.skipif(torch.fl.device_count() < 2, reason="needs FL_SIM_DEVICES=2")


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
