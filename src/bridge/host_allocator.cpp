#include "bridge/host_allocator.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <shared_mutex>

#include "bridge/guard.h"
#include "runtime/capture.h"

namespace fl::bridge {

namespace {

// What host_alloc gave, by address.
class PinnedRanges {
 public:
  void add(void* address, size_t bytes, const Chip* chip) {
    std::unique_lock lock(mutex_);
    const auto begin = reinterpret_cast<uintptr_t>(address);
    ranges_[begin] = {bytes, chip};
    if (begin < lowest_.load(std::memory_order_relaxed)) lowest_.store(begin, std::memory_order_relaxed);
    if (begin + bytes > highest_.load(std::memory_order_relaxed))
      highest_.store(begin + bytes, std::memory_order_relaxed);
  }
  const Chip* remove(void* address) {
    std::unique_lock lock(mutex_);
    auto found = ranges_.find(reinterpret_cast<uintptr_t>(address));
    TORCH_INTERNAL_ASSERT(found != ranges_.end());
    const Chip* chip = found->second.chip;
    ranges_.erase(found);
    return chip;
  }
  bool contains(const void* address) const {
    const auto at = reinterpret_cast<uintptr_t>(address);
    if (at < lowest_.load(std::memory_order_relaxed) || at >= highest_.load(std::memory_order_relaxed))
      return false;
    std::shared_lock lock(mutex_);
    auto after = ranges_.upper_bound(at);
    return after != ranges_.begin() && at - std::prev(after)->first < std::prev(after)->second.bytes;
  }

 private:
  struct Range {
    size_t bytes;
    const Chip* chip;
  };
  mutable std::shared_mutex mutex_;
  std::map<uintptr_t, Range> ranges_;
  std::atomic<uintptr_t> lowest_{UINTPTR_MAX}, highest_{0};  // of all that ever was; never shrinks
};

PinnedRanges& ranges() {
  static auto& instance = *new PinnedRanges;
  return instance;
}

int64_t microseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start)
      .count();
}

struct HostAllocatorImpl final : at::CachingHostAllocatorImpl<c10::Stream, Event> {
  using HostBlock = at::HostBlock<c10::Stream>;
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }

 private:
  void allocate_host_memory(size_t bytes, void** out) override {
    guarded([&] {
      const Device& d = device(current_device());
      open_device(d.index);
      const auto start = std::chrono::steady_clock::now();
      fl_status status = d.chip->memory.host_alloc(bytes, out);
      if (status == FL_OUT_OF_MEMORY) {
        empty_cache();
        status = d.chip->memory.host_alloc(bytes, out);
      }
      check(status, ("pinned host memory, " + std::to_string(bytes) + " bytes, for " + d.name).c_str());
      ranges().add(*out, bytes, d.chip);
      std::lock_guard lock(stats_.timing_mutex_);
      stats_.host_alloc_time.increase(microseconds_since(start));
    });
  }

  // Called with locks held and from destructors: reports, and never throws.
  void free_block(HostBlock* block) override {
    const auto start = std::chrono::steady_clock::now();
    const Chip* chip = ranges().remove(block->ptr_);
    if (fl_status status = chip->memory.host_free(block->ptr_); status != FL_OK)
      log(FL_LOG_ERROR, "chip " + chip->name + " could not free pinned host memory: " + status_text(status));
    std::lock_guard lock(stats_.timing_mutex_);
    stats_.host_free_time.increase(microseconds_since(start));
  }

  void record_stream(std::optional<std::vector<Event>>& events, c10::Stream s) override {
    guarded([&] {
      Event event(s.device_index(), /*timing=*/false);
      event.record(to_fl(s));
      events->push_back(std::move(event));
    });
  }

  // On a lost device nothing will use the memory any more.
  bool query_event(Event& event) override {
    try {
      return event.query();
    } catch (const Error& error) {
      if (error.status() == FL_DEVICE_LOST) return true;
      rethrow_as_torch(error);
    }
  }

  c10::Stream get_current_stream() const override {
    return guarded([] { return to_torch(current_stream(current_device())); });
  }
  bool stream_is_capturing(c10::Stream s) const override {
    const Stream* known = existing_stream(s.device_index(), s.id());
    return known && capture_of(*known);
  }
};

void delete_host_block(void* context);

struct HostAllocator final : at::CachingHostAllocatorInterface<HostAllocatorImpl, delete_host_block> {};

// Leaked on purpose: pinned tensors may outlive every destructor of this library.
HostAllocator& instance() {
  static auto& allocator = *new HostAllocator;
  return allocator;
}

void delete_host_block(void* context) { instance().free(context); }

const at::HostAllocatorRegistry<kDevice> registered(&instance());

}  // namespace

at::HostAllocator& host_allocator() { return instance(); }

bool is_pinned(const void* address) { return ranges().contains(address); }

void record_host_use(const void* address, void* context, Stream& stream) {
  if (is_pinned(address)) instance().record_event(const_cast<void*>(address), context, to_torch(stream));
}

}  // namespace fl::bridge
