// The rarer real functions, each computed in double, one point at a time.
#include <cmath>
#include <limits>

#include "incomplete_gamma.h"
#include "simd/point_kernels.h"

namespace sim {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
constexpr double kPi = 3.14159265358979323846, kSqrtPi = 1.77245385090551602730;
constexpr double kSqrt2 = 1.41421356237309504880;

// lgamma writes a global; its reentrant form does not.
double log_gamma(double x) {
  int sign;
  return ::lgamma_r(x, &sign);
}

// pi × x loses the fraction of a large x, so the fraction is taken first.
double digamma(double x) {
  if (x == 0) return std::copysign(kInf, -x);
  if (x == -kInf) return kNaN;
  double result = 0;
  if (x < 0) {
    double whole;
    double fraction = std::modf(x, &whole);
    if (fraction == 0) return kNaN;
    result = -kPi / std::tan(kPi * fraction);
    x = 1 - x;
  }
  while (x < 10) {
    result -= 1 / x;
    x += 1;
  }
  double y = 1 / (x * x);
  // Bernoulli numbers over 2k, from k = 1.
  double series =
      y *
      (1.0 / 12 -
       y * (1.0 / 120 - y * (1.0 / 252 - y * (1.0 / 240 - y * (1.0 / 132 - y * (691.0 / 32760 - y / 12))))));
  return result + std::log(x) - 0.5 / x - series;
}

// At a pole the rounding of pi × x decides, as in PyTorch: a large number, not infinity.
template <class T>
double trigamma(double x) {
  double result = 0, sign = 1;
  if (x < 0.5) {
    double whole, fraction = std::modf(x, &whole);
    double s = std::sin(fraction != 0 ? kPi * fraction : double(T(kPi) * T(x)));
    result = -kPi * kPi / (s * s);
    sign = -1;
    x = 1 - x;
  }
  while (x < 10) {
    result += 1 / (x * x);
    x += 1;
  }
  double y = 1 / (x * x);
  result += 1 / x + 0.5 * y +
            y / x *
                (1.0 / 6 -
                 y * (1.0 / 30 -
                      y * (1.0 / 42 - y * (1.0 / 30 - y * (5.0 / 66 - y * (691.0 / 2730 - y * 7.0 / 6))))));
  return sign * result;
}

// I_order(|x|) × exp(-|x|).  All terms of the power series are positive, so it is
// accurate wherever it is affordable; beyond, the asymptotic series is.
template <int order>
double bessel_scaled(double x) {
  x = std::fabs(x);
  if (x == kInf) return 0;
  if (x < 30) {
    double quarter = x * x / 4, term = order ? x / 2 : 1, sum = 0;
    for (int k = 1; term > sum * (kEpsilon / 4); ++k) {
      sum += term;
      term *= quarter / (double(k) * (k + order));
    }
    return std::exp(-x) * sum;
  }
  constexpr double mu = 4.0 * order * order;
  double term = 1, sum = 0;
  for (int k = 1; std::fabs(term) > kEpsilon / 4 && k < 60; ++k) {
    sum += term;
    double odd = 2 * k - 1;
    term *= -(mu - odd * odd) / (k * 8 * x);
  }
  return sum / std::sqrt(2 * kPi * x);
}
double i0e(double x) { return std::isnan(x) ? x : bessel_scaled<0>(x); }
double i1e(double x) { return std::isnan(x) ? x : std::copysign(bessel_scaled<1>(x), x); }
// In two steps: exp(x) alone overflows before the product does.  NaN at infinity, as PyTorch's own kernels
// have it.
double i0(double x) {
  double half = std::exp(std::fabs(x) / 2);
  return i0e(x) * half * half;
}
double i1(double x) {
  double half = std::exp(std::fabs(x) / 2);
  return i1e(x) * half * half;
}

double erfcx(double x) {
  if (std::isnan(x)) return x;
  if (x >= 25) {
    double y = 1 / (2 * x * x);
    return 1 / (x * kSqrtPi) * (1 - y * (1 - 3 * y * (1 - 5 * y * (1 - 7 * y))));
  }
  if (x < -26.7) return kInf;
  // x × x in two parts: its rounding error would be multiplied by x × x.
  double square = x * x, rest = std::fma(x, x, -square);
  return std::exp(square) * (1 + rest) * std::erfc(x);
}

double log_ndtr(double x) {
  if (x < -1) return std::log(erfcx(-x / kSqrt2) / 2) - x * x / 2;
  return std::log1p(-std::erfc(x / kSqrt2) / 2);
}

// A first guess good to 5e-4 (Abramowitz and Stegun 26.2.23), then Halley's steps.
double ndtri_lower(double p) {
  double t = std::sqrt(-2 * std::log(p));
  double x = -(t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                       (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))));
  for (int i = 0; i < 3; ++i) {
    double error = std::erfc(-x / kSqrt2) / 2 - p;
    double step = error * std::sqrt(2 * kPi) * std::exp(x * x / 2);
    x -= step / (1 + x * step / 2);
  }
  return x;
}
double ndtri(double p) {
  if (!(p >= 0 && p <= 1)) return kNaN;
  if (p == 0 || p == 1) return p == 0 ? -kInf : kInf;
  return p <= 0.5 ? ndtri_lower(p) : -ndtri_lower(1 - p);
}
double erfinv(double y) {
  double size = std::fabs(y);
  if (!(size <= 1)) return kNaN;
  if (size == 1) return y * kInf;
  // 1 - size is exact in this half.
  if (size > 0.5) return std::copysign(-ndtri_lower((1 - size) / 2) / kSqrt2, y);
  double x = kSqrtPi / 2 * size * (1 + kPi / 12 * size * size);
  for (int i = 0; i < 3; ++i) {
    double step = (std::erf(x) - size) * (kSqrtPi / 2) * std::exp(x * x);
    x -= step / (1 + x * step);
  }
  return std::copysign(x, y);
}

