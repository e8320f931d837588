// The reduce entry on tensors: for reduce.cpp and the families that compose
// from reductions.
#pragma once

#include <ATen/native/ReduceOpsUtils.h>

#include "bridge/ops/programs.h"

namespace fl::bridge {

using Mask = at::native::DimMask;

struct Reduction {
  uint16_t kind;       // FL_REDUCE_…
  uint8_t accumulate;  // register type
  const fl_program* pre = nullptr;
  const fl_program* post = nullptr;
  const fl_scalar* pre_scalars = nullptr;
  const fl_scalar* post_scalars = nullptr;
};

// Reduce the masked dimensions of the inputs, which are broadcast to the first.
// Outputs and index have those dimensions with size 1, or lack them.  Inputs
// are not empty.  False: the chip cannot.
bool reduce(Call& call, const Reduction& reduction, const Mask& mask,
            std::initializer_list<const Tensor*> inputs, std::initializer_list<const Tensor*> outputs,
            const Tensor* index = nullptr);

// How many elements make one result.
int64_t reduced_count(const Tensor& t, const Mask& mask);
inline Mask mask_of(int64_t dim, int64_t ndim) {
  return Mask().set(ndim ? at::maybe_wrap_dim(dim, ndim) : 0);
}

// out = sum of `in` over the mask / divisor (0: the plain sum), accumulated in F32 or wider.
bool sum_into(Call& call, const Tensor& in, const Mask& mask, const Tensor& out, double divisor = 0);

// variance (or its root) over count - correction, and mean, each if given.
bool moments_into(Call& call, const Tensor& in, const Mask& mask, double correction, bool root,
                  const Tensor* variance, const Tensor* mean);

// For floats what they are computed in, for integers I64, BOOL for bool.
inline uint8_t accumulate_type(ScalarType dtype) {
  if (dtype == at::kBool) return FL_BOOL;
  return at::isIntegralType(dtype, false) ? uint8_t{FL_I64} : to_register(dtype);
}

}  // namespace fl::bridge
