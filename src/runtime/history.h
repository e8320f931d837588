// What the allocator did: the entries of torch.fl.memory._record_memory_history.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/pool_id.h"

namespace fl {

// Where in the user's program: gathered and read by the bridge, opaque here.
using Context = std::shared_ptr<void>;

// X(name): the texts are PyTorch's.  The address of OOM is the number of free bytes.
#define FL_TRACE_ACTIONS(X) \
  X(alloc) X(free_requested) X(free_completed) X(segment_alloc) X(segment_free) X(snapshot) X(oom)
enum class TraceAction : uint8_t {
#define FL_TRACE_ENUM(name) name,
  FL_TRACE_ACTIONS(FL_TRACE_ENUM)
#undef FL_TRACE_ENUM
};

// Whose context is kept: of nothing, of live blocks, of allocations in the history too, of frees too.
enum class ContextOf : uint8_t { kNothing, kState, kAlloc, kAll };

struct HistoryOptions {
  bool on = false;
  bool clear = false;      // what was recorded before
  size_t max_entries = 1;  // of each device; newer entries replace the oldest
  ContextOf contexts = ContextOf::kNothing;
  uint32_t skipped = 0;  // a bit for each TraceAction
};

struct TraceEntry {
  TraceAction action;
  uintptr_t address;
  size_t size;
  int64_t stream;
  PoolId pool;
  int64_t time_us;  // since 1970
  Context context;
  std::string metadata;
};

// Set by the bridge: the context of the running thread.  Called without locks of the allocator's, only while
// history is recorded.
void set_context_gatherer(Context (*gather)());
// The caller's context.
Context gather_context();
// Whether what is recorded wants the contexts of these.  One relaxed load.
extern std::atomic<ContextOf> contexts_wanted;
inline bool wants_context(ContextOf of) noexcept {
  return contexts_wanted.load(std::memory_order_relaxed) >= of;
}
// A text of the user's that entries of this thread carry.
void set_history_metadata(const std::string& text);
const std::string& history_metadata();

// The last entries of one device.  Under the lock of the device's memory.
class History {
 public:
  void set(const HistoryOptions& options);
  bool on() const noexcept { return options_.on; }
  // The context of frees and allocations is kept as far as the options say.
  void add(TraceAction action, uintptr_t address, size_t size, int64_t stream, PoolId pool, Context context);
  std::vector<TraceEntry> entries() const;

 private:
  HistoryOptions options_;
  std::vector<TraceEntry> ring_;
  size_t next_ = 0;  // the oldest, once the ring is full
};

}  // namespace fl
