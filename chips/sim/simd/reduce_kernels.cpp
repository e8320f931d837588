#include "simd/reduce_kernels.h"

#include <limits>

#include "fl/ops.h"
#include "simd/lanes.h"
#include "simd/extremes.h"
#include "simd/sums.h"

namespace sim::SIM_ISA {
namespace {

// ------------------------------------------------------------ one value a carrier
// An operation is: A, what is read; C, what carries; identity; apply, which also
// takes vectors of C; and taken, if a value is not taken as it is read.
template <class A_, class C_>
struct Sum {
  using A = A_;
  using C = C_;
  static constexpr bool sums = true;
  static constexpr C identity = 0;
  template <class V>
  static SIM_INLINE V apply(V a, V b) {
    return a + b;
  }
};
template <class A, class C>
struct SquareSum : Sum<A, C> {
  template <class V>
  static SIM_INLINE V taken(V x) {
    return x * x;
  }
};
template <class A_, class C_>
struct Product {
  using A = A_;
  using C = C_;
  static constexpr C identity = 1;
  template <class V>
  static SIM_INLINE V apply(V a, V b) {
    return a * b;
  }
};
template <class T>
constexpr T lowest = std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                                          : std::numeric_limits<T>::lowest();
template <class T>
constexpr T highest =
    std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
// A NaN replaces what is there, and nothing that is not NaN replaces it.
template <class T>
struct Max {
  using A = T;
  using C = T;
  static constexpr C identity = lowest<T>;
  template <class V>
  static SIM_INLINE V apply(V a, V b) {
    return ((b > a) | (b != b)) ? b : a;
  }
  template <class V>
  static SIM_INLINE V of_numbers(V a, V b) {
    return larger(a, b);
  }
  static SIM_INLINE bool wins(T b, T a) { return (b > a) | ((b != b) & (a == a)); }
};
template <class T>
struct Min {
  using A = T;
  using C = T;
  static constexpr C identity = highest<T>;
  template <class V>
  static SIM_INLINE V apply(V a, V b) {
    return ((b < a) | (b != b)) ? b : a;
  }
  template <class V>
  static SIM_INLINE V of_numbers(V a, V b) {
    return smaller(a, b);
  }
  static SIM_INLINE bool wins(T b, T a) { return (b < a) | ((b != b) & (a == a)); }
};
// BOOL registers hold 0 and 1.
struct Any {
  using A = uint8_t;
  using C = uint8_t;
  static constexpr C identity = 0;
  template <class V>
  static SIM_INLINE V apply(V a, V b) {
    return a | b;
  }
  static SIM_INLINE bool wins(uint8_t b, uint8_t a) { return b > a; }
};
struct All {
  using A = uint8_t;
  using C = uint8_t;
  static constexpr C identity = 1;
  template <class V>
  static SIM_INLINE V apply(V a, V b) {
    return a & b;
  }
  static SIM_INLINE bool wins(uint8_t b, uint8_t a) { return b < a; }
};

template <class Op, class V>
SIM_INLINE V take_value(V x) {
  if constexpr (requires { Op::taken(x); }) return Op::taken(x);
  else return x;
}
// Floats are added as floats first, a few at a time.
template <class Op>
constexpr bool sums_floats = requires { Op::sums; } && std::is_same_v<typename Op::A, float>;

// The extreme of whole vectors; NaN if one is among them.
template <class Op, class T>
SIM_INLINE T extreme_of_vectors(const T* p, int64_t n) {
  constexpr int L = lanes<T>;
  Vec<T> best[4];
  NanSeen<T> nan;
  for (auto& b : best) b = splat<T>(Op::identity);
  for (; n >= 4 * L; n -= 4 * L, p += 4 * L) {
    const Vec<T> a = load(p), b = load(p + L), c = load(p + 2 * L), d = load(p + 3 * L);
    nan.see(a, b), nan.see(c, d);
    best[0] = Op::of_numbers(best[0], a), best[1] = Op::of_numbers(best[1], b);
    best[2] = Op::of_numbers(best[2], c), best[3] = Op::of_numbers(best[3], d);
  }
  for (; n >= L; n -= L, p += L) {
    nan.see(load(p), load(p));
    best[0] = Op::of_numbers(best[0], load(p));
  }
  if (nan.any()) return std::numeric_limits<T>::quiet_NaN();
  const Vec<T> v = Op::of_numbers(Op::of_numbers(best[0], best[1]), Op::of_numbers(best[2], best[3]));
  T result = Op::identity;
  for (int i = 0; i < L; ++i) result = Op::apply(result, T(v[i]));
  return result;
}

template <class Op>
typename Op::C fold_block(const typename Op::A* p, int64_t n) {
  using A = typename Op::A;
  using C = typename Op::C;
  C result = Op::identity;
  if constexpr (sizeof(A) == sizeof(C)) {
    constexpr int L = lanes<C>;
    const C* q = reinterpret_cast<const C*>(p);
    if constexpr (std::is_floating_point_v<C> && requires(Vec<C> v) { Op::of_numbers(v, v); }) {
      const int64_t whole = n / L * L;
      if (whole) result = extreme_of_vectors<Op>(q, whole);
      q += whole, n -= whole;
    } else if (n >= L) {
      Vec<C> a = splat<C>(Op::identity), b = a, c = a, d = a;
      for (; n >= 4 * L; n -= 4 * L, q += 4 * L) {
        a = Op::apply(a, take_value<Op>(load(q)));
        b = Op::apply(b, take_value<Op>(load(q + L)));
        c = Op::apply(c, take_value<Op>(load(q + 2 * L)));
        d = Op::apply(d, take_value<Op>(load(q + 3 * L)));
      }
      for (; n >= L; n -= L, q += L) a = Op::apply(a, take_value<Op>(load(q)));
      a = Op::apply(Op::apply(a, b), Op::apply(c, d));
      for (int i = 0; i < L; ++i) result = Op::apply(result, C(a[i]));
    }
    for (int64_t i = 0; i < n; ++i) result = Op::apply(result, take_value<Op>(q[i]));
  } else {
    C lane[8];
    for (C& x : lane) x = Op::identity;
    for (; n >= 8; n -= 8, p += 8)
      for (int i = 0; i < 8; ++i) lane[i] = Op::apply(lane[i], C(take_value<Op>(p[i])));
    for (int i = 0; i < 8; ++i) result = Op::apply(result, lane[i]);
    for (int64_t i = 0; i < n; ++i) result = Op::apply(result, C(take_value<Op>(p[i])));
  }
  return result;
}

template <class Op>
struct Plain {
  using A = typename Op::A;
  using C = typename Op::C;
  static void init(void* c0, void*, int64_t n, int64_t) {
    C* c = static_cast<C*>(c0);
    for (int64_t i = 0; i < n; ++i) c[i] = Op::identity;
  }
  static void fold(const void* values, int64_t n, int64_t, int64_t, void* c0, void*) {
    C& c = *static_cast<C*>(c0);
    const A* p = static_cast<const A*>(values);
    if constexpr (sums_floats<Op>)
      c += sum_over<float>(
          n, [&](int64_t i) { return take_value<Op>(load(p + i)); },
          [&](int64_t i) { return take_value<Op>(p[i]); });
    else c = Op::apply(c, fold_block<Op>(p, n));
  }
  static void rows(const void* const* rows, int n_rows, int64_t n, int64_t, int64_t, void* c0, void*) {
    C* __restrict c = static_cast<C*>(c0);
    if (n_rows == 8) {
      const A* __restrict r[8];
      for (int k = 0; k < 8; ++k) r[k] = static_cast<const A*>(rows[k]);
      // The first additions in A: for F32 three roundings, then double.
      using First = std::conditional_t<sums_floats<Op>, float, C>;
      const auto at = [&](int k, int64_t j) { return take_value<Op>(First(r[k][j])); };
#pragma GCC ivdep
      for (int64_t j = 0; j < n; ++j) {
        First s = Op::apply(Op::apply(Op::apply(at(0, j), at(1, j)), Op::apply(at(2, j), at(3, j))),
                            Op::apply(Op::apply(at(4, j), at(5, j)), Op::apply(at(6, j), at(7, j))));
        c[j] = Op::apply(c[j], C(s));
      }
      return;
    }
    for (int k = 0; k < n_rows; ++k) {
      const A* __restrict r = static_cast<const A*>(rows[k]);
#pragma GCC ivdep
      for (int64_t j = 0; j < n; ++j) c[j] = Op::apply(c[j], C(take_value<Op>(r[j])));
    }
  }
  static void combine(void* c0, void*, int64_t, const void* d0, const void*, int64_t, int64_t n) {
    C* c = static_cast<C*>(c0);
    const C* d = static_cast<const C*>(d0);
    for (int64_t j = 0; j < n; ++j) c[j] = Op::apply(c[j], d[j]);
  }
  static void finish(const void* c0, const void*, int64_t n, void* v0, void*) {
    const C* c = static_cast<const C*>(c0);
    A* v = static_cast<A*>(v0);
    for (int64_t j = 0; j < n; ++j) v[j] = static_cast<A>(c[j]);
  }
  static constexpr ReduceKernels table{sizeof(A), {sizeof(C), 0}, 1, init, fold, rows, combine, finish};
};

// --------------------------------------------------------- with the place of the winner
template <class Op>
struct Indexed {
  using A = typename Op::A;
  static void init(void* c0, void* c1, int64_t n, int64_t first) {
    A* c = static_cast<A*>(c0);
    int64_t* at = static_cast<int64_t*>(c1);
    for (int64_t i = 0; i < n; ++i) c[i] = Op::identity, at[i] = first;
  }
  // First which value wins, in vectors, then where it is: most blocks need no second look.
  static void fold(const void* values, int64_t n, int64_t first, int64_t, void* c0, void* c1) {
    const A* p = static_cast<const A*>(values);
    A& c = *static_cast<A*>(c0);
    A best = fold_block<Op>(p, n);
    if (!Op::wins(best, c)) return;
    c = best;
    int64_t i = 0;
    if (best != best)
      while (p[i] == p[i]) ++i;
    else
      while (p[i] != best) ++i;
    *static_cast<int64_t*>(c1) = first + i;
  }
  static void rows(const void* const* rows, int n_rows, int64_t n, int64_t first, int64_t, void* c0,
                   void* c1) {
    A* __restrict c = static_cast<A*>(c0);
    int64_t* __restrict at = static_cast<int64_t*>(c1);
    for (int k = 0; k < n_rows; ++k) {
      const A* __restrict r = static_cast<const A*>(rows[k]);
      int64_t number = first + k;
#pragma GCC ivdep
      for (int64_t j = 0; j < n; ++j) {
        bool wins = Op::wins(r[j], c[j]);
        c[j] = wins ? r[j] : c[j];
        at[j] = wins ? number : at[j];
      }
    }
  }
  static void combine(void* c0, void* c1, int64_t, const void* d0, const void* d1, int64_t, int64_t n) {
    A* c = static_cast<A*>(c0);
    int64_t* at = static_cast<int64_t*>(c1);
    const A* d = static_cast<const A*>(d0);
    for (int64_t j = 0; j < n; ++j)
      if (Op::wins(d[j], c[j])) c[j] = d[j], at[j] = static_cast<const int64_t*>(d1)[j];
  }
  static void finish(const void* c0, const void*, int64_t n, void* v0, void*) {
    std::memcpy(v0, c0, size_t(n) * sizeof(A));
  }
  static constexpr ReduceKernels table{sizeof(A), {sizeof(A), sizeof(int64_t)}, 1, init, fold, rows, combine,
                                       finish};
};

// --------------------------------------------------------------------- complex
template <class T>
struct Complex {
  T re, im;
};
template <bool product, class T>
struct ComplexReduce {
  using A = Complex<T>;
  using C = Complex<double>;
  static SIM_INLINE void apply(C& c, double re, double im) {
    if constexpr (product) {
      double r = c.re * re - c.im * im;
      c.im = c.re * im + c.im * re;
      c.re = r;
    } else {
      c.re += re, c.im += im;
    }
  }
  static constexpr C identity{product ? 1.0 : 0.0, 0.0};
  static void init(void* c0, void*, int64_t n, int64_t) {
    for (int64_t i = 0; i < n; ++i) static_cast<C*>(c0)[i] = identity;
  }
  static void fold(const void* values, int64_t n, int64_t, int64_t, void* c0, void*) {
    const A* p = static_cast<const A*>(values);
    C lane[4] = {identity, identity, identity, identity};
    for (; n >= 4; n -= 4, p += 4)
      for (int i = 0; i < 4; ++i) apply(lane[i], p[i].re, p[i].im);
    for (int64_t i = 0; i < n; ++i) apply(lane[i], p[i].re, p[i].im);
    for (const C& x : lane) apply(*static_cast<C*>(c0), x.re, x.im);
  }
  static void rows(const void* const* rows, int n_rows, int64_t n, int64_t, int64_t, void* c0, void*) {
    C* __restrict c = static_cast<C*>(c0);
    for (int k = 0; k < n_rows; ++k) {
      const A* __restrict r = static_cast<const A*>(rows[k]);
      for (int64_t j = 0; j < n; ++j) apply(c[j], r[j].re, r[j].im);
    }
  }
  static void combine(void* c0, void*, int64_t, const void* d0, const void*, int64_t, int64_t n) {
    const C* d = static_cast<const C*>(d0);
    for (int64_t j = 0; j < n; ++j) apply(static_cast<C*>(c0)[j], d[j].re, d[j].im);
  }
  static void finish(const void* c0, const void*, int64_t n, void* v0, void*) {
    const C* c = static_cast<const C*>(c0);
    for (int64_t j = 0; j < n; ++j) static_cast<A*>(v0)[j] = {T(c[j].re), T(c[j].im)};
  }
  static constexpr ReduceKernels table{sizeof(A), {sizeof(C), 0}, 1, init, fold, rows, combine, finish};
};

// --------------------------------------------------------------------- moments
template <class T>
struct Moments {
  static void init(void* c0, void* c1, int64_t n, int64_t) {
    std::memset(c0, 0, size_t(n) * sizeof(double));
    std::memset(c1, 0, size_t(n) * sizeof(double));
  }
  static void fold(const void* values, int64_t n, int64_t, int64_t count, void* c0, void* c1) {
    const T* p = static_cast<const T*>(values);
    double m = sum(p, n) / double(n), m2 = squared_differences(p, n, m);
    merge_moments(*static_cast<double*>(c0), *static_cast<double*>(c1), double(count), m, m2, double(n));
  }
  static void rows(const void* const* rows, int n_rows, int64_t n, int64_t, int64_t count, void* c0,
                   void* c1) {
    moment_rows<T>(reinterpret_cast<const T* const*>(rows), n_rows, n, count, static_cast<double*>(c0),
                   static_cast<double*>(c1));
  }
  static void combine(void* c0, void* c1, int64_t count, const void* d0, const void* d1, int64_t d_count,
                      int64_t n) {
    for (int64_t j = 0; j < n; ++j)
      merge_moments(static_cast<double*>(c0)[j], static_cast<double*>(c1)[j], double(count),
                    static_cast<const double*>(d0)[j], static_cast<const double*>(d1)[j], double(d_count));
  }
  static void finish(const void* c0, const void* c1, int64_t n, void* v0, void* v1) {
    for (int64_t j = 0; j < n; ++j) {
      static_cast<T*>(v0)[j] = T(static_cast<const double*>(c0)[j]);
      static_cast<T*>(v1)[j] = T(static_cast<const double*>(c1)[j]);
    }
  }
  static constexpr ReduceKernels table{sizeof(T), {8, 8}, 2, init, fold, rows, combine, finish};
};

struct Row {
  int kind, accumulate;
  bool indexed;
  const ReduceKernels* kernels;
};
// Integers are summed unsigned: they wrap.
const Row kTable[] = {
    {FL_REDUCE_SUM, FL_I32, false, &Plain<Sum<uint32_t, uint32_t>>::table},
    {FL_REDUCE_SUM, FL_I64, false, &Plain<Sum<uint64_t, uint64_t>>::table},
    {FL_REDUCE_SUM, FL_F32, false, &Plain<Sum<float, double>>::table},
    {FL_REDUCE_SUM, FL_F64, false, &Plain<Sum<double, double>>::table},
    {FL_REDUCE_SUM, FL_C64, false, &ComplexReduce<false, float>::table},
    {FL_REDUCE_SUM, FL_C128, false, &ComplexReduce<false, double>::table},
    {kSumOfSquares, FL_F32, false, &Plain<SquareSum<float, double>>::table},
    {kSumOfSquares, FL_F64, false, &Plain<SquareSum<double, double>>::table},
    {FL_REDUCE_PROD, FL_I32, false, &Plain<Product<uint32_t, uint32_t>>::table},
    {FL_REDUCE_PROD, FL_I64, false, &Plain<Product<uint64_t, uint64_t>>::table},
    {FL_REDUCE_PROD, FL_F32, false, &Plain<Product<float, double>>::table},
    {FL_REDUCE_PROD, FL_F64, false, &Plain<Product<double, double>>::table},
    {FL_REDUCE_PROD, FL_C64, false, &ComplexReduce<true, float>::table},
    {FL_REDUCE_PROD, FL_C128, false, &ComplexReduce<true, double>::table},
    {FL_REDUCE_MIN, FL_BOOL, false, &Plain<All>::table},
    {FL_REDUCE_MIN, FL_I32, false, &Plain<Min<int32_t>>::table},
    {FL_REDUCE_MIN, FL_I64, false, &Plain<Min<int64_t>>::table},
    {FL_REDUCE_MIN, FL_F32, false, &Plain<Min<float>>::table},
    {FL_REDUCE_MIN, FL_F64, false, &Plain<Min<double>>::table},
    {FL_REDUCE_MIN, FL_BOOL, true, &Indexed<All>::table},
    {FL_REDUCE_MIN, FL_I32, true, &Indexed<Min<int32_t>>::table},
    {FL_REDUCE_MIN, FL_I64, true, &Indexed<Min<int64_t>>::table},
    {FL_REDUCE_MIN, FL_F32, true, &Indexed<Min<float>>::table},
    {FL_REDUCE_MIN, FL_F64, true, &Indexed<Min<double>>::table},
    {FL_REDUCE_MAX, FL_BOOL, false, &Plain<Any>::table},
    {FL_REDUCE_MAX, FL_I32, false, &Plain<Max<int32_t>>::table},
    {FL_REDUCE_MAX, FL_I64, false, &Plain<Max<int64_t>>::table},
    {FL_REDUCE_MAX, FL_F32, false, &Plain<Max<float>>::table},
    {FL_REDUCE_MAX, FL_F64, false, &Plain<Max<double>>::table},
    {FL_REDUCE_MAX, FL_BOOL, true, &Indexed<Any>::table},
    {FL_REDUCE_MAX, FL_I32, true, &Indexed<Max<int32_t>>::table},
    {FL_REDUCE_MAX, FL_I64, true, &Indexed<Max<int64_t>>::table},
    {FL_REDUCE_MAX, FL_F32, true, &Indexed<Max<float>>::table},
    {FL_REDUCE_MAX, FL_F64, true, &Indexed<Max<double>>::table},
    {FL_REDUCE_ALL, FL_BOOL, false, &Plain<All>::table},
    {FL_REDUCE_ANY, FL_BOOL, false, &Plain<Any>::table},
    {FL_REDUCE_MOMENTS, FL_F32, false, &Moments<float>::table},
    {FL_REDUCE_MOMENTS, FL_F64, false, &Moments<double>::table},
};

}  // namespace

const ReduceKernels* reduce_kernels(int kind, int accumulate, bool indexed) {
  for (const Row& row : kTable)
    if (row.kind == kind && row.accumulate == accumulate && row.indexed == indexed) return row.kernels;
  return nullptr;
}

}  // namespace sim::SIM_ISA
