// Streams: the queue, its worker, and the table's functions.
#include "stream.h"

#include <pthread.h>
#include <sys/mman.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>

namespace sim {
namespace {

constexpr size_t kLargestJob = 1 << 20;
constexpr size_t kMaxFaults = 256;
// A wake costs the submitter a system call (5 us and more), so the worker looks
// for work a little before it sleeps; longer would take a core from the others.
constexpr int64_t kWorkerSpin = 30000, kWaiterSpin = 10000;  // ns

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

// A large one is a mapping of its own, in large pages: rows that lie pages apart would miss the TLB at each
// step. What malloc has at hand is in small ones.
bool Stream::add_chunk(size_t bytes) {
  if (bytes < kLargePage) {
    auto* data = static_cast<char*>(std::aligned_alloc(64, bytes));
    if (data) chunks.push_back({data, bytes, 0});
    return data != nullptr;
  }
  bytes = (bytes + kLargePage - 1) & ~(kLargePage - 1);
  void* at = mmap(nullptr, bytes + kLargePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return false;
  auto* first = static_cast<char*>(at);
  auto before = static_cast<size_t>(-reinterpret_cast<intptr_t>(at) & static_cast<intptr_t>(kLargePage - 1));
  char* data = first + before;
  if (before) munmap(first, before);
  munmap(data + bytes, kLargePage - before);
  madvise(data, bytes, MADV_HUGEPAGE);
  chunks.push_back({data, bytes, 0});
  return true;
}
void Stream::Chunk::free() {
  if (bytes < kLargePage) std::free(data);
  else munmap(data, bytes);
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
    c.free();
  }
  chunks.clear();
  if (sum <= kKept) add_chunk(sum);  // else the job that needs it asks again, and says so
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
    if (!stream.add_chunk(bytes < kSmallest ? kSmallest : bytes)) throw std::bad_alloc();
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
