#include "simd/random_kernels.h"

#include "simd/math.h"

namespace sim::SIM_ISA {
namespace {

SIM_INLINE uint32_t high(uint32_t a, uint32_t b) { return uint32_t((uint64_t(a) * b) >> 32); }

void words(uint64_t seed, uint64_t first, int64_t n, uint32_t* __restrict out) {
  const uint32_t seed_low = uint32_t(seed), seed_high = uint32_t(seed >> 32);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    uint64_t block = first + uint64_t(i);
    uint32_t a = uint32_t(block), b = uint32_t(block >> 32), c = 0, d = 0, k0 = seed_low, k1 = seed_high;
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      uint32_t low0 = 0xd2511f53u * a, high0 = high(0xd2511f53u, a);
      uint32_t low1 = 0xcd9e8d57u * c, high1 = high(0xcd9e8d57u, c);
      a = high1 ^ b ^ k0, c = high0 ^ d ^ k1;
      b = low1, d = low0;
      k0 += 0x9e3779b9u, k1 += 0xbb67ae85u;
    }
    out[4 * i] = a, out[4 * i + 1] = b, out[4 * i + 2] = c, out[4 * i + 3] = d;
  }
}

SIM_INLINE uint64_t wide(const uint32_t* w) { return w[0] | uint64_t(w[1]) << 32; }

void bits32(const uint32_t* w, int64_t n, int64_t* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = w[i];
}
void bits64(const uint32_t* w, int64_t n, int64_t* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = int64_t(wide(w + 2 * i));
}
void range32(const uint32_t* w, int64_t n, int64_t from, uint32_t span, int64_t* out) {
  // The quotient by way of double is off by at most one; a division would take ten times as long.
  const double inverse = 1.0 / double(span);
  const int64_t s = span;
  for (int64_t i = 0; i < n; ++i) {
    int64_t x = w[i], r = x - int64_t(double(x) * inverse) * s;
    r += r < 0 ? s : 0;
    r -= r >= s ? s : 0;
    out[i] = int64_t(uint64_t(from) + uint64_t(r));
  }
}
void range64(const uint32_t* w, int64_t n, int64_t from, uint64_t span, int64_t* out) {
  for (int64_t i = 0; i < n; ++i) {
    uint64_t x = wide(w + 2 * i);
    out[i] = int64_t(uint64_t(from) + (span ? x % span : x));
  }
}
void uniform32(const uint32_t* w, int64_t n, float low, float width, float most, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    float x = low + float(int32_t(w[i] >> 8)) * 0x1p-24f * width;
    out[i] = x > most ? most : x;
  }
}
void uniform64(const uint32_t* w, int64_t n, double low, double width, double most, double* out) {
  for (int64_t i = 0; i < n; ++i) {
    double x = low + double(int64_t(wide(w + 2 * i) >> 11)) * 0x1p-53 * width;
    out[i] = x > most ? most : x;
  }
}

// sin and cos of 2πv, 0 <= v < 1.  4v and its distance from the next integer are exact, so
// the small results near the zeros are as good as the large ones.
SIM_INLINE void turn(float v, float& sine, float& cosine) {
  float t = v * 4.0f;
  int32_t q = int32_t(t + 0.5f);
  float x = (t - float(q)) * 1.57079632679f, z = x * x;
  float s = fused(fused(fused(-1.9515295891e-4f, z, 8.3321608736e-3f), z, -1.6666654611e-1f) * z, x, x);
  float c = fused(fused(2.443315711809948e-5f, z, -1.388731625493765e-3f), z, 4.166664568298827e-2f);
  c = fused(c * z, z, fused(-0.5f, z, 1.0f));
  bool swapped = q & 1;
  float a = swapped ? c : s, b = swapped ? s : c;
  sine = (q & 2) ? -a : a;
  cosine = ((q + 1) & 2) ? -b : b;
}

void normal32(const uint32_t* w, int64_t n, float mean, float std, float* __restrict out) {
#pragma GCC ivdep
  for (int64_t p = 0; p < n / 2; ++p) {
    float u = float(int32_t(w[2 * p] >> 8) + 1) * 0x1p-24f, v = float(int32_t(w[2 * p + 1] >> 8)) * 0x1p-24f;
    float r = __builtin_sqrtf(-2.0f * log_of(u)), s, c;
    turn(v, s, c);
    out[2 * p] = mean + std * (r * c);
    out[2 * p + 1] = mean + std * (r * s);
  }
}
void normal64(const uint32_t* w, int64_t n, double mean, double std, double* out) {
  for (int64_t p = 0; p < n / 2; ++p) {
    double u = double(int64_t(wide(w + 4 * p) >> 11) + 1) * 0x1p-53;
    double v = double(int64_t(wide(w + 4 * p + 2) >> 11)) * 0x1p-53;
    double r = __builtin_sqrt(-2 * __builtin_log(u)), t = v * 4;
    int q = int(t + 0.5);
    double x = (t - q) * 1.57079632679489661923, s = __builtin_sin(x), c = __builtin_cos(x);
    double a = q & 1 ? c : s, b = q & 1 ? s : c;
    out[2 * p] = mean + std * (r * ((q + 1) & 2 ? -b : b));
    out[2 * p + 1] = mean + std * (r * (q & 2 ? -a : a));
  }
}

constexpr RandomKernels kKernels{words,     bits32,    bits64,   range32, range64,
                                 uniform32, uniform64, normal32, normal64};

}  // namespace

const RandomKernels& random_kernels() { return kKernels; }

}  // namespace sim::SIM_ISA
