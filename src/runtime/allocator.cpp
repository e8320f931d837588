#include "runtime/allocator.h"

#include <map>
#include <mutex>

#include "chip/error.h"

namespace fl {

// First form: the chip's own malloc and free, no cache.
struct Block {
  void* address;
  size_t size;
  Stream* stream;
  std::vector<Stream*> used_on;
};

namespace {
std::mutex mutex;
std::map<uintptr_t, Block*> live;
std::array<MemoryStats, kMaxDevices> stats_of;
void add(StatArray& a, int64_t n) {
  for (int i : {0, 2}) {
    a[i].current += n;
    a[i].peak = std::max(a[i].peak, a[i].current);
    (n > 0 ? a[i].allocated : a[i].freed) += n > 0 ? n : -n;
  }
}
}  // namespace

Block* allocate(Stream& stream, size_t bytes) {
  auto* block = new Block{nullptr, bytes, &stream, {}};
  if (!bytes) return block;
  check(stream.chip->memory.malloc(stream.local, bytes, &block->address), "cannot allocate");
  std::lock_guard<std::mutex> lock(mutex);
  live[reinterpret_cast<uintptr_t>(block->address)] = block;
  MemoryStats& s = stats_of[stream.device];
  add(s.allocation, 1);
  add(s.allocated_bytes, bytes);
  add(s.reserved_bytes, bytes);
  add(s.active_bytes, bytes);
  add(s.requested_bytes, bytes);
  return block;
}
void* address(const Block* block) noexcept { return block ? block->address : nullptr; }
size_t size(const Block* block) noexcept { return block->size; }
int32_t device(const Block* block) noexcept { return block->stream->device; }
void free(Block* block) noexcept {
  if (!block) return;
  if (block->address) {
    block->stream->chip->stream.synchronize(block->stream->handle, -1);
    for (Stream* s : block->used_on) s->chip->stream.synchronize(s->handle, -1);
    block->stream->chip->memory.free(block->stream->local, block->address);
    std::lock_guard<std::mutex> lock(mutex);
    live.erase(reinterpret_cast<uintptr_t>(block->address));
    MemoryStats& s = stats_of[block->stream->device];
    int64_t n = static_cast<int64_t>(block->size);
    add(s.allocation, -1);
    add(s.allocated_bytes, -n);
    add(s.reserved_bytes, -n);
    add(s.active_bytes, -n);
    add(s.requested_bytes, -n);
  }
  delete block;
}
void record_stream(Block* block, Stream& stream) { block->used_on.push_back(&stream); }
Block* find_block(const void* address, int32_t* device) noexcept {
  std::lock_guard<std::mutex> lock(mutex);
  auto p = reinterpret_cast<uintptr_t>(address);
  auto found = live.upper_bound(p);
  if (found == live.begin()) return nullptr;
  Block* b = (--found)->second;
  if (p >= found->first + b->size) return nullptr;
  if (device) *device = b->stream->device;
  return b;
}
void empty_cache(int32_t) {}
void set_memory_fraction(int32_t, double) {}
double memory_fraction(int32_t) { return 1; }
MemoryStats memory_stats(int32_t device) {
  std::lock_guard<std::mutex> lock(mutex);
  return stats_of.at(device);
}
void reset_accumulated_stats(int32_t) {}
void reset_peak_stats(int32_t) {}
std::vector<SegmentInfo> memory_snapshot() { return {}; }

}  // namespace fl
