"""What is called when a graph is captured, ready, replayed and gone: torch.cuda's names in PyTorch 2.14."""

from __future__ import annotations

import contextlib
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

__all__ = [
    "register_graph_capture_end_hook",
    "register_graph_capture_start_hook",
    "register_graph_destroy_hook",
    "register_graph_instantiate_hook",
    "register_graph_replay_end_hook",
    "register_graph_replay_start_hook",
]

Hook = Callable[[Any], None]
_MOMENTS = ("capture_start", "capture_end", "instantiate", "replay_start", "replay_end")


def _registry() -> dict[str, OrderedDict[int, Hook]]:
    return {moment: OrderedDict() for moment in _MOMENTS}  # a RemovableHandle needs ordered ones


_of_all_graphs = _registry()
_of_all_ends: OrderedDict[int, Callable[[set[int]], None]] = OrderedDict()


def _register(registry: OrderedDict[int, Any], value: Any) -> RemovableHandle:
    handle = RemovableHandle(registry)
    registry[handle.id] = value
    return handle


def register_graph_capture_start_hook(fn: Hook) -> RemovableHandle:
    """Call fn(graph) when any capture begins; what it launches is captured.  Its errors are dropped."""
    return _register(_of_all_graphs["capture_start"], fn)


def register_graph_capture_end_hook(fn: Hook) -> RemovableHandle:
    """Call fn(graph) when any capture ends.  Its errors are dropped."""
    return _register(_of_all_graphs["capture_end"], fn)


def register_graph_instantiate_hook(fn: Hook) -> RemovableHandle:
    """Call fn(graph) when any graph is ready to be replayed.  Its errors are dropped."""
    return _register(_of_all_graphs["instantiate"], fn)


def register_graph_replay_start_hook(fn: Hook) -> RemovableHandle:
    """Call fn(graph) before the launches of any replay are submitted.  Its errors are dropped."""
    return _register(_of_all_graphs["replay_start"], fn)


def register_graph_replay_end_hook(fn: Hook) -> RemovableHandle:
    """Call fn(graph) when any replay is submitted, or has failed.  Its errors are dropped."""
    return _register(_of_all_graphs["replay_end"], fn)


def register_graph_destroy_hook(fn: Callable[[set[int]], None]) -> RemovableHandle:
    """Call fn(set()) when a graph made from now on is reset or gone: the set has NVIDIA's numbers, of which a
    chip's graph has none.
    """
    return _register(_of_all_ends, fn)


class Hooks:
    """Those of one graph."""

    def __init__(self) -> None:
        self._own = _registry()

    def register(self, moment: str, hook: Hook) -> RemovableHandle:
        return _register(self._own[moment], hook)

    def fire(self, moment: str, graph: Any) -> None:
        if everywhere := _of_all_graphs[moment]:
            for hook in list(everywhere.values()):
                with contextlib.suppress(Exception):
                    hook(graph)
        if own := self._own[moment]:
            for hook in list(own.values()):
                hook(graph)


class Retained:
    """What a graph holds until it is reset or gone, and what is called then.  It must not hold the graph."""

    def __init__(self, graph: Any) -> None:
        self.callbacks: OrderedDict[int, Callable[[], None]] = OrderedDict()
        self.objects: OrderedDict[int, object] = OrderedDict()
        self.streams: set[torch.Stream] | None = None  # of replays, once one is to be waited for
        self._end = weakref.finalize(graph, self._release)
        if _of_all_ends:
            self.add(self.callbacks, _tell_all, False)

    def add(self, registry: OrderedDict[int, Any], value: Any, wait: bool) -> RemovableHandle:
        if wait and self.streams is None:
            self.streams = set()
        return _register(registry, value)

    def release(self) -> None:
        """Once; again it does nothing."""
        self._end()

    def _release(self) -> None:
        for stream in self.streams or ():
            with contextlib.suppress(Exception):
                stream.synchronize()
        for callback in list(self.callbacks.values()):
            with contextlib.suppress(Exception):
                callback()
        self.callbacks.clear()
        self.objects.clear()


def _tell_all() -> None:
    for hook in list(_of_all_ends.values()):
        with contextlib.suppress(Exception):
            hook(set())
