// The file that FL_CONFIG names: settings as lines of text, below the environment. When the file is bad as a
// whole, each setting that the environment does not give is refused until it is set.
#pragma once

#include <string>
#include <vector>

namespace fl {

// One `name = value` of the file; neither is checked here.
struct FileSetting {
  std::string name, value;
  int line;
};

// `name = value` lines. A value may stand in double quotes; `#` at the start of a line, or after a space,
// begins a comment. Throws an Error that names the file, and the line that cannot be understood.
std::vector<FileSetting> read_config_file(const std::string& path);

}  // namespace fl
