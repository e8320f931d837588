"""Public training scripts, unmodified, on the chip that is here and on the CPU: wall time and final loss.

    python tests/public/run.py                              all of them, brought from GitHub
    python tests/public/run.py --from DIR                   from copies in DIR/minGPT, DIR/char-rnn, …
    python tests/public/run.py --only gcn LSTM --keep DIR   those that have one of these in their names
    python tests/public/run.py --only torchvision           or among the modules that they need
    python tests/public/run.py --out docs/scripts.md        and write the table

Ends with 1 when a script failed or its final loss is not the CPU's.  A script whose modules are missing is
named, not run.  The table keeps the rows of scripts that were not run this time, so that those which need another
PyTorch are run with it, one after the other: each row says which.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from scripts import REPOSITORIES, SCRIPTS, Script  # noqa: E402

# What a launch setting would say for a script that names no device.
DEFAULT_DEVICE = (
    "import sys, torch; torch.set_default_device({!r}); from torch_fl.cli import main; sys.exit(main())"
)


@dataclass
class Run:
    seconds: float
    final: float | None
    output: str
    status: int
    fallbacks: tuple[str, ...] = ()
    operators: int = 0


def bring(name: str, folder: Path) -> None:
    address, commit = REPOSITORIES[name]
    if (folder / name).exists():
        return
    part = folder / f"{name}.part"
    shutil.rmtree(part, ignore_errors=True)
    subprocess.run(["git", "init", "--quiet", part], check=True)
    for command in (
        ["fetch", "--quiet", "--depth", "1", address, commit],
        ["checkout", "--quiet", "FETCH_HEAD"],
    ):
        subprocess.run(["git", "-C", part, *command], check=True)
    part.rename(folder / name)


def environment(script: Script, repositories: Path, folder: Path, on_chip: bool) -> dict[str, str]:
    path = [str(repositories / script.repository)] if script.repository == "minGPT" else []
    path += [str(HERE / "path")] if script.stand_ins else []
    path += filter(None, [os.environ.get("PYTHONPATH")])
    return {
        **{name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"},
        "PYTHONPATH": os.pathsep.join(path),
        "STAND_INS": str(folder),
        "TORCH_HOME": str(folder / "torch"),
        "XDG_CACHE_HOME": str(folder),
        "MPLBACKEND": "Agg",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": str(int(on_chip)),
        **dict([script.setting.split("=")] if script.setting else []),
    }


def execute(
    command: list[str], folder: Path, env: dict[str, str], until: str, limit: float
) -> tuple[str, int]:
    """Its output and exit status; 0 when it was stopped at `until`."""

    def written() -> str:
        return (folder / "output.txt").read_text(errors="replace")

    with (folder / "output.txt").open("w+") as file:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=file, stderr=subprocess.STDOUT,
                                   stdin=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
        start = time.monotonic()
        deadline, stopped, late = start + limit, False, False
        try:
            while process.poll() is None and not late:
                time.sleep(0.05)
                if until and not stopped and re.search(until, written()):
                    process.send_signal(signal.SIGINT)
                    stopped, deadline = True, time.monotonic() + 60
                late = time.monotonic() > deadline
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if late:
        return f"{written()}\nended after {time.monotonic() - start:.0f} s", 1
    return written(), 0 if stopped else process.returncode


def run(script: Script, repositories: Path, folder: Path, on_chip: bool, limit: float) -> Run:
    folder.mkdir(parents=True)
    if script.prepare:
        script.prepare(folder, repositories)
    env = environment(script, repositories, folder, on_chip)
    place = repositories / script.repository / script.path
    report = folder / "report.json"
    interpreter = [sys.executable, "-u"]
    if on_chip and script.device not in ("", "cpu"):
        interpreter += ["-c", DEFAULT_DEVICE.format(script.device)]
    elif on_chip:
        interpreter += ["-m", "torch_fl.cli"]
    interpreter += ["run", "--report", str(report)] if on_chip else []
    if script.before:
        subprocess.run([sys.executable, place.parent / script.before], cwd=folder, env=env, check=True)
    start = time.monotonic()
    # On the CPU the device is not asked for: a PyTorch with CUDA has an accelerator and no device.
    given = [word for word in shlex.split(script.arguments) if on_chip or word != "--accel"]
    command = [*interpreter, str(place), *given]
    output, status = execute(command, folder, env, script.until, limit)
    seconds = time.monotonic() - start
    found = re.findall(script.final, output)
    result = Run(seconds, float(found[-1]) if found else None, output, status)
    if report.exists():
        operators = json.loads(report.read_text())["operators"]
        result.operators = len(operators)
        result.fallbacks = tuple(sorted(name for name, counts in operators.items() if counts["fallback"]))
    return result


def verdict(script: Script, chip: Run, cpu: Run) -> str:
    """Empty when all is well."""
    for name, result in (("on the CPU", cpu), ("on the chip", chip)):
        if result.status:
            return f"exit status {result.status} {name}"
        if result.final is None:
            return f"no final loss {name}"
    if abs(chip.final - cpu.final) > script.tolerance * abs(cpu.final):
        return f"{chip.final:g} is more than {script.tolerance:g} of {cpu.final:g} away from it"
    if bool(chip.operators) == (script.device == "cpu"):
        return "ran on no device" if not chip.operators else "ran on the device, where it names none"
    return ""


def arguments(script: Script) -> str:
    text = f"{script.setting} {script.arguments}".strip()
    return f"`{text}`" if text else ""


def beginning(script: Script) -> str:
    """Of its row: what does not come from the run."""
    where = {"": "chip", "cpu": "CPU: names no device"}.get(script.device, "chip, as default device")
    return f"| {script.name} | {arguments(script)} | {script.data} | {where} |"


def row(script: Script, chip: Run, cpu: Run) -> str:
    import torch

    within = f"{script.tolerance:g}" if script.tolerance else "equal"
    return (
        f"{beginning(script)} {torch.__version__} | {cpu.seconds:.0f} | {chip.seconds:.0f} | "
        f"{cpu.final:g} | {chip.final:g} | {within} | {', '.join(chip.fallbacks) or 'none'} |"
    )


HEAD = """# Public scripts

