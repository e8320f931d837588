#include "bridge/module.h"

#include <torch/csrc/Exceptions.h>

#include "bridge/autograd_threads.h"
#include "bridge/bridge.h"
#include "bridge/cuda_view.h"
#include "bridge/generator.h"
#include "bridge/graph.h"
#include "bridge/guard.h"
#include "bridge/lazy_init.h"
#include "bridge/python_lines.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace fl::bridge {

namespace {

using NoGil = py::call_guard<py::gil_scoped_release>;

void translate(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const Error& error) {
    try {
      rethrow_as_torch(error);
    } catch (...) {
      torch::translate_exception_to_python(std::current_exception());
    }
  } catch (const c10::Error&) {
    torch::translate_exception_to_python(std::current_exception());
  } catch (const python_error&) {
    torch::translate_exception_to_python(std::current_exception());
  }
}

std::vector<const char*> dtype_names(uint32_t bits) {
  static constexpr const char* kNames[] = {"",
#define FL_DTYPE_NAME(name, value, bytes, text) text,
                                           FL_DTYPE_MAP(FL_DTYPE_NAME)
#undef FL_DTYPE_NAME
  };
  std::vector<const char*> names;
  for (int i = 1; i < FL_DTYPE_COUNT; ++i)
    if (bits & FL_BIT(i)) names.push_back(kNames[i]);
  return names;
}

py::dict describe(const Device& d) {
  const fl_device_properties& p = d.properties;
  return py::dict("index"_a = d.index, "name"_a = d.name, "device_name"_a = p.name, "chip"_a = d.chip->name,
                  "release"_a = d.chip->release, "path"_a = d.chip->path, "identity"_a = p.identity,
                  "total_memory"_a = p.total_memory,
                  "max_alloc"_a = p.max_alloc ? p.max_alloc : p.total_memory, "alignment"_a = p.alignment,
                  "flags"_a = p.flags, "software"_a = bool(p.flags & FL_DEVICE_SOFTWARE),
                  "host_addressable"_a = bool(p.flags & FL_DEVICE_HOST_ADDRESSABLE),
                  "compute_units"_a = p.compute_units, "major"_a = p.major, "minor"_a = p.minor,
                  "storage"_a = dtype_names(p.storage), "arithmetic"_a = dtype_names(p.arithmetic));
}

py::dict describe(const Chip& chip) {
  static constexpr const char* kEntries[] = {
#define FL_ENTRY_TEXT(name, value, tier) #name,
      FL_ENTRY_MAP(FL_ENTRY_TEXT)
#undef FL_ENTRY_TEXT
  };
  py::dict claims;
  for (unsigned entry = 0; entry < FL_ENTRY_COUNT; ++entry)
    if (const auto& rows = chip.claimed[entry];
        std::any_of(rows.begin(), rows.end(), [](uint32_t dtypes) { return dtypes != 0; })) {
      uint32_t dtypes = 0;
      for (uint32_t row : rows) dtypes |= row;
      claims[kEntries[entry]] = dtype_names(dtypes);
    }
  return py::dict("name"_a = chip.name, "release"_a = chip.release, "path"_a = chip.path,
                  "abi"_a = py::make_tuple(chip.version >> 16, chip.version & 0xffff), "flags"_a = chip.flags,
                  "claims"_a = claims);
}

template <class Items>
py::list describe_all(const Items& items) {
  py::list list;
  for (const auto& item : items) {
    if constexpr (std::is_pointer_v<std::decay_t<decltype(item)>>) list.append(describe(*item));
    else list.append(describe(item));
  }
  return list;
}

const Chip& chip_named(const std::string& name) {
  for (const Chip* chip : chips())
    if (chip->name == name) return *chip;
  throw Error(FL_INVALID, "no chip named \"" + name + "\" is loaded");
}

uintptr_t chip_extension(const std::string& chip, const std::string& name, uint32_t version) {
  const Chip& c = chip_named(chip);
  return c.extension ? reinterpret_cast<uintptr_t>(c.extension(name.c_str(), version)) : 0;
}

// The number of devices that exist, also in a forked child that may not use
// them: is_available() there means what it means on CUDA.
int64_t device_count() noexcept {
  try {
    return static_cast<int64_t>(devices().size());
  } catch (const std::exception&) {
    return usable_device_count();  // 0, and tells the log why
  }
}

void find_chips_with(py::function finder) {
  // Kept for ever: asked at the first question about devices, from any thread.
  auto* kept = new py::function(std::move(finder));
  set_chip_finder([kept] {
    py::gil_scoped_acquire gil;
    return (*kept)().cast<std::vector<std::string>>();
  });
}

void shut_down() noexcept {
  settle_autograd_threads();
  shutdown();
}

}  // namespace

void bind_devices(py::module& m) {
  m.def("device_count", &device_count, NoGil());
  m.def("chips_loaded", &loaded);
  m.def("current_device", &current_device);
  m.def("set_device", &set_device, "index"_a);
  m.def("exchange_device", &exchange_device, "index"_a);
  m.def("maybe_exchange_device", &exchange_device, "index"_a);
  m.def("synchronize", &synchronize_device, "index"_a, NoGil());
  m.def("devices", [] { return describe_all(devices()); });
  m.def("chips", [] { return describe_all(chips()); });
  m.def("refusals", [] {
    py::list list;
    for (const Refusal& r : refusals()) list.append(py::dict("path"_a = r.path, "reason"_a = r.reason));
    return list;
  });
  m.def("find_device", &find_device, "name"_a, NoGil());
  m.def("set_chip_finder", &find_chips_with, "finder"_a);
  // Loads and checks the library in this process, and says why it would be
  // refused: for `torch-fl doctor`, which does this in a child.
  m.def("load_check", [](const std::string& path) { return load_chip(path, *new Chip); }, "path"_a);
  m.def("chip_extension", &chip_extension, "chip"_a, "name"_a, "version"_a = 1);
  m.def("take_chip_error", &take_chip_error);
  m.def(
      "default_generator",
      [](int index) { return default_generator(static_cast<c10::DeviceIndex>(device(index).index)); },
      "index"_a);
  m.def("lazy_init", &lazy_init);
  m.def("in_bad_fork", &forked_after_use);
  m.def("is_open", &is_open, "index"_a);
  m.def("shutdown", &shut_down, NoGil());
}

}  // namespace fl::bridge

PYBIND11_MODULE(FL_BRIDGE_MODULE, m) {
  using namespace fl::bridge;
  py::register_local_exception_translator(&translate);
  bind_devices(m);
  bind_streams(m);
  bind_memory(m);
  bind_snapshots(m);
  bind_settings(m);
  bind_cuda_view(m);
  install_line_finder();
  register_graphs();
  // Registered early, so it runs after the user's own exit functions.
  py::module_::import("atexit").attr("register")(m.attr("shutdown"));
}
