// What a chip makes of programs, kept under their hash (fl/program.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "fl/program.h"

namespace fl::author {

// Plan has `uint64_t hash` and `const Plan* next`.  Plans live as long as the
// process: a launch may hold one at any time.  Any thread; a plan that is there is
// found without a lock.
template <class Plan>
class Plans {
 public:
  // `make(program)` returns a new Plan, also for a program that the chip cannot
  // run, so that it is not asked again; it is called once for each hash.
  template <class Make>
  const Plan* get(const fl_program& program, Make&& make) {
    if (const Plan* plan = find(program.hash)) return plan;
    std::lock_guard<std::mutex> guard(adding_);
    if (const Plan* plan = find(program.hash)) return plan;
    Plan* made = make(program);
    made->hash = program.hash;
    auto& chain = chain_of(program.hash);
    made->next = chain.load(std::memory_order_relaxed);
    chain.store(made, std::memory_order_release);
    return made;
  }

 private:
  static constexpr size_t kChains = 4096;
  auto& chain_of(uint64_t hash) { return chains_[(hash ^ hash >> 32) % kChains]; }
  const Plan* find(uint64_t hash) {
    const Plan* p = chain_of(hash).load(std::memory_order_acquire);
    while (p && p->hash != hash) p = p->next;
    return p;
  }
  std::atomic<const Plan*> chains_[kChains] = {};
  std::mutex adding_;
};

// One thing for each of a few numbers, made when it is first asked for.
template <class Plan, size_t n>
class PlanTable {
 public:
  template <class Make>
  const Plan* get(size_t at, Make&& make) {
    auto& entry = entries_[at];
    if (const Plan* plan = entry.load(std::memory_order_acquire)) return plan;
    std::lock_guard<std::mutex> guard(adding_);
    if (const Plan* plan = entry.load(std::memory_order_relaxed)) return plan;
    const Plan* made = make();
    entry.store(made, std::memory_order_release);
    return made;
  }

 private:
  std::atomic<const Plan*> entries_[n] = {};
  std::mutex adding_;
};

}  // namespace fl::author
