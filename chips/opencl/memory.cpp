// Device and host memory, and copies between them.
#include "memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "opencl.h"

namespace ocl {

bool Memory::reserve(uint64_t total, uint64_t max_alloc) {
  // A terabyte, so that freed addresses need not be used again soon; less where that is not allowed.
  void* range = MAP_FAILED;
  for (range_ = size_t{1} << 40; range == MAP_FAILED && range_ >= 2 * total && range_ >= kGranule * 2;
       range_ /= 2) {
    range = mmap(nullptr, range_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range != MAP_FAILED) break;
  }
  if (range == MAP_FAILED) return false;
  size_t bytes = range_ / kGranule * sizeof *table_;
  void* table =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (table == MAP_FAILED) return false;
  table_ = static_cast<std::atomic<const Block*>*>(table);  // zero pages are null pointers
  base_ = reinterpret_cast<uintptr_t>(range);
  uint64_t begin = (kGranule - base_ % kGranule) % kGranule;
  base_ += begin;
  range_ = (range_ - begin) / kGranule * kGranule;
  vacant_[0] = range_;
  total_ = total, max_alloc_ = max_alloc;
  return true;
}

uint64_t Memory::left() const {
  std::lock_guard<std::mutex> guard(mutex_);
  return total_ - used_;
}

void* Memory::allocate(cl_context context, size_t bytes, cl_int* error) {
  *error = CL_SUCCESS;
  std::lock_guard<std::mutex> guard(mutex_);
  // Drivers promise more than there is and fail when it is used: what was given out is counted here.
  if (bytes > max_alloc_ || bytes > total_ - used_) return nullptr;
  size_t span = (bytes + kGranule - 1) / kGranule * kGranule;
  auto room = vacant_.begin();
  while (room != vacant_.end() && room->second < span) ++room;
  if (room == vacant_.end()) return nullptr;
  cl_mem buffer = cl.clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, nullptr, error);
  if (!buffer) return nullptr;
  uint64_t begin = room->first, rest = room->second - span;
  vacant_.erase(room);
  if (rest) vacant_[begin + span] = rest;
  auto* block = new Block{buffer, begin, bytes, span};
  for (size_t g = begin / kGranule; g < (begin + span) / kGranule; ++g)
    table_[g].store(block, std::memory_order_release);
  used_ += bytes;
  return reinterpret_cast<void*>(base_ + begin);
}

bool Memory::release(void* address) {
  auto at = reinterpret_cast<uintptr_t>(address) - base_;
  std::lock_guard<std::mutex> guard(mutex_);
  const Block* block = at < range_ ? table_[at / kGranule].load(std::memory_order_relaxed) : nullptr;
  if (!block || block->begin != at) return false;
  for (size_t g = block->begin / kGranule; g < (block->begin + block->span) / kGranule; ++g)
    table_[g].store(nullptr, std::memory_order_relaxed);
  cl.clReleaseMemObject(block->buffer);
  generation_.fetch_add(1, std::memory_order_release);
  used_ -= block->bytes;
  auto room = vacant_.emplace(block->begin, block->span).first;
  if (auto next = std::next(room); next != vacant_.end() && room->first + room->second == next->first) {
    room->second += next->second;
    vacant_.erase(next);
  }
  if (room != vacant_.begin())
    if (auto before = std::prev(room); before->first + before->second == room->first) {
      before->second += room->second;
      vacant_.erase(room);
    }
  delete block;
  return true;
}

