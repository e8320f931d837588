#include "bridge/bridge.h"
#include "bridge/guard.h"
#include "bridge/module.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace fl::bridge {

namespace {

// What torch.Stream(stream_id=, device_index=, device_type=) takes.
py::tuple identity(const Stream& s) { return py::make_tuple(s.id, s.device, static_cast<int64_t>(kDevice)); }

void set_stream(int64_t id, int32_t device_index, int64_t device_type) {
  TORCH_CHECK(device_type == static_cast<int64_t>(kDevice), "expected a stream of an fl device (device type ",
              static_cast<int64_t>(kDevice), "), got one of device type ", device_type);
  Stream& s = stream(device_index, id);
  set_device(s.device);
  exchange_stream(s);
}

}  // namespace

void bind_streams(py::module& m) {
  m.def("current_stream", [](int32_t index) { return identity(current_stream(index)); }, "index"_a);
  m.def("default_stream", [](int32_t index) { return identity(stream(index, 0)); }, "index"_a);
  m.def(
      "pool_stream", [](int32_t index, bool high) { return identity(pool_stream(index, high)); }, "index"_a,
      "high_priority"_a = false);
  m.def("set_stream", &set_stream, "stream_id"_a, "device_index"_a, "device_type"_a);
  m.def(
      "stream_native_handle",
      [](int64_t id, int32_t index) { return reinterpret_cast<uintptr_t>(stream(index, id).handle); },
      "stream_id"_a, "device_index"_a);
}

}  // namespace fl::bridge
