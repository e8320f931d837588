// What the allocator holds and did, for people who look for memory.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/allocator.h"
#include "runtime/history.h"

namespace fl {

// Segments and blocks, as torch.cuda.memory_snapshot() reports them.
struct BlockState {
  uintptr_t address;
  int64_t size, requested_size;
  bool allocated, active;
  Context context;
};
struct SegmentState {
  int32_t device;
  uintptr_t address;
  int64_t total_size, allocated_size, active_size, requested_size, stream;
  bool is_large;
  PoolId pool;
  Context context;
  std::vector<BlockState> blocks;
};
// Of all pools, or of one.
std::vector<SegmentState> memory_state(PoolId pool = {});

// What was allocated and freed, by whom (history.h): for all devices, those not used yet included.
void record_history(const HistoryOptions& options);
struct DeviceTrace {
  int32_t device;
  std::vector<TraceEntry> entries;  // oldest first
};
std::vector<DeviceTrace> memory_traces();
// Who allocated the live block at the address; null when it is not known.
Context allocation_context(const void* address);

}  // namespace fl
