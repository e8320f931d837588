// Events: positions in streams.
#include "stream.h"

namespace sim {
namespace {

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

fl_status event_lost(const Event& e) {
  if (!e.device->lost.load(std::memory_order_acquire)) return FL_OK;
  set_error("sim: device %d is lost", e.device->index);
  return FL_DEVICE_LOST;
}

}  // namespace

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

}  // namespace sim
