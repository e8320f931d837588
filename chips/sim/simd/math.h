// Functions that the compiler vectorises in a loop.
#pragma once

#include "simd/half.h"

namespace sim::SIM_ISA {

// Within 2 units in the last place; NaN stays NaN.
SIM_INLINE float exp_of(float x) {
  float y = x < -104.0f ? -104.0f : x;
  y = y > 89.0f ? 89.0f : y;
  // The addition rounds to an integer and leaves it in the mantissa's last bits.
  float shifted = fused(y, 1.44269504f, 12582912.0f);
  int32_t k = bit_cast<int32_t>(shifted) - 0x4b400000;
  float kf = shifted - 12582912.0f;
  float r = fused(kf, -0.693359375f, y);
  r = fused(kf, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = fused(p, r, 1.3981999507e-3f);
  p = fused(p, r, 8.3334519073e-3f);
  p = fused(p, r, 4.1665795894e-2f);
  p = fused(p, r, 1.6666665459e-1f);
  p = fused(p, r, 5.0000001201e-1f);
  p = fused(p * r, r, r) + 1.0f;
  // Two factors: 2^k alone leaves the range of float at both ends.
  int32_t half = k >> 1;
  return p * bit_cast<float>((half + 127) << 23) * bit_cast<float>((k - half + 127) << 23);
}
SIM_INLINE double exp_of(double x) { return __builtin_exp(x); }

// For 0 < x < infinity and normal; within 2 units in the last place (Cephes' logf).
SIM_INLINE float log_of(float x) {
  uint32_t bits = bit_cast<uint32_t>(x);
  // Mantissa in sqrt(1/2) … sqrt(2).
  int32_t e = int32_t(bits - 0x3f3504f3u) >> 23;
  float m = bit_cast<float>(bits - (uint32_t(e) << 23)) - 1.0f;
  float z = m * m, ef = float(e);
  float p = 7.0376836292e-2f;
  p = fused(p, m, -1.1514610310e-1f);
  p = fused(p, m, 1.1676998740e-1f);
  p = fused(p, m, -1.2420140846e-1f);
  p = fused(p, m, 1.4249322787e-1f);
  p = fused(p, m, -1.6668057665e-1f);
  p = fused(p, m, 2.0000714765e-1f);
  p = fused(p, m, -2.4999993993e-1f);
  p = fused(p, m, 3.3333331174e-1f);
  float y = p * m * z;
  y = fused(ef, -2.12194440e-4f, y);
  y = fused(-0.5f, z, y);
  return fused(ef, 0.693359375f, m + y);
}

}  // namespace sim::SIM_ISA
