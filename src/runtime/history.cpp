#include "runtime/history.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace fl {

constinit std::atomic<ContextOf> contexts_wanted{ContextOf::kNothing};

namespace {

constinit std::atomic<Context (*)()> gatherer{nullptr};
thread_local std::string metadata;

}  // namespace

void set_context_gatherer(Context (*gather)()) { gatherer.store(gather, std::memory_order_release); }

Context gather_context() {
  auto* gather = gatherer.load(std::memory_order_acquire);
  return gather ? gather() : nullptr;
}

void set_history_metadata(const std::string& text) { metadata = text; }
const std::string& history_metadata() { return metadata; }

void History::set(const HistoryOptions& options) {
  options_ = options;
  std::rotate(ring_.begin(), ring_.begin() + static_cast<std::ptrdiff_t>(next_), ring_.end());
  next_ = 0;
  if (!options_.max_entries) options_.max_entries = 1;
  const size_t surplus =
      options.clear ? ring_.size() : ring_.size() - std::min(ring_.size(), options_.max_entries);
  ring_.erase(ring_.begin(), ring_.begin() + static_cast<std::ptrdiff_t>(surplus));
}

void History::add(TraceAction action, uintptr_t address, size_t size, int64_t stream, PoolId pool,
                  Context context) {
  if (!options_.on || options_.skipped >> static_cast<unsigned>(action) & 1u) return;
  const bool frees = action == TraceAction::free_requested || action == TraceAction::free_completed;
  if (options_.contexts < (frees ? ContextOf::kAll : ContextOf::kAlloc)) context = nullptr;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  TraceEntry entry{action,
                   address,
                   size,
                   stream,
                   pool,
                   std::chrono::duration_cast<std::chrono::microseconds>(now).count(),
                   std::move(context),
                   metadata};
  if (ring_.size() < options_.max_entries) {
    ring_.push_back(std::move(entry));
    return;
  }
  ring_[next_] = std::move(entry);
  next_ = (next_ + 1) % ring_.size();
}

std::vector<TraceEntry> History::entries() const {
  std::vector<TraceEntry> all;
  all.reserve(ring_.size());
  for (size_t i = 0; i < ring_.size(); ++i) all.push_back(ring_[(next_ + i) % ring_.size()]);
  return all;
}

}  // namespace fl
