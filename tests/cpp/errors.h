// For tests of what is refused: the Error that a piece of code throws.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "check.h"
#include "chip/error.h"

inline std::optional<fl::Error> error_of(const std::function<void()>& code) {
  try {
    code();
  } catch (const fl::Error& e) {
    return e;
  }
  return {};
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The code throws an Error of the status, and its text has all the parts.
#define CHECK_ERROR(code, wanted, ...)                                                            \
  do {                                                                                            \
    auto error_ = error_of([&] { code; });                                                        \
    if (!CHECK_THAT(error_.has_value(), "no Error from %s", #code)) break;                        \
    CHECK_THAT(error_->status() == (wanted), "status %d: %s", error_->status(), error_->what());  \
    for (const char* part_ : {__VA_ARGS__})                                                       \
      CHECK_THAT(contains(error_->what(), part_), "\"%s\" is not in: %s", part_, error_->what()); \
  } while (0)
