#include "simd/spmm_kernels.h"

#include <type_traits>

#include "simd/half.h"

namespace sim::SIM_ISA {
namespace {

template <class T>
struct Complex {
  T re, im;
};
template <class T>
constexpr bool is_complex = std::is_same_v<T, Complex<float>> || std::is_same_v<T, Complex<double>>;
template <class T>
constexpr bool is_half = std::is_same_v<T, Half> || std::is_same_v<T, BFloat>;
template <class T>
using Computed = std::conditional_t<is_half<T>, float, T>;

template <class T>
SIM_INLINE Computed<T> widen(T x) {
  if constexpr (is_half<T>) return to_float(x);
  else return x;
}
template <class T>
SIM_INLINE T narrow(Computed<T> x) {
  if constexpr (std::is_same_v<T, Half>) return to_half(x);
  else if constexpr (std::is_same_v<T, BFloat>) return to_bfloat(x);
  else return x;
}

template <class A>
SIM_INLINE A times(A a, A b) {
  if constexpr (is_complex<A>) return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  else if constexpr (std::is_integral_v<A>) return A(uint64_t(a) * uint64_t(b));
  else return a * b;
}
template <class A>
SIM_INLINE A plus(A a, A b) {
  if constexpr (is_complex<A>) return {a.re + b.re, a.im + b.im};
  else if constexpr (std::is_integral_v<A>) return A(uint64_t(a) + uint64_t(b));
  else return a + b;
}

constexpr bool sums(int mode) { return mode == FL_SPMM_SUM || mode == FL_SPMM_MEAN; }
template <int mode, class A>
SIM_INLINE A start() {
  if constexpr (is_complex<A>) return {sums(mode) ? 0.f : 1.f, 0};
  else return A(sums(mode) ? 0 : 1);
}
// Whether x takes the place of a: NaN does, and then stays.
template <int mode, class A>
SIM_INLINE bool beats(A x, A a) {
  if constexpr (std::is_integral_v<A>) return mode == FL_SPMM_MIN ? x < a : x > a;
  else return ((mode == FL_SPMM_MIN ? x < a : x > a) | (x != x)) & (a == a);
}
template <int mode, class A>
SIM_INLINE A combine(A a, A x) {
  if constexpr (sums(mode)) return plus(a, x);
  else if constexpr (mode == FL_SPMM_PROD) return times(a, x);
  else return beats<mode>(x, a) ? x : a;
}
template <int mode, class A>
SIM_INLINE A finished(A a, int64_t count) {
  if constexpr (mode != FL_SPMM_MEAN) return a;
  else if constexpr (is_complex<A>) return {a.re / decltype(a.re)(count), a.im / decltype(a.re)(count)};
  else return a / A(count);
}
template <class T>
T read_scalar(const fl_scalar& s) {
  if constexpr (is_complex<T>) return {decltype(T::re)(s.v.f), decltype(T::re)(s.imag)};
  else if constexpr (std::is_integral_v<T>) return T(s.v.i);
  else return narrow<T>(Computed<T>(s.v.f));
}

template <class T>
SIM_INLINE T take(const char* p) {
  T x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
template <class T>
SIM_INLINE void put(char* p, T x) {
  std::memcpy(p, &x, sizeof x);
}

// One row's results `i` … i+W-1.  The accumulators stay in registers: every loop over W is unrolled.
template <class T, int mode, bool weighted, bool contiguous, int W>
SIM_INLINE void block(const SpmmRows& r, int64_t begin, int64_t end, int64_t i, char* out) {
  using A = Computed<T>;
  constexpr bool picks = mode == FL_SPMM_MIN || mode == FL_SPMM_MAX;
  const int64_t step = contiguous ? int64_t(sizeof(T)) : r.dense_step;
  const char* dense = r.dense + i * step;
  const A* values = reinterpret_cast<const A*>(r.values);
  auto row = [&](int64_t j, A* to) {
    const char* p = dense + (r.offsets ? r.offsets[j] : j * r.dense_row);
    if constexpr (is_half<T> && contiguous && W > 1) {
      to_floats(reinterpret_cast<const T*>(p), to, W);
    } else {
      for (int k = 0; k < W; ++k) to[k] = widen(take<T>(p + k * step));
    }
    if constexpr (weighted)
      for (int k = 0; k < W; ++k) to[k] = times(to[k], values[j]);
  };
  A sum[W], x[W];
  int64_t j = begin;
  if constexpr (picks) row(j++, sum);
  else
    for (int k = 0; k < W; ++k) sum[k] = start<mode, A>();
  if constexpr (W == 1 && sums(mode)) {
    // Additions that need not wait for each other.
    A more[3] = {start<mode, A>(), start<mode, A>(), start<mode, A>()};
    for (; j + 4 <= end; j += 4) {
      A y[4];
      for (int u = 0; u < 4; ++u) row(j + u, y + u);
      sum[0] = plus(sum[0], y[0]);
      for (int u = 0; u < 3; ++u) more[u] = plus(more[u], y[u + 1]);
    }
    sum[0] = plus(plus(sum[0], more[0]), plus(more[1], more[2]));
  }
  for (; j < end; ++j) {
    row(j, x);
    for (int k = 0; k < W; ++k) sum[k] = combine<mode>(sum[k], x[k]);
  }
  out += i * r.out_step;
  for (int k = 0; k < W; ++k)
    put(out + k * (contiguous ? int64_t(sizeof(T)) : r.out_step),
        narrow<T>(finished<mode>(sum[k], end - begin)));
}

// The same with the number of the value that won.
template <class T, int mode, bool weighted>
SIM_INLINE void winners(const SpmmRows& r, int64_t begin, int64_t end, int64_t m) {
  using A = Computed<T>;
  const A* values = reinterpret_cast<const A*>(r.values);
  constexpr int64_t W = 16;
  for (int64_t i = 0; i < r.n; i += W) {
    const int64_t w = r.n - i < W ? r.n - i : W;
    A best[W];
    int64_t number[W];
    for (int64_t j = begin; j < end; ++j) {
      const char* p = r.dense + (r.offsets ? r.offsets[j] : j * r.dense_row) + i * r.dense_step;
      for (int64_t k = 0; k < w; ++k) {
        A x = widen(take<T>(p + k * r.dense_step));
        if constexpr (weighted) x = times(x, values[j]);
        const bool wins = j == begin || beats<mode>(x, best[k]);
        best[k] = wins ? x : best[k], number[k] = wins ? j : number[k];
      }
    }
    for (int64_t k = 0; k < w; ++k) {
      put(r.out + m * r.out_row + (i + k) * r.out_step, narrow<T>(best[k]));
      put(r.winner + m * r.winner_row + (i + k) * r.winner_step, number[k]);
    }
  }
}

template <class T, int mode, bool weighted, bool contiguous>
void rows(const SpmmRows& r, int64_t first, int64_t last) {
  // Of small integers no more than of floats: blocks are unrolled.
  constexpr int kVector = SIM_VECTOR_BYTES / (sizeof(Computed<T>) < 4 ? 4 : int(sizeof(Computed<T>)));
  constexpr int kWide = 4 * kVector;
  const T empty = read_scalar<T>(r.empty);
  for (int64_t m = first; m < last; ++m) {
    const int64_t begin = r.begin[m], end = r.begin[m + 1];
    char* out = r.out + m * r.out_row;
    if (begin >= end) {
      for (int64_t i = 0; i < r.n; ++i) put(out + i * r.out_step, empty);
      if (r.winner)
        for (int64_t i = 0; i < r.n; ++i) put(r.winner + m * r.winner_row + i * r.winner_step, int64_t{-1});
      continue;
    }
    if constexpr (mode == FL_SPMM_MIN || mode == FL_SPMM_MAX)
      if (r.winner) {
        winners<T, mode, weighted>(r, begin, end, m);
        continue;
      }
    int64_t i = 0;
    for (; i + kWide <= r.n; i += kWide) block<T, mode, weighted, contiguous, kWide>(r, begin, end, i, out);
    for (; i + kVector <= r.n; i += kVector)
      block<T, mode, weighted, contiguous, kVector>(r, begin, end, i, out);
    for (; i < r.n; ++i) block<T, mode, weighted, contiguous, 1>(r, begin, end, i, out);
  }
}

template <class T, int mode>
void run(const SpmmRows& r, int64_t first, int64_t last) {
  const bool contiguous = r.n == 1 || (r.dense_step == sizeof(T) && r.out_step == sizeof(T));
  if (r.values)
    contiguous ? rows<T, mode, true, true>(r, first, last) : rows<T, mode, true, false>(r, first, last);
  else contiguous ? rows<T, mode, false, true>(r, first, last) : rows<T, mode, false, false>(r, first, last);
}

template <int mode>
SpmmRun run_of(int dtype) {
  if constexpr (mode != FL_SPMM_MEAN) {
    if (dtype == FL_U8) return run<uint8_t, mode>;
    if (dtype == FL_I8) return run<int8_t, mode>;
    if (dtype == FL_I16) return run<int16_t, mode>;
    if (dtype == FL_I32) return run<int32_t, mode>;
    if (dtype == FL_I64) return run<int64_t, mode>;
  }
  if constexpr (mode != FL_SPMM_MIN && mode != FL_SPMM_MAX) {
    if (dtype == FL_C64) return run<Complex<float>, mode>;
    if (dtype == FL_C128) return run<Complex<double>, mode>;
  }
  if (dtype == FL_F16) return run<Half, mode>;
  if (dtype == FL_BF16) return run<BFloat, mode>;
  if (dtype == FL_F32) return run<float, mode>;
  if (dtype == FL_F64) return run<double, mode>;
  return nullptr;
}

}  // namespace

SpmmRun spmm_run(int mode, int dtype) {
  switch (mode) {
    case FL_SPMM_SUM:
      return run_of<FL_SPMM_SUM>(dtype);
    case FL_SPMM_MEAN:
      return run_of<FL_SPMM_MEAN>(dtype);
    case FL_SPMM_MIN:
      return run_of<FL_SPMM_MIN>(dtype);
    case FL_SPMM_MAX:
      return run_of<FL_SPMM_MAX>(dtype);
    case FL_SPMM_PROD:
      return run_of<FL_SPMM_PROD>(dtype);
  }
  return nullptr;
}

}  // namespace sim::SIM_ISA
