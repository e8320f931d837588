// The names of memory pools.
#pragma once

#include <compare>
#include <cstdint>

namespace fl {

// Memory kept apart from the ordinary cache, {0, 0}: that of graphs that share a pool, or of a MemPool of the
// user's.  PyTorch's c10::MempoolId_t.
struct PoolId {
  uint64_t graph = 0, user = 0;
  friend auto operator<=>(const PoolId&, const PoolId&) = default;
  explicit operator bool() const noexcept { return graph || user; }
};

struct PoolOptions {
  bool use_on_oom = false;  // its free memory serves any request before that fails
  bool no_split = false;    // a request gets a whole segment
};

}  // namespace fl
