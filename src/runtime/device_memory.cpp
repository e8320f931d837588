#include "runtime/device_memory.h"

#include <algorithm>
#include <limits>

#include "chip/error.h"
#include "runtime/config.h"
#include "runtime/text.h"

namespace fl {

namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kMinBlock = 512;
constexpr size_t kSmall = kMiB;  // the largest request of the small pool
constexpr size_t kSmallSegment = 2 * kMiB;
constexpr size_t kLargeSegment = 20 * kMiB;
constexpr size_t kOwnSegment = 10 * kMiB;  // from here on a request gets its own
constexpr size_t kRoundSegment = 2 * kMiB;

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

}  // namespace

DeviceMemory::DeviceMemory(const Device& device)
    : device_(device), unit_(std::max<size_t>(kMinBlock, device.properties.alignment)) {
  empty_.device = device.index;
}

Block* DeviceMemory::new_block() {
  if (!spare_) {
    constexpr int kChunk = 64;  // never given back: the cache's size is bounded by its blocks' peak
    Block* chunk = new Block[kChunk];
    for (int i = 0; i < kChunk; ++i) chunk[i].next = spare_, spare_ = &chunk[i];
  }
  Block* block = spare_;
  spare_ = block->next;
  *block = Block{};
  block->device = device_.index;
  return block;
}

// ------------------------------------------------------------------- allocation

Block* DeviceMemory::allocate(Stream& stream, size_t bytes, PoolId id, const Context& context) {
  // So large that rounding would wrap: no device has it.
  size_t size =
      bytes > std::numeric_limits<size_t>::max() / 2 ? bytes / unit_ * unit_ : round_up(bytes, unit_);
  bool large = size > kSmall;
  std::lock_guard<std::mutex> lock(mutex_);
  Pool& pool = id ? pool_named(id) : ordinary_;
  auto& lists = pool.lists[static_cast<size_t>(stream.id)];
  if (!lists) lists = std::make_unique<Pool::Lists>();
  if (pending_) poll_events();
  const Request request{stream, pool, size, large, context};
  Block* block = caching() ? take_cached(request) : nullptr;
  if (!block) block = make_segment(request);
  return hand_out(block, size, bytes, context);
}

// max_split_size: blocks from there on are kept whole, for requests of their size.
Block* DeviceMemory::take_cached(const Request& request) { return take_cached(request, request.pool); }

Block* DeviceMemory::take_cached(const Request& request, Pool& pool) {
  if (!pool.lists[static_cast<size_t>(request.stream.id)]) return nullptr;
  size_t size = request.size, split = max_split_bytes();
  FreeList& list = list_of(pool, request.stream, request.large);
  Block* block = list.find(size, [=](const Block* b) {
    if (size < split) return b->size < split;
    return b->size < size + kLargeSegment;
  });
  if (block) list.remove(block);
  return block;
}

// Cuts the block to size, and counts it.
Block* DeviceMemory::hand_out(Block* block, size_t size, size_t requested, const Context& context) {
  bool large = block->segment->large, was_split = block->is_split();
  size_t had = block->size, rest = had - size;
  bool may_split = !block->segment->pool->options.no_split && caching();
  if (may_split && (large ? rest > kSmall && size < max_split_bytes() : rest >= unit_)) {
    Block* tail = new_block();
    tail->address = block->address + size;
    tail->size = rest;
    tail->stream = block->stream;
    tail->segment = block->segment;
    tail->previous = block;
    tail->next = block->next;
    if (tail->next) tail->next->previous = tail;
    block->next = tail;
    block->size = size;
    list_of(tail).insert(tail);
    if (was_split) {
      change(stats_.inactive_split_bytes, large, -static_cast<int64_t>(size));
    } else {
      change(stats_.inactive_split, large, 1);
      change(stats_.inactive_split_bytes, large, static_cast<int64_t>(rest));
    }
  } else if (was_split) {
    change(stats_.inactive_split, large, -1);
    change(stats_.inactive_split_bytes, large, -static_cast<int64_t>(had));
  }
  int64_t counted = static_cast<int64_t>(block->size);
  block->allocated = true;
  block->requested = requested;
  block->capture = 0;
  change(stats_.allocation, large, 1);
  change(stats_.allocated_bytes, large, counted);
  change(stats_.active, large, 1);
  change(stats_.active_bytes, large, counted);
  change(stats_.requested_bytes, large, static_cast<int64_t>(requested));
  block->oversize = block->size >= max_split_bytes();
  if (block->oversize) change(stats_.oversize_allocations, 1);
  note(TraceAction::alloc, block, block->size, context);
  if (context) block->context = context;
  return block;
}

