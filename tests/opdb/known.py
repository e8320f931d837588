"""Where the device differs from the CPU: test, operators, dtypes, and why."""

from __future__ import annotations

import re

import pytest
import torch

AS_CUDA = "as on CUDA: "
HALVES = (torch.float16, torch.bfloat16)
EQUAL = "which of equal elements is named is what the CPU's algorithm, which is not stable, makes of it"
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
MANY_EQUAL = (torch.bool, *INTEGERS, *HALVES)

# (test, operator, dtypes or None for all, reason); the first two are regular expressions for the whole name.
EXCEPTIONS: list[tuple[str, str, tuple | None, str]] = [
    # PyTorch's own.
    ("test_out_elsewhere", "lu", None, "torch.lu is Python, which copies its results to out="),
    (
        "test_out",
        "kron",
        None,
        "PyTorch resizes out= of devices but CPU and CUDA through the dispatcher, which raises its version",
    ),
    ("test_out", r"fft\.ihfft(2|n)", None, "PyTorch does not write out= when there is one dimension"),
    # Better than the CPU.
    ("test_layouts", "native_group_norm", (torch.float32, torch.float64), "takes inputs in any strides; the CPU refuses some"),
    (
        "test_(values|layouts|conj_and_neg)",
        "native_group_norm|native_layer_norm",
        HALVES,
        "statistics are float32, which the CPU rounds to halves",
    ),
    (
        "test_(values|layouts)",
        "_batch_norm_with_update",
        HALVES,
        "statistics are float32, which the CPU rounds to halves",
    ),
    (
        "test_layouts",
        r"nn\.functional\.embedding(_bag)?",
        None,
        "max_norm writes the table; one whose rows lie in one place is refused",
    ),
    (
        "test_(values|conj_and_neg|layouts)",
        r"nn\.functional\.conv_transpose[23]d",
        HALVES,
        "sums are rounded once; the CPU's own results are further from those in float64",
    ),
    (
        "test_layouts",
        r"nn\.functional\.conv_transpose1d",
        (torch.float16,),
        "sums are rounded once; the CPU's own results are further from those in float64",
    ),
    (
        "test_conj_and_neg",
        r"nn\.functional\.max_pool1d",
        None,
        "the CPU's kernel reads a negated view as it is stored",
    ),
    (
        "test_(values|layouts|conj_and_neg)",
        r"nn\.functional\.grid_sample|grid_sampler_[23]d",
        HALVES,
        AS_CUDA + "computed in float32; the CPU's coordinates are halves, and name other points",
    ),
    ("test_(values|layouts|conj_and_neg)", "matrix_exp", HALVES, "the CPU's powers of halves overflow to NaN"),
    ("test_(values|layouts|conj_and_neg)", r"_segment_reduce\.(lengths|offsets)", HALVES, "sums are rounded once; the CPU adds halves"),
    ("test_values", "gcd", (torch.int8,), "never negative; of -128 and 127 the CPU's is -1"),
    ("test_values", r"special\.zeta", None, "0 for exponents of 1e20, where the CPU gives NaN"),
    ("test_values", r"special\.bessel_[jy][01]", (torch.float64,), "the CPU is off by 1e-7 near 5.2"),
    ("test_(out|layouts|conj_and_neg)", r"special\.bessel_(j0|y1)", (torch.float64,), "the CPU is off by 1e-7 near 5.2"),
    ("test_views", "nonzero_static", None, AS_CUDA + "columns"),
    ("test_layouts", "to", (torch.float64,), "a sample names the CPU, to which one of the two inputs is copied"),
    (
        "test_conj_and_neg",
        "inner",
        (torch.complex64, torch.complex128),
        "of two conjugated vectors the CPU's is lazily conjugated",
    ),
    ("test_layouts", r"(nan)?median|masked\.median", None, "the CPU reads beyond the memory of an expanded input"),
    ("test_warnings", "searchsorted", None, "boundaries are read as they lie; the CPU warns that it copies them"),
    (
        "test_warnings",
        r"linalg\.vector_norm",
        (torch.complex64, torch.complex128),
        "of order 0 over single elements the CPU copies what it compares, and warns that it was complex",
    ),
    # Neither says it.
    (
        "test_values",
        r"special\.airy_ai",
        (torch.float32, torch.float64, torch.int16, torch.int32, torch.int64),
        "at -1e4 and below the phase has few digits, on the CPU too",
    ),
    ("test_(values|out|layouts|conj_and_neg)", "(arg)?sort", (torch.bool, torch.int8, torch.uint8, *HALVES), EQUAL),
    ("test_(values|out|conj_and_neg)", "mode", MANY_EQUAL, EQUAL),
    ("test_layouts", "mode", None, EQUAL),
    ("test_(values|out|conj_and_neg)", "kthvalue", INTEGERS, EQUAL),
    ("test_layouts", "kthvalue", None, EQUAL),
    ("test_(values|out|layouts|conj_and_neg)", "topk", (torch.bfloat16, *INTEGERS), EQUAL),
    ("test_layouts", "histogramdd", (torch.float32,), "expanded, all values lie on an edge, which linspace rounds its own way"),
    # As on other devices than the CPU.
    (
        "test_(values|out|layouts)",
        "native_batch_norm|_native_batch_norm_legit",
        HALVES,
        AS_CUDA + "saved statistics of halves are float32",
    ),
    ("test_conj_and_neg", "native_batch_norm|_native_batch_norm_legit", HALVES, AS_CUDA + "saved statistics of halves are float32"),
    (
        "test_fake_tensors",
        "native_batch_norm|_native_batch_norm_legit",
        None,
        "PyTorch predicts statistics in evaluation for devices but the CPU; they are empty, as the CPU's",
    ),
    (
        "test_fake_tensors",
        "native_group_norm",
        HALVES,
        "statistics are float32, and PyTorch predicts halves",
    ),
    (
        "test_fake_tensors",
        r"nn\.functional\.interpolate\.bilinear",
        (torch.uint8,),
        "PyTorch predicts that images of bytes do not stay channels-last, which on the CPU they do",
    ),
    (
        "test_mixed_devices",
        r"_chunk_cat|cartesian_prod|inner|meshgrid(\..*)?|cdist|(nan)?quantile|nn\.functional\.fractional_max_pool2d",
        None,
        "PyTorch's own check, before any device's kernel, names neither device or no index",
    ),
    (
        "test_mixed_devices",
        r"nn\.functional\.(bilinear|ctc_loss)",
        None,
        "PyTorch multiplies nothing of an empty batch, and moves targets itself",
    ),
    (
        "test_(views|gradient_nodes)",
        r"nn\.functional\.linear_cross_entropy\.chunked(_none)?",
        HALVES,
        AS_CUDA + "PyTorch's Python multiplies halves into float32 there, in other steps",
    ),
    ("test_(views|gradient_nodes)", "to", (torch.float64,), "a sample names the accelerator, where the input is already"),
    ("test_out", "add", (torch.bool,), AS_CUDA + "out= decides whether a boolean alpha is taken; on the CPU the operands"),
    ("test_views", r"nn\.functional\.max_pool1d", None, AS_CUDA + "a view of the result of max_pool2d"),
    (
        "test_gradient_nodes",
        r"nn\.functional\.(dropout|scaled_dot_product_attention)",
        None,
        AS_CUDA + "one node, which the CPU composes",
    ),
    (
        "test_gradient_nodes",
        r"nn\.functional\.rms_norm",
        (torch.float32, torch.float64, *HALVES),
        AS_CUDA + "one node, which the CPU composes",
    ),
    ("test_values", r"nn\.functional\.logsigmoid", None, AS_CUDA + "results lie in memory as the input does"),
    (
        "test_layouts",
        r"nn\.functional\.conv_transpose3d",
        None,
        AS_CUDA + "channels-last stays",
    ),
    (
        "test_layouts",
        r"nn\.functional\.pixel_shuffle",
        None,
        AS_CUDA + "composed of a permutation and a contiguous copy",
    ),
    (
        "test_layouts",
        r"nn\.functional\.scaled_dot_product_attention",
        None,
        AS_CUDA + "results lie in memory as the queries do",
    ),
]


def reason(test: str, op: str, dtype) -> str | None:
    for tests, ops, dtypes, why in EXCEPTIONS:
        if re.fullmatch(tests, test) and re.fullmatch(ops, op) and (dtypes is None or dtype in dtypes):
            return why
    return None


def marks(test: str, op: str, dtype, strict=True) -> list:
    """Of pytest.param: the exception, which with `strict` fails the run once it is no longer one."""
    why = reason(test, op, dtype)
    return [pytest.mark.xfail(reason=why, strict=strict)] if why else []
