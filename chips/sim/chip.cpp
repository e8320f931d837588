// The chip's table, its claims, and the host it talks to.
#include <cstring>

#include "device.h"
#include "faults.h"

namespace sim {

extern const fl_device_api device_api;
extern const fl_memory_api memory_api;
extern const fl_stream_api stream_api;

namespace {

const void* extension(const char* name, uint32_t version) {
  if (name && version == 1 && std::strcmp(name, "sim.faults") == 0) return &faults::table;
  return nullptr;
}

// Built once, and left standing at exit: a worker may still be running then.
const fl_chip* make_chip() {
  auto* chip = new fl_chip{};
  chip->size = sizeof(fl_chip);
  chip->version = FL_ABI_VERSION;
  chip->name = "sim";
  chip->release = "0.1.0";
  chip->device = &device_api;
  chip->memory = &memory_api;
  chip->stream = &stream_api;
  chip->op = FL_AUTHOR_OP_TABLE(SIM_ENTRIES);
  chip->extension = extension;
  return chip;
}

}  // namespace

}  // namespace sim

extern "C" FL_EXPORT const fl_chip* fl_chip_entry(uint32_t host_version, const fl_host* host) {
  if (!sim::accept(host_version, host, offsetof(fl_host, scratch), "the sim chip")) return nullptr;
  static const fl_chip* const chip = sim::make_chip();
  return chip;
}
