#include "runtime/stream.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "chip/error.h"
#include "runtime/capture.h"
#include "runtime/config.h"
#include "runtime/index_error.h"
#include "runtime/launch.h"
#include "runtime/stream_queries.h"

namespace fl {

namespace {

constexpr int kPool = 32;
static_assert(kStreams == 1 + 2 * kPool);

struct DeviceStreams {
  std::array<std::atomic<Stream*>, kStreams> streams{};
  std::atomic<uint32_t> next_default{0}, next_high{0};
};

// Zero-initialised, so it needs no constructor and no order of construction.
constinit std::array<DeviceStreams, kMaxDevices> all_streams{};
constinit std::mutex create_mutex;

thread_local int32_t device_now = 0;
thread_local std::array<Stream*, kMaxDevices> stream_now{};

[[noreturn]] void throw_bad_fork() {
  throw Error(FL_FAILED,
              "cannot use a device in a forked process: its parent had started the device, and a device "
              "does not survive a fork; use multiprocessing's start method \"spawn\"");
}

Stream& create_stream(int32_t index, int64_t id) {
  const Device& d = device(index);
  if (id < 0 || id >= kStreams)
    throw Error(FL_INVALID, "there is no stream " + std::to_string(id) + " on " + d.name + "; ids are 0 to " +
                                std::to_string(kStreams - 1));
  open_device(index);
  std::lock_guard<std::mutex> lock(create_mutex);
  std::atomic<Stream*>& place = all_streams[index].streams[id];
  if (Stream* s = place.load(std::memory_order_acquire)) return *s;
  auto made = std::make_unique<Stream>(index, d.local, id > kPool ? -1 : 0, id, d.chip, nullptr, d.serial);
  check(d.chip->stream.create(d.local, made->priority, &made->handle),
        ("cannot make a stream on " + d.name).c_str());
  place.store(made.get(), std::memory_order_release);
  return *made.release();
}

int64_t timeout_ns() {
  double seconds = sync_timeout_seconds();
  if (seconds <= 0 || seconds > 9e9) return -1;
  return static_cast<int64_t>(seconds * 1e9) + 1;
}

// Not s.chip, which a capture may be changing.
const Chip& chip_of(const Stream& s) { return *device(s.device).chip; }

std::string name_of(const Stream& s) { return device(s.device).name + ", stream " + std::to_string(s.id); }

// Takes all faults of the stream; the Error is about the oldest.  `status` is
// what the chip returned, for a chip that has no fault to show.
Error take_faults(Stream& s, fl_status status) {
  std::string said = take_chip_error();
  fl_fault first{}, next{};
  int faults = 0;
  // A lost device has a fault each time; no stream has this many.
  for (next.size = sizeof next; faults < 100000 && chip_of(s).stream.fault(s.handle, &next) == FL_OK;
       ++faults) {
    if (faults == 0) first = next;
    if (next.status == FL_DEVICE_LOST) break;
  }
  if (!faults) return Error(status, name_of(s) + ": " + (said.empty() ? status_text(status) : said));
  first.text[sizeof first.text - 1] = 0;
  std::string text = *first.text ? first.text : status_text(first.status);
  text += " in " + describe_launch(first.tag);
  if (!first.tag) text += " on " + name_of(s);
  if (faults > 1) text += " (and " + std::to_string(faults - 1) + " later faults on this stream)";
  return Error(error_status(first.tag, first.status), text + line_hint(first.tag));
}

Error timed_out(const Stream& s, const std::string& what) {
  std::string said = take_chip_error(), last = describe_last_launches(s, 4);
  char seconds[32];
  snprintf(seconds, sizeof seconds, "%g", sync_timeout_seconds());
  std::string text = what + " took longer than the setting sync_timeout (FL_SYNC_TIMEOUT), " + seconds + " s";
  if (!said.empty()) text += ": " + said;
  text += last.empty() ? "; no launch on it is recorded" : "; still running or waiting: " + last;
  return Error(FL_TIMEOUT, text);
}

// Waits; the Error of what went wrong, or nothing.
std::unique_ptr<Error> wait(Stream& s) {
  if (forked()) throw_bad_fork();
  std::unique_ptr<Error> error;
  for (;;) {
    fl_status status = chip_of(s).stream.synchronize(s.handle, timeout_ns());
    if (status == FL_OK) return error;
    if (status == FL_TIMEOUT) return std::make_unique<Error>(timed_out(s, "waiting for " + name_of(s)));
    Error fault = take_faults(s, status);
    bool again = !error && status != FL_DEVICE_LOST && fault.status() != FL_DEVICE_LOST;
    if (!error) error = std::make_unique<Error>(fault);
    // A fault is told before the stream is empty: wait for what was queued
    // behind it, once.
    if (!again) return error;
  }
}

}  // namespace

int32_t current_device() noexcept { return device_now; }

void set_device(int32_t index) { device_now = device(index).index; }

int32_t exchange_device(int32_t index) {
  int32_t before = device_now;
  if (index != -1 && index != before) set_device(index);
  return before;
}

Stream& stream(int32_t index, int64_t id) {
  if (forked()) throw_bad_fork();
  if (index >= 0 && index < kMaxDevices && id >= 0 && id < kStreams)
    if (Stream* s = all_streams[index].streams[id].load(std::memory_order_acquire)) return *s;
  return create_stream(index, id);
}

Stream& current_stream(int32_t index) {
  if (forked()) throw_bad_fork();
  if (index >= 0 && index < kMaxDevices)
    if (Stream* s = stream_now[index]) return *s;
  Stream& s = stream(index, 0);
  stream_now[index] = &s;
  return s;
}

Stream& exchange_stream(Stream& next) {
  Stream& before = current_stream(next.device);
  stream_now[next.device] = &next;
  return before;
}

Stream& pool_stream(int32_t index, bool high_priority) {
  DeviceStreams& d = all_streams[device(index).index];
  uint32_t n = (high_priority ? d.next_high : d.next_default).fetch_add(1, std::memory_order_relaxed) % kPool;
  return stream(index, 1 + (high_priority ? kPool : 0) + static_cast<int64_t>(n));
}

int64_t current_stream_id(int32_t index) noexcept {
  const Stream* s = index >= 0 && index < kMaxDevices ? stream_now[index] : nullptr;
  return s ? s->id : 0;
}

Stream& stream_with_handle(int32_t index, fl_stream handle) {
  const Device& d = device(index);
  for (auto& place : all_streams[static_cast<size_t>(d.index)].streams)
    if (Stream* s = place.load(std::memory_order_acquire); s && handle && s->handle == handle) return *s;
  throw Error(
      FL_INVALID,
      "no stream of " + d.name +
          " has this handle. Handles are those that Stream.native_handle gives: torch-fl's chip ABI cannot "
          "take over a stream that another library made");
}

Capture* current_capture(int32_t index) noexcept {
  for (int32_t i = std::max(index, 0); i < kMaxDevices; ++i) {
    const Stream* s = stream_now[static_cast<size_t>(i)];
    if (Capture* capture = s ? capture_of(*s) : nullptr) return capture;
    if (index >= 0) break;
  }
  return nullptr;
}

Stream* existing_stream(int32_t index, int64_t id) noexcept {
  if (index < 0 || index >= kMaxDevices || id < 0 || id >= kStreams) return nullptr;
  return all_streams[index].streams[id].load(std::memory_order_acquire);
}

namespace {

constexpr const char* kWait =
    "a wait for the device: synchronize(), query(), .item(), printing, a copy to the host, an operator that "
    "has "
    "to look at values or runs on the CPU";

void refuse_if_captured(const Stream& s) {
  if (Capture* capture = capture_of(s)) [[unlikely]]
    capture->refuse(kWait);
}

}  // namespace

void synchronize(Stream& s) {
  refuse_if_captured(s);
  if (auto error = wait(s)) throw Error(*error);
}

void synchronize_device(int32_t index) {
  if (forked()) throw_bad_fork();
  if (const Stream* s = stream_now[device(index).index]) refuse_if_captured(*s);
  std::unique_ptr<Error> first;
  for (auto& place : all_streams[device(index).index].streams) {
    Stream* s = place.load(std::memory_order_acquire);
    if (!s) continue;
    auto error = wait(*s);
    if (error && error->status() == FL_TIMEOUT)
      throw Error(*error);  // the others would use up the limit again
    if (error && !first) first = std::move(error);
  }
  if (first) throw Error(*first);
}

bool query(Stream& s) {
  if (forked()) throw_bad_fork();
  refuse_if_captured(s);
  fl_status status = chip_of(s).stream.query(s.handle);
  if (status == FL_OK) return true;
  if (status == FL_NOT_READY) return false;
  throw take_faults(s, status);
}

// ----------------------------------------------------------------------- events

namespace {

// Chip events are made once and used again: making one may cost a system call.
struct EventPool {
  std::mutex mutex;
  std::vector<fl_event> idle[2];  // with FL_EVENT_TIMING, without

