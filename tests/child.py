"""Running Python in a process of its own, for what cannot be undone or may crash."""

import atexit
import functools
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from importlib.metadata import entry_points
from pathlib import Path

import pytest

BUILD = Path(os.environ.get("FL_BUILD_DIR", Path(__file__).parents[1] / "build"))
# For what happens where there is no device at all.
no_chip_package = pytest.mark.skipif(
    bool(entry_points(group="torch_fl.chips")), reason="a chip is installed, and has devices"
)
TEMPLATE = str(BUILD / "chips" / "libfl_template.so")


def run_child(code, check=True, timeout=240, **environment):
    """Runs the code; its stdout, stderr and return code.  check: it must end with 0; None unsets a variable."""
    merged = {**os.environ, **environment}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={name: value for name, value in merged.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    if check:
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def run_beside_template(code, **settings):
    """As run_child, with the template chip after sim: mandatory entries alone, and no float16."""
    return run_child(code, **{"FL_CHIP_PATH": TEMPLATE, "FL_VISIBLE_DEVICES": "sim,template", **settings})


# Forks for each line read, in a process that has imported torch and used no device.  The child goes on below
# the loop, so that it ends as any program does.
SERVER = """
import json, os, signal, sys, time
import torch
for _line in sys.stdin:
    _asked = json.loads(_line)
    _child = os.fork()
    if not _child:
        break
    _deadline = time.monotonic() + _asked["timeout"]
    while not (_ended := os.waitpid(_child, os.WNOHANG))[0]:
        if time.monotonic() > _deadline:
            os.kill(_child, signal.SIGKILL)
            _ended = os.waitpid(_child, 0)
            break
        time.sleep(0.005)
    print(os.waitstatus_to_exitcode(_ended[1]), flush=True)
else:
    sys.exit()
for _number, _path in ((1, _asked["out"]), (2, _asked["err"])):
    _file = os.open(_path, os.O_WRONLY)
    os.dup2(_file, _number)
    os.close(_file)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.environ.clear()
os.environ.update(_asked["environment"])
del _line, _child, _number, _path, _file
exec(_asked["code"], globals())
"""


@functools.cache
def server():
    started = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(started.stdin.close)
    return started


def run_forked(code, check=True, timeout=240, **environment):
    """As run_child, but some 2 s sooner, which importing torch takes: it has been imported before.

    For programs whose settings are the sim chip's, which are read when the chip is loaded; torch-fl's own are
    read by import torch.
    """
    with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
        asked = {
            "code": textwrap.dedent(code),
            "environment": {**os.environ, **environment},
            "timeout": timeout,
            "out": out.name,
            "err": err.name,
        }
        forker = server()
        forker.stdin.write(json.dumps(asked) + "\n")
        forker.stdin.flush()
        status = int(forker.stdout.readline())
        texts = [f.read().decode(errors="replace") for f in (out, err)]
    if check:
        assert status == 0, f"exit status {status}\n{texts[0]}\n{texts[1]}"
    return subprocess.CompletedProcess(code, status, *texts)
