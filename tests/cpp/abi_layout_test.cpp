// The ABI's layouts, frozen for version 1: that this file compiles is most of
// the test.  A number here changes with FL_ABI_MAJOR only; tables and
// fl_device_properties may grow at their end, and then get new lines here.
#include <cstddef>

#include "check.h"
#include "fl/ops.h"

// clang-format off: a table
#define SIZE(type, bytes) static_assert(sizeof(type) == bytes, #type " has changed its size")
#define AT(type, member, offset) static_assert(offsetof(type, member) == offset, #type "." #member " has moved")
#define VALUE(name, number) static_assert(name == number, #name " has changed its value")

SIZE(fl_tensor, 32);
AT(fl_tensor, data, 0); AT(fl_tensor, sizes, 8); AT(fl_tensor, strides, 16); AT(fl_tensor, ndim, 24);
AT(fl_tensor, dtype, 28); AT(fl_tensor, flags, 29); AT(fl_tensor, reserved, 30);

SIZE(fl_launch, 24);
AT(fl_launch, stream, 0); AT(fl_launch, tag, 8); AT(fl_launch, device, 16); AT(fl_launch, flags, 20);

SIZE(fl_host, 32);
AT(fl_host, size, 0); AT(fl_host, version, 4); AT(fl_host, log, 8); AT(fl_host, set_error, 16);
AT(fl_host, scratch, 24);

SIZE(fl_device_properties, 240);
AT(fl_device_properties, size, 0); AT(fl_device_properties, flags, 4); AT(fl_device_properties, name, 8);
AT(fl_device_properties, identity, 136); AT(fl_device_properties, total_memory, 200);
AT(fl_device_properties, max_alloc, 208); AT(fl_device_properties, alignment, 216);
AT(fl_device_properties, compute_units, 220); AT(fl_device_properties, major, 224);
AT(fl_device_properties, minor, 228); AT(fl_device_properties, storage, 232);
AT(fl_device_properties, arithmetic, 236);

SIZE(fl_device_api, 32);
AT(fl_device_api, size, 0); AT(fl_device_api, reserved, 4); AT(fl_device_api, count, 8);
AT(fl_device_api, properties, 16); AT(fl_device_api, open, 24);

SIZE(fl_memory_api, 72);
AT(fl_memory_api, size, 0); AT(fl_memory_api, reserved, 4); AT(fl_memory_api, malloc, 8);
AT(fl_memory_api, free, 16); AT(fl_memory_api, info, 24); AT(fl_memory_api, copy, 32);
AT(fl_memory_api, copy_peer, 40); AT(fl_memory_api, host_alloc, 48); AT(fl_memory_api, host_free, 56);
AT(fl_memory_api, map, 64);

SIZE(fl_fault, 528);
AT(fl_fault, size, 0); AT(fl_fault, status, 4); AT(fl_fault, tag, 8); AT(fl_fault, text, 16);

SIZE(fl_stream_api, 104);
AT(fl_stream_api, size, 0); AT(fl_stream_api, reserved, 4); AT(fl_stream_api, create, 8);
AT(fl_stream_api, destroy, 16); AT(fl_stream_api, synchronize, 24); AT(fl_stream_api, query, 32);
AT(fl_stream_api, wait_event, 40); AT(fl_stream_api, fault, 48); AT(fl_stream_api, event_create, 56);
AT(fl_stream_api, event_destroy, 64); AT(fl_stream_api, event_record, 72);
AT(fl_stream_api, event_query, 80); AT(fl_stream_api, event_synchronize, 88);
AT(fl_stream_api, event_elapsed, 96);

SIZE(fl_chip, 88);
AT(fl_chip, size, 0); AT(fl_chip, version, 4); AT(fl_chip, name, 8); AT(fl_chip, release, 16);
AT(fl_chip, flags, 24); AT(fl_chip, reserved, 28); AT(fl_chip, device, 32); AT(fl_chip, memory, 40);
AT(fl_chip, stream, 48); AT(fl_chip, op, 56); AT(fl_chip, comm, 64); AT(fl_chip, graph, 72);
AT(fl_chip, extension, 80);

SIZE(fl_claim, 8);
AT(fl_claim, entry, 0); AT(fl_claim, kind, 2); AT(fl_claim, dtypes, 4);

SIZE(fl_scalar, 16);
AT(fl_scalar, v, 0); AT(fl_scalar, imag, 8);

SIZE(fl_instr, 12);
AT(fl_instr, op, 0); AT(fl_instr, type, 2); AT(fl_instr, memory, 3); AT(fl_instr, a, 4); AT(fl_instr, b, 6);
AT(fl_instr, c, 8); AT(fl_instr, reserved, 10);

