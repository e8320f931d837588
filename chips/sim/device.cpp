// Devices: how many, how large, and the address space that they share.
//
// One reservation holds all devices twice: first the addresses that the host
// gets, which nobody can read, then the memory, as the workers see it.  The
// distance between the two is the same for all devices (worker_offset).
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "device.h"

namespace sim {

ptrdiff_t worker_offset = 0;
std::atomic<bool> forked{false};

namespace {

constexpr int kMaxDevices = 64;
constexpr uint64_t kAlignment = 512;  // what is promised; allocations start on pages
constexpr uint64_t kSmallestMemory = 1 << 20;

uint64_t host_memory() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
}

struct Settings {
  int devices = 1;
  uint64_t memory = 0;
  int threads = 1;
  std::string error;  // empty, or the sentence that refuses a setting
};

// "512M", "16G", "1048576"; 0 when it is not that.
uint64_t parse_bytes(const char* text) {
  char* end;
  errno = 0;
  if (*text < '0' || *text > '9') return 0;
  uint64_t n = std::strtoull(text, &end, 10), unit = 1;
  switch (*end) {
    case 'k':
    case 'K':
      unit = uint64_t{1} << 10, ++end;
      break;
    case 'm':
    case 'M':
      unit = uint64_t{1} << 20, ++end;
      break;
    case 'g':
    case 'G':
      unit = uint64_t{1} << 30, ++end;
      break;
    default:
      break;
  }
  if (errno || *end || n > (uint64_t{1} << 44) / unit) return 0;
  return n * unit;
}

Settings read_settings() {
  Settings s;
  s.memory = host_memory() / 4 * 3;
  if (s.memory > uint64_t{16} << 30) s.memory = uint64_t{16} << 30;
  s.memory &= ~(kLargePage - 1);
  s.threads = omp_get_max_threads();
  if (const char* text = std::getenv("FL_SIM_DEVICES"); text && *text) {
    char* end;
    long n = std::strtol(text, &end, 10);
    if (*end || n < 1 || n > kMaxDevices)
      s.error = std::string("FL_SIM_DEVICES is '") + text + "': it takes a number from 1 to 64";
    else s.devices = static_cast<int>(n);
  }
  if (const char* text = std::getenv("FL_SIM_MEMORY"); text && *text) {
    s.memory = parse_bytes(text);
    if (s.memory < kSmallestMemory)
      s.error = std::string("FL_SIM_MEMORY is '") + text +
                "': it takes the bytes of a device, from 1M to 16384G, with K, M or G behind the number";
  }
  if (const char* text = std::getenv("FL_SIM_THREADS"); text && *text) {
    char* end;
    long n = std::strtol(text, &end, 10);
    if (*end || n < 1 || n > 1024)
      s.error = std::string("FL_SIM_THREADS is '") + text + "': it takes a number from 1 to 1024";
    else s.threads = static_cast<int>(n);
  }
  return s;
}

const Settings& settings() {
  static const Settings& s = *new Settings(read_settings());
  return s;
}

std::mutex opening;
std::atomic<Device*> open_devices[kMaxDevices];
char* reservation = nullptr;

uint64_t mapped_bytes() { return (settings().memory + kLargePage - 1) & ~(kLargePage - 1); }

fl_status reserve() {
  if (reservation) return FL_OK;
  size_t half = mapped_bytes() * static_cast<size_t>(settings().devices);
  void* at =
      mmap(nullptr, 2 * half + kLargePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    set_error(
        "sim: cannot reserve %zu bytes of address space for %d devices (%s): lower FL_SIM_MEMORY or "
        "FL_SIM_DEVICES",
        2 * half, settings().devices, std::strerror(errno));
    return FL_OUT_OF_MEMORY;
  }
  auto start = (reinterpret_cast<uintptr_t>(at) + kLargePage - 1) & ~uintptr_t{kLargePage - 1};
  worker_offset = static_cast<ptrdiff_t>(half);
  pthread_atfork(nullptr, nullptr, [] { forked.store(true, std::memory_order_relaxed); });
  reservation = reinterpret_cast<char*>(start);
  return FL_OK;
}

bool valid_index(int32_t device) {
  if (device >= 0 && device < settings().devices) return true;
  set_error("sim: there is no device %d; there are %d (FL_SIM_DEVICES)", device, settings().devices);
  return false;
}

fl_status count(int32_t* out) {
  if (!valid_settings()) return FL_INVALID;
  *out = settings().devices;
  return FL_OK;
}

fl_status properties(int32_t device, fl_device_properties* out) {
  if (!valid_settings() || !valid_index(device)) return FL_INVALID;
  fl_device_properties p{};
  p.size = out->size < sizeof p ? out->size : static_cast<uint32_t>(sizeof p);
  p.flags = FL_DEVICE_SOFTWARE | FL_DEVICE_HOST_ADDRESSABLE;
  std::snprintf(p.name, sizeof p.name, "sim");
  std::snprintf(p.identity, sizeof p.identity, "sim-%02d", device);
  p.total_memory = settings().memory;
  p.alignment = kAlignment;
  p.compute_units = static_cast<uint32_t>(settings().threads);
  p.major = 1;
  p.storage = kAllDtypes;
  p.arithmetic = kAllDtypes & ~(FL_BIT(FL_F8_E4M3FN) | FL_BIT(FL_F8_E5M2) | FL_BIT(FL_F8_E4M3FNUZ) |
                                FL_BIT(FL_F8_E5M2FNUZ) | FL_BIT(FL_F16) | FL_BIT(FL_BF16) | FL_BIT(FL_C32));
  std::memcpy(out, &p, p.size);
  return FL_OK;
}

fl_status open(int32_t index) {
  if (!valid_settings() || !valid_index(index) || !faults::environment_valid()) return FL_INVALID;
  if (forked.load(std::memory_order_relaxed)) return refuse_forked();
  std::lock_guard<std::mutex> guard(opening);
  if (open_devices[index].load(std::memory_order_relaxed)) return FL_OK;
  if (fl_status status = reserve()) return status;
  size_t bytes = mapped_bytes();
  char* base = reservation + bytes * static_cast<size_t>(index);
  if (mprotect(base + worker_offset, bytes, PROT_READ | PROT_WRITE) != 0) {
    set_error("sim: cannot map %zu bytes for device %d (%s): lower FL_SIM_MEMORY", bytes, index,
              std::strerror(errno));
    return FL_FAILED;
  }
  // Large pages: with small ones, operators that jump about wait for address translation as long as for
  // memory.  A child of fork owns no device memory, so nothing is copied for it.
  madvise(base + worker_offset, bytes, MADV_HUGEPAGE);
  madvise(base + worker_offset, bytes, MADV_DONTFORK);
  auto* device = new Device;
  device->index = index;
  device->memory_bytes = settings().memory;
  device->base = base;
  device->ranges.reset(reinterpret_cast<uintptr_t>(base), settings().memory & ~uint64_t{4095});
  open_devices[index].store(device, std::memory_order_release);
  return FL_OK;
}

}  // namespace

