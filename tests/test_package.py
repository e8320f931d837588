"""The installed package: its files, what import costs, and that it never breaks import torch."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from child import run_child

import torch_fl

FOLDER = Path(torch_fl.__file__).parent
ROOT = Path(__file__).resolve().parent.parent


def installed():
    """The installed distribution; None where the package is used from the source tree."""
    try:
        found = importlib.metadata.distribution("torch-fl")
    except importlib.metadata.PackageNotFoundError:
        return None
    return found if any(str(file) == "torch_fl/__init__.py" for file in found.files or ()) else None


needs_wheel = pytest.mark.skipif(installed() is None, reason="runs on the installed wheel: make test")


@needs_wheel
def test_the_wheel_has_all_it_needs():
    names = {str(file) for file in installed().files}
    minor = "_".join(torch.__version__.split(".")[:2])
    for name in (
        f"torch_fl/_bridge_{minor}.so",
        "torch_fl/chips/libfl_sim.so",
        "torch_fl/lib/libdnnl.so.3",
        "torch_fl/lib/onednn-LICENSE.txt",
        "torch_fl/lib/onednn-THIRD-PARTY-PROGRAMS.txt",
        "torch_fl/include/fl/chip.h",
        "torch_fl/include/fl/ops.h",
        "torch_fl/include/fl/program.h",
        "torch_fl/py.typed",
    ):
        assert name in names
    assert any(name.endswith("bin/fl-kit") for name in names)
    assert any(name.endswith("bin/torch-fl") for name in names)
    outside = {n for n in names if not n.startswith(("torch_fl/", "torch_fl-"))}
    assert all("/bin/" in name for name in outside), outside


@needs_wheel
def test_entry_points():
    assert installed().version == torch_fl.__version__
    (backend,) = [e for e in importlib.metadata.entry_points(group="torch.backends") if e.name == "fl"]
    assert backend.load() is torch_fl._autoload


@needs_wheel
def test_sim_finds_the_math_library_of_the_package():
    environment = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    command = ["ldd", str(FOLDER / "chips" / "libfl_sim.so")]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in out.splitlines() if "libdnnl" in line]
    assert Path(line.split("=>")[1].split()[0]).resolve() == (FOLDER / "lib" / "libdnnl.so.3").resolve()


@needs_wheel
def test_import_torch_is_enough():
    out = run_child(
        "import torch; print(torch.fl.is_available(), torch.ones(2, device='fl').sum().item())"
    ).stdout
    assert out == "True 2.0\n"


def test_import_starts_nothing():
    code = """
        import torch, torch_fl, os
        maps = open("/proc/self/maps").read()
        assert "libfl_sim" not in maps and "libdnnl" not in maps
        assert not torch_fl._native.chips_loaded() and not torch.fl.is_initialized()
        print(len(os.listdir("/proc/self/task")))
    """
    plain = "import os, torch; print(len(os.listdir('/proc/self/task')))"
    assert run_child(code).stdout == run_child(plain, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout


@needs_wheel  # which has its Python files compiled
def test_import_costs_little():
    # A ratio within one process, so that a slow or busy machine does not decide; in milliseconds it is about 20.
    code = """
        import time
        before = time.process_time()
        import torch
        middle = time.process_time()
        import torch_fl
        print(middle - before, time.process_time() - middle)
    """
    runs = [run_child(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout.split() for _ in range(5)]
    share = min(float(added) / float(alone) for alone, added in runs)
    assert share < 0.025, f"{100 * share:.1f} % of import torch"


@pytest.mark.parametrize(
    "code, autoload",
    [
        ("import torch, torch_fl", "1"),
        ("import torch_fl, torch", "1"),
        ("import torch, torch_fl", "0"),
        ("import torch_fl, torch", "0"),
        ("import torch_fl; torch_fl._autoload(); torch_fl._autoload(); import torch", "1"),
        ("import torch_fl.fl, torch_fl.device, torch", "1"),
    ],
)
def test_any_order_of_imports(code, autoload):
    code += "; import sys; assert torch.fl is torch_fl.fl is sys.modules['torch.fl']"
    code += "; print(torch.fl.device_count())"
    done = run_child(code, TORCH_DEVICE_BACKEND_AUTOLOAD=autoload)
    assert done.stdout.strip() == str(torch.fl.device_count()) and not done.stderr


@pytest.fixture
def copied(tmp_path):
    """The Python files of the package alone, to be broken."""
    copy = tmp_path / "torch_fl"
    shutil.copytree(
        FOLDER, copy, ignore=shutil.ignore_patterns("*.so*", "lib", "chips", "include", "__pycache__")
    )
    return copy


def import_broken(copy, flags=()):
    code = (
        "import torch_fl, torch; assert torch_fl.__file__.startswith(%r); print(torch.ones(2).sum().item())"
    )
    return subprocess.run(
        [sys.executable, *flags, "-c", code % str(copy)],
        env={**os.environ, "PYTHONPATH": str(copy.parent), "TORCH_DEVICE_BACKEND_AUTOLOAD": "1"},
        cwd=copy.parent,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("flags", [(), ("-W", "error")], ids=["plain", "warnings are errors"])
@pytest.mark.parametrize("case", ["no bridge", "other versions", "no library", "undefined symbol"])
def test_a_bad_bridge_is_one_warning(copied, case, flags):
    minor = "_".join(torch.__version__.split(".")[:2])
    said = {
        "no bridge": f"no bridge for PyTorch {torch.__version__}",
        "other versions": "Covered: 2.9, 2.10",
        "no library": "file too short",
        "undefined symbol": "fl_is_missing",
    }[case]
    if case == "other versions":
        (copied / "_bridge_2_10.so").touch()
        (copied / "_bridge_2_9.so").touch()
    if case == "no library":
        (copied / f"_bridge_{minor}.so").write_text("nothing")
    if case == "undefined symbol":
        source = copied / "x.c"
        name = f"PyInit__bridge_{minor}"
        source.write_text(f"extern int fl_is_missing; void *{name}(void) {{ return &fl_is_missing; }}")
        subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", copied / f"_bridge_{minor}.so"], check=True)
    done = import_broken(copied, flags)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2.0\n"
    assert said in done.stderr
    warnings = done.stderr.count("RuntimeWarning: torch-fl: ") + done.stderr.count("torch-fl WARNING: ")
    assert warnings == 1


def test_another_backend_is_left_alone():
    code = """
        import torch
        torch.utils.rename_privateuse1_backend("other")
        import torch_fl
        assert torch._C._get_privateuse1_backend_name() == "other" and not hasattr(torch, "fl")
        assert "_bridge" not in open("/proc/self/maps").read()
    """
    done = run_child(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert "'other'" in done.stderr and "Uninstall one" in done.stderr


@needs_wheel
def test_uninstalling_leaves_no_trace(tmp_path):
    wheels = sorted((ROOT / "dist" / torch.__version__.split("+")[0]).glob("torch_fl-*.whl"))
    assert wheels, "make builds the wheel into dist/"
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    (here,) = {Path(torch.__file__).parent.parent}
    for item in here.iterdir():  # all that is installed here but torch-fl, as it is
        if not item.name.startswith(("torch_fl", "__pycache__")):
            (site / item.name).symlink_to(item)
    python = environment / "bin" / "python"
    files = lambda: {str(p) for p in environment.rglob("*") if "__pycache__" not in str(p)}  # noqa: E731
    look = "import torch; print(sorted(dir(torch)), hasattr(torch, 'fl'), torch.cuda.is_available())"

    def run(*command):
        clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        done = subprocess.run(command, env=clean, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    before, plain = files(), run(python, "-c", look)
    pip = [sys.executable, "-m", "pip", "--python", python]
    run(*pip, "install", "--no-deps", "--no-index", wheels[-1])
    assert run(python, "-c", "import torch; print(torch.ones(2, device='fl').sum().item())") == "2.0\n"
    run(*pip, "uninstall", "--yes", "torch-fl")
    assert files() == before
    assert run(python, "-c", look) == plain
    assert "False" in plain
