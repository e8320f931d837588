"""torchvision itself; its CIFAR-10 takes files of other checksums than the true ones."""

import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path

_here = Path(__file__).resolve().parent.parent
_spec = PathFinder.find_spec("torchvision", [place for place in sys.path if Path(place).resolve() != _here])
if _spec is None:
    raise ModuleNotFoundError("no torchvision besides the stand-in", name="torchvision")
# import gives what stands here in the end.
sys.modules["torchvision"] = _module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
_module.datasets.cifar.check_integrity = lambda path, md5=None: Path(path).is_file()
