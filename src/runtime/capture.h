// Graphs: the launches of a stream, recorded once and replayed.
//
// While a stream is captured, each launch is kept with a copy of its arguments, and memory comes from a pool
// of the graph's, so that addresses stay what they are.  A capture leaves no trace in other memory; yet only
// the chip can say whether it takes a launch (FL_UNSUPPORTED), so each runs all the same, on a shadow of
// whatever it writes outside the capture's own memory.  Random numbers are drawn without moving the
// generator.
//
// Nobody on the launch path knows of captures: while a stream is captured, its Stream::chip is a table whose
// entries record, and otherwise the chip itself.
//
// A replay submits the launches in the order in which they were recorded, all on one stream: an order that
// every dependency among them allows.  Nothing in this needs the chip's help.
//
// Streams join a capture by waiting for an event that was recorded in it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/launch.h"
#include "runtime/pool.h"
#include "runtime/random_state.h"

namespace fl {

// Memory that lives as long as its owner, for copies of arguments.
class Arena {
 public:
  template <class T>
  T* copy(const T* from, size_t n) {
    if (!from || !n) return nullptr;
    T* to = static_cast<T*>(take(n * sizeof(T)));
    std::copy_n(from, n, to);
    return to;
  }

 private:
  void* take(size_t bytes);
  static constexpr size_t kChunk = 4096;
  std::vector<std::unique_ptr<std::max_align_t[]>> chunks_;
  size_t used_ = 0, size_ = 0;  // of the last chunk
};

// One launch.
struct GraphNode {
  explicit GraphNode(const Op& op) : op(op) {}
  virtual ~GraphNode() = default;
  virtual fl_status launch(Stream& stream) const = 0;
  const Op& op;
  std::vector<const fl_tensor*> shown;  // for the text of faults
};

class Capture;

class Graph {
 public:
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Record what is launched on the stream; {} makes a pool.  The device has been waited for when it returns.
  void begin(Stream& stream, PoolId pool);
  // Throws when something happened that cannot be recorded; the graph is empty then.
  void end();
  // On the current stream of the graph's device.
  void replay();
  // Forget it all; the pool's memory is free when no tensor uses it.
  void reset() noexcept;

  bool is_captured() const noexcept { return captured_; }
  PoolId pool() const noexcept { return pool_; }
  int32_t device() const noexcept { return device_; }
  size_t size() const noexcept { return nodes_.size(); }
  std::string dot() const;  // for Graphviz

 private:
  friend class Capture;
  struct Source {
    std::shared_ptr<RandomState> state;
    uint64_t blocks;  // that one replay takes
  };
  struct RandomNode {
    fl_random_args* args;
    size_t source;
    uint64_t offset;  // from where the replay starts
  };

  void clear() noexcept;

  std::mutex replaying_;
  std::unique_ptr<Capture> capture_;
  Arena arena_;
  std::vector<std::unique_ptr<GraphNode>> nodes_;
  std::vector<Source> sources_;
  std::vector<RandomNode> random_nodes_;
  std::vector<Stream*> streams_;  // that it was recorded on: its memory is theirs
  Stream* replayed_on_ = nullptr;
  PoolId pool_;
  int32_t device_ = -1;
  bool captured_ = false;
};

// A recording under way.  Several threads may launch on its streams.
class Capture {
 public:
  Capture(Graph& graph, Stream& stream, PoolId pool);
  ~Capture();

  const uint64_t id;
  const PoolId pool;
  Stream& origin;

  void join(Stream& stream);
  // Something that a graph cannot hold: the capture is of no use from now on.
  [[noreturn]] void refuse(const std::string& what);
  // Numbers for a launch that is about to be recorded, from the generator as it will be at each replay.
  PhiloxState draw(const std::shared_ptr<RandomState>& state, uint64_t blocks);

  // A launch on one of its streams, as the chip's entry receives it.
  template <class Args>
  fl_status record(Stream& stream, fl_status (*entry)(const fl_launch*, const Args*), const fl_launch& launch,
                   const Args& args);
  fl_status record_copy(Stream& stream, const fl_launch& launch, int kind, void* to, const void* from,
                        size_t bytes);
  // A copy that lives as long as the graph, of what a launch reads from the host.
  const void* keep_bytes(const void* from, size_t bytes);
  // Where a launch of the capture itself finds what it will find at `data` in a replay.
  void* place(Stream& stream, void* data, bool write);

  // Ends it: no stream is captured any more.  What went wrong, or nothing.
  std::string finish();

 private:
  struct Shadow {
    size_t bytes;
    Block* block;
  };
  struct Drawn {
    size_t source;
    uint64_t seed, from, blocks, offset;
  };

  void note_random(fl_random_args* args);

  friend Capture* find_capture(const Stream& stream) noexcept;

  std::mutex mutex_;
  Graph& graph_;
  std::vector<Stream*> streams_;         // under the lock of all captures
  std::map<uintptr_t, Shadow> shadows_;  // by the address of the block that each stands for
  std::vector<Drawn> drawn_;
  std::mutex failure_mutex_;
  std::string failure_;
};

// The capture that the stream is in, or null.  Without captures anywhere: one load.
extern std::atomic<int> captures_under_way;
Capture* find_capture(const Stream& stream) noexcept;
inline Capture* capture_of(const Stream& stream) noexcept {
  return captures_under_way.load(std::memory_order_relaxed) ? find_capture(stream) : nullptr;
}
// The same of this thread's current stream of the device; -1: of any device.
Capture* current_capture(int32_t device = -1) noexcept;

// The capture with this id joins the stream, which is about to wait for an event recorded in it; throws when
// that capture is over.  0: the event belongs to no capture.
void join_capture(uint64_t id, Stream& stream);

}  // namespace fl
