// The points of a launch over several operands: dimensions merged where the
// strides allow, and a cursor that walks them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "fl/ops.h"

namespace ocl {

// Up to K operands, `n` in use; strides in whatever unit the caller keeps
// (bytes, mostly).  Outermost dimension first.
template <int K>
struct Space {
  int ndim = 0;
  int n = K;
  int64_t size[FL_MAX_DIMS];
  int64_t stride[FL_MAX_DIMS][K];

  explicit Space(int operands) : n(operands) {}

  // Returns the new dimension's strides, to be filled in.
  int64_t* push(int64_t dim_size) {
    size[ndim] = dim_size;
    return stride[ndim++];
  }
  int64_t points() const {
    int64_t count = 1;
    for (int d = 0; d < ndim; ++d) count *= size[d];
    return count;
  }
  int64_t inner_size() const { return ndim ? size[ndim - 1] : 1; }
  int64_t inner_stride(int operand) const { return ndim ? stride[ndim - 1][operand] : 0; }

  // Largest stride of `operand` first.  Changes the order in which points are numbered.
  void sort(int operand) {
    for (int d = 1; d < ndim; ++d)
      for (int e = d; e > 0 && std::llabs(stride[e][operand]) > std::llabs(stride[e - 1][operand]); --e) {
        std::swap(size[e], size[e - 1]);
        std::swap_ranges(stride[e], stride[e] + n, stride[e - 1]);
      }
  }
  // Drops dimensions of size 1 and merges neighbours; keeps the numbering.
  void merge() {
    int kept = 0;
    for (int d = 0; d < ndim; ++d) {
      if (size[d] == 1) continue;
      bool joins = kept > 0;
      for (int k = 0; joins && k < n; ++k) joins = stride[kept - 1][k] == stride[d][k] * size[d];
      if (joins) {
        size[kept - 1] *= size[d];
        std::copy(stride[d], stride[d] + n, stride[kept - 1]);
      } else {
        size[kept] = size[d];
        if (kept != d) std::copy(stride[d], stride[d] + n, stride[kept]);
        ++kept;
      }
    }
    ndim = kept;
  }
};

// A position in the space without its `skip` innermost dimensions.
template <int K>
struct Cursor {
  const Space<K>& space;
  int ndim;
  int64_t at[FL_MAX_DIMS];
  int64_t offset[K];

  explicit Cursor(const Space<K>& s, int64_t point = 0, int skip = 0)
      : space(s), ndim(s.ndim > skip ? s.ndim - skip : 0) {
    std::fill(offset, offset + s.n, 0);
    for (int d = ndim; d-- > 0;) {
      at[d] = point % s.size[d];
      point /= s.size[d];
      for (int k = 0; k < s.n; ++k) offset[k] += at[d] * s.stride[d][k];
    }
  }
  // `count` points on along the innermost dimension, not beyond its end.
  void advance(int64_t count) {
    for (int d = ndim; d-- > 0;) {
      at[d] += count;
      for (int k = 0; k < space.n; ++k) offset[k] += count * space.stride[d][k];
      if (at[d] < space.size[d]) return;
      for (int k = 0; k < space.n; ++k) offset[k] -= at[d] * space.stride[d][k];
      at[d] = 0;
      count = 1;
    }
  }
  int64_t left() const { return ndim ? space.size[ndim - 1] - at[ndim - 1] : 1; }
};

}  // namespace ocl
