// What each entry's arguments point to, and which tensors a launch writes: for whoever has to keep a launch.
//
// visit(v, args) calls, for everything that `args` borrows,
//   v.read(t)  v.write(t)        for an fl_tensor, or a pointer to n of them (null: none)
//   v.copy(p, n)                 for a pointer to n scalars
//   v.program(p)                 for a program, or none
#pragma once

#include "fl/ops.h"

namespace fl {

template <class V>
void visit(V& v, fl_copy_args& a) {
  v.read(a.from), v.write(a.to);
}

template <class V>
void visit(V& v, fl_fill_args& a) {
  v.write(a.to);
}

template <class V>
void visit(V& v, fl_pointwise_args& a) {
  v.program(a.program);
  v.read(a.inputs, a.program->n_inputs);
  v.write(a.outputs, a.program->n_outputs);
  v.copy(a.scalars, a.program->n_scalars);
}

template <class V>
void visit(V& v, fl_reduce_args& a) {
  v.read(a.inputs, a.n_inputs);
  v.write(a.outputs, a.n_outputs);
  v.write(a.index, 1);
  v.program(a.pre), v.program(a.post);
  if (a.pre) v.copy(a.pre_scalars, a.pre->n_scalars);
  if (a.post) v.copy(a.post_scalars, a.post->n_scalars);
}

template <class V>
void visit(V& v, fl_gemm_args& a) {
  v.read(a.a), v.read(a.b), v.read(a.c, 1), v.write(a.out);
  v.program(a.epilogue);
  if (!a.epilogue) return;
  v.read(a.extra, a.epilogue->n_inputs - 1);
  v.copy(a.scalars, a.epilogue->n_scalars);
}

template <class V>
void visit(V& v, fl_gather_args& a) {
  v.read(a.from), v.read(a.indices, a.n_indices), v.write(a.out);
}

template <class V>
void visit(V& v, fl_scatter_args& a) {
  v.read(a.from), v.read(a.indices, a.n_indices), v.write(a.to);
}

template <class V>
void visit(V& v, fl_random_args& a) {
  v.write(a.out);
}

template <class V>
void visit(V& v, fl_softmax_args& a) {
  v.read(a.in), v.write(a.out);
}

template <class V>
void visit(V& v, fl_softmax_backward_args& a) {
  v.read(a.grad_out), v.read(a.out), v.write(a.grad_in);
}

template <class V>
void visit(V& v, fl_norm_args& a) {
  v.read(a.x), v.read(a.weight, 1), v.read(a.bias, 1);
  v.write(a.y), v.write(a.mean, 1), v.write(a.rstd, 1);
}

template <class V>
void visit(V& v, fl_norm_backward_args& a) {
  v.read(a.grad_y), v.read(a.x), v.read(a.weight, 1), v.read(a.mean, 1), v.read(a.rstd, 1);
  v.write(a.grad_x, 1), v.write(a.grad_weight, 1), v.write(a.grad_bias, 1);
}

template <class V>
void visit(V& v, fl_batch_norm_args& a) {
  v.read(a.x), v.read(a.weight, 1), v.read(a.bias, 1);
  if (a.training) v.write(a.running_mean, 1), v.write(a.running_var, 1);
  else v.read(a.running_mean, 1), v.read(a.running_var, 1);
  v.write(a.y), v.write(a.save_mean, 1), v.write(a.save_rstd, 1);
}

template <class V>
void visit(V& v, fl_batch_norm_backward_args& a) {
  v.read(a.grad_y), v.read(a.x), v.read(a.weight, 1), v.read(a.mean, 1), v.read(a.rstd, 1);
  v.write(a.grad_x, 1), v.write(a.grad_weight, 1), v.write(a.grad_bias, 1);
}

template <class V>
void visit(V& v, fl_conv_args& a) {
  a.kind == FL_CONV_BACKWARD_DATA ? v.write(a.x) : v.read(a.x);
  a.kind == FL_CONV_BACKWARD_WEIGHT ? v.write(a.w) : v.read(a.w);
  a.kind == FL_CONV_FORWARD ? v.write(a.y) : v.read(a.y);
  a.kind == FL_CONV_BACKWARD_WEIGHT ? v.write(a.bias, 1) : v.read(a.bias, 1);
}

template <class V>
void visit(V& v, fl_pool_args& a) {
  v.read(a.x), v.write(a.y), v.write(a.index, 1);
}

template <class V>
void visit(V& v, fl_pool_backward_args& a) {
  v.read(a.grad_y), v.read(a.index, 1), v.write(a.grad_x);
}

template <class V>
void visit(V& v, fl_attention_args& a) {
  v.read(a.q), v.read(a.k), v.read(a.v), v.read(a.bias, 1), v.write(a.out), v.write(a.lse);
}

template <class V>
void visit(V& v, fl_attention_backward_args& a) {
  v.read(a.q), v.read(a.k), v.read(a.v), v.read(a.out), v.read(a.lse), v.read(a.grad_out), v.read(a.bias, 1);
  v.write(a.grad_q), v.write(a.grad_k), v.write(a.grad_v);
}

template <class V>
void visit(V& v, fl_multi_tensor_args& a) {
  v.program(a.program);
  v.read(a.inputs, a.n_items * a.program->n_inputs);
  v.write(a.outputs, a.n_items * a.program->n_outputs);
  v.copy(a.scalars, a.program->n_scalars - a.n_item_scalars);
  v.copy(a.item_scalars, a.n_items * a.n_item_scalars);
}

template <class V>
void visit(V& v, fl_scan_args& a) {
  v.read(a.in), v.write(a.out), v.write(a.index, 1);
}

template <class V>
void visit(V& v, fl_sort_args& a) {
  v.read(a.in), v.write(a.out, 1), v.write(a.index, 1);
}

template <class V>
void visit(V& v, fl_compact_args& a) {
  v.read(a.mask), v.write(a.index), v.write(a.count);
}

template <class V>
void visit(V& v, fl_spmm_args& a) {
  v.read(a.row_begin), v.read(a.dense), v.read(a.columns, 1), v.read(a.values, 1);
  v.write(a.out), v.write(a.winner, 1);
}

template <class V>
void visit(V& v, fl_fft_args& a) {
  v.read(a.in), v.write(a.out);
}

}  // namespace fl
