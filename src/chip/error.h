// The one exception of the PyTorch-free parts.
#pragma once

#include <stdexcept>
#include <string>

#include "fl/chip.h"

namespace fl {

// Carries the status besides the text: the bridge turns OUT_OF_MEMORY into
// torch.OutOfMemoryError, INDEX_OUT_OF_RANGE into IndexError, the rest into
// RuntimeError.
class Error : public std::runtime_error {
 public:
  Error(fl_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  fl_status status() const noexcept { return status_; }

 private:
  fl_status status_;
};

// "out of memory" for FL_OUT_OF_MEMORY, from FL_STATUS_MAP.  Never null.
const char* status_text(fl_status status) noexcept;

// The chip's own sentence for the status it just returned on this thread
// (fl_host.set_error); forgets it.  Empty when it said nothing.
std::string take_chip_error();

// Throws Error "<what>: <chip's sentence or status text>" unless FL_OK.
void check(fl_status status, const char* what);

}  // namespace fl
