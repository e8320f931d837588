// The entry fill.
#include <algorithm>
#include <cstring>

#include "pointwise_plan.h"

namespace sim {
namespace {

struct Bytes16 {
  uint64_t a, b;
};

template <class T>
void fill_space(const Space<1>& space, char* to, const void* value_) {
  T value;
  std::memcpy(&value, value_, sizeof value);
  constexpr int64_t kGrain = (128 << 10) / sizeof(T);
  parallel(space.points(), kGrain, [&](int64_t begin, int64_t end) {
    Cursor<1> at(space, begin);
    int64_t stride = space.inner_stride(0);
    for (int64_t i = begin; i < end;) {
      int64_t run = std::min(at.left(), end - i);
      char* p = to + at.offset[0];
      if (stride == sizeof(T)) std::fill_n(reinterpret_cast<T*>(p), run, value);
      else
        for (int64_t k = 0; k < run; ++k, p += stride) *reinterpret_cast<T*>(p) = value;
      at.advance(run);
      i += run;
    }
  });
}

struct FillJob {
  char* to;
  alignas(16) char value[16];
  int32_t ndim;
  uint8_t size;
  // then sizes, strides

  static void run(void* place, Context& context) {
    if (context.discard) return;
    auto* job = static_cast<FillJob*>(place);
    auto* sizes = reinterpret_cast<const int64_t*>(job + 1);
    Space<1> space(1);
    for (int d = 0; d < job->ndim; ++d) space.push(sizes[d])[0] = sizes[job->ndim + d] * job->size;
    space.merge();
    space.sort(0);
    space.merge();
    switch (job->size) {
      case 1:
        return fill_space<uint8_t>(space, job->to, job->value);
      case 2:
        return fill_space<uint16_t>(space, job->to, job->value);
      case 4:
        return fill_space<uint32_t>(space, job->to, job->value);
      case 8:
        return fill_space<uint64_t>(space, job->to, job->value);
      default:
        return fill_space<Bytes16>(space, job->to, job->value);
    }
  }
};

// The scalar as the dtype lies in memory.  Floats narrower than F64 are rounded
// from F32, as a program that stores them does.
void encode(const fl_scalar& scalar, uint8_t dtype, char* out) {
  const PointKernels& kernels = point_kernels();
  uint8_t natural = natural_type(dtype);
  alignas(16) char value[16];
  switch (natural) {
    case FL_F32: {
      auto v = static_cast<float>(scalar.v.f);
      std::memcpy(value, &v, sizeof v);
      break;
    }
    case FL_F64:
      std::memcpy(value, &scalar.v.f, 8);
      break;
    case FL_C64: {
      float v[2] = {static_cast<float>(scalar.v.f), static_cast<float>(scalar.imag)};
      std::memcpy(value, v, sizeof v);
      break;
    }
    case FL_C128: {
      double v[2] = {scalar.v.f, scalar.imag};
      std::memcpy(value, v, sizeof v);
      break;
    }
    case FL_BOOL:
      value[0] = scalar.v.i != 0;
      break;
    default:
      std::memcpy(value, &scalar.v.i, 8);  // little end first: I32 is the low half
  }
  kernels.narrow[dtype](1, value, out, static_cast<int64_t>(dtype_size(dtype)));
}

}  // namespace

fl_status fill(const fl_launch* launch, const fl_fill_args* args) {
  const fl_tensor& to = args->to;
  auto ndim = static_cast<size_t>(to.ndim);
  fl_status status;
  void* place = ring_begin(launch, "fill", sizeof(FillJob) + 2 * ndim * 8, FillJob::run, &status);
  if (!place) return status;
  auto* job = new (place) FillJob;
  job->to = static_cast<char*>(to.data) + worker_offset;
  job->ndim = to.ndim;
  job->size = static_cast<uint8_t>(dtype_size(to.dtype));
  encode(args->value, to.dtype, job->value);
  auto* words = reinterpret_cast<int64_t*>(job + 1);
  if (ndim) {
    std::memcpy(words, to.sizes, ndim * 8);
    std::memcpy(words + ndim, to.strides, ndim * 8);
  }
  ring_commit(launch);
  return FL_OK;
}

void claim_fill(Claims& claims) { claims.push_back({FL_ENTRY_FILL, FL_ANY, kAllDtypes}); }

}  // namespace sim
