// torch.fl.set_sync_debug_mode: whoever lets the host wait for a device says so.
#pragma once

#include <atomic>

namespace fl::bridge {

enum class SyncDebug : int { kQuiet, kWarn, kError };
extern std::atomic<SyncDebug> sync_debug;

[[gnu::cold]] void report_sync(SyncDebug mode);

// Called before each wait for a stream that an operator or the user asked for.  Costs a load.
inline void note_sync() {
  const SyncDebug mode = sync_debug.load(std::memory_order_relaxed);
  if (mode != SyncDebug::kQuiet) [[unlikely]]
    report_sync(mode);
}

}  // namespace fl::bridge
