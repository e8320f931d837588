// How a length is transformed, and the transforms of one group of lines or of one long line.
//
// Short lines are transformed `lanes` at a time (simd/fft_kernels.h).  A long
// one, or one of few, is a matrix of n1 × n2 values: its columns are
// transformed, multiplied by twiddles, then its rows, and both are again lines
// side by side.  A length with a large prime factor becomes a convolution
// (Bluestein) of a length without.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "fl/author/space.h"
#include "rows.h"
#include "simd/fft_kernels.h"

namespace sim {

constexpr int64_t kFftGrain = 8192;  // values worth a thread

// to[0], to[1] = exp(-2πi k/n)
template <class A>
void put_root(A* to, int64_t k, int64_t n);

// The passes of a length without large prime factors.
template <class A>
struct Passes {
  int64_t n;
  std::vector<A> numbers;
  std::vector<FftPass<A>> passes;

  explicit Passes(int64_t length);
};

// How a length is transformed.
template <class A>
struct FftPlan {
  int64_t n;
  explicit FftPlan(int64_t length);
  std::unique_ptr<Passes<A>> whole;  // lines side by side

  // As a matrix: columns of length n1, rows of length n2.  The twiddle of (k, c) is
  // outer[k / block][c] × inner[k % block][c]; rows of real, then imaginary parts.
  std::unique_ptr<Passes<A>> columns, rows;
  int64_t n1 = 0, n2 = 0, width = 0, block = 0;
  std::vector<A> outer, inner;

  // As a convolution of length `padded`.
  std::shared_ptr<const FftPlan> convolution;
  int64_t padded = 0;
  std::vector<A> chirp, spectrum;
};

// Plan(n), of which the latest few are kept.
template <class Plan>
std::shared_ptr<const Plan> kept_plan(int64_t n) {
  constexpr size_t kPlans = 64;
  static std::mutex mutex;
  static auto& plans = *new std::list<std::shared_ptr<const Plan>>;  // the latest first
  std::lock_guard<std::mutex> guard(mutex);
  for (auto i = plans.begin(); i != plans.end(); ++i)
    if ((*i)->n == n) {
      plans.splice(plans.begin(), plans, i);
      return plans.front();
    }
  plans.push_front(std::make_shared<const Plan>(n));
  if (plans.size() > kPlans) plans.pop_back();
  return plans.front();
}

// Of one thread: what a group of lines needs.
template <class A>
size_t scratch_bytes(const FftPlan<A>& plan);

// The forward transforms of the `lanes` lines at the start of `buffer`, in the kernels' order.  Where in
// `buffer` the result is; behind the last value there is room for one more.
template <class A>
A* transform_loaded(const FftPlan<A>& plan, A* buffer);

// How many values of A transform_line needs as `memory`.
template <class A>
size_t line_values(const FftPlan<A>& plan) {
  return size_t(plan.convolution ? 3 * plan.padded : plan.n) * 2;
}
// One line of complex values between its addresses.  `swap` exchanges real and imaginary parts before and
// after, which makes the inverse.  `alone`: the threads share the line; else the caller is one of them.
template <class A>
void transform_line(const FftPlan<A>& plan, const char* from, int64_t from_step, char* to, int64_t to_step,
                    bool swap, A scale, A* memory, const ThreadScratch& scratch, bool alone);

// The lines of two tensors along the axis; their sizes are the same but for the axis.
struct FftLines {
  const char* in;
  char* out;
  Space<2> space{2};
  int64_t from_step = 0, to_step = 0;

  FftLines(const Tensor& from, const Tensor& to, int axis) : in(from.data), out(to.data) {
    for (int d = 0; d < from.ndim; ++d) {
      if (d == axis) {
        from_step = byte_stride(from, d), to_step = byte_stride(to, d);
        continue;
      }
      int64_t* s = space.push(from.sizes[d]);
      s[0] = byte_stride(from, d), s[1] = byte_stride(to, d);
    }
    space.sort(0), space.merge();
  }
};

// Calls group(from, to, count, buffer) for up to `lanes` lines at a time, from[0 … lanes-1] all readable, or
// one(from, to, memory, scratch, alone) for each line: line_values(plan) + more values of A.
template <class A, class Group, class One>
void each_line(Context& context, const FftPlan<A>& plan, const FftLines& lines, size_t more, Group&& group,
               One&& one) {
  const int lanes = fft_kernels<A>().lanes;
  const int64_t count = lines.space.points();
  const FftPlan<A>& work = plan.convolution ? *plan.convolution : plan;
  const ThreadScratch scratch(context, scratch_bytes(plan));
  if (!work.columns || (work.whole && count * 2 > lanes)) {
    parallel((count + lanes - 1) / lanes, std::max<int64_t>(1, kFftGrain / (work.n * lanes)),
             [&](int64_t begin, int64_t end) {
               Cursor<2> cursor(lines.space, begin * lanes);
               const char* from[kMaxFftLanes];
               char* to[kMaxFftLanes];
               for (int64_t g = begin; g < end; ++g) {
                 const int n = int(std::min<int64_t>(lanes, count - g * lanes));
                 for (int l = 0; l < n; ++l, cursor.advance(1))
                   from[l] = lines.in + cursor.offset[0], to[l] = lines.out + cursor.offset[1];
                 for (int l = n; l < lanes; ++l) from[l] = from[0];
                 group(from, to, n, scratch.get<A>());
               }
             });
    return;
  }
  const bool alone = count < omp_get_max_threads();  // then the threads share each line
  const size_t values = line_values(plan) + more;
  auto each = [&](int64_t begin, int64_t end, A* memory) {
    Cursor<2> cursor(lines.space, begin);
    for (int64_t i = begin; i < end; ++i, cursor.advance(1))
      one(lines.in + cursor.offset[0], lines.out + cursor.offset[1], memory, scratch, alone);
  };
  if (alone) {
    each(0, count, static_cast<A*>(context.scratch(values * sizeof(A))));
  } else {
    const ThreadScratch memory(context, values * sizeof(A));
    parallel(count, 1, [&](int64_t begin, int64_t end) { each(begin, end, memory.get<A>()); });
  }
}

}  // namespace sim
