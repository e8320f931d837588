"""PyTorch's own device-generic tests on a device, and what the CPU of the same PyTorch makes of those that fail.

    python tests/upstream/run.py PYTORCH/test [FILE …] [-k REGEX] [--out results.jsonl]

The files come from a source tree of PyTorch (they are not in its wheel) and stay there.  Each file runs in a process
of its own through torch.testing's PrivateUse1TestBase; a test that crashes or hangs costs one line.  A test that fails
on the CPU as well is not the device's: the files may be of another version than the PyTorch that is installed.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import pathlib
import re
import selectors
import subprocess
import sys
import time
import zlib

HERE = pathlib.Path(__file__).parent
DEVICE = "fl"


class Worker:
    """A process that runs the tests of one file on one device, and is started again when one of them ends it."""

    def __init__(self, path, device, cuda, log):
        self.arguments = [
            sys.executable,
            str(HERE / "worker.py"),
            str(path),
            device,
            "cuda" if cuda else "generic",
        ]
        self.environment = {
            **os.environ,
            "PYTORCH_TESTING_DEVICE_ONLY_FOR": "cpu" if device == "cpu" else "privateuse1",
            "FL_CUDA_VIEW": "0",  # with it, tests would take the device for CUDA by one name and not by the other
            "FL_FALLBACK": "quiet",  # tests count warnings
            "PYTHONWARNINGS": "default",  # as unittest sets it
            "PYTHONFAULTHANDLER": "1",
            "OMP_WAIT_POLICY": "passive",
        }
        self.log, self.process = log, None

    def start(self):
        self.process = subprocess.Popen(
            self.arguments,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            cwd=self.arguments[2].rsplit("/", 1)[0],
        )
        answer = self.answer(600)
        if answer is None:
            self.stop()
            raise RuntimeError("cannot be imported; see the log")
        return answer["tests"]

    def answer(self, timeout):
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(timeout):
                return None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def run(self, test, timeout):
        if self.process is None:
            self.start()
        self.log.write(f"== {test}\n")
        self.log.flush()
        started = time.monotonic()
        try:
            self.process.stdin.write(f"{test}\n".encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        answer = self.answer(timeout)
        if answer is not None:
            return answer
        seconds = round(time.monotonic() - started, 3)
        hangs = seconds >= timeout
        code = self.stop()
        message = f"no end after {timeout} s" if hangs else f"the process ended with {code}"
        return {
            "outcome": "hung" if hangs else "crashed",
            "message": message,
            "detail": "",
            "seconds": seconds,
        }

    def stop(self):
        if self.process is None:
            return None
        try:
            code = self.process.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.process = None
        return code


def on_cpu(test):
    """The same test's name where it runs on the CPU."""
    group, name = test.split(".")
    group = re.sub("(PRIVATEUSE1|FL)$", "CPU", group)
    return f"{group}." + re.sub(f"_{DEVICE}(?=_|$)", "_cpu", name)


def run_file(root, name, options, log):
    import exclusions

    path = root / name
    device = Worker(path, DEVICE, options.cuda, log)
    cpu, cpu_tests = Worker(path, "cpu", options.cuda, log), None
    tests = [
        t
        for t in device.start()
        if re.search(options.keyword, t) and not zlib.crc32(t.encode()) % options.part
    ]
    for test in tests:
        reason = exclusions.reason(name, test)
        if reason and reason.startswith(exclusions.NOT_RUN):
            yield {
                "file": name,
                "test": test,
                "outcome": "excluded",
                "message": reason,
                "detail": "",
                "seconds": 0,
            }
            continue
        record = {"file": name, "test": test, **device.run(test, options.timeout)}
        if record["outcome"] in ("failed", "crashed", "hung"):
            if cpu_tests is None:
                cpu_tests = set(cpu.start())
            counterpart = on_cpu(test)
            record["cpu"] = (
                cpu.run(counterpart, options.timeout)["outcome"] if counterpart in cpu_tests else "absent"
            )
            if record["cpu"] in ("failed", "crashed", "hung"):
                record["outcome"], record["message"] = "cpu fails too", record["message"]
            elif reason:
                record["outcome"], record["message"] = "excluded", reason
        elif reason and record["outcome"] == "passed":
            record["outcome"], record["message"] = "failed", f"passes, and is excluded: {reason}"
        yield record
    device.stop()
    cpu.stop()


def main():
    import exclusions

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=pathlib.Path, help="the folder test/ of a source tree of PyTorch")
    parser.add_argument(
        "files", nargs="*", default=exclusions.FILES, help="files in it; without: those in exclusions.py"
    )
    parser.add_argument(
        "-k", dest="keyword", default="", help="only tests whose name matches this regular expression"
    )
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("upstream.jsonl"))
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one test")
    parser.add_argument("--part", type=int, default=1, help="one test of so many")
    parser.add_argument("--cuda", action="store_true", help="tests that PyTorch runs on CUDA alone, too")
    options = parser.parse_args()

    counts, failed = collections.defaultdict(collections.Counter), False
    log = options.out.with_suffix(".log").open("w")
    with options.out.open("w") as out:
        for name in options.files:
            started = time.monotonic()
            try:
                for record in run_file(options.folder.resolve(), name, options, log):
                    counts[name][record["outcome"]] += 1
                    print(json.dumps(record), file=out, flush=True)
                    if record["outcome"] in ("failed", "crashed", "hung"):
                        failed = True
                        print(
                            f"{record['outcome']}: {name} {record['test']}: {record['message'][:200]!r}",
                            flush=True,
                        )
            except RuntimeError as error:
                failed = True
                counts[name]["not imported"] += 1
                print(f"{name}: {error}", flush=True)
            numbers = ", ".join(f"{n} {outcome}" for outcome, n in sorted(counts[name].items()))
            print(f"{name}: {numbers} in {time.monotonic() - started:.0f} s", flush=True)
    total = sum(counts.values(), collections.Counter())
    print("all: " + ", ".join(f"{n} {outcome}" for outcome, n in sorted(total.items())))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
