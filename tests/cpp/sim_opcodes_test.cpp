// The sim chip's opcodes against plain C, one after the other, on odd sizes and
// strides.
#include <functional>
#include <limits>
#include <memory>

#include "sim_numbers.h"

using namespace sim_test;

namespace {

const fl_chip* chip;
using i128 = __int128;

// References: integers exactly, real functions in long double, complex in double.
using Real = std::function<long double(long double, long double, long double)>;
using Int = std::function<i128(i128, i128, i128, int)>;  // the last: bits of the register
using Complex = std::function<Cx(Cx, Cx, Cx)>;

struct Domain {
  double low, high;
};
struct Row {
  int op, operands;
  Real real;
  Int integer;
  Complex complex;
  Domain domain = {-10, 10};
  double ulps = 0;        // F32 and F64: units in the last place; < 0: relative error
  bool exact_f64 = true;  // F64 is held to the same
};

long double floor_rem(long double a, long double b) {
  long double r = fmodl(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
i128 int_pow(i128 a, i128 b, int bits) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
  uint64_t r = 1;
  for (uint64_t base = uint64_t(a), left = uint64_t(b); left; left >>= 1, base *= base)
    if (left & 1) r *= base;
  return bits == 32 ? i128(int32_t(r)) : i128(int64_t(r));
}
i128 floor_div(i128 a, i128 b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }

long double digamma(long double x) {
  long double r = 0;
  if (x < 0) return digamma(1 - x) - M_PIl / tanl(M_PIl * x);
  for (; x < 40; x += 1) r -= 1 / x;
  long double y = 1 / (x * x);
  return r + logl(x) - 0.5L / x - y * (1.0L / 12 - y * (1.0L / 120 - y * (1.0L / 252 - y / 240)));
}
long double trigamma(long double x) {
  long double r = 0;
  if (x < 0) {
    long double s = sinl(M_PIl * x);
    return M_PIl * M_PIl / (s * s) - trigamma(1 - x);
  }
  for (; x < 40; x += 1) r += 1 / (x * x);
  long double y = 1 / (x * x);
  return r + 1 / x + y / 2 + y / x * (1.0L / 6 - y * (1.0L / 30 - y * (1.0L / 42 - y / 30)));
}
// (1/pi) of the integral of exp(x cos t) cos(order t): the trapezoidal rule converges at once.
long double bessel(int order, long double x, bool scaled) {
  constexpr int n = 400;
  long double sum = 0;
  for (int i = 0; i < n; ++i) {
    long double t = M_PIl * (i + 0.5L) / n;
    sum += expl(x * cosl(t) - (scaled ? fabsl(x) : 0)) * cosl(order * t);
  }
  return sum / n;
}
long double erfcxl(long double x) { return expl(x * x) * erfcl(x); }
long double bisect(std::function<long double(long double)> f, long double target, long double low,
                   long double high) {
  for (int i = 0; i < 200; ++i) {
    long double middle = (low + high) / 2;
    (f(middle) < target ? low : high) = middle;
  }
  return (low + high) / 2;
}
long double zeta(long double s, long double q) {
  long double sum = 0;
  int n = 300;
  for (int i = 0; i < n; ++i) sum += powl(q + i, -s);
  long double w = q + n;
  return sum + powl(w, 1 - s) / (s - 1) + powl(w, -s) / 2 + s * powl(w, -s - 1) / 12;
}

long double lower_gamma(long double a, long double x) {
  long double term = 1, sum = 1;
  for (int n = 1; n < 2000; ++n) sum += term *= x / (a + n);
  return sum * expl(a * logl(x) - x - lgammal(a + 1));
}

#define R1(e)                                                  \
  [](long double a, long double, long double) -> long double { \
    (void)a;                                                   \
    return e;                                                  \
  }
#define R2(e)                                                    \
  [](long double a, long double b, long double) -> long double { \
    (void)a;                                                     \
    (void)b;                                                     \
    return e;                                                    \
  }
#define R3(e) [](long double a, long double b, long double c) -> long double { return e; }
#define I2(e)                                  \
  [](i128 a, i128 b, i128, int bits) -> i128 { \
    (void)a;                                   \
    (void)b;                                   \
    (void)bits;                                \
    return e;                                  \
  }
#define C1(e) [](Cx a, Cx, Cx) -> Cx { return e; }
#define C2(e)                \
  [](Cx a, Cx b, Cx) -> Cx { \
    (void)b;                 \
    return e;                \
  }

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      {FL_OP_ADD, 2, R2(a + b), I2(a + b), C2(a + b)},
      {FL_OP_SUB, 2, R2(a - b), I2(a - b), C2(a - b)},
      {FL_OP_MUL, 2, R2(a * b), I2(a * b), C2(a * b)},
      {FL_OP_DIV, 2, R2(a / b), nullptr, C2(a / b)},
      {FL_OP_DIV_TRUNC, 2, nullptr, I2(a / b), nullptr},
      {FL_OP_DIV_FLOOR, 2, R2(b == 0 ? a / b : std::isinf(b) && std::isfinite(a) ? (a != 0 && (a < 0) != (b < 0) ? -1 : 0 * (a / b)) : floorl((a - floor_rem(a, b)) / b + 0.5L)), I2(floor_div(a, b)), nullptr},
      {FL_OP_REM_TRUNC, 2, R2(fmodl(a, b)), I2(a % b), nullptr},
      {FL_OP_REM_FLOOR, 2, R2(floor_rem(a, b)), I2(a - floor_div(a, b) * b), nullptr, {-10, 10}, 1},
      {FL_OP_POW, 2, R2(powl(a, b)), I2(int_pow(a, b, bits)), C2(std::pow(a, b)), {0.01, 8}, 4},
      {FL_OP_MAX, 2, R2(a != a || b != b ? NAN : a > b ? a : b), I2(a > b ? a : b), nullptr},
      {FL_OP_MIN, 2, R2(a != a || b != b ? NAN : a < b ? a : b), I2(a < b ? a : b), nullptr},
      {FL_OP_FMAX, 2, R2(fmaxl(a, b)), nullptr, nullptr},
      {FL_OP_FMIN, 2, R2(fminl(a, b)), nullptr, nullptr},
      {FL_OP_EQ, 2, R2(a == b), I2(a == b), C2(a == b)},
      {FL_OP_NE, 2, R2(a != b), I2(a != b), C2(a != b)},
      {FL_OP_LT, 2, R2(a < b), I2(a < b), nullptr},
      {FL_OP_LE, 2, R2(a <= b), I2(a <= b), nullptr},
      {FL_OP_GT, 2, R2(a > b), I2(a > b), nullptr},
      {FL_OP_GE, 2, R2(a >= b), I2(a >= b), nullptr},
      {FL_OP_AND, 2, nullptr, I2(a & b), nullptr},
      {FL_OP_OR, 2, nullptr, I2(a | b), nullptr},
      {FL_OP_XOR, 2, nullptr, I2(a ^ b), nullptr},
      {FL_OP_NOT, 1, nullptr, I2(~a), nullptr},
      {FL_OP_SHL, 2, nullptr, I2(b < 0 || b >= bits ? 0 : i128(uint64_t(a) << b)), nullptr},
      {FL_OP_SHR, 2, nullptr, I2(b < 0 || b >= bits ? (a < 0 ? -1 : 0) : a >> b), nullptr},
      {FL_OP_NEG, 1, R1(-a), I2(-a), C1(-a)},
      {FL_OP_ABS, 1, R1(fabsl(a)), I2(a < 0 ? -a : a), C1(std::abs(a))},
      {FL_OP_SIGN, 1, R1((a > 0) - (a < 0)), I2((a > 0) - (a < 0)), C1(a == Cx(0) ? a : a / std::abs(a))},
      {FL_OP_FLOOR, 1, R1(floorl(a)), nullptr, nullptr},
      {FL_OP_CEIL, 1, R1(ceill(a)), nullptr, nullptr},
      {FL_OP_TRUNC, 1, R1(truncl(a)), nullptr, nullptr},
      {FL_OP_ROUND, 1, R1(nearbyintl(a)), nullptr, nullptr},
      {FL_OP_SQRT, 1, R1(sqrtl(a)), nullptr, C1(std::sqrt(a))},
      {FL_OP_RSQRT, 1, R1(1 / sqrtl(a)), nullptr, C1(1.0 / std::sqrt(a)), {0, 10}, 4},
      {FL_OP_RECIPROCAL, 1, R1(1 / a), nullptr, C1(1.0 / a)},
      {FL_OP_EXP, 1, R1(expl(a)), nullptr, C1(std::exp(a)), {-80, 80}, 4},
      {FL_OP_EXP2, 1, R1(exp2l(a)), nullptr, C1(std::pow(Cx(2), a)), {-100, 100}, 4},
      {FL_OP_EXPM1, 1, R1(expm1l(a)), nullptr, C1(std::exp(a) - 1.0), {-5, 50}, 4},
      {FL_OP_LOG, 1, R1(logl(a)), nullptr, C1(std::log(a)), {0, 1000}, 4},
      {FL_OP_LOG2, 1, R1(log2l(a)), nullptr, C1(std::log(a) / M_LN2), {0, 1000}, 4},
      {FL_OP_LOG10, 1, R1(log10l(a)), nullptr, C1(std::log10(a)), {0, 1000}, 4},
      {FL_OP_LOG1P, 1, R1(log1pl(a)), nullptr, C1(std::log(1.0 + a)), {-0.9, 30}, 4},
      {FL_OP_SIN, 1, R1(sinl(a)), nullptr, C1(std::sin(a)), {-1000, 1000}, 4},
      {FL_OP_COS, 1, R1(cosl(a)), nullptr, C1(std::cos(a)), {-1000, 1000}, 4},
      {FL_OP_TAN, 1, R1(tanl(a)), nullptr, C1(std::tan(a)), {-100, 100}, 4},
      {FL_OP_ASIN, 1, R1(asinl(a)), nullptr, C1(std::asin(a)), {-1, 1}, 4},
      {FL_OP_ACOS, 1, R1(acosl(a)), nullptr, C1(std::acos(a)), {-1, 1}, 4},
      {FL_OP_ATAN, 1, R1(atanl(a)), nullptr, C1(std::atan(a)), {-50, 50}, 4},
      {FL_OP_SINH, 1, R1(sinhl(a)), nullptr, C1(std::sinh(a)), {-20, 20}, 4},
      {FL_OP_COSH, 1, R1(coshl(a)), nullptr, C1(std::cosh(a)), {-20, 20}, 4},
      {FL_OP_TANH, 1, R1(tanhl(a)), nullptr, C1(std::tanh(a)), {-5, 5}, 4},
      {FL_OP_ASINH, 1, R1(asinhl(a)), nullptr, C1(std::asinh(a)), {-100, 100}, 4},
      {FL_OP_ACOSH, 1, R1(acoshl(a)), nullptr, C1(std::acosh(a)), {1, 100}, 4},
      {FL_OP_ATANH, 1, R1(atanhl(a)), nullptr, C1(std::atanh(a)), {-1, 1}, 4},
      {FL_OP_ATAN2, 2, R2(atan2l(a, b)), nullptr, nullptr, {-10, 10}, 4},
      {FL_OP_HYPOT, 2, R2(hypotl(a, b)), nullptr, nullptr, {-10, 10}, 4},
      {FL_OP_COPYSIGN, 2, R2(copysignl(a, b)), nullptr, nullptr},
      {FL_OP_SIGMOID, 1, R1(1 / (1 + expl(-a))), nullptr, C1(1.0 / (1.0 + std::exp(-a))), {-50, 50}, 4},
      {FL_OP_ERF, 1, R1(erfl(a)), nullptr, nullptr, {-4, 4}, 4},
      {FL_OP_ERFC, 1, R1(erfcl(a)), nullptr, nullptr, {-4, 8}, 4},
      {FL_OP_ERFINV, 1, R1(bisect([](long double x) { return erfl(x); }, a, -7, 7)), nullptr, nullptr, {-0.999, 0.999}, -1e-6},
      {FL_OP_LGAMMA, 1, R1(lgammal(a)), nullptr, nullptr, {0.1, 40}, -1e-5},
      {FL_OP_DIGAMMA, 1, R1(digamma(a)), nullptr, nullptr, {-9.9, 20}, -1e-5},
      {FL_OP_TRIGAMMA, 1, R1(trigamma(a)), nullptr, nullptr, {-9.9, 20}, -1e-5},
      {FL_OP_I0, 1, R1(bessel(0, a, false)), nullptr, nullptr, {-60, 60}, -1e-6},
      {FL_OP_I0E, 1, R1(bessel(0, a, true)), nullptr, nullptr, {-60, 60}, -1e-6},
      {FL_OP_I1, 1, R1(bessel(1, a, false)), nullptr, nullptr, {-60, 60}, -1e-6},
      {FL_OP_I1E, 1, R1(bessel(1, a, true)), nullptr, nullptr, {-60, 60}, -1e-6},
      {FL_OP_NDTRI, 1, R1(bisect([](long double x) { return erfcl(-x / sqrtl(2)) / 2; }, a, -12, 12)), nullptr, nullptr, {0, 1}, -1e-5},
      {FL_OP_LOG_NDTR, 1, R1(logl(erfcl(-a / sqrtl(2)) / 2)), nullptr, nullptr, {-30, 3}, -1e-5},
      {FL_OP_ERFCX, 1, R1(erfcxl(a)), nullptr, nullptr, {-3, 80}, -1e-6},
      {FL_OP_ZETA, 2, R2(zeta(a, b)), nullptr, nullptr, {1.1, 20}, -1e-6},
      {FL_OP_IGAMMA, 2, R2(lower_gamma(a, b)), nullptr, nullptr, {0.1, 12}, -1e-6},
      {FL_OP_IGAMMAC, 2, R2(1 - lower_gamma(a, b)), nullptr, nullptr, {0.1, 12}, -1e-6},
      {FL_OP_GCD, 2, nullptr, [](i128 a, i128 b, i128, int) -> i128 { a = a < 0 ? -a : a; b = b < 0 ? -b : b; while (b) { i128 r = a % b; a = b, b = r; } return a; }, nullptr},
      {FL_OP_REAL, 1, nullptr, nullptr, C1(a.real())},
      {FL_OP_IMAG, 1, nullptr, nullptr, C1(a.imag())},
      {FL_OP_CONJ, 1, nullptr, nullptr, C1(std::conj(a))},
      {FL_OP_COMPLEX, 2, nullptr, nullptr, C2(Cx(a.real(), b.real()))},
      {FL_OP_ANGLE, 1, R1(a != a ? a : a < 0 ? M_PIl : 0), nullptr, C1(std::arg(a)), {-10, 10}, 1},
      {FL_OP_FREXP_MANTISSA, 1, R1([&] { int e; return frexpl(a, &e); }()), nullptr, nullptr},
      {FL_OP_FREXP_EXPONENT, 1, R1([&] { int e; frexpl(a, &e); return e; }()), nullptr, nullptr},
      {FL_OP_LDEXP, 2, R2(a * exp2l(b)), nullptr, nullptr, {-10, 10}, 4},
      {FL_OP_FMA, 3, R3(a * b + c), nullptr, nullptr, {0.1, 10}, 2},
  };
  return table;
}

