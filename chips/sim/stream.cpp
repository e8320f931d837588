// Streams and events.
//
// A stream is a ring of job records and one worker thread that runs them in
// order.  Positions in the ring only grow: `head` is what has been published,
// `tail` what has been done, and "position p is done" means tail >= p.  An event
// is a position in a stream, so an event without timing costs no job at all.
#include <pthread.h>
#include <csignal>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>

#include "device.h"

namespace sim {
namespace {

constexpr uint64_t kRingBytes = 4 << 20;
constexpr size_t kLargestJob = 1 << 20;
constexpr size_t kMaxFaults = 256;
// A wake costs the submitter a system call (5 us and more), so the worker looks
// for work a little before it sleeps; longer would take a core from the others.
constexpr int64_t kWorkerSpin = 30000, kWaiterSpin = 10000;  // ns

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

}  // namespace

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
  };
  std::vector<Chunk> chunks;

  explicit Stream(Device* d) : device(d), ring(static_cast<char*>(std::aligned_alloc(64, kRingBytes))) {}
  ~Stream() {
    std::free(ring);
    for (Chunk& c : chunks) std::free(c.data);
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
  Record& at(uint64_t position) { return *reinterpret_cast<Record*>(ring + position % kRingBytes); }
};

namespace {

Stream* stream_of(fl_stream handle) { return reinterpret_cast<Stream*>(handle); }

int64_t deadline_of(int64_t timeout_ns) {
  if (timeout_ns < 0) return -1;
  int64_t now = now_ns();
  return timeout_ns > INT64_MAX - now ? INT64_MAX : now + timeout_ns;
}

}  // namespace

// Is the position done before the deadline?
bool Stream::wait(uint64_t position, int64_t deadline) {
  if (done(position)) return true;
  int64_t spin_until = now_ns() + kWaiterSpin;
  if (deadline >= 0 && deadline < spin_until) spin_until = deadline;
  do {
    for (int i = 0; i < 16; ++i) pause();
    if (done(position)) return true;
  } while (now_ns() < spin_until);
  // Sequentially consistent with finish(): it sees the waiter, or we see the tail.
  waiters.fetch_add(1);
  for (;;) {
    uint32_t seen = progress.load();
    if (tail.load() >= position) break;
    if (deadline >= 0 && now_ns() >= deadline) break;
    futex_wait(progress, seen, deadline);
  }
  waiters.fetch_sub(1);
  return done(position);
}

void Stream::finish(uint64_t position) {
  tail.store(position);
  if (waiters.load() != 0) {
    progress.fetch_add(1);
    futex_wake_all(progress);
  }
}

void Stream::add_fault(fl_status status, uint64_t tag, const char* text) {
  std::lock_guard<std::mutex> guard(fault_mutex);
  if (fault_queue.size() == kMaxFaults) return;
  fault_queue.push_back({status, tag, text});
  if (fault_queue.size() == kMaxFaults)
    fault_queue.back().text += " (later faults of this stream were not kept)";
  faulted.store(true, std::memory_order_release);
}

void Stream::reset_scratch() {
  // Several chunks become one of their sum, so a steady job needs one allocation ever.
  constexpr size_t kKept = 256 << 20;
  if (chunks.empty()) return;
  if (chunks.size() == 1 && chunks[0].bytes <= kKept) {
    chunks[0].used = 0;
    return;
  }
  size_t sum = 0;
  for (Chunk& c : chunks) {
    sum += c.bytes;
    std::free(c.data);
  }
  chunks.clear();
  if (sum > kKept) return;
  if (auto* data = static_cast<char*>(std::aligned_alloc(64, sum))) chunks.push_back({data, sum, 0});
}

