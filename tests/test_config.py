"""torch.fl.config: every setting can be read, set, and is checked by name."""

import pytest
import torch
from child import run_child

config = torch.fl.config


@pytest.fixture(autouse=True)
def as_before():
    before = config.as_dict()
    yield
    for name, value in before.items():
        if getattr(config, name) != value:
            setattr(config, name, value)


def test_read_and_set():
    assert config.fallback == "warn"
    config.fallback = "error"
    assert config.fallback == "error"
    assert config.as_dict()["fallback"] == "error"
    config.fault_lines = True
    assert config.fault_lines is True
    config.sync_timeout = 2.5
    assert config.sync_timeout == 2.5
    config.fallback_deny = ["aten::sort", "aten::mode"]
    assert config.fallback_deny == "aten::sort,aten::mode"


@pytest.mark.parametrize(
    "name, value, said",
    [
        ("fallback", "maybe", ["fallback", "maybe", "warn", "error", "quiet"]),
        ("cuda_view", "yes", ["cuda_view", "yes", "auto"]),
        ("log", "loud", ["log", "loud", "debug"]),
        ("fault_lines", "often", ["fault_lines", "often"]),
        ("sync_timeout", -1, ["sync_timeout", "-1"]),
        ("memory_fraction", "much", ["memory_fraction", "much"]),
    ],
)
def test_bad_values_are_refused_by_name(name, value, said):
    before = getattr(config, name)
    with pytest.raises(ValueError) as error:
        setattr(config, name, value)
    for text in said:
        assert text in str(error.value)
    assert getattr(config, name) == before


def test_unknown_names_list_the_settings():
    for act in (lambda: config.falback, lambda: setattr(config, "falback", "error")):
        with pytest.raises(AttributeError, match="falback.*fallback"):
            act()


def test_every_setting_is_shown():
    for name in dir(config):
        assert f"  {name} = " in repr(config)


def test_the_documentation_has_the_table():
    from pathlib import Path

    from torch_fl.config import docs_table

    text = (Path(__file__).resolve().parent.parent / "docs" / "settings.md").read_text()
    assert "\n".join(docs_table()) in text  # written by: torch-fl config --docs


def test_environment():
    code = "import torch, torch_fl; print(torch.fl.config.fallback, torch.fl.config.fault_lines)"
    assert run_child(code, FL_FALLBACK="quiet", FL_FAULT_LINES="1").stdout == "quiet True\n"


def test_bad_environment_does_not_break_import():
    done = run_child("import torch, torch_fl; print(torch.ones(1).item())", FL_CUDA_VIEW="perhaps")
    assert done.stdout == "1.0\n"
    assert "perhaps" in done.stderr and "auto" in done.stderr and "FL_CUDA_VIEW" in done.stderr


def settings_of(text, tmp_path, named=True, **environment):
    """What a process says about its settings with this file: (stdout of the code, stderr)."""
    path = tmp_path / "torch-fl.toml"
    if text is not None:
        path.write_text(text)
    around = {"FL_CUDA_VIEW": "0", "FL_VISIBLE_DEVICES": None}
    return run_child(
        f"""
        import os
        os.chdir({str(tmp_path)!r})
        import torch
        from torch_fl import _native
        for row in _native.settings():
            print(row["name"], "=", row["refusal"] or row["value"], "from", row["source"])
        try:
            print(torch.ones(3, device="fl").sum().item())
        except RuntimeError as error:
            print("device:", error)
            torch.fl.config.visible_devices = torch.fl.config.chip_path = torch.fl.config.device = ""
        print(torch.ones(3).sum().item(), torch.ones(3, device="fl").sum().item())
        """,
        **{**({"FL_CONFIG": str(path)} if named else {}), **around, **environment},
    )


TEXT = r"""
# a comment
fallback = "quiet" # why
  log_file = "/tmp/a # b" # this
sync_timeout=2.5
log = 'INFO'
fault_lines = true
max_split_size_mb = 1_000
memory_fraction = +9.5e-1
fallback_deny = [ # some
  "aten::sort", 'aten::mode',  # names

]
fallback_allow = "aten::\u0073"
"""


@pytest.mark.parametrize("named", [True, False])
def test_file(tmp_path, named):
    said = settings_of(TEXT, tmp_path, named, FL_LOG="error").stdout.splitlines()
    place = f"{tmp_path}/torch-fl.toml"
    expected = {
        f"fallback = quiet from {place}:3",
        f"log_file = /tmp/a # b from {place}:4",
        f"sync_timeout = 2.5 from {place}:5",
        "log = error from FL_LOG",
        f"fault_lines = 1 from {place}:7",
        f"max_split_size_mb = 1000 from {place}:8",
        f"memory_fraction = 9.5e-1 from {place}:9",
        f"fallback_deny = aten::sort,aten::mode from {place}:10",
        f"fallback_allow = aten::s from {place}:14",
        "autocast_dtype = float16 from default",
    }
    assert expected <= set(said)
    assert said[-2:] == ["3.0", "3.0 3.0"]


def test_an_empty_name_means_no_file(tmp_path):
    said = settings_of('fallback = "quiet"\n', tmp_path, False, FL_CONFIG="").stdout
    assert "fallback = warn from default" in said