bool is_comparison(int op) { return op >= FL_OP_EQ && op <= FL_OP_GE; }

// One number in the last place of x.
template <class T>
long double ulp(T x) {
  if (!std::isfinite(x)) return 0;
  T size = std::fabs(x);
  if (size < std::numeric_limits<T>::min()) size = std::numeric_limits<T>::min();
  return std::nextafter(size, std::numeric_limits<T>::infinity()) - (long double)size;
}
template <class T>
bool close(T got, long double expected, double ulps) {
  T rounded = T(expected);
  if (std::isnan(rounded)) return std::isnan(got);
  if (std::isinf(rounded) || std::isinf(got)) return got == rounded;
  if (std::fabs(expected) < std::numeric_limits<T>::min() && std::fabs(got) <= std::numeric_limits<T>::min())
    return true;
  long double error = fabsl((long double)got - expected);
  if (ulps < 0)
    return error <= -(long double)ulps * fabsl(expected) +
                        (long double)(-ulps) * 1e-1L * (fabsl(expected) < 1e-3L ? fabsl(expected) : 1e-3L);
  // The long double reference was itself rounded: half a unit may look like a little more.
  return ulps == 0 ? got == rounded || error <= 0.501L * ulp(rounded)
                   : error <= (long double)ulps * ulp(rounded);
}

