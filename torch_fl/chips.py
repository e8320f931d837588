"""Where chip libraries come from besides FL_CHIP_PATH."""

from __future__ import annotations

import glob
import os

# Chip packages whose entry point failed: (name, reason).
broken: list[tuple[str, str]] = []


def find() -> list[str]:
    """The chip in this package, and those of installed chip packages.

    A chip package declares, in the group torch_fl.chips, a function without arguments that returns
    the path of its library, or several.  One that raises is noted and does not hide the others.
    """
    from importlib.metadata import entry_points

    from . import _native

    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "chips")
    paths = sorted(glob.glob(os.path.join(folder, "libfl_*.so")))
    for entry in entry_points(group="torch_fl.chips"):
        try:
            found = entry.load()()
            libraries = [found] if isinstance(found, (str, os.PathLike)) else found
            paths += [os.fspath(path) for path in libraries]
        except Exception as error:
            reason = f"entry point {entry.value} raised {type(error).__name__}: {error}"
            broken.append((entry.name, reason))
            _native.log(1, f"chip package {entry.name!r} is not used: {reason}")
    return paths


def devices() -> list[dict]:
    """What the chips found offer: a dict a device (index, name, chip, identity, total_memory, …)."""
    from . import _native

    return _native.devices()


def chips() -> list[dict]:
    """The chips in use: name, release, path."""
    from . import _native

    return _native.chips()


def refusals() -> list[dict]:
    """Chip libraries that were looked at and not used: path and reason."""
    from . import _native

    return _native.refusals()
