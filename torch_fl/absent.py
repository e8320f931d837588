"""The public names of torch.cuda that torch.fl has not, each with the reason; a table of docs/torch_fl.md.

python -m torch_fl.absent       prints the table
"""

from __future__ import annotations

_CUDART = "a part of NVIDIA's runtime library; chips are reached through torch-fl's own ABI"
_SENSOR = "the chip ABI has no sensors; the vendor's own tool shows them"
_TUNABLE = "chooses among the matrix multiplications of NVIDIA's and AMD's libraries; a chip has its own"
_NODES = "a chip's graph has no nodes of CUDA's; torch.fl.CUDAGraph.debug_dump writes its launches"

ABSENT: dict[str, str] = {
    "CUDAPluggableAllocator": "torch-fl's allocator stands above each chip's malloc and is not replaced",
    "CudaError": _CUDART + "; faults are RuntimeError, torch.AcceleratorError and torch.OutOfMemoryError",
    "DeferredCudaCallError": "nothing is deferred: a device starts when it is first used",
    "GreenContext": "parts of an NVIDIA GPU; the ABI has whole devices",
    "check_error": _CUDART,
    "clock_rate": _SENSOR,
    "comm": "torch.nn.parallel.comm and torch.distributed copy between devices",
    "cudaStatus": _CUDART,
    "cudart": _CUDART,
    "current_blas_handle": "a handle of cuBLAS; a chip's matrix multiplication takes a stream and no handle",
    "current_solver_handle": "a handle of cuSOLVER, which no chip has",
    "export_dot": "of PyTorch 2.14: " + _NODES,
    "export_graph_data": "of PyTorch 2.14: " + _NODES,
    "gds": "GPUDirect Storage, a driver of NVIDIA's",
    "graph_annotations": "of PyTorch 2.14: names for the kernels of a graph in traces of NVIDIA's profiler",
    "green_contexts": "see GreenContext",
    "has_magma": "a library for NVIDIA and AMD GPUs",
    "jiterator": "takes CUDA C++ source; torch.compile makes kernels for chips",
    "memory_usage": _SENSOR + " (the share of time in which memory was busy)",
    "nccl": "NVIDIA's collectives; torch.distributed has those of chips",
    "power_draw": _SENSOR,
    "sparse": "empty, but for types of sparse tensors; torch.sparse works on a device",
    "temperature": _SENSOR,
    "tunable": _TUNABLE,
    "utilization": _SENSOR,
}


def table() -> str:
    """The table as the documentation has it."""
    return "\n".join(
        ["| `torch.cuda.…` | why not |", "|---|---|"] + [f"| `{n}` | {r} |" for n, r in ABSENT.items()]
    )


if __name__ == "__main__":
    print(table())
