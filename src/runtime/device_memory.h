// The cache of one device's memory.  Private to the allocator.
//
// Small requests (up to 1 MiB) are cut from segments of 2 MiB, larger ones from
// segments of 20 MiB, those from 10 MiB on get a segment of their own, rounded
// to 2 MiB.  Free blocks belong to the stream that they were allocated on.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/allocator.h"
#include "runtime/block.h"

namespace fl {

class DeviceMemory {
 public:
  explicit DeviceMemory(const Device& device);

  Block* allocate(Stream& stream, size_t bytes);
  void free(Block* block) noexcept;
  void record_stream(Block* block, Stream& stream);
  Block* find(const void* address) noexcept;
  void empty_cache();
  void set_fraction(double fraction);
  double fraction();
  MemoryStats stats();
  void reset_accumulated_stats();
  void reset_peak_stats();
  void snapshot(std::vector<SegmentInfo>& out);

  // The block of requests for 0 bytes.
  Block* empty() { return &empty_; }

 private:
  struct StreamLists {
    FreeList small, large;
  };
  struct Pending {
    Event event;
    Block* block;
  };
  struct StreamEvents {
    Stream* stream;
    std::deque<Pending> pending;
  };

  FreeList& list_of(const Block* block) { return list_of(*block->stream, block->segment->large); }
  FreeList& list_of(const Stream& stream, bool large) {
    StreamLists& lists = *lists_[static_cast<size_t>(stream.id)];
    return large ? lists.large : lists.small;
  }

  Block* take_cached(Stream& stream, size_t size, bool large);
  Block* make_segment(Stream& stream, size_t size, bool large);
  Block* try_segment(Stream& stream, size_t bytes, bool large);
  Block* hand_out(Block* block, size_t size, size_t requested);
  void take_back(Block* block);
  Block* merge(Block* low, Block* high);

  void defer(Block* block) noexcept;
  void poll_events();
  void finish_events();
  void release(std::vector<Block*>& whole);
  std::vector<Block*> whole_blocks();
  void release_cached();
  bool release_oversize(size_t bytes);
  void collect_garbage(size_t bytes);

  size_t limit();
  std::string out_of_memory(size_t bytes);
  Block* new_block();

  const Device& device_;
  const size_t unit_;  // what sizes are rounded to
  std::mutex mutex_;
  MemoryStats stats_;
  std::array<std::unique_ptr<StreamLists>, kStreams> lists_;
  std::map<uintptr_t, std::unique_ptr<Segment>> segments_;  // by address
  std::deque<StreamEvents> events_;                         // of those streams that record_stream named
  size_t pending_ = 0;                                      // events not passed, over all streams
  uint64_t frees_ = 0;
  double fraction_ = -1;    // < 0: the setting
  Block* spare_ = nullptr;  // Block objects to use again, by `next`
  Block empty_;
};

// The accounting of memory_stats().
inline void change(Stat& stat, int64_t amount) {
  stat.current += amount;
  stat.peak = stat.current > stat.peak ? stat.current : stat.peak;
  (amount > 0 ? stat.allocated : stat.freed) += amount > 0 ? amount : -amount;
}

inline void change(StatArray& stats, bool large, int64_t amount) {
  change(stats[kAggregate], amount);
  change(stats[large ? kLargePool : kSmallPool], amount);
}

}  // namespace fl