void Stream::run(Record& record) {
  Context context{*device, *this, record.launch};
  void* job = &record + 1;
  if (record.order != faults::Order::none && !device->lost.load(std::memory_order_relaxed)) {
    context.discard = true;
    switch (record.order) {
      case faults::Order::hang:
        faults::hang(stopped);
        context.fail(FL_FAILED, "the kernel '%s' hung and was stopped, as ordered (FL_SIM_FAULTS)",
                     record.name);
        break;
      case faults::Order::lose:
        device->lost.store(true);
        add_fault(FL_DEVICE_LOST, record.launch.tag, "the device was lost, as ordered (FL_SIM_FAULTS)");
        break;
      default:
        context.fail(FL_FAILED, "the kernel '%s' failed, as ordered (FL_SIM_FAULTS)", record.name);
    }
  }
  if (device->lost.load(std::memory_order_relaxed)) context.discard = true;
  try {
    record.run(job, context);
  } catch (const std::exception& e) {
    context.fail(FL_FAILED, "%s: %s", record.name ? record.name : "event", e.what());
  }
  reset_scratch();
}

void Stream::work() {
  omp_set_num_threads(threads_per_stream());
  uint64_t position = 0;
  for (;;) {
    if (head.load(std::memory_order_acquire) == position) {
      if (stopped.load(std::memory_order_acquire) && head.load() == position) return;
      int64_t spin_until = now_ns() + kWorkerSpin;
      bool found = false;
      while (!found && now_ns() < spin_until)
        for (int i = 0; i < 16 && !found; ++i) {
          pause();
          found = head.load(std::memory_order_acquire) != position;
        }
      if (found) continue;
      asleep.store(1);
      // With ring_commit(): it sees us asleep, or we see the head.
      if (can_fence_others()) fence_others();
      if (head.load() == position && !stopped.load()) futex_wait(asleep, 1, -1);
      asleep.store(0);
      continue;
    }
    Record& record = at(position);
    position += record.bytes;
    if (record.run) run(record);
    finish(position);
  }
}

// ------------------------------------------------------------ submission

void* ring_begin(const fl_launch* launch, const char* name, size_t bytes, void (*run)(void* job, Context&),
                 fl_status* status) {
  Stream& s = *stream_of(launch->stream);
  if (forked.load(std::memory_order_relaxed)) {
    *status = refuse_forked();
    return nullptr;
  }
  if (s.device->lost.load(std::memory_order_relaxed)) {
    set_error("sim: device %d is lost", s.device->index);
    *status = FL_DEVICE_LOST;
    return nullptr;
  }
  if (launch->device != s.device->index) {
    set_error("sim: %s on device %d was given a stream of device %d", name ? name : "event", launch->device,
              s.device->index);
    *status = FL_INVALID;
    return nullptr;
  }
  uint64_t total = (sizeof(Record) + bytes + 63) & ~uint64_t{63};
  if (total > kLargestJob) {
    set_error("sim: %s describes its work in %zu bytes, more than a queue takes (%zu): split it",
              name ? name : "event", bytes, kLargestJob);
    *status = FL_UNSUPPORTED;
    return nullptr;
  }
  auto order = faults::Order::none;
  if (faults::armed.load(std::memory_order_relaxed) && name) order = faults::launch(s.device->index, name);

  s.submission.lock();
  uint64_t position = s.head.load(std::memory_order_relaxed);
  uint64_t to_end = kRingBytes - position % kRingBytes;
  uint64_t skipped = total > to_end ? to_end : 0;
  uint64_t needed = position + skipped + total;
  if (needed - s.tail_seen > kRingBytes) {
    s.tail_seen = s.tail.load(std::memory_order_acquire);
    if (needed - s.tail_seen > kRingBytes) {
      s.wait(needed - kRingBytes, -1);
      s.tail_seen = s.tail.load(std::memory_order_acquire);
    }
  }
  if (skipped) {
    Record& gap = s.at(position);
    gap.bytes = static_cast<uint32_t>(skipped);
    gap.run = nullptr;
    position += skipped;
  }
  Record& record = s.at(position);
  record.bytes = static_cast<uint32_t>(total);
  record.order = order;
  record.run = run;
  record.name = name;
  record.launch = *launch;
  s.reserved = needed;
  *status = FL_OK;
  return &record + 1;
}

