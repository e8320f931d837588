// Setting a kernel's arguments and queueing it.
#pragma once

#include <cstring>
#include <utility>

#include "library.h"

namespace ocl {

class Launch {
 public:
  Launch(const fl_launch* launch, Kernel* kernel)
      : launch_(*launch), stream_(*launch->stream), kernel_(*kernel) {
    if (uint64_t now = stream_.device->memory.generation(); kernel_.generation != now)
      kernel_.buffers.clear(), kernel_.generation = now;
  }

  // The buffer that an address lies in; its offset goes with the values. Returns the offset in bytes.
  uint64_t buffer(const void* address) {
    Place place = stream_.device->memory.find(address);
    if (!place.buffer) {
      if (error_ == CL_SUCCESS) error_ = kNoAddress, bad_ = address;
      return 0;
    }
    handle(place.buffer);
    return place.offset;
  }
  void handle(cl_mem buffer) {
    if (kernel_.buffers.size() <= next_) kernel_.buffers.resize(next_ + 1);
    cl_mem& last = kernel_.buffers[next_];
    if (last == buffer) {
      ++next_;
    } else {
      set(sizeof buffer, &buffer);
      last = buffer;
    }
  }
  // Where the kernel reports what is wrong with its data, and the name it reports.
  void fault() {
    handle(stream_.fault);
    value(launch_.tag);
    stream_.may_fault.store(true, std::memory_order_relaxed);
  }
  template <class T>
  void value(const T& v) {
    static_assert(std::is_trivially_copyable_v<T>);
    set(sizeof v, &v);
  }
  void bytes(size_t n, const void* data) { set(n, data); }
  // Argument 0. What the kernel has already is not set again: the driver takes a lock and copies.
  void parameters(size_t n, const void* data) {
    auto& last = kernel_.parameters;
    next_ = 0;
    if (last.size() == n && std::memcmp(last.data(), data, n) == 0) {
      ++next_;
      return;
    }
    set(n, data);
    const auto* from = static_cast<const char*>(data);
    last.assign(from, error_ == CL_SUCCESS ? from + n : from);
  }
  void local(size_t n) { set(n, nullptr); }  // memory of the group
  void at(cl_uint argument) { next_ = argument; }

  // `groups` work-groups of `local` work-items.
  fl_status run(size_t groups, size_t local) {
    if (error_ == kNoAddress) return refuse(FL_INVALID, "%p is no address of the device", bad_);
    if (error_ != CL_SUCCESS) return failed(error_, "clSetKernelArg");
    if (stream_.device->lost.load(std::memory_order_relaxed)) return FL_DEVICE_LOST;
    size_t global = groups * local;
    const Queueing queueing(stream_);
    cl_int error = cl.clEnqueueNDRangeKernel(stream_.queue, kernel_.handle, 1, nullptr, &global, &local, 0,
                                             nullptr, nullptr);
    return error == CL_SUCCESS ? FL_OK : failed(error, "clEnqueueNDRangeKernel");
  }

 private:
  static constexpr cl_int kNoAddress = 1;
  void set(size_t n, const void* data) {
    cl_int error = cl.clSetKernelArg(kernel_.handle, next_++, n, data);
    if (error != CL_SUCCESS && error_ == CL_SUCCESS) error_ = error;
  }
  const fl_launch& launch_;
  Stream& stream_;
  Kernel& kernel_;
  cl_uint next_ = 0;
  cl_int error_ = CL_SUCCESS;
  const void* bad_ = nullptr;
};

// How many work-items make a group, and how many groups share n pieces of work of which `grain` are worth a
// group: on a processor a group is one work-item that loops, elsewhere a block of threads that strides.
struct Shape {
  size_t groups, local;
};
inline Shape shape_for(const Device& d, int64_t n, int64_t grain) {
  if (d.info.processor) {
    int64_t groups = (n + grain - 1) / (grain < 1 ? 1 : grain), most = int64_t{8} * d.info.units;
    return {static_cast<size_t>(groups < 1 ? 1 : groups > most ? most : groups), 1};
  }
  size_t local = d.info.max_group < 256 ? d.info.max_group : 256;
  int64_t groups = (n + static_cast<int64_t>(local) - 1) / static_cast<int64_t>(local),
          most = int64_t{32} * d.info.units;
  return {static_cast<size_t>(groups < 1 ? 1 : groups > most ? most : groups), local};
}

// What a kernel gets besides buffers, all of it 8 bytes wide: by value where it is small, else through
// memory. Kernels that get either begin with (PARAMETERS, …) and have their struct P; `declare` says which.
class Parameters {
 public:
  void push(int64_t v) { data_[count_++] = v; }
  int reserve(int n) { return std::exchange(count_, count_ + n); }  // filled in later, by set
  void set(int at, uint64_t v) { data_[at] = static_cast<int64_t>(v); }
  static bool by_value(size_t longs) {
    return longs * 8 <= 900;
  }  // devices take 1024 bytes of arguments at least
  static const char* declare(bool by_value) {
    return by_value ? "\n#define PARAMETERS const P p\n"
                    : "\n#define PARAMETERS __global const P* parameters, long parameters_offset\n#define "
                      "IN_MEMORY\n";
  }
  // The argument that comes after what `pass` sets; known once everything is pushed.
  cl_uint first() const { return by_value(static_cast<size_t>(count_)) ? 1 : 2; }
  fl_status pass(Launch& l, const fl_launch* launch) {
    size_t bytes = static_cast<size_t>(count_) * 8;
    if (by_value(static_cast<size_t>(count_))) {
      l.parameters(bytes, data_);
      return FL_OK;
    }
    l.at(0);
    void* memory;
    if (fl_status status = host()->scratch(launch, bytes, &memory)) return status;
    if (fl_status status = write_parameters(launch, memory, data_, bytes)) return status;
    l.value(static_cast<int64_t>(l.buffer(memory)));
    return FL_OK;
  }

 private:
  static constexpr int kMost =
      640;  // more than any kernel's: 16 dimensions of 13 operands twice, and scalars
  int64_t data_[kMost];
  int count_ = 0;
};

}  // namespace ocl
