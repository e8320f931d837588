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
    "is_current_stream_capturing",
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
        """The number that tells streams of one device apart, where torch.cuda has a handle."""
        return self.stream_id

    __hash__ = torch.Stream.__hash__


class _EventType(type):
    def __instancecheck__(cls, event: Any) -> bool:
        return isinstance(event, torch.Event) and event.device.type == torch.device("fl").type


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
            raise RuntimeError("torch-fl: events cannot be shared between processes (interprocess=True)")
        return torch.Event(torch.device("fl"), enable_timing=enable_timing, blocking=blocking)


class ExternalStream(Stream):
    """A stream made by another library: chips have none that torch-fl could take over."""

    def __new__(cls, stream_ptr: int, device: Device = None, **_: Any) -> ExternalStream:
        raise RuntimeError("torch-fl: streams made by other libraries cannot be used")


def _wrap(identity: tuple[int, int, int]) -> Stream:
    stream_id, index, device_type = identity
    return Stream(stream_id=stream_id, device_index=index, device_type=device_type)


def current_stream(device: Device = None) -> Stream:
    """The stream that work of this thread on the device goes to."""
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


def is_current_stream_capturing() -> bool:
    """False: graphs are not captured yet."""
    return False
