// Giving memory back: events of other streams, cached segments, and the numbers.
#include <algorithm>

#include "chip/error.h"
#include "runtime/config.h"
#include "runtime/device_memory.h"
#include "runtime/text.h"

namespace fl {

// ------------------------------------------------- blocks used on other streams

void DeviceMemory::record_stream(Block* block, Stream& stream) {
  if (block == &empty_ || &stream == block->stream) return;
  std::lock_guard<std::mutex> lock(mutex_);
  if (!block->used_on) block->used_on = new std::vector<Stream*>();
  auto& uses = *block->used_on;
  if (std::find(uses.begin(), uses.end(), &stream) == uses.end()) uses.push_back(&stream);
}

// The block is free once events recorded now on these streams have passed.
void DeviceMemory::defer(Block* block) noexcept {
  std::unique_ptr<std::vector<Stream*>> uses(block->used_on);
  block->used_on = nullptr;
  for (Stream* stream : *uses) {
    try {
      Event event(stream->device, false);
      event.record(*stream);
      auto at = std::find_if(events_.begin(), events_.end(),
                             [=](const StreamEvents& e) { return e.stream == stream; });
      StreamEvents& events = at == events_.end() ? events_.emplace_back(StreamEvents{stream, {}}) : *at;
      events.pending.push_back({std::move(event), block});
      ++block->events;
      ++pending_;
    } catch (const std::exception& e) {
      auto* error = dynamic_cast<const Error*>(&e);
      if (error && error->status() == FL_DEVICE_LOST) continue;  // nothing runs there any more
      // Without an event nobody knows when the block is free: it is given up.
      ++block->events;
      log(FL_LOG_ERROR, bytes_text(block->size) + " of memory on " + device_.name +
                            " are lost: no event for stream " + std::to_string(stream->id) +
                            ", which uses them: " + e.what());
    }
  }
}

// In order for each stream: the first event that has not passed ends the look.
void DeviceMemory::poll_events() {
  for (StreamEvents& events : events_) {
    while (!events.pending.empty() && events.pending.front().event.passed()) {
      Block* block = events.pending.front().block;
      events.pending.pop_front();
      --pending_;
      if (--block->events == 0) take_back(block);
    }
  }
}

void DeviceMemory::finish_events() {
  for (StreamEvents& events : events_)
    if (!events.pending.empty()) events.pending.back().event.wait();
  poll_events();
}

// ------------------------------------------------------------ cached segments

// Of the pools that nobody holds; or of one such pool.
std::vector<Block*> DeviceMemory::whole_blocks(PoolId only) {
  std::vector<Block*> whole;
  auto add = [&](Block* block) {
    if (!block->is_split()) whole.push_back(block);
  };
  auto add_all = [&](Pool& pool) {
    if (pool.held || (only && pool.id != only)) return;
    for (auto& lists : pool.lists) {
      if (!lists) continue;
      lists->small.each(add);
      lists->large.each(add);
    }
  };
  add_all(ordinary_);
  for (auto& [id, pool] : pools_) add_all(*pool);
  return whole;
}

// Free blocks that are a whole segment, to the chip.  Work that was queued
// before they were freed may still use them: each stream is waited for, once.
void DeviceMemory::release(std::vector<Block*>& whole) {
  std::array<bool, kStreams> waited{};
  for (Block* block : whole) {
    Stream& stream = *block->stream;
    if (!waited[static_cast<size_t>(stream.id)]) {
      Event event(device_.index, false);
      event.record(stream);
      event.wait();
      waited[static_cast<size_t>(stream.id)] = true;
    }
    bool large = block->segment->large, oversize = block->segment->oversize;
    size_t bytes = block->size;
    check(device_.chip->memory.free(device_.local, block->address),
          ("cannot free memory of " + device_.name).c_str());
    list_of(block).remove(block);
    Pool& pool = *block->segment->pool;
    note(TraceAction::segment_free, block, bytes, block->segment->context);
    change(pool.reserved_bytes, large, -static_cast<int64_t>(bytes));
    --pool.segments;
    segments_.erase(reinterpret_cast<uintptr_t>(block->address));
    block->next = spare_;
    spare_ = block;
    ++stats_.num_device_free;
    change(stats_.segment, large, -1);
    change(stats_.reserved_bytes, large, -static_cast<int64_t>(bytes));
    if (oversize) change(stats_.oversize_segments, -1);
  }
}

void DeviceMemory::release_cached(PoolId pool) {
  ++stats_.num_sync_all_streams;
  finish_events();
  std::vector<Block*> whole = whole_blocks(pool);
  release(whole);
  forget_empty_pools();
}

// With max_split_size, blocks beyond it are kept whole and can be given back
// without hurting smaller requests: the smallest that is enough, or several.
bool DeviceMemory::release_oversize(size_t bytes) {
  size_t split = max_split_bytes();
  if (bytes < split) return false;
  std::vector<Block*> whole = whole_blocks();
  std::erase_if(whole, [=](const Block* b) { return b->size < split; });
  std::sort(whole.begin(), whole.end(), [](const Block* a, const Block* b) { return a->size < b->size; });
  auto enough = std::find_if(whole.begin(), whole.end(), [=](const Block* b) { return b->size >= bytes; });
  std::vector<Block*> chosen;
  if (enough != whole.end()) chosen.push_back(*enough);
  size_t sum = 0;
  for (auto b = whole.rbegin(); enough == whole.end() && b != whole.rend() && sum < bytes; ++b) {
    sum += (*b)->size;
    chosen.push_back(*b);
  }
  release(chosen);
  return !chosen.empty();
}

// With garbage_collection_threshold: before more than that share of the limit
// is reserved, segments go that have been free for longest.
void DeviceMemory::collect_garbage(size_t bytes) {
  double threshold = garbage_collection_threshold();
  if (threshold <= 0) return;
  double allowed =
      threshold * static_cast<double>(std::min<uint64_t>(limit(), device_.properties.total_memory));
  double excess =
      static_cast<double>(stats_.reserved_bytes[kAggregate].current) + static_cast<double>(bytes) - allowed;
  if (excess <= 0) return;
  std::vector<Block*> whole = whole_blocks();
  std::sort(whole.begin(), whole.end(),
            [](const Block* a, const Block* b) { return a->freed_at < b->freed_at; });
  size_t n = 0;
  for (; n < whole.size() && excess > 0; ++n) excess -= static_cast<double>(whole[n]->size);
  whole.resize(n);
  release(whole);
}

void DeviceMemory::empty_cache(PoolId pool) {
  std::lock_guard<std::mutex> lock(mutex_);
  release_cached(pool);
}

// ----------------------------------------------------------------------- pools

Pool& DeviceMemory::pool_named(PoolId id) {
  auto& pool = pools_[id];
  if (!pool) {
    pool = std::make_unique<Pool>();
    pool->id = id;
  }
  return *pool;
}

void DeviceMemory::hold_pool(PoolId id, PoolOptions options) {
  std::lock_guard<std::mutex> lock(mutex_);
  Pool& pool = pool_named(id);
  if (!pool.held++) pool.options = options;
}

void DeviceMemory::release_pool(PoolId id) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = pools_.find(id);
  if (found == pools_.end() || !found->second->held) return;
  if (!--found->second->held) forget_empty_pools();
}

