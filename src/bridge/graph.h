// Graph capture and replay for PyTorch.
#pragma once

namespace fl::bridge {

// Called once, when the bridge is loaded.
void register_graphs();

}  // namespace fl::bridge