struct Case {
  int op, operands, type;
  std::vector<Layout> inputs;
  Layout output;
};

// Runs the opcode on `data` and gives the results back in row-major order of points.
template <class T, class R>
std::vector<R> run_op(Device& d, const Case& c, const std::vector<std::vector<T>>& data, fl_status* status) {
  std::vector<fl_instr> code;
  int inputs = c.operands;
  for (int k = 0; k < inputs; ++k) code.push_back(load(k, uint8_t(c.type), uint8_t(c.type)));
  code.push_back(op(c.op, uint8_t(c.type), 0, inputs > 1 ? 1 : 0, inputs > 2 ? 2 : 0));
  uint8_t made = is_comparison(c.op) ? uint8_t{FL_BOOL} : uint8_t(c.type);
  code.push_back(store(inputs, 0, made, made));
  Program program(code, inputs, 1, 0);
  std::vector<fl_tensor> tensors;
  std::vector<std::unique_ptr<Buffer>> buffers;
  for (int k = 0; k < inputs; ++k) {
    const auto& values = data[size_t(k)];
    buffers.push_back(std::make_unique<Buffer>(d, values.data(), values.size() * sizeof(T)));
    tensors.push_back(c.inputs[size_t(k)].tensor(buffers.back()->address, c.type));
  }
  std::vector<R> start(size_t(c.output.extent));
  Buffer out(d, start.data(), start.size() * sizeof(R));
  fl_tensor target = c.output.tensor(out.address, made);
  fl_pointwise_args args{&program.program, tensors.data(), &target, nullptr};
  fl_launch launch = d.launch();
  *status = chip->op->pointwise(&launch, &args);
  auto got = out.values<R>(start.size());
  std::vector<R> points;
  for (int64_t p = 0; p < c.output.points(); ++p) points.push_back(got[size_t(c.output.at(p))]);
  return points;
}

