// Operands that have to be on one device.
#pragma once

#include "bridge/bridge.h"

namespace fl::bridge {

// Throws "Expected all tensors to be on the same device, …" with the first two devices that differ; those
// undefined do not count.  A kernel of the device runs when any operand is there: where the first is not, its
// device says nothing.
inline void check_devices(const Op& op, std::initializer_list<const Tensor*> tensors) {
  const Tensor* first = nullptr;
  for (const Tensor* t : tensors) {
    if (!t || !t->defined()) continue;
    if (!first) first = t;
    else if (C10_UNLIKELY(t->device() != first->device()))
      throw_mixed_devices(op, first->device(), t->device());
  }
}

}  // namespace fl::bridge
