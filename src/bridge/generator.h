// Random state: Philox, 16 bytes, the same numbers for a seed on every chip.
#pragma once

#include <optional>

#include "bridge/bridge.h"
#include "runtime/random_state.h"

namespace fl::bridge {

// Takes `blocks` blocks from the generator (the device's default one when
// none is given) and moves it on.  Throws for a generator of another device.
PhiloxState reserve(const std::optional<at::Generator>& generator, c10::Device device, uint64_t blocks);

// One for each device, made on first use; index -1 is the current device.
const at::Generator& default_generator(c10::DeviceIndex index);
at::Generator make_generator(c10::DeviceIndex index);

}  // namespace fl::bridge
