"""The module torch.fl: devices, streams, memory, random numbers, settings and the operator report.

The names and signatures are torch.cuda's where torch.cuda has the thing.
"""

from __future__ import annotations

from torch import AcceleratorError as AcceleratorError, OutOfMemoryError as OutOfMemoryError

from . import (
    _utils as _utils,
    amp as amp,
    graphs as graphs,
    memory as memory,
    nvtx as nvtx,
    profiler as profiler,
    random as random,
    streams as streams,
)
from .amp import get_amp_supported_dtype as get_amp_supported_dtype
from .chips import chips as chips, devices as devices, refusals as refusals
from .config import config as config
from .device import *  # noqa: F403
from .device import (
    _exchange_device as _exchange_device,
    _initialized as _initialized,
    _is_compiled as _is_compiled,
    _is_in_bad_fork as _is_in_bad_fork,
    _lazy_init as _lazy_init,
    _maybe_exchange_device as _maybe_exchange_device,
)
from .graphs import *  # noqa: F403
from .memory import *  # noqa: F403
from .random import *  # noqa: F403
from .random import (
    _get_generator as _get_generator,
    _get_rng_state_offset as _get_rng_state_offset,
    _set_rng_state_offset as _set_rng_state_offset,
)
from .report import (
    OpCounts as OpCounts,
    format_op_report as format_op_report,
    op_report as op_report,
    print_op_report as print_op_report,
    reset_op_report as reset_op_report,
)
from .streams import *  # noqa: F403
from .streams import _set_stream_by_id as _set_stream_by_id


def __getattr__(name: str):
    # What import torch should not pay for: sim needs ctypes, and the legacy types are two dozen classes.
    if name == "sim":
        from . import sim

        globals()["sim"] = sim
        return sim
    if name.endswith(("Tensor", "Storage")):
        from . import legacy_types

        if name in legacy_types.__all__:
            return getattr(legacy_types, name)
    raise AttributeError(f"module 'torch.fl' has no attribute {name!r}")
