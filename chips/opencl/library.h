// Compiled kernels of one device: made when first asked for, or behind the scenes, and kept on disk.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "opencl.h"

namespace ocl {

// A kernel and what was last set as its arguments. Launches on one device come one at a time
// (FL_CHIP_SERIAL_LAUNCH), so that nobody else sets them in between.
struct Kernel {
  cl_kernel handle = nullptr;
  std::vector<cl_mem> buffers;   // by argument; null for values
  std::vector<char> parameters;  // by value, in argument 0
  uint64_t generation = 0;       // of the device's memory then
};

// What a kernel is made of: OpenCL C and macros. Equal ones are compiled once.
struct Source {
  std::string text;     // after the prelude (ops.cl)
  std::string options;  // -D…
  std::string kernel;   // its entry's name
};

enum class Family : uint8_t {
  program,
  interpret,
  reduce,
  copy,
  gather,
  random,
  gemm,
  softmax,
  norm,
  conv,
  pool,
  other
};

// When a kernel is compiled that is neither in memory nor on disk: not at all, behind the scenes, in the
// call.
enum class Compile : uint8_t { never, later, now };

struct Library {
  explicit Library(Device& d);

  // The kernel for a key that says all that its source depends on; `make` is called at most once for each.
  // Null while it is not there; with Compile::now, when it does not compile, and then the sentence is set.
  template <class F>
  Kernel* get(Family family, uint64_t key, F&& make, Compile compile = Compile::now) {
    if (Entry* e = find(family, key))
      return compile == Compile::now ? use(*e) : e->kernel.load(std::memory_order_acquire);
    const bool here = compile == Compile::now || kept_.contains(file_of(family, key));
    if (!here && compile == Compile::never) return nullptr;
    return add(family, key, make(), here);
  }

  // Ends every library's thread.
  static void end_all();

 private:
  struct Entry {
    uint64_t key;
    Family family;
    std::atomic<Kernel*> kernel{nullptr};
    std::atomic<bool> failed{false};
    std::string problem;  // why it does not compile
    std::once_flag built;
    Source source;
    const Entry* next;
  };
  using Clock = std::chrono::steady_clock;
  struct Wanted {
    Entry* entry;
    Clock::time_point since;
  };
  struct Unsaved {
    cl_program program;
    std::string path, key;
  };
  static constexpr size_t kChains = 4096;

  static size_t chain(Family family, uint64_t key) {
    return ((key ^ key >> 29 ^ key >> 47) + static_cast<size_t>(family) * 977) % kChains;
  }
  Entry* find(Family family, uint64_t key) const {
    const Entry* e = chains_[chain(family, key)].load(std::memory_order_acquire);
    while (e && (e->key != key || e->family != family)) e = e->next;
    return const_cast<Entry*>(e);
  }
  uint64_t file_of(Family family, uint64_t key) const;
  Kernel* add(Family family, uint64_t key, Source source, bool now);
  Kernel* use(Entry& e);
  void build(Entry& e);
  cl_program load(const std::string& path, const std::string& key, const std::string& options);
  void save(const Unsaved& u);
  void save_next(std::unique_lock<std::mutex>& lock);
  void work();
  void start_thread();
  void at_exit();

  Device& device_;
  std::string directory_;              // of compiled programs; empty: none are kept
  std::unordered_set<uint64_t> kept_;  // the files that were there at the start
  std::string options_;                // of all kernels
  uint64_t seed_ = 0;                  // of the files' names
  std::atomic<const Entry*> chains_[kChains] = {};
  std::mutex adding_;
  // The thread's: what to compile, and what to write to disk.
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Wanted> wanted_;
  std::deque<Unsaved> unsaved_;
  Clock::time_point compiled_{};  // the last that is to be written,
  Clock::duration spent_{};       // and how long it took to compile all, and to write those written
  int waiting_ = 0;               // callers whose kernels are being compiled,
  Clock::time_point waited_{};    // and when that number last changed
  bool running_ = false, stop_ = false;
  std::thread thread_;
  int process_ = 0;
};

Library* make_library(Device& device);

}  // namespace ocl
