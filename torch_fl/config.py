"""torch.fl.config: the settings, as attributes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import _native


class Config:
    """Reads and changes settings: `torch.fl.config.fallback = "error"`.

    The table itself is in the runtime; each setting has an environment variable too, and a line in
    torch-fl.toml.  An unknown name is an AttributeError, a bad value a ValueError that says what is allowed.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        row = rows().get(name)
        if row is None:
            raise AttributeError(_unknown(name))
        return _from_text(row["allowed"], _native.get_setting(name))

    def __setattr__(self, name: str, value: Any) -> None:
        row = rows().get(name)
        if row is None:
            raise AttributeError(_unknown(name))
        try:
            _native.set_setting(name, _to_text(row["allowed"], value))
        except RuntimeError as error:
            raise ValueError(str(error)) from None
        if name in _APPLY:
            _APPLY[name](_native.get_setting(name))

    def __dir__(self) -> list[str]:
        return list(rows())

    def __repr__(self) -> str:
        lines = [
            f"  {name} = {row['refusal'] or getattr(self, name)!r}  # {row['sentence']}"
            for name, row in rows().items()
        ]
        return "\n".join(["torch.fl.config:", *lines])

    def as_dict(self) -> dict[str, Any]:
        """All settings and their values."""
        return {name: getattr(self, name) for name in rows()}


def rows() -> dict[str, dict[str, str]]:
    """The table: name, environment, default, allowed, sentence, value or refusal, source."""
    return {row["name"]: row for row in _native.settings()}


def _cuda_view(value: str) -> None:
    from . import cuda_view

    cuda_view.start()


def _autocast_dtype(value: str) -> None:
    torch.set_autocast_dtype("fl", getattr(torch, value))


# Settings that are PyTorch's to keep: told to it when they change.
_APPLY: dict[str, Callable[[str], None]] = {
    "cuda_view": _cuda_view,
    "float32_matmul_precision": torch.set_float32_matmul_precision,
    "autocast_dtype": _autocast_dtype,
}


def start() -> None:
    """Tell PyTorch what the environment or the file set; called once, when torch-fl is loaded.

    A setting that is refused has been logged, and is told when it is asked for.
    """
    for name, row in rows().items():
        if name in _APPLY and name != "cuda_view" and not row["refusal"] and row["source"] != "default":
            _APPLY[name](row["value"])


def docs_table() -> Iterator[str]:
    """The table of docs/settings.md."""
    yield "| `torch.fl.config.…` | environment | default | allowed | |"
    yield "|---|---|---|---|---|"
    for name, row in rows().items():
        default = f"`{row['default']}`" if row["default"] else ""
        allowed = row["allowed"].replace("|", "\\|")
        yield f"| `{name}` | `{row['environment']}` | {default} | {allowed} | {row['sentence']} |"


def as_toml() -> Iterator[str]:
    """A torch-fl.toml with the values in force; what has its default is a comment."""
    for name, row in rows().items():
        value = row["value"] if row["value"] is not None else row["default"]
        yield f"# {row['sentence']} ({row['allowed']})"
        yield f"{'# ' if value == row['default'] else ''}{name} = {_toml(row['allowed'], value)}"


def _toml(allowed: str, text: str) -> str:
    if allowed == "bool":
        return "true" if text == "1" else "false"
    if allowed in _LISTS:
        return json.dumps([part.strip() for part in text.split(_LISTS[allowed]) if part.strip()])
    return text if allowed.startswith(("int>", "float ", "float>")) else json.dumps(text, ensure_ascii=False)


_LISTS = {"names": ",", "paths": ":"}


def _unknown(name: str) -> str:
    return f"torch-fl has no setting {name!r}; the settings are {', '.join(rows())}"


def _from_text(allowed: str, text: str) -> Any:
    if allowed == "bool":
        return text == "1"
    if allowed.startswith("int"):
        return int(text)
    if allowed.startswith(("float ", "float>")):  # no choice that begins so
        return float(text)
    return text


def _to_text(allowed: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (list, tuple)):
        return _LISTS.get(allowed, ",").join(str(part) for part in value)
    return str(value)


config = Config()
