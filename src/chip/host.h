// What the chip layer needs from above it.  Declared here and defined in
// runtime/host.cpp, so that includes point downwards only.
#pragma once

#include <string>

#include "fl/chip.h"

namespace fl {

void set_chip_error(const char* text) noexcept;  // fl_host.set_error; error.cpp

void host_log(int level, const char* text) noexcept;
fl_status host_scratch(const fl_launch* launch, size_t bytes, void** out) noexcept;
std::string host_setting(const char* name);  // throws Error for a bad value

}  // namespace fl