  static EventPool& of(int32_t index) {
    static auto& pools = *new std::array<EventPool, kMaxDevices>();
    return pools[static_cast<size_t>(index)];
  }
};
constexpr size_t kIdleEvents = 1024;

fl_event take_event(const Device& d, bool timing) {
  EventPool& pool = EventPool::of(d.index);
  {
    std::lock_guard<std::mutex> lock(pool.mutex);
    auto& idle = pool.idle[timing];
    if (!idle.empty()) {
      fl_event event = idle.back();
      idle.pop_back();
      return event;
    }
  }
  fl_event event = nullptr;
  check(d.chip->stream.event_create(d.local, timing ? FL_EVENT_TIMING : 0, &event),
        ("cannot make an event on " + d.name).c_str());
  return event;
}

void give_event(int32_t index, const Chip& chip, fl_event event, bool timing) noexcept {
  if (forked()) return;
  EventPool& pool = EventPool::of(index);
  {
    std::lock_guard<std::mutex> lock(pool.mutex);
    if (pool.idle[timing].size() < kIdleEvents) {
      if (pool.idle[timing].capacity() == 0) pool.idle[timing].reserve(kIdleEvents);
      pool.idle[timing].push_back(event);
      return;
    }
  }
  chip.stream.event_destroy(event);
}

}  // namespace

Event::Event(int32_t index, bool timing) {
  const Device& d = fl::device(index);
  open_device(index);
  handle_ = take_event(d, timing);
  chip_ = d.chip;
  device_ = index;
  timing_ = timing;
}

Event::~Event() {
  if (handle_) give_event(device_, *chip_, handle_, timing_);
}

Event::Event(Event&& from) noexcept { *this = std::move(from); }

Event& Event::operator=(Event&& from) noexcept {
  std::swap(chip_, from.chip_);
  std::swap(handle_, from.handle_);
  std::swap(recorded_on_, from.recorded_on_);
  std::swap(device_, from.device_);
  std::swap(timing_, from.timing_);
  return *this;
}

void Event::record(Stream& s) {
  if (forked()) throw_bad_fork();
  if (s.device != device_)
    throw Error(FL_INVALID, "an event of " + fl::device(device_).name +
                                " cannot be recorded on a stream of " + fl::device(s.device).name);
  check(chip_->stream.event_record(handle_, s.handle), "cannot record an event");
  recorded_on_ = &s;
}

// Between chips there is nothing that both understand: the host waits.
void Event::block(Stream& s) {
  if (!recorded_on_) return;
  if (fl::device(s.device).chip != chip_) return synchronize();
  if (forked()) throw_bad_fork();
  check(chip_->stream.wait_event(s.handle, handle_), "cannot wait for an event");
}

bool Event::query() const {
  if (!recorded_on_) return true;
  if (forked()) throw_bad_fork();
  fl_status status = chip_->stream.event_query(handle_);
  if (status == FL_OK) return true;
  if (status == FL_NOT_READY) return false;
  throw take_faults(*recorded_on_, status);
}

void Event::synchronize() const {
  if (!recorded_on_) return;
  if (forked()) throw_bad_fork();
  fl_status status = chip_->stream.event_synchronize(handle_, timeout_ns());
  if (status == FL_TIMEOUT)
    throw timed_out(*recorded_on_, "waiting for an event on " + name_of(*recorded_on_));
  // Work before the event may have failed: ask the stream, which knows.
  fl_status fault = status == FL_OK ? chip_of(*recorded_on_).stream.query(recorded_on_->handle) : status;
  if (fault != FL_OK && fault != FL_NOT_READY) throw take_faults(*recorded_on_, fault);
}

bool Event::passed() const { return chip_->stream.event_query(handle_) != FL_NOT_READY; }

void Event::wait() const {
  if (chip_->stream.event_synchronize(handle_, timeout_ns()) == FL_TIMEOUT)
    throw timed_out(*recorded_on_, "waiting for an event on " + name_of(*recorded_on_));
}

double Event::elapsed_ms(const Event& end) const {
  if (forked()) throw_bad_fork();
  if (!timing_ || !end.timing_)
    throw Error(FL_INVALID, "elapsed time needs events made with timing (enable_timing=True)");
  if (!recorded_on_ || !end.recorded_on_) throw Error(FL_INVALID, "elapsed time needs both events recorded");
  if (chip_ != end.chip_ || device_ != end.device_)
    throw Error(FL_INVALID, "elapsed time between events of " + fl::device(device_).name + " and " +
                                fl::device(end.device_).name);
  double milliseconds = 0;
  fl_status status = chip_->stream.event_elapsed(handle_, end.handle_, &milliseconds);
  if (status == FL_NOT_READY)
    throw Error(status, "elapsed time needs both events completed: synchronize the later one first");
  check(status, "elapsed time");
  return milliseconds;
}

// --------------------------------------------------------------------- process

bool in_bad_fork() noexcept { return forked(); }

void shutdown() noexcept {
  if (forked()) return;
  constexpr int64_t kLimit = int64_t{10} * 1000 * 1000 * 1000;  // a hanging kernel must not hang the exit
  for (DeviceStreams& d : all_streams)
    for (auto& place : d.streams)
      if (Stream* s = place.load(std::memory_order_acquire))
        chip_of(*s).stream.synchronize(s->handle, kLimit);
}

}  // namespace fl
