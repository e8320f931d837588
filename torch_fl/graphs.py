"""Graphs: work captured once and replayed, with no Python between its launches.

The names and rules are torch.cuda's.  While a stream is captured its launches are recorded, and what is in
memory stays as it is; a replay submits them in the order of the capture.  What a graph cannot hold (waiting
for the device, .item(), copies to host memory that is not pinned, operators that run on the CPU) is an error
where it happens.
"""

from __future__ import annotations

import gc
import typing
from collections.abc import Callable
from typing import Any

import torch

from . import _native, graph_hooks, streams
from .graph_hooks import *  # noqa: F403
from .graph_hooks import Hook, RemovableHandle

__all__ = [
    *graph_hooks.__all__,
    "CUDAGraph",
    "graph",
    "graph_pool_handle",
    "is_current_stream_capturing",
    "make_graphed_callables",
]

Pool = tuple[int, int]
# torch.utils._cuda_debug of PyTorch 2.14 and later.
_ASKS_FOR_ALL_POOLS = hasattr(torch.cuda.CUDAGraph, "pools")


def is_current_stream_capturing() -> bool:
    """Whether this thread's current stream of the current device is being captured.  Starts no device."""
    return _native.is_capturing(_native.current_device())


def graph_pool_handle() -> Pool:
    """A name for a memory pool that several graphs are to share; no memory yet."""
    return _native.new_graph_pool()


class CUDAGraph(torch._C._acceleratorGraph):
    """Launches that were captured, to be replayed.

    The name is torch.cuda's.  Without keep_graph a graph is ready at the end of the capture, else after
    instantiate() or the first replay; here the two differ in nothing else.
    """

    _tracker: Any

    def __new__(cls, keep_graph: bool = False) -> CUDAGraph:
        return super().__new__(cls, keep_graph)

    def __init__(self, keep_graph: bool = False) -> None:
        super().__init__(keep_graph)
        self._tracker = None
        self._keep_graph, self._ready = keep_graph, False
        self._hooks = graph_hooks.Hooks()
        self._retained = graph_hooks.Retained(self)

    def register_capture_start_hook(self, hook: Hook) -> RemovableHandle:
        """Call hook(graph) when a capture has begun; what it launches is captured."""
        return self._hooks.register("capture_start", hook)

    def register_capture_end_hook(self, hook: Hook) -> RemovableHandle:
        """Call hook(graph) when a capture has ended."""
        return self._hooks.register("capture_end", hook)

    def register_post_instantiate_hook(self, hook: Hook) -> RemovableHandle:
        """Call hook(graph) when it is ready to be replayed."""
        return self._hooks.register("instantiate", hook)

    def register_replay_start_hook(self, hook: Hook) -> RemovableHandle:
        """Call hook(graph) before a replay's launches are submitted."""
        return self._hooks.register("replay_start", hook)

    def register_replay_end_hook(self, hook: Hook) -> RemovableHandle:
        """Call hook(graph) when a replay's launches are submitted, or have failed."""
        return self._hooks.register("replay_end", hook)

    def register_destroy_callback(
        self, cb: Callable[[], None], *, synchronize_before_release: bool = False
    ) -> RemovableHandle:
        """Call cb() once when the graph is reset or gone; it must not refer to the graph, and its errors are
        dropped.  With synchronize_before_release the replays from now on are waited for before.
        """
        return self._retained.add(self._retained.callbacks, cb, synchronize_before_release)

    def retain_object(self, obj: object, *, synchronize_before_release: bool = False) -> RemovableHandle:
        """Keep obj until the graph is reset or gone; it must not refer to the graph."""
        return self._retained.add(self._retained.objects, obj, synchronize_before_release)

    def capture_begin(
        self, pool: Pool | None = None, capture_error_mode: str = "global", check_input_liveness: bool = False
    ) -> None:
        """Record what is launched on the current stream from now on, which is not the default one.

        pool: that of another graph, or from graph_pool_handle().  The error mode makes no difference: what
        other threads do on other streams does not disturb a capture.  With check_input_liveness a replay
        says which tensor from outside the graph is gone.
        """
        self._stop_tracking()
        pool = getattr(pool, "id", pool)
        super().capture_begin(pool=pool, capture_error_mode=capture_error_mode)
        if check_input_liveness:
            from torch.utils._cuda_debug import _CUDAGraphInputLivenessTracker

            self._tracker = _CUDAGraphInputLivenessTracker()
            self._tracker.start()
        self._hooks.fire("capture_start", self)

    def capture_end(self) -> None:
        """End the capture; raises when something happened in it that a graph cannot hold."""
        try:
            self.capture_end_pre()
            self._hooks.fire("capture_end", self)
            if not self._keep_graph:
                self._become_ready()
        finally:
            self.capture_end_post()

    def capture_end_pre(self) -> None:
        """The first part of capture_end(), without what its hooks do."""
        super().capture_end()

    def capture_end_post(self) -> None:
        """The last part of capture_end()."""
        if self._tracker is not None:
            self._tracker.stop()

    def instantiate(self) -> None:
        """Make a graph with keep_graph=True ready; replay() does it too."""
        super().instantiate()
        self._become_ready()

    def _become_ready(self) -> None:
        self._ready = True
        self._hooks.fire("instantiate", self)

    def replay(self) -> None:
        """Submit the launches to the current stream of the graph's device."""
        if self._tracker is not None:
            self._tracker.check_alive(self.pools() if _ASKS_FOR_ALL_POOLS else self.pool())
        if self._keep_graph and not self._ready:
            self.instantiate()
        if self._retained.streams is not None:
            self._retained.streams.add(streams.current_stream())
        self._hooks.fire("replay_start", self)
        try:
            super().replay()
        finally:
            self._hooks.fire("replay_end", self)

    def reset(self) -> None:
        """Forget the capture; the graph can be captured again."""
        self._stop_tracking()
        self._ready = False
        self._retained.release()
        self._retained = graph_hooks.Retained(self)
        super().reset()

    def pool(self) -> Pool:
        """The name of the graph's memory pool, for another graph's capture_begin."""
        return super().pool()

    def pools(self) -> list[Pool]:
        """The names of all its pools: one."""
        return [self.pool()]

    def enable_debug_mode(self) -> None:
        """Allow debug_dump()."""
        super().enable_debug_mode()

    def debug_dump(self, debug_path: str, *, verbose: bool = True) -> None:
        """Write the launches to a file that Graphviz draws; there is one form of it."""
        super().debug_dump(debug_path)

    def raw_cuda_graph(self) -> int:
        """Refused: a graph is kept by torch-fl, and no chip has a handle for it."""
        raise RuntimeError("torch-fl: a graph is a list of launches on the host and has no native handle")

    raw_cuda_graph_exec = raw_cuda_graph

    def get_graph_data(self) -> dict[str, Any]:
        """Refused, as raw_cuda_graph(): debug_dump() writes what the graph holds."""
        raise RuntimeError(
            "torch-fl: a graph has no native nodes to describe; debug_dump() writes its launches"
        )

    def _stop_tracking(self) -> None:
        tracker, self._tracker = self._tracker, None
        if tracker is not None:
            tracker.stop()


