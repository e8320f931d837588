// Blocks of device memory, and the lists of free ones.  Private to the allocator and to captures.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/history.h"
#include "runtime/pool.h"
#include "runtime/stream.h"

namespace fl {

struct Pool;

// What the chip's malloc gave.  Its blocks are chained by address; the first
// one is the same object for the segment's whole life, since a block is split
// and merged at its end.
struct Segment {
  char* address;
  size_t size;
  Stream* stream;
  Block* first;
  Pool* pool;
  bool large;
  bool oversize;    // by max_split_size when it was made
  Context context;  // of the request that it was made for, while history is recorded
};

struct Block {
  char* address = nullptr;
  size_t size = 0;
  size_t requested = 0;
  Stream* stream = nullptr;
  Segment* segment = nullptr;
  Block *previous = nullptr, *next = nullptr;            // by address, in the segment
  Block *list_previous = nullptr, *list_next = nullptr;  // in a FreeList
  std::vector<Stream*>* used_on = nullptr;               // record_stream
  Context context;                                       // who allocated it, while history is recorded
  uint64_t capture = 0;                                  // in which it was allocated, by id
  uint64_t freed_at = 0;                                 // counts frees: the age, for garbage collection
  int32_t device = -1;
  int32_t events = 0;  // free, but events on other streams have not passed
  bool allocated = false, listed = false;
  bool oversize = false;  // by max_split_size when it was handed out

  bool is_split() const { return previous || next; }
};

// The free blocks of one stream and pool in bins by size: exact below 32 KiB,
// 32 bins an octave above.  A bitmap of the bins in use makes the best fit a
// few loads, with no tree and no allocation.
class FreeList {
 public:
  void insert(Block* block) {
    unsigned bin = bin_of(block->size);
    Block*& head = bins_[bin];
    block->list_previous = nullptr;
    block->list_next = head;
    if (head) head->list_previous = block;
    head = block;
    block->listed = true;
    used_[bin / 64] |= uint64_t{1} << bin % 64;
  }

  void remove(Block* block) {
    unsigned bin = bin_of(block->size);
    if (block->list_next) block->list_next->list_previous = block->list_previous;
    if (block->list_previous) {
      block->list_previous->list_next = block->list_next;
    } else {
      bins_[bin] = block->list_next;
      if (!bins_[bin]) used_[bin / 64] &= ~(uint64_t{1} << bin % 64);
    }
    block->listed = false;
  }

  // The smallest block of at least `size` that `fits` takes, or null.  It stays listed.
  template <class Fits>
  Block* find(size_t size, Fits&& fits) const {
    for (unsigned bin = bin_of(size); bin < kBins; bin = next_bin(bin + 1))
      if (Block* best = best_of(bins_[bin], size, fits)) return best;
    return nullptr;
  }

  template <class F>
  void each(F&& f) const {
    for (unsigned bin = next_bin(0); bin < kBins; bin = next_bin(bin + 1))
      for (Block *b = bins_[bin], *next; b; b = next) next = b->list_next, f(b);
  }

 private:
  static constexpr unsigned kUnit = 9;  // sizes are multiples of 512
  static constexpr unsigned kSub = 5;   // 32 bins an octave
  static constexpr unsigned kExact = 64;
  static constexpr unsigned kBins = kExact + 40 * 32;  // up to 2^54 bytes
  static constexpr int kLook = 64;                     // blocks of one bin that are compared

  static unsigned bin_of(size_t size) {
    uint64_t units = size >> kUnit;
    if (units < kExact) return static_cast<unsigned>(units);
    unsigned octave = static_cast<unsigned>(std::bit_width(units)) - 1;
    unsigned sub = static_cast<unsigned>(units >> (octave - kSub)) & 31;
    return kExact + (octave - 6) * 32 + sub;
  }

  unsigned next_bin(unsigned from) const {
    for (unsigned word = from / 64; word < used_.size(); ++word) {
      uint64_t bits = used_[word];
      if (word == from / 64) bits &= ~uint64_t{0} << from % 64;
      if (bits) return word * 64 + static_cast<unsigned>(std::countr_zero(bits));
    }
    return kBins;
  }

  template <class Fits>
  static Block* best_of(Block* block, size_t size, Fits&& fits) {
    Block* best = nullptr;
    for (int looked = 0; block && (looked < kLook || !best); block = block->list_next, ++looked) {
      if (block->size < size || (best && block->size >= best->size) || !fits(block)) continue;
      best = block;
      if (best->size == size) break;
    }
    return best;
  }

  std::array<Block*, kBins> bins_{};
  std::array<uint64_t, kBins / 64> used_{};
};

// A cache of its own: the ordinary one, a captured graph's, or one of MemPool's.  Its blocks serve its own
// requests alone.  While somebody holds it, nothing of it goes back to the device: a graph's launches have
// its addresses.
struct Pool {
  struct Lists {
    FreeList small, large;
  };

  PoolId id;
  PoolOptions options;
  int held = 0;      // by graphs and MemPools; the ordinary cache is not held and lives for ever
  int segments = 0;  // of the device's memory
  StatArray reserved_bytes{};
  std::array<std::unique_ptr<Lists>, kStreams> lists{};  // by stream

  bool is_ordinary() const { return !id; }
  bool is_no_split() const { return options.no_split; }
};

}  // namespace fl
