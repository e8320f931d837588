// Fourier transforms of complex lines, and the entry of all of them.
#include "fft_plan.h"
#include "fft_real.h"

namespace sim {
namespace {

template <class A>
void run(Context& context, const FftPlan<A>& plan, const FftLines& lines, bool inverse, A scale) {
  const FftKernels<A>& k = fft_kernels<A>();
  each_line(
      context, plan, lines, 0,
      [&](const char* const* from, char* const* to, int count, A* buffer) {
        k.load(from, lines.from_step, plan.n, inverse, buffer);
        k.store(transform_loaded(plan, buffer), to, count, lines.to_step, plan.n, inverse, scale);
      },
      [&](const char* from, char* to, A* memory, const ThreadScratch& scratch, bool alone) {
        transform_line(plan, from, lines.from_step, to, lines.to_step, inverse, scale, memory, scratch,
                       alone);
      });
}

template <class A>
fl_status queue(const fl_launch* launch, const fl_fft_args* args) {
  const int64_t n = args->in.ndim ? args->in.sizes[args->axis] : 1;
  return submit(launch, "fft",
                [plan = kept_plan<FftPlan<A>>(n), in = Tensor(args->in), out = Tensor(args->out),
                 axis = args->axis, inverse = args->inverse != 0, scale = args->scale](Context& context) {
                  run<A>(context, *plan, FftLines(in, out, axis), inverse, A(scale));
                });
}

}  // namespace

fl_status fft(const fl_launch* launch, const fl_fft_args* args) {
  const uint8_t in = args->in.dtype, out = args->out.dtype;
  if (args->axis < 0 || args->axis >= std::max(args->in.ndim, 1)) {
    set_error("sim: fft along axis %d of a tensor of %d dimensions", args->axis, args->in.ndim);
    return FL_INVALID;
  }
  if (in == FL_C64 && out == FL_C64) return queue<float>(launch, args);
  if (in == FL_C128 && out == FL_C128) return queue<double>(launch, args);
  return fft_real(launch, args);
}

void claim_fft(Claims& claims) {
  claims.push_back(
      {FL_ENTRY_FFT, FL_ANY, FL_BIT(FL_C64) | FL_BIT(FL_C128) | FL_BIT(FL_F32) | FL_BIT(FL_F64)});
}

}  // namespace sim
