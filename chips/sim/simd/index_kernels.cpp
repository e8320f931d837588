#include "simd/index_kernels.h"

#include <type_traits>

#include "fl/ops.h"
#include "simd/half.h"

namespace sim::SIM_ISA {
namespace {

template <class I, bool contiguous>
int64_t resolve_run(const char* index, int64_t stride, int64_t n, int64_t size, int64_t step, bool wrap,
                    int64_t* offsets) {
  const int64_t low = wrap ? -size : 0, span = size - low;
  uint64_t bad = 0;  // as wide as the indices, or the loop is not vectorised
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) {
    int64_t i = take<I>(index + (contiguous ? j * int64_t(sizeof(I)) : j * stride));
    bad |= uint64_t(i) - uint64_t(low) >= uint64_t(span) ? 1 : 0;
    i += i < 0 ? size : 0;
    offsets[j] += int64_t(uint64_t(i) * uint64_t(step));
  }
  if (!bad) return n;
  for (int64_t j = 0;; ++j)
    if (uint64_t(int64_t(take<I>(index + j * stride))) - uint64_t(low) >= uint64_t(span)) return j;
}
template <class I>
int64_t resolve(const char* index, int64_t stride, int64_t n, int64_t size, int64_t step, bool wrap,
                int64_t* offsets) {
  return stride == sizeof(I) ? resolve_run<I, true>(index, stride, n, size, step, wrap, offsets)
                             : resolve_run<I, false>(index, stride, n, size, step, wrap, offsets);
}

struct Bytes16 {
  uint64_t a, b;
};
// memcpy comes to the processor's string copy, which on some takes ten times as long when the two sides lie a
// few bytes apart within their pages; vectors do not.  The sides are the same or do not overlap.
SIM_INLINE void copy_bytes(char* to, const char* from, int64_t bytes) {
  constexpr int64_t V = SIM_VECTOR_BYTES;
  auto at = [&](int64_t i) { return load(reinterpret_cast<const uint8_t*>(from + i)); };
  auto put_at = [&](int64_t i, Vec<uint8_t> v) { store(reinterpret_cast<uint8_t*>(to + i), v); };
  if (bytes < V) {
    for (int64_t i = 0; i < bytes; ++i) to[i] = from[i];
    return;
  }
  const Vec<uint8_t> last = at(bytes - V);
  int64_t i = 0;
  if (bytes >= 16 * V) {
    // A store across two cache lines costs two.
    const auto first = at(0);
    put_at(0, first);
    i = V - int64_t(reinterpret_cast<uintptr_t>(to) & uintptr_t(V - 1));
  }
  for (; i + 4 * V <= bytes; i += 4 * V) {
    const auto a = at(i), b = at(i + V), c = at(i + 2 * V), d = at(i + 3 * V);
    put_at(i, a), put_at(i + V, b), put_at(i + 2 * V, c), put_at(i + 3 * V, d);
  }
  for (; i + V <= bytes; i += V) put_at(i, at(i));
  put_at(bytes - V, last);
}
template <class T>
void move(char* to, int64_t to_stride, const char* from, int64_t from_stride, const int64_t* to_offsets,
          const int64_t* from_offsets, int64_t n) {
  constexpr int64_t size = sizeof(T);
  if (from_offsets) {
    if (from_stride == 0 && to_stride == size) {
#pragma GCC unroll 8
      for (int64_t j = 0; j < n; ++j) put(to + j * size, take<T>(from + from_offsets[j]));
    } else {
      for (int64_t j = 0; j < n; ++j)
        put(to + j * to_stride, take<T>(from + j * from_stride + from_offsets[j]));
    }
  } else if (to_offsets) {
    for (int64_t j = 0; j < n; ++j) put(to + j * to_stride + to_offsets[j], take<T>(from + j * from_stride));
  } else if (to_stride == size && from_stride == size) {
    if (n * size >= SIM_VECTOR_BYTES) copy_bytes(to, from, n * size);
    else
      for (int64_t j = 0; j < n; ++j) put(to + j * size, take<T>(from + j * size));
  } else if (to_stride == size && from_stride == 0) {
    const T value = take<T>(from);
    for (int64_t j = 0; j < n; ++j) put(to + j * size, value);
  } else if (to_stride == size && from_stride == -size) {
    T* __restrict t = reinterpret_cast<T*>(to);
    const T* __restrict f = reinterpret_cast<const T*>(from);
    for (int64_t j = 0; j < n; ++j) t[j] = f[-j];
  } else {
    for (int64_t j = 0; j < n; ++j) put(to + j * to_stride, take<T>(from + j * from_stride));
  }
}

template <class T>
void move_all_rows(char* to, int64_t to_row, int64_t to_stride, const char* from, int64_t from_row,
                   int64_t from_stride, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r, to += to_row, from += from_row)
    move<T>(to, to_stride, from, from_stride, nullptr, nullptr, n);
}

struct Bool {
  uint8_t bits;
};
template <class T>
struct Complex {
  T re, im;
};
template <class T>
constexpr bool is_complex = std::is_same_v<T, Complex<float>> || std::is_same_v<T, Complex<double>>;
template <class T>
constexpr bool is_half = std::is_same_v<T, Half> || std::is_same_v<T, BFloat>;

