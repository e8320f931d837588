// Copies of which the caller has made the views himself.
#pragma once

#include "bridge/ops/programs.h"

namespace fl::bridge {

// The second operand of the (finished) space into the first, whose elements have `element_size` bytes.
// False: the chip cannot.
bool copy_space(Call& call, const Space& space, int64_t element_size);

// Numbers that an operator has computed on the host, on the device.  A graph being captured keeps them.
Tensor constant_on(const Tensor& host, c10::Device device);

}  // namespace fl::bridge
