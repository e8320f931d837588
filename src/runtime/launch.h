// What was submitted, for those who have to explain a fault.
//
// Each launch gets a tag, a number that counts up.  What the tag stands for
// (operator, shapes, dtypes, and with the setting fault_lines the user's line)
// is written into a ring of the last 16,384 launches: 20 ns, no lock, no
// allocation.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "runtime/stream.h"

namespace fl {

// One operator of PyTorch and how often it ran in which way.  Objects are
// static, register themselves, and live for ever.
struct Op {
  explicit Op(const char* name);  // "aten::add"; the text must live for ever
  const char* const name;
  std::atomic<uint64_t> native{0}, composed{0}, fallback{0};
  std::atomic<uint64_t> fallback_bytes{0}, fallback_ns{0};
  std::atomic<const char*> first_call_site{
      nullptr};  // of the first fallback; "file.py:12"; leaked on purpose
  Op* next;
};
Op* first_op() noexcept;               // head of the list of all
Op& find_op(const std::string& name);  // made on demand; takes a lock

// Record a launch on the stream and return the ABI's view of it.
fl_launch make_launch(const Op& op, Stream& stream, const fl_tensor* const* tensors, int n_tensors) noexcept;

// "aten::mm on sim:0, stream 0: float32[64, 10], float32[10, 5]; submitted at train.py:31".
std::string describe_launch(uint64_t tag);
// The last launches on the stream, oldest first, "; then " between them: what
// may still be running.  Empty when none is recorded.
std::string describe_last_launches(const Stream& stream, int n);
// Text for the end of a fault's message: how to get the line, when it is not known.
std::string line_hint(uint64_t tag);

// Held around each call of an operator entry or of memory.copy.  Chips with
// FL_CHIP_SERIAL_LAUNCH take one launch at a time on a device; and the scratch
// memory that the chip asked for is given back at the end.  Costs the tests of
// two fields of the stream.
class LaunchScope {
 public:
  explicit LaunchScope(Stream& stream) : stream_(stream) {
    if (stream_.serial) stream_.serial->lock();
  }
  ~LaunchScope() {
    if (stream_.scratch.load(std::memory_order_relaxed)) release_scratch();
    if (stream_.serial) stream_.serial->unlock();
  }
  LaunchScope(const LaunchScope&) = delete;
  LaunchScope& operator=(const LaunchScope&) = delete;

 private:
  static void release_scratch() noexcept;
  Stream& stream_;
};

// The stream of a launch that a chip hands back (fl_host.scratch), or null.
Stream* launch_stream(const fl_launch& launch) noexcept;

// Where the user's program is: called by make_launch when the setting
// fault_lines is on, and by the fallback report.  Set by the bridge; must
// be callable from any thread; returns text that lives for ever, or null.
void set_line_finder(const char* (*finder)());
const char* user_line();

}  // namespace fl
