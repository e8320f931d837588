// Device memory: buffers behind addresses that nobody can read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "cl_api.h"

namespace ocl {

// Where an address lies.
struct Place {
  cl_mem buffer = nullptr;
  uint64_t offset = 0;  // bytes
};

// A device's addresses. Blocks begin at multiples of kGranule, so that the block of an address is found with
// one look into a table and no lock: the host's allocator asks for few and large ones.
class Memory {
 public:
  static constexpr size_t kGranule = size_t{2} << 20;

  // Reserves the range. False when the process may not have that much address space.
  bool reserve(uint64_t total, uint64_t max_alloc);
  // Null when there is no room; `error` has the driver's word.
  void* allocate(cl_context context, size_t bytes, cl_int* error);
  bool release(void* address);
  uint64_t total() const { return total_; }
  uint64_t left() const;

  // Changes when a buffer is given back: a new one may then have the same handle.
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

  // Of an address that allocate() gave, or one within its block. Any thread.
  Place find(const void* address) const {
    auto at = reinterpret_cast<uintptr_t>(address) - base_;
    const Block* block = at < range_ ? table_[at / kGranule].load(std::memory_order_acquire) : nullptr;
    return block ? Place{block->buffer, at - block->begin} : Place{};
  }

 private:
  struct Block {
    cl_mem buffer;
    uint64_t begin;  // within the range
    size_t bytes, span;
  };
  std::atomic<uint64_t> generation_{0};
  uintptr_t base_ = 0;
  size_t range_ = 0;                            // bytes
  std::atomic<const Block*>* table_ = nullptr;  // one for each granule; pages that are not used cost nothing
  uint64_t total_ = 0, max_alloc_ = 0, used_ = 0;
  std::map<uint64_t, uint64_t> vacant_;  // begin → bytes, of the range
  mutable std::mutex mutex_;
};

}  // namespace ocl
