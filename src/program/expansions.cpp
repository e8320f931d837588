#include "program/expansions.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "program/series.h"

namespace fl {

namespace {

// Modified Bessel functions of the first kind times exp(-x) sqrt(x) beyond 8, where 8 / x = (t + 1) / 2:
// Chebyshev interpolants, made with 45 digits and written as polynomials in t.
constexpr double kI0[] = {
    0.4021765094450081,      0.0033605519836677504,  0.00013621607438984735,  1.1143033800708978e-05,
    1.4838476651250266e-06,  2.9735960465627118e-07, 8.8720343833141438e-08,  3.9328893751146339e-08,
    2.1566251453104354e-08,  7.5343558438033418e-09, -6.8493381882867694e-09, -1.3326094405766387e-08,
    -5.0381064879032845e-09, 7.3359687108161536e-09, 6.5601387469170574e-09,  -3.1346276429240787e-09,
    -4.5755534245349734e-09, 1.1050558794424347e-09, 2.1968921378829006e-09,  -2.8033819978869995e-10,
    -6.6332871125470836e-10, 3.6293552297187331e-11, 9.3650868928181903e-11};
constexpr double kI1[] = {
    0.38939845902587233,     -0.0097495771932356347,  -0.0002192357638317243,  -1.5038547209501858e-05,
    -1.8349102358955385e-06, -3.4838534380376333e-07, -1.000109565963654e-07,  -4.3131964899777332e-08,
    -2.3392503748018581e-08, -8.4091820404429177e-09, 6.8401389977069586e-09,  1.3958551001385955e-08,
    5.59337010179061e-09,    -7.4444414771972697e-09, -6.9838396248958659e-09, 3.0868867367227251e-09,
    4.8105974050899441e-09,  -1.0594544160443166e-09, -2.297004161885201e-09,  2.6340771095136483e-10,
    6.917089294193807e-10,   -3.3654318531801763e-11, -9.7523972041381941e-11};

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kPi = std::numbers::pi;

Expr floor(Expr x) { return apply(FL_OP_FLOOR, x); }
Expr erfc(Expr x) { return apply(FL_OP_ERFC, x); }
// What sine and tangent of pi x need of x; exact.
Expr beside_integer(Expr x) { return x - round(x); }

// zeta(k) - 1, by Euler and Maclaurin.
double zeta_minus_one(double k) {
  constexpr double n = 30;
  double sum = 0;
  for (double i = 2; i < n; ++i) sum += std::pow(i, -k);
  return sum + std::pow(n, 1 - k) / (k - 1) + std::pow(n, -k) / 2 + k * std::pow(n, -k - 1) / 12;
}

// log |gamma|.  Near 2 by its Taylor series, up to 8.5 by z gamma(z) = gamma(z + 1), further out by
// Stirling's series, left of 0.5 by reflection (Abramowitz and Stegun 6.1.15, 6.1.17, 6.1.33, 6.1.41).
Expr log_gamma(Expr x) {
  static const std::vector<double> near_two = [] {
    std::vector<double> table{1 - std::numbers::egamma};
    for (int k = 2; k < 15; ++k) table.push_back((k % 2 ? -1 : 1) * zeta_minus_one(k) / k);
    return table;
  }();
  Expr start = select(x < 0.5, 1.0 - x, x), z = start, product = x.like(1);
  for (int step = 0; step < 6; ++step) {
    Expr above = z >= 2.5, less = z - 1.0;
    product = select(above, product * less, product);
    z = select(above, less, z);
  }
  Expr low = z < 1.5, w = select(low, z - 1.0, z - 2.0);
  Expr small = w * polynomial(w, near_two) - select(low, log1p(w), x.like(0)) + log(product);
  Expr i = reciprocal(start), square = i * i;
  Expr large = (start - 0.5) * (log(start) - 1.0) + (0.5 * std::log(2 * kPi) - 0.5) +
               i * (1.0 / 12 - square * (1.0 / 360 - square * (1.0 / 1260)));
  Expr right = select(start < 8.5, small, large);
  Expr left = std::log(kPi) - log(abs(sin(beside_integer(x) * kPi))) - right;
  return select(abs(x) == kInf, x.like(kInf), select(x < 0.5, left, right));
}

// Both go right until their asymptotic series hold (6.3.7, 6.3.18, 6.4.7, 6.4.12).
Expr digamma(Expr x) {
  Expr left = x < 0, z = select(left, 1.0 - x, x), sum = x.like(0);
  for (int step = 0; step < 6; ++step) {
    Expr small = z < 6;
    sum = select(small, sum + reciprocal(z), sum);
    z = select(small, z + 1.0, z);
  }
  Expr i = reciprocal(z), square = i * i;
  Expr tail = square * (1.0 / 12 - square * (1.0 / 120 - square * (1.0 / 252 - square * (1.0 / 240))));
  Expr right = log(z) - i * 0.5 - tail - sum, beside = beside_integer(x);
  Expr value = select(left, right - kPi / apply(FL_OP_TAN, beside * kPi), right);
  value = select(left & ((beside == 0) | (x == -kInf)), x.like(kNaN), value);
  return select(x == 0, apply(FL_OP_COPYSIGN, x.like(kInf), -x), value);
}
Expr trigamma(Expr x) {
  Expr left = x < 0.5, z = select(left, 1.0 - x, x), sum = x.like(0);
  for (int step = 0; step < 6; ++step) {
    sum = sum + reciprocal(z * z);
    z = z + 1.0;
  }
  Expr i = reciprocal(z), square = i * i;
  Expr tail = i * (1.0 + i * 0.5 + square * (1.0 / 6 - square * (1.0 / 30 - square * (1.0 / 42))));
  Expr right = sum + tail, s = sin(beside_integer(x) * kPi);
  return select(left, kPi * kPi / (s * s) - right, right);
}

// Hurwitz's zeta.  To the right by Euler and Maclaurin (23.2.23); what lies left of 0, the negative
// numbers a + k, is a difference of two such sums, with a sign.  The first terms stand apart: they are the
// largest, and of those on either side of 0 one often nearly cancels the other.
Expr zeta_beyond(Expr s, Expr a) {
  Expr down = -s, w = a + 7.0, last = pow(w, down), whole = last * w / (s - 1.0), square = reciprocal(w * w),
       step = s / w;
  Expr second = (s + 1.0) * (s + 2.0) * square, third = (s + 3.0) * (s + 4.0) * square;
  Expr series = step * (1.0 / 12 - second * (1.0 / 720 - third * (1.0 / 30240)));
  Expr sum = whole + last * (series + 0.5);
  for (int k = 6; k > 0; --k) sum = sum + pow(a + double(k), down);  // the smallest first
  return sum;
}
Expr zeta(Expr s, Expr q) {
  Expr left = q < 0, lowest = floor(q), f = q - lowest, rest = lowest + 1.0 - q, down = -s;
  Expr odd = s - 2.0 * floor(s * 0.5) != 0;
  Expr a = select(left, f, q), beside = pow(rest, down), beyond = 1.0 - q;
  Expr mirrored = zeta_beyond(s, rest) - (pow(beyond, down) + zeta_beyond(s, beyond));
  Expr first = pow(a, down), others = zeta_beyond(s, a);
  first = select(left, first + select(odd, -beside, beside), first);
  others = select(left, others + select(odd, -mirrored, mirrored), others);
  Expr value = first + others;
  value = select(left & (floor(s) != s), s.like(kNaN), value);
  value = select((q <= 0) & (q == lowest), s.like(kInf), value);
  value = select(s == 1, s.like(kInf), select(s < 1, s.like(kNaN), value));
  return select(is_nan(s) | is_nan(q), s + q, value);
}

// x >= 0 with erfc(x) = p and erf(x) = a, a + p = 1: Winitzki's approximation, then Newton's steps on the
// smaller of the two.
Expr inverse_erf(Expr a, Expr p) {
  constexpr double c = 0.147;
  Expr body = a < 0.5, l = select(body, log1p(-a * a), log(p * (a + 1.0)));
  Expr t = l * 0.5 + 2 / (kPi * c), far = l * (-1 / c);
  Expr x = sqrt(far / (sqrt(t * t + far) + t));
  for (int step = 0; step < 3; ++step) {
    Expr miss = select(body, erf(x) - a, p - erfc(x));
    x = x - miss * exp(x * x) * (std::sqrt(kPi) / 2);
  }
  return select(p == 0, a.like(kInf), x);
}
Expr erfinv(Expr y) {
  Expr a = abs(y), x = inverse_erf(a, 1.0 - a);
  return select(a > 1, y.like(kNaN), apply(FL_OP_COPYSIGN, x, y));
}
Expr ndtri(Expr p) {
  Expr low = p < 0.5, twice = 2.0 * select(low, p, 1.0 - p);
  Expr x = inverse_erf(1.0 - twice, twice) * std::numbers::sqrt2;
  return select((p < 0) | (p > 1), p.like(kNaN), select(low, -x, x));
}

// By erfc near 0, further out by Laplace's continued fraction (7.1.14).
Expr erfcx(Expr x) {
  Expr size = abs(x);
  Expr head = round(size * 16.0) * (1.0 / 16);  // its square is exact
  Expr grown = exp(head * head) * exp((size - head) * (size + head));
  grown = select(size > 20, x.like(kInf), grown);
  Expr fraction = size;
  for (int k = 12; k > 0; --k) fraction = size + double(k) * 0.5 / fraction;
  Expr right = select(size < 3, grown * erfc(size), 1 / std::sqrt(kPi) / fraction);
  return select(x < 0, 2.0 * grown - right, right);
}
Expr log_ndtr(Expr x) {
  Expr t = x * (1 / std::numbers::sqrt2);
  return select(x < -1, log(erfcx(-t) * 0.5) - t * t, log1p(erfc(t) * -0.5));
}

Expr frexp_mantissa(Expr x) {
  Expr digits, exponent, size = abs(x);
  normalise(size, digits, exponent);
  return select((size < kInf) & (size > 0), apply(FL_OP_COPYSIGN, digits * 0.5, x), x);
}
Expr frexp_exponent(Expr x) {
  Expr digits, exponent, size = abs(x);
  normalise(size, digits, exponent);
  return select((size < kInf) & (size > 0), exponent.cast(x.type()) + 1.0, x.like(0));
}
Expr ldexp(Expr x, Expr power) {
  Expr p = trunc(max(min(power, 500), -500)).cast(FL_I32), half = apply(FL_OP_SHR, p, p.like(1));
  return times_power(times_power(x, half), p - half);
}

}  // namespace

Expr modified_bessel(Expr signed_x, int order, bool scaled) {
  Expr x = abs(signed_x), t = 16.0 / x - 1.0, near = plain_series(x * x * 0.25, order, 26);
  Expr far = (order ? polynomial(t, kI1) : polynomial(t, kI0)) / sqrt(x);
  if (scaled) near = near * exp(-x);
  else far = exp(x) * far;
  if (!order) return select(x <= 8, near, far);
  return select(x <= 8, signed_x * 0.5 * near, select(signed_x < 0, -far, far));
}

void normalise(Expr x, Expr& digits, Expr& exponent) {
  digits = x;
  exponent = Expr{x.b, x.b->constant(0, FL_I32)};
  auto step = [&](Expr when, double factor, double by) {
    digits = select(when, digits * factor, digits);
    exponent = select(when, exponent + by, exponent);
  };
  for (int k = 0; k < 3; ++k) step(digits < 1, 0x1p64, -64);
  for (int by = 64; by; by /= 2) step(digits >= std::ldexp(1.0, by), std::ldexp(1.0, -by), by);
}

Expr times_power(Expr x, Expr power) {
  Expr down = power < 0, size = abs(power);
  for (int bit = 128; bit; bit /= 2) {
    int by = bit == 128 ? 64 : bit;  // 2**-128 is subnormal
    Expr factor = select(down, x.like(std::ldexp(1.0, -by)), x.like(std::ldexp(1.0, by)));
    Expr moved = bit == 128 ? x * factor * factor : x * factor;
    x = select((size & double(bit)) != 0, moved, x);
  }
  return x;
}

Expr expand(uint16_t op, Expr x, Expr y, Expr z) {
  if (op == FL_OP_FMA) return x * y + z;
  if (op >= FL_OP_I0 && op <= FL_OP_I1E)
    return modified_bessel(x, op >= FL_OP_I1, op == FL_OP_I0E || op == FL_OP_I1E);
  if (x.type() != FL_F32) return {};
  switch (op) {
    case FL_OP_ERFINV:
      return erfinv(x);
    case FL_OP_LGAMMA:
      return log_gamma(x);
    case FL_OP_DIGAMMA:
      return digamma(x);
    case FL_OP_TRIGAMMA:
      return trigamma(x);
    case FL_OP_NDTRI:
      return ndtri(x);
    case FL_OP_LOG_NDTR:
      return log_ndtr(x);
    case FL_OP_ERFCX:
      return erfcx(x);
    case FL_OP_ZETA:
      return zeta(x, y);
    case FL_OP_FREXP_MANTISSA:
      return frexp_mantissa(x);
    case FL_OP_FREXP_EXPONENT:
      return frexp_exponent(x);
    case FL_OP_LDEXP:
      return ldexp(x, y);
    default:
      return {};
  }
}

}  // namespace fl
