// Interpolation along axes: each result of an axis is a weighted sum of a few
// of its elements, a row of a sparse matrix.
#pragma once

#include "bridge/ops/programs.h"

namespace fl::bridge {

enum class Filter {
  kNearest,
  kNearestExact,
  kLinear,
  kCubic,
  kMean,  // of floor(o X / Y) … ceil((o + 1) X / Y): adaptive average pooling
  kLinearAntialias,
  kCubicAntialias,
  kLanczosAntialias
};

// What the last dimensions share, and the scale of each as the caller gave it.
struct Resampling {
  Filter filter;
  bool align_corners = false;
  c10::SmallVector<std::optional<double>, 3> scales;  // one for each of the last dimensions
};

// out = in, [N, C, X…], interpolated to out's size.  False: the chip cannot, nothing has happened.
bool resample(Call& call, const Resampling& how, const Tensor& in, const Tensor& out);

// grad_in from grad, for the same `how` in the other direction.
bool resample_backward(Call& call, const Resampling& how, const Tensor& grad, const Tensor& grad_in);

}  // namespace fl::bridge
