// Device memory, pinned host memory, and the copies between them.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "device.h"
#include "simd/index_kernels.h"

namespace sim {

// ---------------------------------------------------------------- ranges

void Ranges::reset(uintptr_t base, size_t bytes) {
  std::lock_guard<std::mutex> guard(mutex_);
  free_.clear(), taken_.clear(), by_size_.clear();
  free_bytes_ = 0;
  insert(base, bytes);
}

void Ranges::insert(uintptr_t address, size_t bytes) {
  free_bytes_ += bytes;
  auto forget = [this](std::map<uintptr_t, size_t>::iterator it) {
    auto range = by_size_.equal_range(it->second);
    for (auto s = range.first; s != range.second; ++s)
      if (s->second == it->first) {
        by_size_.erase(s);
        break;
      }
    return free_.erase(it);
  };
  auto after = free_.lower_bound(address);
  if (after != free_.end() && address + bytes == after->first) {
    bytes += after->second;
    after = forget(after);
  }
  if (after != free_.begin()) {
    auto before = std::prev(after);
    if (before->first + before->second == address) {
      address = before->first;
      bytes += before->second;
      forget(before);
    }
  }
  free_.emplace(address, bytes);
  by_size_.emplace(bytes, address);
}

uintptr_t Ranges::take(size_t bytes, size_t alignment) {
  std::lock_guard<std::mutex> guard(mutex_);
  for (auto s = by_size_.lower_bound(bytes); s != by_size_.end(); ++s) {
    auto [size, address] = *s;
    uintptr_t at = (address + alignment - 1) & ~uintptr_t{alignment - 1};
    if (at - address > size - bytes) continue;
    by_size_.erase(s);
    free_.erase(address);
    free_bytes_ -= size;
    if (at > address) insert(address, at - address);
    if (at + bytes < address + size) insert(at + bytes, address + size - at - bytes);
    taken_.emplace(at, bytes);
    return at;
  }
  return 0;
}

size_t Ranges::give_back(uintptr_t address) {
  std::lock_guard<std::mutex> guard(mutex_);
  auto it = taken_.find(address);
  if (it == taken_.end()) return 0;
  size_t bytes = it->second;
  taken_.erase(it);
  insert(address, bytes);
  return bytes;
}

size_t Ranges::size_of(uintptr_t address) const {
  std::lock_guard<std::mutex> guard(mutex_);
  auto it = taken_.find(address);
  return it == taken_.end() ? 0 : it->second;
}

bool Ranges::holds(uintptr_t address, size_t bytes) const {
  std::lock_guard<std::mutex> guard(mutex_);
  auto it = taken_.upper_bound(address);
  if (it == taken_.begin()) return false;
  --it;
  return address - it->first <= it->second && bytes <= it->second - (address - it->first);
}

size_t Ranges::free_bytes() const {
  std::lock_guard<std::mutex> guard(mutex_);
  return free_bytes_;
}

namespace {

constexpr size_t kPage = 4096;
size_t pages(size_t bytes) { return (bytes + kPage - 1) & ~(kPage - 1); }

fl_status allocate(int32_t index, size_t bytes, void** out) {
  fl_status status;
  Device* device = find_device(index, &status);
  if (!device) return status;
  if (bytes == 0) {
    set_error("sim: an allocation of 0 bytes");
    return FL_INVALID;
  }
  if (faults::armed.load(std::memory_order_relaxed) && faults::fail_malloc()) {
    set_error("sim: an allocation of %zu bytes on device %d fails, as ordered (FL_SIM_FAULTS)", bytes, index);
    return FL_OUT_OF_MEMORY;
  }
  uintptr_t at = bytes > device->memory_bytes
                     ? 0
                     : device->ranges.take(pages(bytes), bytes >= kLargePage ? kLargePage : kPage);
  // The last large range may fit only without the large page's alignment.
  if (!at && bytes >= kLargePage && bytes <= device->memory_bytes)
    at = device->ranges.take(pages(bytes), kPage);
  if (!at) {
    set_error("sim: device %d has no %zu bytes in one piece: %zu of %llu are free (FL_SIM_MEMORY)", index,
              bytes, device->ranges.free_bytes(), static_cast<unsigned long long>(device->memory_bytes));
    return FL_OUT_OF_MEMORY;
  }
  *out = reinterpret_cast<void*>(at);
  return FL_OK;
}

fl_status release(int32_t index, void* address) {
  if (!address || forked.load(std::memory_order_relaxed)) return FL_OK;  // a child owns no device memory
  fl_status status;
  Device* device = find_device(index, &status);
  if (!device) return status;
  auto at = reinterpret_cast<uintptr_t>(address);
  size_t bytes = device->ranges.size_of(at);
  if (!bytes) {
    set_error("sim: %p is not the address of an allocation on device %d", address, index);
    return FL_INVALID;
  }
  // The pages go back to the host before the range can be taken again.
  madvise(static_cast<char*>(address) + worker_offset, bytes, MADV_DONTNEED);
  device->ranges.give_back(at);
  return FL_OK;
}

fl_status info(int32_t index, uint64_t* free_bytes, uint64_t* total_bytes) {
  fl_status status;
  Device* device = find_device(index, &status);
  if (!device) return status;
  *free_bytes = device->ranges.free_bytes();
  *total_bytes = device->memory_bytes;
  return FL_OK;
}

fl_status map(int32_t index, void* address, size_t bytes, void** out) {
  fl_status status;
  Device* device = find_device(index, &status);
  if (!device) return status;
  if (!device->ranges.holds(reinterpret_cast<uintptr_t>(address), bytes)) {
    set_error("sim: %zu bytes at %p do not lie within one allocation on device %d", bytes, address, index);
    return FL_INVALID;
  }
  *out = static_cast<char*>(address) + worker_offset;
  return FL_OK;
}

// ----------------------------------------------------------- pinned memory
// Carved from one reservation, so that "is this pinned" needs no lookup.

struct PinnedArena {
  char* base = nullptr;
  size_t bytes = 0;
  Ranges ranges;
};

PinnedArena* make_arena() {
  auto* arena = new PinnedArena;
  auto total = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
  void* at = mmap(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return arena;
  arena->base = static_cast<char*>(at);
  arena->bytes = total;
  arena->ranges.reset(reinterpret_cast<uintptr_t>(at), total);
  return arena;
}

std::atomic<PinnedArena*> the_arena{nullptr};

PinnedArena& arena() {
  static PinnedArena* const made = [] {
    PinnedArena* a = make_arena();
    the_arena.store(a, std::memory_order_release);
    return a;
  }();
  return *made;
}

fl_status host_alloc(size_t bytes, void** out) {
  if (bytes == 0) {
    set_error("sim: a pinned allocation of 0 bytes");
    return FL_INVALID;
  }
  PinnedArena& a = arena();
  uintptr_t at = bytes > a.bytes ? 0 : a.ranges.take(pages(bytes), kPage);
  if (at && mprotect(reinterpret_cast<void*>(at), pages(bytes), PROT_READ | PROT_WRITE) != 0) {
    a.ranges.give_back(at);
    at = 0;
  }
  if (!at) {
    set_error("sim: cannot get %zu bytes of pinned host memory", bytes);
    return FL_OUT_OF_MEMORY;
  }
  *out = reinterpret_cast<void*>(at);
  return FL_OK;
}

fl_status host_free(void* address) {
  if (!address) return FL_OK;
  PinnedArena& a = arena();
  auto at = reinterpret_cast<uintptr_t>(address);
  size_t bytes = a.ranges.size_of(at);
  if (!bytes) {
    set_error("sim: %p is not the address of a pinned allocation", address);
    return FL_INVALID;
  }
  // A fresh mapping gives the pages back and lets nobody read them.
  if (mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
      MAP_FAILED) {
    set_error("sim: pinned memory cannot be given back: %s", std::strerror(errno));
    return FL_FAILED;  // it stays the caller's
  }
  a.ranges.give_back(at);
  return FL_OK;
}

// ------------------------------------------------------------------ copies

constexpr int64_t kCopyGrain = 1 << 20;
// Up to this size the bytes travel in the job itself; beyond, the caller waits.
constexpr size_t kInlineBytes = 256 << 10;

void copy_bytes(void* to, const void* from, size_t bytes) {
  const MoveRun move = move_run(1);
  parallel(static_cast<int64_t>(bytes), kCopyGrain, [&](int64_t begin, int64_t end) {
    move(static_cast<char*>(to) + begin, 1, static_cast<const char*>(from) + begin, 1, nullptr, nullptr,
         end - begin);
  });
}

struct CopyJob {
  void* to;
  const void* from;
  size_t bytes;
  bool may_overlap;
  void operator()(Context&) const {
    if (may_overlap) std::memmove(to, from, bytes);
    else copy_bytes(to, from, bytes);
  }
};

struct InlineCopy {
  void* to;
  size_t bytes;
  static void run(void* p, Context& c) {
    auto* job = static_cast<InlineCopy*>(p);
    if (!c.discard) std::memcpy(job->to, job + 1, job->bytes);
  }
};

bool check_address(const Device& device, const void* address, size_t bytes) {
  if (on_device(device, address, bytes)) return true;
  set_error("sim: %zu bytes at %p do not lie on device %d", bytes, address, device.index);
  return false;
}

fl_status copy(const fl_launch* launch, int kind, void* to, const void* from, size_t bytes) {
  fl_status status;
  Device* device = find_device(launch->device, &status);
  if (!device) return status;
  if (bytes == 0) return FL_OK;
  if (kind == FL_DEVICE_TO_DEVICE || kind == FL_HOST_TO_DEVICE) {
    if (!check_address(*device, to, bytes)) return FL_INVALID;
    to = static_cast<char*>(to) + worker_offset;
  }
  if (kind == FL_DEVICE_TO_DEVICE || kind == FL_DEVICE_TO_HOST) {
    if (!check_address(*device, from, bytes)) return FL_INVALID;
    from = static_cast<const char*>(from) + worker_offset;
  }
  switch (kind) {
    case FL_DEVICE_TO_DEVICE: {
      auto distance = static_cast<char*>(to) - static_cast<const char*>(from);
      bool overlap = distance < static_cast<ptrdiff_t>(bytes) && -distance < static_cast<ptrdiff_t>(bytes);
      return submit(launch, "transfer", CopyJob{to, from, bytes, overlap});
    }
    case FL_DEVICE_TO_HOST:
      return submit(launch, "transfer", CopyJob{to, from, bytes, false});
    case FL_HOST_TO_DEVICE:
      break;
    default:
      set_error("sim: %d is no kind of copy", kind);
      return FL_INVALID;
  }
  if (pinned(from, bytes)) return submit(launch, "transfer", CopyJob{to, from, bytes, false});
  if (bytes <= kInlineBytes) {
    void* place = ring_begin(launch, "transfer", sizeof(InlineCopy) + bytes, InlineCopy::run, &status);
    if (!place) return status;
    auto* job = new (place) InlineCopy{to, bytes};
    std::memcpy(job + 1, from, bytes);
    ring_commit(launch);
    return FL_OK;
  }
  status = submit(launch, "transfer", CopyJob{to, from, bytes, false});
  if (status == FL_OK) wait_submitted(launch->stream);
  return status;
}

fl_status copy_peer(const fl_launch* launch, int32_t to_device, void* to, const void* from, size_t bytes) {
  fl_status status;
  Device* source = find_device(launch->device, &status);
  Device* target = source ? find_device(to_device, &status) : nullptr;
  if (!target) return status;
  if (bytes == 0) return FL_OK;
  if (!check_address(*source, from, bytes) || !check_address(*target, to, bytes)) return FL_INVALID;
  return submit(launch, "transfer",
                CopyJob{static_cast<char*>(to) + worker_offset,
                        static_cast<const char*>(from) + worker_offset, bytes, source == target});
}

}  // namespace

bool pinned(const void* address, size_t bytes) {
  const PinnedArena* a = the_arena.load(std::memory_order_acquire);
  if (!a) return false;
  auto offset = reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(a->base);
  return offset < a->bytes && bytes <= a->bytes - offset;
}

extern const fl_memory_api memory_api = {
    sizeof(fl_memory_api), 0, allocate, release, info, copy, copy_peer, host_alloc, host_free, map};

}  // namespace sim