// The ladder: a new segment; free what is cached and big enough; free all that
// is cached, waiting for the device; a segment of just the size.
Block* DeviceMemory::make_segment(const Request& request) {
  size_t size = request.size;
  bool large = request.large;
  size_t just =
      large ? round_up(std::min(size, std::numeric_limits<size_t>::max() / 2), kRoundSegment) : size;
  size_t usual = !caching() ? size : !large ? kSmallSegment : size < kOwnSegment ? kLargeSegment : just;
  collect_garbage(usual);
  if (Block* block = try_segment(request, usual)) return block;
  ++stats_.num_alloc_retries;
  if (release_oversize(usual))
    if (Block* block = try_segment(request, usual)) return block;
  release_cached();
  // Blocks that waited for events of other streams may have become whole.
  if (Block* block = caching() ? take_cached(request) : nullptr) return block;
  for (size_t bytes : {usual, just, size})
    if (Block* block = try_segment(request, bytes)) return block;
  if (Block* block = take_from_willing_pools(request)) return block;
  ++stats_.num_ooms;
  if (history_.on()) {
    uint64_t free_bytes = 0, total = 0;
    device_.chip->memory.info(device_.local, &free_bytes, &total);
    history_.add(TraceAction::oom, free_bytes, size, request.stream.id, request.pool.id, request.context);
  }
  throw Error(FL_OUT_OF_MEMORY, out_of_memory(size));
}

// Pools of the user's that are there for this (MemPool's use_on_oom).
Block* DeviceMemory::take_from_willing_pools(const Request& request) {
  for (auto& [id, pool] : pools_)
    if (pool->options.use_on_oom && pool.get() != &request.pool)
      if (Block* block = take_cached(request, *pool)) return block;
  return nullptr;
}

Block* DeviceMemory::try_segment(const Request& request, size_t bytes) {
  Stream& stream = request.stream;
  Pool& pool = request.pool;
  bool large = request.large;
  uint64_t largest =
      device_.properties.max_alloc ? device_.properties.max_alloc : device_.properties.total_memory;
  size_t reserved = static_cast<size_t>(stats_.reserved_bytes[kAggregate].current);
  if (bytes > largest || bytes > limit() || reserved > limit() - bytes) return nullptr;
  void* address = nullptr;
  fl_status status = device_.chip->memory.malloc(device_.local, bytes, &address);
  if (status == FL_OUT_OF_MEMORY) {
    take_chip_error();
    return nullptr;
  }
  check(status, ("cannot allocate " + bytes_text(bytes) + " on " + device_.name).c_str());
  auto segment =
      std::make_unique<Segment>(Segment{static_cast<char*>(address), bytes, &stream, new_block(), &pool,
                                        large, bytes >= max_split_bytes(), request.context});
  Block* block = segment->first;
  block->address = segment->address;
  block->size = bytes;
  block->stream = &stream;
  block->segment = segment.get();
  segments_[reinterpret_cast<uintptr_t>(address)] = std::move(segment);
  ++stats_.num_device_alloc;
  change(stats_.segment, large, 1);
  change(stats_.reserved_bytes, large, static_cast<int64_t>(bytes));
  change(pool.reserved_bytes, large, static_cast<int64_t>(bytes));
  ++pool.segments;
  if (block->segment->oversize) change(stats_.oversize_segments, 1);
  note(TraceAction::segment_alloc, block, bytes, request.context);
  return block;
}