Unmodified, on `{chip}` and on PyTorch's CPU (without `--accel`), {cores} cores:

    python tests/public/run.py --out docs/scripts.md

brings the repositories from GitHub ({commits}), runs each script twice and writes this page. The row of a script that
it does not run stays, so those that need torchvision are added with the PyTorch that goes with it:

    python tests/public/run.py --only torchvision --out docs/scripts.md

Wall times are in seconds, with the import of PyTorch. A final loss (of reinforcement learning: the reward) may be
so many parts of the CPU's away from it: rounding where nothing is random, and more where dropout, noise or the order of
batches are other random numbers on a device than on the CPU, as they are on NVIDIA's.

| script | arguments | stand-in for data | ran on | PyTorch | CPU, s | chip, s | loss, CPU | loss, chip | may differ by | fallbacks |
|---|---|---|---|---|---|---|---|---|---|---|
"""


def page(rows: dict[str, str], waiting: dict[str, str], before: str) -> str:
    """Rows and reasons by the names of scripts, those of the page `before` included."""
    import torch

    commits = ", ".join(
        f"{address.split('.com/')[1]} at {commit[:7]}" for address, commit in REPOSITORIES.values()
    )
    chip = torch.cuda.get_device_name() if torch.cuda.is_available() else "no chip"
    text = HEAD.format(chip=chip, cores=os.cpu_count(), commits=commits)
    kept = {s.name: line for s in SCRIPTS for line in before.splitlines() if line.startswith(beginning(s))}
    rows = kept | rows
    text += "".join(f"{rows[s.name]}\n" for s in SCRIPTS if s.name in rows)
    missing = [s for s in SCRIPTS if s.name not in rows]
    if missing:
        text += "\nNot run here:\n\n| script | arguments | stand-in for data | why |\n|---|---|---|---|\n"
        text += "".join(f"| {s.name} | {arguments(s)} | {s.data} | {waiting[s.name]} |\n" for s in missing)
    return text


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--from", dest="source", type=Path, help="folder with copies of the repositories")
    parser.add_argument("--only", nargs="+", default=[], help="words of names, and of modules needed")
    parser.add_argument(
        "--keep", type=Path, help="folder for what is brought and written; else a temporary one"
    )
    parser.add_argument("--out", type=Path, help="write the table here")
    parser.add_argument("--limit", type=float, default=900, help="seconds for one run of a script")
    return parser.parse_args()


def asked_for(script: Script, words: list[str]) -> bool:
    """A whole name means that script alone."""
    names = {s.name for s in SCRIPTS}
    return not words or any(
        word == script.name if word in names else any(word in name for name in (script.name, *script.needs))
        for word in words
    )


def main() -> int:
    chosen = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # scripts that run end too
    # Ignored where a shell started this in the background, and scripts would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    scripts = [script for script in SCRIPTS if asked_for(script, chosen.only)]
    if not scripts:
        print(
            f"no script has one of {chosen.only} in its name; there are: {', '.join(s.name for s in SCRIPTS)}"
        )
        return 2
    rows, failed = {}, []
    waiting = {script.name: "not asked for" for script in SCRIPTS if script not in scripts}
    with tempfile.TemporaryDirectory() as temporary:
        work = (chosen.keep or Path(temporary)).resolve()
        repositories = (chosen.source or work / "repositories").resolve()
        for script in scripts:
            missing = [name for name in script.needs if not importlib.util.find_spec(name)]
            if missing:
                waiting[script.name] = f"needs {', '.join(missing)}"
                print(f"{script.name}: not run, needs {', '.join(missing)}", flush=True)
                continue
            for name in (script.repository, *script.also):
                if not chosen.source:
                    bring(name, repositories)
            place = work / "runs" / re.sub(r"\W+", "-", script.name)
            cpu = run(script, repositories, place / time.strftime("%H%M%S-cpu"), False, chosen.limit)
            chip = run(script, repositories, place / time.strftime("%H%M%S-chip"), True, chosen.limit)
            problem = verdict(script, chip, cpu)
            print(f"{script.name}: CPU {cpu.seconds:.1f} s, {cpu.final}; chip {chip.seconds:.1f} s, {chip.final}; "
                  f"{len(chip.fallbacks)} fallbacks; {problem or 'ok'}", flush=True)  # fmt: skip
            if problem:
                failed.append(script.name)
                for name, result in (("CPU", cpu), ("chip", chip)):
                    print(f"--- {name}\n" + "\n".join(result.output.splitlines()[-20:]), flush=True)
            else:
                rows[script.name] = row(script, chip, cpu)
    if chosen.out and not failed:
        before = chosen.out.read_text() if chosen.out.exists() else ""
        chosen.out.write_text(page(rows, waiting, before))
    print(f"{len(rows)} passed, {len(failed)} failed, {len(SCRIPTS) - len(rows) - len(failed)} not run")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
