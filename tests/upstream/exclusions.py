"""Which files run, and which of their tests are not the device's to pass: file, tests, and why."""

from __future__ import annotations

import re

FILES = """
test_torch.py test_indexing.py test_view_ops.py test_type_promotion.py test_shape_ops.py test_tensor_creation_ops.py
test_reductions.py test_binary_ufuncs.py test_unary_ufuncs.py test_sort_and_select.py test_scatter_gather_ops.py
test_nn.py nn/test_convolution.py nn/test_pooling.py nn/test_embedding.py nn/test_dropout.py
nn/test_multihead_attention.py nn/test_parametrization.py test_autograd.py test_foreach.py test_segment_reductions.py
test_spectral_ops.py test_complex.py test_masked.py test_sparse.py test_sparse_csr.py test_optim.py test_modules.py
test_dlpack.py test_serialization.py test_testing.py test_linalg.py
""".split()

NOT_RUN = "not run: "

# (file, tests, reason): the first two are regular expressions for the whole name.
EXCLUSIONS: list[tuple[str, str, str]] = [
    (
        r"test_torch\.py",
        r".*test_broadcast_fn_map2?_.*",
        "map_ and map2_ call Python for each element: PyTorch has them on the CPU alone",
    ),
    (
        r"test_torch\.py",
        r".*test_(lazy_clone|parallel_cow_materialize_error)_.*",
        "a lazy clone is a copy at once: the values are the same, and no storage is shared",
    ),
    (
        r"test_torch\.py",
        r".*test_grad_scaler_deprecated_warning_.*",
        "asks every device but CUDA for torch.cpu.amp.GradScaler's warning",
    ),
    (
        r"test_torch\.py",
        r".*test_grad_scaling_state_dict_.*",
        "asks every device but CUDA for a torch.FloatTensor, which is the CPU's type",
    ),
    (
        r"test_torch\.py",
        r".*test_tensor_storage_type_.*",
        "asks every device but CUDA for the CPU's storage types",
    ),
    (
        r"test_torch\.py",
        r".*test_nondeterministic_alert_(MaxUnpool.d|put)_fl.*",
        "deterministic here, so there is nothing to warn of",
    ),
    (
        r"test_tensor_creation_ops\.py",
        r".*test_linspace_fl_(u?int(32|64)|float(32|64)|complex.*)",
        NOT_RUN + "reads a million numbers to the host, one at a time: minutes",
    ),
    (
        r"test_sort_and_select\.py",
        r".*test_stable_sort_against_numpy_.*",
        "fills at positions on the CPU, which CUDA is spared by name",
    ),
    (
        r"test_sort_and_select\.py",
        r".*test_unique_dim_fl",
        "the CPU leaves NaN where its sort happens to put them; here they are last, as without dim",
    ),
    (
        r"test_reductions\.py",
        r".*test_bucketization_fl",
        "says nothing of non-contiguous boundaries, which cost nothing to speak of",
    ),
    (
        r"test_binary_ufuncs\.py",
        r".*test_fmod_remainder_by_zero_integral_fl_.*",
        "integers divided by zero raise as on the CPU; CUDA returns numbers",
    ),
    (
        r"test_binary_ufuncs\.py",
        r".*test_reference_numerics_extremal_values_(_refs_)?sub_fl_complex.*",
        "alpha = 1 is not multiplied by, which makes NaN of infinite complex numbers on the CPU",
    ),
    (
        r"test_binary_ufuncs\.py",
        r".*test_type_promotion__refs_copysign_fl",
        "torch._refs.copysign refuses numbers on the CPU, of every device",
    ),
    (
        r"test_binary_ufuncs\.py",
        r".*test_reference_numerics_(_refs_)?sub_fl_complex32",
        "differences are rounded to complex32 as on the CPU, which other random numbers show as well",
    ),
    (
        r"test_scatter_gather_ops\.py",
        r".*test_scatter_reduce_prod_fl_complex128",
        "asked for equal bits; products of complex128 are combined in another order",
    ),
    (
        r"nn/test_convolution\.py",
        r".*test_conv_backend_(?!empty_).*",
        "asks which of PyTorch's own kernels runs: other devices' is convolution_overrideable",
    ),
    (
        r"nn/test_convolution\.py",
        r".*test_conv_empty_channel_.*",
        "without input channels the CPU has no output channels either; here they hold the bias",
    ),
    (
        r"nn/test_embedding\.py",
        r".*test_embedding_bag_out_of_bounds_idx_.*",
        "refused with index, bound and operator, in other words than the CPU's; CUDA is spared by name",
    ),
    (
        r"nn/test_pooling\.py",
        r".*test_adaptive_pooling_no_suppot_input_.*",
        "asks that integers are refused, which the device takes",
    ),
    (
        r"test_masked\.py",
        r".*test_mask_layout_sparse_csr_masked_(mean|amax|amin)_fl_float64",
        "PyTorch makes a value of a row without elements, which random masks have or not; so on the CPU",
    ),
    (
        r"test_dlpack\.py",
        r".*test_(dlpack_protocol_conversion|from_dlpack(_dtype|_noncontinguous)?)_fl_.*",
        "Tensor.__dlpack_device__ knows no device of another name; under the CUDA view it does",
    ),
    (
        r"test_autograd\.py",
        r".*test_unused_output_device_fl",
        "calls torch._C._broadcast_coalesced, which only a PyTorch built for CUDA has",
    ),
    (
        r"test_nn\.py",
        r".*test_upsamplingBiMode2d_nonsupported_dtypes_.*_uint8",
        "asks that bytes are refused, which the device takes, as the CPU",
    ),
    (
        r"test_sparse\.py",
        r".*test_empty_like_fl_.*",
        "refused as on the CPU and on CUDA, whose names the test asks for in the message",
    ),
    (
        r"test_sparse\.py",
        r".*test_print_(un)?coalesced_fl_.*",
        "the expected text is kept for CPU and CUDA alone; but for the device's name it is CUDA's",
    ),
    (
        r"test_sparse\.py",
        r".*test_gradcheck_mm_SparseBS(C|R_sparse)_.*",
        "asks that products with blocks are refused, which the device computes",
    ),
    (
        r"test_sparse_csr\.py",
        r".*test_add_SparseCS[RC]_fl_.*",
        "alpha multiplies the second summand, as documented; PyTorch multiplies the sparse one, which here comes first",
    ),
    (
        r"test_sparse_csr\.py",
        r".*test_block_triangular_solve_.*",
        "runs on the CPU, which refuses a unit diagonal with blocks, and is spared that by name",
    ),
    (
        r"test_sparse_csr\.py",
        r".*test_sparse_csr_unary_(inplace|out)_abs_fl_complex64",
        "a sample is a vector, which the test does not take, and is expected not to of CPU and CUDA by name",
    ),
    (
        r"test_sparse_csr\.py",
        r".*test_sparse_compressed_constructor_shape_and_device_inference_.*_from_list_.*",
        "without a device, lists make a tensor on the CPU, which CUDA is spared by name",
    ),
    (
        r"test_sparse_csr\.py",
        r".*test_print_Sparse.*",
        "the expected text is kept for CPU and CUDA alone",
    ),
    (
        r"test_modules\.py",
        r".*test_memory_format_nn_((Lazy)?Conv(Transpose)?2d|GroupNorm|ReflectionPad3d)_fl_(b?float.*)",
        "asks that gradients, too, lie as the CPU's; CUDA is spared by name",
    ),
    (
        r"test_modules\.py",
        r".*test_gradgrad_nn_TransformerEncoder.*_fl_float64",
        "fused attention has no second derivative, which is expected of the CPU by name",
    ),
    (
        r"test_modules\.py",
        r".*test_forward_nn_CrossEntropyLoss_fl_float16",
        "composed of halves by PyTorch, from random numbers; the CPU's result for them is as far from float64",
    ),
    (
        r"test_modules\.py",
        r".*test_grad(grad)?_nn_CrossEntropyLoss_fl_float64",
        "random targets are all the ignored one: a mean of nothing, which is NaN on the CPU as well",
    ),
    (
        r"test_linalg\.py",
        r".*test_(_|compile_)int4_mm_.*",
        "calls CUDA's packing of 4-bit weights, where the CPU is called by another name",
    ),
    (
        r"test_linalg\.py",
        r".*test_linalg_lstsq_input_checks_.*",
        "asks every device but the CPU for CUDA's message on drivers; here the CPU's drivers are taken",
    ),
    (
        r"test_linalg\.py",
        r".*test_addbmm_fl_bfloat16",
        "asks that every device but the CPU and CUDA refuses bfloat16",
    ),
    (
        r"test_linalg\.py",
        r".*test_pinverse_fl_float32",
        "one of its random matrices has a condition number of 35000: of it the CPU misses the bound by more",
    ),
    (
        r"test_linalg\.py",
        r".*test_addr_float_and_complex_fl_float16",
        "rounded to half once; numpy and the CPU round each step, and are twice as far from float64",
    ),
    (
        r"test_testing\.py",
        r".*test_get_supported_dtypes_fl",
        "calls a helper of PyTorch's that takes no devices but CPU and CUDA",
    ),
]


def reason(file, test):
    for files, tests, why in EXCLUSIONS:
        if re.fullmatch(files, file) and re.fullmatch(tests, test):
            return why
    return None
