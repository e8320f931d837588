"""The kit passes sound chips, and catches each planted fault by the requirement that it breaks."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("FL_BUILD_DIR", ROOT / "build"))
SIM = ROOT / "torch_fl" / "chips" / "libfl_sim.so"
TEMPLATE = BUILD / "chips" / "libfl_template.so"


def kit_program() -> Path:
    for place in (BUILD / "kit" / "fl-kit", BUILD / "fl-kit"):
        if place.exists():
            return place
    raise FileNotFoundError(f"no fl-kit in {BUILD}: build it, or set FL_BUILD_DIR")


def run_kit(chip, *options, environment=None, timeout=300):
    return subprocess.run(
        [kit_program(), chip, *options],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **(environment or {})},
    )


def failing_tags(report: Path) -> set:
    tests = json.loads(report.read_text())["tests"]
    return {t["tag"] for t in tests if any(not c["passed"] for c in t["cases"])}


@pytest.mark.parametrize(
    "chip, environment",
    [(TEMPLATE, {}), (SIM, {}), (SIM, {"FL_SIM_DEVICES": "2"})],
    ids=["template", "sim", "two sims"],
)
def test_sound_chip_passes(chip, environment):
    only = [] if not environment else ["--only", "CHP|DEV|MEM|STR|EVT"]
    result = run_kit(chip, *only, environment=environment)
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert result.stdout.strip().endswith(" 0 failed")


def test_a_chip_that_rounds_products_when_it_may_passes():
    result = run_kit(BUILD / "chips" / "broken_tf32.so", "--only", "OPS|GEM")
    assert result.returncode == 0, result.stdout[-6000:]


# Fault → the requirement it breaks, and what else cannot help but fail.  Nothing else may.
PLANTED = {
    "alignment": ("MEM-1", set()),
    "bounds": ("GAT-1", {"STR-3", "STR-4", "STR-7", "STR-8"}),  # whose faults come from a gather
    "claim": ("OPS-5", {"GEM-1", "GEM-2"}),
    "column": ("SPM-1", set()),
    "duplicates": ("SCA-2", {"SCA-3", "OPS-4", "OPS-7"}),
    "event": ("EVT-2", {"STR-1", "STR-6", "EVT-1", "OPS-1"}),
    "fft": ("FFT-1", set()),
    "fault": ("STR-7", {"STR-3", "STR-4", "STR-8", "GAT-1", "SCA-1", "PGM-2", "OPS-2", "OPS-5"}),
    "nan": ("PGM-3", {"PGM-5"}),
    "narrow": ("OPS-4", {"CPY-1"}),
    "philox": ("RND-1", set()),
    # What is fed by large transfers.
    "source": (
        "MEM-6",
        {"MEM-7", "CPY-1", "FIL-1", "RED-2", "PGM-4", "PTW-2", "GEM-1", "GEM-2", "SCA-2", "OPS-7", "RND-2"},
    ),
    "strides": ("OPS-3", {"PTW-1", "PTW-2", "RED-3", "GEM-2"}),
    "ties": ("RED-1", {"OPS-3"}),
    "unstable": ("SRT-1", set()),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_fault_is_caught(fault, tmp_path):
    tag, company = PLANTED[fault]
    report = tmp_path / "report.json"
    # Requirements alone: the entries' own tests (lower case) compare the same things at length.
    result = run_kit(BUILD / "chips" / f"broken_planted_{fault}.so", "--only", "^[A-Z]", "--report", report)
    assert result.returncode == 1, result.stdout[-3000:]
    failed = failing_tags(report)
    assert tag in failed, f"{fault} breaks [{tag}]; the kit found {sorted(failed)}"
    assert failed <= {tag} | company, f"{fault}: unexpected {sorted(failed - {tag} - company)}"


def test_every_requirement_of_the_headers_has_a_test():
    import re

    tags = set()
    for header in (ROOT / "include" / "fl").glob("*.h"):
        tags |= set(re.findall(r"\[([A-Z]{3}-\d+)\]", header.read_text()))
    listed = subprocess.run([kit_program(), "--list"], capture_output=True, text=True, check=True).stdout
    tested = {line.split()[0] for line in listed.splitlines()}
    # [MEM-3] in the text of chip.h's introduction is an example, and a tag of its own as well.
    assert tags - tested == set()


def test_report_in_markdown(tmp_path):
    report = tmp_path / "report.md"
    assert run_kit(TEMPLATE, "--only", "DEV", "--report", report).returncode == 0
    assert "| DEV-3 |" in report.read_text()


def test_bench_prints_costs():
    result = run_kit(TEMPLATE, "--only", "CHP-1", "--bench")
    assert result.returncode == 0
    assert "launch: add of 1 element" in result.stdout and "launch: copy of 1 element" in result.stdout
    assert "malloc and free" in result.stdout
    assert "host to device" in result.stdout and "device to host" in result.stdout


@pytest.mark.parametrize("what", ["missing", "no library", "no chip"])
def test_what_is_no_chip_gives_status_2(what, tmp_path):
    path = tmp_path / "libchip.so"
    if what == "no library":
        path.write_text("not a library")
    elif what == "no chip":
        source = tmp_path / "empty.c"
        source.write_text("int nothing;\n")
        subprocess.run(["cc", "-shared", "-fPIC", source, "-o", path], check=True)
    result = run_kit(path)
    assert result.returncode == 2
    assert str(path) in result.stderr
