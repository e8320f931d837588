// Register-blocked matrix kernels and the conversions around them: what gemm,
// convolution and attention compute with where oneDNN has no kernel (F64,
// integers, complex) or costs more than the work (small matrices).
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "fl/chip.h"

// One body, three instruction sets; the loader picks, by a function of the compiler's that runs before the
// library is relocated. ThreadSanitizer would instrument that function too, with a call that leads nowhere
// yet; Clang clones no templates.
#if defined(SIM_X86_LEVELS) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define SIM_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define SIM_CLONES
#endif

namespace sim {

using f16 = _Float16;

struct bf16 {
  uint16_t bits;
  bf16() = default;
  explicit bf16(float f) {
    uint32_t u = std::bit_cast<uint32_t>(f);
    uint32_t rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    bits = static_cast<uint16_t>((u & 0x7fffffff) > 0x7f800000 ? (u >> 16 | 0x40) : rounded);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
  explicit operator double() const { return static_cast<float>(*this); }
};

// f(a value of the float dtype, one of what it is computed in).
template <class F>
void with_float_types(uint8_t dtype, F&& f) {
  switch (dtype) {
    case FL_F16:
      return f(f16(), float());
    case FL_BF16:
      return f(bf16(), float());
    case FL_F32:
      return f(float(), float());
    default:
      return f(double(), double());
  }
}

// c[rows × width] = a·b, or c += a·b.  a is read at a[i × a_row + p × a_col];
// b's rows and c's rows are b_row and c_row apart and `width` wide.
template <class T>
using MicroKernelFn = void (*)(int64_t k, const T* a, int64_t a_row, int64_t a_col, const T* b, int64_t b_row,
                               T* c, int64_t c_row, bool accumulate);

template <class T>
struct MicroKernel {
  static constexpr int kMaxRows = 6;
  int lanes;                          // elements of a vector
  int vectors;                        // the widest kernel has lanes × vectors columns
  MicroKernelFn<T> run[4][kMaxRows];  // [vectors - 1][rows - 1]

  int width() const { return lanes * vectors; }
  int64_t padded(int64_t n) const { return (n + lanes - 1) / lanes * lanes; }
};

// The best one for this processor.  T: float, double, uint64_t.
template <class T>
const MicroKernel<T>& micro_kernel();

// c[m × n] (+)= a·b with b row-major and readable, and c writable, up to
// padded(n) columns.  One thread, no packing: for blocks that fit the caches.
template <class T>
void block_multiply(int64_t m, int64_t n, int64_t k, const T* a, int64_t a_row, int64_t a_col, const T* b,
                    int64_t b_row, T* c, int64_t c_row, bool accumulate) {
  const MicroKernel<T>& kernel = micro_kernel<T>();
  for (int64_t j = 0; j < n; j += kernel.width()) {
    int64_t left = (n - j + kernel.lanes - 1) / kernel.lanes;
    const auto* run = kernel.run[(left < kernel.vectors ? left : kernel.vectors) - 1];
    for (int64_t i = 0; i < m; i += kernel.kMaxRows) {
      int64_t rows = m - i < kernel.kMaxRows ? m - i : kernel.kMaxRows;
      run[rows - 1](k, a + i * a_row, a_row, a_col, b + j, b_row, c + i * c_row + j, c_row, accumulate);
    }
  }
}

// n elements, `from` with a stride in elements, to a contiguous row.
template <class To, class From>
SIM_CLONES void load_row(To* to, const From* from, int64_t stride, int64_t n) {
  if (stride == 1) {
    if constexpr (std::is_same_v<To, From>) {
      std::memcpy(to, from, n * sizeof(To));
    } else {
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<To>(from[i]);
    }
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<To>(from[i * stride]);
  }
}

template <class To, class From>
SIM_CLONES void store_row(To* to, int64_t stride, const From* from, int64_t n) {
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<To>(from[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i * stride] = static_cast<To>(from[i]);
  }
}

// to[r × to_row + c] = from[c × from_column + r × from_row]: rows × columns, in
// squares, so that neither side thrashes the cache.
template <class To, class From>
SIM_CLONES void load_transposed(To* to, int64_t to_row, const From* from, int64_t from_row,
                                int64_t from_column, int64_t rows, int64_t columns) {
  for (int64_t r0 = 0; r0 < rows; r0 += 16) {
    int64_t r1 = r0 + 16 < rows ? r0 + 16 : rows;
    for (int64_t c = 0; c < columns; ++c) {
      const From* f = from + c * from_column;
      for (int64_t r = r0; r < r1; ++r) to[r * to_row + c] = static_cast<To>(f[r * from_row]);
    }
  }
}

}  // namespace sim