def test_a_file_that_is_found_loads_no_libraries(tmp_path):
    text = 'chip_path = "/tmp/x.so"\nfallback = "quiet"\n'
    done = settings_of(text, tmp_path, named=False)
    words = "torch-fl.toml:1: chip_path loads libraries, and is taken from a file that FL_CONFIG names"
    assert done.stderr.count(words) == 1 and f"device: {tmp_path}/{words}" in done.stdout
    assert "fallback = quiet" in done.stdout and done.stdout.endswith("3.0 3.0\n")
    assert "chip_path = /tmp/x.so" in settings_of(text, tmp_path).stdout


def test_file_with_bad_values(tmp_path):
    bad = [
        ('fallback = "never"', 'fallback is "never", which is not allowed; allowed: warn, error, quiet'),
        ("float32_matmul_precision = 1", 'is "1", which is not allowed; allowed: highest, high, medium'),
        ("autocast_dtype = 1.5", "is a float, which is not allowed; allowed: float16, bfloat16"),
        ('fault_lines = "on"', "fault_lines is a string, which is not allowed; allowed: true, false"),
        ("sync_timeout = true", "sync_timeout is a boolean, which is not allowed; allowed: a number"),
        ("memory_fraction = -1", 'memory_fraction is "-1", which is not allowed; allowed: a number from 0'),
        ("max_split_size_mb = 1.0", "max_split_size_mb is a float, which is not allowed; allowed: a whole"),
        ('device = ["sim:0"]', "device is an array, which is not allowed; allowed: a string in quotes"),
        ('visible_devices = ["sim:0,sim:1"]', "visible_devices holds \"sim:0,sim:1\", which has a ','"),
    ]
    done = settings_of("\n".join([line for line, _ in bad] + ['log = "error"']), tmp_path)
    said = done.stdout.splitlines()
    for number, (line, words) in enumerate(bad, 1):
        refused = next(text for text in said if text.startswith(f"{line.split()[0]} = "))
        assert f"{tmp_path}/torch-fl.toml:{number}: " in refused and words in refused, refused
        assert done.stderr.count(f"torch-fl.toml:{number}: ") == 1 and words in done.stderr
    assert f"log = error from {tmp_path}/torch-fl.toml:10" in said and said[-1] == "3.0 3.0"


@pytest.mark.parametrize(
    "text, words",
    [
        (None, 'torch-fl.toml" cannot be read: No such file'),
        ('log = "info"\nfalback = "error"\n', 'toml:2: there is no setting "falback"; there are: device,'),
        ("log = info\n", "toml:1: log = info: a value is a string in quotes"),
    ],
)
def test_file_that_is_refused(text, words, tmp_path):
    done = settings_of(text, tmp_path)
    said = done.stdout.splitlines()
    assert words in done.stderr and done.stderr.count("torch-fl.toml") == 1, done.stderr
    assert sum(words in line for line in said if line.startswith("log = ")) == 1
    assert sum(words in line for line in said if line.startswith("device: ")) == 1
    assert "cuda_view = 0 from FL_CUDA_VIEW" in said and said[-1] == "3.0 3.0"


def test_the_file_that_the_command_writes_is_read_back(tmp_path):
    """Every line of it, the comments too: what has its default is written as it would be set."""
    from torch_fl import _native
    from torch_fl.config import as_toml

    lines = [line.removeprefix("# ") for line in as_toml() if " = " in line]
    said = settings_of("\n".join(lines), tmp_path, FL_LOG="error").stdout
    for i, row in enumerate(_native.settings()):
        if row["name"] not in ("cuda_view", "log"):
            assert f"{row['name']} = {row['value']} from {tmp_path}/torch-fl.toml:{i + 1}\n" in said


def test_the_device_that_comes_first():
    code = """
        import torch
        print(*(torch.fl.get_device_properties(i).chip for i in range(torch.fl.device_count())))
    """
    assert run_child(code, FL_DEVICE="sim:1", FL_SIM_DEVICES="3").stdout == "sim:1 sim:0 sim:2\n"
    both = run_child(code, FL_DEVICE="sim:0", FL_VISIBLE_DEVICES="sim:2,sim:0", FL_SIM_DEVICES="3")
    assert both.stdout == "sim:0 sim:2\n"
    hidden = run_child(code + "    torch.ones(1, device='fl')", check=False, FL_DEVICE="sim:1",
                       FL_VISIBLE_DEVICES="sim:0", FL_SIM_DEVICES="3")  # fmt: skip
    assert 'FL_DEVICE, names "sim:1", which is not a visible device; there are: sim:0' in hidden.stderr


def test_precision_preferences():
    code = """
        import torch
        print(torch.get_float32_matmul_precision(), torch.get_autocast_dtype("fl"), torch.backends.cuda.matmul.allow_tf32)
        with torch.autocast("fl"):
            a = torch.ones(2, 2, device="fl")
            print((a @ a).dtype)
        torch.fl.config.float32_matmul_precision = "highest"
        torch.fl.config.autocast_dtype = "float16"
        print(torch.get_float32_matmul_precision(), torch.get_autocast_dtype("fl"))
    """
    said = run_child(code, FL_FLOAT32_MATMUL_PRECISION="high", FL_AUTOCAST_DTYPE="bfloat16", FL_CUDA_VIEW="1")
    assert said.stdout.split("\n") == [
        "high torch.bfloat16 True",
        "torch.bfloat16",
        "highest torch.float16",
        "",
    ]


def test_view_follows_its_setting():
    config.cuda_view = "0"
    assert torch.device("fl:0").type == "fl"
    config.cuda_view = "1"
    assert torch.device("fl:0").type == "cuda"
