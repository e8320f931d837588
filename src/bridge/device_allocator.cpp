#include "bridge/device_allocator.h"

#include <c10/core/CachingDeviceAllocator.h>

#include "runtime/pool.h"

namespace fl::bridge {

namespace {

// Statistics cost a lock, so they are asked for only while a profiler listens.
void report(void* address, int64_t bytes, int32_t device) {
  const MemoryStats stats = memory_stats(device);
  c10::reportMemoryUsageToProfiler(address, bytes,
                                   static_cast<size_t>(stats.allocated_bytes[kAggregate].current),
                                   static_cast<size_t>(stats.reserved_bytes[kAggregate].current),
                                   c10::Device(kDevice, static_cast<c10::DeviceIndex>(device)));
}

void delete_block(void* context) {
  Block* block = static_cast<Block*>(context);
  if (C10_LIKELY(!c10::memoryProfilingEnabled())) return free(block);
  void* const at = address(block);
  const int64_t bytes = static_cast<int64_t>(size(block));
  const int32_t index = device_of(block);
  free(block);
  if (at) report(at, -bytes, index);
}

c10::CachingDeviceAllocator::StatArray convert(const StatArray& from) {
  c10::CachingDeviceAllocator::StatArray to;
  for (size_t i = 0; i < to.size(); ++i) {
    to[i].current = from[i].current;
    to[i].peak = from[i].peak;
    to[i].allocated = from[i].allocated;
    to[i].freed = from[i].freed;
  }
  return to;
}

c10::CachingDeviceAllocator::Stat convert(const Stat& from) {
  c10::CachingDeviceAllocator::Stat to;
  to.current = from.current;
  to.peak = from.peak;
  to.allocated = from.allocated;
  to.freed = from.freed;
  return to;
}

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    return allocate_data(c10::Device(kDevice, static_cast<c10::DeviceIndex>(current_device())), bytes);
  }

  c10::DeleterFnPtr raw_deleter() const override { return &delete_block; }

  // Neither device nor stream arrives here: the device is the memory's, the
  // stream its current one.
  void copy_data(void* to, const void* from, size_t bytes) const override {
    if (!bytes) return;
    guarded([&] {
      int32_t index = -1;
      if (!find_block(to, &index))
        throw Error(FL_INVALID, "copy_data: the destination is not memory of an fl device");
      static Op op("fl::copy_data");
      Stream& stream = current_stream(index);
      const fl_launch launch = make_launch(op, stream, nullptr, 0);
      LaunchScope scope(stream);
      check(stream.chip->memory.copy(&launch, FL_DEVICE_TO_DEVICE, to, from, bytes), "copy_data");
    });
  }

  // Statistics of devices that nobody has used are all zero, without a start.
  bool initialized() override {
    if (!loaded()) return false;
    for (const Device& d : devices())
      if (is_open(d.index)) return true;
    return false;
  }

  void emptyCache(c10::MempoolId_t pool) override {
    guarded([&] { empty_cache(-1, {pool.first, pool.second}); });
  }

  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    guarded([&] { record_use(data, fl::stream(stream.device_index(), stream.id())); });
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    const MemoryStats from = guarded([&] { return memory_stats(device(index).index); });
    c10::CachingDeviceAllocator::DeviceStats to;
    to.allocation = convert(from.allocation);
    to.segment = convert(from.segment);
    to.active = convert(from.active);
    to.inactive_split = convert(from.inactive_split);
    to.allocated_bytes = convert(from.allocated_bytes);
    to.reserved_bytes = convert(from.reserved_bytes);
    to.active_bytes = convert(from.active_bytes);
    to.inactive_split_bytes = convert(from.inactive_split_bytes);
    to.requested_bytes = convert(from.requested_bytes);
    to.oversize_allocations = convert(from.oversize_allocations);
    to.oversize_segments = convert(from.oversize_segments);
    to.num_alloc_retries = from.num_alloc_retries;
    to.num_ooms = from.num_ooms;
    to.num_sync_all_streams = from.num_sync_all_streams;
    to.num_device_alloc = from.num_device_alloc;
    to.num_device_free = from.num_device_free;
    to.max_split_size = from.max_split_size;
    for (const auto& [id, bytes] : guarded([&] { return pool_stats(device(index).index); }))
      to.reserved_bytes_by_private_pools[{id.graph, id.user}] = convert(bytes);
    return to;
  }

  void resetAccumulatedStats(c10::DeviceIndex index) override {
    guarded([&] { reset_accumulated_stats(device(index).index); });
  }
  void resetPeakStats(c10::DeviceIndex index) override {
    guarded([&] { reset_peak_stats(device(index).index); });
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    return guarded([&] {
      open_device(index);
      const Device& d = device(index);
      uint64_t free_bytes = 0, total_bytes = 0;
      check(d.chip->memory.info(d.local, &free_bytes, &total_bytes), ("memory of " + d.name).c_str());
      return std::pair<size_t, size_t>(free_bytes, total_bytes);
    });
  }
};

// Leaked on purpose: tensors may outlive every destructor of this library.
DeviceAllocator& allocator() {
  static auto& instance = *new DeviceAllocator;
  return instance;
}

const c10::AllocatorRegisterer<kDevice> registered(&allocator());

}  // namespace

c10::DataPtr allocate_data(c10::Device device, size_t bytes) {
  return guarded([&] {
    const int32_t index = device.has_index() ? device.index() : current_device();
    Block* block = allocate(current_stream(index), bytes);
    void* const at = address(block);
    if (C10_UNLIKELY(c10::memoryProfilingEnabled()) && at)
      report(at, static_cast<int64_t>(size(block)), index);
    return c10::DataPtr(at, block, &delete_block, c10::Device(kDevice, static_cast<c10::DeviceIndex>(index)));
  });
}

c10::intrusive_ptr<c10::StorageImpl> make_storage(c10::Device device, size_t bytes) {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                               allocate_data(device, bytes), &allocator(),
                                               /*resizable=*/true);
}

Block* block_of(const c10::DataPtr& data) noexcept {
  if (C10_LIKELY(data.get_deleter() == &delete_block)) return static_cast<Block*>(data.get_context());
  // Wrapped by PyTorch (copy on write) or borrowed from somebody else.
  return data.get() ? find_block(data.get()) : nullptr;
}

void record_use(const c10::DataPtr& data, Stream& stream) {
  if (Block* block = block_of(data); block && address(block)) record_stream(block, stream);
}

}  // namespace fl::bridge
