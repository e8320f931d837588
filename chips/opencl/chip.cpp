// The chip's table, its claims, and the host it talks to.
#include "chip.h"

namespace ocl {

extern const fl_device_api device_api;
extern const fl_memory_api memory_api;
extern const fl_stream_api stream_api;

namespace {

const void* extension(const char*, uint32_t) { return nullptr; }

const fl_chip* make_chip() {
  auto* chip = new fl_chip{};
  chip->size = sizeof(fl_chip);
  chip->version = FL_ABI_VERSION;
  chip->name = "opencl";
  chip->release = OCL_RELEASE;
  chip->flags = FL_CHIP_SERIAL_LAUNCH;
  chip->device = &device_api;
  chip->memory = &memory_api;
  chip->stream = &stream_api;
  chip->op = FL_AUTHOR_OP_TABLE(OCL_ENTRIES);
  chip->extension = extension;
  return chip;
}

}  // namespace

fl_status failed(cl_int error, const char* what) {
  if (error == CL_SUCCESS) return FL_OK;
  constexpr cl_int kNoMemory[] = {-4, -5, -6};  // no buffer, no resources, no host memory
  for (cl_int e : kNoMemory)
    if (error == e) return refuse(FL_OUT_OF_MEMORY, "%s: %s", what, error_name(error).c_str());
  return refuse(FL_FAILED, "%s: %s", what, error_name(error).c_str());
}

}  // namespace ocl

extern "C" FL_EXPORT const fl_chip* fl_chip_entry(uint32_t host_version, const fl_host* host) {
  if (!ocl::accept(host_version, host, sizeof(fl_host), "torch-fl-opencl " OCL_RELEASE)) return nullptr;
  static const fl_chip* const chip = ocl::make_chip();
  return chip;
}
