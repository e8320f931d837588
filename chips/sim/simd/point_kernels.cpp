#include "simd/point_kernels.h"

#include "simd/float8.h"
#include "simd/half.h"

namespace sim::SIM_ISA {
namespace {

VectorMath vector_math;

// -------------------------------------------------------------- loop shapes
// Operands may be the output itself, never a shifted part of it.

template <class T, class R, class F>
void unary(int64_t n, const void* a_, const void*, const void*, void* out_, uint32_t*) {
  auto* a = static_cast<const T*>(a_);
  auto* out = static_cast<R*>(out_);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = F::of(a[i]);
}
template <class T, class R, class F>
void binary(int64_t n, const void* a_, const void* b_, const void*, void* out_, uint32_t*) {
  auto* a = static_cast<const T*>(a_);
  auto* b = static_cast<const T*>(b_);
  auto* out = static_cast<R*>(out_);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = F::of(a[i], b[i]);
}
template <class T>
void select(int64_t n, const void* a_, const void* b_, const void* c_, void* out_, uint32_t*) {
  auto* a = static_cast<const uint8_t*>(a_);
  auto* b = static_cast<const T*>(b_);
  auto* c = static_cast<const T*>(c_);
  auto* out = static_cast<T*>(out_);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    T yes = b[i], no = c[i];
    out[i] = a[i] ? yes : no;
  }
}
template <class T>
void multiply_add(int64_t n, const void* a_, const void* b_, const void* c_, void* out_, uint32_t*) {
  auto* a = static_cast<const T*>(a_);
  auto* b = static_cast<const T*>(b_);
  auto* c = static_cast<const T*>(c_);
  auto* out = static_cast<T*>(out_);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = fused(a[i], b[i], c[i]);
}
#define SIM_F1(name, expression)     \
  struct name {                      \
    template <class T>               \
    static SIM_INLINE auto of(T a) { \
      return expression;             \
    }                                \
  };
#define SIM_F2(name, expression)          \
  struct name {                           \
    template <class T>                    \
    static SIM_INLINE auto of(T a, T b) { \
      return expression;                  \
    }                                     \
  };

template <class T>
struct UnsignedOf;
template <>
struct UnsignedOf<int32_t> {
  using type = uint32_t;
};
template <>
struct UnsignedOf<int64_t> {
  using type = uint64_t;
};
template <class T>
using U = typename UnsignedOf<T>::type;

// ------------------------------------------------------------------ any type
SIM_F2(Equal, a == b)
SIM_F2(NotEqual, a != b)
SIM_F2(Less, a < b)
SIM_F2(LessEqual, a <= b)
SIM_F2(Greater, a > b)
SIM_F2(GreaterEqual, a >= b)
SIM_F2(BitAnd, T(a& b))
SIM_F2(BitOr, T(a | b))
SIM_F2(BitXor, T(a ^ b))
SIM_F1(Same, a)

// ------------------------------------------------------------------ integers
SIM_F2(WrapAdd, T(U<T>(a) + U<T>(b)))
SIM_F2(WrapSub, T(U<T>(a) - U<T>(b)))
SIM_F2(WrapMul, T(U<T>(a) * U<T>(b)))
SIM_F1(WrapNeg, T(U<T>(0) - U<T>(a)))
SIM_F1(WrapAbs, a < 0 ? T(U<T>(0) - U<T>(a)) : a)
SIM_F1(Sign, T(T(a > 0) - T(a < 0)))
SIM_F1(BitNot, T(~a))
SIM_F2(IntMax, a > b ? a : b)
SIM_F2(IntMin, a < b ? a : b)
// b == -1 apart: the lowest number has no positive.
struct IntDivTrunc {
  static constexpr bool kQuotient = true, kFloor = false;
  template <class T>
  static SIM_INLINE T of(T a, T b) {
    return b == T(-1) ? T(U<T>(0) - U<T>(a)) : T(a / b);
  }
};
struct IntRemTrunc {
  static constexpr bool kQuotient = false, kFloor = false;
  template <class T>
  static SIM_INLINE T of(T a, T b) {
    return b == T(-1) ? T(0) : T(a % b);
  }
};
struct IntDivFloor {
  static constexpr bool kQuotient = true, kFloor = true;
  template <class T>
  static SIM_INLINE T of(T a, T b) {
    if (b == T(-1)) return T(U<T>(0) - U<T>(a));
    T quotient = a / b, rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? quotient - 1 : quotient;
  }
};
struct IntRemFloor {
  static constexpr bool kQuotient = false, kFloor = true;
  template <class T>
  static SIM_INLINE T of(T a, T b) {
    if (b == T(-1)) return 0;
    T rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  }
};
// Numbers below 2^51 divide as doubles, several at a time, exactly: the rounded quotient is less than a
// quarter off, the integer next to it one at most, and the remainder, of which no bit is lost, tells. 1.5 ×
// 2^52 plus an integer has that integer in its last bits.
constexpr double kIntegers = 0x1.8p52;
constexpr int64_t kIntegerBits = 0x4338000000000000, kExact = int64_t(1) << 51;
template <class F>
SIM_INLINE int64_t divide_exact(int64_t a, int64_t b) {
  const double x = bit_cast<double>(a + kIntegerBits) - kIntegers;
  const double y = bit_cast<double>(b + kIntegerBits) - kIntegers;
  double quotient = (x / y + kIntegers) - kIntegers;
  double rest = x - quotient * y;
  // The remainder's sign is to be the divisor's when flooring, else the dividend's.
  double step = rest * (F::kFloor ? y : x) < 0 ? 1.0 : 0.0;
  if (!F::kFloor) step = x * y < 0 ? -step : step;
  quotient -= step, rest += step * y;
  return bit_cast<int64_t>((F::kQuotient ? quotient : rest) + kIntegers) - kIntegerBits;
}
// A zero divisor is reported, and divides as 1.
template <class T, class F>
void divide(int64_t n, const void* a_, const void* b_, const void*, void* out_, uint32_t* faults) {
  auto* a = static_cast<const T*>(a_);
  auto* b = static_cast<const T*>(b_);
  auto* out = static_cast<T*>(out_);
  constexpr int64_t kRun = 512;
  for (int64_t begin = 0; begin < n; begin += kRun) {
    const int64_t end = n - begin < kRun ? n : begin + kRun;
    U<T> wide = 0, zero = 0;
    for (int64_t i = begin; i < end; ++i) {
      if constexpr (sizeof(T) == 8) wide |= (U<T>(a[i]) + U<T>(kExact)) | (U<T>(b[i]) + U<T>(kExact));
      zero |= U<T>(b[i] == 0);
    }
    if (zero) *faults |= kDivisionByZero;
    if (sizeof(T) == 8 && wide >= U<T>(2 * kExact)) {
      for (int64_t i = begin; i < end; ++i) out[i] = F::of(a[i], b[i] == 0 ? T(1) : b[i]);
    } else {
#pragma GCC ivdep
      for (int64_t i = begin; i < end; ++i)
        out[i] = T(divide_exact<F>(int64_t(a[i]), b[i] == 0 ? int64_t(1) : int64_t(b[i])));
    }
  }
}
struct IntPow {
  template <class T>
  static SIM_INLINE T of(T a, T b) {
    if (b < 0) return a == 1 ? T(1) : a == T(-1) ? ((b & 1) ? T(-1) : T(1)) : T(0);
    U<T> result = 1, base = U<T>(a);
    for (U<T> left = U<T>(b); left; left >>= 1, base *= base)
      if (left & 1) result *= base;
    return T(result);
  }
};
template <class T>
constexpr int kWidth = int(sizeof(T)) * 8;
SIM_F2(ShiftLeft, U<T>(b) >= U<T>(kWidth<T>) ? T(0) : T(U<T>(a) << (b & (kWidth<T> - 1))))
SIM_F2(ShiftRight, T(a >> (U<T>(b) >= U<T>(kWidth<T>) ? T(kWidth<T> - 1) : b)))
struct Gcd {
  template <class T>
  static SIM_INLINE T of(T a, T b) {
    U<T> x = a < 0 ? U<T>(0) - U<T>(a) : U<T>(a), y = b < 0 ? U<T>(0) - U<T>(b) : U<T>(b);
    while (y) {
      U<T> rest = x % y;
      x = y, y = rest;
    }
    return T(x);
  }
};

// ------------------------------------------------------------------ booleans
SIM_F2(BoolPow, T(a | (b ^ 1)))
SIM_F1(BoolNot, T(a ^ 1))

// -------------------------------------------------------------------- floats
SIM_INLINE float fmod_of(float a, float b) { return __builtin_fmodf(a, b); }
SIM_INLINE double fmod_of(double a, double b) { return __builtin_fmod(a, b); }
SIM_INLINE float floor_of(float a) { return __builtin_floorf(a); }
SIM_INLINE double floor_of(double a) { return __builtin_floor(a); }
SIM_INLINE float ceil_of(float a) { return __builtin_ceilf(a); }
SIM_INLINE double ceil_of(double a) { return __builtin_ceil(a); }
SIM_INLINE float trunc_of(float a) { return __builtin_truncf(a); }
SIM_INLINE double trunc_of(double a) { return __builtin_trunc(a); }
SIM_INLINE float round_of(float a) { return __builtin_rintf(a); }
SIM_INLINE double round_of(double a) { return __builtin_rint(a); }
SIM_INLINE float sqrt_of(float a) { return __builtin_sqrtf(a); }
SIM_INLINE double sqrt_of(double a) { return __builtin_sqrt(a); }
SIM_INLINE float abs_of(float a) { return __builtin_fabsf(a); }
SIM_INLINE double abs_of(double a) { return __builtin_fabs(a); }
SIM_INLINE float copysign_of(float a, float b) { return __builtin_copysignf(a, b); }
SIM_INLINE double copysign_of(double a, double b) { return __builtin_copysign(a, b); }
SIM_F2(Add, a + b)
SIM_F2(Sub, a - b)
SIM_F2(Mul, a* b)
SIM_F2(Div, a / b)
SIM_F2(DivTrunc, trunc_of(a / b))
SIM_F2(RemTrunc, fmod_of(a, b))
struct RemFloor {
  template <class T>
  static SIM_INLINE T of(T a, T b) {
    T rest = fmod_of(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  }
};
// As Python: the quotient of what the remainder leaves, so that the two agree.
struct DivFloor {
  template <class T>
  static SIM_INLINE T of(T a, T b) {
    if (b == 0) return a / b;
    T rest = fmod_of(a, b);
    T quotient = (a - rest) / b;
    if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
    if (quotient == 0) return copysign_of(T(0), a / b);
    T whole = floor_of(quotient);
    return quotient - whole > T(0.5) ? whole + 1 : whole;
  }
};
// A NaN is the one number that differs from itself.
SIM_F2(Max, a != a ? a : b != b ? b : a > b ? a : b)
SIM_F2(Min, a != a ? a : b != b ? b : a < b ? a : b)
SIM_F2(FMax, a != a ? b : b != b ? a : a > b ? a : b)
SIM_F2(FMin, a != a ? b : b != b ? a : a < b ? a : b)
SIM_F1(Neg, -a)
SIM_F1(Abs, abs_of(a))
SIM_F1(FloatSign, T(a > 0) - T(a < 0))
SIM_F1(Floor, floor_of(a))
SIM_F1(Ceil, ceil_of(a))
SIM_F1(Trunc, trunc_of(a))
SIM_F1(Round, round_of(a))
SIM_F1(Sqrt, sqrt_of(a))
SIM_F1(Rsqrt, 1 / sqrt_of(a))
SIM_F1(Reciprocal, 1 / a)
SIM_F2(CopySign, copysign_of(a, b))
SIM_F1(Angle, a != a ? a : a < 0 ? T(3.141592653589793) : T(0))

// ------------------------------------------------------ functions of libmvec
template <class T>
void* vector_function(int op);
template <>
SIM_INLINE void* vector_function<float>(int op) {
  return vector_math.f32[op];
}
template <>
SIM_INLINE void* vector_function<double>(int op) {
  return vector_math.f64[op];
}

// f on n values, a vector at a time; the last one is filled up with a value that occurs.
template <class T, class F>
SIM_INLINE void vectors1(int64_t n, const T* a, T* out, F f) {
  int64_t i = 0;
  for (; i + lanes<T> <= n; i += lanes<T>) store(out + i, f(load(a + i)));
  if (i == n) return;
  T rest[lanes<T>];
  for (int k = 0; k < lanes<T>; ++k) rest[k] = a[i + k < n ? i + k : n - 1];
  store(rest, f(load(rest)));
  for (int k = 0; i + k < n; ++k) out[i + k] = rest[k];
}
template <class T, class F>
SIM_INLINE void vectors2(int64_t n, const T* a, const T* b, T* out, F f) {
  int64_t i = 0;
  for (; i + lanes<T> <= n; i += lanes<T>) store(out + i, f(load(a + i), load(b + i)));
  if (i == n) return;
  T rest_a[lanes<T>], rest_b[lanes<T>];
  for (int k = 0; k < lanes<T>; ++k) {
    rest_a[k] = a[i + k < n ? i + k : n - 1];
    rest_b[k] = b[i + k < n ? i + k : n - 1];
  }
  store(rest_a, f(load(rest_a), load(rest_b)));
  for (int k = 0; i + k < n; ++k) out[i + k] = rest_a[k];
}

template <class T, int op, T (*scalar)(T)>
void math1(int64_t n, const void* a_, const void*, const void*, void* out_, uint32_t*) {
  auto* a = static_cast<const T*>(a_);
  auto* out = static_cast<T*>(out_);
  if (auto f = reinterpret_cast<Vec<T> (*)(Vec<T>)>(vector_function<T>(op))) return vectors1(n, a, out, f);
  for (int64_t i = 0; i < n; ++i) out[i] = scalar(a[i]);
}
template <class T, int op, T (*scalar)(T, T)>
void math2(int64_t n, const void* a_, const void* b_, const void*, void* out_, uint32_t*) {
  auto* a = static_cast<const T*>(a_);
  auto* b = static_cast<const T*>(b_);
  auto* out = static_cast<T*>(out_);
  if (auto f = reinterpret_cast<Vec<T> (*)(Vec<T>, Vec<T>)>(vector_function<T>(op)))
    return vectors2(n, a, b, out, f);
  for (int64_t i = 0; i < n; ++i) out[i] = scalar(a[i], b[i]);
}
#define SIM_SCALAR(op, name)                                   \
  float name##_f32(float a) { return __builtin_##name##f(a); } \
  double name##_f64(double a) { return __builtin_##name(a); }
SIM_MATH_UNARY(SIM_SCALAR)
#undef SIM_SCALAR
#define SIM_SCALAR(op, name)                                               \
  float name##_f32(float a, float b) { return __builtin_##name##f(a, b); } \
  double name##_f64(double a, double b) { return __builtin_##name(a, b); }
SIM_MATH_BINARY(SIM_SCALAR)
#undef SIM_SCALAR

template <class T, T (*scalar_exp)(T)>
void sigmoid(int64_t n, const void* a_, const void*, const void*, void* out_, uint32_t*) {
  auto* a = static_cast<const T*>(a_);
  auto* out = static_cast<T*>(out_);
  if (auto f = reinterpret_cast<Vec<T> (*)(Vec<T>)>(vector_function<T>(FL_OP_EXP)))
    return vectors1(n, a, out, [f](Vec<T> x) { return T(1) / (T(1) + f(-x)); });
  for (int64_t i = 0; i < n; ++i) out[i] = 1 / (1 + scalar_exp(-a[i]));
}

// ---------------------------------------------------------------- conversions
// BOOL lies in a byte of 0 or 1.
struct Bit {
  uint8_t value;
};
template <class From, class To>
struct Convert {
  static SIM_INLINE To of(From x) { return static_cast<To>(x); }
};
template <class From>
struct Convert<From, Bit> {
  static SIM_INLINE Bit of(From x) { return {uint8_t(x != 0)}; }
};
template <class To>
struct Convert<Bit, To> {
  static SIM_INLINE To of(Bit x) { return static_cast<To>(x.value); }
};
template <>
struct Convert<Bit, Bit> {
  static SIM_INLINE Bit of(Bit x) { return x; }
};
template <class From, class To>
void cast(int64_t n, const void* a, const void*, const void*, void* out, uint32_t*) {
  unary<From, To, Convert<From, To>>(n, a, nullptr, nullptr, out, nullptr);
}

// Every step-th number: with a step that the compiler knows, by whole vectors.
template <int step, class M, class R>
SIM_INLINE void widen_every(int64_t n, const char* from, R* __restrict to) {
  auto* f = reinterpret_cast<const M*>(from);
  for (int64_t i = 0; i < n; ++i) to[i] = R(f[i * step]);
}
template <class M, class R>
void widen(int64_t n, const char* from, int64_t stride, void* to_) {
  auto* to = static_cast<R*>(to_);
  constexpr int64_t size = sizeof(M);
  if (stride == size) return widen_every<1, M>(n, from, to);
  if (stride == -size) return widen_every<-1, M>(n, from, to);
  // Parts of complex numbers.
  if (stride == 2 * size) return widen_every<2, M>(n, from, to);
  if (stride == -2 * size) {
    constexpr int64_t kRun = 256;
    M forward[kRun];
    for (int64_t m; n > 0; n -= m, to += m, from -= 2 * size * m) {
      m = n < kRun ? n : kRun;
      widen_every<2, M>(m, from - 2 * size * (m - 1), forward);
      widen_every<-1, M>(m, reinterpret_cast<const char*>(forward + m - 1), to);
    }
    return;
  }
  if (stride == 0) {
    R value = R(*reinterpret_cast<const M*>(from));
    for (int64_t i = 0; i < n; ++i) to[i] = value;
  } else {
    for (int64_t i = 0; i < n; ++i, from += stride) to[i] = R(*reinterpret_cast<const M*>(from));
  }
}
template <class M, class R>
void narrow(int64_t n, const void* from_, char* to, int64_t stride) {
  auto* from = static_cast<const R*>(from_);
  if (stride == sizeof(M)) {
    auto* t = reinterpret_cast<M*>(to);
    for (int64_t i = 0; i < n; ++i) t[i] = M(from[i]);
  } else {
    for (int64_t i = 0; i < n; ++i, to += stride) *reinterpret_cast<M*>(to) = M(from[i]);
  }
}
struct Pair128 {
  uint64_t a, b;
};
SIM_INLINE void to_short(float f, Half& h) { h = to_half(f); }
SIM_INLINE void to_short(float f, BFloat& h) { h = to_bfloat(f); }
template <class H>
void widen_short(int64_t n, const char* from, int64_t stride, void* to_) {
  auto* to = static_cast<float*>(to_);
  if (stride == sizeof(H)) return to_floats(reinterpret_cast<const H*>(from), to, n);
  for (int64_t i = 0; i < n; ++i, from += stride) to[i] = to_float(*reinterpret_cast<const H*>(from));
}
template <class H>
void narrow_short(int64_t n, const void* from_, char* to, int64_t stride) {
  auto* from = static_cast<const float*>(from_);
  if (stride == sizeof(H)) return from_floats(from, reinterpret_cast<H*>(to), n);
  for (int64_t i = 0; i < n; ++i, to += stride) to_short(from[i], *reinterpret_cast<H*>(to));
}
void widen_c32(int64_t n, const char* from, int64_t stride, void* to_) {
  auto* to = static_cast<float*>(to_);
  if (stride == 4) return to_floats(reinterpret_cast<const Half*>(from), to, 2 * n);
  for (int64_t i = 0; i < n; ++i, from += stride)
    to_floats(reinterpret_cast<const Half*>(from), to + 2 * i, 2);
}
void narrow_c32(int64_t n, const void* from_, char* to, int64_t stride) {
  auto* from = static_cast<const float*>(from_);
  if (stride == 4) return from_floats(from, reinterpret_cast<Half*>(to), 2 * n);
  for (int64_t i = 0; i < n; ++i, to += stride) from_floats(from + 2 * i, reinterpret_cast<Half*>(to), 2);
}

// ---------------------------------------------------------------------- tables
template <class T>
void add_common(PointKernels& k, int type) {
  k.op[FL_OP_SELECT][type] = select<T>;
  k.op[FL_OP_EQ][type] = binary<T, uint8_t, Equal>;
  k.op[FL_OP_NE][type] = binary<T, uint8_t, NotEqual>;
  k.op[FL_OP_LT][type] = binary<T, uint8_t, Less>;
  k.op[FL_OP_LE][type] = binary<T, uint8_t, LessEqual>;
  k.op[FL_OP_GT][type] = binary<T, uint8_t, Greater>;
  k.op[FL_OP_GE][type] = binary<T, uint8_t, GreaterEqual>;
}
template <class T>
void add_bits(PointKernels& k, int type) {
  k.op[FL_OP_AND][type] = binary<T, T, BitAnd>;
  k.op[FL_OP_OR][type] = binary<T, T, BitOr>;
  k.op[FL_OP_XOR][type] = binary<T, T, BitXor>;
}
void add_bool(PointKernels& k) {
  using T = uint8_t;
  add_common<T>(k, FL_BOOL);
  add_bits<T>(k, FL_BOOL);
  k.op[FL_OP_NOT][FL_BOOL] = unary<T, T, BoolNot>;
  k.op[FL_OP_ADD][FL_BOOL] = k.op[FL_OP_MAX][FL_BOOL] = binary<T, T, BitOr>;
  k.op[FL_OP_MUL][FL_BOOL] = k.op[FL_OP_MIN][FL_BOOL] = binary<T, T, BitAnd>;
  k.op[FL_OP_SUB][FL_BOOL] = binary<T, T, BitXor>;
  k.op[FL_OP_POW][FL_BOOL] = binary<T, T, BoolPow>;
  k.op[FL_OP_NEG][FL_BOOL] = k.op[FL_OP_ABS][FL_BOOL] = k.op[FL_OP_SIGN][FL_BOOL] = unary<T, T, Same>;
}
template <class T>
void add_integer(PointKernels& k, int type) {
  add_common<T>(k, type);
  add_bits<T>(k, type);
  k.op[FL_OP_NOT][type] = unary<T, T, BitNot>;
  k.op[FL_OP_ADD][type] = binary<T, T, WrapAdd>;
  k.op[FL_OP_SUB][type] = binary<T, T, WrapSub>;
  k.op[FL_OP_MUL][type] = binary<T, T, WrapMul>;
  k.op[FL_OP_NEG][type] = unary<T, T, WrapNeg>;
  k.op[FL_OP_ABS][type] = unary<T, T, WrapAbs>;
  k.op[FL_OP_SIGN][type] = unary<T, T, Sign>;
  k.op[FL_OP_MAX][type] = binary<T, T, IntMax>;
  k.op[FL_OP_MIN][type] = binary<T, T, IntMin>;
  k.op[FL_OP_DIV_TRUNC][type] = divide<T, IntDivTrunc>;
  k.op[FL_OP_DIV_FLOOR][type] = divide<T, IntDivFloor>;
  k.op[FL_OP_REM_TRUNC][type] = divide<T, IntRemTrunc>;
  k.op[FL_OP_REM_FLOOR][type] = divide<T, IntRemFloor>;
  k.op[FL_OP_POW][type] = binary<T, T, IntPow>;
  k.op[FL_OP_SHL][type] = binary<T, T, ShiftLeft>;
  k.op[FL_OP_SHR][type] = binary<T, T, ShiftRight>;
  k.op[FL_OP_GCD][type] = binary<T, T, Gcd>;
}
template <class T>
void add_float(PointKernels& k, int type) {
  add_common<T>(k, type);
  k.op[FL_OP_ADD][type] = binary<T, T, Add>;
  k.op[FL_OP_SUB][type] = binary<T, T, Sub>;
  k.op[FL_OP_MUL][type] = binary<T, T, Mul>;
  k.op[FL_OP_DIV][type] = binary<T, T, Div>;
  k.op[FL_OP_DIV_TRUNC][type] = binary<T, T, DivTrunc>;
  k.op[FL_OP_DIV_FLOOR][type] = binary<T, T, DivFloor>;
  k.op[FL_OP_REM_TRUNC][type] = binary<T, T, RemTrunc>;
  k.op[FL_OP_REM_FLOOR][type] = binary<T, T, RemFloor>;
  k.op[FL_OP_MAX][type] = binary<T, T, Max>;
  k.op[FL_OP_MIN][type] = binary<T, T, Min>;
  k.op[FL_OP_FMAX][type] = binary<T, T, FMax>;
  k.op[FL_OP_FMIN][type] = binary<T, T, FMin>;
  k.op[FL_OP_NEG][type] = unary<T, T, Neg>;
  k.op[FL_OP_ABS][type] = unary<T, T, Abs>;
  k.op[FL_OP_SIGN][type] = unary<T, T, FloatSign>;
  k.op[FL_OP_FLOOR][type] = unary<T, T, Floor>;
  k.op[FL_OP_CEIL][type] = unary<T, T, Ceil>;
  k.op[FL_OP_TRUNC][type] = unary<T, T, Trunc>;
  k.op[FL_OP_ROUND][type] = unary<T, T, Round>;
  k.op[FL_OP_SQRT][type] = unary<T, T, Sqrt>;
  k.op[FL_OP_RSQRT][type] = unary<T, T, Rsqrt>;
  k.op[FL_OP_RECIPROCAL][type] = unary<T, T, Reciprocal>;
  k.op[FL_OP_COPYSIGN][type] = binary<T, T, CopySign>;
  k.op[FL_OP_ANGLE][type] = unary<T, T, Angle>;
  k.op[FL_OP_FMA][type] = multiply_add<T>;
}
template <class From>
void add_casts(PointKernels& k, int from) {
  k.cast[from][FL_BOOL] = cast<From, Bit>;
  k.cast[from][FL_I32] = cast<From, int32_t>;
  k.cast[from][FL_I64] = cast<From, int64_t>;
  k.cast[from][FL_U64] = cast<From, uint64_t>;
  k.cast[from][FL_F32] = cast<From, float>;
  k.cast[from][FL_F64] = cast<From, double>;
}
template <class M, class R>
void add_memory(PointKernels& k, int dtype) {
  k.widen[dtype] = widen<M, R>;
  k.narrow[dtype] = narrow<M, R>;
}
template <class F>
void add_float8(PointKernels& k, int dtype) {
  k.widen[dtype] = F::widen;
  k.narrow[dtype] = F::narrow;
}

}  // namespace

void fill_point_kernels(PointKernels& k, const VectorMath& math) {
  vector_math = math;
  add_bool(k);
  add_integer<int32_t>(k, FL_I32);
  add_integer<int64_t>(k, FL_I64);
  add_float<float>(k, FL_F32);
  add_float<double>(k, FL_F64);
#define SIM_ADD(op_, name)                                           \
  k.op[FL_OP_##op_][FL_F32] = math1<float, FL_OP_##op_, name##_f32>; \
  k.op[FL_OP_##op_][FL_F64] = math1<double, FL_OP_##op_, name##_f64>;
  SIM_MATH_UNARY(SIM_ADD)
#undef SIM_ADD
#define SIM_ADD(op_, name)                                           \
  k.op[FL_OP_##op_][FL_F32] = math2<float, FL_OP_##op_, name##_f32>; \
  k.op[FL_OP_##op_][FL_F64] = math2<double, FL_OP_##op_, name##_f64>;
  SIM_MATH_BINARY(SIM_ADD)
#undef SIM_ADD
  k.op[FL_OP_SIGMOID][FL_F32] = sigmoid<float, exp_f32>;
  k.op[FL_OP_SIGMOID][FL_F64] = sigmoid<double, exp_f64>;

  add_casts<Bit>(k, FL_BOOL);
  add_casts<int32_t>(k, FL_I32);
  add_casts<int64_t>(k, FL_I64);
  add_casts<uint64_t>(k, FL_U64);
  add_casts<float>(k, FL_F32);
  add_casts<double>(k, FL_F64);

  add_memory<uint8_t, uint8_t>(k, FL_BOOL);
  add_memory<uint8_t, int32_t>(k, FL_U8);
  add_memory<int8_t, int32_t>(k, FL_I8);
  add_memory<uint16_t, int32_t>(k, FL_U16);
  add_memory<int16_t, int32_t>(k, FL_I16);
  add_memory<uint32_t, int64_t>(k, FL_U32);
  add_memory<uint32_t, uint32_t>(k, FL_I32);
  add_memory<uint64_t, uint64_t>(k, FL_U64);
  add_memory<uint64_t, uint64_t>(k, FL_I64);
  add_memory<float, float>(k, FL_F32);
  add_memory<double, double>(k, FL_F64);
  add_memory<uint64_t, uint64_t>(k, FL_C64);
  add_memory<Pair128, Pair128>(k, FL_C128);
  k.widen[FL_F16] = widen_short<Half>, k.narrow[FL_F16] = narrow_short<Half>;
  k.widen[FL_BF16] = widen_short<BFloat>, k.narrow[FL_BF16] = narrow_short<BFloat>;
  k.widen[FL_C32] = widen_c32, k.narrow[FL_C32] = narrow_c32;
  add_float8<Float8<3, 7, true, false>>(k, FL_F8_E4M3FN);
  add_float8<Float8<2, 15, false, false>>(k, FL_F8_E5M2);
  add_float8<Float8<3, 8, true, true>>(k, FL_F8_E4M3FNUZ);
  add_float8<Float8<2, 16, true, true>>(k, FL_F8_E5M2FNUZ);
}

}  // namespace sim::SIM_ISA
