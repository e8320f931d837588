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

// X: one number A, or a vector of them.  Integers wrap around.
template <class A, class X, class F>
SIM_INLINE X wrapping(X a, X b, F&& f) {
  if constexpr (!std::is_integral_v<A>) return f(a, b);
  else if constexpr (std::is_same_v<A, X>) return A(f(uint64_t(a), uint64_t(b)));
  else return X(f(Vec<std::make_unsigned_t<A>>(a), Vec<std::make_unsigned_t<A>>(b)));
}
template <class A, class X>
SIM_INLINE X times(X a, X b) {
  if constexpr (is_complex<A>) return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  else return wrapping<A>(a, b, [](auto u, auto v) { return u * v; });
}
template <class A, class X>
SIM_INLINE X plus(X a, X b) {
  if constexpr (is_complex<A>) return {a.re + b.re, a.im + b.im};
  else return wrapping<A>(a, b, [](auto u, auto v) { return u + v; });
}

// Whether x takes the place of a: NaN does, and then stays.
template <int mode, class A, class X>
SIM_INLINE auto beats(X x, X a) {
  const auto better = mode == FL_SPMM_MIN ? x < a : x > a;
  if constexpr (std::is_integral_v<A>) return better;
  else return (better | (x != x)) & (a == a);
}
template <int mode, class A, class X>
SIM_INLINE X combine(X a, X x) {
  if constexpr (mode == FL_SPMM_SUM) return plus<A>(a, x);
  else if constexpr (mode == FL_SPMM_PROD) return times<A>(a, x);
  else return beats<mode, A>(x, a) ? x : a;
}
template <class A, class X>
SIM_INLINE X divided(X a, int64_t count) {
  if constexpr (is_complex<A>) return {a.re / decltype(a.re)(count), a.im / decltype(a.re)(count)};
  else return a / A(count);
}
template <class T>
T read_scalar(const fl_scalar& s) {
  if constexpr (is_complex<T>) return {decltype(T::re)(s.v.f), decltype(T::re)(s.imag)};
  else if constexpr (std::is_integral_v<T>) return T(s.v.i);
  else return narrow<T>(Computed<T>(s.v.f));
}

// Whether values have weights, where that is known when it is compiled: only sums are made for both, others
// ask.
enum class Weights : uint8_t { none, all, maybe };

// One row's results `i` … i + N × lanes - 1.  The accumulators stay in registers: loops over N are unrolled.
template <class T, int mode, Weights weights, bool contiguous, class X, int N>
SIM_INLINE void block(const SpmmRows& r, int64_t begin, int64_t end, int64_t i, char* out) {
  using A = Computed<T>;
  constexpr int L = sizeof(X) / sizeof(A);
  const int64_t step = contiguous ? int64_t(sizeof(T)) : r.dense_step,
                out_step = contiguous ? int64_t(sizeof(T)) : r.out_step;
  const char* dense = r.dense + i * step;
  const A* values = reinterpret_cast<const A*>(r.values);
  // The j-th value's numbers.
  auto numbers = [&](int64_t j, X* to) {
    const char* p = dense + (r.offsets ? r.offsets[j] : j * r.dense_row);
#pragma GCC unroll 8
    for (int u = 0; u < N; ++u) {
      if constexpr (L == 1) {
        to[u] = widen(take<T>(p + u * step));
      } else if constexpr (contiguous && !is_half<T>) {
        std::memcpy(to + u, p + u * sizeof(X), sizeof(X));
      } else {
        static_assert(contiguous);  // others have no vectors
        A a[L];
        to_floats(reinterpret_cast<const T*>(p) + u * L, a, L);
        std::memcpy(to + u, a, sizeof(X));
      }
      if (weights == Weights::all || (weights == Weights::maybe && values)) {
        if constexpr (L > 1) to[u] = times<A>(to[u], splat<A>(values[j]));
        else to[u] = times<A>(to[u], values[j]);
      }
    }
  };
  X sum[N] = {}, x[N];
  int64_t j = begin;
  if constexpr (mode != FL_SPMM_SUM) numbers(j++, sum);
  if constexpr (N == 1 && L == 1 && mode == FL_SPMM_SUM) {
    // Additions that need not wait for each other.
    X more[3] = {};
    for (; j + 4 <= end; j += 4) {
      X y[4];
      for (int u = 0; u < 4; ++u) numbers(j + u, y + u);
      sum[0] = plus<A>(sum[0], y[0]);
      for (int u = 0; u < 3; ++u) more[u] = plus<A>(more[u], y[u + 1]);
    }
    sum[0] = plus<A>(plus<A>(sum[0], more[0]), plus<A>(more[1], more[2]));
  }
  for (; j < end; ++j) {
    numbers(j, x);
#pragma GCC unroll 8
    for (int u = 0; u < N; ++u) sum[u] = combine<mode, A>(sum[u], x[u]);
  }
  out += i * out_step;
  for (int u = 0; u < N; ++u) {
    if constexpr (mode == FL_SPMM_SUM && !std::is_integral_v<A>)
      if (r.mean) sum[u] = divided<A>(sum[u], end - begin);
    if constexpr (contiguous && !is_half<T>) {
      std::memcpy(out + u * sizeof(X), sum + u, sizeof(X));
    } else if constexpr (L > 1) {
      A a[L];
      std::memcpy(a, sum + u, sizeof(X));
      from_floats(a, reinterpret_cast<T*>(out) + u * L, L);
    } else {
      put(out + u * out_step, narrow<T>(sum[u]));
    }
  }
}

