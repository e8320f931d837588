// The innermost loops of gather and scatter.
#pragma once

#include <cstdint>

#include "simd/isa.h"

namespace sim {

struct IndexKernels {
  // offsets[j] += index[j] × step, for n indices `stride` bytes apart; with wrap, index -1 is the
  // last.  Returns the first j whose index is not below size, or n.
  int64_t (*resolve[2])(const char* index, int64_t stride, int64_t n, int64_t size, int64_t step, bool wrap,
                        int64_t* offsets);  // I32, I64
};

// to[j] = from[j], elements of one size; n of them, strides in bytes.
// `offsets`, unless null, holds what is added to an element's address: to `from`
// when gathering, to `to` when scattering.
using MoveRun = void (*)(char* to, int64_t to_stride, const char* from, int64_t from_stride,
                         const int64_t* to_offsets, const int64_t* from_offsets, int64_t n);

// The same for some rows, all without offsets: one row's elements are `stride` bytes apart, rows `row`.
using MoveRows = void (*)(char* to, int64_t to_row, int64_t to_stride, const char* from, int64_t from_row,
                          int64_t from_stride, int64_t rows, int64_t n);

SIM_DECLARE_LEVELS(const IndexKernels& index_kernels(); MoveRun move_run(int bytes);
                   MoveRows move_rows(int bytes); MoveRun combine_run(int mode, int dtype))
inline const IndexKernels& index_kernels() {
  static const IndexKernels& kernels = SIM_CHOOSE(index_kernels());
  return kernels;
}
// For elements of 1, 2, 4, 8 or 16 bytes.
inline MoveRun move_run(int bytes) { return SIM_CHOOSE(move_run(bytes)); }
inline MoveRows move_rows(int bytes) { return SIM_CHOOSE(move_rows(bytes)); }
// to[j] (mode)= from[j], in order of j; mode is FL_SCATTER_….  Null when not done.
inline MoveRun combine_run(int mode, int dtype) { return SIM_CHOOSE(combine_run(mode, dtype)); }

}  // namespace sim