SIZE(fl_program, 24);
AT(fl_program, code, 0); AT(fl_program, hash, 8); AT(fl_program, n_code, 16); AT(fl_program, n_inputs, 18);
AT(fl_program, n_outputs, 20); AT(fl_program, n_scalars, 22);

SIZE(fl_copy_args, 64);
AT(fl_copy_args, from, 0); AT(fl_copy_args, to, 32);

SIZE(fl_fill_args, 48);
AT(fl_fill_args, to, 0); AT(fl_fill_args, value, 32);

SIZE(fl_pointwise_args, 32);
AT(fl_pointwise_args, program, 0); AT(fl_pointwise_args, inputs, 8); AT(fl_pointwise_args, outputs, 16);
AT(fl_pointwise_args, scalars, 24);

SIZE(fl_reduce_args, 64);
AT(fl_reduce_args, kind, 0); AT(fl_reduce_args, accumulate, 2); AT(fl_reduce_args, n_inputs, 3);
AT(fl_reduce_args, n_outputs, 4); AT(fl_reduce_args, reserved, 6); AT(fl_reduce_args, pre, 8);
AT(fl_reduce_args, post, 16); AT(fl_reduce_args, inputs, 24); AT(fl_reduce_args, outputs, 32);
AT(fl_reduce_args, index, 40); AT(fl_reduce_args, pre_scalars, 48); AT(fl_reduce_args, post_scalars, 56);

SIZE(fl_gemm_args, 160);
AT(fl_gemm_args, a, 0); AT(fl_gemm_args, b, 32); AT(fl_gemm_args, out, 64); AT(fl_gemm_args, c, 96);
AT(fl_gemm_args, alpha, 104); AT(fl_gemm_args, beta, 120); AT(fl_gemm_args, epilogue, 136);
AT(fl_gemm_args, extra, 144); AT(fl_gemm_args, scalars, 152);

SIZE(fl_gather_args, 208);
AT(fl_gather_args, from, 0); AT(fl_gather_args, out, 32); AT(fl_gather_args, indices, 64);
AT(fl_gather_args, index_size, 72); AT(fl_gather_args, index_stride, 136);
AT(fl_gather_args, n_indices, 200); AT(fl_gather_args, flags, 204);

SIZE(fl_scatter_args, 216);
AT(fl_scatter_args, to, 0); AT(fl_scatter_args, from, 32); AT(fl_scatter_args, indices, 64);
AT(fl_scatter_args, index_size, 72); AT(fl_scatter_args, index_stride, 136);
AT(fl_scatter_args, n_indices, 200); AT(fl_scatter_args, flags, 204); AT(fl_scatter_args, mode, 208);
AT(fl_scatter_args, reserved, 210);

SIZE(fl_random_args, 88);
AT(fl_random_args, out, 0); AT(fl_random_args, seed, 32); AT(fl_random_args, offset, 40);
AT(fl_random_args, a, 48); AT(fl_random_args, b, 64); AT(fl_random_args, distribution, 80);
AT(fl_random_args, reserved, 82);

SIZE(fl_softmax_args, 72);
AT(fl_softmax_args, in, 0); AT(fl_softmax_args, out, 32); AT(fl_softmax_args, axis, 64);
AT(fl_softmax_args, log, 68);

SIZE(fl_softmax_backward_args, 104);
AT(fl_softmax_backward_args, grad_out, 0); AT(fl_softmax_backward_args, out, 32);
AT(fl_softmax_backward_args, grad_in, 64); AT(fl_softmax_backward_args, axis, 96);
AT(fl_softmax_backward_args, log, 100);

SIZE(fl_norm_args, 112);
AT(fl_norm_args, x, 0); AT(fl_norm_args, y, 32); AT(fl_norm_args, weight, 64); AT(fl_norm_args, bias, 72);
AT(fl_norm_args, mean, 80); AT(fl_norm_args, rstd, 88); AT(fl_norm_args, eps, 96);
AT(fl_norm_args, kind, 104); AT(fl_norm_args, reserved, 108);

SIZE(fl_norm_backward_args, 120);
AT(fl_norm_backward_args, grad_y, 0); AT(fl_norm_backward_args, x, 32);
AT(fl_norm_backward_args, weight, 64); AT(fl_norm_backward_args, mean, 72);
AT(fl_norm_backward_args, rstd, 80); AT(fl_norm_backward_args, grad_x, 88);
AT(fl_norm_backward_args, grad_weight, 96); AT(fl_norm_backward_args, grad_bias, 104);
AT(fl_norm_backward_args, kind, 112); AT(fl_norm_backward_args, reserved, 116);

SIZE(fl_batch_norm_args, 136);
AT(fl_batch_norm_args, x, 0); AT(fl_batch_norm_args, y, 32); AT(fl_batch_norm_args, weight, 64);
AT(fl_batch_norm_args, bias, 72); AT(fl_batch_norm_args, running_mean, 80);
AT(fl_batch_norm_args, running_var, 88); AT(fl_batch_norm_args, save_mean, 96);
AT(fl_batch_norm_args, save_rstd, 104); AT(fl_batch_norm_args, momentum, 112);
AT(fl_batch_norm_args, eps, 120); AT(fl_batch_norm_args, training, 128);
AT(fl_batch_norm_args, reserved, 132);

