// What the kit's parts share: tests and how they report, the chip under test,
// device sessions.
//
// The parent process never opens the chip.  Each group of tests runs in a
// forked child with a time limit; a child that dies fails the test it was in,
// and another one runs the rest.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "fl/ops.h"

namespace kit {

// ------------------------------------------------------------------- tests

// One requirement of the ABI (tag as in the header) or one entry (tag in
// lower case: the entry's name).
struct Test {
  const char* tag;
  const char* sentence;
  void (*run)();
  int seconds;  // limit for each case; past it the child is killed
};

std::vector<Test>& tests();

struct Register {
  Register(const char* tag, const char* sentence, void (*run)(), int seconds = 30) {
    tests().push_back({tag, sentence, run, seconds});
  }
};

#define KIT_JOIN2(a, b) a##b
#define KIT_JOIN(a, b) KIT_JOIN2(a, b)
#define KIT_TEST(tag, sentence)                                                                         \
  static void KIT_JOIN(test_, __LINE__)();                                                              \
  static const ::kit::Register KIT_JOIN(register_, __LINE__){tag, sentence, KIT_JOIN(test_, __LINE__)}; \
  static void KIT_JOIN(test_, __LINE__)()

// Ends the running case (or the test, outside of one).
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct NotApplicable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));
void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));  // records, goes on
[[noreturn]] void stop(const char* format, ...) __attribute__((format(printf, 1, 2)));
[[noreturn]] void not_applicable(const char* why);
#define REQUIRE(condition, ...) ((condition) ? (void)0 : ::kit::stop(__VA_ARGS__))

// A case is what is counted: passed or failed.  A test without cases is one.
void run_case(const std::string& name, const std::function<void()>& body);

// What a child sends to its parent (runner.cpp).
void report_case(const std::string& name, bool passed, const std::string& message);

uint64_t seed();

// -------------------------------------------------------------------- chip

// The chip in this process.  Full-size copies of its tables: entries that they
// lack are null.
struct Chip {
  const fl_chip* table = nullptr;
  fl_chip_entry_fn entry = nullptr;
  fl_device_api device{};
  fl_memory_api memory{};
  fl_stream_api stream{};
  fl_op_api op{};
  bool claims(unsigned entry, unsigned kind, unsigned dtype) const;
};

// Loads once; an empty string, or why it cannot be used.
std::string load(const std::string& path);
const Chip& chip();
const std::string& library_path();
const fl_host* host();
std::string chip_error();  // what the chip said last on this thread; forgets it

const char* status_name(fl_status status);
const char* dtype_name(unsigned dtype);
size_t dtype_size(unsigned dtype);
unsigned register_type(unsigned dtype);  // as programs compute it; FL_NONE for float8

// "FL_INVALID (chip's sentence)" unless the status is the expected one.
void expect_status(fl_status got, fl_status want, const char* what);
inline void ok(fl_status status, const char* what) { expect_status(status, FL_OK, what); }

// Locks around launches of a chip with FL_CHIP_SERIAL_LAUNCH.
class LaunchLock {
 public:
  LaunchLock();
  ~LaunchLock();
};

// The dtypes a claim table has for entry × kind.
std::vector<unsigned> claimed(unsigned entry, unsigned kind);

}  // namespace kit
