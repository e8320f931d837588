"""Finding the bridge for the PyTorch that is running, and registering the device."""

from __future__ import annotations

import importlib
import os
import sys
import traceback

import torch

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_started = False

# Why torch.fl is absent or incomplete; doctor shows it.  Empty: all is well.
failure = ""


def covered_versions() -> list[str]:
    """The PyTorch minor versions that this installation has a bridge for: ["2.13"]."""
    names = [n[len("_bridge_") : -len(".so")] for n in os.listdir(_FOLDER) if n.startswith("_bridge_")]
    return sorted((n.replace("_", ".") for n in names), key=lambda v: [int(part) for part in v.split(".")])


def torch_minor() -> str:
    """ "2.13" for 2.13.0+cpu."""
    return ".".join(torch.__version__.split("+")[0].split(".")[:2])


class NotUsableError(Exception):
    """torch-fl cannot work with this PyTorch; the text says why and what to do."""


def load() -> None:
    """Register everything, once.  Whatever goes wrong is one warning, and PyTorch works on."""
    global _started, failure
    if _started:  # also true while running: an import below may come back here
        return
    _started = True
    try:
        _register()
    except NotUsableError as error:
        failure = str(error)
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
        if os.environ.get("FL_LOG") == "debug":
            traceback.print_exc()
    if failure:
        warn(f"{failure}\nPyTorch works without torch-fl's devices. `torch-fl doctor` tells more.")


def warn(text: str) -> None:
    """One warning; on stderr where warnings are errors, because import torch must not fail."""
    import warnings

    try:
        warnings.warn(f"torch-fl: {text}", RuntimeWarning, stacklevel=2)
    except RuntimeWarning:
        print(f"torch-fl WARNING: {text}", file=sys.stderr)


def _register() -> None:
    name = torch._C._get_privateuse1_backend_name()
    if name not in ("privateuseone", "fl"):
        # PyTorch has room for one such backend; loading the bridge would break the other one.
        raise NotUsableError(
            f"another package has registered the device {name!r}, and PyTorch takes one such backend in a "
            "process. Uninstall one of the two, or keep torch-fl out with TORCH_DEVICE_BACKEND_AUTOLOAD=0."
        )
    minor = torch_minor()
    if minor not in covered_versions():
        raise NotUsableError(
            f"this installation has no bridge for PyTorch {torch.__version__}. "
            f"Covered: {', '.join(covered_versions()) or 'none (torch-fl has not been built)'}. "
            "Install one of these, or build torch-fl for yours: make TORCH=<version>."
        )
    native = importlib.import_module(f"torch_fl._bridge_{minor.replace('.', '_')}")
    sys.modules["torch_fl._native"] = native
    sys.modules["torch_fl"]._native = native

    torch.utils.rename_privateuse1_backend("fl")
    from . import fl

    torch._register_device_module("fl", fl)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    # PyTorch remembers what the types are called from the first time that it parses the name of one.
    torch.empty(0).type("torch.FloatTensor")

    _register_graphsafe_rng()
    torch.serialization.register_package(30, _no_tag, _restore)
    from . import chips, config, cuda_view

    native.set_chip_finder(chips.find)
    config.start()
    cuda_view.start()


def _no_tag(storage: torch.UntypedStorage) -> None:
    """PyTorch tags storages itself, with the device's name."""


def _restore(storage: torch.UntypedStorage, location: str) -> torch.UntypedStorage | None:
    """torch.load to "fl:0" while the CUDA view is on, and to a chip's name: map_location="sim:1"."""
    ours = torch.device("fl").type
    try:
        if torch.device(location).type != ours:
            return None
    except RuntimeError:
        return None  # not a device: PyTorch says so
    return storage.to(device=torch.serialization._validate_device(location, ours))


def _register_graphsafe_rng() -> None:
    """Compiled code that computes a part twice, as with checkpoints, draws the same numbers both times."""
    from torch._functorch._aot_autograd import utils  # import torch brings it; this costs nothing

    if register := getattr(utils, "register_graphsafe_rng_device_type", None):  # in 2.13 and later
        register("fl")
