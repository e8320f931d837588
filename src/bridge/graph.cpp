// Graphs as PyTorch knows them: torch.accelerator.Graph, and torch.fl.CUDAGraph upon it.
#include <ATen/core/GraphImplInterface.h>

#include <fstream>

#include "bridge/graph.h"
#include "bridge/host_allocator.h"
#include "runtime/capture.h"

namespace fl::bridge {

namespace {

c10::MempoolId_t to_torch(PoolId id) { return {id.graph, id.user}; }

class GraphImpl final : public at::GraphImplInterface {
 public:
  explicit GraphImpl(const at::GraphImplArgs& args) : keep_(args.keep_graph) {}
  ~GraphImpl() override {
    try {
      release();
    } catch (const std::exception& error) {
      log(FL_LOG_ERROR, std::string("while a graph was deleted: ") + error.what());
    }
  }

  // The mode makes no difference: what other threads do on their own streams cannot disturb a recording.
  void capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode) override {
    guarded([&] {
      Stream& stream = current_stream(current_device());
      graph_.begin(stream, {pool.first, pool.second});
      const int32_t index = stream.device;
      // Pinned memory that the capture asks for is the graph's as well.
      host_allocator().begin_allocate_to_pool(this->pool(), [index](c10::Stream s) {
        const Stream* known = s.device_index() == index ? existing_stream(index, s.id()) : nullptr;
        return known && capture_of(*known);
      });
      holds_host_pool_ = true;
      capturing_ = true;
    });
  }

  void capture_end() override {
    end_host_pool();
    guarded([&] { graph_.end(); });
    if (!keep_) instantiate();
  }

  void instantiate() override {
    TORCH_CHECK(graph_.is_captured(), "instantiate: the graph has not been captured");
    TORCH_CHECK(keep_ || !instantiated_,
                "instantiate: the graph is ready since capture_end, as it was made without keep_graph=True");
    instantiated_ = true;
  }

  void replay() override {
    guarded([&] { graph_.replay(); });
    instantiated_ = true;
  }

  void reset() override {
    guarded([&] { release(); });
  }

  c10::MempoolId_t pool() const override {
    TORCH_CHECK(graph_.pool(), "pool: the graph has none before its capture");
    return to_torch(graph_.pool());
  }

  void enable_debug_mode() override { debug_ = true; }

  void debug_dump(const std::string& path) override {
    TORCH_CHECK(debug_, "debug_dump: call enable_debug_mode() before the capture");
    std::ofstream file(path);
    file << graph_.dot();
    file.close();
    TORCH_CHECK(file.good(), "debug_dump: cannot write ", path);
  }

 private:
  void end_host_pool() {
    if (!std::exchange(capturing_, false)) return;
    host_allocator().end_allocate_to_pool(pool());
  }

  void release() {
    end_host_pool();
    if (std::exchange(holds_host_pool_, false)) host_allocator().release_pool(pool());
    graph_.reset();
    instantiated_ = false;
  }

  Graph graph_;
  const bool keep_;
  bool instantiated_ = false, debug_ = false, capturing_ = false, holds_host_pool_ = false;
};

std::unique_ptr<at::GraphImplInterface> make_graph(const at::GraphImplArgs& args) {
  return std::make_unique<GraphImpl>(args);
}

}  // namespace

void register_graphs() {
  // PyTorch looks for the name that the device is printed with: "CUDA" while the CUDA view is on.  In a
  // process with this backend it asks for no other device's graphs, so nothing of CUDA's own is lost.
  for (const char* name : {"FL", "CUDA"})
    at::GraphImplRegistry()->Register(name, &make_graph, c10::REGISTRY_PREFERRED);
}

}  // namespace fl::bridge
