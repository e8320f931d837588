// The gather and scatter entries on tensors, for index.cpp, embedding.cpp and
// the losses.
#pragma once

#include "bridge/ops/programs.h"

namespace fl::bridge {

// One indexed dimension: what the index is checked against and how far it steps.
struct Axis {
  int64_t size, stride;  // in elements
};

// A tensor without one of its dimensions, as the launch sees it: `t` at index
// 0 of `dim`, and the axis that an index moves along.
struct Slice {
  Tensor rest;
  Axis axis;
  Slice(const Tensor& t, int64_t dim)
      : rest(t.dim() ? t.select(dim, 0) : t), axis{t.dim() ? t.size(dim) : 1, t.dim() ? t.stride(dim) : 1} {}
};

// out[p] = from[p + Σ index_k[p]·stride_k] over out's sizes; from and indices are
// broadcast to them.  `from` is the tensor at index 0 of the indexed
// dimensions.  False: the chip cannot.
bool gather_into(Call& call, const Tensor& out, const Tensor& from,
                 std::initializer_list<const Tensor*> indices, std::initializer_list<Axis> axes,
                 uint32_t flags = 0);

// What elements of `dtype` are combined in where the chip lacks that for the dtype itself: F16 → F32,
// C32 → C64, …; `dtype` where there is no such type.
inline ScalarType combined_in(const Call& call, uint16_t mode, ScalarType dtype) {
  const uint8_t wide = to_register(dtype);
  return call.claims(FL_ENTRY_SCATTER, mode, wide) ? to_scalar_type(wide) : dtype;
}

// to[p + Σ index_k[p]·stride_k] (mode)= from[p] over from's sizes.
bool scatter_into(Call& call, uint16_t mode, const Tensor& to, const Tensor& from,
                  std::initializer_list<const Tensor*> indices, std::initializer_list<Axis> axes,
                  uint32_t flags = 0);

// What FL_SCATTER_… leaves any value as it is.
at::Scalar scatter_identity(int mode, ScalarType dtype);

// to[index along dim] (mode)= from, for a mode that the chip does not claim; index and from have the same
// sizes, and at least one dimension.  scatters_by_order says first whether the chip can.
bool scatters_by_order(const Call& call, int mode, ScalarType dtype);
bool scatter_by_order(Call& call, int mode, const Tensor& to, int64_t dim, const Tensor& index,
                      const Tensor& from);

// The same on a space whose operands are out, from, indices… (scatter: to, from, indices…).
bool gather_space(Call& call, const Space& space, const int64_t* sizes, const int64_t* strides,
                  uint32_t flags);
bool scatter_space(Call& call, uint16_t mode, const Space& space, const int64_t* sizes,
                   const int64_t* strides, uint32_t flags);

}  // namespace fl::bridge
