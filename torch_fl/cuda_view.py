"""The CUDA view: while it is on, torch-fl's devices are what PyTorch calls "cuda".

Device strings are parsed and printed as "cuda" by hooks in the bridge (cuda_view.cpp), which also answers
for Tensor.is_cuda, Tensor.cuda and Tensor.type below those attributes (cuda_view_objects.cpp).  This file
holds every attribute of torch that is replaced besides: torch.cuda's own names and two others, each group
with its reason.  All of them get their own value back when the view goes off.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

from . import _native, comm, fl
from ._load import warn

_ABSENT = object()
_saved: list[tuple[Any, str, Any]] = []  # (owner, attribute, what was there)

# The functions and classes of torch.cuda that torch.fl has under the same name.  torch.cuda's own ones
# call torch._C._cuda_…, which a PyTorch without CUDA lacks and one with CUDA answers "no driver".
_SAME_NAME = """
    is_available device_count current_device set_device synchronize device device_of init _lazy_init
    is_initialized _is_in_bad_fork _exchange_device _maybe_exchange_device
    get_device_properties get_device_name get_device_capability can_device_access_peer get_arch_list
    get_gencode_flags is_bf16_supported is_tf32_supported ipc_collect set_sync_debug_mode get_sync_debug_mode
    Stream Event ExternalStream StreamContext stream current_stream default_stream set_stream
    _set_stream_by_id get_stream_from_external
    CUDAGraph graph graph_pool_handle make_graphed_callables is_current_stream_capturing
    empty_cache memory_stats memory_stats_as_nested_dict memory_allocated max_memory_allocated
    memory_reserved max_memory_reserved memory_cached max_memory_cached reset_peak_memory_stats
    reset_max_memory_allocated reset_max_memory_cached reset_accumulated_memory_stats mem_get_info
    set_per_process_memory_fraction get_per_process_memory_fraction memory_snapshot
    device_memory_used get_allocator_backend memory_summary list_gpu_processes host_memory_stats
    host_memory_stats_as_nested_dict reset_peak_host_memory_stats reset_accumulated_host_memory_stats
    MemPool use_mem_pool caching_allocator_alloc caching_allocator_delete caching_allocator_enable
    caching_allocator_disabled change_current_allocator
    get_rng_state set_rng_state get_rng_state_all set_rng_state_all _set_rng_state_offset
    _get_rng_state_offset manual_seed manual_seed_all seed seed_all initial_seed default_generators
    _get_generator _initialized op_report reset_op_report get_amp_supported_dtype
""".split()
# Of torch.cuda.memory alone: what memory profilers call.
_SAME_MEMORY_NAME = """
    _record_memory_history _snapshot _dump_snapshot _save_segment_usage _save_memory_usage
    _allocation_traceback _set_memory_metadata _get_memory_metadata
