#include "bridge/ops/axis_weights.h"

#include <ATen/native/UpSample.h>

#include <cmath>

namespace fl::bridge {
namespace {

// How far a filter reaches, in elements of the coarser side, times two.
int reach(Filter filter) {
  switch (filter) {
    case Filter::kLinear:
    case Filter::kLinearAntialias:
      return 2;
    case Filter::kCubic:
    case Filter::kCubicAntialias:
      return 4;
    case Filter::kLanczosAntialias:
      return 6;
    default:
      return 1;
  }
}
bool antialiased(Filter filter) { return filter >= Filter::kLinearAntialias; }

template <class R>
R sinc(R x) {
  if (x == 0) return 1;
  x *= static_cast<R>(M_PI);
  return std::sin(x) / x;
}

// The weight at distance x.
template <class R>
R weight(Filter filter, R x) {
  x = std::abs(x);
  const int r = reach(filter);
  if (2 * x >= r) return 0;
  if (r == 2) return 1 - x;
  if (r == 6) return sinc(x) * sinc(x / 3);
  const R a = filter == Filter::kCubic ? R(-0.75) : R(-0.5);
  return x < 1 ? at::native::cubic_convolution1(x, a) : at::native::cubic_convolution2(x, a);
}

struct Axis {
  int64_t in, out;
  bool align_corners;
  std::optional<double> scale;
};

// Where output o lies among the inputs.  Rounded once: PyTorch's CPU kernels are compiled with
// fused multiply-adds, as CUDA's are, and half a unit in the last place of an index of hundreds shows.
template <class R>
R source_index(R scale, int64_t o, bool align_corners, bool cubic) {
  if (align_corners) return scale * static_cast<R>(o);
  const R at = std::fma(scale, static_cast<R>(o) + R(0.5), R(-0.5));
  return !cubic && at < 0 ? R(0) : at;
}

// A row's weights for consecutive columns from `first`.
template <class R>
struct Row {
  int64_t first = 0;
  std::vector<R> weights;
  R largest = 0;
};

template <class R>
Row<R> antialias_row(Filter filter, const Axis& axis, R scale, int64_t o) {
  const R half = static_cast<R>(reach(filter) * 0.5), support = scale >= 1 ? half * scale : half;
  const R center = static_cast<R>(scale * (o + 0.5)), inverse = scale >= 1 ? R(1) / scale : R(1);
  const int64_t most = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  Row<R> row;
  row.first = std::max<int64_t>(static_cast<int64_t>(center - support + R(0.5)), 0);
  int64_t n = std::min<int64_t>(static_cast<int64_t>(center + support + R(0.5)), axis.in) - row.first;
  n = std::clamp<int64_t>(n, 0, most);
  R total = 0;
  for (int64_t j = 0; j < n; ++j) {
    row.weights.push_back(weight(filter, static_cast<R>((j + row.first - center + 0.5) * inverse)));
    total += row.weights.back();
  }
  if (total != 0)
    for (R& w : row.weights) w /= total, row.largest = std::max(row.largest, w);
  return row;
}

// Without antialiasing, what lies outside counts for the element at the end.
template <class R>
Row<R> clamped_row(Filter filter, const Axis& axis, R scale, int64_t o) {
  const int taps = reach(filter);
  const R real = source_index(scale, o, axis.align_corners, taps > 2);
  int64_t index;
  R lambda;
  at::native::guard_index_and_lambda(real, axis.in, index, lambda);
  const int64_t support = taps / 2, lowest = index - support + 1;
  Row<R> row;
  row.first = std::max<int64_t>(lowest, 0);
  row.weights.resize(static_cast<size_t>(
      std::clamp<int64_t>(std::min<int64_t>(index + support + 1, axis.in) - row.first, 0, taps)));
  for (int j = 0; j < taps; ++j) {
    R& w = row.weights[static_cast<size_t>(std::clamp<int64_t>(lowest + j, 0, axis.in - 1) - row.first)];
    w += weight(filter, static_cast<R>(j + 1 - support) - lambda);
    row.largest = std::max(row.largest, w);
  }
  return row;
}

void append(AxisWeights& to, int64_t column, double value) {
  to.columns.push_back(column);
  to.values.push_back(value);
}

template <class R>
void nearest(AxisWeights& to, Filter filter, const Axis& axis, bool plain, int64_t o) {
  int64_t column;
  if (!plain) {
    column = filter == Filter::kNearest ? at::native::nearest_idx(o, axis.in, axis.out, axis.scale)
                                        : at::native::nearest_exact_idx(o, axis.in, axis.out, axis.scale);
  } else {
    R scale = at::native::area_pixel_compute_scale<R>(axis.in, axis.out, false, axis.scale);
    bool exact = filter == Filter::kNearestExact;
    R real = at::native::area_pixel_compute_source_index<R>(scale, o, !exact, false);
    column = static_cast<int64_t>(floorf(static_cast<float>(exact ? real + 0.5 : real)));
    column = std::min(column, axis.in - 1);
  }
  append(to, column, 1);
}

template <class R>
void linear(AxisWeights& to, const Axis& axis, R scale, int64_t o) {
  if (axis.in == axis.out) {
    append(to, o, 1);
    append(to, o, 0);
    return;
  }
  int64_t index;
  R lambda;
  at::native::guard_index_and_lambda(source_index(scale, o, axis.align_corners, false), axis.in, index,
                                     lambda);
  append(to, index, 1 - lambda);
  append(to, std::min(index + 1, axis.in - 1), lambda);
}

template <class R>
void cubic(AxisWeights& to, const Axis& axis, R scale, int64_t o) {
  int64_t index;
  R lambda, weights[4];
  R real = source_index(scale, o, axis.align_corners, true);
  at::native::guard_index_and_lambda(real, axis.in, index, lambda);
  at::native::get_cubic_upsample_coefficients<R>(weights, lambda);
  for (int j = 0; j < 4; ++j) append(to, std::clamp<int64_t>(index + j - 1, 0, axis.in - 1), weights[j]);
}

void mean(AxisWeights& to, const Axis& axis, int64_t o) {
  int64_t first = o * axis.in / axis.out, end = ((o + 1) * axis.in + axis.out - 1) / axis.out;
  for (int64_t i = first; i < end; ++i) append(to, i, 1.0 / static_cast<double>(end - first));
}

template <class R>
AxisWeights in_floats(Filter filter, const Axis& axis, bool plain) {
  AxisWeights to;
  R scale = at::native::area_pixel_compute_scale<R>(axis.in, axis.out, axis.align_corners, axis.scale);
  to.begin.push_back(0);
  for (int64_t o = 0; o < axis.out; ++o) {
    if (antialiased(filter)) {
      Row<R> row = antialias_row<R>(filter, axis, scale, o);
      for (size_t j = 0; j < row.weights.size(); ++j)
        append(to, row.first + static_cast<int64_t>(j), row.weights[j]);
    } else if (filter == Filter::kLinear) {
      linear<R>(to, axis, scale, o);
    } else if (filter == Filter::kCubic) {
      cubic<R>(to, axis, scale, o);
    } else if (filter == Filter::kMean) {
      mean(to, axis, o);
    } else {
      nearest<R>(to, filter, axis, plain, o);
    }
    to.begin.push_back(static_cast<int64_t>(to.columns.size()));
  }
  return to;
}

// Weights as 16-bit integers with as many bits behind the point as fit.
AxisWeights in_bytes(Filter filter, const Axis& axis) {
  AxisWeights to;
  double scale =
      at::native::area_pixel_compute_scale<double>(axis.in, axis.out, axis.align_corners, axis.scale);
  double largest = 0;
  to.begin.push_back(0);
  for (int64_t o = 0; o < axis.out; ++o) {
    Row<double> row = antialiased(filter) ? antialias_row<double>(filter, axis, scale, o)
                                          : clamped_row<double>(filter, axis, scale, o);
    largest = std::max(largest, row.largest);
    for (size_t j = 0; j < row.weights.size(); ++j)
      append(to, row.first + static_cast<int64_t>(j), row.weights[j]);
    to.begin.push_back(static_cast<int64_t>(to.columns.size()));
  }
  while (to.precision < 22 && static_cast<int>(0.5 + largest * (1 << (to.precision + 1))) < 1 << 15)
    ++to.precision;
  for (double& v : to.values) v = std::trunc(v * (1 << to.precision) + (v < 0 ? -0.5 : 0.5));
  return to;
}

}  // namespace

bool AxisWeights::is_identity(int64_t in) const {
  if (static_cast<int64_t>(begin.size()) != in + 1) return false;
  for (size_t o = 0; o + 1 < begin.size(); ++o)
    for (int64_t j = begin[o]; j < begin[o + 1]; ++j) {
      auto k = static_cast<size_t>(j);
      bool own = columns[k] == static_cast<int64_t>(o) && j == begin[o];
      if (values[k] != (own ? 1 : 0)) return false;
    }
  return true;
}

AxisWeights AxisWeights::transposed(int64_t in) const {
  AxisWeights to;
  to.precision = precision;
  to.begin.assign(static_cast<size_t>(in) + 1, 0);
  for (int64_t c : columns) ++to.begin[static_cast<size_t>(c) + 1];
  for (size_t i = 1; i < to.begin.size(); ++i) to.begin[i] += to.begin[i - 1];
  std::vector<int64_t> next(to.begin.begin(), to.begin.end() - 1);
  to.columns.resize(columns.size());
  to.values.resize(values.size());
  for (size_t o = 0; o + 1 < begin.size(); ++o)
    for (auto j = static_cast<size_t>(begin[o]); j < static_cast<size_t>(begin[o + 1]); ++j) {
      auto at = static_cast<size_t>(next[static_cast<size_t>(columns[j])]++);
      to.columns[at] = static_cast<int64_t>(o);
      to.values[at] = values[j];
    }
  return to;
}

AxisWeights axis_weights(Filter filter, Arithmetic arithmetic, int64_t in, int64_t out, bool align_corners,
                         std::optional<double> scale, bool plain) {
  Axis axis{in, out, align_corners, scale};
  bool weighted = filter != Filter::kNearest && filter != Filter::kNearestExact;
  if (arithmetic == Arithmetic::kBytes && weighted) return in_bytes(filter, axis);
  return arithmetic == Arithmetic::kDouble ? in_floats<double>(filter, axis, plain)
                                           : in_floats<float>(filter, axis, plain);
}

}  // namespace fl::bridge