class graph:
    """Context manager: work within is captured into a CUDAGraph, on a side stream."""

    default_capture_stream: streams.Stream | None = None

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: Pool | None = None,
        stream: torch.Stream | None = None,
        capture_error_mode: str = "global",
        enable_annotations: bool = False,
        check_input_liveness: bool = False,
    ) -> None:
        if enable_annotations:
            raise RuntimeError("torch-fl: a graph's launches carry no annotations (enable_annotations=True)")
        if stream is None:
            stream = _capture_stream()
        self.pool = pool
        self.capture_stream = stream
        self.stream_ctx = streams.stream(stream)
        self.cuda_graph = cuda_graph
        self.capture_error_mode = capture_error_mode
        self.check_input_liveness = check_input_liveness

    def __enter__(self) -> None:
        _native.synchronize(self.capture_stream.device_index)
        if torch.compiler.config.force_cudagraph_gc:
            gc.collect()
        _native.empty_cache()
        _native.empty_host_cache()
        self.stream_ctx.__enter__()
        try:
            self.cuda_graph.capture_begin(
                self.pool,
                capture_error_mode=self.capture_error_mode,
                check_input_liveness=self.check_input_liveness,
            )
        except BaseException:
            self.stream_ctx.__exit__()
            raise

    def __exit__(self, *exception: object) -> None:
        try:
            self.cuda_graph.capture_end()
        except RuntimeError:
            # What went wrong has been said where it happened.
            if not exception or exception[0] is None:
                raise
        finally:
            self.stream_ctx.__exit__(*exception)


def _capture_stream() -> streams.Stream:
    """The side stream of the current device, the same for all captures: a pool's memory is a stream's."""
    index = _native.current_device()
    if (made := _capture_streams.get(index)) is None:
        made = _capture_streams[index] = streams.Stream(index)
    graph.default_capture_stream = made
    return made


_capture_streams: dict[int, streams.Stream] = {}


