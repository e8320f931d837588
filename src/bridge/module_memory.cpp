#include "bridge/bridge.h"
#include "bridge/host_allocator.h"
#include "bridge/module.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace fl::bridge {

namespace {

using NoGil = py::call_guard<py::gil_scoped_release>;

template <class AnyStat>
py::dict to_dict(const AnyStat& s) {
  return py::dict("current"_a = s.current, "peak"_a = s.peak, "allocated"_a = s.allocated,
                  "freed"_a = s.freed);
}

py::dict to_dict(const StatArray& stats) {
  return py::dict("all"_a = to_dict(stats[kAggregate]), "small_pool"_a = to_dict(stats[kSmallPool]),
                  "large_pool"_a = to_dict(stats[kLargePool]));
}

// The shape of torch.cuda.memory_stats_as_nested_dict().
py::dict stats_of(int32_t index) {
  const MemoryStats s = memory_stats(device(index).index);
  return py::dict(
      "allocation"_a = to_dict(s.allocation), "segment"_a = to_dict(s.segment),
      "active"_a = to_dict(s.active), "inactive_split"_a = to_dict(s.inactive_split),
      "allocated_bytes"_a = to_dict(s.allocated_bytes), "reserved_bytes"_a = to_dict(s.reserved_bytes),
      "active_bytes"_a = to_dict(s.active_bytes), "inactive_split_bytes"_a = to_dict(s.inactive_split_bytes),
      "requested_bytes"_a = to_dict(s.requested_bytes),
      "oversize_allocations"_a = to_dict(s.oversize_allocations),
      "oversize_segments"_a = to_dict(s.oversize_segments), "num_alloc_retries"_a = s.num_alloc_retries,
      "num_ooms"_a = s.num_ooms, "num_sync_all_streams"_a = s.num_sync_all_streams,
      "num_device_alloc"_a = s.num_device_alloc, "num_device_free"_a = s.num_device_free,
      "max_split_size"_a = s.max_split_size);
}

// A list of segments in the form of torch.cuda.memory_snapshot().
py::list snapshot() {
  py::list segments;
  for (const SegmentInfo& s : memory_snapshot()) {
    py::list blocks;
    for (const BlockInfo& b : s.blocks)
      blocks.append(py::dict("address"_a = b.address, "size"_a = b.size,
                             "requested_size"_a = b.requested_size,
                             "state"_a = b.allocated ? "active_allocated"
                                         : b.active  ? "active_pending_free"
                                                     : "inactive",
                             "frames"_a = py::list()));
    segments.append(py::dict("device"_a = s.device, "address"_a = s.address, "total_size"_a = s.total_size,
                             "allocated_size"_a = s.allocated_size, "active_size"_a = s.active_size,
                             "requested_size"_a = s.requested_size, "stream"_a = s.stream,
                             "segment_type"_a = s.is_large ? "large" : "small",
                             "segment_pool_id"_a = py::make_tuple(0, 0), "is_expandable"_a = false,
                             "frames"_a = py::list(), "blocks"_a = blocks));
  }
  return segments;
}

py::tuple free_and_total(int32_t index) {
  uint64_t free_bytes = 0, total_bytes = 0;
  {
    py::gil_scoped_release no_gil;
    open_device(index);
    const Device& d = device(index);
    check(d.chip->memory.info(d.local, &free_bytes, &total_bytes), ("memory of " + d.name).c_str());
  }
  return py::make_tuple(free_bytes, total_bytes);
}

py::dict to_dict(const at::DurationStat& s) {
  return py::dict("total"_a = s.total, "max"_a = s.max, "min"_a = s.min, "count"_a = s.count,
                  "avg"_a = s.count ? static_cast<double>(s.total) / static_cast<double>(s.count) : 0.0);
}

// The shape of torch.cuda.host_memory_stats_as_nested_dict().
py::dict host_stats() {
  const at::HostStats s = host_allocator().get_stats();
  return py::dict(
      "num_host_alloc"_a = s.num_host_alloc, "num_host_free"_a = s.num_host_free,
      "active_requests"_a = to_dict(s.active_requests), "active_bytes"_a = to_dict(s.active_bytes),
      "allocations"_a = to_dict(s.allocations), "allocated_bytes"_a = to_dict(s.allocated_bytes),
      "host_alloc_time"_a = to_dict(s.host_alloc_time), "host_free_time"_a = to_dict(s.host_free_time),
      "bucket_allocation"_a = s.bucket_allocation);
}

}  // namespace

void bind_memory(py::module& m) {
  m.def("empty_cache", [](int32_t index) { empty_cache(index); }, "index"_a = -1, NoGil());
  m.def("memory_stats", &stats_of, "index"_a);
  m.def("memory_snapshot", &snapshot);
  m.def("reset_peak_memory_stats", [](int32_t index) { reset_peak_stats(device(index).index); }, "index"_a);
  m.def(
      "reset_accumulated_memory_stats", [](int32_t index) { reset_accumulated_stats(device(index).index); },
      "index"_a);
  m.def(
      "set_memory_fraction",
      [](double share, int32_t index) { set_memory_fraction(device(index).index, share); }, "fraction"_a,
      "index"_a);
  m.def("get_memory_fraction", [](int32_t index) { return memory_fraction(device(index).index); }, "index"_a);
  m.def("mem_get_info", &free_and_total, "index"_a);
  m.def("host_memory_stats", &host_stats);
  m.def("reset_peak_host_memory_stats", [] { host_allocator().reset_peak_stats(); });
  m.def("reset_accumulated_host_memory_stats", [] { host_allocator().reset_accumulated_stats(); });
  m.def("empty_host_cache", [] { host_allocator().empty_cache(); }, NoGil());
}

}  // namespace fl::bridge
