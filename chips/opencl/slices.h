// Slices of tensors along an axis: the space of the slices, and how far one goes along the axis.
#pragma once

#include "fl/author/space.h"
#include "program.h"

namespace ocl {

inline bool needs_fp64(const Device& d, uint8_t dtype) {
  return !d.info.fp64 && (dtype == FL_F64 || dtype == FL_C128);
}

inline fl_status check_axis(const char* entry, const fl_tensor& t, int32_t axis) {
  if (axis >= 0 && axis < (t.ndim ? t.ndim : 1)) return FL_OK;
  return refuse(FL_INVALID, "%s along axis %d of a tensor of %d dimensions", entry, axis, t.ndim);
}

// K tensors of one shape but along the axis; strides in elements.
template <int K>
struct Slices {
  Space<K> space{K};
  int64_t n = 1;  // of the first tensor along the axis
  int64_t step[K] = {};

  Slices(const fl_tensor* const (&tensors)[K], int axis) {
    const fl_tensor& shape = *tensors[0];
    for (int d = 0; d < shape.ndim; ++d) {
      if (d == axis) {
        n = shape.sizes[d];
        for (int k = 0; k < K; ++k) step[k] = tensors[k]->strides[d];
        continue;
      }
      int64_t* strides = space.push(shape.sizes[d]);
      for (int k = 0; k < K; ++k) strides[k] = tensors[k]->strides[d];
    }
    // The output's order is the memory's; which slice is which does not matter.
    space.sort(K > 1 ? 1 : 0);
    space.merge();
  }
  void fill(int64_t (&size)[FL_MAX_DIMS], int64_t (&stride)[K][FL_MAX_DIMS], int64_t (&steps)[K]) const {
    for (int d = 0; d < space.ndim; ++d) {
      size[d] = space.size[d];
      for (int k = 0; k < K; ++k) stride[k][d] = space.stride[d][k];
    }
    std::copy(step, step + K, steps);
  }
};

}  // namespace ocl
