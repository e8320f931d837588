"""One test file of PyTorch's on one device: runs the tests that are named on its input, one a line.

A process of its own, because a test may crash, hang, or leave settings behind.  Answers are JSON, a line each.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import sys
import time
import traceback
import unittest


class Result(unittest.TestResult):
    """The outcome of one test; the last word is the worst one."""

    def __init__(self):
        super().__init__()
        self.outcome, self.message, self.detail = "passed", "", ""

    def _fault(self, outcome, err):
        kind, value, trace = err
        text = str(value).strip()
        self.outcome, self.message = outcome, f"{kind.__name__}: {text[:600]}"
        self.detail = "".join(traceback.format_exception(kind, value, trace))[-8000:]

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._fault("failed", err)

    def addError(self, test, err):
        super().addError(test, err)
        self._fault("failed", err)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._fault("failed", err)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        if self.outcome == "passed":
            self.outcome, self.message = "skipped", reason

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        # PyTorch expects it of every device but those that it names.
        self.outcome, self.message = "passed", "as expected, it fails"

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.outcome, self.message = "failed", "passes, and PyTorch expects that it does not"


def load(path):
    """The file as a module, with the tests that its folder's neighbours import on the path."""
    root = path.parent
    while root.name != "test" and (root.parent / "test_torch.py").exists():
        root = root.parent
    sys.path[:0] = [str(path.parent), str(root)]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    sys.argv = [str(path)]
    # In the classes that later releases make of a test's class, this call of its setUp() calls itself.
    source = path.read_text().replace("super(self.__class__, self)", "super()")
    exec(compile(source, str(path), "exec"), vars(module))
    return module


def wait_in_raises(synchronize):
    """assertRaises waits for the device, which finds some faults (a wrong index) after the call that made them."""
    context = unittest.case._AssertRaisesContext
    leave = context.__exit__

    def wait_and_leave(self, kind, value, trace):
        if kind is None:
            try:
                synchronize()
            except Exception:
                kind, value, trace = sys.exc_info()
        return leave(self, kind, value, trace)

    context.__exit__ = wait_and_leave


def main():
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what tests print is not an answer
    path, device, cuda = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "cuda"

    sys.path.insert(0, str(pathlib.Path(__file__).parent))  # PYTHONSAFEPATH keeps it out
    import moved
    import torch

    moved.install()
    from torch.testing._internal import common_device_type

    if device != "cpu":
        wait_in_raises(torch.accelerator.synchronize)
        # Tests that PyTorch runs on CUDA alone run here as well.
        common_device_type.PrivateUse1TestBase.bypass_device_restrictions = cuda
    module = load(path)
    tests = {}
    for name, value in list(vars(module).items()):
        if not (isinstance(value, type) and issubclass(value, common_device_type.DeviceTypeTestBase)):
            continue
        for method in unittest.TestLoader().getTestCaseNames(value):
            tests[f"{name}.{method}"] = (value, method)
    print(json.dumps({"tests": list(tests)}), file=answers)

    for line in sys.stdin:
        value, method = tests[line.strip()]
        result, started = Result(), time.monotonic()
        try:
            unittest.TestSuite([value(method)])(result)
        except BaseException:
            result._fault("failed", sys.exc_info())
        try:
            torch.accelerator.synchronize()  # or a fault that comes late would be the next test's
        except RuntimeError:
            if result.outcome == "passed":
                result._fault("failed", sys.exc_info())
        seconds = round(time.monotonic() - started, 3)
        answer = {
            "outcome": result.outcome,
            "message": result.message,
            "detail": result.detail,
            "seconds": seconds,
        }
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
