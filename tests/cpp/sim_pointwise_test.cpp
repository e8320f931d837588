// The sim chip's copies, fills and pointwise programs against plain C, one opcode
// after the other, on odd sizes and strides.
#include <complex>
#include <functional>
#include <limits>
#include <memory>
#include <random>

#include "sim_test.h"

using namespace sim_test;

namespace {

const fl_chip* chip;
using i128 = __int128;
using Cx = std::complex<double>;
std::mt19937_64 rng(1234);

// --------------------------------------------------- numbers as they lie in memory

// What any dtype can hold: an integer, or a complex number.
struct Number {
  bool integer = false;
  uint64_t i = 0;  // two's complement; U64: unsigned
  bool is_unsigned = false;
  Cx c;
};

// f in a format of `m` mantissa bits and this bias, rounded to nearest even, by
// search among all codes of the format.
struct Format {
  int bits, m, bias;
  bool fn, uz;  // no infinity; one NaN and no negative zero
  double decode(uint32_t code) const {
    uint32_t sign = code >> (bits - 1), body = code & ((1u << (bits - 1)) - 1);
    int exponent_bits = bits - 1 - m, exponent = int(body >> m);
    uint32_t mantissa = body & ((1u << m) - 1);
    if (uz && sign && body == 0) return std::nan("");
    if (fn && !uz && body == (1u << (bits - 1)) - 1) return std::nan("");
    if (!fn && !uz && exponent == (1 << exponent_bits) - 1)
      return mantissa ? std::nan("") : sign ? -HUGE_VAL : HUGE_VAL;
    double value = exponent ? std::ldexp(double(mantissa + (1u << m)), exponent - bias - m)
                            : std::ldexp(double(mantissa), 1 - bias - m);
    return sign ? -value : value;
  }
  uint32_t encode(double f) const {
    uint32_t top = 1u << (bits - 1);
    uint32_t sign = std::signbit(f) ? top : 0;
    uint32_t nan = uz ? top : fn ? top - 1 : ((1u << (bits - 1 - m)) - 1) << m | 1u << (m - 1);
    if (std::isnan(f)) return nan;
    double size = std::fabs(f);
    uint32_t largest = 0;
    for (uint32_t code = top - 1;; --code)
      if (std::isfinite(decode(code))) {
        largest = code;
        break;
      }
    uint32_t low = 0, high = largest + 1;  // decode(low) <= size, the first code that is larger
    while (high - low > 1) {
      uint32_t middle = (low + high) / 2;
      (decode(middle) <= size ? low : high) = middle;
    }
    if (low == largest) {
      double step = decode(largest) - decode(largest - 1);
      double limit = decode(largest) + step / 2;  // a tie: to even
      if (size > limit || (size == limit && (largest & 1))) return uz ? top : fn ? sign | (top - 1) : sign | (largest + 1);
    } else {
      double below = size - decode(low), above = decode(low + 1) - size;
      if (above < below || (above == below && (low & 1))) ++low;
    }
    return uz && low == 0 ? 0 : sign | low;
  }
};
Format format_of(int dtype) {
  switch (dtype) {
    case FL_F16: return {16, 10, 15, false, false};
    case FL_BF16: return {16, 7, 127, false, false};
    case FL_F8_E4M3FN: return {8, 3, 7, true, false};
    case FL_F8_E5M2: return {8, 2, 15, false, false};
    case FL_F8_E4M3FNUZ: return {8, 3, 8, true, true};
    default: return {8, 2, 16, true, true};
  }
}

Number get(int dtype, const char* p) {
  Number n;
  auto integer = [&](auto x) {
    std::memcpy(&x, p, sizeof x);
    n.integer = true, n.i = uint64_t(int64_t(x));
    n.c = Cx(double(x));
  };
  switch (dtype) {
    case FL_BOOL: case FL_U8: integer(uint8_t{}); break;
    case FL_I8: integer(int8_t{}); break;
    case FL_U16: integer(uint16_t{}); break;
    case FL_I16: integer(int16_t{}); break;
    case FL_U32: integer(uint32_t{}); break;
    case FL_I32: integer(int32_t{}); break;
    case FL_I64: integer(int64_t{}); break;
    case FL_U64: integer(uint64_t{}); n.is_unsigned = true; break;
    case FL_F32: { float f; std::memcpy(&f, p, 4); n.c = f; break; }
    case FL_F64: { double f; std::memcpy(&f, p, 8); n.c = f; break; }
    case FL_C64: { float f[2]; std::memcpy(f, p, 8); n.c = Cx(f[0], f[1]); break; }
    case FL_C128: { double f[2]; std::memcpy(f, p, 16); n.c = Cx(f[0], f[1]); break; }
    case FL_C32: {
      uint16_t h[2];
      std::memcpy(h, p, 4);
      n.c = Cx(format_of(FL_F16).decode(h[0]), format_of(FL_F16).decode(h[1]));
      break;
    }
    case FL_F16: case FL_BF16: { uint16_t h; std::memcpy(&h, p, 2); n.c = format_of(dtype).decode(h); break; }
    default: n.c = format_of(dtype).decode(uint8_t(*p));
  }
  return n;
}

// [PGM-1]
void put(int dtype, Number n, char* p) {
  double re = n.c.real();
  // Integers become floats in one rounding to F32, then another where that is not the end.
  float single = n.integer ? (n.is_unsigned ? float(n.i) : float(int64_t(n.i))) : float(re);
  float single_imag = float(n.c.imag());
  auto integer = [&](auto x) {
    using T = decltype(x);
    x = n.integer ? T(n.i) : std::is_same_v<T, uint64_t> ? T(re < 0 ? uint64_t(int64_t(re)) : uint64_t(re)) : T(int64_t(re));
    std::memcpy(p, &x, sizeof x);
  };
  auto half = [&](float f, char* to) {
    auto h = uint16_t(format_of(FL_F16).encode(f));
    std::memcpy(to, &h, 2);
  };
  switch (dtype) {
    case FL_BOOL: *p = n.integer ? n.i != 0 : n.c != Cx(0); break;
    case FL_U8: integer(uint8_t{}); break;
    case FL_I8: integer(int8_t{}); break;
    case FL_U16: integer(uint16_t{}); break;
    case FL_I16: integer(int16_t{}); break;
    case FL_U32: integer(uint32_t{}); break;
    case FL_I32: integer(int32_t{}); break;
    case FL_I64: integer(int64_t{}); break;
    case FL_U64: integer(uint64_t{}); break;
    case FL_F32: std::memcpy(p, &single, 4); break;
    case FL_F64: { double d = n.integer && n.is_unsigned ? double(n.i) : n.integer ? double(int64_t(n.i)) : re; std::memcpy(p, &d, 8); break; }
    case FL_C64: { float f[2] = {single, single_imag}; std::memcpy(p, f, 8); break; }
    case FL_C128: { double f[2] = {n.integer ? (n.is_unsigned ? double(n.i) : double(int64_t(n.i))) : re, n.c.imag()}; std::memcpy(p, f, 16); break; }
    case FL_C32: half(single, p), half(single_imag, p + 2); break;
    case FL_F16: half(single, p); break;
    case FL_BF16: { auto h = uint16_t(format_of(dtype).encode(single)); std::memcpy(p, &h, 2); break; }
    default: *p = char(format_of(dtype).encode(single));
  }
}

bool is_complex(int d) { return d == FL_C32 || d == FL_C64 || d == FL_C128; }
bool is_integer(int d) { return d <= FL_I64; }

bool same(int dtype, const char* a, const char* b) {
  if (std::memcmp(a, b, bytes_of(dtype)) == 0) return true;
  if (is_integer(dtype)) return false;
  Number x = get(dtype, a), y = get(dtype, b);
  auto equal = [](double u, double v) { return (std::isnan(u) && std::isnan(v)) || (u == v && std::signbit(u) == std::signbit(v)); };
  return equal(x.c.real(), y.c.real()) && equal(x.c.imag(), y.c.imag());
}

// A number that `to` can hold as well.
Number sample(int from, int to, int k) {
  static const double special[] = {0.0, -0.0, 1, -1, 0.5, -2.5, 100.75, 240, 448, 464, 57344, 61440, 65504, 1e-8, 6e-5,
                                   HUGE_VAL, -HUGE_VAL, NAN, 1e30, 0.0009765625 + 1e-9, 3.3e-7};
  constexpr int kSpecial = int(sizeof special / sizeof *special);
  Number n;
  if (is_integer(from)) {
    n.integer = true, n.is_unsigned = from == FL_U64;
    n.i = rng();
    if (k % 3 == 0) n.i = uint64_t(int64_t(rng() % 7) - 3);
    return n;
  }
  bool narrow = is_integer(to);  // out of range is unspecified
  auto one = [&](int j) {
    if (!narrow && j < kSpecial) return special[j];
    double spread = narrow ? double(int(rng() % 200)) - (to == FL_U8 || to == FL_U16 || to == FL_U32 || to == FL_U64 ? 0 : 100) : std::ldexp(1.0, int(rng() % 36) - 20);
    return narrow ? spread + double(rng() % 8) / 8 - (spread < 0) : spread * (double(rng() % 20001) / 10000 - 1);
  };
  n.c = is_complex(from) ? Cx(one(k), one(k / 2)) : Cx(one(k));
  if (narrow && n.c.real() < 0 && (to == FL_U8 || to == FL_U16 || to == FL_U32 || to == FL_U64)) n.c = 0;
  return n;
}

// ------------------------------------------------------------ layouts

struct Layout {
  const char* name;
  std::vector<int64_t> sizes, strides;
  int64_t offset, extent;  // of the first element; elements in all
  int64_t points() const {
    int64_t n = 1;
    for (int64_t s : sizes) n *= s;
    return n;
  }
  int64_t at(int64_t p) const {
    int64_t where = offset;
    for (size_t d = sizes.size(); d-- > 0; p /= sizes[d]) where += p % sizes[d] * strides[d];
    return where;
  }
  fl_tensor tensor(char* base, int dtype) const {
    return {base + offset * int64_t(bytes_of(dtype)), sizes.data(), strides.data(), int32_t(sizes.size()),
            uint8_t(dtype), 0, 0};
  }
};
std::vector<Layout> layouts(int64_t a, int64_t b, int64_t c) {
  int64_t n = a * b * c;
  return {{"contiguous", {a, b, c}, {b * c, c, 1}, 0, n},
          {"transposed", {a, b, c}, {1, a, a * b}, 0, n},
          {"inner transposed", {a, b, c}, {b * c, 1, b}, 0, n},
          {"every second", {a, b, c}, {b * c * 2, c * 2, 2}, 1, 2 * n},
          {"reversed", {a, b, c}, {b * c, -c, -1}, b * c - 1, n},
          {"rows apart", {a, b, c}, {b * (c + 3), c + 3, 1}, 2, a * b * (c + 3) + 2}};
}
std::vector<Layout> broadcasts(int64_t a, int64_t b, int64_t c) {
  return {{"one value", {a, b, c}, {0, 0, 0}, 0, 1},
          {"a row", {a, b, c}, {0, 0, 1}, 0, c},
          {"a column", {a, b, c}, {0, 1, 0}, 0, b},
          {"a plane", {a, b, c}, {c, 0, 1}, 0, a * c}};
}

// ---------------------------------------------------------------- copy, fill

void copies(Device& d) {
  for (int from = 1; from < FL_DTYPE_COUNT; ++from)
    for (int to = 1; to < FL_DTYPE_COUNT; ++to) {
      size_t fb = bytes_of(from), tb = bytes_of(to);
      auto sources = layouts(3, 5, 71);
      for (Layout& l : broadcasts(3, 5, 71)) sources.push_back(l);
      auto targets = layouts(3, 5, 71);
      for (size_t pair = 0; pair < sources.size(); ++pair) {
        const Layout& s = sources[pair];
        const Layout& t = targets[(pair + size_t(from)) % targets.size()];
        std::vector<char> data(size_t(s.extent) * fb), expected(size_t(t.extent) * tb, 0x55), start = expected;
        for (int64_t i = 0; i < s.extent; ++i) {
          Number n = sample(from, to, int(i));
          if (from == FL_BOOL) n.i &= 1;
          put(from, n, data.data() + size_t(i) * fb);
        }
        for (int64_t p = 0; p < s.points(); ++p) {
          const char* source = data.data() + size_t(s.at(p)) * fb;
          char* target = expected.data() + size_t(t.at(p)) * tb;
          if (from == to)
            std::memcpy(target, source, fb);
          else
            put(to, get(from, source), target);
        }
        Buffer a(d, data.data(), data.size()), b(d, start.data(), start.size());
        fl_copy_args args{s.tensor(a.address, from), t.tensor(b.address, to)};
        fl_launch launch = d.launch();
        CHECK_STATUS(chip->op->copy(&launch, &args), FL_OK);
        std::vector<char> got = b.values<char>(expected.size());
        for (size_t i = 0; i < size_t(t.extent); ++i)
          if (!same(to, got.data() + i * tb, expected.data() + i * tb)) {
            Number x = get(to, got.data() + i * tb), y = get(to, expected.data() + i * tb);
            std::printf("copy dtype %d (%s) to %d (%s): %g+%gi for %g+%gi\n", from, s.name, to, t.name, x.c.real(),
                        x.c.imag(), y.c.real(), y.c.imag());
            ++failures;
            break;
          }
      }
    }
  // Large enough for threads and tiles.
  for (int dtype : {FL_U8, FL_F16, FL_F32, FL_F64, FL_C128}) {
    int64_t sizes[2] = {517, 1031}, from_strides[2] = {1, 517}, to_strides[2] = {1031, 1};
    size_t bytes = bytes_of(dtype) * 517 * 1031;
    std::vector<char> data(bytes);
    for (char& c : data) c = char(rng());
    Buffer a(d, data.data(), bytes), b(d, bytes);
    fl_copy_args args{{a.address, sizes, from_strides, 2, uint8_t(dtype), 0, 0}, {b.address, sizes, to_strides, 2, uint8_t(dtype), 0, 0}};
    fl_launch launch = d.launch();
    CHECK_STATUS(chip->op->copy(&launch, &args), FL_OK);
    auto got = b.values<char>(bytes);
    bool right = true;
    size_t e = bytes_of(dtype);
    for (size_t i = 0; i < 517; ++i)
      for (size_t j = 0; j < 1031; ++j)
        right = right && std::memcmp(&got[(i * 1031 + j) * e], &data[(j * 517 + i) * e], e) == 0;
    CHECK(right);
  }
}

void fills(Device& d) {
  for (int dtype = 1; dtype < FL_DTYPE_COUNT; ++dtype)
    for (const Layout& l : layouts(3, 7, 131)) {
      size_t e = bytes_of(dtype);
      std::vector<char> expected(size_t(l.extent) * e, 0x33);
      Buffer b(d, expected.data(), expected.size());
      fl_fill_args args{l.tensor(b.address, dtype), {}};
      Number n;
      n.integer = is_integer(dtype);
      if (n.integer)
        args.value.v.i = dtype == FL_BOOL ? 1 : -5, n.i = uint64_t(args.value.v.i);
      else
        args.value.v.f = -1.375, n.c = -1.375;
      if (is_complex(dtype)) args.value.imag = 0.25, n.c = Cx(-1.375, 0.25);
      for (int64_t p = 0; p < l.points(); ++p) put(dtype, n, expected.data() + size_t(l.at(p)) * e);
      fl_launch launch = d.launch();
      CHECK_STATUS(chip->op->fill(&launch, &args), FL_OK);
      CHECK(b.values<char>(expected.size()) == expected);
    }
}

// ------------------------------------------------------------------- opcodes

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
  double ulps = 0;       // F32 and F64: units in the last place; < 0: relative error
  bool exact_f64 = true; // F64 is held to the same
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
  if (x < 0) { long double s = sinl(M_PIl * x); return M_PIl * M_PIl / (s * s) - trigamma(1 - x); }
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
long double bisect(std::function<long double(long double)> f, long double target, long double low, long double high) {
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

#define R1(e) [](long double a, long double, long double) -> long double { (void)a; return e; }
#define R2(e) [](long double a, long double b, long double) -> long double { (void)a; (void)b; return e; }
#define R3(e) [](long double a, long double b, long double c) -> long double { return e; }
#define I2(e) [](i128 a, i128 b, i128, int bits) -> i128 { (void)a; (void)b; (void)bits; return e; }
#define C1(e) [](Cx a, Cx, Cx) -> Cx { return e; }
#define C2(e) [](Cx a, Cx b, Cx) -> Cx { (void)b; return e; }

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
      {FL_OP_GCD, 2, nullptr, [](i128 a, i128 b, i128, int) -> i128 { a = a < 0 ? -a : a; b = b < 0 ? -b : b; while (b) { i128 r = a % b; a = b, b = r; } return a; }, nullptr},
      {FL_OP_REAL, 1, nullptr, nullptr, C1(a.real())},
      {FL_OP_IMAG, 1, nullptr, nullptr, C1(a.imag())},
      {FL_OP_CONJ, 1, nullptr, nullptr, C1(std::conj(a))},
      {FL_OP_COMPLEX, 2, nullptr, nullptr, C2(Cx(a.real(), b.real()))},
      {FL_OP_ANGLE, 1, R1(a != a ? a : a < 0 ? M_PIl : 0), nullptr, C1(std::arg(a)), {-10, 10}, 1},
      {FL_OP_FREXP_MANTISSA, 1, R1([&] { int e; return frexpl(a, &e); }()), nullptr, nullptr},
      {FL_OP_FREXP_EXPONENT, 1, R1([&] { int e; frexpl(a, &e); return e; }()), nullptr, nullptr},
      {FL_OP_LDEXP, 2, R2(a * exp2l(b)), nullptr, nullptr, {-10, 10}, 4},
      {FL_OP_FMA, 3, R3(a * b + c), nullptr, nullptr, {-10, 10}, -1e-5},
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
  if (std::fabs(expected) < std::numeric_limits<T>::min() && std::fabs(got) <= std::numeric_limits<T>::min()) return true;
  long double error = fabsl((long double)got - expected);
  if (ulps < 0) return error <= -(long double)ulps * fabsl(expected) + (long double)(-ulps) * 1e-1L * (fabsl(expected) < 1e-3L ? fabsl(expected) : 1e-3L);
  // The long double reference was itself rounded: half a unit may look like a little more.
  return ulps == 0 ? got == rounded || error <= 0.501L * ulp(rounded) : error <= (long double)ulps * ulp(rounded);
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
  if (++said < 200) std::printf("opcode %d, type %d (%s): %s, not %s\n", c.op, c.type, what, got.c_str(), expected.c_str());
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
    if (is_comparison(row.op))
      check(uint8_t{}, [](uint8_t g, long double e) { return g == (e != 0); });
    else
      check(T{}, [&](T g, long double e) { return close<T>(g, e, ulps); });
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
        if (k == 1 && (row.op == FL_OP_POW || row.op == FL_OP_SHL || row.op == FL_OP_SHR)) x = T(int64_t(rng() % 80) - 8);
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
          return complain(c, inputs[0].name, std::to_string(got[size_t(p)]) + " of " + std::to_string(v[0]) + " " + std::to_string(v[1]), std::to_string(expected));
      }
    };
    if (is_comparison(row.op)) check(uint8_t{}); else check(T{});
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
          return complain(c, inputs[0].name, std::to_string(x.real()) + " " + std::to_string(x.imag()), std::to_string(expected.real()) + " " + std::to_string(expected.imag()));
      }
    };
    if (is_comparison(row.op)) check(uint8_t{}); else check(T{});
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
  check_real<float>(d, {FL_OP_DIV_TRUNC, 2, R2(truncl((long double)(float(a) / float(b)))), nullptr, nullptr}, FL_F32);
  check_real<double>(d, {FL_OP_DIV_TRUNC, 2, R2(truncl((long double)(double(a) / double(b)))), nullptr, nullptr}, FL_F64);
  check_real<float>(d, {FL_OP_NEXTAFTER, 2, R2(std::nextafter(float(a), float(b))), nullptr, nullptr}, FL_F32);
  check_real<double>(d, {FL_OP_NEXTAFTER, 2, R2(std::nextafter(double(a), double(b))), nullptr, nullptr}, FL_F64);
  seen[FL_OP_NEXTAFTER] = true;
  for (int o : {FL_OP_LOAD, FL_OP_STORE, FL_OP_SCALAR, FL_OP_INDEX, FL_OP_CAST, FL_OP_SELECT, FL_OP_CONST}) seen[size_t(o)] = true;
  for (int o = 0; o < FL_OP_COUNT; ++o)
    if (!seen[size_t(o)]) std::printf("opcode %d is not tested\n", o), ++failures;
  // Every M opcode for every type it names, and what is claimed is what runs.
  struct Opcode { const char *types, *tier; };
  static const Opcode all[] = {
#define SIM_ROW(name, value, operands, types, tier, meaning) {#types, #tier},
      FL_OPCODE_MAP(SIM_ROW)
#undef SIM_ROW
  };
  for (int o = 0; o < FL_OP_COUNT; ++o)
    for (int type : {FL_BOOL, FL_I32, FL_I64, FL_F32, FL_F64, FL_C64, FL_C128}) {
      bool real = type == FL_F32 || type == FL_F64, cx = is_complex(type), integer = type == FL_I32 || type == FL_I64;
      char t = all[o].types[0];
      bool meant = t == 'N' || (t == 'R' && (real || integer)) || (t == 'I' && !real && !cx) || (t == 'J' && integer) ||
                   (t == 'F' && (real || cx)) || (t == 'G' && real) || (t == 'C' && cx);
      bool ordered = (o >= FL_OP_LT && o <= FL_OP_GE) || o == FL_OP_MAX || o == FL_OP_MIN;  // complex numbers are not
      if (claimed(o, type) != (meant && !(cx && ordered))) std::printf("opcode %d, type %d: a wrong claim\n", o, type), ++failures;
    }
}

