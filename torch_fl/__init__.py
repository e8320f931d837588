"""torch-fl: plain PyTorch on any AI chip.

`import torch` calls `_autoload` through the entry point `torch.backends`, so
nobody has to import this package; afterwards `torch.fl` is there.  Importing
it by hand does the same, also with TORCH_DEVICE_BACKEND_AUTOLOAD=0.
"""

from __future__ import annotations

__version__ = "0.1.0"


def _autoload() -> None:
    """Register the device with PyTorch.  Never raises; doing it again does nothing."""
    from . import _load

    _load.load()


# After _autoload is defined: importing torch first of all comes back here through the entry point.
import torch  # noqa: E402, F401

_autoload()
