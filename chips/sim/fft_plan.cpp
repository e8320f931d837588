#include "fft_plan.h"

#include <cmath>

namespace sim {
namespace {

constexpr size_t kBufferBytes = 512 << 10;  // of a group of lines: two of them stay in the second-level cache

constexpr double kTurn = 6.283185307179586476925286766559;

// exp(-2πi k/n), from an angle below an eighth of a turn.
void root(int64_t k, int64_t n, double* re, double* im) {
  k %= n;
  int64_t eighth = k * 8 / n, rest = k * 8 - eighth * n;  // k/n = (eighth + rest/n) / 8
  double angle = kTurn / 8 * (eighth & 1 ? double(n - rest) : double(rest)) / double(n);
  double c = std::cos(angle), s = std::sin(angle);
  switch (eighth) {
    case 0:
      *re = c, *im = -s;
      break;
    case 1:
      *re = s, *im = -c;
      break;
    case 2:
      *re = -s, *im = -c;
      break;
    case 3:
      *re = -c, *im = -s;
      break;
    case 4:
      *re = -c, *im = s;
      break;
    case 5:
      *re = -s, *im = c;
      break;
    case 6:
      *re = s, *im = c;
      break;
    default:
      *re = c, *im = s;
  }
}
// The factors of n as radices, large ones first; empty when one is too large.
std::vector<int64_t> radices_of(int64_t n) {
  std::vector<int64_t> found;
  for (int64_t p : {31, 29, 23, 19, 17, 13, 11, 7, 5, 3})
    while (n % p == 0) found.push_back(p), n /= p;
  while (n % 8 == 0 && n != 16) found.push_back(8), n /= 8;
  for (int64_t p : {4, 2})
    while (n % p == 0) found.push_back(p), n /= p;
  if (n != 1) found.clear();
  return found;
}
bool is_smooth(int64_t n) { return n == 1 || !radices_of(n).empty(); }

template <class A>
bool fits(int64_t n) {
  return size_t(n) * 2 * sizeof(A) * size_t(fft_kernels<A>().lanes) <= kBufferBytes;
}

template <class A>
void fill_twiddles(const FftPlan<A>& plan, int64_t rows, int64_t step, std::vector<A>& to) {
  to.assign(size_t(rows * 2 * plan.width), A(0));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < plan.n2; ++c) {
      A w[2];
      put_root(w, r * step * c, plan.n);
      to[size_t(2 * r * plan.width + c)] = w[0], to[size_t((2 * r + 1) * plan.width + c)] = w[1];
    }
}

// A length for convolutions: the smallest product of 2, 3 and 5 from `least` on.
int64_t convenient(int64_t least) {
  int64_t best = 1;
  while (best < least) best *= 2;
  for (int64_t five = 1; five < best; five *= 5)
    for (int64_t three = five; three < best; three *= 3) {
      int64_t n = three;
      while (n < least) n *= 2;
      best = std::min(best, n);
    }
  return best;
}

template <class A>
void plan_matrix(FftPlan<A>& plan) {
  int64_t side = int64_t(std::sqrt(double(plan.n)));
  while (side > 1 && plan.n % side) --side;
  if (side < 4) return;
  plan.n1 = plan.n / side, plan.n2 = side;
  if (plan.n2 < plan.n1 && plan.n1 <= 2 * plan.n2) std::swap(plan.n1, plan.n2);
  plan.columns = std::make_unique<Passes<A>>(plan.n1), plan.rows = std::make_unique<Passes<A>>(plan.n2);
  plan.width = (plan.n2 + kMaxFftLanes - 1) / kMaxFftLanes * kMaxFftLanes;
  plan.block = int64_t(std::sqrt(double(plan.n1))) + 1;
  fill_twiddles(plan, (plan.n1 + plan.block - 1) / plan.block, plan.block, plan.outer);
  fill_twiddles(plan, plan.block, 1, plan.inner);
}

// Where ThreadScratch is expected and one thread works.
template <class A>
struct OneBuffer {
  A* memory;
  template <class T>
  T* get() const {
    return memory;
  }
};

template <class F>
void maybe_parallel(bool parallel_too, int64_t n, int64_t grain, F&& f) {
  if (parallel_too) parallel(n, grain, f);
  else f(int64_t{0}, n);
}

// One line as a matrix; `between` holds n values.
template <class A, class Scratch>
void transform_matrix(const FftPlan<A>& plan, const char* from, int64_t from_step, char* to, int64_t to_step,
                      bool swap, A scale, A* between, const Scratch& scratch, bool alone) {
  const FftKernels<A>& k = fft_kernels<A>();
  const int64_t n1 = plan.n1, n2 = plan.n2, value = 2 * k.lanes, item = 2 * sizeof(A);
  char* middle = reinterpret_cast<char*>(between);
  auto groups = [&](int64_t n) { return (n + k.lanes - 1) / k.lanes; };
  auto each = [&](const Passes<A>& passes, int64_t lines, auto&& source, int64_t source_step, auto&& target,
                  int64_t target_step, bool first) {
    maybe_parallel(
        alone, groups(lines), std::max<int64_t>(1, kFftGrain / (passes.n * k.lanes)),
        [&](int64_t begin, int64_t end) {
          A* x = scratch.template get<A>();
          const char* in[kMaxFftLanes];
          char* out[kMaxFftLanes];
          for (int64_t g = begin; g < end; ++g) {
            int64_t at = g * k.lanes;
            int count = int(std::min<int64_t>(k.lanes, lines - at));
            for (int l = 0; l < k.lanes; ++l)
              in[l] = source(at + (l < count ? l : 0)), out[l] = target(at + (l < count ? l : 0));
            k.load(in, source_step, passes.n, first && swap, x);
            A* result = k.transform(passes.passes.data(), int(passes.passes.size()), x, x + passes.n * value);
            if (first)
              k.twiddle(result, n1, plan.block, &plan.outer[size_t(at)], &plan.inner[size_t(at)], plan.width);
            k.store(result, out, count, target_step, passes.n, !first && swap, first ? A(1) : scale);
          }
        });
  };
  each(
      *plan.columns, n2, [&](int64_t c) { return from + c * from_step; }, n2 * from_step,
      [&](int64_t c) { return middle + c * item; }, n2 * item, true);
  each(
      *plan.rows, n1, [&](int64_t r) { return middle + r * n2 * item; }, item,
      [&](int64_t r) { return to + r * to_step; }, n1 * to_step, false);
}

}  // namespace

