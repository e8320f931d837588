"""What device memory holds and held: snapshots for PyTorch's memory viewer, and the recorded history."""

from __future__ import annotations

import inspect
import pickle
import sys
from typing import Any

import torch

from . import _native
from ._utils import Device


def memory_snapshot(
    mempool_id: tuple[int, int] | None = None, include_traces: bool = True
) -> list[dict[str, Any]]:
    """All segments and blocks of the allocator (of one pool), in the format of torch.cuda.memory_snapshot."""
    return _native.snapshot(mempool_id or (0, 0), False)["segments"]


def _record(
    enabled: str | None = "all",
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = sys.maxsize,
    device: Device = None,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: list[str] | None = None,
) -> None:
    if compile_context or global_record_annotations:
        raise RuntimeError(
            "torch-fl: the history holds neither compile contexts nor annotations (compile_context=True, "
            "global_record_annotations=True)"
        )
    _native.record_memory_history(
        enabled, context, stacks, max_entries, clear_history, list(skip_actions or ())
    )


def _record_memory_history(enabled: Any = "all", *args: Any, **kwargs: Any) -> None:
    """Record what is allocated and freed, with the Python lines, on all devices.

    enabled: None, off; "state", whose memory it is that is in use; "all", each allocation and free too, the
    last max_entries of them.  context: of which of these the lines are kept (None, "state", "alloc", "all").
    stacks: "python", or "all" for C++ frames as well.  skip_actions: what the history leaves out.
    """
    if isinstance(enabled, bool):
        return _record_legacy(enabled, *args, **kwargs)
    return _record(enabled, *args, **kwargs)


def _record_legacy(
    enabled: bool,
    record_context: bool = True,
    trace_alloc_max_entries: int = 1,
    trace_alloc_record_context: bool = False,
    device: Device = None,
    record_context_cpp: bool = False,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: list[str] | None = None,
) -> None:
    """The arguments that PyTorch 2.0 had."""
    context = "alloc" if trace_alloc_record_context else "state" if record_context else None
    return _record(
        "all" if enabled else None,
        context,
        "all" if record_context_cpp else "python",
        trace_alloc_max_entries,
        device,
        clear_history,
        compile_context,
        global_record_annotations,
        skip_actions,
    )


_record_memory_history.__signature__ = inspect.signature(_record)  # type: ignore[attr-defined]


def _snapshot(device: Device = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """Segments and history in the form of torch.cuda.memory._snapshot, which pytorch.org/memory_viz reads."""
    found = _native.snapshot()
    found["allocator_settings"] = {
        "max_split_size": int(_native.get_setting("max_split_size_mb")) * 2**20 or -1,
        "garbage_collection_threshold": float(_native.get_setting("garbage_collection_threshold")),
        "expandable_segments": False,
    }
    found["external_annotations"] = []
    if augment_with_fx_traces:
        found = torch._utils._augment_memory_snapshot_stack_traces(found)
    return found


def _dump_snapshot(filename: str = "dump_snapshot.pickle", augment_with_fx_traces: bool = False) -> None:
    """Write _snapshot() to a file, for pytorch.org/memory_viz."""
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(augment_with_fx_traces=augment_with_fx_traces), file)


def _allocation_traceback(data_ptr: int) -> list[dict[str, Any]] | None:
    """Who allocated the memory at an address; None when it was not recorded."""
    return _native.allocation_frames(data_ptr)


def _set_memory_metadata(metadata: str) -> None:
    """A text that this thread's entries of the history carry from now on."""
    _native.set_history_metadata(metadata)


def _get_memory_metadata() -> str:
    """The text that this thread's entries carry."""
    return _native.history_metadata()


def _save_segment_usage(filename: str = "output.svg", snapshot: dict[str, Any] | None = None) -> None:
    from torch.cuda import _memory_viz

    with open(filename, "w") as file:
        file.write(_memory_viz.segments(_snapshot() if snapshot is None else snapshot))


def _save_memory_usage(filename: str = "output.svg", snapshot: dict[str, Any] | None = None) -> None:
    from torch.cuda import _memory_viz

    with open(filename, "w") as file:
        file.write(_memory_viz.memory(_snapshot() if snapshot is None else snapshot))
