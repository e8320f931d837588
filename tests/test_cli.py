"""The command torch-fl."""

import json
import subprocess
import sys

import pytest
import torch


def torch_fl(*arguments, **environment):
    import os

    return subprocess.run(
        [sys.executable, "-m", "torch_fl.cli", *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(
        "import sys, torch\n"
        "import neighbour\n"
        "assert __name__ == '__main__' and sys.argv[1:] == ['--epochs', '3']\n"
        "x = torch.ones(4, 4, device='fl')\n"
        "print('sum', (x @ x).relu().sum().item())\n"
    )
    (tmp_path / "neighbour.py").touch()
    return path


def test_run_prints_and_saves_the_report(script, tmp_path):
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    saved = tmp_path / "report.json"
    done = torch_fl("run", "--report", saved, script, "--epochs", 3, **cache)
    assert done.returncode == 0, done.stderr
    assert "sum 64.0" in done.stdout
    assert "aten::mm" in done.stdout and "on the CPU (fallbacks)" in done.stdout
    operators = json.loads(saved.read_text())["operators"]
    assert operators["aten::mm"]["native"] == 1 and operators["aten::mm"]["fallback"] == 0
    for report in ([], [saved]):
        again = torch_fl("ops", *report, **cache)
        assert again.returncode == 0 and "aten::mm" in again.stdout and str(script) in again.stdout


def test_run_reports_failing_scripts_too(tmp_path):
    path = tmp_path / "fails.py"
    path.write_text("import torch\ntorch.ones(2, device='fl').neg()\nraise SystemExit(3)\n")
    done = torch_fl("run", path, XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 3 and "aten::neg" in done.stdout


def test_run_a_module(tmp_path):
    done = torch_fl("run", "-m", "timeit", "-n", "1", "-r", "1", "pass", XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "no operator has run" in done.stdout


def test_devices():
    done = torch_fl("devices")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == torch.fl.device_count() and "sim:0" in done.stdout


def test_devices_when_there_is_none():
    done = torch_fl("devices", FL_SIM_DEVICES="0")
    assert done.returncode == 1 and "doctor" in done.stdout


def test_config():
    done = torch_fl("config", FL_FALLBACK="quiet")
    assert done.returncode == 0
    for name in dir(torch.fl.config):
        assert name in done.stdout
    assert "quiet" in done.stdout and "FL_CHIP_PATH" in done.stdout


def test_claims():
    done = torch_fl("ops", "--claims")
    assert done.returncode == 0 and "gemm" in done.stdout and "float32" in done.stdout


def test_ops_of_the_chips():
    done = torch_fl("ops", "--chips", "--match", "^(add|linalg.svd)$", "--dtypes", "f32,i64")
    assert done.returncode == 0, done.stderr
    assert "# Operators on sim" in done.stdout and "| add | N | N |" in done.stdout
    assert "In f32, 1 of 2 operators run without the CPU (50.0%)" in done.stdout
    assert "| `aten::_linalg_svd` | 1 | a dense decomposition" in done.stdout
    refused = torch_fl("ops", "--chips", "--dtypes", "f31")
    assert refused.returncode == 2 and "f31" in refused.stderr and "f32" in refused.stderr


def test_the_report_of_a_run_says_how_and_why(tmp_path):
    path = tmp_path / "solves.py"
    path.write_text("import torch\nx = torch.eye(3, device='fl') + 1\ntorch.linalg.svdvals(x)\n")
    done = torch_fl("run", path, XDG_CACHE_HOME=str(tmp_path), FL_FALLBACK="quiet")
    assert done.returncode == 0, done.stderr
    svd = next(line for line in done.stdout.splitlines() if "_linalg_svd" in line)
    assert svd.split()[1] == "F" and "a dense decomposition" in svd
    assert next(line for line in done.stdout.splitlines() if "aten::add" in line).split()[1] == "N"
    assert "operators run without the CPU" in done.stdout
    assert torch_fl("ops", XDG_CACHE_HOME=str(tmp_path)).stdout.endswith(
        done.stdout[done.stdout.index("operator") :]
    )


def test_ops_without_a_report(tmp_path):
    done = torch_fl("ops", XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 1 and "torch-fl run" in done.stderr


def test_include_has_the_headers():
    from pathlib import Path

    assert (Path(torch_fl("include").stdout.strip()) / "fl" / "chip.h").is_file()


def test_unknown_command():
    assert torch_fl("prescribe").returncode == 2
