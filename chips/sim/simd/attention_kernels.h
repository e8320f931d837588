// What attention does to a block of scores [keys, width], a query a column: all but its products.
#pragma once

#include <cstdint>

#include "simd/isa.h"

namespace sim {

template <class A>
struct AttentionKernels {
  // Scores become exponentials relative to the new maximum of each query; `factor` is what earlier sums have
  // to be multiplied by.  Where all are masked (-inf) so far, exponentials are 0, not NaN.
  void (*running_softmax)(A* scores, int64_t keys, int64_t width, A* maximum, A* sum, A* factor);
  // block[i][l] *= factor[l]
  void (*scale_columns)(A* block, int64_t rows, int64_t width, const A* factor);
  // scores = exp(scores - lse)
  void (*probabilities)(A* scores, int64_t keys, int64_t width, const A* lse);
  // dp = p × (dp - delta)
  void (*score_gradient)(A* dp, const A* p, int64_t keys, int64_t width, const A* delta);
};

#define SIM_ATTENTION_KERNELS_OF(A) const AttentionKernels<A>& attention_kernels(A)
SIM_DECLARE_LEVELS(SIM_ATTENTION_KERNELS_OF(float); SIM_ATTENTION_KERNELS_OF(double))

template <class A>
const AttentionKernels<A>& attention_kernels() {
  static const AttentionKernels<A>& kernels = SIM_CHOOSE(attention_kernels(A()));
  return kernels;
}

}  // namespace sim