int DeviceMemory::pool_holders(PoolId id) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = pools_.find(id);
  return found == pools_.end() ? 0 : found->second->held;
}

void DeviceMemory::forget_empty_pools() {
  std::erase_if(pools_, [](const auto& entry) { return !entry.second->held && !entry.second->segments; });
}

// ------------------------------------------------------------------ the numbers

Block* DeviceMemory::find(const void* address) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  return find_block(address);
}

Block* DeviceMemory::find_block(const void* address) noexcept {
  auto at = reinterpret_cast<uintptr_t>(address);
  auto after = segments_.upper_bound(at);
  if (after == segments_.begin()) return nullptr;
  const Segment& segment = *std::prev(after)->second;
  if (at - reinterpret_cast<uintptr_t>(segment.address) >= segment.size) return nullptr;
  Block* block = segment.first;
  while (block->next && reinterpret_cast<uintptr_t>(block->next->address) <= at) block = block->next;
  return block->allocated ? block : nullptr;
}

void DeviceMemory::set_fraction(double fraction) {
  std::lock_guard<std::mutex> lock(mutex_);
  fraction_ = fraction;
}

double DeviceMemory::fraction() {
  std::lock_guard<std::mutex> lock(mutex_);
  return fraction_ < 0 ? memory_fraction_setting() : fraction_;
}

