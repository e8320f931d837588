// Where the user's program is, for fault texts and the fallback report.
#pragma once

namespace fl::bridge {

// Makes user_line() (runtime/launch.h) answer with the innermost frame that is
// neither PyTorch's nor ours.  Called once, with the interpreter lock.
void install_line_finder();

}  // namespace fl::bridge
