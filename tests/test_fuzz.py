"""The fuzzer itself: that its programs are the same each time, and that it finds, shrinks and writes down a fault."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent / "fuzz"))
import catalogue
import run
import shrink

import program


def test_a_seed_is_one_program():
    one, two = catalogue.generate(11, 2), catalogue.generate(11, 2)
    assert one == two and len(one.steps) >= 5
    assert catalogue.generate(12, 2) != one


@pytest.mark.parametrize("seed", range(100, 106))
def test_programs_agree(seed):
    program.replay(catalogue.generate(seed, torch.accelerator.device_count()))


class Planted:
    """torch, but neg forgets the sign of the last element."""

    def __getattr__(self, name):
        return getattr(torch, name)

    @staticmethod
    def neg(x):
        y = torch.neg(x)
        if y.numel():
            y.flatten()[-1:].neg_()
        return y


def test_a_fault_is_found_shrunk_and_written(monkeypatch, tmp_path):
    steps = [
        program.Step("v1 = make((4, 3), torch.float32, 5, 'contiguous', dev(0))", ("v1",)),
        program.Step("v2 = torch.exp(v1)", ("v2",), ("v1",), kind="rounded"),
        program.Step("v3 = torch.neg(v1)", ("v3",), ("v1",)),
        program.Step("v4 = torch.add(v2, v3)", ("v4",), ("v2", "v3"), kind="rounded"),
    ]
    whole = program.Program(5, 1, steps)
    right = program.environment

    def broken(on_device, devices):
        names = right(on_device, devices)
        return {**names, "torch": Planted()} if on_device else names

    def fails(candidate):
        try:
            program.replay(candidate)
        except program.Difference as difference:
            return "differ" in difference.text
        return False

    assert not fails(whole)
    monkeypatch.setattr(program, "environment", broken)
    assert fails(whole)
    small = shrink.shrink(whole, fails)
    assert [step.line for step in small.steps] == [steps[0].line, steps[2].line]

    script = tmp_path / "found.py"
    shrink.write_script(small, "neg loses a sign", script)
    # The product is right, so the script ends well; with the fault it names the line.
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    script.write_text(
        script.read_text().replace(
            "v3 = torch.neg(v1)", 'v3 = torch.neg(v1) + (1 if dev(0).type != "cpu" else 0)'
        )
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert done.returncode != 0 and "Difference" in done.stderr


def test_what_the_cpu_refuses_has_to_be_refused():
    steps = [
        program.Step("v1 = make((4, 3), torch.float32, 5, 'contiguous', dev(0))", ("v1",)),
        program.Step("v2 = v1 @ v1", (), ("v1",), kind="raises"),
    ]
    program.replay(program.Program(5, 1, steps))
    steps[1] = program.Step("v2 = v1 @ (v1 if dev(0).type == 'cpu' else v1.T)", (), ("v1",), kind="raises")
    with pytest.raises(program.Difference, match="does not raise"):
        program.replay(program.Program(5, 1, steps))


def test_what_both_refuse_ends_what_needs_it():
    steps = [
        program.Step("v1 = make((4, 3), torch.float32, 5, 'contiguous', dev(0))", ("v1",)),
        program.Step("v2 = v1 @ v1", ("v2",), ("v1",)),
        program.Step("v3 = torch.neg(v2)", ("v3",), ("v2",)),
        program.Step("v4 = torch.neg(v1)", ("v4",), ("v1",)),
    ]
    program.replay(program.Program(5, 1, steps))
    steps[1] = program.Step("v2 = v1 @ (v1 if dev(0).type == 'cpu' else v1.T)", ("v2",), ("v1",))
    with pytest.raises(program.Difference, match="does not raise"):
        program.replay(program.Program(5, 1, steps))


def test_a_fault_of_the_fuzzer_is_named():
    def broken(note):
        note(17)
        raise KeyError("no such maker")

    assert run.child(broken, 1, 60) == (17, "the fuzzer itself fails: KeyError: 'no such maker'")


def test_a_crash_of_the_cpu_does_not_end_the_fuzzer(monkeypatch, tmp_path, capfd):
    monkeypatch.setattr(catalogue, "generate", lambda seed, devices: os.kill(os.getpid(), signal.SIGKILL))
    assert run.report(23, 1, "ends the process: signal SIGKILL", tmp_path) is None
    assert (
        "the program of seed 23 ends the process: signal SIGKILL while it is made" in capfd.readouterr().out
    )
    assert not list(tmp_path.iterdir())
