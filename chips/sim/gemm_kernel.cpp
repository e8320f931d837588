#include "gemm_kernel.h"

#include <utility>

#include "simd/isa.h"

namespace sim {
namespace {

template <class T, int Bytes>
struct Vector {
  typedef T type __attribute__((vector_size(Bytes), aligned(sizeof(T)), may_alias));
};

template <class T, int Bytes, int Rows, int Vectors>
[[gnu::always_inline]] inline void multiply(int64_t k, const T* a, int64_t a_row, int64_t a_col, const T* b,
                                            int64_t b_row, T* c, int64_t c_row, bool accumulate) {
  using V = typename Vector<T, Bytes>::type;
  constexpr int kLanes = Bytes / sizeof(T);
  V sum[Rows][Vectors] = {};
  for (int64_t p = 0; p < k; ++p) {
    V row[Vectors];
    for (int j = 0; j < Vectors; ++j) row[j] = *reinterpret_cast<const V*>(b + p * b_row + j * kLanes);
    for (int i = 0; i < Rows; ++i) {
      T x = a[i * a_row + p * a_col];
      for (int j = 0; j < Vectors; ++j) sum[i][j] += x * row[j];
    }
  }
  for (int i = 0; i < Rows; ++i) {
    for (int j = 0; j < Vectors; ++j) {
      V* to = reinterpret_cast<V*>(c + i * c_row + j * kLanes);
      *to = accumulate ? *to + sum[i][j] : sum[i][j];
    }
  }
}

#define SIM_KERNEL(suffix, attribute, bytes)                                                             \
  template <class T, int Rows, int Vectors>                                                              \
  attribute void multiply_##suffix(int64_t k, const T* a, int64_t a_row, int64_t a_col, const T* b,      \
                                   int64_t b_row, T* c, int64_t c_row, bool accumulate) {                \
    multiply<T, bytes, Rows, Vectors>(k, a, a_row, a_col, b, b_row, c, c_row, accumulate);               \
  }                                                                                                      \
  template <class T, int Vectors, int... R>                                                              \
  void fill_##suffix(MicroKernel<T>& kernel, std::integer_sequence<int, R...>) {                         \
    ((kernel.run[Vectors - 1][R] = multiply_##suffix<T, R + 1, Vectors>), ...);                          \
  }                                                                                                      \
  template <class T, int... V>                                                                           \
  MicroKernel<T> make_##suffix(std::integer_sequence<int, V...>) {                                       \
    MicroKernel<T> kernel = {bytes / sizeof(T), sizeof...(V), {}};                                       \
    (fill_##suffix<T, V + 1>(kernel, std::make_integer_sequence<int, MicroKernel<T>::kMaxRows>()), ...); \
    return kernel;                                                                                       \
  }

SIM_KERNEL(128, , 16)
#if defined(SIM_X86_LEVELS)
SIM_KERNEL(256, __attribute__((target("arch=x86-64-v3"))), 32)
SIM_KERNEL(512, __attribute__((target("arch=x86-64-v4"))), 64)
#endif

}  // namespace

template <class T>
const MicroKernel<T>& micro_kernel() {
  // 6 rows of 4 vectors fill the 32 registers of AVX-512; 6 of 2 the 16 of the others.
  static const MicroKernel<T> kernel = [] {
#if defined(SIM_X86_LEVELS)
    if (isa() == Isa::avx512) return make_512<T>(std::make_integer_sequence<int, 4>());
    if (isa() == Isa::avx2) return make_256<T>(std::make_integer_sequence<int, 2>());
#endif
    return make_128<T>(std::make_integer_sequence<int, 2>());
  }();
  return kernel;
}

template const MicroKernel<float>& micro_kernel<float>();
template const MicroKernel<double>& micro_kernel<double>();
template const MicroKernel<uint64_t>& micro_kernel<uint64_t>();

}  // namespace sim
