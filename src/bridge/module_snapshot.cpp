// Snapshots of the allocator and its history, in the form that PyTorch's memory viewer reads.
#include <pybind11/stl.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <map>

#include "bridge/bridge.h"
#include "bridge/module.h"
#include "runtime/snapshot.h"

// Of torch/csrc/profiler/python/combined_traceback.h, which includes a JSON library that the package lacks.
namespace torch {
TORCH_API std::vector<pybind11::object> py_symbolize(std::vector<CapturedTraceback*>& to_symbolize);
TORCH_PYTHON_API void freeDeadCapturedTracebackFrames();
}  // namespace torch

namespace py = pybind11;
using namespace pybind11::literals;

namespace fl::bridge {

namespace {

using torch::CapturedTraceback;

constinit std::atomic<bool> with_cpp_frames{false};

// Takes the GIL, so that nobody may hold the allocator's lock here.
Context gather() {
  return std::static_pointer_cast<void>(CapturedTraceback::gather(true, true, with_cpp_frames.load()));
}

// Contexts are many and share frames: all of a snapshot are read in one go.
class Frames {
 public:
  void add(const Context& context) {
    if (!context) return;
    auto* traceback = static_cast<CapturedTraceback*>(context.get());
    if (places_.try_emplace(traceback, order_.size()).second) order_.push_back(traceback);
  }
  void read() { frames_ = torch::py_symbolize(order_); }
  py::object of(const Context& context) const {
    if (!context) return py::list();
    return frames_[places_.at(static_cast<CapturedTraceback*>(context.get()))];
  }

 private:
  std::map<CapturedTraceback*, size_t> places_;
  std::vector<CapturedTraceback*> order_;
  std::vector<py::object> frames_;
};

py::tuple to_tuple(PoolId id) { return py::make_tuple(id.graph, id.user); }

const char* action_text(TraceAction action) {
  static constexpr const char* kTexts[] = {
#define FL_TRACE_TEXT(name) #name,
      FL_TRACE_ACTIONS(FL_TRACE_TEXT)
#undef FL_TRACE_TEXT
  };
  return kTexts[static_cast<size_t>(action)];
}

py::list to_list(const std::vector<SegmentState>& segments, const Frames& frames) {
  py::list list;
  for (const SegmentState& s : segments) {
    py::list blocks;
    for (const BlockState& b : s.blocks)
      blocks.append(py::dict("address"_a = b.address, "size"_a = b.size,
                             "requested_size"_a = b.requested_size,
                             "state"_a = b.allocated ? "active_allocated"
                                         : b.active  ? "active_pending_free"
                                                     : "inactive",
                             "frames"_a = frames.of(b.context)));
    list.append(py::dict("device"_a = s.device, "address"_a = s.address, "total_size"_a = s.total_size,
                         "allocated_size"_a = s.allocated_size, "active_size"_a = s.active_size,
                         "requested_size"_a = s.requested_size, "stream"_a = s.stream,
                         "segment_type"_a = s.is_large ? "large" : "small",
                         "segment_pool_id"_a = to_tuple(s.pool), "is_expandable"_a = false,
                         "frames"_a = frames.of(s.context), "blocks"_a = blocks));
  }
  return list;
}

py::list to_list(const std::vector<TraceEntry>& entries, const Frames& frames) {
  py::list list;
  for (const TraceEntry& e : entries) {
    py::dict entry("action"_a = action_text(e.action), "size"_a = e.size, "stream"_a = e.stream,
                   "time_us"_a = e.time_us, "pool_id"_a = to_tuple(e.pool), "compile_context"_a = "N/A",
                   "user_metadata"_a = e.metadata);
    entry[e.action == TraceAction::oom ? "device_free" : "addr"] = e.address;
    if (e.context) entry["frames"] = frames.of(e.context);
    list.append(entry);
  }
  return list;
}

// torch.cuda.memory._snapshot(); traces have a list for each device.
py::dict snapshot(const std::pair<uint64_t, uint64_t>& pool, bool with_traces) {
  torch::freeDeadCapturedTracebackFrames();
  const std::vector<SegmentState> segments = memory_state({pool.first, pool.second});
  const std::vector<DeviceTrace> traces = with_traces ? memory_traces() : std::vector<DeviceTrace>();
  Frames frames;
  for (const SegmentState& s : segments) {
    frames.add(s.context);
    for (const BlockState& b : s.blocks) frames.add(b.context);
  }
  for (const DeviceTrace& trace : traces)
    for (const TraceEntry& e : trace.entries) frames.add(e.context);
  frames.read();
  py::list all_traces;
  for (size_t i = 0; loaded() && i < devices().size(); ++i) {
    py::list list;
    for (const DeviceTrace& trace : traces)
      if (trace.device == static_cast<int32_t>(i)) list = to_list(trace.entries, frames);
    all_traces.append(list);
  }
  return py::dict("segments"_a = to_list(segments, frames), "device_traces"_a = all_traces);
}

template <size_t N>
size_t place_of(const std::string& text, const char* const (&texts)[N], const char* what) {
  std::string allowed;
  for (size_t i = 0; i < N; ++i) {
    if (text == texts[i]) return i;
    allowed += std::string(i ? ", " : "") + texts[i];
  }
  TORCH_CHECK_VALUE(false, what, " is one of ", allowed, ", not \"", text, "\"");
}

void record(const std::optional<std::string>& enabled, const std::optional<std::string>& context,
            const std::string& stacks, size_t max_entries, bool clear,
            const std::vector<std::string>& skipped) {
  static constexpr const char* kEnabled[] = {"state", "all"};
  static constexpr const char* kContexts[] = {"state", "alloc", "all"};
  static constexpr const char* kStacks[] = {"python", "all"};
  HistoryOptions options;
  options.on = enabled.has_value();
  options.clear = clear;
  if (enabled && place_of(*enabled, kEnabled, "enabled") == 1) options.max_entries = max_entries;
  if (context) options.contexts = static_cast<ContextOf>(1 + place_of(*context, kContexts, "context"));
  for (const std::string& name : skipped) {
    unsigned action = 0;
    while (action <= static_cast<unsigned>(TraceAction::oom) &&
           name != action_text(static_cast<TraceAction>(action)))
      ++action;
    TORCH_CHECK_VALUE(action <= static_cast<unsigned>(TraceAction::oom), "skip_actions has no action \"",
                      name, "\"");
    options.skipped |= 1u << action;
  }
  with_cpp_frames = place_of(stacks, kStacks, "stacks") == 1;
  set_context_gatherer(&gather);
  py::gil_scoped_release no_gil;
  record_history(options);
}

py::object allocation_frames(uintptr_t at) {
  Context context = allocation_context(reinterpret_cast<void*>(at));
  if (!context) return py::none();
  Frames frames;
  frames.add(context);
  frames.read();
  return frames.of(context);
}

}  // namespace

void bind_snapshots(py::module& m) {
  m.def("snapshot", &snapshot, "pool"_a = std::pair<uint64_t, uint64_t>(0, 0), "with_traces"_a = true);
  m.def("record_memory_history", &record, "enabled"_a, "context"_a, "stacks"_a, "max_entries"_a,
        "clear_history"_a, "skip_actions"_a);
  m.def("allocation_frames", &allocation_frames, "address"_a);
  m.def("set_history_metadata", &set_history_metadata, "text"_a);
  m.def("history_metadata", &history_metadata);
}

}  // namespace fl::bridge
