// Sums and moments of contiguous values, accurate for any length: floats are
// added a few at a time and then carried in double.
#pragma once

#include <type_traits>

#include "simd/lanes.h"

namespace sim::SIM_ISA {

// Σ f(p + i) over vectors, f giving Vec<T> and, for what does not fill one, T.
// At most ten roundings in F32 between an element and the double it goes into.
template <class T, class F, class G>
SIM_INLINE double sum_over(int64_t n, F&& vector_at, G&& value_at) {
  constexpr int L = lanes<T>;
  int64_t i = 0;
  if constexpr (std::is_same_v<T, float>) {
    WideSum total;
    while (n - i >= 4 * L) {
      int64_t steps = (n - i) / (4 * L) < 8 ? (n - i) / (4 * L) : 8;
      Vec<float> a{}, b{}, c{}, d{};
      for (int64_t s = 0; s < steps; ++s, i += 4 * L) {
        a += vector_at(i), b += vector_at(i + L), c += vector_at(i + 2 * L), d += vector_at(i + 3 * L);
      }
      total.add((a + b) + (c + d));
    }
    if (n - i >= L) {
      Vec<float> a{};
      for (; n - i >= L; i += L) a += vector_at(i);
      total.add(a);
    }
    for (; i < n; ++i) total.rest += value_at(i);
    return total.value();
  } else {
    Vec<double> a{}, b{}, c{}, d{};
    for (; n - i >= 4 * L; i += 4 * L)
      a += vector_at(i), b += vector_at(i + L), c += vector_at(i + 2 * L), d += vector_at(i + 3 * L);
    for (; n - i >= L; i += L) a += vector_at(i);
    double rest = add_lanes<double>((a + b) + (c + d));
    for (; i < n; ++i) rest += value_at(i);
    return rest;
  }
}

template <class T>
SIM_INLINE double sum(const T* p, int64_t n) {
  return sum_over<T>(n, [&](int64_t i) { return load(p + i); }, [&](int64_t i) { return p[i]; });
}

// Σ (p[i] - mean)².  The differences are taken from the mean as T, which is
// nearly exact; the last term puts the rounding of that mean right.
template <class T>
SIM_INLINE double squared_differences(const T* p, int64_t n, double mean) {
  T m = T(mean);
  Vec<T> vm = splat(m);
  double s = sum_over<T>(
      n,
      [&](int64_t i) {
        Vec<T> d = load(p + i) - vm;
        return d * d;
      },
      [&](int64_t i) {
        T d = p[i] - m;
        return d * d;
      });
  double off = mean - double(m);
  double corrected = s - double(n) * off * off;
  return corrected < 0 ? 0 : corrected;
}

// Mean and squared differences of two groups together (Chan, Golub and LeVeque).  The difference from
// the new mean, not δ² alone: an infinite value then gives NaN, as subtracting the mean from it would.
SIM_INLINE void merge_moments(double& mean, double& m2, double count, double mean2, double m22,
                              double count2) {
  double total = count + count2;
  if (total == 0) return;
  double delta = mean2 - mean;
  mean = count == 0 ? mean2 : mean + delta * (count2 / total);
  m2 = count == 0 ? m22 : m2 + m22 + delta * (mean2 - mean) * count2;
}

// n_rows (at most 8) rows into the moments of n columns, which hold `count` rows.
// Within the eight rows all is relative to the first: nothing cancels.
template <class T>
SIM_INLINE void moment_rows(const T* const* rows, int n_rows, int64_t n, int64_t count,
                            double* __restrict mean, double* __restrict m2) {
  const double w1 = n_rows / double(count + n_rows);
  if (n_rows == 8) {
    const T* __restrict r0 = rows[0], * __restrict r1 = rows[1], * __restrict r2 = rows[2], * __restrict r3 = rows[3];
    const T* __restrict r4 = rows[4], * __restrict r5 = rows[5], * __restrict r6 = rows[6], * __restrict r7 = rows[7];
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) {
      T k = r0[j];
      T d1 = r1[j] - k, d2 = r2[j] - k, d3 = r3[j] - k, d4 = r4[j] - k, d5 = r5[j] - k, d6 = r6[j] - k,
        d7 = r7[j] - k;
      T m = ((d1 + d2) + (d3 + d4) + ((d5 + d6) + d7)) * T(0.125);
      d1 -= m, d2 -= m, d3 -= m, d4 -= m, d5 -= m, d6 -= m, d7 -= m;
      T q = ((m * m + d1 * d1) + (d2 * d2 + d3 * d3)) + ((d4 * d4 + d5 * d5) + (d6 * d6 + d7 * d7));
      double middle = double(k) + double(m), delta = middle - mean[j];
      mean[j] += delta * w1;
      m2[j] += double(q) + delta * (middle - mean[j]) * 8;
    }
    return;
  }
  for (int k = 0; k < n_rows; ++k) {
    const T* __restrict r = rows[k];
    const double v1 = 1 / double(count + k + 1);
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) {
      double delta = double(r[j]) - mean[j];
      mean[j] += delta * v1;
      m2[j] += delta * (double(r[j]) - mean[j]);
    }
  }
}

}  // namespace sim::SIM_ISA