// A layout a size for contiguous runs, and some with strides.
std::vector<std::pair<std::vector<Layout>, Layout>> shapes(int operands, int salt) {
  std::vector<std::pair<std::vector<Layout>, Layout>> out;
  for (int64_t n : {int64_t{1}, int64_t{7}, int64_t{63}, int64_t{1025}, int64_t{2500}}) {
    Layout line{"line", {n}, {1}, 0, n};
    out.push_back({std::vector<Layout>(size_t(operands), line), line});
  }
  auto all = layouts(3, 5, 37);
  for (Layout& l : broadcasts(3, 5, 37)) all.push_back(l);
  for (size_t v = 0; v < 6; ++v) {
    std::vector<Layout> inputs;
    for (int k = 0; k < operands; ++k) inputs.push_back(all[(v + size_t(salt) + size_t(3 * k)) % all.size()]);
    out.push_back({inputs, layouts(3, 5, 37)[(v + size_t(salt)) % 6]});
  }
  return out;
}

void complain(const Case& c, const char* what, const std::string& got, const std::string& expected) {
  static int said = 0;
  ++failures;
  if (++said < 200)
    std::printf("opcode %d, type %d (%s): %s, not %s\n", c.op, c.type, what, got.c_str(), expected.c_str());
}

template <class T>
void check_real(Device& d, const Row& row, int type) {
  static const double special[] = {0.0, -0.0, 1, -1, 0.5, 2.5, HUGE_VAL, -HUGE_VAL, NAN};
  double ulps = row.ulps;
  for (auto& [inputs, output] : shapes(row.operands, row.op)) {
    Case c{row.op, row.operands, type, inputs, output};
    std::vector<std::vector<T>> data;
    std::uniform_real_distribution<double> spread(row.domain.low, row.domain.high);
    for (const Layout& l : inputs) {
      std::vector<T> v(size_t(l.extent));
      for (size_t i = 0; i < v.size(); ++i)
        v[i] = T(ulps == 0 && i % 11 == 5 ? special[rng() % 9] : spread(rng));
      data.push_back(v);
    }
    fl_status status;
    auto check = [&](auto r, auto good) {
      using R = decltype(r);
      auto got = run_op<T, R>(d, c, data, &status);
      if (status != FL_OK) return complain(c, "real", "status " + std::to_string(status), "0");
      for (int64_t p = 0; p < output.points(); ++p) {
        T v[3] = {};
        for (int k = 0; k < row.operands; ++k) v[k] = data[size_t(k)][size_t(inputs[size_t(k)].at(p))];
        long double expected = row.real(v[0], v[1], v[2]);
        if (!good(got[size_t(p)], expected)) {
          char text[200];
          std::snprintf(text, sizeof text, "%s of %.9g %.9g", inputs[0].name, double(v[0]), double(v[1]));
          return complain(c, text, std::to_string((long double)got[size_t(p)]), std::to_string(expected));
        }
      }
    };
    if (is_comparison(row.op)) check(uint8_t{}, [](uint8_t g, long double e) { return g == (e != 0); });
    else check(T{}, [&](T g, long double e) { return close<T>(g, e, ulps); });
  }
}

