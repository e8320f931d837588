// Quantized tensors as the integers in them.
#pragma once

#include "bridge/bridge.h"

namespace fl::bridge {

// A dense tensor over the same memory: int8 of qint8, uint8 of quint8, int32 of
// qint32.  Raises for packed types, which the device does not have.
Tensor integers_of(const Tensor& quantized);

}  // namespace fl::bridge
