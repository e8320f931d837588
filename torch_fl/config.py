"""torch.fl.config: the settings, as attributes."""

from __future__ import annotations

from typing import Any

from . import _native


class Config:
    """Reads and changes settings: `torch.fl.config.fallback = "error"`.

    The table itself is in the runtime; each setting has an environment variable too.  An unknown
    name is an AttributeError, a bad value a ValueError that says what is allowed.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        row = _table().get(name)
        if row is None:
            raise AttributeError(_unknown(name))
        return _from_text(row["allowed"], _native.get_setting(name))

    def __setattr__(self, name: str, value: Any) -> None:
        row = _table().get(name)
        if row is None:
            raise AttributeError(_unknown(name))
        try:
            _native.set_setting(name, _to_text(value))
        except RuntimeError as error:
            raise ValueError(str(error)) from None
        if name == "cuda_view":
            from . import cuda_view

            cuda_view.start()

    def __dir__(self) -> list[str]:
        return list(_table())

    def __repr__(self) -> str:
        lines = [
            f"  {name} = {row['refusal'] or getattr(self, name)!r}  # {row['sentence']}"
            for name, row in _table().items()
        ]
        return "\n".join(["torch.fl.config:", *lines])

    def as_dict(self) -> dict[str, Any]:
        """All settings and their values."""
        return {name: getattr(self, name) for name in _table()}


def _table() -> dict[str, dict[str, str]]:
    return {row["name"]: row for row in _native.settings()}


def _unknown(name: str) -> str:
    return f"torch-fl has no setting {name!r}; the settings are {', '.join(_table())}"


def _from_text(allowed: str, text: str) -> Any:
    if allowed == "bool":
        return text == "1"
    if allowed.startswith("int"):
        return int(text)
    if allowed.startswith("float"):
        return float(text)
    return text


def _to_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (list, tuple)):
        return ",".join(str(part) for part in value)
    return str(value)


config = Config()
