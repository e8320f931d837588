// Questions about a tensor view.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fl/ops.h"

namespace fl::author {

constexpr uint32_t kAllDtypes = (1u << FL_DTYPE_COUNT) - 2;

// Bytes of an element; 0 for FL_NONE.
inline size_t dtype_size(uint8_t dtype) {
  static constexpr uint8_t bytes[] = {0,
#define FL_AUTHOR_BYTES(name, value, bytes, text) bytes,
                                      FL_DTYPE_MAP(FL_AUTHOR_BYTES)
#undef FL_AUTHOR_BYTES
  };
  return bytes[dtype];
}

// T has ndim, sizes and strides: an fl_tensor, or a chip's own copy of one.
template <class T>
int64_t numel(const T& t) {
  int64_t n = 1;
  for (int d = 0; d < t.ndim; ++d) n *= t.sizes[d];
  return n;
}
// Row-major, without gaps.
template <class T>
bool contiguous(const T& t) {
  int64_t expected = 1;
  for (int d = t.ndim; d-- > 0;) {
    if (t.sizes[d] != 1 && t.strides[d] != expected) return false;
    expected *= t.sizes[d];
  }
  return true;
}

}  // namespace fl::author
