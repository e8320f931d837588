// The sparse matrix of interpolation along one axis, made on the host.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bridge/ops/resample.h"

namespace fl::bridge {

// Rows of columns and weights: row o is begin[o] … begin[o + 1] - 1.
struct AxisWeights {
  std::vector<int64_t> begin, columns;
  std::vector<double> values;
  int precision = 0;  // values are integers, to be divided by 2^precision

  bool is_identity(int64_t in) const;
  AxisWeights transposed(int64_t in) const;
};

// How PyTorch's CPU computes them, which decides ties.
enum class Arithmetic { kFloat, kDouble, kBytes };

// `plain`: PyTorch's general kernel, which has no shortcut for nearest with sizes that are equal or double.
AxisWeights axis_weights(Filter filter, Arithmetic arithmetic, int64_t in, int64_t out, bool align_corners,
                         std::optional<double> scale, bool plain);

}  // namespace fl::bridge
