// What make_launch recorded, for those who receive a launch as a chip does.
#pragma once

#include "runtime/launch.h"

namespace fl {

// The operator that the launch is of; one without a name when its record has been overtaken.
const Op& launch_op(const fl_launch& launch) noexcept;

}  // namespace fl
