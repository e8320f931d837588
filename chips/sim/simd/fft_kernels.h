// Fourier transforms of several lines side by side: one line a lane, so that
// every butterfly of any radix is whole vectors.
//
// A buffer holds n values; a value is the real parts of all lanes, then the
// imaginary parts.
#pragma once

#include <cstdint>

#include "simd/isa.h"

namespace sim {

constexpr int kMaxFftLanes = 16;
constexpr int kMaxFftRadix = 31;  // prime factors beyond it go another way (fft.cpp)

// One pass of Stockham's algorithm, decimation in frequency: n = radix × m values
// remain, `stride` transforms lie interleaved.
template <class A>
struct FftPass {
  int64_t radix, m, stride;
  const A* twiddles;  // [m][radix - 1] complex: exp(-2πi p j / (radix m))
  const A* roots;     // [radix] complex: exp(-2πi j / radix)
};

template <class A>
struct FftKernels {
  int lanes;
  // A line a lane: value i of lane l is at lines[l] + i × step.  `swap` exchanges
  // real and imaginary parts, which makes the inverse of a forward transform.
  void (*load)(const char* const* lines, int64_t step, int64_t n, bool swap, A* to);
  // The first `count` lanes, times scale.
  void (*store)(const A* from, char* const* lines, int count, int64_t step, int64_t n, bool swap, A scale);
  // Real lines: value i of the buffer is numbers 2i and 2i + 1 of the line (`pairs`), or number i and 0.
  void (*load_real)(const char* const* lines, int64_t step, int64_t n, bool pairs, A* to);
  // Numbers 2i and 2i + 1 of the line are the imaginary and the real part of value i, or i is the imaginary
  // one.
  void (*store_real)(const A* from, char* const* lines, int count, int64_t step, int64_t n, bool pairs,
                     A scale);
  // The spectrum of real lines, twice over, from that of their pairs (fft_real.cpp): n values become n + 1.
  void (*split)(A* x, const A* roots, int64_t n);
  // From n/2 + 1 values of the spectrum of n real numbers to what is transformed back: n/2 values (n even) or
  // n, real and imaginary parts exchanged.
  void (*join)(A* x, const A* roots, int64_t n);
  // The same of one line of plain complex numbers.
  void (*split_line)(A* x, const A* roots, int64_t n);
  void (*join_line)(A* x, const A* roots, int64_t n);
  // Returns which of the two buffers has the result; x is the input.
  A* (*transform)(const FftPass<A>* passes, int n_passes, A* x, A* y);
  // x[i] *= factors[i], one complex factor for all lanes.
  void (*multiply)(A* x, const A* factors, int64_t n);
  // x[a × block + b] *= outer[a] × inner[b]; a factor a lane, whose real and
  // imaginary parts are `width` apart; rows are 2 × width apart.
  void (*twiddle)(A* x, int64_t n, int64_t block, const A* outer, const A* inner, int64_t width);
  // to[i] = from[i] × factors[i] × scale on plain complex numbers.
  void (*multiply_line)(const A* from, const A* factors, A* to, int64_t n, A scale);
};

#define SIM_FFT_KERNELS_OF(A) const FftKernels<A>& fft_kernels(A)
SIM_DECLARE_LEVELS(SIM_FFT_KERNELS_OF(float); SIM_FFT_KERNELS_OF(double))

template <class A>
const FftKernels<A>& fft_kernels() {
  static const FftKernels<A>& kernels = SIM_CHOOSE(fft_kernels(A()));
  return kernels;
}

}  // namespace sim
