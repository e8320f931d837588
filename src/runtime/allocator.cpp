// The allocator's public face: one DeviceMemory for each device.
#include "runtime/allocator.h"

#include <atomic>

#include "chip/error.h"
#include "runtime/device_memory.h"

namespace fl {

namespace {

// Made on first use, never destroyed: tensors may be freed while the process exits.
constinit std::array<std::atomic<DeviceMemory*>, kMaxDevices> memories{};

DeviceMemory& make_memory(int32_t index) {
  const Device& d = device(index);
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  auto& place = memories[static_cast<size_t>(index)];
  if (!place.load(std::memory_order_acquire)) place.store(new DeviceMemory(d), std::memory_order_release);
  return *place.load(std::memory_order_acquire);
}

DeviceMemory* existing(int32_t index) noexcept {
  if (index < 0 || index >= kMaxDevices) return nullptr;
  return memories[static_cast<size_t>(index)].load(std::memory_order_acquire);
}

DeviceMemory& memory_of(int32_t index) {
  DeviceMemory* memory = existing(index);
  return memory ? *memory : make_memory(index);
}

void check_fork() {
  if (forked())
    throw Error(FL_FAILED,
                "cannot use a device's memory in a forked process: its parent had started the device, and "
                "a device does not survive a fork; use multiprocessing's start method \"spawn\"");
}

}  // namespace

Block* allocate(Stream& stream, size_t bytes) {
  check_fork();
  DeviceMemory& memory = memory_of(stream.device);
  return bytes ? memory.allocate(stream, bytes) : memory.empty();
}

void* address(const Block* block) noexcept { return block->address; }
size_t size(const Block* block) noexcept { return block->size; }
int32_t device_of(const Block* block) noexcept { return block->device; }

// In a forked child the lock may be held for ever, and the memory is the parent's.
void free(Block* block) noexcept {
  if (!block || forked()) return;
  memories[static_cast<size_t>(block->device)].load(std::memory_order_relaxed)->free(block);
}

void record_stream(Block* block, Stream& stream) {
  check_fork();
  memory_of(block->device).record_stream(block, stream);
}

Block* find_block(const void* address, int32_t* device) noexcept {
  if (forked()) return nullptr;
  for (int32_t i = 0; i < kMaxDevices; ++i) {
    DeviceMemory* memory = existing(i);
    Block* block = memory ? memory->find(address) : nullptr;
    if (!block) continue;
    if (device) *device = i;
    return block;
  }
  return nullptr;
}

void empty_cache(int32_t index) {
  check_fork();
  for (int32_t i = 0; i < kMaxDevices; ++i)
    if (index == -1 || index == i)
      if (DeviceMemory* memory = existing(i)) memory->empty_cache();
}

void set_memory_fraction(int32_t index, double fraction) {
  if (!(fraction >= 0 && fraction <= 1))
    throw Error(FL_INVALID, "a memory fraction is a number from 0 to 1, not " + std::to_string(fraction));
  memory_of(index).set_fraction(fraction);
}

double memory_fraction(int32_t index) { return memory_of(index).fraction(); }

MemoryStats memory_stats(int32_t index) { return memory_of(index).stats(); }
void reset_accumulated_stats(int32_t index) { memory_of(index).reset_accumulated_stats(); }
void reset_peak_stats(int32_t index) { memory_of(index).reset_peak_stats(); }

std::vector<SegmentInfo> memory_snapshot() {
  std::vector<SegmentInfo> segments;
  for (int32_t i = 0; i < kMaxDevices; ++i)
    if (DeviceMemory* memory = existing(i)) memory->snapshot(segments);
  return segments;
}

}  // namespace fl
