// Complex arithmetic, one point at a time.
#include <cmath>
#include <complex>
#include <limits>

#include "simd/point_kernels.h"

namespace sim {
namespace {

template <class T>
using C = std::complex<T>;

template <class A, class R, class F>
void unary(int64_t n, const void* a_, const void*, const void*, void* out_, uint32_t*) {
  auto* a = static_cast<const A*>(a_);
  auto* out = static_cast<R*>(out_);
  for (int64_t i = 0; i < n; ++i) out[i] = F::of(a[i]);
}
template <class A, class R, class F>
void binary(int64_t n, const void* a_, const void* b_, const void*, void* out_, uint32_t*) {
  auto* a = static_cast<const A*>(a_);
  auto* b = static_cast<const A*>(b_);
  auto* out = static_cast<R*>(out_);
  for (int64_t i = 0; i < n; ++i) out[i] = F::of(a[i], b[i]);
}
template <class A>
void select(int64_t n, const void* a_, const void* b_, const void* c_, void* out_, uint32_t*) {
  auto* a = static_cast<const uint8_t*>(a_);
  auto* b = static_cast<const A*>(b_);
  auto* c = static_cast<const A*>(c_);
  auto* out = static_cast<A*>(out_);
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] ? b[i] : c[i];
}
#define SIM_F1(name, expression) \
  struct name {                  \
    template <class T>           \
    static C<T> of(C<T> a) {     \
      return expression;         \
    }                            \
  };
#define SIM_F2(name, expression)     \
  struct name {                      \
    template <class T>               \
    static auto of(C<T> a, C<T> b) { \
      return expression;             \
    }                                \
  };

SIM_F2(Add, a + b)
SIM_F2(Sub, a - b)
SIM_F2(Mul, a* b)
SIM_F2(Div, a / b)
SIM_F2(Equal, a == b)
SIM_F2(NotEqual, a != b)
SIM_F2(Complex, C<T>(a.real(), b.real()))
// 0 to a power with a positive real part is 0, which the logarithm misses.
SIM_F2(Pow, b == C<T>(0) ? C<T>(1) : a == C<T>(0) && b.imag() == 0 && b.real() > 0 ? C<T>(0) : std::pow(a, b))
SIM_F1(Neg, -a)
SIM_F1(Abs, C<T>(std::abs(a)))
SIM_F1(Sign, a == C<T>(0) ? C<T>(0) : a / std::abs(a))
SIM_F1(Sqrt, std::sqrt(a))
SIM_F1(Reciprocal, T(1) / a)
SIM_F1(Rsqrt, T(1) / std::sqrt(a))
SIM_F1(Exp, std::exp(a))
SIM_F1(Exp2, std::exp(a* T(0.69314718055994530942)))
SIM_F1(Log, std::log(a))
SIM_F1(Log2, std::log(a) * T(1.44269504088896340736))
SIM_F1(Log10, std::log(a) * T(0.43429448190325182765))
SIM_F1(Sin, std::sin(a))
SIM_F1(Cos, std::cos(a))
SIM_F1(Tan, std::tan(a))
SIM_F1(Asin, std::asin(a))
SIM_F1(Acos, std::acos(a))
SIM_F1(Atan, std::atan(a))
SIM_F1(Sinh, std::sinh(a))
SIM_F1(Cosh, std::cosh(a))
SIM_F1(Tanh, std::tanh(a))
SIM_F1(Asinh, std::asinh(a))
SIM_F1(Acosh, std::acosh(a))
SIM_F1(Atanh, std::atanh(a))
SIM_F1(Sigmoid, T(1) / (T(1) + std::exp(-a)))
SIM_F1(Real, C<T>(a.real()))
SIM_F1(Imag, C<T>(a.imag()))
SIM_F1(Conj, std::conj(a))
SIM_F1(Angle, C<T>(std::arg(a)))
// |1 + a|² - 1, and the half of its logarithm, without the cancellation for small a.
struct Log1p {
  template <class T>
  static C<T> of(C<T> a) {
    T x = a.real(), y = a.imag();
    T size = std::fabs(x) < T(0.5) && std::fabs(y) < T(0.5) ? std::log1p(x * (2 + x) + y * y) / 2
                                                            : std::log(std::hypot(1 + x, y));
    return {size, std::atan2(y, 1 + x)};
  }
};
// exp(x) cos(y) - 1 = expm1(x) cos(y) - 2 sin²(y/2)
struct Expm1 {
  template <class T>
  static C<T> of(C<T> a) {
    T x = a.real(), y = a.imag(), half = std::sin(y / 2);
    return {std::expm1(x) * std::cos(y) - 2 * half * half, y == 0 ? y : std::exp(x) * std::sin(y)};
  }
};

template <class From, class To>
struct Convert {
  static To of(From x) { return To(x); }
};
template <class From, class T>
struct Convert<C<From>, C<T>> {
  static C<T> of(C<From> x) { return {static_cast<T>(x.real()), static_cast<T>(x.imag())}; }
};
template <class From, class T>
struct Convert<From, C<T>> {
  static C<T> of(From x) { return {static_cast<T>(x), T(0)}; }
};
template <class From, class To>
struct Convert<C<From>, To> {
  static To of(C<From> x) { return static_cast<To>(x.real()); }
};
template <class From>
struct Convert<C<From>, bool> {
  static bool of(C<From> x) { return x.real() != 0 || x.imag() != 0; }
};

template <class From, class To>
constexpr PointOp cast = unary<From, To, Convert<From, To>>;

template <class T>
void add(PointKernels& k, int type) {
  using A = C<T>;
  k.op[FL_OP_SELECT][type] = select<A>;
#define SIM_BINARY(op_, F) k.op[FL_OP_##op_][type] = binary<A, A, F>;
  SIM_BINARY(ADD, Add)
  SIM_BINARY(SUB, Sub)
  SIM_BINARY(MUL, Mul)
  SIM_BINARY(DIV, Div)
  SIM_BINARY(POW, Pow)
  SIM_BINARY(COMPLEX, Complex)
#undef SIM_BINARY
  k.op[FL_OP_EQ][type] = binary<A, bool, Equal>;
  k.op[FL_OP_NE][type] = binary<A, bool, NotEqual>;
#define SIM_UNARY(op_, F) k.op[FL_OP_##op_][type] = unary<A, A, F>;
  // clang-format off
  SIM_UNARY(NEG, Neg)
  SIM_UNARY(ABS, Abs)
  SIM_UNARY(SIGN, Sign)
  SIM_UNARY(SQRT, Sqrt)
  SIM_UNARY(RSQRT, Rsqrt)
  SIM_UNARY(RECIPROCAL, Reciprocal)
  SIM_UNARY(EXP, Exp) SIM_UNARY(EXP2, Exp2) SIM_UNARY(EXPM1, Expm1) SIM_UNARY(LOG, Log) SIM_UNARY(LOG2, Log2)
  SIM_UNARY(LOG10, Log10) SIM_UNARY(LOG1P, Log1p) SIM_UNARY(SIN, Sin) SIM_UNARY(COS, Cos)
  SIM_UNARY(TAN, Tan) SIM_UNARY(ASIN, Asin) SIM_UNARY(ACOS, Acos) SIM_UNARY(ATAN, Atan)
  SIM_UNARY(SINH, Sinh) SIM_UNARY(COSH, Cosh) SIM_UNARY(TANH, Tanh) SIM_UNARY(ASINH, Asinh)
  SIM_UNARY(ACOSH, Acosh) SIM_UNARY(ATANH, Atanh) SIM_UNARY(SIGMOID, Sigmoid)
  SIM_UNARY(REAL, Real) SIM_UNARY(IMAG, Imag) SIM_UNARY(CONJ, Conj)
  SIM_UNARY(ANGLE, Angle)
// clang-format on
#undef SIM_UNARY
                      k.cast[FL_BOOL][type] = cast<uint8_t, A>;
  k.cast[FL_I32][type] = cast<int32_t, A>;
  k.cast[FL_I64][type] = cast<int64_t, A>;
  k.cast[FL_U64][type] = cast<uint64_t, A>;
  k.cast[FL_F32][type] = cast<float, A>;
  k.cast[FL_F64][type] = cast<double, A>;
  k.cast[type][FL_BOOL] = cast<A, bool>;
  k.cast[type][FL_I32] = cast<A, int32_t>;
  k.cast[type][FL_I64] = cast<A, int64_t>;
  k.cast[type][FL_U64] = cast<A, uint64_t>;
  k.cast[type][FL_F32] = cast<A, float>;
  k.cast[type][FL_F64] = cast<A, double>;
  k.cast[type][FL_C64] = cast<A, C<float>>;
  k.cast[type][FL_C128] = cast<A, C<double>>;
}

}  // namespace

void fill_complex_kernels(PointKernels& out) {
  add<float>(out, FL_C64);
  add<double>(out, FL_C128);
}

}  // namespace sim
