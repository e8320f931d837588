// The spmm entry on tensors: rows of `dense` combined as row_begin and columns say.
#pragma once

#include "bridge/ops/programs.h"

namespace fl::bridge {

struct Spmm {
  int mode;                         // FL_SPMM_…
  const Tensor& row_begin;          // [M+1], I64 or I32, rising from 0 to J
  const Tensor& dense;              // [B, K, N] or [K, N]
  const Tensor* columns = nullptr;  // [J]; null: j itself, and J is K
  const Tensor* values = nullptr;   // [J] in dense's dtype; null: ones
  const Tensor* winner = nullptr;   // I64, out's shape; MIN and MAX only
};

// out [B, M, N] or [M, N], in dense's dtype; an empty row gives `empty`.  The chip's entry,
// or composed from gather, scatter and pointwise.  False: the chip does neither; nothing
// that matters has happened.  Indices differ from their bounds at run time alone, as a fault.
bool spmm_into(Call& call, const Spmm& spmm, const Tensor& out, const at::Scalar& empty);

// The row of each of `count` values: the m with row_begin[m] <= j < row_begin[m+1], or M
// where there is none.  row_begin [..., M+1] gives [..., count], I64.
Tensor rows_of(Call& call, const Tensor& row_begin, int64_t count);

}  // namespace fl::bridge