// Euler and Maclaurin: the first terms, then the integral, then corrections
// B(2k) / (2k)!.
double zeta(double s, double q) {
  static constexpr double kCorrections[] = {1.0 / 12,
                                            -1.0 / 720,
                                            1.0 / 30240,
                                            -1.0 / 1209600,
                                            1.0 / 47900160,
                                            -691.0 / 1307674368000.0,
                                            1.0 / 74724249600.0,
                                            -3617.0 / 10670622842880000.0};
  if (s == 1) return kInf;
  if (!(s > 1) || std::isnan(q)) return kNaN;
  if (q <= 0) {
    if (q == std::floor(q)) return kInf;
    if (s != std::floor(s)) return kNaN;
  }
  double sum = 0;
  int terms = 0;
  for (; terms < 10 || q < 10; ++terms, q += 1) {
    double term = std::pow(q, -s);
    sum += term;
    if (q > 0 && std::fabs(term) < std::fabs(sum) * kEpsilon / 4) return sum;
  }
  double power = std::pow(q, -s);
  sum += power * q / (s - 1) + power / 2;
  double factor = s * power / q;
  for (int k = 0; k < 8; ++k) {
    double correction = factor * kCorrections[k];
    sum += correction;
    if (std::fabs(correction) < std::fabs(sum) * kEpsilon / 4) break;
    factor *= (s + 2 * k + 1) * (s + 2 * k + 2) / (q * q);
  }
  return sum;
}

double mantissa(double x) {
  int exponent;
  return std::frexp(x, &exponent);
}
double exponent(double x) {
  int e = 0;
  if (std::isfinite(x)) std::frexp(x, &e);
  return e;
}
double ldexp_of(double a, double b) {
  // A whole b within range is exact, however small the result.
  if (b == std::trunc(b) && std::fabs(b) < 10000) return std::ldexp(a, static_cast<int>(b));
  return a * std::exp2(b);
}
template <class T>
T next_after(T a, T b) {
  return std::nextafter(a, b);
}

template <class T, double (*f)(double)>
void unary(int64_t n, const void* a_, const void*, const void*, void* out_, uint32_t*) {
  auto* a = static_cast<const T*>(a_);
  auto* out = static_cast<T*>(out_);
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(f(a[i]));
}
template <class T, double (*f)(double, double)>
void binary(int64_t n, const void* a_, const void* b_, const void*, void* out_, uint32_t*) {
  auto* a = static_cast<const T*>(a_);
  auto* b = static_cast<const T*>(b_);
  auto* out = static_cast<T*>(out_);
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(f(a[i], b[i]));
}
template <class T>
void neighbours(int64_t n, const void* a_, const void* b_, const void*, void* out_, uint32_t*) {
  auto* a = static_cast<const T*>(a_);
  auto* b = static_cast<const T*>(b_);
  auto* out = static_cast<T*>(out_);
  for (int64_t i = 0; i < n; ++i) out[i] = next_after(a[i], b[i]);
}

template <class T>
void add(PointKernels& k, int type) {
  k.op[FL_OP_ERFINV][type] = unary<T, erfinv>;
  k.op[FL_OP_LGAMMA][type] = unary<T, log_gamma>;
  k.op[FL_OP_DIGAMMA][type] = unary<T, digamma>;
  k.op[FL_OP_TRIGAMMA][type] = unary<T, trigamma<T>>;
  k.op[FL_OP_I0][type] = unary<T, i0>;
  k.op[FL_OP_I0E][type] = unary<T, i0e>;
  k.op[FL_OP_I1][type] = unary<T, i1>;
  k.op[FL_OP_I1E][type] = unary<T, i1e>;
  k.op[FL_OP_NDTRI][type] = unary<T, ndtri>;
  k.op[FL_OP_LOG_NDTR][type] = unary<T, log_ndtr>;
  k.op[FL_OP_ERFCX][type] = unary<T, erfcx>;
  k.op[FL_OP_ZETA][type] = binary<T, zeta>;
  k.op[FL_OP_IGAMMA][type] = binary<T, lower_gamma>;
  k.op[FL_OP_IGAMMAC][type] = binary<T, upper_gamma>;
  k.op[FL_OP_FREXP_MANTISSA][type] = unary<T, mantissa>;
  k.op[FL_OP_FREXP_EXPONENT][type] = unary<T, exponent>;
  k.op[FL_OP_LDEXP][type] = binary<T, ldexp_of>;
  k.op[FL_OP_NEXTAFTER][type] = neighbours<T>;
}

}  // namespace

void fill_special_kernels(PointKernels& out) {
  add<float>(out, FL_F32);
  add<double>(out, FL_F64);
}

}  // namespace sim