bool valid_settings() {
  if (settings().error.empty()) return true;
  set_error("%s", settings().error.c_str());
  return false;
}

int device_count() { return settings().devices; }
uint64_t device_memory() { return settings().memory; }
int threads_per_stream() { return settings().threads; }

fl_status refuse_forked() {
  set_error(
      "sim: this process was forked after a device had been used; its devices stay with the parent. "
      "Start processes with the 'spawn' method, or use devices only after the fork");
  return FL_FAILED;
}

Device* find_device(int32_t index, fl_status* status) {
  if (forked.load(std::memory_order_relaxed)) {
    *status = refuse_forked();
    return nullptr;
  }
  *status = FL_INVALID;
  if (!valid_settings() || !valid_index(index)) return nullptr;
  Device* device = open_devices[index].load(std::memory_order_acquire);
  if (!device) {
    set_error("sim: device %d has not been opened", index);
    return nullptr;
  }
  if (device->lost.load(std::memory_order_relaxed)) {
    set_error("sim: device %d is lost", index);
    *status = FL_DEVICE_LOST;
    return nullptr;
  }
  *status = FL_OK;
  return device;
}

bool on_device(const Device& device, const void* address, size_t bytes) {
  auto offset = reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(device.base);
  return offset <= device.memory_bytes && bytes <= device.memory_bytes - offset;
}

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1000000000 + t.tv_nsec;
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, int64_t deadline_ns) {
  timespec deadline{};
  if (deadline_ns >= 0) deadline = {static_cast<time_t>(deadline_ns / 1000000000), deadline_ns % 1000000000};
  // FUTEX_WAIT_BITSET takes an absolute time.
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, expected,
          deadline_ns >= 0 ? &deadline : nullptr, nullptr, FUTEX_BITSET_MATCH_ANY);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, nullptr,
          nullptr, 0);
}

bool can_fence_others() {
  static const bool can = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
  return can;
}
void fence_others() { syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0); }

void SpinLock::yield_or_pause(int spins) {
  if (spins < 64) pause();
  else if (spins < 1024) sched_yield();
  else usleep(50);
}

extern const fl_device_api device_api = {sizeof(fl_device_api), 0, count, properties, open};

}  // namespace sim
