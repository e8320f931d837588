// float16 and bfloat16 to float and back, rounding to nearest even.
#pragma once

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "simd/lanes.h"

namespace sim::SIM_ISA {

struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};

template <class To, class From>
SIM_INLINE To bit_cast(From x) {
  static_assert(sizeof(To) == sizeof(From));
  To y;
  std::memcpy(&y, &x, sizeof y);
  return y;
}

SIM_INLINE float to_float(BFloat x) { return bit_cast<float>(uint32_t(x.bits) << 16); }
SIM_INLINE float to_float(Half x) {
#if defined(__F16C__)
  return _cvtsh_ss(x.bits);
#else
  uint32_t magnitude = uint32_t(x.bits & 0x7fff) << 13, sign = uint32_t(x.bits & 0x8000) << 16;
  // The exponent's bias put right by a multiplication, which also normalises subnormals.
  uint32_t finite = bit_cast<uint32_t>(bit_cast<float>(magnitude) * 0x1p112f);
  return bit_cast<float>((magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite) | sign);
#endif
}
SIM_INLINE BFloat to_bfloat(float f) {
  uint32_t bits = bit_cast<uint32_t>(f);
  uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return {uint16_t(f != f ? (bits >> 16) | 0x40 : rounded)};
}
SIM_INLINE Half to_half(float f) {
#if defined(__F16C__)
  return {uint16_t(_cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT))};
#else
  uint32_t bits = bit_cast<uint32_t>(f), sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
  uint32_t normal = (magnitude + 0xc8000fffu + ((magnitude >> 13) & 1)) >> 13;
  // Adding 0.5 leaves the subnormal's bits, rounded, at the end of the mantissa.
  uint32_t small = bit_cast<uint32_t>(bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  uint32_t result = magnitude < 0x38800000u ? small : normal;
  result = magnitude >= 0x47800000u ? 0x7c00u : result;
  result = magnitude > 0x7f800000u ? 0x7e00u | ((magnitude >> 13) & 0x3ff) : result;
  return {uint16_t(result | sign)};
#endif
}

#if defined(__AVX512F__)
constexpr __mmask16 kAll = 0xffff;  // the unmasked forms make gcc 12 warn about its own header
#endif

// Contiguous runs.  BFloat's loops vectorise by themselves.
SIM_INLINE void to_floats(const BFloat* from, float* __restrict to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = to_float(from[i]);
}
SIM_INLINE void from_floats(const float* from, BFloat* __restrict to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = to_bfloat(from[i]);
}
SIM_INLINE void to_floats(const Half* from, float* __restrict to, int64_t n) {
  int64_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= n; i += 16)
    _mm512_storeu_ps(
        to + i, _mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i))));
#elif defined(__F16C__)
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
#endif
  for (; i < n; ++i) to[i] = to_float(from[i]);
}
SIM_INLINE void from_floats(const float* from, Half* __restrict to, int64_t n) {
  int64_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= n; i += 16)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm512_maskz_cvtps_ph(kAll, _mm512_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#endif
  for (; i < n; ++i) to[i] = to_half(from[i]);
}

}  // namespace sim::SIM_ISA