namespace {

fl_status device_malloc(int32_t index, size_t bytes, void** out) {
  Device* device = open_device(index);
  if (!device) return FL_INVALID;
  if (bytes == 0) return refuse(FL_INVALID, "malloc of 0 bytes");
  cl_int error;
  void* address = device->memory.allocate(device->context, bytes, &error);
  if (!address) {
    if (error != CL_SUCCESS && error != -4 && error != -5 && error != -6)
      return failed(error, "clCreateBuffer");
    return refuse(FL_OUT_OF_MEMORY,
                  "%s has %llu of %llu bytes left, and gives at most %llu in one piece; %zu were asked for",
                  device->info.name, static_cast<unsigned long long>(device->memory.left()),
                  static_cast<unsigned long long>(device->memory.total()),
                  static_cast<unsigned long long>(device->info.max_alloc), bytes);
  }
  *out = address;
  return FL_OK;
}

fl_status device_free(int32_t index, void* address) {
  Device* device = open_device(index);
  if (!device) return FL_INVALID;
  if (!address || device->memory.release(address)) return FL_OK;
  return refuse(FL_INVALID, "%p is no address that malloc gave", address);
}

fl_status info(int32_t index, uint64_t* free_bytes, uint64_t* total_bytes) {
  Device* device = open_device(index);
  if (!device) return FL_INVALID;
  *free_bytes = device->memory.left(), *total_bytes = device->memory.total();
  return FL_OK;
}

// ------------------------------------------------------------------ host memory
// Allocated by the driver and mapped for good, which is what lets it transfer without staging. With which
// device's driver does not matter to the others: to them it is memory like any other.
struct HostBlock {
  char* end;
  cl_mem buffer;  // null: from the C library, as no device was open
  cl_command_queue queue;
};
std::mutex host_mutex;
auto& host_blocks = *new std::map<char*, HostBlock>;  // by where they begin

fl_status host_alloc(size_t bytes, void** out) {
  if (bytes == 0) return refuse(FL_INVALID, "host_alloc of 0 bytes");
  HostBlock block{};
  void* address = nullptr;
  Device& device = device_at(0);
  if (device.opened.load(std::memory_order_acquire)) {
    cl_int error;
    block.buffer =
        cl.clCreateBuffer(device.context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, bytes, nullptr, &error);
    if (block.buffer) {
      block.queue = device.service;
      address = cl.clEnqueueMapBuffer(block.queue, block.buffer, 1, CL_MAP_READ | CL_MAP_WRITE, 0, bytes, 0,
                                      nullptr, nullptr, &error);
      if (!address || reinterpret_cast<uintptr_t>(address) % 64) {
        if (address) cl.clEnqueueUnmapMemObject(block.queue, block.buffer, address, 0, nullptr, nullptr);
        cl.clReleaseMemObject(block.buffer);
        block = {}, address = nullptr;
      }
    }
  }
  if (!address && posix_memalign(&address, 64, bytes))
    return refuse(FL_OUT_OF_MEMORY, "the host has no %zu bytes", bytes);
  block.end = static_cast<char*>(address) + bytes;
  std::lock_guard<std::mutex> guard(host_mutex);
  host_blocks[static_cast<char*>(address)] = block;
  *out = address;
  return FL_OK;
}

fl_status host_free(void* address) {
  if (!address) return FL_OK;
  HostBlock block;
  {
    std::lock_guard<std::mutex> guard(host_mutex);
    auto found = host_blocks.find(static_cast<char*>(address));
    if (found == host_blocks.end())
      return refuse(FL_INVALID, "%p is no address that host_alloc gave", address);
    block = found->second;
    host_blocks.erase(found);
  }
  if (!block.buffer) std::free(address);
  else {
    cl.clEnqueueUnmapMemObject(block.queue, block.buffer, address, 0, nullptr, nullptr);
    cl.clReleaseMemObject(block.buffer);
  }
  return FL_OK;
}

bool is_host_block(const void* address) {
  std::lock_guard<std::mutex> guard(host_mutex);
  auto* p = static_cast<char*>(const_cast<void*>(address));
  auto next = host_blocks.upper_bound(p);
  return next != host_blocks.begin() && p < std::prev(next)->second.end;
}

// ----------------------------------------------------------------------- copies
// A source that the caller may free at once is copied aside first, in pieces that are used again.
class Staging {
 public:
  static constexpr size_t kPiece = size_t{1} << 20;
  char* take() {
    std::lock_guard<std::mutex> guard(mutex_);
    if (!spare_.empty()) {
      char* piece = spare_.back();
      spare_.pop_back();
      return piece;
    }
    return static_cast<char*>(std::aligned_alloc(64, kPiece));
  }
  void give_back(char* piece) {
    std::lock_guard<std::mutex> guard(mutex_);
    if (spare_.size() < 64) spare_.push_back(piece);
    else std::free(piece);
  }

