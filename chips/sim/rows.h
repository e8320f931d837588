// Rows of tensors as arrays of float or double: read in place where they are
// that already, through a buffer where they are not.
#pragma once

#include <omp.h>

#include <type_traits>

#include "simd/convert.h"
#include "sim.h"

namespace sim {

template <class A>
constexpr uint8_t dtype_of = std::is_same_v<A, double> ? FL_F64 : FL_F32;

constexpr uint32_t kFloats = FL_BIT(FL_F16) | FL_BIT(FL_BF16) | FL_BIT(FL_F32) | FL_BIT(FL_F64);
inline bool is_float(uint8_t dtype) { return kFloats >> dtype & 1; }

// The values of a tensor, in runs; strides in bytes.
template <class A>
struct Runs {
  char* data = nullptr;
  Convert read_convert = nullptr, write_convert = nullptr;
  bool same = false;  // stored as A

  Runs() = default;
  explicit Runs(const Tensor& t) : data(t.data), same(t.dtype == dtype_of<A>) {
    if (!data) return;
    read_convert = find_convert(t.dtype, dtype_of<A>);
    write_convert = find_convert(dtype_of<A>, t.dtype);
  }
  explicit operator bool() const { return data != nullptr; }

  // n values; in place, or in `buffer`.
  const A* read(int64_t offset, int64_t stride, int64_t n, A* buffer) const {
    if (in_place(stride, n)) return reinterpret_cast<const A*>(data + offset);
    read_convert(data + offset, stride, reinterpret_cast<char*>(buffer), sizeof(A), n);
    return buffer;
  }
  // Where to write n values before `write` puts them in place.
  A* place(int64_t offset, int64_t stride, int64_t n, A* buffer) const {
    return in_place(stride, n) ? reinterpret_cast<A*>(data + offset) : buffer;
  }
  void write(int64_t offset, int64_t stride, int64_t n, const A* values) const {
    if (reinterpret_cast<const A*>(data + offset) == values) return;
    write_convert(reinterpret_cast<const char*>(values), sizeof(A), data + offset, stride, n);
  }

 private:
  bool in_place(int64_t stride, int64_t n) const { return same && (stride == int64_t(sizeof(A)) || n == 1); }
};

// Memory for each thread of a parallel region, taken before it.
class ThreadScratch {
 public:
  ThreadScratch(Context& context, size_t bytes)
      : bytes_((bytes + 63) / 64 * 64),
        base_(static_cast<char*>(context.scratch(bytes_ * size_t(omp_get_max_threads())))) {}
  template <class T>
  T* get() const {
    return reinterpret_cast<T*>(base_ + bytes_ * size_t(omp_get_thread_num()));
  }

 private:
  size_t bytes_;
  char* base_;
};

inline int64_t byte_stride(const Tensor& t, int dim) { return t.strides[dim] * int64_t(dtype_size(t.dtype)); }

// A small vector or matrix ([C] or [G, C]) as an array in scratch; null without tensor.
template <class A>
A* read_all(Context& context, const Tensor& t) {
  if (!t) return nullptr;
  int64_t outer = t.ndim == 2 ? t.sizes[0] : 1, inner = t.ndim ? t.sizes[t.ndim - 1] : 1;
  A* to = static_cast<A*>(context.scratch(size_t(outer * inner) * sizeof(A)));
  Convert convert = find_convert(t.dtype, dtype_of<A>);
  for (int64_t i = 0; i < outer; ++i)
    convert(t.data + (t.ndim == 2 ? i * byte_stride(t, 0) : 0), t.ndim ? byte_stride(t, t.ndim - 1) : 0,
            reinterpret_cast<char*>(to + i * inner), sizeof(A), inner);
  return to;
}
template <class A>
void write_all(const Tensor& t, const A* from) {
  if (!t) return;
  int64_t outer = t.ndim == 2 ? t.sizes[0] : 1, inner = t.ndim ? t.sizes[t.ndim - 1] : 1;
  Convert convert = find_convert(dtype_of<A>, t.dtype);
  for (int64_t i = 0; i < outer; ++i)
    convert(reinterpret_cast<const char*>(from + i * inner), sizeof(A),
            t.data + (t.ndim == 2 ? i * byte_stride(t, 0) : 0), t.ndim ? byte_stride(t, t.ndim - 1) : 0,
            inner);
}

}  // namespace sim