// ---------------------------------------------------------------- programs

void programs(Device& d) {
  constexpr int64_t n = 5000;
  int64_t size = n, one = 1, zero = 0;
  std::vector<float> x(n), y(n);
  for (int64_t i = 0; i < n; ++i) x[size_t(i)] = float(i) * 0.25f - 300, y[size_t(i)] = float(i % 17) + 1;
  auto tensor = [&](Buffer& b, int dtype, bool broadcast = false) {
    return fl_tensor{b.address, &size, broadcast ? &zero : &one, 1, uint8_t(dtype), 0, 0};
  };
  auto launch = [&](const Program& p, std::vector<fl_tensor> in, std::vector<fl_tensor> out, std::vector<fl_scalar> s) {
    fl_launch l = d.launch();
    fl_pointwise_args args{&p.program, in.data(), out.data(), s.data()};
    return chip->op->pointwise(&l, &args);
  };
  {  // Two outputs over their own inputs, exchanged: [PTW-1], [PTW-2].
    Buffer a(d, x.data(), n * 4), b(d, y.data(), n * 4);
    Program swap({load(0, FL_F32, FL_F32), load(1, FL_F32, FL_F32), store(1, 0, FL_F32, FL_F32), store(0, 1, FL_F32, FL_F32)}, 2, 2, 0);
    CHECK_STATUS(launch(swap, {tensor(a, FL_F32), tensor(b, FL_F32)}, {tensor(a, FL_F32), tensor(b, FL_F32)}, {}), FL_OK);
    CHECK(a.values<float>(n) == y && b.values<float>(n) == x);
  }
  {  // An output written before the last read of its input.
    Buffer a(d, x.data(), n * 4), b(d, n * 4);
    Program p({load(0, FL_F32, FL_F32), op(FL_OP_NEG, FL_F32, 0), store(1, 0, FL_F32, FL_F32),
               op(FL_OP_ADD, FL_F32, 0, 1), op(FL_OP_ADD, FL_F32, 3, 0), store(4, 1, FL_F32, FL_F32)}, 1, 2, 0);
    CHECK_STATUS(launch(p, {tensor(a, FL_F32)}, {tensor(a, FL_F32), tensor(b, FL_F32)}, {}), FL_OK);
    auto r = a.values<float>(n), s = b.values<float>(n);
    CHECK(s == x);
    for (float& v : r) v = -v;
    CHECK(r == x);
  }
  {  // A chain with mixed storage, a scalar, a broadcast, a select and an index.
    std::vector<uint16_t> half(n);
    for (int64_t i = 0; i < n; ++i) half[size_t(i)] = uint16_t(format_of(FL_BF16).encode(x[size_t(i)]));
    Buffer a(d, half.data(), n * 2), b(d, y.data(), n * 4), c(d, n * 8), e(d, n * 2);
    fl_scalar s{};
    s.v.f = 0.5;
    Program p({load(0, FL_BF16, FL_F32), load(1, FL_F32, FL_F32), {FL_OP_SCALAR, FL_F32, 0, 0, 0, 0, 0},
               op(FL_OP_MUL, FL_F32, 0, 2), op(FL_OP_GT, FL_F32, 3, 1), op(FL_OP_SELECT, FL_F32, 4, 3, 1),
               {FL_OP_INDEX, FL_I64, 0, 0xffff, 0, 0, 0}, {FL_OP_CAST, FL_F64, FL_F32, 5, 0, 0, 0},
               {FL_OP_CAST, FL_F64, FL_I64, 6, 0, 0, 0}, op(FL_OP_ADD, FL_F64, 7, 8), store(9, 0, FL_F64, FL_F64),
               store(5, 1, FL_F16, FL_F32)}, 2, 2, 1);
    CHECK_STATUS(launch(p, {tensor(a, FL_BF16), tensor(b, FL_F32, true)}, {tensor(c, FL_F64), tensor(e, FL_F16)}, {s}), FL_OK);
    auto r = c.values<double>(n);
    auto h = e.values<uint16_t>(n);
    bool right = true;
    for (int64_t i = 0; i < n; ++i) {
      float v = float(format_of(FL_BF16).decode(half[size_t(i)])) * 0.5f;
      v = v > y[0] ? v : y[0];
      right = right && r[size_t(i)] == double(v) + double(i) && h[size_t(i)] == format_of(FL_F16).encode(v);
    }
    CHECK(right);
  }
  {  // Literals of each type.
    double f = -2.7182818284590452;
    int64_t i = -0x123456789abcdef;
    uint64_t bits;
    std::memcpy(&bits, &f, 8);
    auto literal = [](uint64_t b, uint8_t type) {
      return fl_instr{FL_OP_CONST, type, 0, uint16_t(b), uint16_t(b >> 16), uint16_t(b >> 32), uint16_t(b >> 48)};
    };
    Buffer a(d, n * 8), b(d, n * 4), c(d, n * 16), e(d, n * 8);
    Program p({literal(bits, FL_F64), literal(bits, FL_F32), literal(bits, FL_C128), literal(uint64_t(i), FL_I64),
               store(0, 0, FL_F64, FL_F64), store(1, 1, FL_F32, FL_F32), store(2, 2, FL_C128, FL_C128),
               store(3, 3, FL_I64, FL_I64)}, 0, 4, 0);
    CHECK_STATUS(launch(p, {}, {tensor(a, FL_F64), tensor(b, FL_F32), tensor(c, FL_C128), tensor(e, FL_I64)}, {}), FL_OK);
    CHECK(a.values<double>(n)[n - 1] == f && b.values<float>(n)[n - 1] == float(f) && c.values<Cx>(n)[n - 1] == Cx(f));
    CHECK(e.values<int64_t>(n)[n - 1] == i);
  }
  {  // SELECT, for each type's width; the condition is in memory.
    std::vector<uint8_t> yes(n);
    for (auto& v : yes) v = rng() & 1;
    for (int type : {FL_BOOL, FL_I32, FL_I64, FL_F32, FL_F64, FL_C64, FL_C128}) {
      size_t w = bytes_of(type);
      std::vector<char> u(n * w), v(n * w), expected(n * w);
      for (char& x : u) x = char(type == FL_BOOL ? 1 : rng() & 0x3f);
      for (char& x : v) x = char(type == FL_BOOL ? 0 : rng() & 0x3f);
      for (size_t k = 0; k < n; ++k) std::memcpy(&expected[k * w], yes[k] ? &u[k * w] : &v[k * w], w);
      Buffer a(d, yes.data(), n), b(d, u.data(), n * w), c(d, v.data(), n * w), e(d, n * w);
      Program p({load(0, FL_BOOL, FL_BOOL), load(1, uint8_t(type), uint8_t(type)), load(2, uint8_t(type), uint8_t(type)),
                 op(FL_OP_SELECT, uint8_t(type), 0, 1, 2), store(3, 0, uint8_t(type), uint8_t(type))}, 3, 1, 0);
      CHECK_STATUS(launch(p, {tensor(a, FL_BOOL), tensor(b, type), tensor(c, type)}, {tensor(e, type)}, {}), FL_OK);
      CHECK(e.values<char>(n * w) == expected);
    }
  }
  {  // Coordinates, whatever the strides.
    int64_t sizes[3] = {4, 6, 50}, strides[3] = {6, 1, 24};
    for (int dimension : {0, 1, 2, 0xffff}) {
      Buffer a(d, 1200 * 4);
      Program p({{FL_OP_INDEX, FL_I32, 0, uint16_t(dimension), 0, 0, 0}, store(0, 0, FL_I32, FL_I32)}, 0, 1, 0);
      fl_tensor t{a.address, sizes, strides, 3, FL_I32, 0, 0};
      CHECK_STATUS(launch(p, {}, {t}, {}), FL_OK);
      auto got = a.values<int32_t>(1200);
      bool right = true;
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 6; ++j)
          for (int k = 0; k < 50; ++k) {
            int expected = dimension == 0 ? i : dimension == 1 ? j : dimension == 2 ? k : (i * 6 + j) * 50 + k;
            right = right && got[size_t(i * 6 + j + k * 24)] == expected;
          }
      CHECK(right);
    }
  }
  {  // Integer division by zero is a fault; the stream goes on.
    std::vector<int32_t> values(n, 5), divisors(n, 2);
    divisors[4321] = 0;
    Buffer a(d, values.data(), n * 4), b(d, divisors.data(), n * 4);
    Program p({load(0, FL_I32, FL_I32), load(1, FL_I32, FL_I32), op(FL_OP_DIV_FLOOR, FL_I32, 0, 1), store(2, 0, FL_I32, FL_I32)}, 2, 1, 0);
    CHECK_STATUS(launch(p, {tensor(a, FL_I32), tensor(b, FL_I32)}, {tensor(a, FL_I32)}, {}), FL_OK);
    CHECK_STATUS(chip->stream->synchronize(d.stream, -1), FL_FAILED);
    fl_fault fault{};
    fault.size = sizeof fault;
    CHECK_STATUS(chip->stream->fault(d.stream, &fault), FL_OK);
    CHECK(std::strstr(fault.text, "division by zero"));
    d.sync();
  }
  // [PTW-3]
  for (auto bad : {Program({load(0, FL_C64, FL_C64), op(FL_OP_LT, FL_C64, 0, 0), store(1, 0, FL_BOOL, FL_BOOL)}, 1, 1, 0),
                   Program({load(0, FL_F32, FL_F32), op(FL_OP_AND, FL_F32, 0, 0), store(1, 0, FL_F32, FL_F32)}, 1, 1, 0),
                   Program({load(0, FL_F32, FL_F32), op(FL_OP_NEG, FL_F64, 0), store(1, 0, FL_F64, FL_F64)}, 1, 1, 0),
                   Program({load(0, FL_F32, FL_F32), op(250, FL_F32, 0), store(1, 0, FL_F32, FL_F32)}, 1, 1, 0),
                   Program({op(FL_OP_NEG, FL_F32, 5), store(0, 0, FL_F32, FL_F32)}, 0, 1, 0)}) {
    Program again = bad;
    again.program.code = again.code.data();
    Buffer a(d, n * 8), b(d, n * 8);
    CHECK_STATUS(launch(again, {tensor(a, FL_F32)}, {tensor(b, FL_F32)}, {}), FL_UNSUPPORTED);
  }
  {  // A long program with many live values, on threads.
    constexpr int64_t big = 300000;
    std::vector<double> v(big);
    for (int64_t i = 0; i < big; ++i) v[size_t(i)] = double(i % 1000) / 1000;
    Buffer a(d, v.data(), big * 8), b(d, big * 8);
    std::vector<fl_instr> code{load(0, FL_F64, FL_F64)};
    for (int i = 1; i <= 60; ++i) code.push_back(op(i % 2 ? FL_OP_ADD : FL_OP_MUL, FL_F64, i - 1, i / 2));
    for (int i = 61; i <= 119; ++i) code.push_back(op(FL_OP_SUB, FL_F64, i - 1, 119 - i));
    code.push_back(store(119, 0, FL_F64, FL_F64));
    Program p(code, 1, 1, 0);
    int64_t length = big;
    fl_tensor in{a.address, &length, &one, 1, FL_F64, 0, 0}, out{b.address, &length, &one, 1, FL_F64, 0, 0};
    CHECK_STATUS(launch(p, {in}, {out}, {}), FL_OK);
    auto got = b.values<double>(big);
    bool right = true;
    for (int64_t i = 0; i < big; ++i) {
      double t[120] = {v[size_t(i)]};
      for (int k = 1; k <= 60; ++k) t[k] = k % 2 ? t[k - 1] + t[k / 2] : t[k - 1] * t[k / 2];
      for (int k = 61; k <= 119; ++k) t[k] = t[k - 1] - t[119 - k];
      right = right && (got[size_t(i)] == t[119] || (std::isnan(got[size_t(i)]) && std::isnan(t[119])));
    }
    CHECK(right);
  }
}

