// Where which formula is used: a power series below a, a continued fraction above (Abramowitz and
// Stegun 6.5.29 and 6.5.31), and Temme's uniform expansion where a is large and x near it, where both would
// be slow (N. M. Temme, The asymptotic expansion of the incomplete gamma functions, SIAM J. Math. Anal. 10,
// 1979).
#include "incomplete_gamma.h"

#include <array>
#include <cmath>
#include <limits>

namespace sim {
namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon(), kPi = 3.14159265358979323846;

double log_gamma(double x) {
  int sign;
  return ::lgamma_r(x, &sign);
}

// mu - log(1 + mu); near 0 the two terms would cancel.
double excess(double mu) {
  if (std::fabs(mu) > 0.25) return mu - std::log1p(mu);
  double power = mu * mu, sum = 0;
  for (int k = 2; k < 60; ++k) {
    double term = power / k;
    sum += k % 2 ? -term : term;
    if (std::fabs(term) < std::fabs(sum) * kEpsilon / 4) break;
    power *= mu;
  }
  return sum;
}

// x**a exp(-x) / gamma(a + 1).
double front(double a, double x) {
  if (a < 20) return std::exp(a * std::log(x) - x - log_gamma(a + 1));
  double y = 1 / (a * a);
  double stirling = (1.0 / 12 - y * (1.0 / 360 - y * (1.0 / 1260 - y * (1.0 / 1680 - y / 1188)))) / a;
  return std::exp(-a * excess((x - a) / a) - stirling) / std::sqrt(2 * kPi * a);
}

double lower_series(double a, double x) {
  double term = 1, sum = 1;
  for (int n = 1; n < 10000 && term > sum * kEpsilon / 4; ++n) sum += term *= x / (a + n);
  return front(a, x) * sum;
}

// Q of a small x, where 1 - P would lose digits.
double upper_series(double a, double x) {
  double term = 1, sum = 0;
  for (int n = 1; n < 200; ++n) {
    term *= -x / n;
    double next = term / (a + n);
    sum += next;
    if (std::fabs(next) <= std::fabs(sum) * kEpsilon / 4) break;
  }
  double power = a * std::log(x);
  return -std::expm1(power - log_gamma(1 + a)) - std::exp(power - log_gamma(a)) * sum;
}

// Lentz's way of evaluating a continued fraction.
double upper_fraction(double a, double x) {
  constexpr double kTiny = 1e-300;
  double b = x + 1 - a, c = 1 / kTiny, d = 1 / b, h = d;
  for (int n = 1; n < 10000; ++n) {
    double numerator = -n * (n - a);
    b += 2;
    d = numerator * d + b;
    if (std::fabs(d) < kTiny) d = kTiny;
    c = b + numerator / c;
    if (std::fabs(c) < kTiny) c = kTiny;
    d = 1 / d;
    double step = d * c;
    h *= step;
    if (std::fabs(step - 1) < kEpsilon) break;
  }
  return front(a, x) * a * h;
}

// Temme's coefficients: C[k] as a power series in eta, where eta**2 / 2 = mu - log(1 + mu) and 1 + mu = x /
// a.
constexpr int kTerms = 36, kOrders = 4;
struct Temme {
  double c[kOrders][kTerms];
  Temme() {
    constexpr int kWide = kTerms + 2 * kOrders;
    // mu = alpha[1] eta + alpha[2] eta**2 + …, from eta d(eta) = mu / (1 + mu) d(mu).
    std::array<double, kWide + 3> alpha{}, inverse{};
    alpha[1] = 1;
    for (int n = 2; n < kWide + 2; ++n) {
      double sum = alpha[n - 1];
      for (int j = 2; j < n; ++j) sum -= j * alpha[j] * alpha[n + 1 - j];
      alpha[n] = sum / (n + 1);
    }
    // eta / mu.
    inverse[0] = 1;
    for (int n = 1; n <= kWide; ++n) {
      inverse[n] = 0;
      for (int j = 1; j <= n; ++j) inverse[n] -= alpha[j + 1] * inverse[n - j];
    }
    static constexpr double kStirling[kOrders] = {1, -1.0 / 12, 1.0 / 288, 139.0 / 51840};
    std::array<double, kWide> last{};
    for (int n = 0; n < kWide; ++n) last[n] = inverse[n + 1];
    for (int k = 0; k < kOrders; ++k) {
      if (k)
        for (int n = 0; n + 2 < kWide; ++n) last[n] = (n + 2) * last[n + 2] + kStirling[k] * inverse[n + 1];
      for (int n = 0; n < kTerms; ++n) c[k][n] = last[n];
    }
  }
};

bool near_the_middle(double a, double x) { return a > 1000 && std::fabs(x - a) < 0.4 * a; }

// side: 1 for Q, -1 for P.
double middle(double a, double x, double side) {
  static const Temme table;
  double mu = (x - a) / a, half_square = excess(mu), eta = std::copysign(std::sqrt(2 * half_square), mu);
  double sum = 0;
  for (int k = kOrders; k-- > 0;) {
    double c = 0;
    for (int n = kTerms; n-- > 0;) c = c * eta + table.c[k][n];
    sum = sum / a + c;
  }
  double rest = std::exp(-a * half_square) / std::sqrt(2 * kPi * a) * sum;
  return std::erfc(side * eta * std::sqrt(a / 2)) / 2 + side * rest;
}

// P where it needs no formula; false otherwise.
bool at_the_border(double a, double x, double* p) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  if (a < 0 || x < 0) *p = kNaN;
  else if (a == 0) *p = x > 0 ? 1 : kNaN;
  else if (x == 0) *p = 0;
  else if (std::isinf(a)) *p = std::isinf(x) ? kNaN : 0;
  else if (std::isinf(x)) *p = 1;
  else if (std::isnan(a) || std::isnan(x)) *p = kNaN;
  else return false;
  return true;
}

}  // namespace

double lower_gamma(double a, double x) {
  double p;
  if (at_the_border(a, x, &p)) return p;
  if (near_the_middle(a, x)) return middle(a, x, -1);
  return x <= 1 || x <= a ? lower_series(a, x) : 1 - upper_gamma(a, x);
}

double upper_gamma(double a, double x) {
  double p;
  if (at_the_border(a, x, &p)) return 1 - p;
  if (near_the_middle(a, x)) return middle(a, x, 1);
  if (x > 1.1) return x < a ? 1 - lower_series(a, x) : upper_fraction(a, x);
  // Below about exp(-1/2) a small x leaves Q small.
  bool mostly_p = x <= 0.5 ? -0.4 / std::log(x) < a : x * 1.1 < a;
  return mostly_p ? 1 - lower_series(a, x) : upper_series(a, x);
}

}  // namespace sim
