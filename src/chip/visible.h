// Which devices are visible, and in which order, besides the settings visible_devices and device.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace fl {

// A choice by index among the devices that the settings leave, written as CUDA_VISIBLE_DEVICES is: "1,0". As
// there, the first entry that names no device ends the list, an empty list hides all, and naming one twice
// too. An entry is an index or an identity. `source` is asked once, when the devices are found; nothing: no
// choice.
void set_index_choice(const char* name, std::function<std::optional<std::string>()> source);

}  // namespace fl