""".split()


def _replacements() -> Iterator[tuple[Any, str, Any]]:
    cuda = torch.cuda
    # torch.cuda's functions call each other through the globals of the module that they are defined in.
    modules = (cuda, cuda.graphs, cuda.memory, cuda.random, cuda.streams)
    for name in _SAME_NAME:
        before = vars(cuda).get(name, _ABSENT)
        for module in modules:
            if module is cuda or (before is not _ABSENT and vars(module).get(name) is before):
                yield module, name, getattr(fl, name)
    for name in _SAME_MEMORY_NAME:
        yield cuda.memory, name, getattr(fl.memory, name)
    # The classes of storages, which torch.set_default_tensor_type looks for under the type's own name.
    for name in vars(cuda):
        if name.endswith("Storage") and not name.startswith("_"):
            yield fl, name, getattr(cuda, name)
    # torch.load and torch.nn.parallel ask for indices here, and get None for "cuda" otherwise.
    yield cuda._utils, "_get_device_index", fl._utils._get_device_index
    yield cuda, "_get_device_index", fl._utils._get_device_index
    yield cuda.memory, "_get_device_index", fl._utils._get_device_index
    # PyTorch without CUDA has no functions below torch.cuda.comm, which nn.DataParallel uses too.
    for name in ("_broadcast", "_broadcast_out", "_broadcast_coalesced", "_scatter", "_scatter_out",
                 "_gather", "_gather_out"):  # fmt: skip
        yield torch._C, name, getattr(comm, name)
    # Scripts take these modules' functions out of them.
    for theirs, ours in ((cuda.nvtx, fl.nvtx), (cuda.profiler, fl.profiler)):
        for name in ours.__all__:
            yield theirs, name, getattr(ours, name)
    # nn.DataParallel sums gradients with NVIDIA's library where PyTorch has it.
    yield cuda.nccl, "is_available", _nccl_is_available
    # torch.nn.RNN asks for each of its weights, and the answer is no with a warning that cuDNN is missing.
    yield torch.backends.cudnn, "is_acceptable", _cudnn_is_acceptable
    # Predicts strides of cuFFT's, cuSOLVER's and cuDNN's results for whatever is called "cuda".
    yield torch._meta_registrations, "device_hint", _device_hint


def _nccl_is_available(tensors: Any) -> bool:
    """Whether NCCL takes the tensors: never."""
    return False


def _read_cudnn_version() -> None:
    """Let PyTorch know the version of cuDNN that it was built with, where it has not asked yet.

    The first torch.backends.cudnn.version() also compares the devices with what cuDNN needs of NVIDIA's, and
    takes 20 ms to load it.
    """
    state = torch.backends.cudnn.version.__globals__
    if torch._C._has_cudnn and torch._C._cudnn.is_cuda and state.get("__cudnn_version", 0) is None:
        major, minor, patch = torch._C._cudnn.getCompileVersion()
        state["__cudnn_version"] = major * (10000 if major >= 9 else 1000) + minor * 100 + patch


def _cudnn_is_acceptable(tensor: torch.Tensor) -> bool:
    """Whether cuDNN takes the tensor: never; recurrent layers run on the chip without it."""
    return False


def _device_hint(tensor: Any) -> str:
    """Whose libraries decide how a fake tensor's result lies in memory: for a device none of NVIDIA's."""
    hint = _torch_device_hint(tensor)
    return "fl" if hint == "cuda" and isinstance(tensor, torch._subclasses.FakeTensor) else hint


_torch_device_hint = torch._meta_registrations.device_hint


def is_enabled() -> bool:
    """Whether the view is on."""
    return _native.cuda_view_is_enabled()


def enable() -> None:
    """Switch the view on."""
    if is_enabled():
        return
    missing = _native.cuda_view_missing()
    if missing:
        raise RuntimeError(
            f'torch-fl: PyTorch {torch.__version__} lacks {", ".join(missing)}, so "cuda" cannot stand for '
            'the chip; use device="fl"'
        )
    try:
        for owner, name, value in _replacements():
            _saved.append((owner, name, vars(owner).get(name, _ABSENT)))
            setattr(owner, name, value)
        _native.cuda_view_enable()
        _name_methods("cuda")
        _read_cudnn_version()
    except BaseException:
        _restore()
        raise


def disable() -> None:
    """Switch the view off: torch.cuda is PyTorch's own again, and devices are called fl."""
    if is_enabled():
        _native.cuda_view_disable()
        _name_methods("fl")
        _restore()


def _name_methods(name: str) -> None:
    """Let what PyTorch generated for fl (Tensor.fl, Tensor.is_fl, …) look for the device's name of now."""
    owners = (torch.Tensor, torch.nn.Module, torch.nn.utils.rnn.PackedSequence,
              torch.storage._StorageBase, torch.storage.TypedStorage)  # fmt: skip
    for owner in owners:
        for attribute in ("fl", "is_fl"):
            method = vars(owner).get(attribute)
            method = getattr(method, "fget", method)
            if method is not None and "custom_backend_name" in method.__code__.co_freevars:
                place = method.__code__.co_freevars.index("custom_backend_name")
                method.__closure__[place].cell_contents = name


def _restore() -> None:
    while _saved:
        owner, name, before = _saved.pop()
        if before is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


@contextmanager
def cuda_view(on: bool = True) -> Iterator[None]:
    """Context manager: the view is on (or off) within, for the whole process."""
    before = is_enabled()
    (enable if on else disable)()
    try:
        yield
    finally:
        (enable if before else disable)()


def nvidia_is_usable() -> bool:
    """Whether PyTorch itself can use a GPU under the name "cuda" here.

    Asks no driver where there is none: a CUDA build on a machine without one answers at once, and the
    question leaves the process able to fork.
    """
    if torch.version.cuda is None and torch.version.hip is None:
        return False
    drivers = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd", "/dev/nvmap")
    if not any(os.path.exists(path) for path in drivers):
        return False
    counted = torch.cuda._device_count_amdsmi() if torch.version.hip else torch.cuda._device_count_nvml()
    return counted != 0  # negative: the management library is absent; the driver may work all the same


def start() -> None:
    """Bring the view in line with the setting cuda_view; called once when torch-fl is loaded."""
    choice = _native.get_setting("cuda_view")
    if choice == "0" or (choice == "auto" and nvidia_is_usable()):
        disable()
    else:
        try:
            enable()
            return
        except RuntimeError as error:
            warn(str(error))
    if not _native.cuda_view_missing():
        _native.device_names_enable()  # chip names are device strings with the view off as well


class _Callable(ModuleType):
    """torch_fl.cuda_view is this module and the context manager in one: `with torch_fl.cuda_view():`."""

    def __call__(self, on: bool = True):
        return cuda_view(on)


sys.modules[__name__].__class__ = _Callable