template <class A>
void put_root(A* to, int64_t k, int64_t n) {
  double re, im;
  root(k, n, &re, &im);
  to[0] = A(re), to[1] = A(im);
}

template <class A>
Passes<A>::Passes(int64_t length) : n(length) {
  std::vector<int64_t> radices = radices_of(n);
  size_t total = 0;
  int64_t rest = n;
  for (int64_t r : radices) rest /= r, total += size_t(2 * (rest * (r - 1) + r));
  numbers.resize(total);
  A* to = numbers.data();
  int64_t stride = 1;
  rest = n;
  for (int64_t r : radices) {
    const int64_t m = rest / r;
    FftPass<A> pass{r, m, stride, to, nullptr};
    for (int64_t p = 0; p < m; ++p)
      for (int64_t j = 1; j < r; ++j, to += 2) put_root(to, p * j, rest);
    pass.roots = to;
    for (int64_t j = 0; j < r; ++j, to += 2) put_root(to, j, r);
    passes.push_back(pass);
    stride *= r, rest = m;
  }
}

template <class A>
size_t scratch_bytes(const FftPlan<A>& plan) {
  auto buffers = [](const std::unique_ptr<Passes<A>>& passes) {
    return passes ? size_t(4 * passes->n + 2) * sizeof(A) * size_t(fft_kernels<A>().lanes) : 0;
  };
  size_t most = std::max({buffers(plan.whole), buffers(plan.columns), buffers(plan.rows)});
  return plan.convolution ? std::max(most, scratch_bytes(*plan.convolution)) : most;
}

template <class A>
A* transform_loaded(const FftPlan<A>& plan, A* x) {
  const FftKernels<A>& k = fft_kernels<A>();
  const int64_t value = 2 * k.lanes;
  if (plan.whole)
    return k.transform(plan.whole->passes.data(), int(plan.whole->passes.size()), x, x + plan.n * value);
  const Passes<A>& passes = *plan.convolution->whole;
  const int n_passes = int(passes.passes.size());
  A* y = x + plan.padded * value;
  k.multiply(x, plan.chirp.data(), plan.n);
  std::fill(x + plan.n * value, x + plan.padded * value, A(0));
  A* result = k.transform(passes.passes.data(), n_passes, x, y);
  k.multiply(result, plan.spectrum.data(), plan.padded);
  // The inverse: real and imaginary parts change places before and after.
  auto exchange = [&](A* values, int64_t n) {
    for (int64_t i = 0; i < n; ++i, values += value)
      std::swap_ranges(values, values + k.lanes, values + k.lanes);
  };
  exchange(result, plan.padded);
  result = k.transform(passes.passes.data(), n_passes, result, result == x ? y : x);
  exchange(result, plan.n);
  k.multiply(result, plan.chirp.data(), plan.n);
  return result;
}

