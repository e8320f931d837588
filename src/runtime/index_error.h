// What the user is told of an index that the chip found out of range.
#pragma once

#include "runtime/launch.h"

namespace fl {

// An operator in which PyTorch's CPU calls a wrong index a RuntimeError: gather, scatter and what is made
// of them.  In all others it is an IndexError.
struct InvalidIndexOp : Op {
  explicit InvalidIndexOp(const char* name);
  InvalidIndexOp* next_invalid;
};

// The Error's status for a chip's `fault` in the operator, or in the launch of that tag.
fl_status error_status(const Op& op, fl_status fault) noexcept;
fl_status error_status(uint64_t tag, fl_status fault) noexcept;

}  // namespace fl
