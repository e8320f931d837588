// The factor of add and sub.
#pragma once

#include <ATen/core/Scalar.h>
#include <c10/core/ScalarType.h>

namespace fl::bridge {

// PyTorch's CPU rounds alpha to a half dtype.
inline at::Scalar in_dtype(const at::Scalar& alpha, at::ScalarType dtype) {
  if (dtype == at::kHalf) return static_cast<double>(static_cast<float>(alpha.toHalf()));
  return dtype == at::kBFloat16 ? at::Scalar(static_cast<double>(static_cast<float>(alpha.toBFloat16())))
                                : alpha;
}

}  // namespace fl::bridge
