// The entries of the chip's table.
#pragma once

#include "opencl.h"

namespace ocl {

// clang-format off
#define OCL_ENTRIES(X) X(copy) X(fill) X(pointwise) X(reduce) X(gemm) X(gather) X(scatter) \
  X(random) X(softmax) X(softmax_backward) X(norm) X(norm_backward) X(batch_norm) \
  X(batch_norm_backward) X(conv) X(pool) X(pool_backward) X(attention) X(attention_backward) \
  X(multi_tensor) X(scan) X(sort) X(compact) X(spmm)
// clang-format on

OCL_ENTRIES(FL_AUTHOR_DECLARE)

}  // namespace ocl