template <class T>
void check_integer(Device& d, const Row& row, int type) {
  bool divides = row.op >= FL_OP_DIV_TRUNC && row.op <= FL_OP_REM_FLOOR;
  int bits = type == FL_BOOL ? 1 : int(sizeof(T)) * 8;
  for (auto& [inputs, output] : shapes(row.operands, row.op)) {
    Case c{row.op, row.operands, type, inputs, output};
    std::vector<std::vector<T>> data;
    for (size_t k = 0; k < inputs.size(); ++k) {
      std::vector<T> v(size_t(inputs[k].extent));
      for (T& x : v) {
        x = T(rng() >> (rng() % 64));
        if (rng() % 4 == 0) x = T(int64_t(rng() % 9) - 4);
        if (rng() % 20 == 0) x = std::numeric_limits<T>::min();
        if (k == 1 && (row.op == FL_OP_POW || row.op == FL_OP_SHL || row.op == FL_OP_SHR))
          x = T(int64_t(rng() % 80) - 8);
        if (k == 1 && divides && x == 0) x = 3;
        if (type == FL_BOOL) x = T(x & 1);
      }
      data.push_back(v);
    }
    fl_status status;
    auto check = [&](auto r) {
      using R = decltype(r);
      auto got = run_op<T, R>(d, c, data, &status);
      if (status != FL_OK) return complain(c, "integer", "status " + std::to_string(status), "0");
      for (int64_t p = 0; p < output.points(); ++p) {
        T v[3] = {};
        for (int k = 0; k < row.operands; ++k) v[k] = data[size_t(k)][size_t(inputs[size_t(k)].at(p))];
        i128 exact = row.integer(v[0], v[1], v[2], bits);
        R expected = type == FL_BOOL ? R(exact & 1) : R(exact);
        if (got[size_t(p)] != expected)
          return complain(
              c, inputs[0].name,
              std::to_string(got[size_t(p)]) + " of " + std::to_string(v[0]) + " " + std::to_string(v[1]),
              std::to_string(expected));
      }
    };
    if (is_comparison(row.op)) check(uint8_t{});
    else check(T{});
  }
}

