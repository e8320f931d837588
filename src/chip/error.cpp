#include "chip/error.h"

#include <cstring>

#include "chip/host.h"

namespace fl {

namespace {

constexpr size_t kErrorBytes = 1024;
thread_local char chip_error[kErrorBytes] = "";

}  // namespace

void set_chip_error(const char* text) noexcept {
  if (!text) text = "";
  size_t length = strnlen(text, kErrorBytes - 1);
  memmove(chip_error, text, length);
  chip_error[length] = 0;
}

const char* status_text(fl_status status) noexcept {
  static const char* const kTexts[] = {
#define FL_STATUS_TEXT(name, value, sentence) sentence,
      FL_STATUS_MAP(FL_STATUS_TEXT)
#undef FL_STATUS_TEXT
  };
  if (status < 0 || status >= FL_STATUS_COUNT) return "a status that the chip ABI does not know";
  return kTexts[status];
}

std::string take_chip_error() {
  std::string text = chip_error;
  chip_error[0] = 0;
  return text;
}

std::string failure_text(fl_status status) {
  std::string said = take_chip_error();
  return said.empty() ? status_text(status) : said;
}

void check(fl_status status, const char* what) {
  if (status != FL_OK) throw Error(status, std::string(what) + ": " + failure_text(status));
}

}  // namespace fl
