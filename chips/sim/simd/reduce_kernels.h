// The innermost loops of a reduction, on contiguous values of the accumulate type.
#pragma once

#include <cstdint>

#include "fl/ops.h"
#include "simd/isa.h"

namespace sim {

// A reduction in progress is a carrier: one or two numbers, in planes of their
// own (c0, c1), wider than the values where that keeps the result exact.
//   SUM, PROD           c0: the result (F32 carried in double, C64 in two doubles)
//   MIN, MAX            c0: the result; c1: where it is, when indexed
//   MOMENTS             c0: mean, c1: sum of squared differences, both double
// `first` is the number of the first value among the reduced, `count` how many
// values the carrier has seen before.
struct ReduceKernels {
  uint8_t value_bytes, carrier_bytes[2], n_values;
  void (*init)(void* c0, void* c1, int64_t n, int64_t first);
  // n values into one carrier.
  void (*fold)(const void* values, int64_t n, int64_t first, int64_t count, void* c0, void* c1);
  // n_rows rows of n values into n carriers.
  void (*rows)(const void* const* rows, int n_rows, int64_t n, int64_t first, int64_t count, void* c0,
               void* c1);
  // n carriers that hold d_count later values each into n that hold count.
  void (*combine)(void* c0, void* c1, int64_t count, const void* d0, const void* d1, int64_t d_count,
                  int64_t n);
  // n carriers to values of the accumulate type.
  void (*finish)(const void* c0, const void* c1, int64_t n, void* v0, void* v1);
};
constexpr int kReduceRows = 8;          // most rows in one call of `rows`
constexpr int64_t kReduceBlock = 4096;  // most values in one call of `fold`

// Besides the kinds of fl/ops.h: SUM over the squares of what is read, in F32 and F64.
constexpr int kSumOfSquares = FL_REDUCE_COUNT;

// Null when the combination has no meaning.
SIM_DECLARE_LEVELS(const ReduceKernels* reduce_kernels(int kind, int accumulate, bool indexed))
inline const ReduceKernels* find_reduce_kernels(int kind, int accumulate, bool indexed) {
  return SIM_CHOOSE(reduce_kernels(kind, accumulate, indexed));
}

}  // namespace sim
