#include "runtime/config_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "chip/error.h"

namespace fl {

namespace {

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

void append_utf8(std::string& to, uint32_t c) {
  if (c < 0x80) {
    to += static_cast<char>(c);
    return;
  }
  const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  constexpr unsigned char kLead[] = {0, 0xC0, 0xE0, 0xF0};
  to += static_cast<char>(kLead[more] | (c >> (6 * more)));
  for (int i = more - 1; i >= 0; --i) to += static_cast<char>(0x80 | ((c >> (6 * i)) & 0x3F));
}

// "1_000" as "1000"; empty when the digits are not as TOML writes them: '_' stands between digits only.
std::string digits(const std::string& text, bool leading_zero) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_' && i > 0 && i + 1 < text.size() && is_digit(text[i - 1]) && is_digit(text[i + 1]))
      continue;
    if (!is_digit(text[i])) return "";
    plain += text[i];
  }
  return plain.size() > 1 && plain[0] == '0' && !leading_zero ? "" : plain;
}

class Reader {
 public:
  Reader(const std::string& path, const std::string& text) : path_(path), text_(text) {}

  std::vector<FileSetting> read() {
    std::vector<FileSetting> found;
    while (skip_lines()) {
      FileSetting s = read_setting();
      for (const FileSetting& before : found)
        if (before.name == s.name)
          fail(s.name + " is set in line " + std::to_string(before.line) + " already");
      found.push_back(std::move(s));
      end_of_line();
    }
    return found;
  }

 private:
  const std::string& path_;
  const std::string& text_;
  size_t at_ = 0;
  int line_ = 1;

  [[noreturn]] void fail(const std::string& words) const {
    throw Error(FL_INVALID, path_ + ":" + std::to_string(line_) + ": " + words);
  }

  bool ended() const { return at_ >= text_.size(); }
  char peek() const { return ended() ? '\0' : text_[at_]; }
  bool starts(const char* with) const { return text_.compare(at_, strlen(with), with) == 0; }
  bool at_newline() const { return starts("\n") || starts("\r\n"); }
  std::string rest_of_line() const {
    size_t end = std::min(text_.find('\n', at_), text_.size());
    while (end > at_ && strchr(" \t\r", text_[end - 1])) --end;
    return text_.substr(at_, end - at_);
  }

  void skip_space() {
    while (peek() == ' ' || peek() == '\t') ++at_;
  }
  void skip_comment() {
    skip_space();
    if (peek() != '#') return;
    while (!ended() && !at_newline()) ++at_;
  }
  // Past spaces, comments and ends of lines; false at the end of the file.
  bool skip_lines() {
    for (skip_comment(); at_newline(); skip_comment()) {
      at_ += peek() == '\r' ? 2 : 1;
      ++line_;
    }
    return !ended();
  }
  void end_of_line() {
    skip_comment();
    if (!ended() && !at_newline())
      fail("\"" + rest_of_line() + "\" follows the value; one setting stands in a line");
  }

  FileSetting read_setting() {
    const std::string line = rest_of_line();
    if (peek() == '[') fail("\"" + line + "\" is a table, which is not read here; a setting is name = value");
    if (peek() == '"' || peek() == '\'') fail("\"" + line + "\": a setting's name is written without quotes");
    FileSetting s{"", Toml::kString, "", {}, line_};
    while (is_name(peek())) s.name += text_[at_++];
    skip_space();
    if (peek() == '.') fail("\"" + line + "\" has a dotted name, which is not read here");
    if (s.name.empty() || peek() != '=') fail("\"" + line + "\" is not of the form name = value");
    ++at_;
    skip_space();
    read_value(s);
    return s;
  }

  void read_value(FileSetting& s) {
    if (peek() == '"' || peek() == '\'') {
      s.value = read_string();
    } else if (peek() == '[') {
      s.type = Toml::kStrings;
      read_array(s);
    } else {
      read_word(s);
    }
  }

