// Between the host and a chip.  What the chip layer needs from above it is declared here and defined in
// runtime/host.cpp, so that includes point downwards only.
#pragma once

#include <exception>
#include <string>

#include "fl/chip.h"

namespace fl {

void set_chip_error(const char* text) noexcept;  // fl_host.set_error; error.cpp
std::string failure_text(fl_status status);      // the chip's own sentence, or else the status in words

// A question to a chip that is not known to be sound: an exception that comes out of it is FL_FAILED.
template <class Call>
fl_status contained(const Call& call) noexcept {
  static constexpr char kAdvice[] = "; the ABI is C, exceptions must stay inside the chip";
  try {
    return call();
  } catch (const std::exception& e) {
    set_chip_error(("it threw a C++ exception: " + std::string(e.what()) + kAdvice).c_str());
  } catch (...) {
    set_chip_error((std::string("it threw a C++ exception") + kAdvice).c_str());
  }
  return FL_FAILED;
}

void host_log(int level, const char* text) noexcept;
fl_status host_scratch(const fl_launch* launch, size_t bytes, void** out) noexcept;
std::string host_setting(const char* name);  // throws Error for a bad value

}  // namespace fl
