"""The command torch-fl."""

import json
import subprocess
import sys

import pytest
import torch
from child import no_chip_package


def torch_fl(*arguments, **environment):
    import os

    return subprocess.run(
        [sys.executable, "-m", "torch_fl.cli", *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
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


def plain(path, *arguments, **how):
    """What `python script.py …` does."""
    import os

    return subprocess.run([sys.executable, path, *arguments], capture_output=True, text=True, timeout=240,
                          env={**os.environ, **how})  # fmt: skip


def test_run_ends_with_a_summary(tmp_path):
    path = tmp_path / "uses.py"
    path.write_text(
        "import torch, atexit, threading, time\n"
        "x = torch.ones(1 << 20, device='fl')\n"
        "for _ in range(300): x = x * 1.0001\n"
        "torch.linalg.svdvals(torch.eye(3, device='fl'))\n"
        "atexit.register(print, 'handler')\n"
        "threading.Thread(target=lambda: (time.sleep(0.3), print('thread', x.numel()))).start()\n"
        "print('last line')\n"
    )
    done = torch_fl("run", path, XDG_CACHE_HOME=str(tmp_path), FL_FALLBACK="quiet")
    assert done.returncode == 0, done.stderr
    order = [
        done.stdout.index(text)
        for text in ("last line", "thread 1048576", "handler", "operator  ", "peak memory")
    ]
    assert order == sorted(order)
    device = next(line for line in done.stdout.splitlines() if line.startswith("fl:0 (sim:0"))
    assert float(device.split(")")[1].split()[0]) >= 8  # two of 4 MiB
    assert float(device.split("MiB")[1].split()[0]) > 0
    last = done.stdout.splitlines()[-1]
    assert last.startswith("fallbacks: 1 calls of 1 operators on the CPU") and last.endswith(
        "aten::_linalg_svd"
    )


def test_run_without_a_device(tmp_path):
    path = tmp_path / "nothing.py"
    path.write_text("print(__name__)\n")
    done = torch_fl("run", path, XDG_CACHE_HOME=str(tmp_path))
    assert "__main__\n" in done.stdout and "no device was used in" in done.stdout
    assert done.stdout.endswith("fallbacks: none; no operator has run on a device\n")


SCRIPTS = {
    "error": "def f():\n    raise ValueError('no')\nf()\n",
    "syntax": "x = (\n",
    "exit code": "import sys\nsys.exit(7)\n",
    "interrupt": "raise KeyboardInterrupt\n",
    "own hook": "import sys\nsys.excepthook = lambda k, e, t: print('hook', k.__name__, t.tb_lineno, t.tb_next, file=sys.stderr)\nraise OSError\n",
    "term": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n",
    "kill in hand": "import os, signal\nsignal.signal(signal.SIGTERM, lambda *a: exit(9))\nos.kill(os.getpid(), signal.SIGTERM)\nimport time; time.sleep(5)\n",
    "names": "import sys, os\nprint(sys.argv[1:], __name__, os.path.basename(__file__), __spec__, __package__, sys.path[0] == os.path.dirname(__file__) or sys.flags.safe_path)\nassert sys.modules['__main__'].__dict__ is globals()\nimport pickle\nclass C: pass\nassert type(pickle.loads(pickle.dumps(C()))) is C\nprint('stop', file=sys.stderr)\n",
    "forks": "import os\nif os.fork() == 0:\n    print('child', flush=True)\nelse:\n    os.wait()\n",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_run_is_python(name, tmp_path):
    """Exit status and stderr are those of `python script.py`; stdout begins with its own."""
    path = tmp_path / "script.py"
    path.write_text(SCRIPTS[name])
    here = torch_fl("run", path, "--a", "-b", "c", XDG_CACHE_HOME=str(tmp_path), FL_CONFIG="")
    there = plain(path, "--a", "-b", "c")
    assert (here.returncode, here.stderr) == (there.returncode, there.stderr)
    assert here.stdout.startswith(there.stdout)
    assert here.stdout.count("fallbacks: none") == (0 if name == "term" else 1)


def test_run_of_what_is_not_there(tmp_path):
    done = torch_fl("run", tmp_path / "gone.py")
    assert done.returncode == 2 and "can't open file" in done.stderr and not done.stdout


def test_run_under_settings(tmp_path):
    path = tmp_path / "project" / "script.py"
    path.parent.mkdir()
    path.write_text(
        "import torch; print(torch.fl.config.fallback, torch.fl.config.log, __import__('sys').argv[1:])\n"
    )
    (path.parent / "torch-fl.toml").write_text('fallback = "error"\nlog = "error"\n')
    how = {"XDG_CACHE_HOME": str(tmp_path)}
    assert torch_fl("run", path, "a b", **how).stdout.startswith("error error ['a b']\n")
    assert torch_fl("run", path, FL_LOG="info", **how).stdout.startswith("error info []\n")
    assert torch_fl("run", path, FL_CONFIG="", **how).stdout.startswith("warn warning []\n")
    assert torch_fl("run", "--set", "fallback=quiet", path, **how).stdout.startswith("quiet error []\n")
    for wrong, words in [("fallback=never", "warn, error, quiet"), ("falback=warn", "falback")]:
        done = torch_fl("run", "--set", wrong, path, **how)
        assert done.returncode == 2 and words in done.stderr and not done.stdout


def test_a_settings_file_is_written(tmp_path):
    done = torch_fl("config", "--toml", FL_FALLBACK="quiet", FL_VISIBLE_DEVICES="sim:0")
    assert 'fallback = "quiet"\n' in done.stdout and 'visible_devices = ["sim:0"]\n' in done.stdout
    assert '# log = "warning"\n' in done.stdout and "# fault_lines = false\n" in done.stdout


def test_devices():
    done = torch_fl("devices")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == torch.fl.device_count() and "sim:0" in done.stdout


@no_chip_package
def test_devices_when_there_is_none():
    done = torch_fl("devices", FL_SIM_DEVICES="0", FL_VISIBLE_DEVICES="")
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
    table = done.stdout[done.stdout.index("operator") : done.stdout.index("\ndevice ") + 1]
    assert torch_fl("ops", XDG_CACHE_HOME=str(tmp_path)).stdout.endswith(table)


def test_ops_without_a_report(tmp_path):
    done = torch_fl("ops", XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 1 and "torch-fl run" in done.stderr


def test_include_has_the_headers():
    from pathlib import Path

    assert (Path(torch_fl("include").stdout.strip()) / "fl" / "chip.h").is_file()


def test_unknown_command():
    assert torch_fl("prescribe").returncode == 2
