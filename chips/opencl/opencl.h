// What the parts of the OpenCL chip share: devices, streams, where an address lies, and launching a kernel.
//
// Addresses that the host sees are numbers in a range that is reserved and never mapped: host code that
// touches one faults, as with any accelerator. A kernel gets the buffer that an address lies in, and the
// offset there.
#pragma once

#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <mutex>
#include <type_traits>

#include "fl/author/entry.h"
#include "fl/author/tensor.h"
#include "memory.h"
#include "query.h"

namespace ocl {

using namespace fl::author;

struct Library;  // library.h

struct Device {
  int32_t index = 0;
  DeviceInfo info{};
  cl_device_id id = nullptr;
  cl_context context = nullptr;
  cl_command_queue service = nullptr;  // for the chip's own transfers
  Memory memory;
  Library* library = nullptr;
  std::atomic<bool> opened{false}, lost{false};
};

// The device, open; null, with the sentence set, when it is none or does not open.
Device* open_device(int32_t index);
// The same without the checks, for a launch: the host has opened it.
Device& device_at(int32_t index);

// What a kernel writes when something is wrong with its data: the first one counts (kernels/fault.cl).
struct DeviceFault {
  int32_t status;
  uint32_t kind;
  uint64_t tag;
  int64_t a, b;
};
enum FaultKind : uint32_t { kIndexOutOfRange = 1, kDivisionByZero = 2 };

// Puts what a kernel needs and cannot take by value into scratch memory of the launch.
fl_status write_parameters(const fl_launch* launch, void* to, const void* from, size_t bytes);

// Status for an OpenCL error, with the sentence set: `what` names the call for a person.
fl_status failed(cl_int error, const char* what);

}  // namespace ocl

struct fl_stream_s {
  ocl::Device* device = nullptr;
  cl_command_queue queue = nullptr;
  cl_mem fault = nullptr;              // a DeviceFault
  std::atomic<bool> may_fault{false};  // a kernel that checks its data was launched since the last look
  // How much was queued, and how much of it is known to be done. Counted when it is in the queue, and read
  // before one waits for the queue: what is counted as done then is.
  std::atomic<uint64_t> queued{0}, done{0};
  bool idle() const { return done.load(std::memory_order_acquire) == queued.load(std::memory_order_acquire); }
  std::mutex mutex;                  // of what follows
  fl_fault found{};                  // and not taken
  cl_command_queue clock = nullptr;  // takes the times of events; there once one is recorded
  cl_event timed = nullptr;          // the last marker in it
  cl_event probe = nullptr;          // a marker behind the first `probed` that were queued
  uint64_t probed = 0;
};

namespace ocl {

using Stream = fl_stream_s;

// Counts at its end what was queued in its scope.
class Queueing {
 public:
  explicit Queueing(Stream& stream) : stream_(stream) {}
  ~Queueing() { stream_.queued.fetch_add(1, std::memory_order_release); }
  Queueing(const Queueing&) = delete;
  Queueing& operator=(const Queueing&) = delete;

 private:
  Stream& stream_;
};

}  // namespace ocl
