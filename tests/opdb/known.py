"""Where the device differs from the CPU: test, operators, dtypes, and why."""

from __future__ import annotations

import re

FFT = "results are contiguous; PyTorch's have the transformed dimensions first in memory"
AS_CUDA = "as on CUDA: "

# (test, operator, dtypes or None for all, reason); the first two are regular expressions for the whole name.
EXCEPTIONS: list[tuple[str, str, tuple | None, str]] = [
    # What the device does not have.
    (
        "test_.*",
        r"linalg\.lstsq(\.grad_oriented)?",
        None,
        "the solution is contiguous, the CPU's is column-major",
    ),
    (r"test_(values|layouts|conj_and_neg|views|gradient_nodes|out|fake_tensors)", r"fft\..*", None, FFT),
    ("test_out_elsewhere", r"fft\..*", None, "the result is copied to where out= is"),
    (
        "test_(values|layouts|conj_and_neg|views|gradient_nodes)",
        "cholesky_solve",
        None,
        "the solution is contiguous, the CPU's is column-major",
    ),
    # PyTorch's own refusals.
    ("test_out", "mode", None, "PyTorch refuses mode(out=) for every device but CPU, CUDA and XPU"),
    (
        "test_out_elsewhere",
        "lu|addr",
        None,
        "composed by PyTorch from operators without out=, which then copies",
    ),
    # What it checks less than the CPU.
    ("test_out", "randn", None, "random fills take memory that overlaps itself"),
    ("test_layouts", r"normal\.in_place", None, "random fills take memory that overlaps itself"),
    ("test_out_elsewhere", "bernoulli", None, "the probabilities' device is not compared with that of out="),
    (
        "test_out",
        "native_batch_norm",
        None,
        "resizes saved statistics, which the CPU wants with one dimension",
    ),
    ("test_errors", r"nn\.functional\.max_pool3d", None, "takes images without elements in more cases"),
    ("test_errors", "multinomial", None, "probabilities below 0 are not looked for"),
    ("test_errors", "logcumsumexp", None, "the dimension of an empty tensor is not checked"),
    # Better than the CPU.
    ("test_errors", "narrow_copy", None, "IndexError as from narrow(); the CPU's is an internal check"),
    ("test_layouts", "native_group_norm", None, "takes inputs in any strides; the CPU refuses some"),
    (
        "test_conj_and_neg",
        r"nn\.functional\.max_pool1d",
        None,
        "the CPU's kernel reads a negated view as it is stored",
    ),
    # As on other devices than the CPU.
    ("test_views", r"nn\.functional\.max_pool1d", None, AS_CUDA + "a view of the result of max_pool2d"),
    (
        "test_gradient_nodes",
        r"nn\.functional\.(rms_norm|dropout|scaled_dot_product_attention)",
        None,
        AS_CUDA + "one node, which the CPU composes",
    ),
    (
        "test_layouts",
        r"nn\.functional\.(conv_transpose3d|interpolate\.area)",
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
    ("test_fake_tensors", "svd_lowrank", None, "PyTorch predicts the strides of CUDA's library for V"),
    ("test_out", "kron", None, "the version of out= goes up, which on the CPU it does not"),
]


def reason(test: str, op: str, dtype) -> str | None:
    for tests, ops, dtypes, why in EXCEPTIONS:
        if re.fullmatch(tests, test) and re.fullmatch(ops, op) and (dtypes is None or dtype in dtypes):
            return why
    return None