namespace {

template <class A>
void plan_convolution(FftPlan<A>& plan) {
  const int64_t n = plan.n, m = plan.padded = convenient(2 * n - 1);
  plan.convolution = std::make_shared<const FftPlan<A>>(m);
  plan.chirp.resize(size_t(2 * n));
  // exp(-πi k²/n)
  for (int64_t k = 0, square = 0; k < n; square = (square + 2 * k + 1) % (2 * n), ++k)
    put_root(&plan.chirp[size_t(2 * k)], square, 2 * n);
  std::vector<A> filter(size_t(2 * m), A(0));
  for (int64_t k = 0; k < n; ++k)
    for (int64_t at : {k, (m - k) % m}) {
      filter[size_t(2 * at)] = plan.chirp[size_t(2 * k)];
      filter[size_t(2 * at + 1)] = -plan.chirp[size_t(2 * k + 1)];
    }
  plan.spectrum.resize(size_t(2 * m));
  std::vector<A> memory(plan.convolution->columns ? size_t(2 * m) : 0),
      buffer(scratch_bytes(*plan.convolution) / sizeof(A));
  const OneBuffer<A> scratch{buffer.data()};
  const char* from = reinterpret_cast<const char*>(filter.data());
  char* to = reinterpret_cast<char*>(plan.spectrum.data());
  constexpr int64_t item = 2 * sizeof(A);
  if (plan.convolution->columns) {
    transform_matrix(*plan.convolution, from, item, to, item, false, A(1) / A(m), memory.data(), scratch,
                     false);
  } else {
    const FftKernels<A>& k = fft_kernels<A>();
    const char* lines[kMaxFftLanes];
    std::fill(lines, lines + kMaxFftLanes, from);
    k.load(lines, item, m, false, buffer.data());
    k.store(transform_loaded(*plan.convolution, buffer.data()), &to, 1, item, m, false, A(1) / A(m));
  }
}

}  // namespace

template <class A>
FftPlan<A>::FftPlan(int64_t length) : n(length) {
  if (!is_smooth(n)) {
    plan_convolution(*this);
    return;
  }
  if (n >= 256) plan_matrix(*this);
  if (fits<A>(n) || !columns) whole = std::make_unique<Passes<A>>(n);
}

template <class A>
void transform_line(const FftPlan<A>& plan, const char* from, int64_t from_step, char* to, int64_t to_step,
                    bool swap, A scale, A* memory, const ThreadScratch& scratch, bool alone) {
  if (!plan.convolution) {
    transform_matrix(plan, from, from_step, to, to_step, swap, scale, memory, scratch, alone);
    return;
  }
  const FftKernels<A>& k = fft_kernels<A>();
  const int64_t n = plan.n, m = plan.padded, item = 2 * sizeof(A);
  const int re = swap ? 1 : 0;
  A *x = memory, *y = x + 2 * m, *between = y + 2 * m;
  for (int64_t i = 0; i < n; ++i) {
    const A* value = reinterpret_cast<const A*>(from + i * from_step);
    x[2 * i] = value[re], x[2 * i + 1] = value[1 - re];
  }
  std::fill(x + 2 * n, x + 2 * m, A(0));
  k.multiply_line(x, plan.chirp.data(), x, n, A(1));
  auto pass = [&](A* in, A* out, bool inverse) {
    transform_matrix(*plan.convolution, reinterpret_cast<const char*>(in), item, reinterpret_cast<char*>(out),
                     item, inverse, A(1), between, scratch, alone);
  };
  pass(x, y, false);
  k.multiply_line(y, plan.spectrum.data(), y, m, A(1));
  pass(y, x, true);
  k.multiply_line(x, plan.chirp.data(), x, n, scale);
  for (int64_t i = 0; i < n; ++i) {
    A* value = reinterpret_cast<A*>(to + i * to_step);
    value[re] = x[2 * i], value[1 - re] = x[2 * i + 1];
  }
}

#define SIM_FFT_PLAN_OF(A)                                                                           \
  template void put_root(A*, int64_t, int64_t);                                                      \
  template struct Passes<A>;                                                                         \
  template struct FftPlan<A>;                                                                        \
  template size_t scratch_bytes(const FftPlan<A>&);                                                  \
  template A* transform_loaded(const FftPlan<A>&, A*);                                               \
  template void transform_line(const FftPlan<A>&, const char*, int64_t, char*, int64_t, bool, A, A*, \
                               const ThreadScratch&, bool);
SIM_FFT_PLAN_OF(float)
SIM_FFT_PLAN_OF(double)

}  // namespace sim
