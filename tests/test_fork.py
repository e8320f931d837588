"""Processes: forking before and after a device was used, spawning, workers that stay on the CPU."""

from child import run_child

FORK = """
import os, sys, torch

def in_child(act):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            act()
            print("worked")
        except RuntimeError as error:
            print("RuntimeError:", error)
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def test_after_a_device_was_used_a_forked_child_raises():
    out = run_child(
        FORK
        + """
x = torch.ones(2, device="fl")
torch.fl.synchronize()
assert not torch.fl._is_in_bad_fork()
in_child(lambda: torch.ones(2, device="fl"))
in_child(lambda: x + 1)
in_child(lambda: x.cpu())
in_child(lambda: torch.fl.synchronize())
in_child(lambda: torch.Stream("fl"))
in_child(lambda: torch.empty(2, pin_memory=True))
assert x.sum().item() == 2
"""
    )
    lines = out.stdout.splitlines()
    assert len(lines) == 6
    assert "Cannot re-initialize fl in forked subprocess" in lines[0]
    for line in lines:
        assert line.startswith("RuntimeError: ") and "fork" in line and "spawn" in line, line


def test_a_forked_child_may_go_on_with_the_cpu():
    out = run_child(
        FORK
        + """
torch.ones(2, device="fl")
def act():
    assert torch.fl._is_in_bad_fork()
    torch.manual_seed(0)
    x = torch.ones(2, requires_grad=True)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2]
in_child(act)
"""
    )
    assert out.stdout.split() == ["worked"]


def test_forking_before_the_first_use_is_fine():
    out = run_child(
        FORK
        + """
assert torch.fl.device_count() >= 1
def act():
    assert not torch.fl._is_in_bad_fork()
    x = torch.ones(4, device="fl", requires_grad=True)
    (x * 3).sum().backward()
    assert x.grad.cpu().tolist() == [3] * 4
in_child(act)
in_child(act)
assert torch.ones(2, device="fl").sum().item() == 2
"""
    )
    assert out.stdout.split() == ["worked", "worked"]


def test_data_loader_workers_after_use():
    run_child(
        """
        import torch
        torch.ones(2, device="fl")
        data = torch.arange(12.0)
        loader = torch.utils.data.DataLoader(data, batch_size=3, num_workers=2)
        assert sum(float(b.to("fl").sum()) for b in loader) == 66
        """
    )


def test_spawned_processes_use_the_device(tmp_path):
    script = tmp_path / "spawned.py"
    script.write_text(
        "import torch\n"
        "def work(rank):\n"
        "    assert torch.full((3,), rank + 1.0, device='fl').sum().item() == 3 * (rank + 1)\n"
        "if __name__ == '__main__':\n"
        "    torch.ones(1, device='fl')\n"
        "    torch.multiprocessing.spawn(work, nprocs=2)\n"
        "    print('done')\n"
    )
    out = run_child(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')")
    assert out.stdout.split() == ["done"]
