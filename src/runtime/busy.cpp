#include "runtime/busy.h"

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "runtime/stream.h"

namespace fl {

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kInterval = std::chrono::milliseconds(2);

std::array<std::atomic<int64_t>, kMaxDevices> busy_ns{};
std::atomic<bool> stop{false};
std::thread* watcher = nullptr;  // by its one user, the main thread

// Asks the chip itself: a fault stays with its stream, for whoever synchronizes.
bool has_work(int32_t index) {
  for (int64_t id = 0; id < kStreams; ++id) {
    const Stream* s = existing_stream(index, id);
    if (s && s->chip->stream.query(s->handle) == FL_NOT_READY) return true;
  }
  return false;
}

void watch() {
  for (Clock::time_point before = Clock::now(); !stop.load(std::memory_order_relaxed);) {
    std::this_thread::sleep_for(kInterval);
    const Clock::time_point now = Clock::now();
    for (int32_t index = 0; index < kMaxDevices; ++index)
      if (is_open(index) && has_work(index))
        busy_ns[index].fetch_add(std::chrono::nanoseconds(now - before).count(), std::memory_order_relaxed);
    before = now;
  }
}

}  // namespace

void watch_devices() {
  if (!watcher) watcher = new std::thread(watch);
}

void stop_watching() {
  if (!watcher) return;
  stop = true;
  watcher->join();
}

double busy_seconds(int32_t device) noexcept {
  return device >= 0 && device < kMaxDevices
             ? static_cast<double>(busy_ns[device].load(std::memory_order_relaxed)) * 1e-9
             : 0;
}

}  // namespace fl
