// A stream: a ring of job records and one worker thread that runs them in
// order.  Positions in the ring only grow: `head` is what has been published,
// `tail` what has been done, and "position p is done" means tail >= p.  An event
// is a position in a stream, so an event without timing costs no job at all.
#pragma once

#include <cstdlib>
#include <deque>

#include "device.h"

namespace sim {

constexpr uint64_t kRingBytes = 4 << 20;

struct alignas(64) Record {
  uint32_t bytes;  // with this header, a multiple of 64
  faults::Order order;
  void (*run)(void*, Context&);  // null: nothing here, the ring wraps
  const char* name;
  fl_launch launch;
};
static_assert(sizeof(Record) == 64);

struct Fault {
  fl_status status;
  uint64_t tag;
  std::string text;
};

struct Stream {
  Device* device;
  std::atomic<int> references{2};  // the handle and the worker; events add theirs
  char* ring;
  const bool fenced_by_worker = can_fence_others();

  alignas(64) SpinLock submission;
  uint64_t reserved = 0;   // under submission: what ring_commit publishes
  uint64_t tail_seen = 0;  // under submission: saves reading the worker's line
  alignas(64) std::atomic<uint64_t> head{0};
  alignas(64) std::atomic<uint64_t> tail{0};
  std::atomic<uint32_t> waiters{0}, progress{0};  // who waits for tail, and what they sleep on
  alignas(64) std::atomic<uint32_t> asleep{0};
  std::atomic<bool> stopped{false};
  std::atomic<bool> faulted{false};

  std::mutex fault_mutex;
  std::deque<Fault> fault_queue;

  SpinLock scratch_lock;
  struct Chunk {
    char* data;
    size_t bytes, used;
    void free();
  };
  std::vector<Chunk> chunks;

  explicit Stream(Device* d) : device(d), ring(static_cast<char*>(std::aligned_alloc(64, kRingBytes))) {}
  ~Stream() {
    std::free(ring);
    for (Chunk& c : chunks) c.free();
  }
  void retain() { references.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  bool done(uint64_t position) const { return tail.load(std::memory_order_acquire) >= position; }
  bool wait(uint64_t position, int64_t deadline);
  void finish(uint64_t position);
  void add_fault(fl_status status, uint64_t tag, const char* text);
  void work();
  void run(Record& record);
  void reset_scratch();
  bool add_chunk(size_t bytes);  // false: no memory
  Record& at(uint64_t position) { return *reinterpret_cast<Record*>(ring + position % kRingBytes); }
};

inline Stream* stream_of(fl_stream handle) { return reinterpret_cast<Stream*>(handle); }

inline int64_t deadline_of(int64_t timeout_ns) {
  if (timeout_ns < 0) return -1;
  int64_t now = now_ns();
  return timeout_ns > INT64_MAX - now ? INT64_MAX : now + timeout_ns;
}

// event.cpp, for the table of stream.cpp.
fl_status wait_event(fl_stream stream, fl_event event);
fl_status event_create(int32_t device, uint32_t flags, fl_event* out);
fl_status event_destroy(fl_event event);
fl_status event_record(fl_event event, fl_stream stream);
fl_status event_query(fl_event event);
fl_status event_synchronize(fl_event event, int64_t timeout_ns);
fl_status event_elapsed(fl_event start, fl_event end, double* milliseconds);

}  // namespace sim
