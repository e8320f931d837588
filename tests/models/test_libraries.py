"""accelerate, Lightning and peft train as they do on the CPU, by scripts that know no device by name."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent / "scripts"
# The libraries' own names of precisions, and how far losses may be from the CPU's in float32.
RUNS = [
    ("accelerate", "no", 1e-4),
    ("accelerate", "bf16", 2e-2),
    ("lightning", "32-true", 1e-4),
    ("lightning", "16-mixed", 5e-3),
    ("peft", "no", 1e-4),
]
FULL = {"accelerate": "no", "lightning": "32-true", "peft": "no"}


def run(command, tmp_path, **environment):
    done = subprocess.run(
        [sys.executable, *map(str, command), str(tmp_path / "saved")],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "FL_SIM_DEVICES": "1", **environment},
        capture_output=True,
        text=True,
        timeout=240,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return result


@pytest.fixture(scope="module")
def on_the_cpu(tmp_path_factory):
    """Results in float32, each made once."""
    results = {}

    def get(library):
        if library not in results:
            command = [SCRIPTS / f"with_{library}.py", FULL[library]]
            results[library] = run(
                command, tmp_path_factory.mktemp(library), TORCH_DEVICE_BACKEND_AUTOLOAD="0"
            )
        return results[library]

    return get


def test_scripts_name_no_device_of_ours():
    for script in SCRIPTS.glob("*.py"):
        assert not re.search(r"torch(_|\.)fl\b|\bsim\b", script.read_text()), script.name


@pytest.mark.parametrize(("library", "precision", "tolerance"), RUNS)
def test_trains(library, precision, tolerance, on_the_cpu, tmp_path):
    report = tmp_path / "report.json"
    script = SCRIPTS / f"with_{library}.py"
    command = ["-m", "torch_fl.cli", "run", "--report", report, script, precision]
    result, expected = run(command, tmp_path, XDG_CACHE_HOME=str(tmp_path)), on_the_cpu(library)
    assert (result["device"], expected["device"]) == ("cuda", "cpu")
    assert result["losses"] == pytest.approx(expected["losses"], rel=tolerance)
    if precision == FULL[library]:
        assert result["sum"] == pytest.approx(expected["sum"], rel=tolerance)
        assert result.get("tokens") == expected.get("tokens")
    operators = json.loads(report.read_text())["operators"]
    assert operators and not {name for name, counts in operators.items() if counts["fallback"]}
