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

    from torch_fl import _native

    text = (Path(__file__).resolve().parent.parent / "docs" / "settings.md").read_text()
    for row in _native.settings():
        default = f"`{row['default']}`" if row["default"] else ""
        allowed = row["allowed"].replace("|", "\\|")
        assert (
            f"| `{row['name']}` | `{row['environment']}` | {default} | {allowed} | {row['sentence']} |"
            in text
        )


def test_environment():
    code = "import torch, torch_fl; print(torch.fl.config.fallback, torch.fl.config.fault_lines)"
    assert run_child(code, FL_FALLBACK="quiet", FL_FAULT_LINES="1").stdout == "quiet True\n"


def test_bad_environment_does_not_break_import():
    done = run_child("import torch, torch_fl; print(torch.ones(1).item())", FL_CUDA_VIEW="perhaps")
    assert done.stdout == "1.0\n"
    assert "perhaps" in done.stderr and "auto" in done.stderr and "FL_CUDA_VIEW" in done.stderr


def settings_of(text, tmp_path, **environment):
    """What a process says about its settings with this file: (stdout of the code, stderr)."""
    path = tmp_path / "fl.conf"
    if text is not None:
        path.write_text(text)
    return run_child(
        """
        import torch
        from torch_fl import _native
        for row in _native.settings():
            print(row["name"], "=", row["refusal"] or row["value"])
        try:
            print(torch.ones(3, device="fl").sum().item())
        except RuntimeError as error:
            print("device:", error)
        torch.fl.config.visible_devices = torch.fl.config.chip_path = ""
        print(torch.ones(3).sum().item(), torch.ones(3, device="fl").sum().item())
        """,
        **{"FL_CONFIG": str(path), "FL_CUDA_VIEW": "0", **environment},
    )


def test_file(tmp_path):
    text = '\n# a comment\nfallback = quiet # why\n  log_file = "/tmp/a # b" # this\nsync_timeout=2.5\nlog = INFO\n'
    said = settings_of(text, tmp_path, FL_LOG="error").stdout.splitlines()
    assert {"fallback = quiet", "log_file = /tmp/a # b", "sync_timeout = 2.5"} <= set(said)
    assert "log = error" in said  # the environment's
    assert said[-2:] == ["3.0", "3.0 3.0"]


def test_file_with_a_bad_value(tmp_path):
    done = settings_of("\nfallback = never\nlog = error\n", tmp_path)
    refusal = f'{tmp_path}/fl.conf:2: fallback is "never", which is not allowed; allowed: warn, error, quiet'
    said = done.stdout.splitlines()
    assert f"fallback = {refusal}" in said and "log = error" in said and done.stderr.count(refusal) == 1


@pytest.mark.parametrize(
    "text, words",
    [
        (None, 'fl.conf", which cannot be read: No such file'),
        ("log = info\nfalback = error\n", 'fl.conf:2: there is no setting "falback"; there are: fallback,'),
        ("log = info\n\nlog = debug\n", "fl.conf:3: log is set in line 1 already"),
        ("[settings]\n", 'fl.conf:1: "[settings]" is not of the form name = value'),
        ('log = "info\n', "fl.conf:1:"),
    ],
)
def test_file_that_is_refused(text, words, tmp_path):
    done = settings_of(text, tmp_path)
    said = done.stdout.splitlines()
    assert words in done.stderr and done.stderr.count("fl.conf") == 1, done.stderr
    assert sum(words in line for line in said if line.startswith("log = ")) == 1
    assert sum(words in line for line in said if line.startswith("device: ")) == 1
    assert "cuda_view = 0" in said and said[-1] == "3.0 3.0"


def test_view_follows_its_setting():
    config.cuda_view = "0"
    assert torch.device("fl:0").type == "fl"
    config.cuda_view = "1"
    assert torch.device("fl:0").type == "cuda"
