"""OpenCL devices for torch-fl, which finds the chip by this package's entry point."""

from pathlib import Path


def libraries() -> list[str]:
    """Paths of the chip libraries in this package."""
    return [str(Path(__file__).resolve().parent / "libfl_opencl.so")]
