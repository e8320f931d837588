"""The examples, as a person runs them, and that a device computes what the CPU does."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"


def run(tmp_path, script, *arguments, name="losses", **environment):
    """Run an example under `torch-fl run`; its output, losses and operator report."""
    losses, report = tmp_path / f"{name}.json", tmp_path / f"{name}-report.json"
    command = [sys.executable, "-m", "torch_fl.cli", "run", "--report", report, EXAMPLES / script]
    done = subprocess.run(
        [*map(str, command), *map(str, arguments), "--losses", str(losses)],
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path), "FL_CUDA_VIEW": "1", **environment},
        capture_output=True,
        text=True,
        timeout=290,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, json.loads(losses.read_text()), json.loads(report.read_text())["operators"]


def fallbacks(operators):
    return {name: counts["fallback"] for name, counts in operators.items() if counts["fallback"]}


def test_sources_do_not_know_torch_fl():
    for script in EXAMPLES.glob("train_*.py"):
        assert not re.search(r"\btorch(_|\.)fl\b", script.read_text()), script.name


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_resnet_reaches_97_percent(tmp_path):
    out, losses, operators = run(tmp_path, "train_resnet.py")
    assert not fallbacks(operators)
    assert sum(losses[-20:]) / 20 < 0.2 * losses[0]
    (line,) = [line for line in out.splitlines() if "loaded on the CPU" in line]
    assert float(line.split()[-1].rstrip("%")) >= 97
    assert "on cuda" in out


def test_resnet_is_the_same_each_time_and_as_on_the_cpu(tmp_path):
    one = run(tmp_path, "train_resnet.py", "--epochs", 1, "--batch", 200, name="one")[1]
    two = run(tmp_path, "train_resnet.py", "--epochs", 1, "--batch", 200, name="two")[1]
    cpu = run(tmp_path, "train_resnet.py", "--epochs", 1, "--batch", 200, "--device", "cpu", name="cpu")[1]
    assert one == two
    # Adam's first steps are as long for tiny gradients as for large ones, so that rounding shows from the fourth on.
    assert one[:3] == pytest.approx(cpu[:3], rel=1e-4)
    assert one == pytest.approx(cpu, rel=0.1)


def test_gpt_is_the_same_each_time_and_as_on_the_cpu(tmp_path):
    small = ["--steps", 12, "--batch", 4, "--context", 48, "--letters", 20]
    _, one, operators = run(tmp_path, "train_gpt.py", *small, name="one")
    two = run(tmp_path, "train_gpt.py", *small, name="two")[1]
    cpu = run(tmp_path, "train_gpt.py", *small, "--device", "cpu", name="cpu")[1]
    assert not fallbacks(operators)
    assert one == two
    assert one[:5] == pytest.approx(cpu[:5], rel=1e-4)
    assert one[-1] < one[0]


@pytest.mark.slow
def test_gpt_learns_and_writes(tmp_path):
    out, losses, operators = run(tmp_path, "train_gpt.py", "--steps", 200)
    assert not fallbacks(operators)
    assert losses[-1] < 2.8
    assert "\nThe " in out


def test_gpt_with_dropout(tmp_path):
    small = ["--steps", 4, "--batch", 4, "--context", 32, "--letters", 8, "--dropout", 0.1]
    _, losses, operators = run(tmp_path, "train_gpt.py", *small)
    assert not fallbacks(operators) and all(loss < 20 for loss in losses)
