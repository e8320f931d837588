// The four float8 dtypes to float and back, rounding to nearest even.
#pragma once

#include "simd/half.h"

namespace sim::SIM_ISA {

// exponent bits, mantissa bits, bias; FN: no infinity; UZ: no negative zero, one NaN (0x80).
template <int M, int kBias, bool kFn, bool kUz>
struct Float8 {
  static constexpr int kNan = kUz ? 0x80 : 0x7f;
  static constexpr int kLargest = kUz ? 0x7f : kFn ? 0x7e : 0x7b;
  static constexpr int kOverflow = kUz ? 0x80 : kFn ? 0x7f : 0x7c;

  static float decode(uint8_t bits) {
    int code = bits & 0x7f;
    if (kUz && bits == 0x80) return __builtin_nanf("");
    if (!kUz && kFn && code == 0x7f) return __builtin_nanf("");
    if (!kFn && !kUz && code > 0x7b)
      return code == 0x7c ? (bits & 0x80 ? -__builtin_inff() : __builtin_inff()) : __builtin_nanf("");
    int exponent = code >> M, mantissa = code & ((1 << M) - 1);
    float value = exponent ? __builtin_ldexpf(float(mantissa + (1 << M)), exponent - kBias - M)
                           : __builtin_ldexpf(float(mantissa), 1 - kBias - M);
    return bits & 0x80 ? -value : value;
  }
  static uint8_t encode(float f) {
    uint32_t bits = bit_cast<uint32_t>(f);
    int sign = int(bits >> 24 & 0x80);
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return uint8_t(kUz ? kNan : kNan | sign);
    int exponent = int(magnitude >> 23) - 127;
    int code;
    if (exponent > 127) {
      code = kLargest + 1;
    } else {
      if (exponent < 1 - kBias) exponent = 1 - kBias;
      // In units of the last place, exactly; then to nearest even.
      float units = __builtin_rintf(__builtin_ldexpf(bit_cast<float>(magnitude), M - exponent));
      code = ((exponent + kBias - 1) << M) + int(units);
    }
    if (code > kLargest) return uint8_t(kUz ? kOverflow : kOverflow | sign);
    return uint8_t(kUz && code == 0 ? 0 : code | sign);
  }
  static void widen(int64_t n, const char* from, int64_t stride, void* to_) {
    auto* to = static_cast<float*>(to_);
    for (int64_t i = 0; i < n; ++i, from += stride) to[i] = decode(uint8_t(*from));
  }
  static void narrow(int64_t n, const void* from_, char* to, int64_t stride) {
    auto* from = static_cast<const float*>(from_);
    for (int64_t i = 0; i < n; ++i, to += stride) *to = char(encode(from[i]));
  }
};

}  // namespace sim::SIM_ISA
