// The caching allocator of device memory: one for all devices and chips.
//
// Requests are rounded to size classes; freed blocks are split, coalesced and
// kept for the stream that they were allocated on.  A block used on another
// stream (record_stream) is reused only after an event there has passed.  On
// exhaustion cached blocks are given back and the request is tried again.
// Thread-safe; alloc and free from cache take one lock and no system call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/stream.h"

namespace fl {

struct Block;  // opaque; held by the storage of a tensor

// Throws Error FL_OUT_OF_MEMORY with the numbers a person needs: requested,
// free, total, allocated, cached, the limit, and what to try.  bytes may be 0:
// the block then has a null address and costs nothing.
Block* allocate(Stream& stream, size_t bytes);
void* address(const Block* block) noexcept;
size_t size(const Block* block) noexcept;  // what allocate() rounded the request up to
int32_t device_of(const Block* block) noexcept;
void free(Block* block) noexcept;
void record_stream(Block* block, Stream& stream);
// The live block that contains the address, or null.  Takes the lock.
Block* find_block(const void* address, int32_t* device = nullptr) noexcept;

void empty_cache(int32_t device = -1);                      // -1: all
void set_memory_fraction(int32_t device, double fraction);  // of total memory, 0…1
double memory_fraction(int32_t device);

// The meaning of each number is c10::CachingAllocator's.
struct Stat {
  int64_t current = 0, peak = 0, allocated = 0, freed = 0;
};
enum StatType { kAggregate = 0, kSmallPool = 1, kLargePool = 2, kStatTypes = 3 };
using StatArray = std::array<Stat, kStatTypes>;
struct MemoryStats {
  StatArray allocation, segment, active, inactive_split;
  StatArray allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes, requested_bytes;
  Stat oversize_allocations, oversize_segments;
  int64_t num_alloc_retries = 0, num_ooms = 0, num_sync_all_streams = 0, num_device_alloc = 0,
          num_device_free = 0;
  int64_t max_split_size = 0;
};
MemoryStats memory_stats(int32_t device);
void reset_accumulated_stats(int32_t device);
void reset_peak_stats(int32_t device);

}  // namespace fl
