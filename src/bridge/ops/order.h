// The scan, sort and compact entries on tensors, each composed from mandatory
// entries where the chip has none.  For the operators of order and selection,
// and for others that need positions.
#pragma once

#include "bridge/ops/programs.h"

namespace fl::bridge {

// out = in[0] ∘ … ∘ in[i] along the dimension, accumulated from in converted to
// out's dtype; kind is FL_SCAN_….  `index` (MIN, MAX; I64) gets where each value
// was met last.  Same sizes; nothing happens when empty.  False: the chip cannot.
bool scan_into(Call& call, int kind, const Tensor& in, int64_t dim, const Tensor& out,
               const Tensor* index = nullptr);

// The slices along the dimension in stable order, NaN last (first when descending):
// values in in's dtype, index I64; either may be null.  They have in's sizes, but
// along the dimension they may be shorter: the first k.  False: the chip cannot.
bool sort_into(Call& call, const Tensor& in, int64_t dim, bool descending, const Tensor* values,
               const Tensor* index);

// The row-major numbers of mask's (BOOL) true elements, in order: I64, [mask's
// elements], the first `count` (I64, one element on the device) of which mean
// something.  Does not wait.  Mask is not empty.
struct Positions {
  Tensor index, count;
};
Positions positions(Call& call, const Tensor& mask);
// The same as a tensor of exactly that many.  Waits for the count.
Tensor compact(Call& call, const Tensor& mask);

// For each of values [rows, m] the place in its row of the ascending `sorted` [rows, n]
// (one row may serve all) that PyTorch's binary search finds: how many lie before it
// (with `right`: before or at it).  I64 [rows, m]; one dtype, n > 0.  Undefined: the
// chip cannot.
Tensor count_before(Call& call, const Tensor& sorted, const Tensor& values, bool right);

}  // namespace fl::bridge
