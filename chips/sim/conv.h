// Convolutions as jobs carry them.
#pragma once

#include "sim.h"

namespace sim {

struct Conv {
  Tensor x, w, y, bias;  // bias without data: none
  int32_t stride[3], padding[3], dilation[3];
  int32_t groups, kind;

  int spatial() const { return x.ndim - 2; }
};

// On our own kernels: for dtypes that oneDNN lacks.  Any strides.
void convolve_blocked(Context& context, const Conv& conv);

// A tensor of the same sizes in scratch memory, row-major; `from` is not copied.
Tensor contiguous_like(Context& context, const Tensor& from, uint8_t dtype);
// to = from, between F16, BF16, F32 and F64; same sizes, any strides.
void convert(const Tensor& from, const Tensor& to);

}  // namespace sim
