// The points of a launch over several operands: dimensions merged where the
// strides allow, and a cursor that walks them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "fl/ops.h"

namespace fl::author {

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

// A dimension that an address moves along; `stride` in any unit, of either sign.
struct Extent {
  int64_t size, stride;
};
// Whether distinct positions along the dimensions are distinct addresses: what is
// written through them is then written once.  Enough, not necessary.  Sorts them.
inline bool apart(Extent* dims, int n) {
  auto step = [](const Extent& e) { return std::llabs(e.stride); };
  std::sort(dims, dims + n, [&](const Extent& a, const Extent& b) { return step(a) < step(b); });
  int64_t reach = 0;
  for (int i = 0; i < n; ++i) {
    if (dims[i].size == 1) continue;
    if (step(dims[i]) <= reach) return false;
    reach += (dims[i].size - 1) * step(dims[i]);
  }
  return true;
}
// Of a scatter's target: the points' own dimensions, where operand `to` moves, and
// those that the indices choose from, in the space's unit.
template <int K>
bool apart(const Space<K>& space, int to, int n_indices, const int64_t* index_size,
           const int64_t* index_step) {
  Extent dims[FL_MAX_DIMS + FL_MAX_INDICES];
  int n = 0;
  for (int d = 0; d < space.ndim; ++d)
    if (space.stride[d][to]) dims[n++] = {space.size[d], space.stride[d][to]};
  for (int k = 0; k < n_indices; ++k) dims[n++] = {index_size[k], index_step[k]};
  return apart(dims, n);
}

}  // namespace fl::author
