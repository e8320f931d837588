"""Streams and events: PyTorch's own classes with the constructors of torch.cuda's."""

from __future__ import annotations

from typing import Any

import torch

from . import _native
from ._utils import Device, device_index

__all__ = [
    "Event",
    "ExternalStream",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "get_stream_from_external",
    "set_stream",
    "stream",
]


def _device(index: int) -> torch.device:
    return torch.device("fl", index)


class Stream(torch.Stream):
    """A queue of a device that works in order."""

    def __new__(cls, device: Device = None, priority: int = 0, **ids: Any) -> Stream:
        if ids:  # stream_id, device_index, device_type: an existing stream
            return super().__new__(cls, priority=priority, **ids)
        return super().__new__(cls, device=_device(device_index(device)), priority=priority)

    def wait_stream(self, stream: torch.Stream) -> None:
        """Work submitted to this stream from now on waits for what is in the other one."""
        self.wait_event(stream.record_event())

    def __repr__(self) -> str:
        return f"<torch.fl.Stream device={self.device} id={self.stream_id}>"

    @property
    def cuda_stream(self) -> int:
        """The handle, for ExternalStream and other libraries; 0 for the default stream, as in CUDA."""
        return self.native_handle if self.stream_id else 0

    __hash__ = torch.Stream.__hash__


class _EventType(type):
    def __instancecheck__(cls, event: Any) -> bool:
        return isinstance(event, torch.Event) and event.device.type == torch.device("fl").type

    def from_ipc_handle(cls, device: Device, handle: bytes) -> torch.Event:
        """Refused: events stay in their process."""
        raise RuntimeError(_NO_IPC)


_NO_IPC = "torch-fl: events cannot be shared between processes: no chip has handles for them"


class Event(metaclass=_EventType):
    """A mark in a stream, to wait for and to measure time with.

    Makes torch.Event objects: elapsed_time and record_event take that very type and no subclass.
    """

    def __new__(
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> torch.Event:
        if interprocess:
            raise RuntimeError(_NO_IPC + " (interprocess=True)")
        if external:
            raise RuntimeError(
                "torch-fl: events in a graph order its launches, and no replay records them (external=True)"
            )
        return torch.Event(torch.device("fl"), enable_timing=enable_timing, blocking=blocking)


def _with_handle(handle: int, device: Device) -> tuple[int, int, int]:
    index = device_index(device)
    return _native.stream_with_handle(handle, index) if handle else _native.default_stream(index)


class ExternalStream(Stream):
    """The stream with a handle that went through another library: its native_handle or cuda_stream.

    A stream that another library made itself is refused: the chip ABI has no way to take it over.
    """

    def __new__(cls, stream_ptr: int, device: Device = None, **kwargs: Any) -> ExternalStream:
        stream_id, index, device_type = _with_handle(stream_ptr, device)
        return super().__new__(cls, stream_id=stream_id, device_index=index, device_type=device_type)


def get_stream_from_external(data_ptr: int, device: Device = None) -> Stream:
    """The stream with a handle, as ExternalStream takes it."""
    return _wrap(_with_handle(data_ptr, device))


def _wrap(identity: tuple[int, int, int]) -> Stream:
    stream_id, index, device_type = identity
    return Stream(stream_id=stream_id, device_index=index, device_type=device_type)


def current_stream(device: Device = None) -> Stream:
    """The stream that work of this thread on the device goes to.  Starts no device."""
    return _wrap(_native.current_stream(device_index(device)))


def default_stream(device: Device = None) -> Stream:
    """The stream that is current at the start."""
    return _wrap(_native.default_stream(device_index(device)))


def set_stream(stream: torch.Stream | None) -> None:
    """Make a stream, and its device, the current ones.  None does nothing."""
    if stream is not None:
        _native.set_stream(stream.stream_id, stream.device_index, stream.device_type)


class StreamContext:
    """Context manager: a stream is the current one within; None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is None:
            return
        self._device = _native.current_device()
        self._previous = _native.current_stream(self.stream.device_index)
        set_stream(self.stream)

    def __exit__(self, *exception: object) -> bool:
        if self.stream is not None:
            _native.set_stream(*self._previous)
            _native.set_device(self._device)
        return False


def stream(stream: torch.Stream | None) -> StreamContext:
    """Context manager: a stream is the current one within."""
    return StreamContext(stream)


def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
    _native.set_stream(stream_id, device_index, device_type)
