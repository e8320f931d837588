// The larger and the smaller of two vectors, and NaN.
#pragma once

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <type_traits>

#include "simd/lanes.h"

namespace sim::SIM_ISA {

// a > b ? a : b and a < b ? a : b, which the compiler makes no single instruction of.  b where either is NaN.
template <class V>
SIM_INLINE V larger(V a, V b) {
  return a > b ? a : b;
}
template <class V>
SIM_INLINE V smaller(V a, V b) {
  return a < b ? a : b;
}
#define SIM_EXTREMES(T, max_of, min_of)                                         \
  SIM_INLINE Vec<T> larger(Vec<T> a, Vec<T> b) { return Vec<T>(max_of(a, b)); } \
  SIM_INLINE Vec<T> smaller(Vec<T> a, Vec<T> b) { return Vec<T>(min_of(a, b)); }
#if defined(__AVX512F__)  // the unmasked forms make gcc 12 warn about its own header
#define SIM_MAX_F32(a, b) _mm512_maskz_max_ps(0xffff, a, b)
#define SIM_MIN_F32(a, b) _mm512_maskz_min_ps(0xffff, a, b)
#define SIM_MAX_F64(a, b) _mm512_maskz_max_pd(0xff, a, b)
#define SIM_MIN_F64(a, b) _mm512_maskz_min_pd(0xff, a, b)
SIM_EXTREMES(float, SIM_MAX_F32, SIM_MIN_F32)
SIM_EXTREMES(double, SIM_MAX_F64, SIM_MIN_F64)
#elif defined(__AVX2__)
SIM_EXTREMES(float, _mm256_max_ps, _mm256_min_ps)
SIM_EXTREMES(double, _mm256_max_pd, _mm256_min_pd)
#elif defined(__SSE2__)
SIM_EXTREMES(float, _mm_max_ps, _mm_min_ps)
SIM_EXTREMES(double, _mm_max_pd, _mm_min_pd)
#endif

// NaN where either is.
template <class V>
SIM_INLINE V maximum(V a, V b) {
  return a != a ? a : larger(a, b);
}
template <class V>
SIM_INLINE V minimum(V a, V b) {
  return a != a ? a : smaller(a, b);
}

// Has a NaN been among the vectors seen?  One comparison tests two.
template <class T>
class NanSeen {
 public:
  SIM_INLINE void see(Vec<T> a, Vec<T> b) {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4) bits_ |= _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
    else bits_ |= _mm512_cmp_pd_mask(a, b, _CMP_UNORD_Q);
#else
    bits_ |= (a != a) | (b != b);
#endif
  }
  SIM_INLINE bool any() const {
#if defined(__AVX512F__)
    return bits_ != 0;
#else
    for (int i = 0; i < lanes<T>; ++i)
      if (bits_[i]) return true;
    return false;
#endif
  }

 private:
#if defined(__AVX512F__)
  unsigned bits_ = 0;
#else
  decltype(Vec<T>{} != Vec<T>{}) bits_{};
#endif
};

}  // namespace sim::SIM_ISA