 private:
  std::mutex mutex_;
  std::vector<char*> spare_;
};
Staging& staging = *new Staging;

void staged(cl_event event, cl_int, void* piece) {
  staging.give_back(static_cast<char*>(piece));
  cl.clReleaseEvent(event);
}

fl_status write_staged(Stream& stream, Place to, const char* from, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    size_t n = bytes - done < Staging::kPiece ? bytes - done : Staging::kPiece;
    char* piece = staging.take();
    if (!piece) return refuse(FL_OUT_OF_MEMORY, "the host has no memory to stage a copy");
    std::memcpy(piece, from + done, n);
    cl_event event;
    cl_int error =
        cl.clEnqueueWriteBuffer(stream.queue, to.buffer, 0, to.offset + done, n, piece, 0, nullptr, &event);
    if (error != CL_SUCCESS) return staging.give_back(piece), failed(error, "clEnqueueWriteBuffer");
    cl.clSetEventCallback(event, CL_COMPLETE, staged, piece);
    done += n;
  }
  cl.clFlush(stream.queue);
  return FL_OK;
}

fl_status copy(const fl_launch* launch, int kind, void* to, const void* from, size_t bytes) {
  Stream& stream = *launch->stream;
  Memory& memory = stream.device->memory;
  if (stream.device->lost) return FL_DEVICE_LOST;
  if (bytes == 0) return FL_OK;
  const Queueing queueing(stream);
  if (kind == FL_HOST_TO_DEVICE) {
    Place place = memory.find(to);
    if (!place.buffer) return refuse(FL_INVALID, "%p is no address of the device", to);
    if (!is_host_block(from)) {
      // A large copy waits: the driver then reads the source itself.
      if (bytes <= 8 * Staging::kPiece)
        return write_staged(stream, place, static_cast<const char*>(from), bytes);
      return failed(cl.clEnqueueWriteBuffer(stream.queue, place.buffer, 1, place.offset, bytes, from, 0,
                                            nullptr, nullptr),
                    "clEnqueueWriteBuffer");
    }
    cl_int error = cl.clEnqueueWriteBuffer(stream.queue, place.buffer, 0, place.offset, bytes, from, 0,
                                           nullptr, nullptr);
    if (error == CL_SUCCESS) cl.clFlush(stream.queue);
    return failed(error, "clEnqueueWriteBuffer");
  }
  Place source = memory.find(from);
  if (!source.buffer) return refuse(FL_INVALID, "%p is no address of the device", from);
  if (kind == FL_DEVICE_TO_HOST) {
    cl_int error =
        cl.clEnqueueReadBuffer(stream.queue, source.buffer, 0, source.offset, bytes, to, 0, nullptr, nullptr);
    if (error == CL_SUCCESS) cl.clFlush(stream.queue);
    return failed(error, "clEnqueueReadBuffer");
  }
  if (kind != FL_DEVICE_TO_DEVICE) return refuse(FL_INVALID, "copy: %d is no kind", kind);
  Place place = memory.find(to);
  if (!place.buffer) return refuse(FL_INVALID, "%p is no address of the device", to);
  return failed(cl.clEnqueueCopyBuffer(stream.queue, source.buffer, place.buffer, source.offset, place.offset,
                                       bytes, 0, nullptr, nullptr),
                "clEnqueueCopyBuffer");
}

}  // namespace

fl_status write_parameters(const fl_launch* launch, void* to, const void* from, size_t bytes) {
  Stream& stream = *launch->stream;
  const Queueing queueing(stream);
  return write_staged(stream, stream.device->memory.find(to), static_cast<const char*>(from), bytes);
}

extern const fl_memory_api memory_api;
const fl_memory_api memory_api = {sizeof memory_api, 0,          device_malloc, device_free, info, copy,
                                  nullptr,           host_alloc, host_free,     nullptr};

}  // namespace ocl