// x -= rate × (g + decay × x) over tensors of many sizes; the rate is the item's own.
void multi_tensor(Device& d) {
  Program p({load(0, FL_F32, FL_F32), load(1, FL_F32, FL_F32), {FL_OP_SCALAR, FL_F32, 0, 0, 0, 0, 0},
             {FL_OP_SCALAR, FL_F32, 0, 1, 0, 0, 0}, op(FL_OP_MUL, FL_F32, 0, 2), op(FL_OP_ADD, FL_F32, 1, 4),
             op(FL_OP_MUL, FL_F32, 5, 3), op(FL_OP_SUB, FL_F32, 0, 6), store(7, 0, FL_F32, FL_F32)}, 2, 1, 2);
  constexpr int kItems = 3000;
  std::vector<std::vector<int64_t>> sizes(kItems), x_strides(kItems), g_strides(kItems);
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<fl_tensor> inputs, outputs;
  std::vector<fl_scalar> item_scalars(kItems);
  std::vector<std::vector<float>> expected(kItems);
  fl_scalar decay{};
  decay.v.f = 0.25;
  for (size_t i = 0; i < kItems; ++i) {
    int64_t a = 1 + int64_t(rng() % 5), b = i % 500 == 7 ? 30011 : 1 + int64_t(rng() % 60), n = a * b;
    sizes[i] = {a, b}, x_strides[i] = {b, 1}, g_strides[i] = i % 2 ? std::vector<int64_t>{b, 1} : std::vector<int64_t>{1, a};
    item_scalars[i].v.f = double(i % 8) / 8;
    std::vector<float> x(static_cast<size_t>(n)), g(static_cast<size_t>(n));
    for (float& v : x) v = float(rng() % 1000) / 8;
    for (float& v : g) v = float(rng() % 1000) / 8;
    for (int64_t r = 0; r < a; ++r)
      for (int64_t c = 0; c < b; ++c) {
        float v = x[size_t(r * b + c)];
        expected[i].push_back(v - (g[size_t(r * g_strides[i][0] + c * g_strides[i][1])] + v * 0.25f) * float(item_scalars[i].v.f));
      }
    buffers.push_back(std::make_unique<Buffer>(d, x.data(), x.size() * 4));
    outputs.push_back({buffers.back()->address, sizes[i].data(), x_strides[i].data(), 2, FL_F32, 0, 0});
    inputs.push_back(outputs.back());
    buffers.push_back(std::make_unique<Buffer>(d, g.data(), g.size() * 4));
    inputs.push_back({buffers.back()->address, sizes[i].data(), g_strides[i].data(), 2, FL_F32, 0, 0});
  }
  fl_multi_tensor_args args{&p.program, inputs.data(), outputs.data(), &decay, item_scalars.data(), kItems, 1};
  fl_launch l = d.launch();
  CHECK_STATUS(chip->op->multi_tensor(&l, &args), FL_OK);
  for (size_t i = 0; i < kItems; ++i) CHECK(buffers[2 * i]->values<float>(expected[i].size()) == expected[i]);
}

}  // namespace

int main(int argc, char** argv) {
  setenv("FL_SIM_MEMORY", "512M", 1);
  chip = load_chip(argc, argv);
  Device device(chip, 0);
  copies(device);
  fills(device);
  opcodes(device);
  programs(device);
  multi_tensor(device);
  return report("sim_pointwise_test");
}
