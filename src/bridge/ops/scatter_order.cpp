// Scattering with a mode that the chip has not: what lands in one place is brought together by sorting.
#include <cmath>
#include <limits>

#include "bridge/ops/indexing.h"
#include "bridge/ops/spmm.h"

namespace fl::bridge {

at::Scalar scatter_identity(int mode, ScalarType dtype) {
  if (mode == FL_SCATTER_MUL) return 1;
  if (mode == FL_SCATTER_ADD) return 0;
  bool low = mode == FL_SCATTER_MAX;
  if (at::isFloatingType(dtype)) return low ? -INFINITY : INFINITY;
  if (dtype == at::kBool) return !low;
  int64_t bits = 8 * static_cast<int64_t>(c10::elementSize(dtype)),
          top = std::numeric_limits<int64_t>::max() >> (64 - bits);
  if (dtype == at::kByte) return low ? 0 : 255;
  return low ? -top - 1 : top;
}

bool scatters_by_order(const Call& call, int mode, ScalarType dtype) {
  return mode != FL_SCATTER_SET && dtype != at::kBool &&
         call.claims(FL_ENTRY_POINTWISE, FL_OP_MUL, to_register(dtype));
}

bool scatter_by_order(Call& call, int mode, const Tensor& to, int64_t dim, const Tensor& index,
                      const Tensor& from) {
  static constexpr int kModes[] = {-1, FL_SPMM_SUM, FL_SPMM_PROD, FL_SPMM_MIN, FL_SPMM_MAX};
  const int64_t places = to.numel();
  call.composed();
  // The row-major number of the place where each value lands; gather checks the indices.
  Tensor numbers = at::arange(places, index.options().dtype(at::kLong));
  Tensor place = at::gather(numbers.view(to.sizes()), dim, index).flatten();
  auto [sorted, order] = at::sort(place, /*stable=*/std::optional<bool>(true), 0);
  Tensor begin = at::searchsorted(sorted, at::arange(places + 1, numbers.options()));
  Tensor dense = from.reshape({-1, 1}), met = empty_like(to, {places, 1}, to.scalar_type());
  Spmm rows{.mode = kModes[mode], .row_begin = begin, .dense = dense, .columns = &order};
  if (!spmm_into(call, rows, met, scatter_identity(mode, to.scalar_type()))) return false;
  Tensor other = met.view(to.sizes()), out = to;
  switch (mode) {
    case FL_SCATTER_ADD:
      return out.add_(other), true;
    case FL_SCATTER_MUL:
      return out.mul_(other), true;
    case FL_SCATTER_MIN:
      return at::minimum_out(out, to, other), true;
    default:
      return at::maximum_out(out, to, other), true;
  }
}

}  // namespace fl::bridge