  std::string read_string() {
    const char quote = text_[at_];
    if (starts("\"\"\"") || starts("'''")) fail("a string of several lines is not read here");
    ++at_;
    std::string value;
    for (;; ++at_) {
      if (ended() || at_newline()) fail("a string has no end on its line");
      const char c = text_[at_];
      if (c == quote) break;
      if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F)
        fail("a string has a control character; write it as \\u00XX");
      if (c == '\\' && quote == '"') read_escape(value);
      else value += c;
    }
    ++at_;
    return value;
  }

  // At the backslash; leaves the last character of the escape to be passed over.
  void read_escape(std::string& value) {
    constexpr const char* kLetters = "btnfr\"\\";
    constexpr const char* kMeant = "\b\t\n\f\r\"\\";
    const char c = ++at_ < text_.size() ? text_[at_] : '\0';
    if (const char* found = c ? strchr(kLetters, c) : nullptr) {
      value += kMeant[found - kLetters];
      return;
    }
    const size_t n = c == 'u' ? 4 : c == 'U' ? 8 : 0;
    const std::string code = text_.substr(std::min(at_ + 1, text_.size()), n);
    const bool hex =
        n && code.size() == n && code.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
    const unsigned long number = hex ? std::stoul(code, nullptr, 16) : 0;
    if (!hex || number > 0x10FFFF || (number >= 0xD800 && number < 0xE000))
      fail(std::string("a string has the escape \\") + (c ? std::string(1, c) : "") +
           ", which TOML does not have; a backslash is written \\\\, or the string in single quotes");
    append_utf8(value, static_cast<uint32_t>(number));
    at_ += n;
  }

  void read_array(FileSetting& s) {
    ++at_;
    for (bool more = true; skip_lines() && peek() != ']';) {
      if (!more) fail("an array's values are separated by ','");
      if (peek() != '"' && peek() != '\'') fail("an array holds strings, in quotes, only");
      s.items.push_back(read_string());
      skip_lines();
      more = peek() == ',';
      if (more) ++at_;
    }
    if (ended()) fail("an array has no ']'");
    ++at_;
  }

  void read_word(FileSetting& s) {
    std::string word;
    while (!ended() && !at_newline() && !strchr(" \t#,]", peek())) word += text_[at_++];
    if (word == "true" || word == "false") {
      s.type = Toml::kBoolean;
      s.value = word == "true" ? "1" : "0";
    } else if (!read_number(word, s)) {
      if (word.empty()) fail(s.name + " has no value");
      const std::string whole = word + (at_newline() ? "" : rest_of_line());
      fail(s.name + " = " + whole +
           ": a value is a string in quotes, a decimal number, true, false, or an array of strings");
    }
  }

  static bool read_number(const std::string& word, FileSetting& s) {
    const bool negative = !word.empty() && word[0] == '-';
    const std::string plain = word.substr(!word.empty() && (word[0] == '-' || word[0] == '+') ? 1 : 0);
    const size_t e = std::min(plain.find_first_of("eE"), plain.size());
    const size_t point = std::min(plain.find('.'), e);
    std::string number = digits(plain.substr(0, point), false);
    if (number.empty()) return false;
    s.type = point == plain.size() ? Toml::kInteger : Toml::kFloat;
    if (point < e) {
      const std::string part = digits(plain.substr(point + 1, e - point - 1), true);
      if (part.empty()) return false;
      number += "." + part;
    }
    if (e < plain.size()) {
      std::string power = plain.substr(e + 1);
      const bool sign = !power.empty() && (power[0] == '-' || power[0] == '+');
      const std::string part = digits(power.substr(sign ? 1 : 0), true);
      if (part.empty()) return false;
      number += "e" + (sign ? power.substr(0, 1) : "") + part;
    }
    s.value = (negative ? "-" : "") + number;
    return true;
  }
};

}  // namespace

std::vector<FileSetting> read_config_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  std::stringstream text;
  // A folder can be opened, but has nothing to read.
  if (!file || (file.peek() != std::ifstream::traits_type::eof() && !(text << file.rdbuf())) || errno)
    throw Error(FL_INVALID,
                "the settings file \"" + path + "\" cannot be read: " + std::strerror(errno ? errno : EIO));
  const std::string all = text.str();
  return Reader(path, all).read();
}

}  // namespace fl
