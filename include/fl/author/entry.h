// The host that a chip talks to, and what fl_chip_entry does alike in every chip.
//
// For chips in C++17.  Nothing here is part of the ABI: a chip compiles it in, and
// another version of it in another chip is no matter.  Compile with hidden
// visibility, so that each chip has its own.
#pragma once

#include <atomic>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <vector>

#include "fl/ops.h"

namespace fl::author {

using Claims = std::vector<fl_claim>;

namespace detail {
inline std::atomic<const fl_host*> host{nullptr};

template <class F>
void formatted(const char* format, va_list list, F&& f) {
  char text[1024];
  std::vsnprintf(text, sizeof text, format, list);
  if (const fl_host* h = host.load(std::memory_order_acquire)) f(*h, text);
}
}  // namespace detail

// Null before fl_chip_entry was called.
inline const fl_host* host() { return detail::host.load(std::memory_order_acquire); }

// The sentence for the status that is about to be returned (fl_host.set_error), cut at 1023 bytes.
__attribute__((format(printf, 1, 2))) inline void set_error(const char* format, ...) {
  va_list list;
  va_start(list, format);
  detail::formatted(format, list, [](const fl_host& h, const char* text) { h.set_error(text); });
  va_end(list);
}
// The same, and the status.
__attribute__((format(printf, 2, 3))) inline fl_status refuse(fl_status status, const char* format, ...) {
  va_list list;
  va_start(list, format);
  detail::formatted(format, list, [](const fl_host& h, const char* text) { h.set_error(text); });
  va_end(list);
  return status;
}
// level: an FL_LOG_….
__attribute__((format(printf, 2, 3))) inline void log(int level, const char* format, ...) {
  va_list list;
  va_start(list, format);
  detail::formatted(format, list, [&](const fl_host& h, const char* text) { h.log(level, text); });
  va_end(list);
}

// What fl_chip_entry asks first: whether the host speaks this ABI, and is new enough to have the first
// `host_bytes` bytes of its table.  Then it is host() from now on.  `package` is what a person installs.
inline bool accept(uint32_t host_version, const fl_host* host, size_t host_bytes, const char* package) {
  if (!host || host->size < host_bytes) return false;
  if (host_version >> 16 != FL_ABI_MAJOR) {
    char text[512];
    std::snprintf(
        text, sizeof text,
        "%s speaks version %d of the chip ABI, this torch-fl version %u: install the %s that belongs "
        "to it",
        package, FL_ABI_MAJOR, static_cast<unsigned>(host_version >> 16), package);
    host->set_error(text);
    return false;
  }
  detail::host.store(host, std::memory_order_release);
  return true;
}

// The operator table.  ENTRIES is the chip's list, X(copy) X(fill) …; for each name there is
// fl_status name(const fl_launch*, const fl_name_args*) and void claim_name(Claims&), and this, where the
// macro is used, is an expression: the table, built once and never destroyed (a thread of the chip may still
// run at exit).
#define FL_AUTHOR_DECLARE(name)                              \
  fl_status name(const fl_launch*, const fl_##name##_args*); \
  void claim_##name(::fl::author::Claims&);
#define FL_AUTHOR_CLAIM_(name) claim_##name(claims);
#define FL_AUTHOR_ENTER_(name) op->name = name;
#define FL_AUTHOR_OP_TABLE(ENTRIES)                      \
  [] {                                                   \
    auto& claims = *new ::fl::author::Claims;            \
    ENTRIES(FL_AUTHOR_CLAIM_)                            \
    auto* op = new fl_op_api{};                          \
    op->size = sizeof(fl_op_api);                        \
    op->n_claims = static_cast<uint32_t>(claims.size()); \
    op->claims = claims.data();                          \
    ENTRIES(FL_AUTHOR_ENTER_)                            \
    return op;                                           \
  }()

}  // namespace fl::author
