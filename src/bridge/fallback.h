// Fallbacks of dispatch keys that most programs never use.
#pragma once

#include "bridge/bridge.h"

namespace fl::bridge {

// What runs the operators that have no kernel for `key`.  PyTorch looks at each of its operators then, which
// takes 3 ms: called when the first tensor of the kind is made, not by import torch.
void set_fallback(c10::DispatchKey key, torch::CppFunction function);

// A nested tensor on another device, and the memory behind one as a tensor.
Tensor nested_on(const Tensor& t, c10::Device device);
Tensor nested_memory(const Tensor& t);

}  // namespace fl::bridge
