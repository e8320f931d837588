// fl-opencl-benchmark CHIP.so: what the chip adds to the driver. In turns, and without PyTorch:
//   launch   nanoseconds of the calling thread for a pointwise launch, against clEnqueueNDRangeKernel of the
//   same work gemm N   seconds of an F32 product of N × N, against CLBlast's where libclblast.so.1 is there
// Prints lines "name<TAB>ours<TAB>theirs<TAB>median of theirs by ours".
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>
#include <vector>

#include "fl/ops.h"
#include "query.h"

namespace {

using ocl::cl;

[[noreturn]] void stop(const char* what) {
  std::fprintf(stderr, "fl-opencl-benchmark: %s\n", what);
  std::exit(1);
}
void check(int status, const char* what) {
  if (status) stop(what);
}

// ------------------------------------------------------------------ the host's side of the ABI
const fl_chip* chip;
void log_line(int level, const char* text) {
  if (level <= FL_LOG_WARNING) std::fprintf(stderr, "%s\n", text);
}
void set_error(const char* text) { std::fprintf(stderr, "%s\n", text); }
// One stream, which works in order: launches may share memory, but one launch's pieces are apart.
uint64_t scratch_tag = 0;
size_t scratch_used = 0;
fl_status scratch(const fl_launch* launch, size_t bytes, void** out) {
  constexpr size_t kBytes = size_t{256} << 20;
  static char* const memory = [] {
    void* made = nullptr;
    check(chip->memory->malloc(0, kBytes, &made), "no memory for scratch");
    return static_cast<char*>(made);
  }();
  if (launch->tag != scratch_tag) scratch_tag = launch->tag, scratch_used = 0;
  if (bytes > kBytes - scratch_used) return FL_OUT_OF_MEMORY;
  *out = memory + scratch_used;
  scratch_used += (bytes + 255) / 256 * 256;
  return FL_OK;
}
const fl_host host{sizeof(fl_host), FL_ABI_VERSION, log_line, set_error, scratch};

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}
template <class F>
double seconds(F&& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Of this thread's processor: what other threads and processes do does not count.
template <class F>
double own_seconds(F&& f) {
  timespec start, end;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
  f();
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  return static_cast<double>(end.tv_sec - start.tv_sec) +
         1e-9 * static_cast<double>(end.tv_nsec - start.tv_nsec);
}

// Both in turns, each `rounds` times.
template <class A, class B>
void compare(const char* name, int rounds, A&& ours, B&& theirs) {
  std::vector<double> a, b, ratio;
  for (int i = 0; i < rounds; ++i) {
    a.push_back(ours()), b.push_back(theirs());
    ratio.push_back(b.back() / a.back());
  }
  std::printf("%s\t%.9g\t%.9g\t%.4g\n", name, median(a), median(b), median(ratio));
  std::fflush(stdout);
}

// ------------------------------------------------------------------ the driver alone
struct Driver {
  cl_device_id id = nullptr;
  cl_context context = nullptr;
  cl_command_queue queue = nullptr;
};
Driver start_driver() {
  const std::vector<ocl::FoundDevice> found = ocl::find_devices();
  if (found.empty()) stop("there is no OpenCL device");
  Driver d;
  d.id = found[0].id;
  intptr_t properties[] = {0x1084 /* CL_CONTEXT_PLATFORM */, reinterpret_cast<intptr_t>(found[0].platform),
                           0};
  cl_int error;
  d.context = cl.clCreateContext(properties, 1, &d.id, nullptr, nullptr, &error);
  check(error, "clCreateContext");
  d.queue = cl.clCreateCommandQueue(d.context, d.id, 0, &error);
  check(error, "clCreateCommandQueue");
  return d;
}
cl_mem buffer(const Driver& d, size_t bytes) {
  cl_int error;
  cl_mem made = cl.clCreateBuffer(d.context, ocl::CL_MEM_READ_WRITE, bytes, nullptr, &error);
  check(error, "clCreateBuffer");
  const float one = 1;
  check(cl.clEnqueueFillBuffer(d.queue, made, &one, sizeof one, 0, bytes, 0, nullptr, nullptr), "a fill");
  cl.clFinish(d.queue);
  return made;
}

// ------------------------------------------------------------------ what is measured
struct Matrix {
  int64_t sizes[3], strides[3];
  fl_tensor tensor(void* data) { return {data, sizes, strides, 3, FL_F32, 0, 0}; }
};

void launches(const Driver& d, fl_stream stream) {
  constexpr int kCalls = 200;
  constexpr int64_t kPoints = 1024;
  void* memory;
  check(chip->memory->malloc(0, 1 << 20, &memory), "malloc");
  int64_t sizes[] = {kPoints}, strides[] = {1};
  fl_tensor t[3];
  for (int i = 0; i < 3; ++i)
    t[i] = {static_cast<char*>(memory) + i * 65536, sizes, strides, 1, FL_F32, 0, 0};
  fl_instr code[4] = {};
  for (uint16_t i = 0; i < 2; ++i)
    code[i].op = FL_OP_LOAD, code[i].type = code[i].memory = FL_F32, code[i].a = i;
  code[2].op = FL_OP_ADD, code[2].type = FL_F32, code[2].a = 0, code[2].b = 1;
  code[3].op = FL_OP_STORE, code[3].type = code[3].memory = FL_F32, code[3].a = 2;
  const fl_program program{code, 0x62656e63686d6b21u, 4, 2, 1, 0};
  fl_pointwise_args args{&program, t, t + 2, nullptr};
  fl_launch launch{stream, 1, 0, 0};
  auto ours = [&] {
    double s = own_seconds([&] {
      for (int i = 0; i < kCalls; ++i) check(chip->op->pointwise(&launch, &args), "pointwise");
    });
    check(chip->stream->synchronize(stream, -1), "synchronize");
    return s / kCalls * 1e9;
  };
  const char* text =
      "__kernel void add(__global const float* a, __global const float* b, __global float* c, int n) {"
      "  for (int i = get_global_id(0); i < n; i += get_global_size(0)) c[i] = a[i] + b[i]; }";
  cl_int error;
  cl_program compiled = cl.clCreateProgramWithSource(d.context, 1, &text, nullptr, &error);
  check(cl.clBuildProgram(compiled, 1, &d.id, "", nullptr, nullptr), "clBuildProgram");
  cl_kernel kernel = cl.clCreateKernel(compiled, "add", &error);
  check(error, "clCreateKernel");
  const int n = kPoints;
  for (cl_uint i = 0; i < 3; ++i) {
    cl_mem made = buffer(d, kPoints * sizeof(float));
    check(cl.clSetKernelArg(kernel, i, sizeof made, &made), "clSetKernelArg");
  }
  check(cl.clSetKernelArg(kernel, 3, sizeof n, &n), "clSetKernelArg");
  auto theirs = [&] {
    const size_t one = 1;
    double s = own_seconds([&] {
      for (int i = 0; i < kCalls; ++i)
        check(cl.clEnqueueNDRangeKernel(d.queue, kernel, 1, nullptr, &one, &one, 0, nullptr, nullptr),
              "a launch");
    });
    cl.clFinish(d.queue);
    return s / kCalls * 1e9;
  };
  // Until the program has a kernel of its own, compiled behind the scenes.
  for (int i = 0; i < 10; ++i) ours(), theirs(), std::this_thread::sleep_for(std::chrono::milliseconds(300));
  compare("launch", 101, ours, theirs);
  check(chip->memory->free(0, memory), "free");
}

void products(const Driver& d, fl_stream stream) {
  using Sgemm = int (*)(int, int, int, size_t, size_t, size_t, float, cl_mem, size_t, size_t, cl_mem, size_t,
                        size_t, float, cl_mem, size_t, size_t, cl_command_queue*, cl_event*);
  void* library = dlopen("libclblast.so.1", RTLD_NOW | RTLD_LOCAL);
  auto sgemm = library ? reinterpret_cast<Sgemm>(dlsym(library, "CLBlastSgemm")) : nullptr;
  if (!sgemm)
    return void(std::fprintf(stderr, "libclblast.so.1 is not there (apt: libclblast1): not compared\n"));
  for (int64_t n : {512, 1024, 2048}) {
    const auto bytes = static_cast<size_t>(n * n) * sizeof(float);
    const std::vector<float> ones(static_cast<size_t>(n * n), 1.0F);
    Matrix shape{{1, n, n}, {n * n, n, 1}};
    fl_tensor t[3];
    cl_mem m[3];
    fl_launch launch{stream, static_cast<uint64_t>(n), 0, 0};
    for (int i = 0; i < 3; ++i) {
      void* made;
      check(chip->memory->malloc(0, bytes, &made), "malloc");
      check(chip->memory->copy(&launch, FL_HOST_TO_DEVICE, made, ones.data(), bytes), "copy");
      t[i] = shape.tensor(made), m[i] = buffer(d, bytes);
    }
    fl_gemm_args args{};
    args.a = t[0], args.b = t[1], args.out = t[2];
    args.alpha.v.f = 1;
    auto ours = [&] {
      return seconds([&] {
        scratch_used = 0;
        check(chip->op->gemm(&launch, &args), "gemm");
        check(chip->stream->synchronize(stream, -1), "synchronize");
      });
    };
    const auto size = static_cast<size_t>(n);
    cl_command_queue queue = d.queue;
    auto theirs = [&] {
      return seconds([&] {
        check(sgemm(101, 111, 111, size, size, size, 1, m[0], 0, size, m[1], 0, size, 0, m[2], 0, size,
                    &queue, nullptr),
              "CLBlastSgemm");
        cl.clFinish(queue);
      });
    };
    ours(), theirs();
    char name[32];
    std::snprintf(name, sizeof name, "gemm %lld", static_cast<long long>(n));
    compare(name, n > 1024 ? 5 : 15, ours, theirs);
    for (int i = 0; i < 3; ++i) chip->memory->free(0, t[i].data), cl.clReleaseMemObject(m[i]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) stop("usage: fl-opencl-benchmark CHIP.so");
  std::string why;
  if (!ocl::load_api(&why)) stop(why.c_str());
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) stop(dlerror());
  auto entry =
      reinterpret_cast<const fl_chip* (*)(uint32_t, const fl_host*)>(dlsym(library, "fl_chip_entry"));
  if (!entry || !(chip = entry(FL_ABI_VERSION, &host))) stop("it is no chip");
  check(chip->device->open(0), "the device does not open");
  fl_stream stream;
  check(chip->stream->create(0, 0, &stream), "no stream");
  const Driver driver = start_driver();
  launches(driver, stream);
  products(driver, stream);
  chip->stream->destroy(stream);
}