void ring_commit(const fl_launch* launch) {
  Stream& s = *stream_of(launch->stream);
  // Exchanging the head would wait for the worker's cache to let its line go.
  if (s.fenced_by_worker) {
    s.head.store(s.reserved, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  } else {
    s.head.store(s.reserved, std::memory_order_seq_cst);
  }
  uint32_t asleep = s.asleep.load();
  s.submission.unlock();
  if (asleep && s.asleep.exchange(0)) futex_wake_all(s.asleep);
}

void Context::fail(fl_status status, const char* format, ...) {
  if (failed.exchange(true)) return;
  char text[512];
  va_list list;
  va_start(list, format);
  std::vsnprintf(text, sizeof text, format, list);
  va_end(list);
  stream.add_fault(status, launch.tag, text);
}

void* Context::scratch(size_t bytes) {
  constexpr size_t kSmallest = 64 << 10;
  bytes = (bytes + 63) & ~size_t{63};
  std::lock_guard<SpinLock> guard(stream.scratch_lock);
  auto& chunks = stream.chunks;
  if (chunks.empty() || chunks.back().bytes - chunks.back().used < bytes) {
    size_t size = bytes < kSmallest ? kSmallest : bytes;
    auto* data = static_cast<char*>(std::aligned_alloc(64, size));
    if (!data) throw std::bad_alloc();
    chunks.push_back({data, size, 0});
  }
  auto& chunk = chunks.back();
  void* out = chunk.data + chunk.used;
  chunk.used += bytes;
  return out;
}

void wait_submitted(fl_stream handle) {
  Stream& s = *stream_of(handle);
  s.wait(s.head.load(), -1);
}

// ---------------------------------------------------------- the table's functions
namespace {

void* worker_main(void* argument) {
  auto* stream = static_cast<Stream*>(argument);
  char name[16];
  std::snprintf(name, sizeof name, "sim-%02d", stream->device->index);
  pthread_setname_np(pthread_self(), name);
  stream->work();
  stream->release();
  return nullptr;
}

fl_status create(int32_t device_index, int32_t, fl_stream* out) {
  fl_status status;
  Device* device = find_device(device_index, &status);
  if (!device) return status;
  auto* stream = new Stream(device);
  // Signals belong to the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  int error = stream->ring ? pthread_create(&thread, nullptr, worker_main, stream) : ENOMEM;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error) {
    delete stream;
    set_error("sim: cannot start the worker of a stream: %s", std::strerror(error));
    return FL_FAILED;
  }
  pthread_detach(thread);
  *out = reinterpret_cast<fl_stream>(stream);
  return FL_OK;
}

fl_status destroy(fl_stream handle) {
  if (!handle || forked.load(std::memory_order_relaxed)) return FL_OK;
  Stream& s = *stream_of(handle);
  s.stopped.store(true);
  if (s.asleep.exchange(0)) futex_wake_all(s.asleep);
  s.release();
  return FL_OK;
}

fl_status fault_status(Stream& s) {
  if (s.device->lost.load(std::memory_order_acquire)) {
    set_error("sim: device %d is lost", s.device->index);
    return FL_DEVICE_LOST;
  }
  if (!s.faulted.load(std::memory_order_acquire)) return FL_OK;
  std::lock_guard<std::mutex> guard(s.fault_mutex);
  if (s.fault_queue.empty()) return FL_OK;
  set_error("sim: %s", s.fault_queue.front().text.c_str());
  return s.fault_queue.front().status;
}

fl_status synchronize(fl_stream handle, int64_t timeout_ns) {
  if (forked.load(std::memory_order_relaxed)) return refuse_forked();
  Stream& s = *stream_of(handle);
  if (!s.wait(s.head.load(), deadline_of(timeout_ns))) {
    set_error("sim: the stream still works after %lld ns", static_cast<long long>(timeout_ns));
    return FL_TIMEOUT;
  }
  return fault_status(s);
}

fl_status query(fl_stream handle) {
  if (forked.load(std::memory_order_relaxed)) return refuse_forked();
  Stream& s = *stream_of(handle);
  bool empty = s.done(s.head.load());
  if (fl_status status = fault_status(s)) return status;
  return empty ? FL_OK : FL_NOT_READY;
}

fl_status fault(fl_stream handle, fl_fault* out) {
  if (forked.load(std::memory_order_relaxed)) return refuse_forked();
  Stream& s = *stream_of(handle);
  if (!s.faulted.load(std::memory_order_acquire)) return FL_NOT_READY;
  std::lock_guard<std::mutex> guard(s.fault_mutex);
  if (s.fault_queue.empty()) return FL_NOT_READY;
  const Fault& f = s.fault_queue.front();
  fl_fault filled{};
  filled.size = out->size < sizeof filled ? out->size : static_cast<uint32_t>(sizeof filled);
  filled.status = f.status;
  filled.tag = f.tag;
  std::snprintf(filled.text, sizeof filled.text, "%s", f.text.c_str());
  std::memcpy(out, &filled, filled.size);
  s.fault_queue.pop_front();
  if (s.fault_queue.empty()) s.faulted.store(false, std::memory_order_release);
  return FL_OK;
}

// ------------------------------------------------------------------- events

struct Event {
  Device* device;
  bool timing;
  std::atomic<int> references{1};
  SpinLock lock;
  // Under lock: the last record.
  Stream* stream = nullptr;
  uint64_t position = 0;
  uint64_t generation = 0;
  int64_t time = 0;

  Event(Device* d, bool t) : device(d), timing(t) {}
  ~Event() {
    if (stream) stream->release();
  }
  void release() {
    if (references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
};

Event* event_of(fl_event handle) { return reinterpret_cast<Event*>(handle); }

// The record an event stands for just now, held.
struct Mark {
  Stream* stream = nullptr;
  uint64_t position = 0;
  explicit Mark(Event& e) {
    std::lock_guard<SpinLock> guard(e.lock);
    stream = e.stream, position = e.position;
    if (stream) stream->retain();
  }
  Mark(const Mark&) = delete;
  ~Mark() {
    if (stream) stream->release();
  }
  bool done() const { return !stream || stream->done(position); }
};

struct Stamp {
  Event* event;
  uint64_t generation;
  static void run(void* p, Context&) {
    auto* job = static_cast<Stamp*>(p);
    {
      std::lock_guard<SpinLock> guard(job->event->lock);
      if (job->event->generation == job->generation) job->event->time = now_ns();
    }
    job->event->release();
  }
};

struct WaitJob {
  Stream* stream;
  uint64_t position;
  static void run(void* p, Context&) {
    auto* job = static_cast<WaitJob*>(p);
    job->stream->wait(job->position, -1);
    job->stream->release();
  }
};

fl_status event_create(int32_t device_index, uint32_t flags, fl_event* out) {
  fl_status status;
  Device* device = find_device(device_index, &status);
  if (!device) return status;
  *out = reinterpret_cast<fl_event>(new Event(device, (flags & FL_EVENT_TIMING) != 0));
  return FL_OK;
}

fl_status event_destroy(fl_event handle) {
  if (!handle || forked.load(std::memory_order_relaxed)) return FL_OK;
  event_of(handle)->release();
  return FL_OK;
}

fl_status event_record(fl_event handle, fl_stream stream_handle) {
  Event& e = *event_of(handle);
  Stream& s = *stream_of(stream_handle);
  if (forked.load(std::memory_order_relaxed)) return refuse_forked();
  if (e.device != s.device) {
    set_error("sim: an event of device %d cannot be recorded on a stream of device %d", e.device->index,
              s.device->index);
    return FL_INVALID;
  }
  if (!e.timing && s.device->lost.load(std::memory_order_relaxed)) {
    set_error("sim: device %d is lost", s.device->index);
    return FL_DEVICE_LOST;
  }
  s.retain();
  Stream* before;
  if (e.timing) {
    fl_launch launch{stream_handle, 0, s.device->index, 0};
    fl_status status;
    void* place = ring_begin(&launch, nullptr, sizeof(Stamp), Stamp::run, &status);
    if (!place) {
      s.release();
      return status;
    }
    {
      std::lock_guard<SpinLock> guard(e.lock);
      before = e.stream;
      e.stream = &s, e.position = s.reserved;
      new (place) Stamp{&e, ++e.generation};
    }
    e.references.fetch_add(1, std::memory_order_relaxed);
    ring_commit(&launch);
  } else {
    std::lock_guard<SpinLock> guard(e.lock);
    before = e.stream;
    e.stream = &s, e.position = s.head.load(), ++e.generation;
  }
  if (before) before->release();
  return FL_OK;
}

fl_status wait_event(fl_stream stream_handle, fl_event handle) {
  Event& e = *event_of(handle);
  if (forked.load(std::memory_order_relaxed)) return refuse_forked();
  Stream& s = *stream_of(stream_handle);
  Mark mark(e);
  if (mark.done() || mark.stream == &s) return FL_OK;
  fl_launch launch{stream_handle, 0, s.device->index, 0};
  fl_status status;
  void* place = ring_begin(&launch, nullptr, sizeof(WaitJob), WaitJob::run, &status);
  if (!place) return status;
  mark.stream->retain();
  new (place) WaitJob{mark.stream, mark.position};
  ring_commit(&launch);
  return FL_OK;
}

fl_status event_lost(const Event& e) {
  if (!e.device->lost.load(std::memory_order_acquire)) return FL_OK;
  set_error("sim: device %d is lost", e.device->index);
  return FL_DEVICE_LOST;
}

fl_status event_query(fl_event handle) {
  if (forked.load(std::memory_order_relaxed)) return refuse_forked();
  Event& e = *event_of(handle);
  if (fl_status status = event_lost(e)) return status;
  return Mark(e).done() ? FL_OK : FL_NOT_READY;
}

fl_status event_synchronize(fl_event handle, int64_t timeout_ns) {
  if (forked.load(std::memory_order_relaxed)) return refuse_forked();
  Event& e = *event_of(handle);
  Mark mark(e);
  if (mark.stream && !mark.stream->wait(mark.position, deadline_of(timeout_ns))) {
    set_error("sim: the event is still pending after %lld ns", static_cast<long long>(timeout_ns));
    return FL_TIMEOUT;
  }
  return event_lost(e);
}

fl_status event_elapsed(fl_event start, fl_event end, double* milliseconds) {
  if (forked.load(std::memory_order_relaxed)) return refuse_forked();
  int64_t times[2];
  Event* events[2] = {event_of(start), event_of(end)};
  for (int i = 0; i < 2; ++i) {
    Event& e = *events[i];
    std::lock_guard<SpinLock> guard(e.lock);
    if (!e.timing || !e.stream) {
      set_error(e.timing ? "sim: an event was never recorded"
                         : "sim: an event was created without FL_EVENT_TIMING");
      return FL_INVALID;
    }
    if (!e.stream->done(e.position)) return FL_NOT_READY;
    times[i] = e.time;
  }
  *milliseconds = static_cast<double>(times[1] - times[0]) * 1e-6;
  return FL_OK;
}

}  // namespace

extern const fl_stream_api stream_api = {sizeof(fl_stream_api),
                                         0,
                                         create,
                                         destroy,
                                         synchronize,
                                         query,
                                         wait_event,
                                         fault,
                                         event_create,
                                         event_destroy,
                                         event_record,
                                         event_query,
                                         event_synchronize,
                                         event_elapsed};

}  // namespace sim
