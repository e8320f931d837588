// The chip's table, its claims, and the host it talks to.
#include "chip.h"

#include <cstdio>

namespace ocl {

extern const fl_device_api device_api;
extern const fl_memory_api memory_api;
extern const fl_stream_api stream_api;

namespace {

std::atomic<const fl_host*> the_host{nullptr};

const void* extension(const char*, uint32_t) { return nullptr; }

const fl_chip* make_chip() {
  static Claims& claims = *new Claims;
#define OCL_CLAIM(name) claim_##name(claims);
  OCL_ENTRIES(OCL_CLAIM)
#undef OCL_CLAIM
  auto* op = new fl_op_api{};
  op->size = sizeof(fl_op_api);
  op->n_claims = static_cast<uint32_t>(claims.size());
  op->claims = claims.data();
#define OCL_ENTRY(name) op->name = name;
  OCL_ENTRIES(OCL_ENTRY)
#undef OCL_ENTRY
  auto* chip = new fl_chip{};
  chip->size = sizeof(fl_chip);
  chip->version = FL_ABI_VERSION;
  chip->name = "opencl";
  chip->release = OCL_RELEASE;
  chip->flags = FL_CHIP_SERIAL_LAUNCH;
  chip->device = &device_api;
  chip->memory = &memory_api;
  chip->stream = &stream_api;
  chip->op = op;
  chip->extension = extension;
  return chip;
}

template <class F>
void formatted(const char* format, va_list list, F&& f) {
  char text[1024];
  std::vsnprintf(text, sizeof text, format, list);
  f(text);
}

}  // namespace

const fl_host* host() { return the_host.load(std::memory_order_acquire); }

void set_error(const char* format, ...) {
  va_list list;
  va_start(list, format);
  formatted(format, list, [](const char* text) {
    if (const fl_host* h = host()) h->set_error(text);
  });
  va_end(list);
}

fl_status refuse(fl_status status, const char* format, ...) {
  va_list list;
  va_start(list, format);
  formatted(format, list, [](const char* text) {
    if (const fl_host* h = host()) h->set_error(text);
  });
  va_end(list);
  return status;
}

void log(int level, const char* format, ...) {
  va_list list;
  va_start(list, format);
  formatted(format, list, [&](const char* text) {
    if (const fl_host* h = host()) h->log(level, text);
  });
  va_end(list);
}

fl_status failed(cl_int error, const char* what) {
  if (error == CL_SUCCESS) return FL_OK;
  constexpr cl_int kNoMemory[] = {-4, -5, -6};  // no buffer, no resources, no host memory
  for (cl_int e : kNoMemory)
    if (error == e) return refuse(FL_OUT_OF_MEMORY, "%s: %s", what, error_name(error).c_str());
  return refuse(FL_FAILED, "%s: %s", what, error_name(error).c_str());
}

}  // namespace ocl

extern "C" FL_EXPORT const fl_chip* fl_chip_entry(uint32_t host_version, const fl_host* host) {
  if (!host || host->size < sizeof(fl_host)) return nullptr;
  if (host_version >> 16 != FL_ABI_MAJOR) {
    char text[256];
    std::snprintf(text, sizeof text,
                  "torch-fl-opencl " OCL_RELEASE
                  " speaks version %d of the chip ABI, this torch-fl version %u: install "
                  "the torch-fl-opencl that belongs to it",
                  FL_ABI_MAJOR, host_version >> 16);
    host->set_error(text);
    return nullptr;
  }
  ocl::the_host.store(host, std::memory_order_release);
  static const fl_chip* const chip = ocl::make_chip();
  return chip;
}
