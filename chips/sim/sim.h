// What the parts of the sim chip share: jobs, the device they run on, and the
// entries of the chip's table.
//
// A launch copies what it needs into a job, the job into its stream's ring;
// the stream's worker runs jobs in order.  Device addresses are never readable
// by host code: a Tensor holds the worker's own view of the same memory.
#pragma once

#include <omp.h>

#include <atomic>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "fl/author/entry.h"
#include "fl/author/tensor.h"

namespace sim {

using namespace fl::author;

struct Device;
struct Stream;

// From a device address to the workers' view of the same byte.  One constant for
// all devices of the process: translation costs an addition (device.cpp).
extern ptrdiff_t worker_offset;

// A tensor as a job carries it: copied sizes and strides, worker-side address.
struct Tensor {
  char* data = nullptr;
  int32_t ndim = 0;
  uint8_t dtype = FL_NONE;
  int64_t sizes[FL_MAX_DIMS];
  int64_t strides[FL_MAX_DIMS];  // in elements

  Tensor() = default;
  explicit Tensor(const fl_tensor& t);  // translates the address; copies ndim entries
  Tensor(const Tensor& t);              // copies ndim entries
  Tensor& operator=(const Tensor& t);
  explicit operator bool() const { return data != nullptr; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};
inline Tensor optional(const fl_tensor* t) { return t ? Tensor(*t) : Tensor(); }

// What a running job knows: where it runs, and how to report a fault.
struct Context {
  Device& device;
  Stream& stream;
  const fl_launch& launch;
  bool discard = false;  // the device is lost: destroy the job without running it
  std::atomic<bool> failed{false};
  bool deterministic() const { return launch.flags & FL_LAUNCH_DETERMINISTIC; }
  // Puts a fault on the stream (the first one wins).  The job returns after it.
  void fail(fl_status status, const char* format, ...) __attribute__((format(printf, 3, 4)));
  // Scratch memory of this stream, grown on demand and reused by its next job;
  // aligned to 64.  Several calls in one job give distinct memory.
  void* scratch(size_t bytes);
};

// Reserve space in the ring of the launch's stream, and publish it: between the
// two calls this thread holds the stream's submission lock, so it only fills in
// the record.  Blocks while the ring is full.  `name` is for ordered faults: the
// entry's name, "gemm".  `run` is called once, on the worker; when
// Context::discard is set it only destroys the job.
void* ring_begin(const fl_launch* launch, const char* name, size_t bytes, void (*run)(void* job, Context&),
                 fl_status* status);
void ring_commit(const fl_launch* launch);

// Queue a job: a callable void(Context&).  It is moved into the ring, run once
// on the stream's worker, and destroyed.  Returns FL_OK, FL_DEVICE_LOST, or the
// status that was ordered for this launch (FL_SIM_FAULTS).
template <class Job>
fl_status submit(const fl_launch* launch, const char* name, Job&& job) {
  using J = std::decay_t<Job>;
  static_assert(alignof(J) <= 64);
  fl_status status = FL_OK;
  void* place = ring_begin(
      launch, name, sizeof(J),
      [](void* p, Context& c) {
        J* j = static_cast<J*>(p);
        if (!c.discard) (*j)(c);
        j->~J();
      },
      &status);
  if (!place) return status;
  new (place) J(std::forward<Job>(job));
  ring_commit(launch);
  return FL_OK;
}

// f(begin, end) over 0…n in parallel (OpenMP, on the worker's own team); runs
// inline when n <= grain.  How n is cut depends on n, grain and the number of
// threads alone.
template <class F>
void parallel(int64_t n, int64_t grain, F&& f);

// ------------------------------------------------------- the table's entries
// clang-format off
#define SIM_ENTRIES(X)                                                                     \
  X(copy) X(fill) X(pointwise) X(reduce) X(gemm) X(gather) X(scatter) X(random) X(softmax) \
  X(softmax_backward) X(norm) X(norm_backward) X(batch_norm) X(batch_norm_backward)        \
  X(conv) X(pool) X(pool_backward) X(attention) X(attention_backward) X(multi_tensor)      \
  X(scan) X(sort) X(compact) X(spmm) X(fft)
// clang-format on

SIM_ENTRIES(FL_AUTHOR_DECLARE)

// A program made ready to run (pointwise.cpp); found by hash, lives for ever.
// Reduce and gemm run their pre, post and epilogue programs through it.
struct Plan;
const Plan* plan_of(const fl_program* program);  // null: not supported

// Run a plan over n points.  inputs[i] and outputs[i] are typed as the
// program's LOAD and STORE say; strides are in bytes, 0 for a broadcast value.
// INDEX instructions see `first` + 0…n-1 as the row-major number, and
// coordinates within `sizes` (ndim entries; may be null when unused).
// Integer division by zero sets *fault to FL_FAILED.
void run_plan(const Plan* plan, int64_t n, const char* const* inputs, const int64_t* input_strides,
              char* const* outputs, const int64_t* output_strides, const fl_scalar* scalars, int64_t first,
              const int64_t* sizes, int ndim, fl_status* fault);

// Scalars as jobs carry them.
struct Scalars {
  fl_scalar values[FL_MAX_SCALARS];
  Scalars() = default;
  Scalars(const fl_scalar* from, int n) {
    for (int i = 0; i < n; ++i) values[i] = from[i];
  }
};

// The pieces are handed out one by one: a core that is busy elsewhere then
// delays its own piece alone.
template <class F>
void parallel(int64_t n, int64_t grain, F&& f) {
  if (n <= grain) {
    if (n > 0) f(int64_t{0}, n);
    return;
  }
  if (grain < 1) grain = 1;
  int64_t pieces = (n + grain - 1) / grain, most = int64_t{4} * omp_get_max_threads();
  if (pieces > most) pieces = most;
  std::atomic<int64_t> next{0};
#pragma omp parallel
  for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < pieces;) {
    // n * i would overflow for the largest n.
    int64_t size = n / pieces, rest = n % pieces;
    int64_t begin = size * i + (i < rest ? i : rest);
    f(begin, begin + size + (i < rest));
  }
}

inline Tensor::Tensor(const fl_tensor& t)
    : data(static_cast<char*>(t.data) + worker_offset), ndim(t.ndim), dtype(t.dtype) {
  for (int i = 0; i < ndim; ++i) sizes[i] = t.sizes[i], strides[i] = t.strides[i];
}
inline Tensor::Tensor(const Tensor& t) : data(t.data), ndim(t.ndim), dtype(t.dtype) {
  for (int i = 0; i < ndim; ++i) sizes[i] = t.sizes[i], strides[i] = t.strides[i];
}
inline Tensor& Tensor::operator=(const Tensor& t) {
  data = t.data, ndim = t.ndim, dtype = t.dtype;
  for (int i = 0; i < ndim; ++i) sizes[i] = t.sizes[i], strides[i] = t.strides[i];
  return *this;
}

}  // namespace sim
