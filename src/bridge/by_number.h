// Products and quotients by one number.
#pragma once

#include "bridge/bridge.h"

namespace fl::bridge {

// PyTorch multiplies or divides a half by one number in float32, without rounding the number to the half: in
// float16 a scale of 65536 would be infinity.  The number is the second input; `half_op` is for halves by
// several of them.
bool run_by_number(IteratorOp& op, IteratorOp& half_op, at::TensorIteratorBase& iter);

}  // namespace fl::bridge
