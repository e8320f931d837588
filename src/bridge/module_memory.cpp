#include <cstdio>

#include "bridge/bridge.h"
#include "bridge/host_allocator.h"
#include "bridge/module.h"
#include "runtime/pool.h"

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
  py::dict pools;
  for (const auto& [id, bytes] : pool_stats(device(index).index))
    pools[py::make_tuple(id.graph, id.user)] = to_dict(bytes);
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
      "num_oom_rejections"_a = 0, "max_split_size"_a = s.max_split_size,
      "reserved_bytes_by_private_pools"_a = pools);
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

// Memory without a tensor, for other libraries: the address stands for it.
uintptr_t raw_alloc(size_t bytes, int32_t index, int64_t stream_id) {
  Block* block = allocate(stream(index, stream_id), bytes);
  return reinterpret_cast<uintptr_t>(address(block));
}

void raw_delete(uintptr_t at) {
  auto* const data = reinterpret_cast<void*>(at);
  if (!data) return;
  Block* block = find_block(data);
  if (!block || address(block) != data) {
    char text[32];
    snprintf(text, sizeof text, "0x%zx", static_cast<size_t>(at));
    throw Error(FL_INVALID, std::string("no memory of a device begins at ") + text +
                                ": expected what caching_allocator_alloc returned, once");
  }
  free(block);
}

PoolId to_pool(const std::pair<uint64_t, uint64_t>& id) { return {id.first, id.second}; }

// torch.fl.MemPool's part here: a pool that is held on one device.
class UserPool {
 public:
  UserPool(bool use_on_oom, bool no_split) : device_(current_device()), id_(new_pool_id(true)) {
    hold_pool(device_, id_, {use_on_oom, no_split});
  }
  ~UserPool() {
    release_pool(device_, id_);
    try {
      if (is_open(device_)) empty_cache(device_, id_);
    } catch (const std::exception& error) {
      log(FL_LOG_WARNING, std::string("while a memory pool was deleted: ") + error.what());
    }
  }
  UserPool(const UserPool&) = delete;
  UserPool& operator=(const UserPool&) = delete;
  py::tuple id() const { return py::make_tuple(id_.graph, id_.user); }
  int32_t device() const { return device_; }
  int use_count() const { return pool_holders(device_, id_); }

 private:
  const int32_t device_;
  const PoolId id_;
};

}  // namespace

void bind_memory(py::module& m) {
  using Id = std::pair<uint64_t, uint64_t>;
  py::class_<UserPool>(m, "MemPool")
      .def(py::init<bool, bool>(), "use_on_oom"_a, "no_split"_a)
      .def_property_readonly("id", &UserPool::id)
      .def_property_readonly("device", &UserPool::device)
      .def("use_count", &UserPool::use_count);
  m.def(
      "begin_pool_route",
      [](int32_t index, const Id& id) { begin_pool_route(device(index).index, to_pool(id)); }, "index"_a,
      "id"_a);
  m.def(
      "end_pool_route", [](int32_t index, const Id& id) { end_pool_route(device(index).index, to_pool(id)); },
      "index"_a, "id"_a);
  m.def("empty_cache", [](int32_t index) { empty_cache(index); }, "index"_a = -1, NoGil());
  m.def("set_caching", &set_caching, "on"_a);
  m.def("caching", &caching);
  m.def("raw_alloc", &raw_alloc, "bytes"_a, "index"_a, "stream_id"_a, NoGil());
  m.def("raw_delete", &raw_delete, "address"_a, NoGil());
  m.def("memory_stats", &stats_of, "index"_a);
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
