// Numbers as they lie in memory, independently of the chip's own conversions, and layouts.
#pragma once

#include <complex>
#include <random>
#include <type_traits>

#include "sim_test.h"

namespace sim_test {

using Cx = std::complex<double>;
inline std::mt19937_64 rng(1234);

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
      if (size > limit || (size == limit && (largest & 1)))
        return uz ? top : fn ? sign | (top - 1) : sign | (largest + 1);
    } else {
      double below = size - decode(low), above = decode(low + 1) - size;
      if (above < below || (above == below && (low & 1))) ++low;
    }
    return uz && low == 0 ? 0 : sign | low;
  }
};
inline Format format_of(int dtype) {
  switch (dtype) {
    case FL_F16:
      return {16, 10, 15, false, false};
    case FL_BF16:
      return {16, 7, 127, false, false};
    case FL_F8_E4M3FN:
      return {8, 3, 7, true, false};
    case FL_F8_E5M2:
      return {8, 2, 15, false, false};
    case FL_F8_E4M3FNUZ:
      return {8, 3, 8, true, true};
    default:
      return {8, 2, 16, true, true};
  }
}

inline Number get(int dtype, const char* p) {
  Number n;
  auto integer = [&](auto x) {
    std::memcpy(&x, p, sizeof x);
    n.integer = true, n.i = uint64_t(int64_t(x));
    n.c = Cx(double(x));
  };
  switch (dtype) {
    case FL_BOOL:
    case FL_U8:
      integer(uint8_t{});
      break;
    case FL_I8:
      integer(int8_t{});
      break;
    case FL_U16:
      integer(uint16_t{});
      break;
    case FL_I16:
      integer(int16_t{});
      break;
    case FL_U32:
      integer(uint32_t{});
      break;
    case FL_I32:
      integer(int32_t{});
      break;
    case FL_I64:
      integer(int64_t{});
      break;
    case FL_U64:
      integer(uint64_t{});
      n.is_unsigned = true;
      break;
    case FL_F32: {
      float f;
      std::memcpy(&f, p, 4);
      n.c = f;
      break;
    }
    case FL_F64: {
      double f;
      std::memcpy(&f, p, 8);
      n.c = f;
      break;
    }
    case FL_C64: {
      float f[2];
      std::memcpy(f, p, 8);
      n.c = Cx(f[0], f[1]);
      break;
    }
    case FL_C128: {
      double f[2];
      std::memcpy(f, p, 16);
      n.c = Cx(f[0], f[1]);
      break;
    }
    case FL_C32: {
      uint16_t h[2];
      std::memcpy(h, p, 4);
      n.c = Cx(format_of(FL_F16).decode(h[0]), format_of(FL_F16).decode(h[1]));
      break;
    }
    case FL_F16:
    case FL_BF16: {
      uint16_t h;
      std::memcpy(&h, p, 2);
      n.c = format_of(dtype).decode(h);
      break;
    }
    default:
      n.c = format_of(dtype).decode(uint8_t(*p));
  }
  return n;
}

