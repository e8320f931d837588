"""sim is a chip, not a disguise: memory of its own, work that is really asynchronous, faults to order."""

import time

import pytest
import torch
from child import run_forked


def test_a_host_read_of_device_memory_faults():
    code = """
        import ctypes, torch
        x = torch.ones(1024, device="fl:0")
        torch.accelerator.synchronize()
        print("reading", flush=True)
        ctypes.string_at(x.data_ptr(), 4)
    """
    done = run_forked(code, check=False)
    assert "reading" in done.stdout
    assert done.returncode == -11, done  # SIGSEGV


def test_kernels_read_operands_when_they_run():
    """Work queued behind a long kernel sees what was written in between, in order."""
    a = torch.randn(1500, 1500, device="fl:0")
    x = torch.zeros(1000, device="fl:0")
    start = time.perf_counter()
    for _ in range(20):
        a = a @ a * 1e-3
    y = x + 1
    x.fill_(5)
    z = x + 1
    queued = time.perf_counter() - start
    torch.accelerator.synchronize()
    total = time.perf_counter() - start
    assert y.unique().tolist() == [1] and z.unique().tolist() == [6]
    assert queued < total  # the host did not wait for the kernels


def test_streams_are_ordered_by_events_alone():
    poison = torch.full((1 << 20,), -1.0, device="fl:0")
    torch.accelerator.synchronize()
    side = torch.Stream("fl:0")
    with side:
        slow = torch.randn(1200, 1200, device="fl:0")
        for _ in range(10):
            slow = slow @ slow * 1e-3
        poison.fill_(7.0)
        done = side.record_event()
    torch.accelerator.current_stream().wait_event(done)
    assert (poison + 0).unique().tolist() == [7.0]


@pytest.mark.parametrize("orders, call, error, words", [
    ("alloc:1+", "torch.empty(1 << 28, device='fl:0')", "torch.OutOfMemoryError", "Tried to allocate"),
    ("kernel=gemm:1", "(x @ x).cpu()", "RuntimeError", "aten::mm"),
    ("kernel=pointwise:1", "(x + 1).cpu()", "RuntimeError", r"aten::add.*float32\[64, 64\]"),
    ("lost=0:1", "(x + 1).cpu()", "RuntimeError", "lost|gone"),
], ids=lambda v: v if "=" in v or v.startswith("alloc") else "")  # fmt: skip
def test_an_ordered_fault_reaches_python(orders, call, error, words):
    code = f"""
        import re, torch
        x = torch.ones(64, 64, device="fl:0")
        x.cpu()
        torch.fl.config.fault_lines = True
        with torch.fl.sim.faults({orders!r}):
            try:
                {call}
            except {error} as e:
                text = str(e)
            else:
                raise SystemExit("no error")
        assert re.search({words!r}, text, re.S), text
        if "aten::" in text:
            assert "<string>:" in text, text     # the submitting line
        if not {orders!r}.startswith("lost"):
            assert (x + 1).sum().item() == 64 * 64 * 2    # the process goes on
    """
    run_forked(code)


def test_a_hanging_kernel_is_named_after_the_time_limit():
    code = """
        import torch
        x = torch.ones(64, 64, device="fl:0")
        (x + 1).cpu()
        torch.fl.config.sync_timeout = 0.5
        with torch.fl.sim.faults("hang=gemm:1"):
            try:
                (x @ x).cpu()
            except RuntimeError as e:
                text = str(e)
            else:
                raise SystemExit("no error")
            assert "aten::mm" in text and "sync" in text.lower(), text
    """
    run_forked(code)


def test_a_lost_device_leaves_the_others():
    code = """
        import torch
        x, y = torch.ones(8, device="fl:0"), torch.ones(8, device="fl:1")
        x.cpu(), y.cpu()
        with torch.fl.sim.faults("lost=1:1"):
            try:
                (y + 1).cpu()
            except RuntimeError as e:
                assert "sim:1" in str(e) or "fl:1" in str(e) or "lost" in str(e), e
            else:
                raise SystemExit("no error")
        assert (x + 1).tolist() == [2] * 8
    """
    run_forked(code, FL_SIM_DEVICES="2")


def test_memory_limit_gives_out_of_memory_with_the_numbers_and_goes_on():
    code = """
        import torch
        x = torch.ones(1 << 20, device="fl:0")
        try:
            torch.empty(1 << 30, device="fl:0")
        except torch.OutOfMemoryError as e:
            text = str(e)
        assert "sim" in text and "free" in text and "iB" in text, text
        assert torch.empty(1 << 20, device="fl:0").fill_(2).sum().item() == 2 << 20
    """
    run_forked(code, FL_SIM_MEMORY="256M")


def test_bad_orders_are_refused_by_name():
    with pytest.raises(ValueError, match="nonsense"), torch.fl.sim.faults("nonsense:1"):
        pass
    done = run_forked(
        "import torch; torch.ones(1, device='fl:0')", check=False, FL_SIM_FAULTS="kernel=nothing:1"
    )
    assert done.returncode != 0 and "nothing" in done.stderr


def test_an_index_out_of_range_raises_and_the_process_goes_on():
    w = torch.arange(20.0, device="fl:0").reshape(10, 2)
    with pytest.raises(IndexError, match="12.*10"):
        w[torch.tensor([3, 12], device="fl:0")].cpu()
    assert (w[0] + 1).tolist() == [1, 2]