SIZE(fl_batch_norm_backward_args, 120);
AT(fl_batch_norm_backward_args, grad_y, 0); AT(fl_batch_norm_backward_args, x, 32);
AT(fl_batch_norm_backward_args, weight, 64); AT(fl_batch_norm_backward_args, mean, 72);
AT(fl_batch_norm_backward_args, rstd, 80); AT(fl_batch_norm_backward_args, grad_x, 88);
AT(fl_batch_norm_backward_args, grad_weight, 96); AT(fl_batch_norm_backward_args, grad_bias, 104);
AT(fl_batch_norm_backward_args, training, 112); AT(fl_batch_norm_backward_args, reserved, 116);

SIZE(fl_conv_args, 152);
AT(fl_conv_args, x, 0); AT(fl_conv_args, w, 32); AT(fl_conv_args, y, 64); AT(fl_conv_args, bias, 96);
AT(fl_conv_args, stride, 104); AT(fl_conv_args, padding, 116); AT(fl_conv_args, dilation, 128);
AT(fl_conv_args, groups, 140); AT(fl_conv_args, kind, 144); AT(fl_conv_args, reserved, 148);

SIZE(fl_pool_args, 136);
AT(fl_pool_args, x, 0); AT(fl_pool_args, y, 32); AT(fl_pool_args, index, 64); AT(fl_pool_args, kernel, 72);
AT(fl_pool_args, stride, 84); AT(fl_pool_args, padding, 96); AT(fl_pool_args, dilation, 108);
AT(fl_pool_args, kind, 120); AT(fl_pool_args, count_padding, 124); AT(fl_pool_args, divisor, 128);

SIZE(fl_pool_backward_args, 136);
AT(fl_pool_backward_args, grad_y, 0); AT(fl_pool_backward_args, grad_x, 32);
AT(fl_pool_backward_args, index, 64); AT(fl_pool_backward_args, kernel, 72);
AT(fl_pool_backward_args, stride, 84); AT(fl_pool_backward_args, padding, 96);
AT(fl_pool_backward_args, dilation, 108); AT(fl_pool_backward_args, kind, 120);
AT(fl_pool_backward_args, count_padding, 124); AT(fl_pool_backward_args, divisor, 128);

SIZE(fl_attention_args, 184);
AT(fl_attention_args, q, 0); AT(fl_attention_args, k, 32); AT(fl_attention_args, v, 64);
AT(fl_attention_args, out, 96); AT(fl_attention_args, lse, 128); AT(fl_attention_args, bias, 160);
AT(fl_attention_args, scale, 168); AT(fl_attention_args, causal, 176); AT(fl_attention_args, reserved, 180);

SIZE(fl_attention_backward_args, 312);
AT(fl_attention_backward_args, q, 0); AT(fl_attention_backward_args, k, 32);
AT(fl_attention_backward_args, v, 64); AT(fl_attention_backward_args, out, 96);
AT(fl_attention_backward_args, lse, 128); AT(fl_attention_backward_args, grad_out, 160);
AT(fl_attention_backward_args, bias, 192); AT(fl_attention_backward_args, grad_q, 200);
AT(fl_attention_backward_args, grad_k, 232); AT(fl_attention_backward_args, grad_v, 264);
AT(fl_attention_backward_args, scale, 296); AT(fl_attention_backward_args, causal, 304);
AT(fl_attention_backward_args, reserved, 308);

SIZE(fl_multi_tensor_args, 48);
AT(fl_multi_tensor_args, program, 0); AT(fl_multi_tensor_args, inputs, 8);
AT(fl_multi_tensor_args, outputs, 16); AT(fl_multi_tensor_args, scalars, 24);
AT(fl_multi_tensor_args, item_scalars, 32); AT(fl_multi_tensor_args, n_items, 40);
AT(fl_multi_tensor_args, n_item_scalars, 44);

SIZE(fl_scan_args, 80);
AT(fl_scan_args, in, 0); AT(fl_scan_args, out, 32); AT(fl_scan_args, index, 64); AT(fl_scan_args, axis, 72);
AT(fl_scan_args, kind, 76);

SIZE(fl_sort_args, 56);
AT(fl_sort_args, in, 0); AT(fl_sort_args, out, 32); AT(fl_sort_args, index, 40); AT(fl_sort_args, axis, 48);
AT(fl_sort_args, descending, 52);

SIZE(fl_compact_args, 96);
AT(fl_compact_args, mask, 0); AT(fl_compact_args, index, 32); AT(fl_compact_args, count, 64);

