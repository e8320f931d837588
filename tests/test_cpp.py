"""The C++ tests: each program of the build is one test."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("FL_BUILD_DIR", ROOT / "build"))
SOURCES = sorted((ROOT / "tests" / "cpp").glob("*_test.cpp"))


@pytest.mark.parametrize("name", [source.stem for source in SOURCES])
def test_program(name):
    program = BUILD / "tests" / name
    assert program.exists(), (
        f"{program} is not built: cmake -B {BUILD} && cmake --build {BUILD} (or set FL_BUILD_DIR)"
    )
    # The programs choose their own settings.
    env = {key: value for key, value in os.environ.items() if not key.startswith("FL_")}
    done = subprocess.run([program], env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{name} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert " 0 failures" in done.stdout, f"{name} does not say what it checked\n{done.stdout}"
