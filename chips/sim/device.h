// The chip's own objects: devices, streams, events, and what they share.
// Kernels need none of it; they see sim.h.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "faults.h"
#include "sim.h"

namespace sim {

constexpr size_t kLargePage = 2 << 20;

// Addresses in use and free, best fit first, coalescing.  Locks itself: the host
// caches above it, so it is called rarely.
class Ranges {
 public:
  void reset(uintptr_t base, size_t bytes);
  uintptr_t take(size_t bytes, size_t alignment);     // 0: none is large enough
  size_t give_back(uintptr_t address);                // its bytes; 0: not taken here
  size_t size_of(uintptr_t address) const;            // of a taken range; else 0
  bool holds(uintptr_t address, size_t bytes) const;  // within one taken range
  size_t free_bytes() const;

 private:
  void insert(uintptr_t address, size_t bytes);
  mutable std::mutex mutex_;
  std::map<uintptr_t, size_t> free_, taken_;
  std::multimap<size_t, uintptr_t> by_size_;
  size_t free_bytes_ = 0;
};

struct Device {
  int32_t index = 0;
  uint64_t memory_bytes = 0;
  char* base = nullptr;  // what the host gets; inaccessible
  Ranges ranges;
  std::atomic<bool> lost{false};
  std::atomic<uint64_t> streams{0};
};

// Null, with the sentence set, when the index is none of ours, the device is not
// open, or this process is a child of the one that opened it.
Device* find_device(int32_t index, fl_status* status);
int device_count();
uint64_t device_memory();  // bytes, from FL_SIM_MEMORY
bool valid_settings();     // false: FL_SIM_… cannot be read; the sentence is set
int threads_per_stream();

// Wait for what has been submitted to the stream so far; faults are left where they are.
void wait_submitted(fl_stream stream);

// A child of fork has the memory but none of the threads.  Entry points return
// FL_FAILED there instead of waiting for ever.
extern std::atomic<bool> forked;
fl_status refuse_forked();

// Host memory from host_alloc lies in one reserved range: asking is two compares.
bool pinned(const void* address, size_t bytes);
bool on_device(const Device& device, const void* address, size_t bytes);

// 32-bit futexes.  Waiting ends at a wake, at the deadline (steady clock; < 0:
// none), or for no reason at all: callers loop.
void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, int64_t deadline_ns);
void futex_wake_all(std::atomic<uint32_t>& word);
int64_t now_ns();

// Two sides that each write one word and read the other's need a full fence on
// both.  Where the system can run one on all other threads of the process, the
// side that waits pays for both, and the frequent side for none.
bool can_fence_others();
void fence_others();

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// One submitter at a time; held for some tens of nanoseconds, so a waiter that
// spins long has met a descheduled holder and gives its core away.
class SpinLock {
 public:
  void lock() {
    for (int spins = 0; held_.exchange(true, std::memory_order_acquire); ++spins) yield_or_pause(spins);
  }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  static void yield_or_pause(int spins);
  std::atomic<bool> held_{false};
};

// ---------------------------------------------------------- faults to order
// fault.cpp; the grammar is there.  All counters start when a spec is set.
namespace faults {
extern std::atomic<bool> armed;  // false: nothing is ordered, and nothing is counted
bool set(const char* spec);      // false: refused, the sentence is set
bool environment_valid();
bool fail_malloc();  // is this the malloc that fails?
enum class Order : uint8_t { none, fail, hang, lose };
Order launch(int32_t device, const char* name);
// Wait as a hung kernel: until the orders change, the stream is destroyed, or the limit.
void hang(const std::atomic<bool>& stopped);
extern const sim_faults table;
}  // namespace faults

}  // namespace sim
