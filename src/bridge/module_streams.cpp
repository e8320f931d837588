#include "bridge/bridge.h"
#include "bridge/guard.h"
#include "bridge/module.h"
#include "bridge/sync_debug.h"
#include "runtime/busy.h"
#include "runtime/capture.h"
#include "runtime/stream_queries.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace fl::bridge {

namespace {

// What torch.Stream(stream_id=, device_index=, device_type=) takes.
py::tuple identity(int64_t id, int32_t index) {
  return py::make_tuple(id, index, static_cast<int64_t>(kDevice));
}
py::tuple identity(const Stream& s) { return identity(s.id, s.device); }

void set_stream(int64_t id, int32_t device_index, int64_t device_type) {
  TORCH_CHECK(device_type == static_cast<int64_t>(kDevice), "expected a stream of an fl device (device type ",
              static_cast<int64_t>(kDevice), "), got one of device type ", device_type);
  Stream& s = stream(device_index, id);
  set_device(s.device);
  exchange_stream(s);
}

py::tuple to_tuple(PoolId id) { return py::make_tuple(id.graph, id.user); }

}  // namespace

constinit std::atomic<SyncDebug> sync_debug{SyncDebug::kQuiet};

void report_sync(SyncDebug mode) {
  constexpr const char* kText =
      "called a synchronizing operation: the host waits for the device (torch.fl.set_sync_debug_mode)";
  TORCH_CHECK(mode != SyncDebug::kError, kText);
  TORCH_WARN(kText);
}

void bind_streams(py::module& m) {
  // Neither starts the device.
  m.def(
      "current_stream", [](int32_t index) { return identity(current_stream_id(device(index).index), index); },
      "index"_a);
  m.def("default_stream", [](int32_t index) { return identity(0, device(index).index); }, "index"_a);
  m.def(
      "stream_with_handle",
      [](uintptr_t handle, int32_t index) {
        return identity(stream_with_handle(index, reinterpret_cast<fl_stream>(handle)));
      },
      "handle"_a, "index"_a);
  m.def("is_capturing", [](int32_t index) { return current_capture(index) != nullptr; }, "index"_a);
  m.def("new_graph_pool", [] { return to_tuple(new_pool_id(true)); });
  m.def("set_sync_debug_mode", [](int mode) { sync_debug = static_cast<SyncDebug>(mode); }, "mode"_a);
  m.def("get_sync_debug_mode", [] { return static_cast<int>(sync_debug.load()); });
  m.def(
      "pool_stream", [](int32_t index, bool high) { return identity(pool_stream(index, high)); }, "index"_a,
      "high_priority"_a = false);
  m.def("set_stream", &set_stream, "stream_id"_a, "device_index"_a, "device_type"_a);
  m.def(
      "stream_native_handle",
      [](int64_t id, int32_t index) { return reinterpret_cast<uintptr_t>(stream(index, id).handle); },
      "stream_id"_a, "device_index"_a);
  m.def("watch_devices", &watch_devices);
  m.def("stop_watching", &stop_watching, py::call_guard<py::gil_scoped_release>());
  m.def("busy_seconds", &busy_seconds, "index"_a);
}

}  // namespace fl::bridge
