// The innermost loops of spmm: some rows of one matrix, some of its columns.
#pragma once

#include <cstdint>

#include "fl/ops.h"
#include "simd/isa.h"

namespace sim {

struct SpmmRows {
  const int64_t* begin;    // [M+1], within 0 … J
  const int64_t* offsets;  // [J] in bytes from `dense`; null: j × dense_row
  const char* values;      // [J] as they are computed (F16, BF16: as F32); null: ones
  int64_t dense_row;       // bytes, like all strides
  const char* dense;
  int64_t dense_step;
  char* out;
  int64_t out_row, out_step;
  char* winner;  // I64, or null
  int64_t winner_row, winner_step;
  int64_t n;
  bool mean;  // a SUM is divided by the number of its values
  fl_scalar empty;
};
// Rows first … last-1; pointers are those of row 0.
using SpmmRun = void (*)(const SpmmRows& rows, int64_t first, int64_t last);

SIM_DECLARE_LEVELS(SpmmRun spmm_run(int mode, int dtype))
// Null when not done.
inline SpmmRun spmm_run(int mode, int dtype) { return SIM_CHOOSE(spmm_run(mode, dtype)); }

}  // namespace sim
