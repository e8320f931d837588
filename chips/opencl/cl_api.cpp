// Finding the OpenCL driver, and the names of its errors.
#include "cl_api.h"

#include <dlfcn.h>

#include <mutex>

namespace ocl {

Api cl;

bool load_api(std::string* why) {
  static std::string problem;
  static std::once_flag once;
  std::call_once(once, [] {
    // Drivers keep threads and exit handlers: the loader is never closed.
    void* library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      const char* text = dlerror();
      problem = std::string("there is no OpenCL driver here (") + (text ? text : "libOpenCL.so.1 not found") +
                "): install the one of the GPU's vendor, or pocl-opencl-icd for the processor";
      return;
    }
#define OCL_FIND(result, name, arguments)                                 \
  cl.name = reinterpret_cast<result(*) arguments>(dlsym(library, #name)); \
  if (!cl.name) problem = "libOpenCL.so.1 lacks " #name ": OpenCL 1.2 or later is needed";
    OCL_FUNCTIONS(OCL_FIND)
#undef OCL_FIND
  });
  if (!problem.empty() && why) *why = problem;
  return problem.empty();
}

std::string error_name(cl_int error) {
  static constexpr struct {
    cl_int value;
    const char* name;
  } names[] = {
      {-1, "DEVICE_NOT_FOUND"},
      {-2, "DEVICE_NOT_AVAILABLE"},
      {-3, "COMPILER_NOT_AVAILABLE"},
      {-4, "MEM_OBJECT_ALLOCATION_FAILURE"},
      {-5, "OUT_OF_RESOURCES"},
      {-6, "OUT_OF_HOST_MEMORY"},
      {-7, "PROFILING_INFO_NOT_AVAILABLE"},
      {-8, "MEM_COPY_OVERLAP"},
      {-11, "BUILD_PROGRAM_FAILURE"},
      {-12, "MAP_FAILURE"},
      {-14, "EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"},
      {-30, "INVALID_VALUE"},
      {-33, "INVALID_DEVICE"},
      {-34, "INVALID_CONTEXT"},
      {-36, "INVALID_COMMAND_QUEUE"},
      {-38, "INVALID_MEM_OBJECT"},
      {-42, "INVALID_BINARY"},
      {-43, "INVALID_BUILD_OPTIONS"},
      {-44, "INVALID_PROGRAM"},
      {-45, "INVALID_PROGRAM_EXECUTABLE"},
      {-46, "INVALID_KERNEL_NAME"},
      {-48, "INVALID_KERNEL"},
      {-49, "INVALID_ARG_INDEX"},
      {-50, "INVALID_ARG_VALUE"},
      {-51, "INVALID_ARG_SIZE"},
      {-52, "INVALID_KERNEL_ARGS"},
      {-54, "INVALID_WORK_GROUP_SIZE"},
      {-55, "INVALID_WORK_ITEM_SIZE"},
      {-57, "INVALID_EVENT_WAIT_LIST"},
      {-58, "INVALID_EVENT"},
      {-59, "INVALID_OPERATION"},
      {-61, "INVALID_BUFFER_SIZE"},
      {-63, "INVALID_GLOBAL_WORK_SIZE"},
      {-1001, "PLATFORM_NOT_FOUND_KHR"},
  };
  for (const auto& n : names)
    if (n.value == error) return "CL_" + std::string(n.name) + " (" + std::to_string(error) + ")";
  return "OpenCL error " + std::to_string(error);
}

}  // namespace ocl
