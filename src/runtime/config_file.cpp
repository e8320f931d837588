#include "runtime/config_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "chip/error.h"

namespace fl {

namespace {

constexpr const char* kSpace = " \t\r";

std::string trim(const std::string& text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// Whether nothing follows but a comment.
bool is_blank(const std::string& text) {
  const std::string rest = trim(text);
  return rest.empty() || rest[0] == '#';
}

// The value at the right of `=`; false when its quotes are wrong.
bool read_value(const std::string& text, std::string& value) {
  if (!text.empty() && text[0] == '"') {
    const size_t end = text.find('"', 1);
    if (end == std::string::npos || !is_blank(text.substr(end + 1))) return false;
    value = text.substr(1, end - 1);
    return true;
  }
  size_t end = text.size();
  for (size_t i = 0; i < text.size() && end == text.size(); ++i)
    if (text[i] == '#' && (i == 0 || std::strchr(kSpace, text[i - 1]))) end = i;
  value = trim(text.substr(0, end));
  return value.find('"') == std::string::npos;
}

}  // namespace

std::vector<FileSetting> read_config_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  std::stringstream text;
  // A folder can be opened, but has nothing to read.
  if (!file || (file.peek() != std::ifstream::traits_type::eof() && !(text << file.rdbuf())) || errno)
    throw Error(FL_INVALID,
                "FL_CONFIG is \"" + path + "\", which cannot be read: " + std::strerror(errno ? errno : EIO));
  std::vector<FileSetting> found;
  std::string line;
  for (int number = 1; std::getline(text, line); ++number) {
    if (is_blank(line)) continue;
    const size_t equals = line.find('=');
    FileSetting s{trim(line.substr(0, equals)), "", number};
    if (equals == std::string::npos || s.name.empty() || !read_value(trim(line.substr(equals + 1)), s.value))
      throw Error(FL_INVALID, path + ":" + std::to_string(number) + ": \"" + trim(line) +
                                  "\" is not of the form name = value");
    for (const FileSetting& before : found)
      if (before.name == s.name)
        throw Error(FL_INVALID, path + ":" + std::to_string(number) + ": " + s.name + " is set in line " +
                                    std::to_string(before.line) + " already");
    found.push_back(std::move(s));
  }
  return found;
}

}  // namespace fl
