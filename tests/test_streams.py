"""Streams and events: order, waiting, timing, the current stream, memory used on another stream."""

import threading

import pytest
import torch

D = "fl:0"
two_devices = pytest.mark.skipif(torch.fl.device_count() < 2, reason="needs FL_SIM_DEVICES=2")


class Slow:
    """Work that keeps a stream busy for a while (some 100 ms)."""

    def __init__(self, n=1536):
        self.a = torch.full((n, n), 1.0 / n, device=D)
        self.out = torch.empty_like(self.a)
        torch.mm(self.a, self.a, out=self.out)
        torch.fl.synchronize()

    def run(self, times=4):
        for _ in range(times):
            torch.mm(self.a, self.a, out=self.out)


@pytest.fixture(scope="module")
def slow():
    return Slow()


def test_current_stream_starts_as_the_default_and_is_restored():
    default = torch.fl.default_stream(D)
    assert torch.fl.current_stream(D) == default and default.stream_id == 0
    s = torch.fl.Stream(D)
    assert s.stream_id != 0
    with torch.fl.stream(s):
        assert torch.fl.current_stream(D) == s == torch.accelerator.current_stream(D)
        with s:
            assert torch.fl.current_stream(D) == s
        seen = []
        thread = threading.Thread(target=lambda: seen.append(torch.fl.current_stream(D)))
        thread.start()
        thread.join()
        assert seen == [default]
    assert torch.fl.current_stream(D) == default


def test_pool_gives_distinct_streams_and_priorities_apart():
    ids = {torch.fl.Stream(D).stream_id for _ in range(32)}
    high = {torch.fl.Stream(D, priority=-1).stream_id for _ in range(32)}
    assert len(ids) == len(high) == 32 and not ids & high


def test_native_handle_is_the_chips_own():
    a, b = torch.Stream(D), torch.Stream(D)
    assert a.native_handle and b.native_handle and a.native_handle != b.native_handle


@two_devices
def test_stream_context_switches_the_device():
    s = torch.Stream("fl:1")
    with s:
        assert torch.accelerator.current_device_index() == 1
        assert torch.empty(1, device="fl").device.index == 1
    assert torch.accelerator.current_device_index() == 0


def test_work_is_queued_and_query_tells(slow):
    s = torch.fl.Stream(D)
    with torch.fl.stream(s):
        slow.run(8)
    assert not s.query()
    s.synchronize()
    assert s.query()


def test_an_event_orders_two_streams(slow):
    a, b = torch.fl.Stream(D), torch.fl.Stream(D)
    for _ in range(3):
        x = torch.full((1 << 16,), -1.0, device=D)
        y = torch.zeros_like(x)
        torch.fl.synchronize()
        with torch.fl.stream(a):
            slow.run(2)
            x.fill_(7.0)
            done = a.record_event()
        with torch.fl.stream(b):
            b.wait_event(done)
            y.copy_(x)
        assert not done.query()
        b.synchronize()
        assert done.query() and bool((y.cpu() == 7).all())


def test_streams_without_events_are_not_ordered(slow):
    a, b = torch.fl.Stream(D), torch.fl.Stream(D)
    x = torch.full((4,), -1.0, device=D)
    y = torch.zeros_like(x)
    torch.fl.synchronize()
    with torch.fl.stream(a):
        slow.run(8)
        x.fill_(7.0)
    with torch.fl.stream(b):
        y.copy_(x)
    b.synchronize()
    assert y.cpu().tolist() == [-1] * 4
    torch.fl.synchronize()


@pytest.mark.parametrize("source", [torch.ones(5), torch.ones(5, 2)[:, 0], torch.ones(5).half()])
def test_a_plain_copy_to_the_device_is_done_when_it_returns(slow, source):
    """Any stream may use the result, as on CUDA; only non_blocking leaves it to the stream."""
    s = torch.fl.Stream(D)
    target = torch.zeros(5, device=D)
    torch.fl.synchronize()
    with torch.fl.stream(s):
        slow.run()
        target.copy_(source, non_blocking=True)
        assert not s.query()
        target.copy_(source)
        assert s.query()
    assert (target + 1).tolist() == [2] * 5


def test_wait_stream(slow):
    a, b = torch.fl.Stream(D), torch.fl.Stream(D)
    x = torch.zeros(4, device=D)
    torch.fl.synchronize()
    with torch.fl.stream(a):
        slow.run(4)
        x.add_(1)
    b.wait_stream(a)
    with torch.fl.stream(b):
        y = x * 2
    b.synchronize()
    assert y.cpu().tolist() == [2] * 4


def test_timing(slow):
    start, end = torch.Event(D, enable_timing=True), torch.Event(D, enable_timing=True)
    start.record()
    slow.run(4)
    end.record()
    end.synchronize()
    total = start.elapsed_time(end)
    assert 0.5 < total < 60_000

    middle = torch.Event(D, enable_timing=True)
    start.record()
    slow.run(2)
    middle.record()
    slow.run(2)
    end.record()
    end.synchronize()
    parts = start.elapsed_time(middle) + middle.elapsed_time(end)
    assert parts == pytest.approx(start.elapsed_time(end), rel=0.02, abs=0.05)


def test_timing_refuses_events_without_timing_or_record():
    a, b = torch.Event(D), torch.Event(D)
    a.record()
    b.record()
    b.synchronize()
    with pytest.raises((RuntimeError, ValueError), match="timing"):
        a.elapsed_time(b)
    with pytest.raises((RuntimeError, ValueError)):
        torch.Event(D, enable_timing=True).elapsed_time(torch.Event(D, enable_timing=True))


def test_a_new_event_is_done_and_waiting_for_it_is_nothing():
    e = torch.Event(D)
    assert e.query()
    torch.fl.current_stream(D).wait_event(e)
    e.synchronize()


@two_devices
def test_events_cross_devices(slow):
    x = torch.zeros(4, device=D)
    slow.run(4)
    x.fill_(3)
    done = torch.fl.current_stream(D).record_event()
    s = torch.fl.Stream("fl:1")
    s.wait_event(done)
    s.synchronize()
    assert done.query()


@two_devices
def test_an_event_stays_with_its_device():
    e = torch.Event("fl:1")
    e.record(torch.fl.current_stream("fl:1"))
    with pytest.raises(RuntimeError, match="belongs to fl:1"):
        e.record(torch.fl.current_stream(D))


def test_record_stream_keeps_memory_from_being_used_again(slow):
    s = torch.fl.Stream(D)
    n = 3 << 20
    for kept in (True, False):
        x = torch.full((n,), 5.0, device=D)
        torch.fl.synchronize()
        with torch.fl.stream(s):
            slow.run(8)
            y = x + 1
        if kept:
            x.record_stream(s)
        address = x.data_ptr()
        del x
        other = torch.full((n,), -1.0, device=D)
        assert not s.query(), "the slow work was too fast for this test"
        if kept:
            assert other.data_ptr() != address
            s.synchronize()
            assert bool((y.cpu() == 6).all())
        else:
            assert other.data_ptr() == address
            s.synchronize()
        del other, y
    torch.fl.empty_cache()


def test_autograd_across_streams(slow):
    s = torch.fl.Stream(D)
    w = torch.ones(256, device=D, requires_grad=True)
    s.wait_stream(torch.fl.current_stream(D))
    with torch.fl.stream(s):
        slow.run(2)
        loss = (w * 3).sum()
    torch.fl.current_stream(D).wait_stream(s)
    (loss * 2).backward()
    assert w.grad.cpu().tolist() == [6] * 256
