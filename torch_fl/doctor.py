"""torch-fl doctor: what is installed, what was found, and whether each device computes rightly.

Everything that runs a chip's code does so in a child process: a chip that crashes or hangs is a line in
the report.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from typing import Any


def run(extra_chips: list[str], as_json: bool = False, timeout: float = 120) -> int:
    """Print the findings; 0 when there is a device and all is well, else 1."""
    found = examine(extra_chips, timeout)
    print(json.dumps(found, indent=1) if as_json else describe(found))
    return 0 if found["healthy"] else 1


def examine(extra_chips: list[str], timeout: float = 120) -> dict[str, Any]:
    """Everything doctor knows, as plain data."""
    import torch

    from . import __version__, _load

    found: dict[str, Any] = {
        "versions": {
            "torch-fl": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "bridges for torch": _load.covered_versions(),
            "platform": platform.platform(),
        },
        "failure": _load.failure,
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith("FL_")},
        "chips": [],
        "devices": [],
        "refusals": [],
        "healthy": False,
    }
    if _load.failure:
        return found

    from . import _native, chips, cuda_view

    found["cuda view"] = "on" if cuda_view.is_enabled() else "off"
    try:
        given = [path for path in _native.get_setting("chip_path").split(":") if path]
    except RuntimeError as error:  # FL_CONFIG's file is refused
        found["failure"] = str(error)
        return found
    for path in dict.fromkeys([*chips.find(), *given, *extra_chips]):
        found["chips"].append({"path": path, **_ask(["chip", path], timeout)})
    found["refusals"] += [{"path": name, "reason": reason} for name, reason in chips.broken]

    answer = _ask(["devices"], timeout)
    if "error" in answer:
        culprits = [chip["path"] for chip in found["chips"] if chip.get("died")]
        remedy = f"; uninstall or take out of FL_CHIP_PATH: {', '.join(culprits)}" if culprits else ""
        found["failure"] = f"asking for the devices {answer['error']}{remedy}"
        return found
    found["devices"] = answer["devices"]
    found["refusals"] += answer["refusals"]
    for index, device in enumerate(found["devices"]):
        device["index"] = index
        device.update(_ask(["maths", str(index)], timeout))
    good = all("error" not in chip for chip in found["chips"]) and not found["refusals"]
    computing = bool(found["devices"]) and all(device.get("verdict") == "ok" for device in found["devices"])
    found["healthy"] = good and computing
    return found


def describe(found: dict[str, Any]) -> str:
    """The report for a person."""
    lines = []
    for name, value in found["versions"].items():
        lines.append(f"{name + ':':<20}{', '.join(value) if isinstance(value, list) else value}")
    if "cuda view" in found:
        lines.append(f"{'cuda view:':<20}{found['cuda view']}")
    for name, value in found["environment"].items():
        lines.append(f"{name + ':':<20}{value}")
    if found["failure"]:
        lines.append(f"PROBLEM: {found['failure']}")
    for chip in found["chips"]:
        lines.append(f"chip {chip['path']}")
        if "error" in chip:
            lines.append(f"  REFUSED: {chip['error']}")
        else:
            lines.append(f"  {chip['name']} {chip['release']}, ABI {chip['abi']}, {chip['devices']} devices")
    known = {chip["path"] for chip in found["chips"] if "error" in chip}
    for refusal in found["refusals"]:
        if refusal["path"] not in known:
            lines.append(f"chip {refusal['path']}\n  REFUSED: {refusal['reason']}")
    for device in found["devices"]:
        lines.append(f"device fl:{device['index']}  {device['name']}  {device['device_name']}  "
                     f"{device['total_memory'] / 2**30:.1f} GiB")  # fmt: skip
        if "error" in device:
            lines.append(f"  FAILED: the test {device['error']}")
        else:
            lines += [f"  {check['name']:<28}{check['result']}" for check in device["checks"]]
    if not found["devices"] and not found["failure"]:
        lines.append("no device was found")
    lines.append("verdict: " + ("all is well" if found["healthy"] else "something is wrong, see above"))
    return "\n".join(lines)


def _ask(question: list[str], timeout: float) -> dict[str, Any]:
    """Ask a child process; its JSON answer, or {"died": True, "error": what became of it}."""
    environment = {**os.environ, "FL_CUDA_VIEW": "0"}
    if question[0] == "chip":  # that chip alone
        environment.update(FL_CHIP_PATH="", FL_VISIBLE_DEVICES="")
    # The child imports this very package, wherever it was started from.
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    try:
        child = subprocess.run(
            [sys.executable, "-m", "torch_fl.doctor", *question],
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        return {"died": True, "error": f"gave no answer within {timeout:g} s"}
    if child.returncode:
        status = child.returncode
        end = f"crashed with {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return {"died": True, "error": end + _last_line(child.stderr)}
    return json.loads(child.stdout.splitlines()[-1])


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return f": {lines[-1]}" if lines else ""


# ------------------------------------------------------------ in the child


def _chip(path: str) -> dict[str, Any]:
    from . import _native

    reason = _native.load_check(path)
    if reason:
        return {"error": reason}
    _native.set_chip_finder(lambda: [path])
    for refusal in _native.refusals():
        return {"error": refusal["reason"]}
    chip = _native.chips()[0]
    return {
        "name": chip["name"],
        "release": chip["release"],
        "abi": ".".join(str(part) for part in chip["abi"]),
        "devices": len(_native.devices()),
        "claims": chip["claims"],
    }


def _devices() -> dict[str, Any]:
    from . import _native

    return {"devices": _native.devices(), "refusals": _native.refusals()}


def _maths(index: int) -> dict[str, Any]:
    """Compare a few typical computations with the CPU."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    device = torch.device("fl", index)
    torch.manual_seed(0)
    a, b = torch.randn(129, 65), torch.randn(65, 33)
    image = torch.randn(2, 3, 17, 19)
    weight = torch.randn(5, 3, 3, 3)

    def train(place: torch.device | str) -> torch.Tensor:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(65, 16), nn.ReLU(), nn.Linear(16, 4)).to(place)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(a.to(place)), (torch.arange(129) % 4).to(place)).backward()
            optimizer.step()
        return model[0].weight.detach()

    computations = {
        "copy there and back": lambda d: a.to(d).t().contiguous(),
        "pointwise": lambda d: torch.tanh(a.to(d) * 2 + 1).relu(),
        "integers of 64 bits": lambda d: torch.tensor([2**53 + 1, -(2**62)]).to(d) + 1,
        "reduction": lambda d: a.to(d).sum(dim=1),
        "matrix product": lambda d: a.to(d) @ b.to(d),
        "convolution": lambda d: F.conv2d(image.to(d), weight.to(d), padding=1),
        "softmax": lambda d: F.softmax(a.to(d), dim=1),
        "index": lambda d: a.to(d)[torch.tensor([3, 1, 128]).to(d)],
        "three training steps": train,
    }
    checks = []
    for name, compute in computations.items():
        try:
            expected, got = compute("cpu"), compute(device).cpu()
            if got.dtype == expected.dtype and torch.allclose(got, expected, rtol=1e-3, atol=1e-4):
                result = "ok"
            else:
                difference = (got.double() - expected.double()).abs().max().item()
                result = f"WRONG: off by up to {difference:g} from the CPU's result"
        except Exception as error:
            result = f"FAILED: {type(error).__name__}: {str(error).splitlines()[0]}"
        checks.append({"name": name, "result": result})
    try:
        torch.fl.synchronize(device)
    except RuntimeError as error:
        checks.append({"name": "synchronize", "result": f"FAILED: {str(error).splitlines()[0]}"})
    verdict = "ok" if all(check["result"] == "ok" for check in checks) else "bad"
    return {"verdict": verdict, "checks": checks}


def _child(question: str, *arguments: str) -> None:
    import torch  # noqa: F401

    import torch_fl

    if torch_fl._load.failure:
        raise SystemExit(torch_fl._load.failure)
    answers = {"chip": _chip, "devices": _devices, "maths": lambda index: _maths(int(index))}
    print(json.dumps(answers[question](*arguments)))


if __name__ == "__main__":
    _child(*sys.argv[1:])
