#include "simd/attention_kernels.h"

#include <algorithm>

#include "simd/math.h"

namespace sim::SIM_ISA {
namespace {

// e^x within a few units in the last place, 0 below the normal range: straight-line code, where
// exp_of(double) is a call.
SIM_INLINE float exponential(float x) { return exp_of(x); }
SIM_INLINE double exponential(double x) {
  constexpr double kLowest = -708.3, kHighest = 709.7;
  constexpr double kMagic = 0x1.8p52;  // adding it rounds to an integer, in the low bits
  double y = x < kLowest ? kLowest : x;
  y = y > kHighest ? kHighest : y;
  const double shifted = y * 1.44269504088896340736 + kMagic, n = shifted - kMagic;
  // ln 2 in two parts: n × the first is exact.
  const double r = (y - n * 0x1.62e42feep-1) - n * double(0.69314718055994530942L - 0x1.62e42feep-1L);
  double sum = 1;
#pragma GCC unroll 16
  for (int i = 14; i > 0; --i) sum = sum * (r * double(1.0L / i)) + 1;
  const int64_t exponent = int64_t(uint64_t(bit_cast<int64_t>(shifted) - bit_cast<int64_t>(kMagic)) << 52);
  const double result = bit_cast<double>(bit_cast<int64_t>(sum) + exponent);
  return x < kLowest ? 0 : result;
}

// Rows are kept out of line: unrolled into the loop over them they would not be vectorised.
template <class A>
[[gnu::noinline]] void raise_row(const A* __restrict row, A* __restrict top, int64_t n) {
  for (int64_t l = 0; l < n; ++l) top[l] = row[l] > top[l] ? row[l] : top[l];
}
template <class A>
[[gnu::noinline]] void exp_row(A* __restrict row, const A* __restrict top, int64_t n) {
  for (int64_t l = 0; l < n; ++l) row[l] = exponential(row[l] - top[l]);
}
template <class A>
[[gnu::noinline]] void add_exp_row(A* __restrict row, const A* __restrict top, A* __restrict add, int64_t n) {
  for (int64_t l = 0; l < n; ++l) {
    const A e = exponential(row[l] - top[l]);
    row[l] = e;
    add[l] += e;
  }
}
template <class A>
[[gnu::noinline]] void scale_row(A* __restrict row, const A* __restrict factor, int64_t n) {
  for (int64_t l = 0; l < n; ++l) row[l] *= factor[l];
}
template <class A>
[[gnu::noinline]] void gradient_row(A* __restrict dp, const A* __restrict p, const A* __restrict delta,
                                    int64_t n) {
  for (int64_t l = 0; l < n; ++l) dp[l] = p[l] * (dp[l] - delta[l]);
}

constexpr int64_t kWidth = 64;  // columns at a time: what belongs to them stays in the first-level cache

template <class A>
void running_softmax(A* scores, int64_t keys, int64_t width, A* maximum, A* sum, A* factor) {
  constexpr A kNone = -__builtin_inf();
  for (int64_t first = 0; first < width; first += kWidth) {
    const int64_t n = std::min(kWidth, width - first);
    A top[kWidth], add[kWidth];
    std::copy(maximum + first, maximum + first + n, top);
    std::fill(add, add + n, A(0));
    for (int64_t s = 0; s < keys; ++s) raise_row(scores + s * width + first, top, n);
    for (int64_t l = 0; l < n; ++l) {
      factor[first + l] = maximum[first + l];
      maximum[first + l] = top[l];
      top[l] = top[l] == kNone ? A(0) : top[l];
    }
    exp_row(factor + first, top, n);
    for (int64_t s = 0; s < keys; ++s) add_exp_row(scores + s * width + first, top, add, n);
    for (int64_t l = first; l < first + n; ++l) sum[l] = sum[l] * factor[l] + add[l - first];
  }
}

template <class A>
void scale_columns(A* block, int64_t rows, int64_t width, const A* factor) {
  for (int64_t i = 0; i < rows; ++i) scale_row(block + i * width, factor, width);
}

template <class A>
void probabilities(A* scores, int64_t keys, int64_t width, const A* lse) {
  for (int64_t s = 0; s < keys; ++s) exp_row(scores + s * width, lse, width);
}

template <class A>
void score_gradient(A* dp, const A* p, int64_t keys, int64_t width, const A* delta) {
  for (int64_t s = 0; s < keys; ++s) gradient_row(dp + s * width, p + s * width, delta, width);
}

template <class A>
constexpr AttentionKernels<A> kKernels = {running_softmax<A>, scale_columns<A>, probabilities<A>,
                                          score_gradient<A>};

}  // namespace

const AttentionKernels<float>& attention_kernels(float) { return kKernels<float>; }
const AttentionKernels<double>& attention_kernels(double) { return kKernels<double>; }

}  // namespace sim::SIM_ISA
