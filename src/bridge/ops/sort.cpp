// Sorting and what follows from it: topk, kthvalue, median, mode.
#include <ATen/MemoryOverlap.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/native/SortingUtils.h>
#include <ATen/ops/sort_meta.h>
#include <ATen/ops/topk_meta.h>

#include "bridge/ops/order.h"
#include "bridge/ops/reduction.h"
#include "program/expr.h"

namespace fl::bridge {
namespace {

using Pair = std::tuple<Tensor, Tensor>;
using PairRef = std::tuple<Tensor&, Tensor&>;

PairRef sort_out(const Tensor& self, std::optional<bool> stable, int64_t dim, bool descending, Tensor& values,
                 Tensor& indices) {
  static Op op("aten::sort.values_stable");
  Into<at::meta::structured_sort_stable> shape(values, indices);
  shape.meta(self, stable, dim, descending);
  Call call(op, self);
  if (sort_into(call, self, dim, descending, &values, &indices)) return {values, indices};
  return fallback<ATEN_OP2(sort, values_stable)>(self, stable, dim, descending, values, indices);
}

// The best are in order, asked for or not.
PairRef topk_out(const Tensor& self, int64_t k, int64_t dim, bool largest, bool sorted, Tensor& values,
                 Tensor& indices) {
  static Op op("aten::topk.values");
  TORCH_CHECK_NOT_IMPLEMENTED(self.scalar_type() != at::kBool, "\"topk_cpu\" not implemented for 'Bool'");
  Into<at::meta::structured_topk> shape(values, indices);
  shape.meta(self, k, dim, largest, sorted);
  Call call(op, self);
  if (sort_into(call, self, dim, largest, &values, &indices)) return {values, indices};
  return fallback<ATEN_OP2(topk, values)>(self, k, dim, largest, sorted, values, indices);
}

// ------------------------------------------------ one of the sorted elements
void refuse(const char* name, ScalarType dtype) {
  TORCH_CHECK_NOT_IMPLEMENTED(dtype != at::kBool && !at::isComplexType(dtype), "\"", name,
                              "\" not implemented for '", c10::toString(dtype), "'");
}

// The first k of the order; false: the chip cannot.
bool first_sorted(Call& call, const Tensor& self, int64_t dim, int64_t k, Tensor& values, Tensor& indices) {
  at::DimVector sizes(self.sizes());
  if (!sizes.empty()) sizes[dim] = k;
  values = empty_like(self, sizes, self.scalar_type());
  indices = empty_like(self, sizes, at::kLong);
  return sort_into(call, self, dim, false, &values, &indices);
}

PairRef kthvalue_out(const Tensor& self, int64_t k, int64_t dim_, bool keepdim, Tensor& values,
                     Tensor& indices) {
  static Op op("aten::kthvalue.values");
  int64_t dim = at::maybe_wrap_dim(dim_, self.dim(), /*wrap_scalar=*/true),
          size = self.dim() ? self.size(dim) : 1;
  at::native::zero_numel_check_dims(self, dim, "kthvalue()");
  at::assert_no_overlap(self, values);
  TORCH_CHECK(k >= 1 && k <= size, "kthvalue(): selected number k out of range for dimension ", dim);
  refuse("kthvalue_cpu", self.scalar_type());
  at::native::_reduction_with_indices_allocate_or_resize_output(values, indices, self, dim_, keepdim);
  Call call(op, self);
  call.composed();
  Tensor sorted, where;
  if (!first_sorted(call, self, dim, k, sorted, where))
    return fallback<ATEN_OP2(kthvalue, values)>(self, k, dim_, keepdim, values, indices);
  if (values.numel()) {
    values.copy_(self.dim() ? sorted.narrow(dim, k - 1, 1) : sorted);
    indices.copy_(self.dim() ? where.narrow(dim, k - 1, 1) : where);
  }
  if (!keepdim && self.dim()) values.squeeze_(dim), indices.squeeze_(dim);
  return {values, indices};
}

// Median with its position, both with the dimension kept.  NaN are sorted behind the
// others, so that their number says where the median is, or the first NaN.
bool median_of(Call& call, const Tensor& in, int64_t dim, bool ignore_nan, Tensor& values, Tensor& indices) {
  static Programs counts, ranks;
  call.composed();
  const int64_t n = in.size(dim);
  Tensor sorted, where;
  if (!at::isFloatingType(in.scalar_type())) {
    int64_t k = (n - 1) / 2;
    if (!first_sorted(call, in, dim, k + 1, sorted, where)) return false;
    values = sorted.narrow(dim, k, 1), indices = where.narrow(dim, k, 1);
    return true;
  }
  if (!first_sorted(call, in, dim, n, sorted, where)) return false;
  at::DimVector sizes(in.sizes());
  sizes[dim] = 1;
  Tensor rank = empty_like(in, sizes, at::kLong);
  uint8_t dtype = dtype_of(in);
  const fl_program* pre = counts.get(
      dtype, [&](Builder& b) { b.store(0, is_nan(Expr{&b, b.load(0, dtype)}).cast(FL_I64).v, FL_I64); });
  const fl_program* post = ranks.get(ignore_nan, [&](Builder& b) {
    Expr nan{&b, b.load(0, FL_I64)}, size{&b, b.scalar(0, FL_I64)}, two = nan.like(2);
    Expr middle = apply(FL_OP_DIV_TRUNC, ignore_nan ? size - nan - 1 : size - 1, two);
    b.store(0, ignore_nan ? middle.v : select(nan > 0, size - nan, middle).v, FL_I64);
  });
  fl_scalar size = scalar_i(n);
  if (!reduce(call, {FL_REDUCE_SUM, FL_I64, pre, post, nullptr, &size}, mask_of(dim, in.dim()), {&in},
              {&rank}))
    return false;
  values = at::gather(sorted, dim, rank), indices = at::gather(where, dim, rank);
  return true;
}

template <bool kIgnoreNaN>
PairRef median_out(const Tensor& self, int64_t dim, bool keepdim, Tensor& values, Tensor& indices) {
  static Op op(kIgnoreNaN ? "aten::nanmedian.dim_values" : "aten::median.dim_values");
  dim = at::maybe_wrap_dim(dim, self.dim());
  at::native::zero_numel_check_dims(self, dim, "median()");
  refuse("median_out", self.scalar_type());
  TORCH_CHECK(indices.scalar_type() == at::kLong, "Expected tensor to have scalar type Long; but got ",
              c10::toString(indices.scalar_type()));
  TORCH_CHECK(values.scalar_type() == self.scalar_type(),
              "Expected tensor to have the same type as input; got ", c10::toString(values.scalar_type()));
  at::DimVector sizes(self.sizes());
  if (self.dim()) {
    if (keepdim) sizes[dim] = 1;
    else sizes.erase(sizes.begin() + dim);
  }
  at::native::resize_output(values, sizes);
  at::native::resize_output(indices, sizes);
  if (values.numel() == 0) return {values, indices};
  Call call(op, self);
  Tensor found, where;
  if (!median_of(call, self.dim() ? self : self.unsqueeze(0), dim, kIgnoreNaN, found, where)) {
    if constexpr (kIgnoreNaN)
      return fallback<ATEN_OP2(nanmedian, dim_values)>(self, dim, keepdim, values, indices);
    else return fallback<ATEN_OP2(median, dim_values)>(self, dim, keepdim, values, indices);
  }
  values.copy_(found.view(sizes)), indices.copy_(where.view(sizes));
  return {values, indices};
}

template <bool kIgnoreNaN>
Tensor median(const Tensor& self) {
  static Op op(kIgnoreNaN ? "aten::nanmedian" : "aten::median");
  if (self.numel() == 0) return at::full({}, std::numeric_limits<float>::quiet_NaN(), self.options());
  refuse("median_cpu", self.scalar_type());
  Call call(op, self);
  Tensor found, where;
  if (median_of(call, self.reshape({-1}), 0, kIgnoreNaN, found, where)) return found.squeeze(0);
  if constexpr (kIgnoreNaN) return fallback<ATEN_OP(nanmedian)>(self);
  else return fallback<ATEN_OP(median)>(self);
}

// ------------------------------------------------------------------- mode
// In a sorted slice equal values are runs: a run's end knows how long it is, and the
// first of the longest ends belongs to the smallest of the most frequent values.
bool mode_of(Call& call, const Tensor& in, int64_t dim, Tensor& values, Tensor& indices) {
  static Programs starts, lengths;
  call.composed();
  const int64_t n = in.size(dim);
  Tensor sorted, where;
  if (!first_sorted(call, in, dim, n, sorted, where)) return false;
  Tensor start = at::zeros(in.sizes(), in.options().dtype(at::kLong)), first = at::empty_like(start);
  const uint8_t dtype = dtype_of(in);
  const int d = static_cast<int>(dim);
  if (n > 1) {
    const fl_program* program = starts.get(key_of(dtype, d), [&](Builder& b) {
      Expr x{&b, b.load(0, dtype)}, before{&b, b.load(1, dtype)}, i{&b, b.index(d, FL_I64)};
      b.store(0, select(x != before, i + 1, i.like(0)).v, FL_I64);
    });
    Tensor x = sorted.narrow(dim, 1, n - 1), before = sorted.narrow(dim, 0, n - 1),
           to = start.narrow(dim, 1, n - 1);
    if (!run_program(call, program, {&to}, {&x, &before}, {}, Order::kKeep)) return false;
  }
  if (!scan_into(call, FL_SCAN_MAX, start, dim, first)) return false;
  const fl_program* length = lengths.get(
      d, [&](Builder& b) { b.store(0, b.op(FL_OP_SUB, b.index(d, FL_I64), b.load(0, FL_I64)), FL_I64); });
  if (!run_program(call, length, {&first}, {&first}, {}, Order::kKeep)) return false;
  Tensor end = at::argmax(first, dim, /*keepdim=*/true);
  values = at::gather(sorted, dim, end), indices = at::gather(where, dim, end);
  return true;
}

PairRef mode_out(const Tensor& self, int64_t dim, bool keepdim, Tensor& values, Tensor& indices) {
  static Op op("aten::mode.values");
  TORCH_CHECK(values.scalar_type() == self.scalar_type(), "expected scalar type '", self.scalar_type(),
              "' but got '", values.scalar_type(), "' for values");
  TORCH_CHECK(indices.scalar_type() == at::kLong, "expected scalar type 'Long' but got '",
              indices.scalar_type(), "' for indices");
  for (const Tensor* out : {&values, &indices})
    if (out->device() != self.device()) throw_mixed_devices(op, self.device(), out->device());
  TORCH_CHECK_NOT_IMPLEMENTED(!at::isComplexType(self.scalar_type()), "\"mode\" not implemented for '",
                              c10::toString(self.scalar_type()), "'");
  dim = at::maybe_wrap_dim(dim, self.dim(), /*wrap_scalar=*/true);
  if (self.numel() == 0) {
    auto sizes = at::native::get_zero_numel_tensor_size(self, dim, keepdim, "mode()");
    at::native::resize_output(values, sizes);
    at::native::resize_output(indices, sizes);
    return {values, indices};
  }
  at::DimVector sizes(self.sizes());
  if (self.dim()) {
    if (keepdim) sizes[dim] = 1;
    else sizes.erase(sizes.begin() + dim);
  }
  at::native::resize_output(values, sizes);
  at::native::resize_output(indices, sizes);
  Call call(op, self);
  Tensor found, where;
  if (!mode_of(call, self.dim() ? self : self.unsqueeze(0), dim, found, where)) {
    // PyTorch's own out= form serves no device but its own.
    std::tie(found, where) = fallback<ATEN_OP(mode)>(self, dim, keepdim);
  }
  values.copy_(found.view(sizes)), indices.copy_(where.view(sizes));
  return {values, indices};
}

Pair mode(const Tensor& self, int64_t dim, bool keepdim) {
  Tensor values = empty_like(self, {0}, self.scalar_type()), indices = empty_like(self, {0}, at::kLong);
  return mode_out(self, dim, keepdim, values, indices);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("sort.values_stable", sort_out);
  m.impl("topk.values", topk_out);
  m.impl("kthvalue.values", kthvalue_out);
  m.impl("median", median<false>);
  m.impl("median.dim_values", median_out<false>);
  m.impl("nanmedian", median<true>);
  m.impl("nanmedian.dim_values", median_out<true>);
  m.impl("mode", mode);
  m.impl("mode.values", mode_out);
}

}  // namespace
}  // namespace fl::bridge