MemoryStats DeviceMemory::stats() {
  std::lock_guard<std::mutex> lock(mutex_);
  MemoryStats stats = stats_;
  stats.max_split_size = static_cast<int64_t>(max_split_bytes());  // -1: no limit, as PyTorch has it
  return stats;
}

std::vector<std::pair<PoolId, StatArray>> DeviceMemory::pool_stats() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::pair<PoolId, StatArray>> stats;
  for (const auto& [id, pool] : pools_) stats.emplace_back(id, pool->reserved_bytes);
  return stats;
}

namespace {

template <class F>
void each_stat(MemoryStats& s, F&& f) {
  for (StatArray* array : {&s.allocation, &s.segment, &s.active, &s.inactive_split, &s.allocated_bytes,
                           &s.reserved_bytes, &s.active_bytes, &s.inactive_split_bytes, &s.requested_bytes})
    for (Stat& stat : *array) f(stat);
  f(s.oversize_allocations);
  f(s.oversize_segments);
}

}  // namespace

void DeviceMemory::reset_accumulated_stats() {
  std::lock_guard<std::mutex> lock(mutex_);
  each_stat(stats_, [](Stat& s) { s.allocated = s.freed = 0; });
  for (auto& [id, pool] : pools_)
    for (Stat& s : pool->reserved_bytes) s.allocated = s.freed = 0;
  stats_.num_alloc_retries = stats_.num_ooms = stats_.num_sync_all_streams = 0;
  stats_.num_device_alloc = stats_.num_device_free = 0;
}

void DeviceMemory::reset_peak_stats() {
  std::lock_guard<std::mutex> lock(mutex_);
  each_stat(stats_, [](Stat& s) { s.peak = s.current; });
  for (auto& [id, pool] : pools_)
    for (Stat& s : pool->reserved_bytes) s.peak = s.current;
}

void DeviceMemory::snapshot(PoolId pool, std::vector<SegmentState>& out) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [address, segment] : segments_) {
    if (pool && segment->pool->id != pool) continue;
    SegmentState info{.device = device_.index,
                      .address = address,
                      .total_size = static_cast<int64_t>(segment->size),
                      .allocated_size = 0,
                      .active_size = 0,
                      .requested_size = 0,
                      .stream = segment->stream->id,
                      .is_large = segment->large,
                      .pool = segment->pool->id,
                      .context = segment->context,
                      .blocks = {}};
    for (const Block* b = segment->first; b; b = b->next) {
      int64_t size = static_cast<int64_t>(b->size), requested = static_cast<int64_t>(b->requested);
      bool active = b->allocated || b->events;
      info.allocated_size += b->allocated ? size : 0;
      info.requested_size += b->allocated ? requested : 0;
      info.active_size += active ? size : 0;
      info.blocks.push_back({reinterpret_cast<uintptr_t>(b->address), size, b->allocated ? requested : 0,
                             b->allocated, active, b->context});
    }
    out.push_back(std::move(info));
  }
  history_.add(TraceAction::snapshot, 0, static_cast<size_t>(stats_.reserved_bytes[kAggregate].current), 0,
               {}, nullptr);
}

void DeviceMemory::set_history(const HistoryOptions& options) {
  std::lock_guard<std::mutex> lock(mutex_);
  history_.set(options);
}

std::vector<TraceEntry> DeviceMemory::trace() {
  std::lock_guard<std::mutex> lock(mutex_);
  return history_.entries();
}

Context DeviceMemory::context_of(const void* address) {
  std::lock_guard<std::mutex> lock(mutex_);
  Block* block = find_block(address);
  return block ? block->context : nullptr;
}

}  // namespace fl
