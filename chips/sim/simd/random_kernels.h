// Philox4x32-10 and the distributions of fl/ops.h.
#pragma once

#include <cstdint>

#include "simd/isa.h"

namespace sim {

struct RandomKernels {
  // Blocks first … first + n - 1, four words each.
  void (*words)(uint64_t seed, uint64_t first, int64_t n, uint32_t* out);
  // n values from n words (32) or n pairs of words (64).  NORMAL: n is even.
  void (*bits32)(const uint32_t* w, int64_t n, int64_t* out);
  void (*bits64)(const uint32_t* w, int64_t n, int64_t* out);
  void (*range32)(const uint32_t* w, int64_t n, int64_t from, uint32_t span, int64_t* out);
  void (*range64)(const uint32_t* w, int64_t n, int64_t from, uint64_t span, int64_t* out);
  // Nothing above `most` comes out.
  void (*uniform32)(const uint32_t* w, int64_t n, float low, float width, float most, float* out);
  void (*uniform64)(const uint32_t* w, int64_t n, double low, double width, double most, double* out);
  void (*normal32)(const uint32_t* w, int64_t n, float mean, float std, float* out);
  void (*normal64)(const uint32_t* w, int64_t n, double mean, double std, double* out);
};

SIM_DECLARE_LEVELS(const RandomKernels& random_kernels())
inline const RandomKernels& random_kernels() {
  static const RandomKernels& kernels = SIM_CHOOSE(random_kernels());
  return kernels;
}

}  // namespace sim
