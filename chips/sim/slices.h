// Slices along an axis of one tensor or several: what scan and sort walk.
#pragma once

#include "fl/author/space.h"
#include "rows.h"

namespace sim {

inline bool valid_axis(const char* entry, const fl_tensor& t, int32_t axis) {
  if (axis >= 0 && (axis < t.ndim || (axis == 0 && t.ndim == 0))) return true;
  set_error("sim: %s along axis %d of a tensor of %d dimensions", entry, axis, t.ndim);
  return false;
}

// K tensors with the same sizes but along the axis; a null one is skipped by who
// uses it.  Strides in bytes.  Slices are numbered in an order of memory.
template <int K>
struct Slices {
  Space<K> space{K};
  char* data[K];
  int64_t along[K];  // from one element of a slice to the next
  int64_t length;    // of the first tensor's slices

  Slices(const Tensor* const (&t)[K], int axis) {
    const Tensor& first = *t[0];
    for (int k = 0; k < K; ++k) {
      data[k] = t[k]->data;
      along[k] = *t[k] && t[k]->ndim ? byte_stride(*t[k], axis) : 0;
    }
    for (int d = 0; d < first.ndim; ++d) {
      if (d == axis) continue;
      int64_t* s = space.push(first.sizes[d]);
      for (int k = 0; k < K; ++k) s[k] = *t[k] ? byte_stride(*t[k], d) : 0;
    }
    space.sort(0), space.merge();
    length = first.ndim ? first.sizes[axis] : 1;
  }
  int64_t count() const { return space.points(); }
  // Do neighbouring slices lie side by side, closer than the elements of one?
  bool side_by_side() const { return space.ndim && std::llabs(space.inner_stride(0)) < std::llabs(along[0]); }
};

}  // namespace sim
