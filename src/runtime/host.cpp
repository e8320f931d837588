// What chips may ask of the host: chip/host.h.
#include "chip/host.h"

#include <vector>

#include "chip/error.h"
#include "runtime/allocator.h"
#include "runtime/config.h"
#include "runtime/launch.h"

namespace fl {

namespace {

// The scratch memory of the launch that this thread is in.
struct Scratch {
  struct Held {
    Block* block;
    Stream* stream;
  };
  std::vector<Held> held;
  uint64_t tag = 0;

  void release() noexcept {
    for (const Held& h : held) {
      free(h.block);
      h.stream->scratch.fetch_sub(1, std::memory_order_relaxed);
    }
    held.clear();
  }
  ~Scratch() { release(); }
};
thread_local Scratch scratch;

}  // namespace

void LaunchScope::release_scratch() noexcept { scratch.release(); }

void host_log(int level, const char* text) noexcept {
  try {
    log(level, text ? text : "");
  } catch (const std::exception&) {
    return;  // out of memory while copying a line of the log; write_log would say the same
  }
}

std::string host_setting(const char* name) { return setting(name); }

// Held until the launch ends, and free then although its work still runs:
// memory of a stream is handed out again to the same stream only.
fl_status host_scratch(const fl_launch* launch, size_t bytes, void** out) noexcept {
  try {
    Stream* stream = launch ? launch_stream(*launch) : nullptr;
    if (!stream || !out || !bytes)
      throw Error(FL_INVALID,
                  "scratch() takes the fl_launch that the operator entry received, and a size above 0");
    if (scratch.tag != launch->tag) scratch.release();
    scratch.tag = launch->tag;
    scratch.held.reserve(scratch.held.size() + 1);
    Block* block = allocate(*stream, bytes);
    scratch.held.push_back({block, stream});
    stream->scratch.fetch_add(1, std::memory_order_relaxed);
    *out = address(block);
    return FL_OK;
  } catch (const Error& e) {
    set_chip_error(e.what());
    return e.status();
  } catch (const std::exception& e) {
    set_chip_error(e.what());
    return FL_FAILED;
  }
}

}  // namespace fl
