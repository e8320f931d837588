// The file with settings, below the environment: the one that FL_CONFIG names, else torch-fl.toml in the
// current directory. When it is bad as a whole, each setting that the environment does not give is refused
// until it is set.
//
// It is TOML, of which a setting needs little: `name = value`, with a value that is a string, an integer, a
// float, a boolean or an array of strings, and comments. What else TOML has (tables, dotted and quoted names,
// strings of several lines, dates, other bases, inf and nan) is refused by name, never read as something
// else.
#pragma once

#include <string>
#include <vector>

namespace fl {

enum class Toml { kString, kInteger, kFloat, kBoolean, kStrings };

// One `name = value` of the file; neither is checked against the settings here.
struct FileSetting {
  std::string name;
  Toml type;
  std::string value;               // numbers without '_' and '+'; booleans as "1" and "0"
  std::vector<std::string> items;  // of an array
  int line;
};

// Throws an Error that names the file, and the line that cannot be understood.
std::vector<FileSetting> read_config_file(const std::string& path);

// Where a setting's value comes from: "default", "FL_LOG", "torch-fl.toml:3", "torch.fl.config".
std::string setting_source(const std::string& name);

}  // namespace fl
