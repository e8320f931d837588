"""torch-fl doctor: healthy installations, and chips that are broken in every way."""

import json
import os
import subprocess
import sys

import pytest
import torch
from child import no_chip_package
from test_refusals import CHIPS

from torch_fl.doctor import describe

CHIP = """
#include "fl/chip.h"
#include <stdlib.h>
#include <unistd.h>
{0}
const fl_chip* fl_chip_entry(uint32_t version, const fl_host* host) {{ {1} }}
"""


def doctor(*arguments, **environment):
    done = subprocess.run(
        [sys.executable, "-m", "torch_fl.cli", "doctor", *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode in (0, 1), done.stderr
    return done


@pytest.fixture
def build(tmp_path):
    include = subprocess.run(
        [sys.executable, "-m", "torch_fl.cli", "include"], capture_output=True, text=True, check=True
    ).stdout.strip()

    def compile_chip(name, body, before=""):
        source, library = tmp_path / f"{name}.c", tmp_path / f"lib{name}.so"
        source.write_text(CHIP.format(before, body))
        subprocess.run(["gcc", "-shared", "-fPIC", f"-I{include}", source, "-o", library], check=True)
        return library

    return compile_chip


def test_healthy():
    done = doctor()
    assert done.returncode == 0, done.stdout
    assert "verdict: all is well" in done.stdout and torch.__version__ in done.stdout
    assert done.stdout.count("three training steps") == torch.fl.device_count()


def test_json_names_everything():
    found = json.loads(doctor("--json").stdout)
    assert found["healthy"] and found["versions"]["torch"] == torch.__version__
    assert [chip["name"] for chip in found["chips"]] == ["sim"]
    assert all(device["verdict"] == "ok" for device in found["devices"])


def test_chips_that_are_broken(build, tmp_path):
    text = tmp_path / "libtext.so"
    text.write_text("not a library")
    chips = {
        build("crash", "abort();"): "SIGABRT",
        build("segfault", "*(volatile int*)8 = 1; return 0;"): "SIGSEGV",
        build("leaves", "_exit(7);"): "status 7",
        build("sulks", 'host->set_error("no licence for this chip"); return 0;'): "no licence for this chip",
        CHIPS / "broken_crashes_in_count.so": "crashed with SIGABRT",
        CHIPS / "broken_crashes_in_properties.so": "crashed with SIGSEGV",
        CHIPS / "broken_throws_in_count.so": "device.count failed: it threw",
        CHIPS / "broken_throws_in_properties.so": "device 1 is not used: device.properties failed: it threw",
        text: "libtext.so",
        tmp_path / "libabsent.so": "libabsent.so",
    }
    found = json.loads(doctor("--json", *chips).stdout)
    assert not found["healthy"]
    errors = {chip["path"]: chip.get("error") for chip in found["chips"]}
    for path, said in chips.items():
        assert said in errors[str(path)], (path, errors[str(path)])
    # What is asked about does not change what is found: the devices work.
    assert all(device["verdict"] == "ok" for device in found["devices"])
    assert "REFUSED: crashed with SIGABRT" in describe(found)


def test_a_chip_that_hangs(build):
    chip = build("sleeps", "sleep(1000); return 0;")
    found = json.loads(doctor("--json", "--timeout", 30, chip).stdout)
    (asked,) = [c for c in found["chips"] if c["path"] == str(chip)]
    assert "no answer within 30 s" in asked["error"]


@pytest.mark.parametrize("name, signal", [("count", "SIGABRT"), ("properties", "SIGSEGV")])
def test_a_crashing_chip_in_the_path_is_named(name, signal):
    chip, sound = CHIPS / f"broken_crashes_in_{name}.so", CHIPS / "libfl_template.so"
    done = doctor(FL_CHIP_PATH=f"{sound}:{chip}")
    assert done.returncode == 1
    assert f"chip {chip}\n  REFUSED: crashed with {signal}" in done.stdout
    (problem,) = [line for line in done.stdout.splitlines() if line.startswith("PROBLEM")]
    assert f"asking for the devices crashed with {signal}" in problem
    assert str(chip) in problem and str(sound) not in problem


@pytest.mark.parametrize("name", ["count", "properties"])
def test_a_chip_that_throws_costs_only_itself(name):
    chip = CHIPS / f"broken_throws_in_{name}.so"
    done = doctor(FL_CHIP_PATH=str(chip), FL_SIM_DEVICES="1", FL_VISIBLE_DEVICES="sim")
    assert done.returncode == 1 and f"chip {chip}\n  REFUSED: device" in done.stdout
    assert "it threw a C++ exception" in done.stdout and "PROBLEM" not in done.stdout
    assert done.stdout.count("three training steps        ok") == 1


def test_a_device_that_computes_wrongly_or_fails():
    found = json.loads(doctor("--json", FL_SIM_FAULTS="kernel=gemm:1+", FL_SIM_DEVICES="1").stdout)
    (device,) = found["devices"]
    assert not found["healthy"] and device["verdict"] == "bad"
    results = {check["name"]: check["result"] for check in device["checks"]}
    assert results["matrix product"] != "ok" and results["pointwise"] == "ok"


@no_chip_package
def test_no_devices():
    done = doctor(FL_SIM_DEVICES="0", FL_VISIBLE_DEVICES="")
    assert done.returncode == 1 and "no device was found" in done.stdout
