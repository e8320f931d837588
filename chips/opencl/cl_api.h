// The part of OpenCL 1.2 that this chip uses, declared here and found at run time: the build needs no OpenCL
// headers, and a machine without a driver can still load the chip. Values are the Khronos specification's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

extern "C" {
typedef struct _cl_platform_id* cl_platform_id;
typedef struct _cl_device_id* cl_device_id;
typedef struct _cl_context* cl_context;
typedef struct _cl_command_queue* cl_command_queue;
typedef struct _cl_mem* cl_mem;
typedef struct _cl_program* cl_program;
typedef struct _cl_kernel* cl_kernel;
typedef struct _cl_event* cl_event;
typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_ulong;
typedef cl_uint cl_bool;
typedef cl_ulong cl_bitfield;
}

namespace ocl {

enum : cl_uint {
  CL_PLATFORM_VERSION = 0x0901,
  CL_PLATFORM_NAME = 0x0902,
  CL_DEVICE_TYPE = 0x1000,
  CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
  CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
  CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
  CL_DEVICE_MEM_BASE_ADDR_ALIGN = 0x1019,  // bits
  CL_DEVICE_SINGLE_FP_CONFIG = 0x101B,
  CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F,
  CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
  CL_DEVICE_ENDIAN_LITTLE = 0x1026,
  CL_DEVICE_AVAILABLE = 0x1027,
  CL_DEVICE_COMPILER_AVAILABLE = 0x1028,
  CL_DEVICE_NAME = 0x102B,
  CL_DEVICE_VENDOR = 0x102C,
  CL_DRIVER_VERSION = 0x102D,
  CL_DEVICE_VERSION = 0x102F,
  CL_DEVICE_EXTENSIONS = 0x1030,
  CL_DEVICE_DOUBLE_FP_CONFIG = 0x1032,
  CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT = 0x103A,
  CL_DEVICE_UUID_KHR = 0x106A,
  CL_DEVICE_PCI_BUS_INFO_KHR = 0x410F,
  CL_QUEUE_PROPERTIES_KEY = 0x1093,
  CL_PROGRAM_BINARY_SIZES = 0x1165,
  CL_PROGRAM_BINARIES = 0x1166,
  CL_PROGRAM_BUILD_LOG = 0x1183,
  CL_EVENT_COMMAND_EXECUTION_STATUS = 0x11D3,
  CL_PROFILING_COMMAND_START = 0x1282,
  CL_PROFILING_COMMAND_END = 0x1283,
};
enum : cl_bitfield {
  CL_DEVICE_TYPE_CPU = 1 << 1,
  CL_DEVICE_TYPE_GPU = 1 << 2,
  CL_DEVICE_TYPE_ALL = 0xFFFFFFFF,
  CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT = 1 << 7,
  CL_QUEUE_PROFILING_ENABLE = 1 << 1,
  CL_MEM_READ_WRITE = 1 << 0,
  CL_MEM_ALLOC_HOST_PTR = 1 << 4,
  CL_MAP_READ = 1 << 0,
  CL_MAP_WRITE = 1 << 1,
};
enum : cl_int { CL_SUCCESS = 0, CL_COMPLETE = 0, CL_DEVICE_NOT_FOUND = -1 };

using EventCallback = void (*)(cl_event, cl_int status, void* user);

// X(result, name, arguments)
// clang-format off
#define OCL_FUNCTIONS(X)                                                                                        \
  X(cl_int, clGetPlatformIDs, (cl_uint, cl_platform_id*, cl_uint*))                                             \
  X(cl_int, clGetPlatformInfo, (cl_platform_id, cl_uint, size_t, void*, size_t*))                               \
  X(cl_int, clGetDeviceIDs, (cl_platform_id, cl_bitfield, cl_uint, cl_device_id*, cl_uint*))                    \
  X(cl_int, clGetDeviceInfo, (cl_device_id, cl_uint, size_t, void*, size_t*))                                   \
  X(cl_context, clCreateContext, (const intptr_t*, cl_uint, const cl_device_id*, void*, void*, cl_int*))        \
  X(cl_command_queue, clCreateCommandQueue, (cl_context, cl_device_id, cl_bitfield, cl_int*))                   \
  X(cl_int, clReleaseCommandQueue, (cl_command_queue))                                                          \
  X(cl_mem, clCreateBuffer, (cl_context, cl_bitfield, size_t, void*, cl_int*))                                  \
  X(cl_int, clReleaseMemObject, (cl_mem))                                                                       \
  X(cl_program, clCreateProgramWithSource, (cl_context, cl_uint, const char**, const size_t*, cl_int*))         \
  X(cl_program, clCreateProgramWithBinary, (cl_context, cl_uint, const cl_device_id*, const size_t*,            \
                                            const unsigned char**, cl_int*, cl_int*))                           \
  X(cl_int, clReleaseProgram, (cl_program))                                                                     \
  X(cl_int, clBuildProgram, (cl_program, cl_uint, const cl_device_id*, const char*, void*, void*))              \
  X(cl_int, clGetProgramInfo, (cl_program, cl_uint, size_t, void*, size_t*))                                    \
  X(cl_int, clGetProgramBuildInfo, (cl_program, cl_device_id, cl_uint, size_t, void*, size_t*))                 \
  X(cl_kernel, clCreateKernel, (cl_program, const char*, cl_int*))                                              \
  X(cl_int, clSetKernelArg, (cl_kernel, cl_uint, size_t, const void*))                                          \
  X(cl_int, clEnqueueNDRangeKernel, (cl_command_queue, cl_kernel, cl_uint, const size_t*, const size_t*,        \
                                     const size_t*, cl_uint, const cl_event*, cl_event*))                       \
  X(cl_int, clEnqueueReadBuffer, (cl_command_queue, cl_mem, cl_bool, size_t, size_t, void*, cl_uint,            \
                                  const cl_event*, cl_event*))                                                  \
  X(cl_int, clEnqueueWriteBuffer, (cl_command_queue, cl_mem, cl_bool, size_t, size_t, const void*, cl_uint,     \
                                   const cl_event*, cl_event*))                                                 \
  X(cl_int, clEnqueueCopyBuffer, (cl_command_queue, cl_mem, cl_mem, size_t, size_t, size_t, cl_uint,            \
                                  const cl_event*, cl_event*))                                                  \
  X(cl_int, clEnqueueFillBuffer, (cl_command_queue, cl_mem, const void*, size_t, size_t, size_t, cl_uint,       \
                                  const cl_event*, cl_event*))                                                  \
  X(void*, clEnqueueMapBuffer, (cl_command_queue, cl_mem, cl_bool, cl_bitfield, size_t, size_t, cl_uint,        \
                                const cl_event*, cl_event*, cl_int*))                                           \
  X(cl_int, clEnqueueUnmapMemObject, (cl_command_queue, cl_mem, void*, cl_uint, const cl_event*, cl_event*))    \
  X(cl_int, clEnqueueMarkerWithWaitList, (cl_command_queue, cl_uint, const cl_event*, cl_event*))               \
  X(cl_int, clEnqueueBarrierWithWaitList, (cl_command_queue, cl_uint, const cl_event*, cl_event*))              \
  X(cl_int, clFlush, (cl_command_queue))                                                                        \
  X(cl_int, clFinish, (cl_command_queue))                                                                       \
  X(cl_int, clWaitForEvents, (cl_uint, const cl_event*))                                                        \
  X(cl_int, clGetEventInfo, (cl_event, cl_uint, size_t, void*, size_t*))                                        \
  X(cl_int, clGetEventProfilingInfo, (cl_event, cl_uint, size_t, void*, size_t*))                               \
  X(cl_int, clSetEventCallback, (cl_event, cl_int, EventCallback, void*))                                       \
  X(cl_event, clCreateUserEvent, (cl_context, cl_int*))                                                         \
  X(cl_int, clSetUserEventStatus, (cl_event, cl_int))                                                           \
  X(cl_int, clRetainEvent, (cl_event))                                                                          \
  X(cl_int, clReleaseEvent, (cl_event))
// clang-format on

struct Api {
#define OCL_MEMBER(result, name, arguments) result(*name) arguments = nullptr;
  OCL_FUNCTIONS(OCL_MEMBER)
#undef OCL_MEMBER
};

// The driver's functions; valid once load_api() has returned true.
extern Api cl;

// Loads libOpenCL.so.1 once for the process; false, with why, when there is none or it lacks a function.
bool load_api(std::string* why);

// "CL_OUT_OF_RESOURCES (-5)"
std::string error_name(cl_int error);

}  // namespace ocl