SIZE(fl_spmm_args, 144);
AT(fl_spmm_args, row_begin, 0); AT(fl_spmm_args, dense, 32); AT(fl_spmm_args, out, 64);
AT(fl_spmm_args, columns, 96); AT(fl_spmm_args, values, 104); AT(fl_spmm_args, winner, 112);
AT(fl_spmm_args, empty, 120); AT(fl_spmm_args, mode, 136); AT(fl_spmm_args, reserved, 140);

SIZE(fl_fft_args, 80);
AT(fl_fft_args, in, 0); AT(fl_fft_args, out, 32); AT(fl_fft_args, scale, 64); AT(fl_fft_args, axis, 72);
AT(fl_fft_args, inverse, 76);

SIZE(fl_op_api, 216);
AT(fl_op_api, size, 0); AT(fl_op_api, n_claims, 4); AT(fl_op_api, claims, 8); AT(fl_op_api, copy, 16);
AT(fl_op_api, fill, 24); AT(fl_op_api, pointwise, 32); AT(fl_op_api, reduce, 40); AT(fl_op_api, gemm, 48);
AT(fl_op_api, gather, 56); AT(fl_op_api, scatter, 64); AT(fl_op_api, random, 72);
AT(fl_op_api, softmax, 80); AT(fl_op_api, softmax_backward, 88); AT(fl_op_api, norm, 96);
AT(fl_op_api, norm_backward, 104); AT(fl_op_api, batch_norm, 112); AT(fl_op_api, batch_norm_backward, 120);
AT(fl_op_api, conv, 128); AT(fl_op_api, pool, 136); AT(fl_op_api, pool_backward, 144);
AT(fl_op_api, attention, 152); AT(fl_op_api, attention_backward, 160); AT(fl_op_api, multi_tensor, 168);
AT(fl_op_api, scan, 176); AT(fl_op_api, sort, 184); AT(fl_op_api, compact, 192); AT(fl_op_api, spmm, 200);
AT(fl_op_api, fft, 208);

// Numbers that chips are compiled with.
VALUE(FL_OUT_OF_MEMORY, 3);
VALUE(FL_DEVICE_LOST, 8);
VALUE(FL_BOOL, 1);
VALUE(FL_F32, 12);
VALUE(FL_F8_E5M2FNUZ, 20);
VALUE(FL_ENTRY_MULTI_TENSOR, 19);
VALUE(FL_ENTRY_FFT, 24);
VALUE(FL_SCAN_LOGSUMEXP, 4);
VALUE(FL_SPMM_PROD, 4);
VALUE(FL_OP_STORE, 1);
VALUE(FL_OP_EQ, 19);
VALUE(FL_OP_SIGMOID, 64);
VALUE(FL_OP_CONST, 89);
VALUE(FL_OP_IGAMMAC, 91);
VALUE(FL_REDUCE_MOMENTS, 6);
VALUE(FL_SCATTER_MAX, 4);
VALUE(FL_RANDOM_NORMAL64, 7);
VALUE(FL_MAX_DIMS, 16);
VALUE(FL_MAX_INDICES, 8);

// The numbers of a map count up without a gap: tables are indexed by them.
constexpr int kOpcodes[] = {
#define FL_OPCODE_VALUE(name, value, operands, types, tier, meaning) value,
    FL_OPCODE_MAP(FL_OPCODE_VALUE)
#undef FL_OPCODE_VALUE
};
constexpr int kEntries[] = {
#define FL_ENTRY_VALUE(name, value, tier) value,
    FL_ENTRY_MAP(FL_ENTRY_VALUE)
#undef FL_ENTRY_VALUE
};
constexpr int kStatuses[] = {
#define FL_STATUS_VALUE(name, value, sentence) value,
    FL_STATUS_MAP(FL_STATUS_VALUE)
#undef FL_STATUS_VALUE
};

template <size_t n>
constexpr bool counts_up(const int (&values)[n]) {
  for (size_t i = 0; i < n; ++i)
    if (values[i] != static_cast<int>(i)) return false;
  return true;
}
static_assert(counts_up(kOpcodes) && counts_up(kEntries) && counts_up(kStatuses));

extern "C" const unsigned abi_sizes_c99[], abi_sizes_c11[], abi_sizes_cxx17[];

int main() {
  // Which language a side is written in must not matter.
  int n = 0;
  for (; abi_sizes_c99[n]; ++n) {
    CHECK_THAT(abi_sizes_c11[n] == abi_sizes_c99[n], "struct %d has another size in C11", n);
    CHECK_THAT(abi_sizes_cxx17[n] == abi_sizes_c99[n], "struct %d has another size in C++17", n);
  }
  CHECK(abi_sizes_c11[n] == 0 && abi_sizes_cxx17[n] == 0);
  return check::result();
}
