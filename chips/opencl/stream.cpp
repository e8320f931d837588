// Streams are command queues; events are markers in them.
//
// Queues take no times: a driver would read the clock several times for each launch. An event with timing is
// a marker in a second queue that does, behind the one in the stream's own.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "opencl.h"

struct fl_event_s {
  ocl::Device* device;
  bool timing;
  std::mutex mutex;
  cl_event marker = nullptr;  // of the last record
};

namespace ocl {

namespace {

// ------------------------------------------------------------------------ waiting
cl_int execution_status(cl_event event) {
  cl_int status = CL_COMPLETE;
  cl_int error = cl.clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr);
  return error == CL_SUCCESS ? status : error;
}

// Until the event is done. Without a limit the driver waits; with one, this looks again and again, less often
// each time.
fl_status wait_for(cl_event event, int64_t timeout_ns) {
  if (timeout_ns < 0) {
    cl_int error = cl.clWaitForEvents(1, &event);
    if (error == CL_SUCCESS) return FL_OK;
    return failed(execution_status(event) < 0 ? execution_status(event) : error, "a command");
  }
  using clock = std::chrono::steady_clock;
  auto end = clock::now() + std::chrono::nanoseconds(timeout_ns);
  for (auto pause = std::chrono::microseconds(2);;
       pause = std::min(pause * 2, std::chrono::microseconds(500))) {
    cl_int status = execution_status(event);
    if (status == CL_COMPLETE) return FL_OK;
    if (status < 0) return failed(status, "a command");
    auto now = clock::now();
    if (now >= end) return FL_TIMEOUT;
    std::this_thread::sleep_for(std::min<clock::duration>(pause, end - now));
  }
}

// ------------------------------------------------------------------------- faults
const char* reason(const DeviceFault& f, char* text, size_t n) {
  if (f.kind == kIndexOutOfRange)
    std::snprintf(text, n, "index %lld is out of range for a dimension of size %lld",
                  static_cast<long long>(f.a), static_cast<long long>(f.b));
  else if (f.kind == kDivisionByZero) std::snprintf(text, n, "integer division by zero");
  else std::snprintf(text, n, "a kernel reported fault %u", f.kind);
  return text;
}

// With the queue empty: what its kernels found goes to where it can be taken.
fl_status look_for_fault(Stream& stream) {
  std::lock_guard<std::mutex> guard(stream.mutex);
  if (stream.may_fault.exchange(false)) {
    DeviceFault f{};
    cl_int error =
        cl.clEnqueueReadBuffer(stream.queue, stream.fault, 1, 0, sizeof f, &f, 0, nullptr, nullptr);
    if (error != CL_SUCCESS) return failed(error, "clEnqueueReadBuffer");
    if (f.status) {
      if (stream.found.status == FL_OK) {
        stream.found.status = f.status;
        stream.found.tag = f.tag;
        reason(f, stream.found.text, sizeof stream.found.text);
      }
      DeviceFault none{};
      cl.clEnqueueWriteBuffer(stream.queue, stream.fault, 1, 0, sizeof none, &none, 0, nullptr, nullptr);
    }
  }
  return stream.found.status;
}

// ------------------------------------------------------------------------ streams
fl_status create(int32_t index, int32_t, fl_stream* out) {
  Device* device = open_device(index);
  if (!device) return FL_INVALID;
  cl_int error;
  cl_command_queue queue = cl.clCreateCommandQueue(device->context, device->id, 0, &error);
  if (!queue) return failed(error, "clCreateCommandQueue");
  cl_mem fault = cl.clCreateBuffer(device->context, CL_MEM_READ_WRITE, sizeof(DeviceFault), nullptr, &error);
  DeviceFault none{};
  if (fault) error = cl.clEnqueueWriteBuffer(queue, fault, 1, 0, sizeof none, &none, 0, nullptr, nullptr);
  if (error != CL_SUCCESS) {
    if (fault) cl.clReleaseMemObject(fault);
    cl.clReleaseCommandQueue(queue);
    return failed(error, "a stream's memory");
  }
  auto* stream = new Stream;
  stream->device = device, stream->queue = queue, stream->fault = fault;
  *out = stream;
  return FL_OK;
}

// The driver finishes what is queued before the queue is gone; the fault buffer is held by the kernels that
// use it.
fl_status destroy(fl_stream stream) {
  cl.clFlush(stream->queue);
  cl.clReleaseCommandQueue(stream->queue);
  if (stream->timed) cl.clReleaseEvent(stream->timed);
  if (stream->probe) cl.clReleaseEvent(stream->probe);
  if (stream->clock) cl.clReleaseCommandQueue(stream->clock);
  cl.clReleaseMemObject(stream->fault);
  delete stream;
  return FL_OK;
}

// A reference of one's own to what some thread may replace, or null.
cl_event held(std::mutex& mutex, const cl_event& event) {
  std::lock_guard<std::mutex> guard(mutex);
  if (event) cl.clRetainEvent(event);
  return event;
}

// With all done that was counted as queued.
void all_done(Stream& stream, uint64_t queued) {
  uint64_t done = stream.done.load(std::memory_order_relaxed);
  while (done < queued && !stream.done.compare_exchange_weak(done, queued, std::memory_order_release)) {
  }
}

// A marker behind all that is queued, or behind what was when it was made and is not known to be done: there
// is one at a time, since a loop of queries makes them faster than a driver is done with them.
struct Probe {
  cl_event marker;  // a reference of one's own
  uint64_t covers;  // of what was counted as queued
};
cl_int probe(Stream& stream, Probe* out) {
  std::lock_guard<std::mutex> guard(stream.mutex);
  if (!stream.probe) {
    stream.probed = stream.queued.load(std::memory_order_acquire);
    if (cl_int error = cl.clEnqueueMarkerWithWaitList(stream.queue, 0, nullptr, &stream.probe)) return error;
    cl.clFlush(stream.queue);
  }
  cl.clRetainEvent(stream.probe);
  *out = {stream.probe, stream.probed};
  return CL_SUCCESS;
}
// With it done, or failed.
void retire(Stream& stream, const Probe& p) {
  std::lock_guard<std::mutex> guard(stream.mutex);
  if (stream.probe != p.marker) return;
  cl.clReleaseEvent(stream.probe);
  stream.probe = nullptr;
}

// Until what is queued at the call is done, or FL_TIMEOUT.
fl_status wait_for_queued(Stream& stream, uint64_t queued, int64_t timeout_ns) {
  if (timeout_ns < 0) return failed(cl.clFinish(stream.queue), "clFinish");
  using clock = std::chrono::steady_clock;
  const auto end = clock::now() + std::chrono::nanoseconds(timeout_ns);
  for (Probe p{nullptr, 0}; p.covers < queued;) {
    if (cl_int error = probe(stream, &p)) return failed(error, "clEnqueueMarkerWithWaitList");
    const std::chrono::nanoseconds left = end - clock::now();
    const fl_status status = wait_for(p.marker, std::max<int64_t>(0, left.count()));
    if (status != FL_TIMEOUT) retire(stream, p);
    cl.clReleaseEvent(p.marker);
    if (status != FL_OK) return status;
  }
  return FL_OK;
}

fl_status synchronize(fl_stream stream, int64_t timeout_ns) {
  if (stream->device->lost) return FL_DEVICE_LOST;
  if (!stream->idle()) {
    const uint64_t queued = stream->queued.load(std::memory_order_acquire);
    if (fl_status status = wait_for_queued(*stream, queued, timeout_ns)) return status;
    if (cl_event timed = held(stream->mutex, stream->timed)) {
      fl_status status = wait_for(timed, timeout_ns);
      cl.clReleaseEvent(timed);
      if (status != FL_OK) return status;
    }
    all_done(*stream, queued);
  }
  return look_for_fault(*stream);
}

fl_status query(fl_stream stream) {
  if (stream->device->lost) return FL_DEVICE_LOST;
  while (!stream->idle()) {
    Probe p;
    if (cl_int error = probe(*stream, &p)) return failed(error, "clEnqueueMarkerWithWaitList");
    const cl_event timed = held(stream->mutex, stream->timed);
    cl_int status = execution_status(p.marker);
    if (status == CL_COMPLETE && timed) status = execution_status(timed);
    if (status <= CL_COMPLETE) retire(*stream, p);
    cl.clReleaseEvent(p.marker);
    if (timed) cl.clReleaseEvent(timed);
    if (status < 0) return failed(status, "a command");
    if (status != CL_COMPLETE) return FL_NOT_READY;
    all_done(*stream, p.covers);
  }
  return look_for_fault(*stream);
}

fl_status take_fault(fl_stream stream, fl_fault* out) {
  std::lock_guard<std::mutex> guard(stream->mutex);
  if (stream->found.status == FL_OK) return FL_NOT_READY;
  uint32_t size = out->size < sizeof(fl_fault) ? out->size : static_cast<uint32_t>(sizeof(fl_fault));
  stream->found.size = size;
  std::memcpy(out, &stream->found, size);
  stream->found = {};
  return FL_OK;
}

// ------------------------------------------------------------------------- events
fl_status event_create(int32_t index, uint32_t flags, fl_event* out) {
  Device* device = open_device(index);
  if (!device) return FL_INVALID;
  *out = new fl_event_s{device, (flags & FL_EVENT_TIMING) != 0, {}, nullptr};
  return FL_OK;
}

fl_status event_destroy(fl_event event) {
  if (event->marker) cl.clReleaseEvent(event->marker);
  delete event;
  return FL_OK;
}

cl_event marker_of(fl_event event) { return held(event->mutex, event->marker); }

// Puts a marker behind `marker` into the stream's queue that takes times, and takes its place.
fl_status take_time(Stream& stream, cl_event& marker) {
  std::lock_guard<std::mutex> guard(stream.mutex);
  const Device& device = *stream.device;
  cl_int error;
  if (!stream.clock) {
    stream.clock = cl.clCreateCommandQueue(device.context, device.id, CL_QUEUE_PROFILING_ENABLE, &error);
    if (!stream.clock) return failed(error, "clCreateCommandQueue");
  }
  cl_event timed;
  error = cl.clEnqueueMarkerWithWaitList(stream.clock, 1, &marker, &timed);
  if (error != CL_SUCCESS) return failed(error, "clEnqueueMarkerWithWaitList");
  cl.clFlush(stream.clock);
  cl.clReleaseEvent(std::exchange(marker, timed));
  cl.clRetainEvent(timed);
  if (cl_event before = std::exchange(stream.timed, timed)) cl.clReleaseEvent(before);
  return FL_OK;
}

fl_status event_record(fl_event event, fl_stream stream) {
  const Queueing queueing(*stream);
  cl_event marker;
  cl_int error = cl.clEnqueueMarkerWithWaitList(stream->queue, 0, nullptr, &marker);
  if (error != CL_SUCCESS) return failed(error, "clEnqueueMarkerWithWaitList");
  cl.clFlush(stream->queue);
  if (event->timing)
    if (fl_status status = take_time(*stream, marker)) return cl.clReleaseEvent(marker), status;
  std::lock_guard<std::mutex> guard(event->mutex);
  if (event->marker) cl.clReleaseEvent(event->marker);
  event->marker = marker;
  return FL_OK;
}

fl_status event_query(fl_event event) {
  cl_event marker = marker_of(event);
  if (!marker) return FL_OK;
  cl_int status = execution_status(marker);
  cl.clReleaseEvent(marker);
  return status < 0 ? failed(status, "a command") : status == CL_COMPLETE ? FL_OK : FL_NOT_READY;
}

fl_status event_synchronize(fl_event event, int64_t timeout_ns) {
  cl_event marker = marker_of(event);
  if (!marker) return FL_OK;
  fl_status status = wait_for(marker, timeout_ns);
  cl.clReleaseEvent(marker);
  return status;
}

// An event means nothing in another device's context: a user event there is set when it is done.
void set_user_event(cl_event event, cl_int status, void* other) {
  cl.clSetUserEventStatus(static_cast<cl_event>(other), status < 0 ? status : CL_COMPLETE);
  cl.clReleaseEvent(static_cast<cl_event>(other));
  cl.clReleaseEvent(event);
}

fl_status wait_event(fl_stream stream, fl_event event) {
  cl_event marker = marker_of(event);
  if (!marker) return FL_OK;
  cl_event awaited = marker;
  cl_int error = CL_SUCCESS;
  if (event->device != stream->device) {
    awaited = cl.clCreateUserEvent(stream->device->context, &error);
    if (!awaited) return cl.clReleaseEvent(marker), failed(error, "clCreateUserEvent");
    cl.clRetainEvent(awaited);  // the callback's
    cl.clRetainEvent(marker);
    error = cl.clSetEventCallback(marker, CL_COMPLETE, set_user_event, awaited);
  }
  const Queueing queueing(*stream);
  if (error == CL_SUCCESS) error = cl.clEnqueueBarrierWithWaitList(stream->queue, 1, &awaited, nullptr);
  if (awaited != marker) cl.clReleaseEvent(awaited);
  cl.clReleaseEvent(marker);
  return failed(error, "clEnqueueBarrierWithWaitList");
}

fl_status event_elapsed(fl_event start, fl_event end, double* milliseconds) {
  if (!start->timing || !end->timing) return refuse(FL_INVALID, "an event was made without timing");
  cl_event markers[] = {marker_of(start), marker_of(end)};
  fl_status status = FL_OK;
  cl_ulong at[2] = {};
  if (!markers[0] || !markers[1]) status = refuse(FL_INVALID, "an event was never recorded");
  for (int i = 0; i < 2 && status == FL_OK; ++i) {
    if (execution_status(markers[i]) > 0) status = FL_NOT_READY;
    else
      status = failed(
          cl.clGetEventProfilingInfo(markers[i], CL_PROFILING_COMMAND_END, sizeof at[i], &at[i], nullptr),
          "clGetEventProfilingInfo");
  }
  for (cl_event marker : markers)
    if (marker) cl.clReleaseEvent(marker);
  if (status == FL_OK) *milliseconds = (static_cast<double>(at[1]) - static_cast<double>(at[0])) * 1e-6;
  return status;
}

}  // namespace

extern const fl_stream_api stream_api;
const fl_stream_api stream_api = {sizeof stream_api,
                                  0,
                                  create,
                                  destroy,
                                  synchronize,
                                  query,
                                  wait_event,
                                  take_fault,
                                  event_create,
                                  event_destroy,
                                  event_record,
                                  event_query,
                                  event_synchronize,
                                  event_elapsed};

}  // namespace ocl
