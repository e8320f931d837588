#include "simd/row_kernels.h"

#include "simd/math.h"
#include "simd/sums.h"

namespace sim::SIM_ISA {
namespace {

constexpr int64_t kChunk = 1024;  // values that stay in the first-level cache between two loops

template <class A>
A largest(const A* x, int64_t n) {
  constexpr int L = lanes<A>;
  A best = -__builtin_inf();
  int64_t i = 0;
  if (n >= L) {
    Vec<A> a = splat(best), b = a, c = a, d = a;
    for (; i + 4 * L <= n; i += 4 * L) {
      Vec<A> e = load(x + i), f = load(x + i + L), g = load(x + i + 2 * L), h = load(x + i + 3 * L);
      a = e > a ? e : a, b = f > b ? f : b, c = g > c ? g : c, d = h > d ? h : d;
    }
    for (; i + L <= n; i += L) {
      Vec<A> e = load(x + i);
      a = e > a ? e : a;
    }
    a = b > a ? b : a, c = d > c ? d : c, a = c > a ? c : a;
    for (int k = 0; k < L; ++k) best = a[k] > best ? a[k] : best;
  }
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

// A NaN that `largest` passes over comes back through the exponential and the sum.
template <class A>
void softmax(const A* x, A* y, int64_t n, bool log) {
  const A top = largest(x, n);
  double total = 0;
  A chunk[kChunk];
  for (int64_t b = 0; b < n; b += kChunk) {
    int64_t m = n - b < kChunk ? n - b : kChunk;
    const A* from = x + b;
    A* to = log ? chunk : y + b;
#pragma GCC ivdep
    for (int64_t i = 0; i < m; ++i) to[i] = exp_of(from[i] - top);
    total += sum(to, m);
  }
  if (log) {
    const A shift = A(__builtin_log(total));
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - top) - shift;
  } else {
    const A scale = A(1 / total);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] *= scale;
  }
}

// Loops over a row of columns, kept out of line: unrolled whole they would not be vectorised.
template <class A>
[[gnu::noinline]] void raise_row(const A* __restrict r, A* __restrict top, int64_t n) {
  for (int64_t j = 0; j < n; ++j) top[j] = r[j] > top[j] ? r[j] : top[j];
}
template <class A>
[[gnu::noinline]] void exp_row(A* __restrict r, const A* __restrict top, A* __restrict part, int64_t n) {
  for (int64_t j = 0; j < n; ++j) {
    A e = exp_of(r[j] - top[j]);
    part[j] += e;
    r[j] = e;
  }
}
template <class A>
[[gnu::noinline]] void log_row(A* __restrict r, const A* __restrict top, A* __restrict part, int64_t n) {
  for (int64_t j = 0; j < n; ++j) {
    r[j] -= top[j];
    part[j] += exp_of(r[j]);
  }
}
template <class A>
[[gnu::noinline]] void scale_row(A* __restrict r, const A* __restrict scale, int64_t n) {
  for (int64_t j = 0; j < n; ++j) r[j] *= scale[j];
}
template <class A>
[[gnu::noinline]] void shift_row(A* __restrict r, const A* __restrict shift, int64_t n) {
  for (int64_t j = 0; j < n; ++j) r[j] -= shift[j];
}
template <class A>
[[gnu::noinline]] void add_row(const A* __restrict r, A* __restrict part, int64_t n) {
  for (int64_t j = 0; j < n; ++j) part[j] += r[j];
}
template <class A>
[[gnu::noinline]] void add_product_row(const A* __restrict r, const A* __restrict q, A* __restrict part,
                                       int64_t n) {
  for (int64_t j = 0; j < n; ++j) part[j] += r[j] * q[j];
}
template <class A>
[[gnu::noinline]] void gradient_row(A* __restrict r, const A* __restrict q, const A* __restrict s,
                                    int64_t n) {
  for (int64_t j = 0; j < n; ++j) r[j] = q[j] * (r[j] - s[j]);
}
template <class A>
[[gnu::noinline]] void log_gradient_row(A* __restrict r, const A* __restrict q, const A* __restrict s,
                                        int64_t n) {
  for (int64_t j = 0; j < n; ++j) r[j] -= exp_of(q[j]) * s[j];
}

// total[j] = Σ over n rows of what add(row, part) adds, widened every eight.
template <class A, class F>
SIM_INLINE void column_sums(int64_t n, double* total, F&& add) {
  for (int j = 0; j < kColumns; ++j) total[j] = 0;
  for (int64_t i = 0; i < n;) {
    A part[kColumns] = {};
    for (int64_t end = i + 8 < n ? i + 8 : n; i < end; ++i) add(i * kColumns, part);
    for (int j = 0; j < kColumns; ++j) total[j] += double(part[j]);
  }
}

template <class A>
void softmax_columns(A* x, int64_t n, bool log) {
  constexpr int W = kColumns;
  A top[W], last[W];
  double total[W];
  std::memcpy(top, x, sizeof top);
  for (int64_t i = 1; i < n; ++i) raise_row(x + i * W, top, W);
  if (log) {
    column_sums<A>(n, total, [&](int64_t at, A* part) { log_row(x + at, top, part, W); });
    for (int j = 0; j < W; ++j) last[j] = A(__builtin_log(total[j]));
    for (int64_t i = 0; i < n; ++i) shift_row(x + i * W, last, W);
  } else {
    column_sums<A>(n, total, [&](int64_t at, A* part) { exp_row(x + at, top, part, W); });
    for (int j = 0; j < W; ++j) last[j] = A(1 / total[j]);
    for (int64_t i = 0; i < n; ++i) scale_row(x + i * W, last, W);
  }
}

template <class A>
double product_sum(const A* a, const A* b, int64_t n) {
  return sum_over<A>(
      n, [&](int64_t i) { return load(a + i) * load(b + i); }, [&](int64_t i) { return a[i] * b[i]; });
}

template <class A>
void softmax_backward(const A* gy, const A* y, A* gx, int64_t n, bool log) {
  if (log) {
    const A s = A(sum(gy, n));
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) gx[i] = gy[i] - exp_of(y[i]) * s;
  } else {
    const A s = A(product_sum(gy, y, n));
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) gx[i] = y[i] * (gy[i] - s);
  }
}

