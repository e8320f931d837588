// Softmax and normalisation on contiguous rows of float or double.  Sums come
// back as double; F32 values are added a few at a time before they are widened.
#pragma once

#include <cstdint>

#include "simd/isa.h"

namespace sim {

// A row function's output may be its input.  `columns` functions work on
// [n][kColumns] in place: kColumns independent slices side by side.
constexpr int kColumns = 32;

template <class A>
struct RowKernels {
  void (*softmax)(const A* x, A* y, int64_t n, bool log);
  void (*softmax_columns)(A* x, int64_t n, bool log);
  void (*softmax_backward)(const A* gy, const A* y, A* gx, int64_t n, bool log);
  void (*softmax_backward_columns)(A* g, const A* y, int64_t n, bool log);

  // Into a mean and sum of squared differences that hold `count` values.
  void (*moments)(const A* x, int64_t n, int64_t count, double* mean, double* m2);
  double (*squares)(const A* x, int64_t n);
  // The same for n columns, from at most eight rows.
  void (*moment_rows)(const A* const* rows, int n_rows, int64_t n, int64_t count, double* mean, double* m2);

  // y = (x - mean) × scale + shift: one mean and scale for the row with a weight
  // and bias an element (either may be null); one of each for all; one a column.
  void (*normalize)(const A* x, A* y, int64_t n, A mean, A rstd, const A* weight, const A* bias);
  void (*affine)(const A* x, A* y, int64_t n, A mean, A scale, A shift);
  void (*affine_columns)(const A* x, A* y, int64_t n, const A* mean, const A* scale, const A* shift);

  // Σ g·w and Σ g·w·(x - mean); weight may be null.
  void (*dots)(const A* g, const A* x, const A* weight, int64_t n, A mean, double* sum, double* dot);
  // gx = rstd × (g·w) + (x - mean) × slope + offset; weight may be null.
  void (*gradient)(const A* g, const A* x, const A* weight, A* gx, int64_t n, A mean, A rstd, A slope,
                   A offset);
  void (*gradient_columns)(const A* g, const A* x, A* gx, int64_t n, const A* mean, const A* scale,
                           const A* slope, const A* offset);
  // sum[i] += g[i], dot[i] += g[i] × (x[i] - mean) × rstd: one mean and rstd for
  // the row; mean a column, rstd 1.
  void (*add_dots)(const A* g, const A* x, int64_t n, A mean, A rstd, A* sum, A* dot);
  void (*add_dots_columns)(const A* g, const A* x, int64_t n, const A* mean, A* sum, A* dot);
  void (*widen_add)(const A* from, double* to, int64_t n);
};

#define SIM_ROW_KERNELS_OF(A) const RowKernels<A>& row_kernels(A)
SIM_DECLARE_LEVELS(SIM_ROW_KERNELS_OF(float); SIM_ROW_KERNELS_OF(double))

template <class A>
const RowKernels<A>& row_kernels() {
  static const RowKernels<A>& kernels = SIM_CHOOSE(row_kernels(A()));
  return kernels;
}

}  // namespace sim