class _Plan(typing.NamedTuple):
    """What the graphs of one callable read and write."""

    forward: CUDAGraph
    backward: CUDAGraph
    inputs: tuple[torch.Tensor, ...]  # arguments, then parameters
    n_arguments: int
    outputs: tuple[torch.Tensor, ...]
    form: Any  # how the outputs were nested
    grad_outputs: tuple[torch.Tensor | None, ...]
    grad_inputs: tuple[torch.Tensor | None, ...]


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: Pool | None = None,
    capture_error_mode: str = "global",
    enable_annotations: bool = False,
) -> Any:
    """Functions or modules whose forward and backward are replays of graphs, in one autograd node each.

    sample_args: a tuple of tensors (of such tuples for a tuple of callables) as the callable will get them:
    sizes, dtypes and requires_grad stay what they are here.  Several callables share a pool, so they have to
    run in this order.  Modules must have neither hooks nor buffers that need gradients.
    """
    if torch.is_autocast_enabled() and torch.is_autocast_cache_enabled():
        raise RuntimeError(
            "make_graphed_callables does not support the autocast caching. Please set `cache_enabled=False`."
        )
    single = not isinstance(callables, tuple)
    functions = (callables,) if single else callables
    samples = (sample_args,) if single else sample_args
    for function, arguments in zip(functions, samples, strict=True):
        _check_graphable(function, arguments)
    surfaces = []
    for function, arguments in zip(functions, samples, strict=True):
        parameters = tuple(function.parameters()) if isinstance(function, torch.nn.Module) else ()
        surfaces.append(tuple(torch.utils._pytree.arg_tree_leaves(*arguments)) + parameters)

    def grads(outputs: Any, inputs: Any, grad_outputs: Any) -> Any:
        return torch.autograd.grad(
            outputs=tuple(o for o in outputs if o.requires_grad),
            inputs=tuple(i for i in inputs if i.requires_grad),
            grad_outputs=tuple(g for g in grad_outputs if g is not None),
            only_inputs=True,
            allow_unused=allow_unused_input,
        )

    def like(outputs: Any) -> tuple[torch.Tensor | None, ...]:
        return tuple(torch.empty_like(o) if o.requires_grad else None for o in outputs)

    # What is done once only (programs, buffers of optimizers of kernels) must not end up in a capture.
    _native.synchronize(_native.current_device())
    with streams.stream(streams.Stream()):
        for function, arguments, inputs in zip(functions, samples, surfaces, strict=True):
            for _ in range(num_warmup_iters):
                outputs = torch.utils._pytree.tree_leaves(function(*arguments))
                if any(o.requires_grad for o in outputs):
                    grads(outputs, inputs, like(outputs))
                del outputs
    _native.synchronize(_native.current_device())

    # They share memory, so they are captured in the order in which they will run: backward in reverse.
    shared = graph_pool_handle() if pool is None else pool

    def capture(of: CUDAGraph) -> graph:
        return graph(
            of, pool=shared, capture_error_mode=capture_error_mode, enable_annotations=enable_annotations
        )

    forwards = []
    for function, arguments in zip(functions, samples, strict=True):
        forward = CUDAGraph()
        with capture(forward):
            result = function(*arguments)
        flat, form = torch.utils._pytree.tree_flatten(result)
        forwards.append((forward, tuple(flat), form))
    plans = []
    for (forward, outputs, form), inputs, arguments in reversed(
        list(zip(forwards, surfaces, samples, strict=True))
    ):
        backward, grad_outputs, made = CUDAGraph(), like(outputs), ()
        if any(o.requires_grad for o in outputs):
            with capture(backward):
                made = grads(outputs, inputs, grad_outputs)
        grad = iter(made)
        grad_inputs = tuple(next(grad) if i.requires_grad and made else None for i in inputs)
        n_arguments = len(torch.utils._pytree.arg_tree_leaves(*arguments))
        plans.append(_Plan(forward, backward, inputs, n_arguments, outputs, form, grad_outputs, grad_inputs))
    plans.reverse()
    graphed = tuple(_graphed(function, plan) for function, plan in zip(functions, plans, strict=True))
    return graphed[0] if single else graphed


def _check_graphable(function: Any, arguments: Any) -> None:
    if isinstance(function, torch.nn.Module):
        if function._backward_hooks or function._forward_hooks or function._forward_pre_hooks:
            raise AssertionError(
                "Modules must not have hooks registered at the time they are passed. However, registering "
                "hooks on modules after passing them through make_graphed_callables is allowed."
            )
        if any(b.requires_grad for b in function.buffers()):
            raise AssertionError(
                "In any torch.nn.Module passed to make_graphed_callables, only parameters may be trainable. "
                "All buffers must have ``requires_grad=False``."
            )
    if not all(isinstance(a, torch.Tensor) for a in torch.utils._pytree.arg_tree_leaves(*arguments)):
        raise AssertionError(
            "sample_args for each callable must contain only Tensors. Other types are not allowed."
        )


def _graphed(function: Any, plan: _Plan) -> Any:
    parameters = plan.inputs[plan.n_arguments :]

    class Graphed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            for static, given in zip(plan.inputs[: plan.n_arguments], inputs, strict=False):
                if static.data_ptr() != given.data_ptr():
                    static.copy_(given)
            plan.forward.replay()
            return tuple(o.detach() for o in plan.outputs)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
            for static, given in zip(plan.grad_outputs, grads, strict=True):
                if static is not None and static.data_ptr() != given.data_ptr():
                    static.copy_(given)
            plan.backward.replay()
            return tuple(None if g is None else g.detach() for g in plan.grad_inputs)

    def run(*arguments: Any) -> Any:
        leaves = torch.utils._pytree.arg_tree_leaves(*arguments)
        return torch.utils._pytree.tree_unflatten(Graphed.apply(*leaves, *parameters), plan.form)

    if not isinstance(function, torch.nn.Module):
        return run
    training, eager = function.training, function.forward

    def forward(*arguments: Any, **named: Any) -> Any:
        return run(*arguments, **named) if function.training == training else eager(*arguments, **named)

    function.forward = forward
    return function
