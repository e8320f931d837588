// The sim chip for tests: loaded through the registry, with faults to order,
// and one operator that is always there (memory.copy).
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "../../chips/sim/faults.h"
#include "check.h"
#include "chip/error.h"
#include "chip/registry.h"
#include "runtime/launch.h"
#include "runtime/stream.h"

inline void use_sim(int devices, const char* memory, const char* more_chips = "") {
  setenv("FL_SIM_DEVICES", std::to_string(devices).c_str(), 1);
  setenv("FL_SIM_MEMORY", memory, 1);
  setenv("FL_CHIP_PATH", (std::string(FL_TEST_SIM) + ":" + more_chips).c_str(), 1);
  int32_t first = fl::find_device("sim");
  REQUIRE(first == 0);
}

inline void order_faults(const char* spec) {
  static auto* table = static_cast<const sim_faults*>(fl::device(0).chip->extension("sim.faults", 1));
  fl::check(table->set(spec), "FL_SIM_FAULTS");
}

// Faults for one scope; a hang ends with it.
struct Faults {
  explicit Faults(const char* spec) { order_faults(spec); }
  ~Faults() { order_faults(""); }
};

// Device memory straight from the chip, for tests that are not about the allocator.
struct Memory {
  Memory(int32_t device, size_t bytes) : device(device) {
    const fl::Device& d = fl::device(device);
    fl::open_device(device);
    fl::check(d.chip->memory.malloc(d.local, bytes, &address), "malloc");
  }
  ~Memory() { fl::device(device).chip->memory.free(fl::device(device).local, address); }
  Memory(const Memory&) = delete;
  int32_t device;
  void* address = nullptr;
};

inline fl::Op& copy_op() {
  static fl::Op op("test::copy");
  return op;
}

// A transfer as an operator would launch it; the tensors are for its description.
inline fl_status transfer(fl::Stream& s, int kind, void* to, const void* from, size_t bytes) {
  int64_t sizes[] = {static_cast<int64_t>(bytes / 4)}, strides[] = {1};
  fl_tensor t{to, sizes, strides, 1, FL_F32, 0, 0};
  const fl_tensor* tensors[] = {&t};
  fl_launch launch = fl::make_launch(copy_op(), s, tensors, 1);
  fl::LaunchScope scope(s);
  return s.chip->memory.copy(&launch, kind, to, from, bytes);
}
