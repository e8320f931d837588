#include "simd/vector_matrix.h"

#include "simd/half.h"

namespace sim::SIM_ISA {
namespace {

// A vector of the numbers at p, in the type that they are added in.
SIM_INLINE Vec<float> take(const float* p) { return load(p); }
SIM_INLINE Vec<double> take(const double* p) { return load(p); }
SIM_INLINE Vec<float> take(const BFloat* p) {
  typedef uint16_t Short __attribute__((vector_size(SIM_VECTOR_BYTES / 2)));
  Short bits;
  std::memcpy(&bits, p, sizeof bits);
  return bit_cast<Vec<float>>(__builtin_convertvector(bits, Vec<uint32_t>) << 16);
}
SIM_INLINE Vec<float> take(const Half* p) {
#if defined(__AVX512F__)
  return Vec<float>(_mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
#elif defined(__F16C__)
  return Vec<float>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#else
  Vec<float> v;
  for (int i = 0; i < lanes<float>; ++i) v[i] = to_float(p[i]);
  return v;
#endif
}
SIM_INLINE float single(float x) { return x; }
SIM_INLINE double single(double x) { return x; }
SIM_INLINE float single(BFloat x) { return to_float(x); }
SIM_INLINE float single(Half x) { return to_float(x); }

// C columns at once: so many sums are under way.
template <class A, class S, int C>
SIM_INLINE void dots(int64_t k, const A* x, const char* b, int64_t step, A* out) {
  constexpr int L = lanes<A>;
  const S* column[C];
  Vec<A> sum[C] = {};
  for (int c = 0; c < C; ++c) column[c] = reinterpret_cast<const S*>(b + c * step);
  int64_t p = 0;
  for (; p + L <= k; p += L) {
    const Vec<A> v = load(x + p);
    for (int c = 0; c < C; ++c) sum[c] += v * take(column[c] + p);
  }
  for (int c = 0; c < C; ++c) {
    A rest = add_lanes<A>(sum[c]);
    for (int64_t q = p; q < k; ++q) rest += x[q] * A(single(column[c][q]));
    out[c] = rest;
  }
}
template <class A, class S>
void by_columns(int64_t n, int64_t k, const void* x, const char* b, int64_t step, void* out_) {
  A* out = static_cast<A*>(out_);
  int64_t j = 0;
  for (; j + 8 <= n; j += 8) dots<A, S, 8>(k, static_cast<const A*>(x), b + j * step, step, out + j);
  for (; j < n; ++j) dots<A, S, 1>(k, static_cast<const A*>(x), b + j * step, step, out + j);
}

// R rows at once: their sum is added to out in one pass over it.
template <class A, class S, int R>
SIM_INLINE void add_rows(int64_t n, const A* x, const char* b, int64_t step, A* out, bool first) {
  constexpr int L = lanes<A>;
  const S* row[R];
  for (int r = 0; r < R; ++r) row[r] = reinterpret_cast<const S*>(b + r * step);
  int64_t j = 0;
  for (; j + L <= n; j += L) {
    Vec<A> sum = first ? Vec<A>{} : load(out + j);
    for (int r = 0; r < R; ++r) sum += x[r] * take(row[r] + j);
    store(out + j, sum);
  }
  for (; j < n; ++j) {
    A sum = first ? A(0) : out[j];
    for (int r = 0; r < R; ++r) sum += x[r] * A(single(row[r][j]));
    out[j] = sum;
  }
}
template <class A, class S>
void by_rows(int64_t n, int64_t k, const void* x_, const char* b, int64_t step, void* out) {
  auto* x = static_cast<const A*>(x_);
  int64_t p = 0;
  for (; p + 8 <= k; p += 8) add_rows<A, S, 8>(n, x + p, b + p * step, step, static_cast<A*>(out), p == 0);
  for (; p < k; ++p) add_rows<A, S, 1>(n, x + p, b + p * step, step, static_cast<A*>(out), p == 0);
}

template <class A, class S>
constexpr void add(VectorMatrixKernels& k, int dtype) {
  k.by_rows[dtype] = by_rows<A, S>;
  k.by_columns[dtype] = by_columns<A, S>;
}

constexpr VectorMatrixKernels kKernels = [] {
  VectorMatrixKernels k;
  add<float, float>(k, FL_F32);
  add<double, double>(k, FL_F64);
  add<float, Half>(k, FL_F16);
  add<float, BFloat>(k, FL_BF16);
  return k;
}();

}  // namespace

const VectorMatrixKernels& vector_matrix_kernels() { return kKernels; }

}  // namespace sim::SIM_ISA
