// The state of a generator of random numbers: Philox's seed and offset.
#pragma once

#include <cstdint>
#include <mutex>

namespace fl {

// Where a launch starts: fl_random_args.seed and .offset (in blocks of 128 bits).
struct PhiloxState {
  uint64_t seed, offset;
};

// Shared by a generator's handles and the graphs that drew from it.
class RandomState {
 public:
  explicit RandomState(PhiloxState state) : state_(state) {}

  PhiloxState get() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return state_;
  }
  void set(PhiloxState state) {
    std::lock_guard<std::mutex> lock(mutex_);
    state_ = state;
  }
  void set_offset(uint64_t offset) {
    std::lock_guard<std::mutex> lock(mutex_);
    state_.offset = offset;
  }
  PhiloxState take(uint64_t blocks) {
    std::lock_guard<std::mutex> lock(mutex_);
    const PhiloxState now = state_;
    state_.offset += blocks;
    return now;
  }

 private:
  mutable std::mutex mutex_;
  PhiloxState state_;
};

}  // namespace fl