template <int mode, class T>
SIM_INLINE T combine(T a, T b) {
  if constexpr (is_half<T>) {
    float r = combine<mode>(to_float(a), to_float(b));
    if constexpr (std::is_same_v<T, Half>) return to_half(r);
    else return to_bfloat(r);
  } else if constexpr (std::is_same_v<T, Bool>) {
    bool x = a.bits != 0, y = b.bits != 0;
    return {uint8_t(mode == FL_SCATTER_ADD || mode == FL_SCATTER_MAX ? x | y : x & y)};
  } else if constexpr (is_complex<T>) {
    if constexpr (mode == FL_SCATTER_ADD) return {a.re + b.re, a.im + b.im};
    else return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  } else if constexpr (std::is_integral_v<T> && mode == FL_SCATTER_ADD) {
    return T(uint64_t(a) + uint64_t(b));
  } else if constexpr (std::is_integral_v<T> && mode == FL_SCATTER_MUL) {
    return T(uint64_t(a) * uint64_t(b));
  } else if constexpr (mode == FL_SCATTER_ADD) {
    return a + b;
  } else if constexpr (mode == FL_SCATTER_MUL) {
    return a * b;
  } else if constexpr (mode == FL_SCATTER_MIN) {
    return ((b < a) | (b != b)) ? b : a;
  } else {
    return ((b > a) | (b != b)) ? b : a;
  }
}

template <int mode, class T>
void combine_all(char* to, int64_t to_stride, const char* from, int64_t from_stride,
                 const int64_t* to_offsets, const int64_t*, int64_t n) {
  constexpr int64_t size = sizeof(T);
  if (to_offsets && to_stride == 0 && from_stride == size) {
    for (int64_t j = 0; j < n; ++j) {
      char* p = to + to_offsets[j];
      put(p, combine<mode>(take<T>(p), take<T>(from + j * size)));
    }
  } else if (to_offsets) {
    for (int64_t j = 0; j < n; ++j) {
      char* p = to + j * to_stride + to_offsets[j];
      put(p, combine<mode>(take<T>(p), take<T>(from + j * from_stride)));
    }
  } else if (to_stride == size && from_stride == size) {
    T* t = reinterpret_cast<T*>(to);
    const T* f = reinterpret_cast<const T*>(from);
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) t[j] = combine<mode>(t[j], f[j]);
  } else {
    for (int64_t j = 0; j < n; ++j) {
      char* p = to + j * to_stride;
      put(p, combine<mode>(take<T>(p), take<T>(from + j * from_stride)));
    }
  }
}

template <int mode>
MoveRun combine_of(int dtype) {
  switch (dtype) {
    case FL_BOOL:
      return combine_all<mode, Bool>;
    case FL_U8:
      return combine_all<mode, uint8_t>;
    case FL_I8:
      return combine_all<mode, int8_t>;
    case FL_U16:
      return combine_all<mode, uint16_t>;
    case FL_I16:
      return combine_all<mode, int16_t>;
    case FL_U32:
      return combine_all<mode, uint32_t>;
    case FL_I32:
      return combine_all<mode, int32_t>;
    case FL_U64:
      return combine_all<mode, uint64_t>;
    case FL_I64:
      return combine_all<mode, int64_t>;
    case FL_F16:
      return combine_all<mode, Half>;
    case FL_BF16:
      return combine_all<mode, BFloat>;
    case FL_F32:
      return combine_all<mode, float>;
    case FL_F64:
      return combine_all<mode, double>;
  }
  if constexpr (mode == FL_SCATTER_ADD || mode == FL_SCATTER_MUL) {
    if (dtype == FL_C64) return combine_all<mode, Complex<float>>;
    if (dtype == FL_C128) return combine_all<mode, Complex<double>>;
  }
  return nullptr;
}

constexpr IndexKernels kKernels{{resolve<int32_t>, resolve<int64_t>}};

}  // namespace

const IndexKernels& index_kernels() { return kKernels; }

#define SIM_BY_SIZE(kernel)    \
  switch (bytes) {             \
    case 1:                    \
      return kernel<uint8_t>;  \
    case 2:                    \
      return kernel<uint16_t>; \
    case 4:                    \
      return kernel<uint32_t>; \
    case 8:                    \
      return kernel<uint64_t>; \
    case 16:                   \
      return kernel<Bytes16>;  \
  }                            \
  return nullptr;
MoveRun move_run(int bytes){SIM_BY_SIZE(move)} MoveRows move_rows(int bytes){SIM_BY_SIZE(move_all_rows)}
#undef SIM_BY_SIZE

MoveRun combine_run(int mode, int dtype) {
  return with_constant<FL_SCATTER_ADD, FL_SCATTER_MUL, FL_SCATTER_MIN, FL_SCATTER_MAX>(
      mode, MoveRun(nullptr), [&](auto m) { return combine_of<m>(dtype); });
}

}  // namespace sim::SIM_ISA
