// The chip's table, its claims, and the host it talks to.
#include <cstdio>
#include <cstring>

#include "device.h"
#include "faults.h"

namespace sim {

extern const fl_device_api device_api;
extern const fl_memory_api memory_api;
extern const fl_stream_api stream_api;

namespace {

std::atomic<const fl_host*> the_host{nullptr};

const void* extension(const char* name, uint32_t version) {
  if (name && version == 1 && std::strcmp(name, "sim.faults") == 0) return &faults::table;
  return nullptr;
}

// Built once, and left standing at exit: a worker may still be running then.
const fl_chip* make_chip() {
  static Claims& claims = *new Claims;
#define SIM_CLAIM(name) claim_##name(claims);
  SIM_ENTRIES(SIM_CLAIM)
#undef SIM_CLAIM
  auto* op = new fl_op_api{};
  op->size = sizeof(fl_op_api);
  op->n_claims = static_cast<uint32_t>(claims.size());
  op->claims = claims.data();
#define SIM_ENTRY(name) op->name = name;
  SIM_ENTRIES(SIM_ENTRY)
#undef SIM_ENTRY
  auto* chip = new fl_chip{};
  chip->size = sizeof(fl_chip);
  chip->version = FL_ABI_VERSION;
  chip->name = "sim";
  chip->release = "0.1.0";
  chip->device = &device_api;
  chip->memory = &memory_api;
  chip->stream = &stream_api;
  chip->op = op;
  chip->extension = extension;
  return chip;
}

}  // namespace

const fl_host* host() { return the_host.load(std::memory_order_acquire); }

void set_error(const char* format, ...) {
  char text[1024];
  va_list list;
  va_start(list, format);
  std::vsnprintf(text, sizeof text, format, list);
  va_end(list);
  if (const fl_host* h = host()) h->set_error(text);
}

}  // namespace sim

extern "C" FL_EXPORT const fl_chip* fl_chip_entry(uint32_t host_version, const fl_host* host) {
  constexpr size_t needed = offsetof(fl_host, scratch);
  if (!host || host->size < needed) return nullptr;
  if (host_version >> 16 != FL_ABI_MAJOR) {
    char text[256];
    std::snprintf(
        text, sizeof text,
        "the sim chip speaks version %d of the chip ABI, this torch-fl version %u: install the sim chip "
        "that came with it",
        FL_ABI_MAJOR, host_version >> 16);
    host->set_error(text);
    return nullptr;
  }
  sim::the_host.store(host, std::memory_order_release);
  static const fl_chip* const chip = sim::make_chip();
  return chip;
}
