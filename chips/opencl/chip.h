// The entries of the chip's table.
#pragma once

#include <vector>

#include "opencl.h"

namespace ocl {

using Claims = std::vector<fl_claim>;

// clang-format off
#define OCL_ENTRIES(X) X(copy) X(fill) X(pointwise) X(reduce) X(gemm) X(gather) X(scatter) \
  X(random) X(softmax) X(softmax_backward) X(norm) X(norm_backward) X(batch_norm) \
  X(batch_norm_backward) X(conv) X(pool) X(pool_backward) X(attention) X(attention_backward) \
  X(multi_tensor) X(scan) X(sort) X(compact) X(spmm)
// clang-format on

// fl_status gemm(const fl_launch*, const fl_gemm_args*);  void claim_gemm(Claims&);
#define OCL_DECLARE(name)                                    \
  fl_status name(const fl_launch*, const fl_##name##_args*); \
  void claim_##name(Claims&);
OCL_ENTRIES(OCL_DECLARE)
#undef OCL_DECLARE

}  // namespace ocl
