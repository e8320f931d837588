"""A chip that is broken, missing or mismatched is refused with a reason; PyTorch goes on."""

import os
from pathlib import Path

import pytest
from child import run_child

CHIPS = Path(os.environ.get("FL_BUILD_DIR", Path(__file__).parent.parent / "build")) / "chips"

# Library → what its reason says.
BROKEN = {
    "broken_wrong_major.so": "version",
    "broken_no_symbol.so": "fl_chip_entry",
    "broken_null_entry.so": "",
    "broken_throws.so": "threw",
    "broken_throws_in_count.so": "device.count failed: it threw a C.. exception: the driver's socket is gone",
    "broken_no_method.so": "malloc|missing|lacks",
    "broken_no_entry.so": "missing|lacks",
    "broken_no_devices.so": "no devices",
    "broken_false_claims.so": "claim",
    "broken_missing_library.so": "libvendor_driver.so",
}


@pytest.mark.parametrize("library", BROKEN)
def test_refused_with_a_reason_and_the_rest_works(library):
    code = f"""
        import re, torch
        x = torch.ones(3, device="fl:0") + 1
        assert x.tolist() == [2, 2, 2]
        refused = [r for r in torch.fl.refusals() if {library!r} in str(r)]
        assert len(refused) == 1, torch.fl.refusals()
        assert re.search({BROKEN[library]!r}, str(refused[0])), refused
    """
    run_child(code, FL_CHIP_PATH=str(CHIPS / library))


@pytest.mark.parametrize("name", ["count", "properties"])
def test_a_chip_that_crashes_when_asked_leaves_pytorch_alone(name):
    library = str(CHIPS / f"broken_crashes_in_{name}.so")
    code = """
        import torch
        assert (torch.ones(3) * 2).tolist() == [2, 2, 2]
        print("alive", flush=True)
        torch.fl.device_count()  # as does the first backward(), which starts a thread a device
        print("not here")
    """
    done = run_child(code, check=False, FL_CHIP_PATH=library, FL_LOG="debug")
    assert done.stdout == "alive\n" and done.returncode < 0, (done.stdout, done.stderr)
    assert f"loading the chip {library}" in done.stderr.splitlines()[-1]  # which it was


@pytest.mark.parametrize("chip", ["older", "newer"])
def test_an_older_and_a_newer_chip_load(chip):
    code = f"""
        import torch
        assert not [r for r in torch.fl.refusals() if {chip!r} in str(r)], torch.fl.refusals()
        assert [d["name"] for d in torch.fl.devices()] == ["{chip}:0", "sim:0", "sim:1"]
        for i in range(torch.fl.device_count()):
            assert (torch.ones(3, device=f"fl:{{i}}") + 1).tolist() == [2, 2, 2]
    """
    library = CHIPS / f"broken_{chip}.so"
    run_child(code, FL_CHIP_PATH=str(library), FL_VISIBLE_DEVICES=f"{chip},sim")


def test_a_file_that_is_no_library_and_one_that_is_not_there(tmp_path):
    text = tmp_path / "notes.so"
    text.write_text("no library\n")
    code = """
        import torch
        torch.ones(3, device="fl:0").cpu()
        said = "\\n".join(map(str, torch.fl.refusals()))
        assert "notes.so" in said and "nowhere.so" in said, said
        assert "No such file" in said or "cannot open" in said, said
    """
    run_child(code, FL_CHIP_PATH=f"{text}:{tmp_path / 'nowhere.so'}")


def test_two_chips_of_one_name():
    code = """
        import torch
        torch.ones(3, device="fl:0").cpu()
        said = "\\n".join(map(str, torch.fl.refusals()))
        assert "twin" in said, said
    """
    run_child(code, FL_CHIP_PATH=f"{CHIPS / 'broken_twin.so'}:{CHIPS / 'libfl_template.so'}")


def test_import_loads_no_chip_and_starts_no_device():
    code = """
        import torch
        import torch_fl
        maps = open("/proc/self/maps").read()
        assert "libfl_sim" not in maps and "libdnnl" not in maps
        assert not torch.fl.is_initialized()
    """
    run_child(code)
