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

#include "runtime/block.h"
#include "runtime/snapshot.h"

namespace fl {

class DeviceMemory {
 public:
  explicit DeviceMemory(const Device& device);

  Block* allocate(Stream& stream, size_t bytes, PoolId pool, const Context& context);
  void free(Block* block, const Context& context) noexcept;
  void record_stream(Block* block, Stream& stream);
  Block* find(const void* address) noexcept;
  void empty_cache(PoolId pool);
  void hold_pool(PoolId id, PoolOptions options);
  void release_pool(PoolId id) noexcept;
  int pool_holders(PoolId id) noexcept;
  void set_fraction(double fraction);
  double fraction();
  MemoryStats stats();
  void reset_accumulated_stats();
  void reset_peak_stats();
  std::vector<std::pair<PoolId, StatArray>> pool_stats();
  void snapshot(PoolId pool, std::vector<SegmentState>& out);
  void set_history(const HistoryOptions& options);
  std::vector<TraceEntry> trace();
  Context context_of(const void* address);

  // The block of requests for 0 bytes.
  Block* empty() { return &empty_; }

 private:
  struct Pending {
    Event event;
    Block* block;
  };
  struct StreamEvents {
    Stream* stream;
    std::deque<Pending> pending;
  };

  // What a request is for, on its way down the ladder.
  struct Request {
    Stream& stream;
    Pool& pool;
    size_t size;  // rounded
    bool large;
    const Context& context;
  };

  FreeList& list_of(const Block* block) {
    return list_of(*block->segment->pool, *block->stream, block->segment->large);
  }
  FreeList& list_of(Pool& pool, const Stream& stream, bool large) {
    Pool::Lists& lists = *pool.lists[static_cast<size_t>(stream.id)];
    return large ? lists.large : lists.small;
  }

  Pool& pool_named(PoolId id);
  Block* find_block(const void* address) noexcept;
  Block* take_cached(const Request& request);
  Block* take_cached(const Request& request, Pool& pool);
  Block* make_segment(const Request& request);
  Block* try_segment(const Request& request, size_t bytes);
  Block* take_from_willing_pools(const Request& request);
  Block* hand_out(Block* block, size_t size, size_t requested, const Context& context);
  void note(TraceAction action, const Block* block, size_t size, const Context& context) {
    if (history_.on()) [[unlikely]]
      record(action, block, size, context);
  }
  void record(TraceAction action, const Block* block, size_t size, const Context& context);
  void take_back(Block* block);
  Block* merge(Block* low, Block* high);

  void defer(Block* block) noexcept;
  void poll_events();
  void finish_events();
  void release(std::vector<Block*>& whole);
  std::vector<Block*> whole_blocks(PoolId pool = {});
  void release_cached(PoolId pool = {});
  void forget_empty_pools();
  bool release_oversize(size_t bytes);
  void collect_garbage(size_t bytes);

  size_t limit();
  std::string out_of_memory(size_t bytes);
  Block* new_block();

  const Device& device_;
  const size_t unit_;  // what sizes are rounded to
  std::mutex mutex_;
  MemoryStats stats_;
  Pool ordinary_;
  std::map<PoolId, std::unique_ptr<Pool>> pools_;  // the others
  History history_;
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