// [PGM-1]
inline void put(int dtype, Number n, char* p) {
  double re = n.c.real();
  // Integers become floats in one rounding to F32, then another where that is not the end.
  float single = n.integer ? (n.is_unsigned ? float(n.i) : float(int64_t(n.i))) : float(re);
  float single_imag = float(n.c.imag());
  auto integer = [&](auto x) {
    using T = decltype(x);
    x = n.integer                     ? T(n.i)
        : std::is_same_v<T, uint64_t> ? T(re < 0 ? uint64_t(int64_t(re)) : uint64_t(re))
                                      : T(int64_t(re));
    std::memcpy(p, &x, sizeof x);
  };
  auto half = [&](float f, char* to) {
    auto h = uint16_t(format_of(FL_F16).encode(f));
    std::memcpy(to, &h, 2);
  };
  switch (dtype) {
    case FL_BOOL:
      *p = n.integer ? n.i != 0 : n.c != Cx(0);
      break;
    case FL_U8:
      integer(uint8_t{});
      break;
    case FL_I8:
      integer(int8_t{});
      break;
    case FL_U16:
      integer(uint16_t{});
      break;
    case FL_I16:
      integer(int16_t{});
      break;
    case FL_U32:
      integer(uint32_t{});
      break;
    case FL_I32:
      integer(int32_t{});
      break;
    case FL_I64:
      integer(int64_t{});
      break;
    case FL_U64:
      integer(uint64_t{});
      break;
    case FL_F32:
      std::memcpy(p, &single, 4);
      break;
    case FL_F64: {
      double d = n.integer && n.is_unsigned ? double(n.i) : n.integer ? double(int64_t(n.i)) : re;
      std::memcpy(p, &d, 8);
      break;
    }
    case FL_C64: {
      float f[2] = {single, single_imag};
      std::memcpy(p, f, 8);
      break;
    }
    case FL_C128: {
      double f[2] = {n.integer ? (n.is_unsigned ? double(n.i) : double(int64_t(n.i))) : re, n.c.imag()};
      std::memcpy(p, f, 16);
      break;
    }
    case FL_C32:
      half(single, p), half(single_imag, p + 2);
      break;
    case FL_F16:
      half(single, p);
      break;
    case FL_BF16: {
      auto h = uint16_t(format_of(dtype).encode(single));
      std::memcpy(p, &h, 2);
      break;
    }
    default:
      *p = char(format_of(dtype).encode(single));
  }
}

inline bool is_complex(int d) { return d == FL_C32 || d == FL_C64 || d == FL_C128; }
inline bool is_integer(int d) { return d <= FL_I64; }

inline bool same(int dtype, const char* a, const char* b) {
  if (std::memcmp(a, b, bytes_of(dtype)) == 0) return true;
  if (is_integer(dtype)) return false;
  Number x = get(dtype, a), y = get(dtype, b);
  auto equal = [](double u, double v) {
    return (std::isnan(u) && std::isnan(v)) || (u == v && std::signbit(u) == std::signbit(v));
  };
  return equal(x.c.real(), y.c.real()) && equal(x.c.imag(), y.c.imag());
}

// A number that `to` can hold as well.
inline Number sample(int from, int to, int k) {
  static const double special[] = {
      0.0,   -0.0,  1,     -1,   0.5,  -2.5,     100.75,    240, 448,  464,
      57344, 61440, 65504, 1e-8, 6e-5, HUGE_VAL, -HUGE_VAL, NAN, 1e30, 0.0009765625 + 1e-9,
      3.3e-7};
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
    double spread = narrow ? double(int(rng() % 200)) -
                                 (to == FL_U8 || to == FL_U16 || to == FL_U32 || to == FL_U64 ? 0 : 100)
                           : std::ldexp(1.0, int(rng() % 36) - 20);
    return narrow ? spread + double(rng() % 8) / 8 - (spread < 0)
                  : spread * (double(rng() % 20001) / 10000 - 1);
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
    return {base + offset * int64_t(bytes_of(dtype)),
            sizes.data(),
            strides.data(),
            int32_t(sizes.size()),
            uint8_t(dtype),
            0,
            0};
  }
};
inline std::vector<Layout> layouts(int64_t a, int64_t b, int64_t c) {
  int64_t n = a * b * c;
  return {{"contiguous", {a, b, c}, {b * c, c, 1}, 0, n},
          {"transposed", {a, b, c}, {1, a, a * b}, 0, n},
          {"inner transposed", {a, b, c}, {b * c, 1, b}, 0, n},
          {"every second", {a, b, c}, {b * c * 2, c * 2, 2}, 1, 2 * n},
          {"reversed", {a, b, c}, {b * c, -c, -1}, b * c - 1, n},
          {"rows apart", {a, b, c}, {b * (c + 3), c + 3, 1}, 2, a * b * (c + 3) + 2}};
}
inline std::vector<Layout> broadcasts(int64_t a, int64_t b, int64_t c) {
  return {{"one value", {a, b, c}, {0, 0, 0}, 0, 1},
          {"a row", {a, b, c}, {0, 0, 1}, 0, c},
          {"a column", {a, b, c}, {0, 1, 0}, 0, b},
          {"a plane", {a, b, c}, {c, 0, 1}, 0, a * c}};
}

}  // namespace sim_test
