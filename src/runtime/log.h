// Where lines of the log go; config.h has the level.
#pragma once

#include <string>

namespace fl {

// One line to the file, or to stderr when `file` is empty or cannot be written.
// Holds no lock of this process, so that a forked child can log as well.
void write_log(const std::string& file, int level, const std::string& text) noexcept;

}  // namespace fl
