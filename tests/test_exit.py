"""The process ends with status 0 and without a word, whatever was going on."""

import pytest
from child import run_child, run_forked

PROGRAMS = {
    "import": "import torch",
    "used": "import torch; x = torch.ones(3, device='fl')",
    "first backward": """
        import torch
        x = torch.ones(3, device="fl", requires_grad=True)
        (x * 2).sum().backward()
    """,
    "first backward on the cpu": """
        import torch
        x = torch.ones(3, requires_grad=True)
        (x * 2).sum().backward()
    """,
    "work in flight": """
        import torch
        a = torch.ones(1024, 1024, device="fl")
        for _ in range(8):
            a = torch.mm(a, a)
        s = torch.Stream("fl")
        with s:
            b = torch.ones(1024, 1024, device="fl").to("cpu", non_blocking=True)
    """,
    "objects that live to the end": """
        import torch
        class Holder: pass
        h = Holder()
        h.self, h.event, h.pinned = h, torch.Event("fl", enable_timing=True), torch.ones(10).pin_memory()
        h.event.record()
        h.x = h.pinned.to("fl", non_blocking=True)
        h.generator = torch.Generator("fl")
        torch.kept = h
    """,
    "exception": """
        import sys, torch
        x = torch.ones(3, device="fl", requires_grad=True)
        (x * 2).sum().backward()
        sys.exit(0)
    """,
    "a thread that ran backward": """
        import threading, torch
        def work():
            x = torch.ones(3, device="fl", requires_grad=True)
            (x * 2).sum().backward()
        t = threading.Thread(target=work)
        t.start()
        t.join()
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_exit_is_clean(name):
    for run in (run_child, run_forked):
        assert run(PROGRAMS[name], FL_SIM_DEVICES="4").stderr == ""


@pytest.mark.parametrize("devices", ["1", "4"])
def test_exit_right_after_the_first_backward_many_times(devices):
    # Before the engine's threads were waited for, 4 of 9 such runs aborted.
    # Whether they were, only the log tells: an abort is a matter of luck.
    said = run_child(PROGRAMS["first backward"], FL_SIM_DEVICES=devices, FL_LOG="debug").stderr
    assert [line for line in said.splitlines() if "DEBUG: loading the chip" not in line] == []
    for _ in range(3):
        assert run_forked(PROGRAMS["first backward"], FL_SIM_DEVICES=devices).stderr == ""


def test_exit_status_of_a_failing_program_is_its_own():
    out = run_child("import torch; torch.ones(1, device='fl'); raise SystemExit(3)", check=False)
    assert out.returncode == 3 and out.stderr == ""
