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

std::vector<Block*> DeviceMemory::whole_blocks() {
  std::vector<Block*> whole;
  auto add = [&](Block* block) {
    if (!block->is_split()) whole.push_back(block);
  };
  for (auto& lists : lists_) {
    if (!lists) continue;
    lists->small.each(add);
    lists->large.each(add);
  }
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
    segments_.erase(reinterpret_cast<uintptr_t>(block->address));
    block->next = spare_;
    spare_ = block;
    ++stats_.num_device_free;
    change(stats_.segment, large, -1);
    change(stats_.reserved_bytes, large, -static_cast<int64_t>(bytes));
    if (oversize) change(stats_.oversize_segments, -1);
  }
}

void DeviceMemory::release_cached() {
  ++stats_.num_sync_all_streams;
  finish_events();
  std::vector<Block*> whole = whole_blocks();
  release(whole);
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

void DeviceMemory::empty_cache() {
  std::lock_guard<std::mutex> lock(mutex_);
  release_cached();
}

// ------------------------------------------------------------------ the numbers

Block* DeviceMemory::find(const void* address) noexcept {
  auto at = reinterpret_cast<uintptr_t>(address);
  std::lock_guard<std::mutex> lock(mutex_);
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
  stats_.num_alloc_retries = stats_.num_ooms = stats_.num_sync_all_streams = 0;
  stats_.num_device_alloc = stats_.num_device_free = 0;
}

void DeviceMemory::reset_peak_stats() {
  std::lock_guard<std::mutex> lock(mutex_);
  each_stat(stats_, [](Stat& s) { s.peak = s.current; });
}

void DeviceMemory::snapshot(std::vector<SegmentInfo>& out) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [address, segment] : segments_) {
    SegmentInfo info{
        device_.index,  address, static_cast<int64_t>(segment->size), 0, 0, 0, segment->stream->id,
        segment->large, {}};
    for (const Block* b = segment->first; b; b = b->next) {
      int64_t size = static_cast<int64_t>(b->size), requested = static_cast<int64_t>(b->requested);
      bool active = b->allocated || b->events;
      info.allocated_size += b->allocated ? size : 0;
      info.requested_size += b->allocated ? requested : 0;
      info.active_size += active ? size : 0;
      info.blocks.push_back({reinterpret_cast<uintptr_t>(b->address), size, b->allocated ? requested : 0,
                             b->allocated, active});
    }
    out.push_back(std::move(info));
  }
}

}  // namespace fl
