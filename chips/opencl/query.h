// What a machine has, as numbers and text: asked in a process of its own, so that the one that asks starts no
// driver thread and may still fork (see device.cpp).
#pragma once

#include <vector>

#include "cl_api.h"

namespace ocl {

// Of plain data: the query program writes an array of it to its standard output.
struct DeviceInfo {
  char name[128];
  char identity[64];
  char release[192];  // of platform, device and driver: part of the key of compiled programs
  uint64_t memory, max_alloc, local_memory;
  uint32_t alignment;  // bytes
  uint32_t units, max_group;
  uint32_t float_width;   // of the device's vectors, in floats
  uint32_t major, minor;  // OpenCL version of the device
  uint8_t processor;  // the host's, or another that works like it: no local memory of its own, wide vectors
  uint8_t fp64, fp16, long_atomics, exact_division;
  uint8_t reserved[7];
};

struct FoundDevice {
  DeviceInfo info;
  cl_platform_id platform;
  cl_device_id id;
};

// Every usable device of every platform: GPUs first, then accelerators, then processors; in that order by
// platform and the driver's own order. Starts the drivers. Those that cannot compile programs are left out.
std::vector<FoundDevice> find_devices();

}  // namespace ocl
