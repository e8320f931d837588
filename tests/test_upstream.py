"""The program that runs PyTorch's own tests: each way in which one may end, on files of the same form."""

import importlib.util
import pathlib
import sys
import types

import pytest

UPSTREAM = pathlib.Path(__file__).parent / "upstream"
sys.path.insert(0, str(UPSTREAM))
import exclusions  # noqa: E402 - its folder is known by now

# By its path: other tests have a program of the name run, too.
spec = importlib.util.spec_from_file_location("upstream_run", UPSTREAM / "run.py")
run = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run)

FILE = """
import os
import time
import torch
from torch.testing._internal.common_device_type import instantiate_device_type_tests, onlyCUDA
from torch.testing._internal.common_utils import TestCase, parametrize

class TestEnds(TestCase):
    @parametrize("n", [1, 2])
    def test_passes(self, device, n):
        self.assertEqual(torch.ones(n, device=device).sum().item(), n)

    def test_fails_here(self, device):
        self.assertEqual(torch.device(device).type, "cpu")

    def test_fails_everywhere(self, device):
        self.assertEqual(torch.ones(2, device=device), torch.zeros(2, device=device))

    def test_crashes(self, device):
        if device != "cpu":
            os.abort()

    def test_hangs(self, device):
        if device != "cpu":
            time.sleep(1000)

    @onlyCUDA
    def test_of_cuda(self, device):
        pass

    def test_late_fault_is_seen(self, device):
        with self.assertRaises(IndexError):
            torch.ones(3, device=device)[torch.tensor([7], device=device)]

    def test_late_fault_is_left(self, device):
        torch.ones(3, device=device)[torch.tensor([7], device=device)]

instantiate_device_type_tests(TestEnds, globals())
"""


@pytest.fixture
def outcomes(tmp_path, monkeypatch):
    """What becomes of each test of FILE, given a table of exclusions."""

    def ends(table=(), keyword=""):
        (tmp_path / "test_ends.py").write_text(FILE)
        monkeypatch.setattr(exclusions, "EXCLUSIONS", list(table))
        options = types.SimpleNamespace(keyword=keyword, timeout=10, part=1, cuda=False)
        with (tmp_path / "log").open("w") as log:
            records = list(run.run_file(tmp_path, "test_ends.py", options, log))
        return {r["test"].split(".test_")[1].replace("_fl", ""): r["outcome"] for r in records}

    return ends


@pytest.mark.slow
def test_ends(outcomes):
    assert outcomes() == {
        "passes_n_1": "passed",
        "passes_n_2": "passed",
        "fails_here": "failed",
        "fails_everywhere": "cpu fails too",
        "crashes": "crashed",
        "hangs": "hung",
        "of_cuda": "skipped",
        "late_fault_is_seen": "passed",
        "late_fault_is_left": "cpu fails too",
    }


@pytest.mark.slow
def test_exclusions(outcomes):
    table = [
        ("test_ends\\.py", ".*fails_here_fl", "for a reason"),
        ("test_ends\\.py", ".*passes_n_1_fl", "for no reason"),
        ("test_ends\\.py", ".*hangs_fl", exclusions.NOT_RUN + "takes an hour"),
        ("test_other\\.py", ".*", "another file"),
    ]
    assert outcomes(table, "passes|fails_here|hangs") == {
        "passes_n_1": "failed",  # an exclusion that is not needed
        "passes_n_2": "passed",
        "fails_here": "excluded",
        "hangs": "excluded",
    }


def test_names():
    assert run.on_cpu("TestAFL.test_flip_fl_float32") == "TestACPU.test_flip_cpu_float32"
    assert run.on_cpu("TestAPRIVATEUSE1.test_floor_fl") == "TestACPU.test_floor_cpu"
