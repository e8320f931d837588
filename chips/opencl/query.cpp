// The devices of this machine.
#include "query.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

namespace ocl {

namespace {

template <class T>
T device_value(cl_device_id id, cl_uint what, T otherwise = {}) {
  T value{};
  return cl.clGetDeviceInfo(id, what, sizeof value, &value, nullptr) == CL_SUCCESS ? value : otherwise;
}

std::string device_text(cl_device_id id, cl_uint what) {
  size_t n = 0;
  if (cl.clGetDeviceInfo(id, what, 0, nullptr, &n) != CL_SUCCESS || n == 0) return {};
  std::string text(n, '\0');
  if (cl.clGetDeviceInfo(id, what, n, text.data(), nullptr) != CL_SUCCESS) return {};
  text.resize(std::strlen(text.c_str()));
  return text;
}

std::string platform_text(cl_platform_id id, cl_uint what) {
  size_t n = 0;
  if (cl.clGetPlatformInfo(id, what, 0, nullptr, &n) != CL_SUCCESS || n == 0) return {};
  std::string text(n, '\0');
  if (cl.clGetPlatformInfo(id, what, n, text.data(), nullptr) != CL_SUCCESS) return {};
  text.resize(std::strlen(text.c_str()));
  return text;
}

template <size_t N>
void put(char (&to)[N], const std::string& text) {
  std::snprintf(to, N, "%s", text.c_str());
}

// The PCI address or UUID where the driver tells one; otherwise where the driver lists it.
std::string identity(cl_device_id id, const std::string& extensions, const std::string& platform,
                     int number) {
  char text[64];
  if (extensions.find("cl_khr_pci_bus_info") != std::string::npos) {
    struct {
      cl_uint domain, bus, device, function;
    } pci{};
    if (cl.clGetDeviceInfo(id, CL_DEVICE_PCI_BUS_INFO_KHR, sizeof pci, &pci, nullptr) == CL_SUCCESS) {
      std::snprintf(text, sizeof text, "pci %04x:%02x:%02x.%x", pci.domain, pci.bus, pci.device,
                    pci.function);
      return text;
    }
  }
  if (extensions.find("cl_khr_device_uuid") != std::string::npos) {
    unsigned char uuid[16];
    if (cl.clGetDeviceInfo(id, CL_DEVICE_UUID_KHR, sizeof uuid, uuid, nullptr) == CL_SUCCESS) {
      std::string made = "uuid ";
      for (unsigned char byte : uuid) {
        std::snprintf(text, sizeof text, "%02x", byte);
        made += text;
      }
      return made;
    }
  }
  std::snprintf(text, sizeof text, "%.48s #%d", platform.c_str(), number);
  return text;
}

int rank(const FoundDevice& d) {
  auto type = device_value<cl_bitfield>(d.id, CL_DEVICE_TYPE);
  return type & CL_DEVICE_TYPE_GPU ? 0 : type & CL_DEVICE_TYPE_CPU ? 2 : 1;
}

bool describe(FoundDevice& d, const std::string& platform, int number) {
  if (!device_value<cl_bool>(d.id, CL_DEVICE_AVAILABLE) ||
      !device_value<cl_bool>(d.id, CL_DEVICE_COMPILER_AVAILABLE) ||
      !device_value<cl_bool>(d.id, CL_DEVICE_ENDIAN_LITTLE))
    return false;
  DeviceInfo& info = d.info;
  info = {};
  std::string version = device_text(d.id, CL_DEVICE_VERSION),
              extensions = device_text(d.id, CL_DEVICE_EXTENSIONS);
  if (std::sscanf(version.c_str(), "OpenCL %u.%u", &info.major, &info.minor) != 2) return false;
  if (info.major == 1 && info.minor < 2) return false;
  put(info.name, device_text(d.id, CL_DEVICE_NAME));
  put(info.identity, identity(d.id, extensions, platform, number));
  put(info.release, platform_text(d.platform, CL_PLATFORM_VERSION) + " | " + info.name + " | " +
                        device_text(d.id, CL_DRIVER_VERSION));
  info.memory = device_value<cl_ulong>(d.id, CL_DEVICE_GLOBAL_MEM_SIZE);
  info.max_alloc = device_value<cl_ulong>(d.id, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  info.local_memory = device_value<cl_ulong>(d.id, CL_DEVICE_LOCAL_MEM_SIZE);
  info.alignment = std::max<uint32_t>(device_value<cl_uint>(d.id, CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8, 64);
  info.units = device_value<cl_uint>(d.id, CL_DEVICE_MAX_COMPUTE_UNITS, 1);
  info.max_group = static_cast<uint32_t>(device_value<size_t>(d.id, CL_DEVICE_MAX_WORK_GROUP_SIZE, 1));
  info.float_width =
      std::max<uint32_t>(device_value<cl_uint>(d.id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, 1), 1);
  info.processor = (device_value<cl_bitfield>(d.id, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU) != 0;
  info.fp64 = extensions.find("cl_khr_fp64") != std::string::npos ||
              device_value<cl_bitfield>(d.id, CL_DEVICE_DOUBLE_FP_CONFIG) != 0;
  info.fp16 = extensions.find("cl_khr_fp16") != std::string::npos;
  info.long_atomics = extensions.find("cl_khr_int64_base_atomics") != std::string::npos;
  info.exact_division = (device_value<cl_bitfield>(d.id, CL_DEVICE_SINGLE_FP_CONFIG) &
                         CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0;
  return info.memory != 0;
}

}  // namespace

std::vector<FoundDevice> find_devices() {
  std::vector<FoundDevice> all;
  cl_platform_id platforms[32];
  cl_uint n_platforms = 0;
  if (cl.clGetPlatformIDs(32, platforms, &n_platforms) != CL_SUCCESS) return all;
  for (cl_uint p = 0; p < std::min(n_platforms, 32u); ++p) {
    std::string platform = platform_text(platforms[p], CL_PLATFORM_NAME);
    cl_device_id ids[64];
    cl_uint n = 0;
    if (cl.clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, 64, ids, &n) != CL_SUCCESS) continue;
    for (cl_uint i = 0; i < std::min(n, 64u); ++i) {
      FoundDevice d{{}, platforms[p], ids[i]};
      if (describe(d, platform, static_cast<int>(i))) all.push_back(d);
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const FoundDevice& a, const FoundDevice& b) { return rank(a) < rank(b); });
  return all;
}

}  // namespace ocl