template <class A>
void softmax_backward_columns(A* g, const A* y, int64_t n, bool log) {
  constexpr int W = kColumns;
  double total[W];
  A s[W];
  if (log) column_sums<A>(n, total, [&](int64_t at, A* part) { add_row(g + at, part, W); });
  else column_sums<A>(n, total, [&](int64_t at, A* part) { add_product_row(g + at, y + at, part, W); });
  for (int j = 0; j < W; ++j) s[j] = A(total[j]);
  for (int64_t i = 0; i < n; ++i)
    log ? log_gradient_row(g + i * W, y + i * W, s, W) : gradient_row(g + i * W, y + i * W, s, W);
}

template <class A>
void moments(const A* x, int64_t n, int64_t count, double* mean, double* m2) {
  // Two passes over what the cache holds, then together.
  for (int64_t b = 0; b < n; b += 4096) {
    int64_t m = n - b < 4096 ? n - b : 4096;
    double part = sum(x + b, m) / double(m);
    merge_moments(*mean, *m2, double(count), part, squared_differences(x + b, m, part), double(m));
    count += m;
  }
}
template <class A>
double squares(const A* x, int64_t n) {
  return product_sum(x, x, n);
}
template <class A>
void moment_rows_of(const A* const* rows, int n_rows, int64_t n, int64_t count, double* mean, double* m2) {
  moment_rows(rows, n_rows, n, count, mean, m2);
}