template <class F>
void check_complex(Device& d, const Row& row, int type) {
  using T = std::complex<F>;
  for (auto& [inputs, output] : shapes(row.operands, row.op)) {
    Case c{row.op, row.operands, type, inputs, output};
    std::vector<std::vector<T>> data;
    std::uniform_real_distribution<double> spread(-2, 2);
    for (const Layout& l : inputs) {
      std::vector<T> v(size_t(l.extent));
      for (T& x : v) x = T(F(spread(rng)), F(spread(rng)));
      if (data.size() == 1)
        for (size_t i = 0; i < v.size() && i < data[0].size(); i += 3) v[i] = data[0][i];
      data.push_back(v);
    }
    fl_status status;
    auto check = [&](auto r) {
      using R = decltype(r);
      auto got = run_op<T, R>(d, c, data, &status);
      if (status != FL_OK) return complain(c, "complex", "status " + std::to_string(status), "0");
      for (int64_t p = 0; p < output.points(); ++p) {
        Cx v[3] = {};
        for (int k = 0; k < row.operands; ++k) v[k] = Cx(data[size_t(k)][size_t(inputs[size_t(k)].at(p))]);
        Cx expected = row.complex(v[0], v[1], v[2]), x = Cx(got[size_t(p)]);
        double limit = (sizeof(F) == 4 ? 2e-5 : 1e-12) * (1 + std::abs(expected));
        if (!(std::abs(x - expected) <= limit))
          return complain(c, inputs[0].name, std::to_string(x.real()) + " " + std::to_string(x.imag()),
                          std::to_string(expected.real()) + " " + std::to_string(expected.imag()));
      }
    };
    if (is_comparison(row.op)) check(uint8_t{});
    else check(T{});
  }
}