size_t DeviceMemory::limit() {
  double fraction = fraction_ < 0 ? memory_fraction_setting() : fraction_;
  if (fraction >= 1) return std::numeric_limits<size_t>::max();
  return static_cast<size_t>(fraction * static_cast<double>(device_.properties.total_memory));
}

std::string DeviceMemory::out_of_memory(size_t bytes) {
  uint64_t free_bytes = 0, total = device_.properties.total_memory;
  bool known = device_.chip->memory.info(device_.local, &free_bytes, &total) == FL_OK;
  int64_t allocated = stats_.allocated_bytes[kAggregate].current;
  int64_t cached = stats_.reserved_bytes[kAggregate].current - allocated;
  std::string text = device_.name + " out of memory. Tried to allocate " + bytes_text(bytes) +
                     ". The device (" + device_.properties.name + ") has " + bytes_text(total) + " in total";
  if (known) text += ", of which " + bytes_text(free_bytes) + " are free";
  text += ". This process has " + bytes_text(static_cast<uint64_t>(allocated)) +
          " allocated by PyTorch, and " + bytes_text(static_cast<uint64_t>(cached)) +
          " reserved by PyTorch but unallocated";
  if (limit() < total) {
    text += ". The memory fraction limits it to " + bytes_text(limit()) +
            " (FL_MEMORY_FRACTION, torch.cuda.set_per_process_memory_fraction)";
  }
  text += ". A smaller batch needs less";
  if (cached >= static_cast<int64_t>(bytes))
    text +=
        "; what is reserved but unallocated would be enough, and is in pieces: max_split_size_mb "
        "(FL_MAX_SPLIT_SIZE_MB) can help";
  return text + ".";
}

// ----------------------------------------------------------------------- free

void DeviceMemory::free(Block* block, const Context& context) noexcept {
  if (block == &empty_) return;
  std::lock_guard<std::mutex> lock(mutex_);
  note(TraceAction::free_requested, block, block->size, context);
  bool large = block->segment->large;
  block->allocated = false;
  change(stats_.allocation, large, -1);
  change(stats_.allocated_bytes, large, -static_cast<int64_t>(block->size));
  change(stats_.requested_bytes, large, -static_cast<int64_t>(block->requested));
  if (block->oversize) change(stats_.oversize_allocations, -1);
  if (block->used_on) defer(block);
  if (!block->events) take_back(block);
}

Block* DeviceMemory::merge(Block* low, Block* high) {
  low->size += high->size;
  low->next = high->next;
  if (low->next) low->next->previous = low;
  high->next = spare_;
  spare_ = high;
  return low;
}

// Into the free list, joined with its free neighbours.
void DeviceMemory::take_back(Block* block) {
  bool large = block->segment->large;
  note(TraceAction::free_completed, block, block->size, block->context);
  if (block->context) block->context = nullptr;
  change(stats_.active, large, -1);
  change(stats_.active_bytes, large, -static_cast<int64_t>(block->size));
  FreeList& list = list_of(block);
  int64_t blocks = 0, bytes = 0;  // by which the free parts of split segments change
  for (Block* neighbour : {block->next, block->previous}) {
    if (!neighbour || !neighbour->listed) continue;
    list.remove(neighbour);
    --blocks;
    bytes -= static_cast<int64_t>(neighbour->size);
    block = neighbour == block->next ? merge(block, neighbour) : merge(neighbour, block);
  }
  if (block->is_split()) {
    ++blocks;
    bytes += static_cast<int64_t>(block->size);
  }
  if (blocks) change(stats_.inactive_split, large, blocks);
  if (bytes) change(stats_.inactive_split_bytes, large, bytes);
  block->freed_at = ++frees_;
  list.insert(block);
  if (!caching() && !block->is_split() && !block->segment->pool->held) {
    std::vector<Block*> whole{block};
    release(whole);
  }
}

void DeviceMemory::record(TraceAction action, const Block* block, size_t size, const Context& context) {
  history_.add(action, reinterpret_cast<uintptr_t>(block->address), size, block->stream->id,
               block->segment->pool->id, context);
}

}  // namespace fl