template <class A>
void normalize(const A* x, A* y, int64_t n, A mean, A rstd, const A* weight, const A* bias) {
  if (weight && bias) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd * weight[i] + bias[i];
  } else if (weight) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd * weight[i];
  } else if (bias) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd + bias[i];
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd;
  }
}
template <class A>
void affine(const A* x, A* y, int64_t n, A mean, A scale, A shift) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * scale + shift;
}
template <class A>
void affine_columns(const A* x, A* y, int64_t n, const A* mean, const A* scale, const A* shift) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean[i]) * scale[i] + shift[i];
}

template <class A>
void dots(const A* g, const A* x, const A* weight, int64_t n, A mean, double* total, double* dot) {
  constexpr int L = lanes<A>;
  const Vec<A> m = splat(mean);
  // Both sums in one pass: what is read is the cost.
  double s = 0, d = 0;
  for (int64_t b = 0; b < n; b += 16 * L) {
    int64_t end = b + 16 * L < n ? b + 16 * L : n, i = b;
    Vec<A> s0{}, s1{}, d0{}, d1{};
    for (; i + 2 * L <= end; i += 2 * L) {
      Vec<A> g0 = load(g + i), g1 = load(g + i + L);
      if (weight) g0 *= load(weight + i), g1 *= load(weight + i + L);
      s0 += g0, s1 += g1;
      d0 += g0 * (load(x + i) - m), d1 += g1 * (load(x + i + L) - m);
    }
    if constexpr (sizeof(A) == 4) {
      WideSum ws, wd;
      ws.add(s0 + s1), wd.add(d0 + d1);
      s += ws.value(), d += wd.value();
    } else {
      s += add_lanes<A>(s0 + s1), d += add_lanes<A>(d0 + d1);
    }
    for (; i < end; ++i) {
      A t = weight ? g[i] * weight[i] : g[i];
      s += double(t), d += double(t * (x[i] - mean));
    }
  }
  *total = s, *dot = d;
}

template <class A>
void gradient(const A* g, const A* x, const A* weight, A* gx, int64_t n, A mean, A rstd, A slope, A offset) {
  if (weight) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) gx[i] = rstd * (g[i] * weight[i]) + ((x[i] - mean) * slope + offset);
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) gx[i] = rstd * g[i] + ((x[i] - mean) * slope + offset);
  }
}
template <class A>
void gradient_columns(const A* g, const A* x, A* gx, int64_t n, const A* mean, const A* scale, const A* slope,
                      const A* offset) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) gx[i] = scale[i] * g[i] + ((x[i] - mean[i]) * slope[i] + offset[i]);
}
template <class A>
void add_dots(const A* g, const A* x, int64_t n, A mean, A rstd, A* total, A* dot) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    total[i] += g[i];
    dot[i] += g[i] * ((x[i] - mean) * rstd);
  }
}
template <class A>
void add_dots_columns(const A* g, const A* x, int64_t n, const A* mean, A* total, A* dot) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    total[i] += g[i];
    dot[i] += g[i] * (x[i] - mean[i]);
  }
}
template <class A>
void widen_add(const A* from, double* to, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) to[i] += double(from[i]);
}

template <class A>
constexpr RowKernels<A> kKernels{softmax<A>,
                                 softmax_columns<A>,
                                 softmax_backward<A>,
                                 softmax_backward_columns<A>,
                                 moments<A>,
                                 squares<A>,
                                 moment_rows_of<A>,
                                 normalize<A>,
                                 affine<A>,
                                 affine_columns<A>,
                                 dots<A>,
                                 gradient<A>,
                                 gradient_columns<A>,
                                 add_dots<A>,
                                 add_dots_columns<A>,
                                 widen_add<A>};

}  // namespace

const RowKernels<float>& row_kernels(float) { return kKernels<float>; }
const RowKernels<double>& row_kernels(double) { return kKernels<double>; }

}  // namespace sim::SIM_ISA