bool claimed(int op, int type) {
  for (uint32_t i = 0; i < chip->op->n_claims; ++i) {
    const fl_claim& c = chip->op->claims[i];
    if (c.entry == FL_ENTRY_POINTWISE && c.kind == op) return c.dtypes >> type & 1;
  }
  return false;
}

void opcodes(Device& d) {
  std::vector<bool> seen(FL_OP_COUNT);
  for (const Row& row : rows()) {
    seen[size_t(row.op)] = true;
    if (row.real) check_real<float>(d, row, FL_F32), check_real<double>(d, row, FL_F64);
    if (row.integer) {
      bool floats = row.op == FL_OP_GCD || row.op == FL_OP_SHL || row.op == FL_OP_SHR ||
                    (row.op >= FL_OP_DIV_TRUNC && row.op <= FL_OP_REM_FLOOR);
      check_integer<int32_t>(d, row, FL_I32), check_integer<int64_t>(d, row, FL_I64);
      if (!floats && claimed(row.op, FL_BOOL)) {
        Row boolean = row;
        if (row.op == FL_OP_ADD) boolean.integer = I2(a | b);
        if (row.op == FL_OP_SUB) boolean.integer = I2(a ^ b);
        check_integer<uint8_t>(d, boolean, FL_BOOL);
      }
    }
    if (row.complex) check_complex<float>(d, row, FL_C64), check_complex<double>(d, row, FL_C128);
  }
  // DIV_TRUNC rounds the rounded quotient, as PyTorch does; NEXTAFTER depends on the type.
  check_real<float>(d, {FL_OP_DIV_TRUNC, 2, R2(truncl((long double)(float(a) / float(b)))), nullptr, nullptr},
                    FL_F32);
  check_real<double>(
      d, {FL_OP_DIV_TRUNC, 2, R2(truncl((long double)(double(a) / double(b)))), nullptr, nullptr}, FL_F64);
  check_real<float>(d, {FL_OP_NEXTAFTER, 2, R2(std::nextafter(float(a), float(b))), nullptr, nullptr},
                    FL_F32);
  check_real<double>(d, {FL_OP_NEXTAFTER, 2, R2(std::nextafter(double(a), double(b))), nullptr, nullptr},
                     FL_F64);
  seen[FL_OP_NEXTAFTER] = true;
  for (int o : {FL_OP_LOAD, FL_OP_STORE, FL_OP_SCALAR, FL_OP_INDEX, FL_OP_CAST, FL_OP_SELECT, FL_OP_CONST})
    seen[size_t(o)] = true;
  for (int o = 0; o < FL_OP_COUNT; ++o)
    if (!seen[size_t(o)]) std::printf("opcode %d is not tested\n", o), ++failures;
  // Every M opcode for every type it names, and what is claimed is what runs.
  struct Opcode {
    const char *types, *tier;
  };
  static const Opcode all[] = {
#define SIM_ROW(name, value, operands, types, tier, meaning) {#types, #tier},
      FL_OPCODE_MAP(SIM_ROW)
#undef SIM_ROW
  };
  for (int o = 0; o < FL_OP_COUNT; ++o)
    for (int type : {FL_BOOL, FL_I32, FL_I64, FL_F32, FL_F64, FL_C64, FL_C128}) {
      bool real = type == FL_F32 || type == FL_F64, cx = is_complex(type),
           integer = type == FL_I32 || type == FL_I64;
      char t = all[o].types[0];
      bool meant = t == 'N' || (t == 'R' && (real || integer)) || (t == 'I' && !real && !cx) ||
                   (t == 'J' && integer) || (t == 'F' && (real || cx)) || (t == 'G' && real) ||
                   (t == 'C' && cx);
      bool ordered =
          (o >= FL_OP_LT && o <= FL_OP_GE) || o == FL_OP_MAX || o == FL_OP_MIN;  // complex numbers are not
      if (claimed(o, type) != (meant && !(cx && ordered)))
        std::printf("opcode %d, type %d: a wrong claim\n", o, type), ++failures;
    }
}

}  // namespace

int main(int argc, char** argv) {
  setenv("FL_SIM_MEMORY", "512M", 1);
  chip = load_chip(argc, argv);
  Device device(chip, 0);
  opcodes(device);
  return report("sim_opcodes_test");
}
