// The allocator's public face: one DeviceMemory for each device.
#include "runtime/allocator.h"

#include <algorithm>
#include <atomic>

#include "chip/error.h"
#include "runtime/capture.h"
#include "runtime/device_memory.h"

namespace fl {

constinit std::atomic<bool> caching_now{true};

namespace {

// Made on first use, never destroyed: tensors may be freed while the process exits.
constinit std::array<std::atomic<DeviceMemory*>, kMaxDevices> memories{};

// What every device's memory records, those not made yet included.
constinit std::mutex history_mutex;
HistoryOptions& history_now() {
  static auto& options = *new HistoryOptions;
  return options;
}

DeviceMemory& make_memory(int32_t index) {
  const Device& d = device(index);
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  auto& place = memories[static_cast<size_t>(index)];
  if (!place.load(std::memory_order_acquire)) {
    auto* made = new DeviceMemory(d);
    std::lock_guard<std::mutex> history_lock(history_mutex);
    made->set_history(history_now());
    place.store(made, std::memory_order_release);
  }
  return *place.load(std::memory_order_acquire);
}

DeviceMemory* existing(int32_t index) noexcept {
  if (index < 0 || index >= kMaxDevices) return nullptr;
  return memories[static_cast<size_t>(index)].load(std::memory_order_acquire);
}

DeviceMemory& memory_of(int32_t index) {
  DeviceMemory* memory = existing(index);
  return memory ? *memory : make_memory(index);
}

void check_fork() {
  if (forked())
    throw Error(FL_FAILED,
                "cannot use a device's memory in a forked process: its parent had started the device, and "
                "a device does not survive a fork; use multiprocessing's start method \"spawn\"");
}

// Where requests of this thread go, the innermost last.
struct Route {
  int32_t device;
  PoolId pool;
};
constinit thread_local int n_routes = 0;  // says without a look at the list that there is none
std::vector<Route>& routes() {
  thread_local std::vector<Route> list;
  return list;
}

PoolId pool_for(const Stream& stream) {
  if (n_routes)
    for (auto route = routes().rbegin(); route != routes().rend(); ++route)
      if (route->device == stream.device) return route->pool;
  return {};
}

const Context kNobody;

}  // namespace

Block* allocate(Stream& stream, size_t bytes) {
  const Capture* capture = capture_of(stream);
  if (!capture) [[likely]]
    return allocate(stream, bytes, pool_for(stream));
  Block* block = allocate(stream, bytes, capture->pool);
  if (bytes) block->capture = capture->id;
  return block;
}

Block* allocate(Stream& stream, size_t bytes, PoolId pool) {
  check_fork();
  DeviceMemory& memory = memory_of(stream.device);
  if (!bytes) return memory.empty();
  // Before any lock: gathering may wait for Python's.
  if (wants_context(ContextOf::kState)) [[unlikely]]
    return memory.allocate(stream, bytes, pool, gather_context());
  return memory.allocate(stream, bytes, pool, kNobody);
}

void* address(const Block* block) noexcept { return block->address; }
size_t size(const Block* block) noexcept { return block->size; }
int32_t device_of(const Block* block) noexcept { return block->device; }

// In a forked child the lock may be held for ever, and the memory is the parent's.
void free(Block* block) noexcept {
  if (!block || forked()) return;
  DeviceMemory& memory = *memories[static_cast<size_t>(block->device)].load(std::memory_order_relaxed);
  if (wants_context(ContextOf::kAll)) [[unlikely]]
    return memory.free(block, gather_context());
  memory.free(block, kNobody);
}

void record_stream(Block* block, Stream& stream) {
  check_fork();
  memory_of(block->device).record_stream(block, stream);
}

Block* find_block(const void* address, int32_t* device) noexcept {
  if (forked()) return nullptr;
  for (int32_t i = 0; i < kMaxDevices; ++i) {
    DeviceMemory* memory = existing(i);
    Block* block = memory ? memory->find(address) : nullptr;
    if (!block) continue;
    if (device) *device = i;
    return block;
  }
  return nullptr;
}

void empty_cache(int32_t index) { empty_cache(index, {}); }

void empty_cache(int32_t index, PoolId pool) {
  check_fork();
  for (int32_t i = 0; i < kMaxDevices; ++i)
    if (index == -1 || index == i)
      if (DeviceMemory* memory = existing(i)) memory->empty_cache(pool);
}

PoolId new_pool_id(bool of_user) {
  static std::atomic<uint64_t> last{0};
  const uint64_t n = last.fetch_add(1, std::memory_order_relaxed) + 1;
  return of_user ? PoolId{0, n} : PoolId{n, 0};
}

void hold_pool(int32_t index, PoolId id, PoolOptions options) {
  memory_of(device(index).index).hold_pool(id, options);
}
void release_pool(int32_t index, PoolId id) noexcept {
  if (DeviceMemory* memory = forked() ? nullptr : existing(index)) memory->release_pool(id);
}
int pool_holders(int32_t index, PoolId id) noexcept {
  DeviceMemory* memory = forked() ? nullptr : existing(index);
  return memory ? memory->pool_holders(id) : 0;
}

void begin_pool_route(int32_t index, PoolId id) {
  hold_pool(index, id);
  routes().push_back({index, id});
  ++n_routes;
}

void end_pool_route(int32_t index, PoolId id) {
  auto& list = routes();
  auto found = std::find_if(list.rbegin(), list.rend(),
                            [&](const Route& r) { return r.device == index && r.pool == id; });
  if (found == list.rend())
    throw Error(FL_INVALID, "this thread's allocations do not go to that memory pool");
  list.erase(std::next(found).base());
  --n_routes;
  release_pool(index, id);
}

void set_caching(bool on) noexcept { caching_now.store(on, std::memory_order_relaxed); }

void set_memory_fraction(int32_t index, double fraction) {
  if (!(fraction >= 0 && fraction <= 1))
    throw Error(FL_INVALID, "a memory fraction is a number from 0 to 1, not " + std::to_string(fraction));
  memory_of(index).set_fraction(fraction);
}

double memory_fraction(int32_t index) { return memory_of(index).fraction(); }

MemoryStats memory_stats(int32_t index) { return memory_of(index).stats(); }
void reset_accumulated_stats(int32_t index) { memory_of(index).reset_accumulated_stats(); }
void reset_peak_stats(int32_t index) { memory_of(index).reset_peak_stats(); }

std::vector<std::pair<PoolId, StatArray>> pool_stats(int32_t index) { return memory_of(index).pool_stats(); }

std::vector<SegmentState> memory_state(PoolId pool) {
  std::vector<SegmentState> segments;
  for (int32_t i = 0; i < kMaxDevices; ++i)
    if (DeviceMemory* memory = existing(i)) memory->snapshot(pool, segments);
  return segments;
}

void record_history(const HistoryOptions& options) {
  std::lock_guard<std::mutex> lock(history_mutex);
  history_now() = options;
  history_now().clear = false;
  contexts_wanted = options.on ? options.contexts : ContextOf::kNothing;
  for (int32_t i = 0; i < kMaxDevices; ++i)
    if (DeviceMemory* memory = existing(i)) memory->set_history(options);
}

std::vector<DeviceTrace> memory_traces() {
  std::vector<DeviceTrace> traces;
  for (int32_t i = 0; i < kMaxDevices; ++i)
    if (DeviceMemory* memory = existing(i)) traces.push_back({i, memory->trace()});
  return traces;
}

Context allocation_context(const void* address) {
  for (int32_t i = 0; i < kMaxDevices; ++i)
    if (DeviceMemory* memory = forked() ? nullptr : existing(i))
      if (Context context = memory->context_of(address)) return context;
  return nullptr;
}

}  // namespace fl
