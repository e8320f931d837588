// What each opcode means, in long double.
#include <cmath>
#include <cstring>
#include <numbers>

#include "reference.h"

namespace kit {

namespace {

struct Opcode {
  const char* name;
  unsigned operands;
  char types;
  bool mandatory;
};

const Opcode kOpcodes[FL_OP_COUNT] = {
#define ROW(name, value, operands, types, tier, meaning) {#name, operands, #types[0], #tier[0] == 'M'},
    FL_OPCODE_MAP(ROW)
#undef ROW
};

// ------------------------------------------------------- special functions

constexpr real kPi = std::numbers::pi_v<real>;

real digamma(real x) {
  if (x == 0) return std::copysign(kInfinity, -x);
  if (x < 0 && x == std::floor(x)) return NAN;
  if (x < 0) return digamma(1 - x) - kPi / std::tan(kPi * x);
  real r = 0;
  for (; x < 30; x += 1) r -= 1 / x;
  real y = 1 / (x * x);
  return r + std::log(x) - 0.5L / x -
         y * (1 / 12.0L - y * (1 / 120.0L - y * (1 / 252.0L - y * (1 / 240.0L - y / 132))));
}

// Σ 1/(x+k)^s by Euler and Maclaurin.
real zeta(real s, real x) {
  if (s == 1) return kInfinity;
  if (s < 1 || x <= 0) return NAN;
  real sum = 0;
  constexpr int n = 30;
  for (int k = 0; k < n; ++k) sum += std::pow(x + k, -s);
  real a = x + n, power = std::pow(a, -s);
  sum += a * power / (s - 1) + power / 2;
  static const real kBernoulli[] = {1 / 6.0L,  -1 / 30.0L,     1 / 42.0L, -1 / 30.0L,
                                    5 / 66.0L, -691 / 2730.0L, 7 / 6.0L};
  real term = s * power / a, factorial = 2;
  for (int k = 0; k < 7; ++k) {
    sum += kBernoulli[k] / factorial * term;
    term *= (s + 2 * k + 1) * (s + 2 * k + 2) / (a * a);
    factorial *= (2 * k + 3) * (2 * k + 4);
  }
  return sum;
}

// The power series; all terms have one sign.
real bessel(int order, real x) {
  real term = order ? x / 2 : 1, sum = term;
  for (int k = 1; k < 500 && std::fabs(term) > std::fabs(sum) * 1e-21L; ++k) {
    term *= (x * x / 4) / (real(k) * (k + order));
    sum += term;
  }
  return sum;
}

// Newton on erf from a start that bisection finds.
real erfinv(real y) {
  if (std::fabs(y) > 1) return NAN;
  if (std::fabs(y) == 1) return std::copysign(kInfinity, y);
  real low = -8, high = 8;
  for (int i = 0; i < 200; ++i) {
    real mid = (low + high) / 2;
    // Near 1 the complement keeps the digits.
    bool below = y > 0.5L ? std::erfc(mid) > 1 - y : y < -0.5L ? std::erfc(-mid) < 1 + y : std::erf(mid) < y;
    (below ? low : high) = mid;
  }
  return (low + high) / 2;
}

real ndtri(real p) {
  if (p < 0 || p > 1) return NAN;
  if (p == 0 || p == 1) return p == 1 ? kInfinity : -kInfinity;
  real low = -40, high = 40;
  for (int i = 0; i < 200; ++i) {
    real mid = (low + high) / 2;
    (std::erfc(-mid / std::sqrt(2.0L)) / 2 < p ? low : high) = mid;
  }
  return (low + high) / 2;
}

// P(a, x) by its power series, whose terms are all positive.
real incomplete_gamma(real a, real x) {
  if (!(a >= 0 && x >= 0) || (a == 0 && x == 0)) return NAN;
  if (a == 0 || x == 0) return a == 0;
  real term = 1, sum = 1;
  for (int n = 1; n < 5000 && term > sum * 1e-21L; ++n) sum += term *= x / (a + n);
  return sum * std::exp(a * std::log(x) - x - std::lgamma(a + 1));
}

// ------------------------------------------------------------- real numbers

real python_modulo(real a, real b) {
  real r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

real python_divide(real a, real b) {
  if (b == 0) return a / b;
  real r = std::fmod(a, b), q = (a - r) / b;
  if (r != 0 && (r < 0) != (b < 0)) q -= 1;
  return std::nearbyint(q);
}

real op_real(unsigned op, unsigned type, real a, real b, real c) {
  switch (op) {
    case FL_OP_ADD:
      return a + b;
    case FL_OP_SUB:
      return a - b;
    case FL_OP_MUL:
      return a * b;
    case FL_OP_DIV:
      return a / b;
    case FL_OP_DIV_TRUNC:
      return std::trunc(rounded(type, Number::floating(a / b)).re);
    case FL_OP_DIV_FLOOR:
      return python_divide(a, b);
    case FL_OP_REM_TRUNC:
      return std::fmod(a, b);
    case FL_OP_REM_FLOOR:
      return python_modulo(a, b);
    case FL_OP_POW:
      return std::pow(a, b);
    case FL_OP_MAX:
      return std::isnan(a) ? a : std::isnan(b) ? b : std::max(a, b);
    case FL_OP_MIN:
      return std::isnan(a) ? a : std::isnan(b) ? b : std::min(a, b);
    case FL_OP_FMAX:
      return std::isnan(a) ? b : std::isnan(b) ? a : std::max(a, b);
    case FL_OP_FMIN:
      return std::isnan(a) ? b : std::isnan(b) ? a : std::min(a, b);
    case FL_OP_NEG:
      return -a;
    case FL_OP_ABS:
      return std::fabs(a);
    case FL_OP_SIGN:
      return (a > 0) - (a < 0);
    case FL_OP_FLOOR:
      return std::floor(a);
    case FL_OP_CEIL:
      return std::ceil(a);
    case FL_OP_TRUNC:
      return std::trunc(a);
    case FL_OP_ROUND:
      return std::nearbyint(a);
    case FL_OP_SQRT:
      return std::sqrt(a);
    case FL_OP_RSQRT:
      return 1 / std::sqrt(a);
    case FL_OP_RECIPROCAL:
      return 1 / a;
    case FL_OP_EXP:
      return std::exp(a);
    case FL_OP_EXP2:
      return std::exp2(a);
    case FL_OP_EXPM1:
      return std::expm1(a);
    case FL_OP_LOG:
      return std::log(a);
    case FL_OP_LOG2:
      return std::log2(a);
    case FL_OP_LOG10:
      return std::log10(a);
    case FL_OP_LOG1P:
      return std::log1p(a);
    case FL_OP_SIN:
      return std::sin(a);
    case FL_OP_COS:
      return std::cos(a);
    case FL_OP_TAN:
      return std::tan(a);
    case FL_OP_ASIN:
      return std::asin(a);
    case FL_OP_ACOS:
      return std::acos(a);
    case FL_OP_ATAN:
      return std::atan(a);
    case FL_OP_SINH:
      return std::sinh(a);
    case FL_OP_COSH:
      return std::cosh(a);
    case FL_OP_TANH:
      return std::tanh(a);
    case FL_OP_ASINH:
      return std::asinh(a);
    case FL_OP_ACOSH:
      return std::acosh(a);
    case FL_OP_ATANH:
      return std::atanh(a);
    case FL_OP_ATAN2:
      return std::atan2(a, b);
    case FL_OP_HYPOT:
      return std::hypot(a, b);
    case FL_OP_COPYSIGN:
      return std::copysign(a, b);
    case FL_OP_NEXTAFTER:
      return type == FL_F32 ? real(std::nextafter(static_cast<float>(a), static_cast<float>(b)))
                            : real(std::nextafter(static_cast<double>(a), static_cast<double>(b)));
    case FL_OP_SIGMOID:
      return 1 / (1 + std::exp(-a));
    case FL_OP_ERF:
      return std::erf(a);
    case FL_OP_ERFC:
      return std::erfc(a);
    case FL_OP_ERFINV:
      return erfinv(a);
    case FL_OP_LGAMMA:
      return std::lgamma(a);
    case FL_OP_DIGAMMA:
      return digamma(a);
    case FL_OP_TRIGAMMA:
      return zeta(2, a);
    case FL_OP_I0:
      return bessel(0, a);
    case FL_OP_I0E:
      return bessel(0, a) * std::exp(-std::fabs(a));
    case FL_OP_I1:
      return bessel(1, a);
    case FL_OP_I1E:
      return bessel(1, a) * std::exp(-std::fabs(a));
    case FL_OP_NDTRI:
      return ndtri(a);
    case FL_OP_LOG_NDTR:
      return a > 1 ? std::log1p(-std::erfc(a / std::sqrt(2.0L)) / 2)
                   : std::log(std::erfc(-a / std::sqrt(2.0L)) / 2);
    case FL_OP_ERFCX:
      return std::exp(a * a) * std::erfc(a);
    case FL_OP_ZETA:
      return zeta(a, b);
    case FL_OP_IGAMMA:
      return incomplete_gamma(a, b);
    case FL_OP_IGAMMAC:
      return 1 - incomplete_gamma(a, b);
    case FL_OP_ANGLE:
      return std::isnan(a) ? a : std::signbit(a) && a != 0 ? kPi : 0;
    case FL_OP_FREXP_MANTISSA: {
      int e;
      return std::frexp(a, &e);
    }
    case FL_OP_FREXP_EXPONENT: {
      int e = 0;
      std::frexp(a, &e);
      return e;
    }
    case FL_OP_LDEXP:
      return std::ldexp(a, static_cast<int>(b));
    case FL_OP_FMA:
      return a * b + c;
    default:
      stop("the kit has no reference for %s of a real type", op_name(op));
  }
}

// ---------------------------------------------------------------- integers

int64_t integer_power(int64_t a, int64_t b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
  uint64_t r = 1, x = static_cast<uint64_t>(a);
  for (uint64_t n = static_cast<uint64_t>(b); n; n >>= 1, x *= x)
    if (n & 1) r *= x;
  return static_cast<int64_t>(r);
}

int64_t op_integer(unsigned op, unsigned type, int64_t a, int64_t b) {
  uint64_t u = static_cast<uint64_t>(a), v = static_cast<uint64_t>(b);
  int width = type == FL_I32 ? 32 : 64;
  auto quotient = [&] { return b == -1 ? static_cast<int64_t>(0 - u) : a / b; };
  auto rest = [&] { return b == -1 ? 0 : a % b; };
  auto uneven = [&] { return rest() != 0 && (rest() < 0) != (b < 0); };
  bool boolean = type == FL_BOOL;
  switch (op) {
    case FL_OP_ADD:
      return static_cast<int64_t>(u + v);
    case FL_OP_SUB:
      return static_cast<int64_t>(u - v);
    case FL_OP_MUL:
      return static_cast<int64_t>(u * v);
    case FL_OP_DIV_TRUNC:
      return quotient();
    case FL_OP_DIV_FLOOR:
      return quotient() - uneven();
    case FL_OP_REM_TRUNC:
      return rest();
    case FL_OP_REM_FLOOR:
      return rest() + (uneven() ? b : 0);
    case FL_OP_POW:
      return integer_power(a, b);
    case FL_OP_MAX:
      return std::max(a, b);
    case FL_OP_MIN:
      return std::min(a, b);
    case FL_OP_AND:
      return a & b;
    case FL_OP_OR:
      return a | b;
    case FL_OP_XOR:
      return a ^ b;
    case FL_OP_NOT:
      return boolean ? !a : ~a;
    case FL_OP_SHL:
      return b < 0 || b >= width ? 0 : static_cast<int64_t>(u << b);
    case FL_OP_SHR:
      return b < 0 || b >= width ? (a < 0 ? -1 : 0) : a >> b;
    case FL_OP_NEG:
      return static_cast<int64_t>(0 - u);
    case FL_OP_ABS:
      return a < 0 ? static_cast<int64_t>(0 - u) : a;
    case FL_OP_SIGN:
      return (a > 0) - (a < 0);
    case FL_OP_GCD: {
      uint64_t x = a < 0 ? 0 - u : u, y = b < 0 ? 0 - v : v;
      while (y) x %= y, std::swap(x, y);
      return static_cast<int64_t>(x);
    }
    default:
      stop("the kit has no reference for %s of an integer type", op_name(op));
  }
}

// ----------------------------------------------------------------- complex

complex_real op_complex(unsigned op, complex_real a, complex_real b, complex_real c) {
  switch (op) {
    case FL_OP_ADD:
      return a + b;
    case FL_OP_SUB:
      return a - b;
    case FL_OP_MUL:
      return a * b;
    case FL_OP_DIV:
      return a / b;
    case FL_OP_POW:
      return std::pow(a, b);
    case FL_OP_NEG:
      return -a;
    case FL_OP_ABS:
      return std::abs(a);
    case FL_OP_SIGN:
      return a == complex_real(0) ? a : a / std::abs(a);
    case FL_OP_SQRT:
      return std::sqrt(a);
    case FL_OP_RSQRT:
      return real(1) / std::sqrt(a);
    case FL_OP_RECIPROCAL:
      return real(1) / a;
    case FL_OP_EXP:
      return std::exp(a);
    case FL_OP_EXP2:
      return std::exp(a * std::log(2.0L));
    case FL_OP_EXPM1:
      return std::exp(a) - real(1);
    case FL_OP_LOG:
      return std::log(a);
    case FL_OP_LOG2:
      return std::log(a) / std::log(2.0L);
    case FL_OP_LOG10:
      return std::log(a) / std::log(10.0L);
    case FL_OP_LOG1P:
      return std::log(real(1) + a);
    case FL_OP_SIN:
      return std::sin(a);
    case FL_OP_COS:
      return std::cos(a);
    case FL_OP_TAN:
      return std::tan(a);
    case FL_OP_ASIN:
      return std::asin(a);
    case FL_OP_ACOS:
      return std::acos(a);
    case FL_OP_ATAN:
      return std::atan(a);
    case FL_OP_SINH:
      return std::sinh(a);
    case FL_OP_COSH:
      return std::cosh(a);
    case FL_OP_TANH:
      return std::tanh(a);
    case FL_OP_ASINH:
      return std::asinh(a);
    case FL_OP_ACOSH:
      return std::acosh(a);
    case FL_OP_ATANH:
      return std::atanh(a);
    case FL_OP_SIGMOID:
      return real(1) / (real(1) + std::exp(-a));
    case FL_OP_REAL:
      return a.real();
    case FL_OP_IMAG:
      return a.imag();
    case FL_OP_CONJ:
      return std::conj(a);
    case FL_OP_COMPLEX:
      return {a.real(), b.real()};
    case FL_OP_ANGLE:
      return std::arg(a);
    case FL_OP_FMA:
      return a * b + c;
    default:
      stop("the kit has no reference for %s of a complex type", op_name(op));
  }
}

bool compare(unsigned op, unsigned type, Number a, Number b) {
  if (is_complex(type)) return op == FL_OP_NE ? a.c() != b.c() : a.c() == b.c();
  real x = is_integer(type) ? 0 : a.re, y = is_integer(type) ? 0 : b.re;
  int64_t i = is_integer(type) ? a.i : 0, j = is_integer(type) ? b.i : 0;
  switch (op) {
    case FL_OP_EQ:
      return x == y && i == j;
    case FL_OP_NE:
      return x != y || i != j;
    case FL_OP_LT:
      return x < y || i < j;
    case FL_OP_LE:
      return x <= y && i <= j;
    case FL_OP_GT:
      return x > y || i > j;
    default:
      return x >= y && i >= j;
  }
}

}  // namespace

bool is_comparison(unsigned op) { return op >= FL_OP_EQ && op <= FL_OP_GE; }
unsigned operand_count(unsigned op) { return kOpcodes[op].operands; }
const char* op_name(unsigned op) { return op < FL_OP_COUNT ? kOpcodes[op].name : "?"; }
bool is_computed(unsigned op) { return op >= FL_OP_SELECT && op < FL_OP_COUNT && op != FL_OP_CONST; }
bool op_mandatory(unsigned op) { return kOpcodes[op].mandatory; }

bool reference_has(unsigned op, unsigned type) {
  bool integer = type == FL_I32 || type == FL_I64, floats = type == FL_F32 || type == FL_F64;
  bool ordered = op == FL_OP_MAX || op == FL_OP_MIN || (op >= FL_OP_LT && op <= FL_OP_GE);
  if (ordered && is_complex(type)) return false;  // complex numbers have no order
  switch (kOpcodes[op].types) {
    case 'R':
      return integer || floats;
    case 'I':
      return integer || type == FL_BOOL;
    case 'J':
      return integer;
    case 'F':
      return floats || is_complex(type);
    case 'G':
      return floats;
    case 'C':
      return is_complex(type);
    default:
      return true;
  }
}

Number reference_op(unsigned op, unsigned type, Number a, Number b, Number c) {
  if (is_comparison(op)) return Number::integer(compare(op, type, a, b));
  if (op == FL_OP_SELECT) return a.i ? b : c;
  if (is_integer(type)) return rounded(type, Number::integer(op_integer(op, type, a.i, b.i)));
  if (is_complex(type)) return Number::complex(op_complex(op, a.c(), b.c(), c.c()));
  return Number::floating(op_real(op, type, a.re, b.re, c.re));
}

void reference_program(const fl_program* program, const fl_scalar* scalars, const std::vector<Number>& inputs,
                       const std::vector<int64_t>& at, const std::vector<int64_t>& sizes,
                       std::vector<Number>& outputs) {
  std::vector<Number> r(program->n_code);
  outputs.resize(program->n_outputs);
  auto from_bits = [](const fl_scalar& s, unsigned type) {
    if (is_integer(type)) return rounded(type, Number::integer(s.v.i));
    return rounded(type, Number::complex({s.v.f, is_complex(type) ? s.imag : 0}));
  };
  for (unsigned i = 0; i < program->n_code; ++i) {
    const fl_instr& o = program->code[i];
    switch (o.op) {
      case FL_OP_LOAD:
        r[i] = converted(inputs[o.a], o.memory, o.type);
        break;
      case FL_OP_STORE:
        outputs[o.b] = o.memory == o.type ? r[o.a] : converted(r[o.a], o.type, o.memory);
        break;
      case FL_OP_SCALAR:
        r[i] = from_bits(scalars[o.a], o.type);
        break;
      case FL_OP_CONST: {
        fl_scalar s{};
        s.v.i = static_cast<int64_t>(o.a | uint64_t{o.b} << 16 | uint64_t{o.c} << 32 |
                                     uint64_t{o.reserved} << 48);
        r[i] = from_bits(s, o.type);
        break;
      }
      case FL_OP_INDEX: {
        int64_t number = 0;
        for (size_t d = 0; d < at.size(); ++d) number = number * sizes[d] + at[d];
        r[i] = rounded(o.type, Number::integer(o.a == 0xffff ? number : at[o.a]));
        break;
      }
      case FL_OP_CAST:
        r[i] = converted(r[o.a], o.memory, o.type);
        break;
      default: {
        unsigned n = operand_count(o.op);
        r[i] = reference_op(o.op, o.type, r[o.a], n > 1 ? r[o.b] : Number(), n > 2 ? r[o.c] : Number());
      }
    }
  }
}

RandomWords reference_random(uint64_t seed, uint64_t offset, uint64_t i) {
  auto block = [&](uint64_t number, uint32_t (&x)[4]) {
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    x[0] = static_cast<uint32_t>(number), x[1] = static_cast<uint32_t>(number >> 32), x[2] = x[3] = 0;
    for (int round = 0; round < 10; ++round) {
      uint64_t p = uint64_t{0xD2511F53} * x[0], q = uint64_t{0xCD9E8D57} * x[2];
      uint32_t y[4] = {static_cast<uint32_t>(q >> 32) ^ x[1] ^ k0, static_cast<uint32_t>(q),
                       static_cast<uint32_t>(p >> 32) ^ x[3] ^ k1, static_cast<uint32_t>(p)};
      memcpy(x, y, sizeof x);
      k0 += 0x9E3779B9, k1 += 0xBB67AE85;
    }
  };
  RandomWords w;
  uint32_t x[4];
  block(offset + i / 4, x);
  w.word = x[i % 4];
  w.pair[0] = x[i % 4 / 2 * 2], w.pair[1] = x[i % 4 / 2 * 2 + 1];
  block(offset + i / 2, x);
  for (int k = 0; k < 2; ++k) w.wide[k] = x[2 * k] | uint64_t{x[2 * k + 1]} << 32;
  return w;
}

}  // namespace kit
