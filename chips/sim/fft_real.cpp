// A real line of even length n is a complex one z of m = n/2, neighbours as pairs: with Z its transform,
//   X[k] = (Z[k] + conj Z[m-k])/2 + w[k] × (Z[k] - conj Z[m-k])/2i,  w[k] = exp(-2πi k/n), Z[m] = Z[0],
// and back, twice over:  Z[k] = (X[k] + conj X[m-k]) + i conj w[k] × (X[k] - conj X[m-k]).
// One of odd length is a complex line whose imaginary parts are 0.
#include "fft_real.h"

#include "fft_plan.h"

namespace sim {
namespace {

template <class A>
struct RealPlan {
  int64_t n;           // of the real side
  bool pairs;          // even
  FftPlan<A> complex;  // of n/2, or of n
  std::vector<A> roots;

  explicit RealPlan(int64_t length) : n(length), pairs(length % 2 == 0), complex(pairs ? n / 2 : n) {
    if (!pairs) return;
    roots.resize(size_t(n / 4 + 1) * 2);
    for (int64_t k = 0; k <= n / 4; ++k) put_root(&roots[size_t(2 * k)], k, n);
  }
  int64_t half() const { return n / 2 + 1; }  // of the spectrum
};

// Value i of a line whose values are `step` bytes apart.
template <class A>
A& at(char* line, int64_t i, int64_t step, int part) {
  return reinterpret_cast<A*>(line + i * step)[part];
}

template <class A>
void forward(Context& context, const RealPlan<A>& plan, const FftLines& lines, A scale) {
  const FftKernels<A>& k = fft_kernels<A>();
  const int64_t n = plan.n, m = plan.complex.n, half = plan.half(), item = 2 * sizeof(A);
  const A* roots = plan.roots.data();
  // The formulas leave out the halves.
  if (plan.pairs) scale /= 2;
  each_line(
      context, plan.complex, lines, size_t(4 * m + 2),
      [&](const char* const* from, char* const* to, int count, A* buffer) {
        k.load_real(from, lines.from_step, m, plan.pairs, buffer);
        A* x = transform_loaded(plan.complex, buffer);
        if (plan.pairs) k.split(x, roots, m);
        k.store(x, to, count, lines.to_step, half, false, scale);
      },
      [&](const char* from, char* to, A* memory, const ThreadScratch& scratch, bool alone) {
        A *z = memory + line_values(plan.complex), *x = z + 2 * m;
        const char* source = reinterpret_cast<const char*>(z);
        int64_t step = item;
        if (plan.pairs && lines.from_step == int64_t(sizeof(A))) source = from;
        else if (plan.pairs)
          for (int64_t i = 0; i < n; ++i) z[i] = *reinterpret_cast<const A*>(from + i * lines.from_step);
        else
          for (int64_t i = 0; i < n; ++i)
            z[2 * i] = *reinterpret_cast<const A*>(from + i * lines.from_step), z[2 * i + 1] = 0;
        transform_line(plan.complex, source, step, reinterpret_cast<char*>(x), item, false, A(1), memory,
                       scratch, alone);
        if (plan.pairs) k.split_line(x, roots, m);
        for (int64_t i = 0; i < half; ++i)
          at<A>(to, i, lines.to_step, 0) = x[2 * i] * scale,
                                      at<A>(to, i, lines.to_step, 1) = x[2 * i + 1] * scale;
      });
}

template <class A>
void inverse(Context& context, const RealPlan<A>& plan, const FftLines& lines, A scale) {
  const FftKernels<A>& k = fft_kernels<A>();
  const int64_t n = plan.n, m = plan.complex.n, half = plan.half(), item = 2 * sizeof(A);
  const A* roots = plan.roots.data();
  each_line(
      context, plan.complex, lines, size_t(4 * m + 2),
      [&](const char* const* from, char* const* to, int count, A* buffer) {
        k.load(from, lines.from_step, half, false, buffer);
        k.join(buffer, roots, n);
        k.store_real(transform_loaded(plan.complex, buffer), to, count, lines.to_step, m, plan.pairs, scale);
      },
      [&](const char* from, char* to, A* memory, const ThreadScratch& scratch, bool alone) {
        A *x = memory + line_values(plan.complex), *z = x + 2 * m + 2;
        for (int64_t i = 0; i < half; ++i) {
          const A* value = reinterpret_cast<const A*>(from + i * lines.from_step);
          x[2 * i] = value[0], x[2 * i + 1] = value[1];
        }
        k.join_line(x, roots, n);
        transform_line(plan.complex, reinterpret_cast<const char*>(x), item, reinterpret_cast<char*>(z), item,
                       false, scale, memory, scratch, alone);
        // Real and imaginary parts are still exchanged.
        for (int64_t i = 0; i < n; ++i) at<A>(to, i, lines.to_step, 0) = z[plan.pairs ? i ^ 1 : 2 * i + 1];
      });
}

template <class A>
fl_status queue(const fl_launch* launch, const fl_fft_args* args, bool back) {
  const fl_tensor& real = back ? args->out : args->in;
  const int64_t n = real.ndim ? real.sizes[args->axis] : 1;
  return submit(launch, "fft",
                [plan = kept_plan<RealPlan<A>>(n), in = Tensor(args->in), out = Tensor(args->out),
                 axis = args->axis, back, scale = args->scale](Context& context) {
                  FftLines lines(in, out, axis);
                  if (back) inverse<A>(context, *plan, lines, A(scale));
                  else forward<A>(context, *plan, lines, A(scale));
                });
}

}  // namespace

fl_status fft_real(const fl_launch* launch, const fl_fft_args* args) {
  const bool back = args->inverse != 0;
  const fl_tensor &real = back ? args->out : args->in, &spectrum = back ? args->in : args->out;
  const bool single = real.dtype == FL_F32 && spectrum.dtype == FL_C64;
  if (!single && !(real.dtype == FL_F64 && spectrum.dtype == FL_C128)) return FL_UNSUPPORTED;
  const int64_t n = real.ndim ? real.sizes[args->axis] : 1,
                half = spectrum.ndim ? spectrum.sizes[args->axis] : 1;
  if (half != n / 2 + 1) {
    set_error("sim: fft of %lld real values has %lld complex ones, not %lld", static_cast<long long>(n),
              static_cast<long long>(n / 2 + 1), static_cast<long long>(half));
    return FL_INVALID;
  }
  return single ? queue<float>(launch, args, back) : queue<double>(launch, args, back);
}

}  // namespace sim
