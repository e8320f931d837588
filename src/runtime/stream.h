// Current device, streams and events.
//
// "Current" is per thread and lives here alone; chips are told the stream with
// each launch.  Stream ids: 0 is a device's default stream, 1…32 the pool of
// default priority, 33…64 the pool of high priority.  Streams are created on
// first use and never destroyed, so Stream& is valid for ever.
#pragma once

#include <atomic>
#include <cstdint>

#include "chip/registry.h"

namespace fl {

struct Stream {
  int32_t device;    // ours
  int32_t local;     // the chip's
  int32_t priority;  // 0, or -1 for high
  int64_t id;
  const Chip* chip;
  fl_stream handle;
  std::mutex* serial;               // Device::serial
  std::atomic<int32_t> scratch{0};  // blocks that running launches hold (launch.h)
};

int32_t current_device() noexcept;       // starts no device
void set_device(int32_t index);          // checked: throws Error for a bad index
int32_t exchange_device(int32_t index);  // checked, except -1, which does nothing

Stream& stream(int32_t device, int64_t id);  // opens the device on first use
Stream& current_stream(int32_t device);
Stream& exchange_stream(Stream& next);                    // returns the previous current one of next.device
Stream& pool_stream(int32_t device, bool high_priority);  // round robin

// Wait for the stream's work.  Throws the stream's oldest fault, described by
// launch.h, or, when the setting sync_timeout passes, an Error that names the
// operator that is still running.  Forgets the fault: the process goes on.
void synchronize(Stream& stream);
void synchronize_device(int32_t device);                       // each stream that exists
Stream* existing_stream(int32_t device, int64_t id) noexcept;  // null: never used
constexpr int64_t kStreams = 65;                               // ids are below
bool query(Stream& stream);                                    // true: nothing queued; throws faults

// Reusable; not thread-safe itself.  Cross-chip waits go through the host.
class Event {
 public:
  Event(int32_t device, bool timing);
  ~Event();
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;
  void record(Stream& stream);  // the stream must be of the event's device
  void block(Stream& stream);   // the stream waits for the event
  bool query() const;
  void synchronize() const;  // throws the fault of the stream it was recorded on
  double elapsed_ms(const Event& end) const;
  // For the allocator: has the recorded work ended, well or not?  Faults stay
  // with the stream, for the user to see.
  bool passed() const;
  void wait() const;  // throws when sync_timeout passes
  int32_t device() const noexcept { return device_; }
  fl_event handle() const noexcept { return handle_; }

 private:
  const Chip* chip_ = nullptr;
  fl_event handle_ = nullptr;
  Stream* recorded_on_ = nullptr;
  int32_t device_ = -1;
  bool timing_ = false;
};

// Has the process forked after a device was opened?  Entry points that would
// touch a device throw Error in such a child.
bool in_bad_fork() noexcept;

// At exit: wait for all streams (without throwing), so that no kernel runs
// while libraries are torn down.
void shutdown() noexcept;

}  // namespace fl
