// Numbers and names as a person reads them.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace fl {

inline std::string bytes_text(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  char text[64];
  snprintf(text, sizeof text, unit ? "%.2f %s" : "%.0f %s", value, kUnits[unit]);
  return text;
}

}  // namespace fl
