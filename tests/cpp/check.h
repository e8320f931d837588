// What the C++ tests share: checks that count, and say where and what.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace check {

// Tests check from several threads.
inline std::atomic<int> failures{0};
inline std::atomic<int> checks{0};

__attribute__((format(printf, 4, 5))) inline bool report(bool good, const char* file, int line,
                                                         const char* format, ...) {
  ++checks;
  if (good) return true;
  // Enough to see a pattern; the count goes on.
  if (++failures <= 50) {
    std::fprintf(stderr, "%s:%d: ", file, line);
    va_list list;
    va_start(list, format);
    std::vfprintf(stderr, format, list);
    va_end(list);
    std::fputc('\n', stderr);
  }
  return false;
}

// The last line of main: exit status 0 only when something was checked and all held.
inline int result() {
  std::printf("%d checks, %d failures\n", checks.load(), failures.load());
  return failures == 0 && checks > 0 ? 0 : 1;
}

}  // namespace check

#define CHECK(condition) check::report(static_cast<bool>(condition), __FILE__, __LINE__, "%s", #condition)
// With a sentence of its own: CHECK_THAT(a == b, "size %d", a).
#define CHECK_THAT(condition, ...) \
  check::report(static_cast<bool>(condition), __FILE__, __LINE__, __VA_ARGS__)
// Stop at once: nothing after this makes sense.
#define REQUIRE(condition)                             \
  do {                                                 \
    if (!CHECK(condition)) std::exit(check::result()); \
  } while (0)