// The same with the number of the value that won.
template <class T, int mode>
void winners(const SpmmRows& r, int64_t begin, int64_t end, int64_t m) {
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
        if (values) x = times<A>(x, values[j]);
        const bool wins = j == begin || beats<mode, A>(x, best[k]);
        best[k] = wins ? x : best[k], number[k] = wins ? j : number[k];
      }
    }
    for (int64_t k = 0; k < w; ++k) {
      put(r.out + m * r.out_row + (i + k) * r.out_step, narrow<T>(best[k]));
      put(r.winner + m * r.winner_row + (i + k) * r.winner_step, number[k]);
    }
  }
}

// A block's accumulators: vectors, or complex numbers one by one.
template <class A, bool vectors>
struct Accumulators {
  using X = A;
  static constexpr int count = 8;
};
template <class A>
struct Accumulators<A, true> {
  using X = Vec<A>;
  static constexpr int count = 4;
};

template <class T, int mode, Weights weights, bool contiguous>
void rows(const SpmmRows& r, int64_t first, int64_t last) {
  using A = Computed<T>;
  using Wide = Accumulators<A, contiguous && !is_complex<A>>;
  using X = typename Wide::X;
  constexpr int64_t kVector = sizeof(X) / sizeof(A), kWide = kVector * Wide::count;
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
        winners<T, mode>(r, begin, end, m);
        continue;
      }
    int64_t i = 0;
    for (; i + kWide <= r.n; i += kWide)
      block<T, mode, weights, contiguous, X, Wide::count>(r, begin, end, i, out);
    if constexpr (kVector > 1)
      for (; i + kVector <= r.n; i += kVector)
        block<T, mode, weights, contiguous, X, 1>(r, begin, end, i, out);
    for (; i < r.n; ++i) block<T, mode, weights, contiguous, A, 1>(r, begin, end, i, out);
  }
}

template <class T, int mode, Weights weights>
void run_weighted(const SpmmRows& r, int64_t first, int64_t last) {
  const bool contiguous = r.n == 1 || (r.dense_step == sizeof(T) && r.out_step == sizeof(T));
  contiguous ? rows<T, mode, weights, true>(r, first, last) : rows<T, mode, weights, false>(r, first, last);
}
template <class T, int mode>
void run(const SpmmRows& r, int64_t first, int64_t last) {
  if constexpr (mode != FL_SPMM_SUM) run_weighted<T, mode, Weights::maybe>(r, first, last);
  else if (r.values) run_weighted<T, mode, Weights::all>(r, first, last);
  else run_weighted<T, mode, Weights::none>(r, first, last);
}

template <int mode>
SpmmRun run_of(int dtype) {
  if constexpr (mode != FL_SPMM_MIN && mode != FL_SPMM_MAX) {
    if (dtype == FL_C64) return run<Complex<float>, mode>;
    if (dtype == FL_C128) return run<Complex<double>, mode>;
  }
  if (dtype == FL_U8) return run<uint8_t, mode>;
  if (dtype == FL_I8) return run<int8_t, mode>;
  if (dtype == FL_I16) return run<int16_t, mode>;
  if (dtype == FL_I32) return run<int32_t, mode>;
  if (dtype == FL_I64) return run<int64_t, mode>;
  if (dtype == FL_F16) return run<Half, mode>;
  if (dtype == FL_BF16) return run<BFloat, mode>;
  if (dtype == FL_F32) return run<float, mode>;
  if (dtype == FL_F64) return run<double, mode>;
  return nullptr;
}

}  // namespace

SpmmRun spmm_run(int mode, int dtype) {
  const bool integer = dtype >= FL_U8 && dtype <= FL_I64;
  if (mode == FL_SPMM_MEAN) return integer ? nullptr : run_of<FL_SPMM_SUM>(dtype);
  return with_constant<FL_SPMM_SUM, FL_SPMM_PROD, FL_SPMM_MIN, FL_SPMM_MAX>(
      mode, SpmmRun(nullptr), [&](auto m) { return run_of<m>(dtype); });
}

}  // namespace sim::SIM_ISA
