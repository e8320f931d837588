// Unique values: of the elements, of what lies along a dimension, sorted or as they come.
#include "bridge/ops/indexing.h"
#include "bridge/ops/order.h"
#include "program/expr.h"

namespace fl::bridge {
namespace {

using Three = std::tuple<Tensor, Tensor, Tensor>;

Tensor none(const Tensor& like) { return empty_like(like, {0}, at::kLong); }

// starts[i]: does x[i] differ from x[i - 1]?  The first one does.  NaN differ from all.
Tensor run_starts(Call& call, const Tensor& x) {
  static Programs programs;
  const uint8_t dtype = dtype_of(x);
  Tensor starts = at::ones(x.sizes(), x.options().dtype(at::kBool));
  const int64_t n = x.size(-1);
  if (n < 2) return starts;
  const fl_program* program = programs.get(
      dtype, [&](Builder& b) { b.store(0, b.op(FL_OP_NE, b.load(0, dtype), b.load(1, dtype)), FL_BOOL); });
  Tensor to = starts.narrow(-1, 1, n - 1), here = x.narrow(-1, 1, n - 1), before = x.narrow(-1, 0, n - 1);
  if (!run_program(call, program, {&to}, {&here, &before}))
    throw_refused(call, "comparisons", x.scalar_type());
  return starts;
}

// The number of each element's run, from 0.
Tensor run_numbers(Call& call, const Tensor& starts) {
  Tensor numbers = empty_like(starts, starts.sizes(), at::kLong);
  if (!scan_into(call, FL_SCAN_SUM, starts, -1, numbers)) throw_refused(call, "cumulative sums", at::kLong);
  return numbers.sub_(1);
}

// to[index[i]] = from[i] along the last dimension.
Tensor put_back(Call& call, const Tensor& index, const Tensor& from) {
  Tensor to = empty_like(from, from.sizes(), from.scalar_type()), rest = to.select(-1, 0).unsqueeze(-1);
  if (!scatter_into(call, FL_SCATTER_SET, rest.expand(from.sizes()), from, {&index}, {Axis{to.size(-1), 1}}))
    throw_refused(call, "scatter", from.scalar_type());
  return to;
}

// What the runs say about n elements in the order `order` (undefined: their own).
struct Runs {
  Tensor first, inverse, counts;  // first: places in the order
  Runs(Call& call, const Tensor& starts, const Tensor& order, bool wants_inverse, bool wants_counts)
      : first(compact(call, starts)), inverse(none(starts)), counts(none(starts)) {
    if (wants_inverse) {
      inverse = run_numbers(call, starts);
      if (order.defined()) inverse = put_back(call, order, inverse);
    }
    if (wants_counts) {
      Tensor end = at::full({1}, starts.numel(), first.options());
      counts = at::cat({first.narrow(0, 1, first.numel() - 1), end}) - first;
    }
  }
};

void refuse_complex(const char* name, const Tensor& self) {
  TORCH_CHECK_NOT_IMPLEMENTED(!at::isComplexType(self.scalar_type()), "\"", name, "\" not implemented for '",
                              c10::toString(self.scalar_type()), "'");
}

Three nothing(const Tensor& self, bool wants_inverse) {
  return {empty_like(self, {0}, self.scalar_type()),
          wants_inverse ? empty_like(self, self.sizes(), at::kLong) : none(self), none(self)};
}

// False: the chip cannot sort it.
bool unique_into(Call& call, const Tensor& self, bool inverse, bool counts, Three& result) {
  if (self.numel() == 0) return result = nothing(self, inverse), true;
  call.composed();
  Tensor flat = self.reshape({-1}), sorted = empty_like(self, flat.sizes(), self.scalar_type()), order;
  if (inverse) order = empty_like(self, flat.sizes(), at::kLong);
  if (!sort_into(call, flat, 0, false, &sorted, inverse ? &order : nullptr)) return false;
  Runs runs(call, run_starts(call, sorted), order, inverse, counts);
  result = {sorted.index_select(0, runs.first), inverse ? runs.inverse.view(self.sizes()) : runs.inverse,
            runs.counts};
  return true;
}

// The values are in order, asked for or not.
Three unique2(const Tensor& self, bool sorted, bool inverse, bool counts) {
  static Op op("aten::_unique2");
  refuse_complex("unique", self);
  Call call(op, self);
  Three result;
  if (unique_into(call, self, inverse, counts, result)) return result;
  return fallback<ATEN_OP(_unique2)>(self, sorted, inverse, counts);
}

std::tuple<Tensor, Tensor> unique(const Tensor& self, bool sorted, bool inverse) {
  static Op op("aten::_unique");
  refuse_complex("unique", self);
  Call call(op, self);
  Three result;
  if (unique_into(call, self, inverse, false, result)) return {std::get<0>(result), std::get<1>(result)};
  return fallback<ATEN_OP(_unique)>(self, sorted, inverse);
}

// ----------------------------------------------------- along a dimension
// True, with the result, where there is nothing to compare.
bool settled(const Tensor& self, int64_t dim, Three& result) {
  int64_t empty = std::count(self.sizes().begin(), self.sizes().end(), 0);
  if (self.size(dim) == 0) {
    TORCH_CHECK(empty == 1, "Number of zero sized dimensions is more than one, so unique cannot be applied ");
    result = {empty_like(self, self.sizes(), self.scalar_type()), none(self), none(self)};
    return true;
  }
  TORCH_CHECK(empty == 0,
              "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied");
  return false;
}

// Where each row [n, k] differs from the one before it, once they are put into `order` (undefined: as
// they are).  False: the chip cannot find that out.
using FindStarts = bool (*)(Call& call, const Tensor& rows, Tensor& starts, Tensor& order);

// What lies along the dimension, as rows, each once.  False: find_starts failed.
bool unique_along(Op& op, const Tensor& self, int64_t dim, FindStarts find_starts, bool inverse, bool counts,
                  Three& result) {
  refuse_complex("unique_dim", self);
  dim = at::maybe_wrap_dim(dim, self.dim());
  if (settled(self, dim, result)) return true;
  Call call(op, self);
  call.composed();
  Tensor moved = self.movedim(dim, 0), rows = moved.reshape({self.size(dim), -1}), starts, order;
  if (!find_starts(call, rows, starts, order)) return false;
  Runs runs(call, starts, order, inverse, counts);
  Tensor chosen = order.defined() ? order.index_select(0, runs.first) : runs.first;
  at::DimVector sizes(moved.sizes());
  sizes[0] = chosen.size(0);
  result = {rows.index_select(0, chosen).view(sizes).movedim(0, dim), runs.inverse, runs.counts};
  return true;
}

bool starts_as_they_are(Call&, const Tensor& rows, Tensor& starts, Tensor&) {
  const int64_t n = rows.size(0);
  starts = at::ones({n}, rows.options().dtype(at::kBool));
  if (n > 1)
    starts.narrow(0, 1, n - 1).copy_(at::ne(rows.narrow(0, 1, n - 1), rows.narrow(0, 0, n - 1)).any(1));
  return true;
}

Three consecutive_dim(const Tensor& self, int64_t dim, bool inverse, bool counts) {
  static Op op("aten::unique_dim_consecutive");
  Three result;
  unique_along(op, self, dim, starts_as_they_are, inverse, counts, result);
  return result;
}

Three unique_consecutive(const Tensor& self, bool inverse, bool counts, std::optional<int64_t> dim) {
  static Op op("aten::unique_consecutive");
  refuse_complex("unique", self);
  if (dim && !(self.dim() == 1 && at::maybe_wrap_dim(*dim, 1) == 0))
    return consecutive_dim(self, *dim, inverse, counts);
  if (self.numel() == 0) return nothing(self, inverse);
  Call call(op, self);
  call.composed();
  Tensor flat = self.reshape({-1});
  Runs runs(call, run_starts(call, flat), {}, inverse, counts);
  return {flat.index_select(0, runs.first), inverse ? runs.inverse.view(self.sizes()) : runs.inverse,
          runs.counts};
}

// For each row of x [k, n] the number of each element's value among the row's values in
// order: sorts; false: the chip cannot.
bool rank(Call& call, const Tensor& x, Tensor& ranks) {
  Tensor sorted = empty_like(x, x.sizes(), x.scalar_type()), order = empty_like(x, x.sizes(), at::kLong);
  if (!sort_into(call, x, -1, false, &sorted, &order)) return false;
  ranks = put_back(call, order, run_numbers(call, run_starts(call, sorted)));
  return true;
}

// Rows in lexicographic order: the ranks within each column, then of pairs of
// neighbouring columns, of pairs of pairs, until one rank stands for a row.
bool starts_in_order(Call& call, const Tensor& rows, Tensor& starts, Tensor& order) {
  const int64_t n = rows.size(0);
  Tensor ranks;
  if (!rank(call, rows.t().contiguous(), ranks)) return false;
  while (ranks.size(0) > 1) {
    const int64_t k = ranks.size(0), pairs = k / 2;
    Tensor both = ranks.narrow(0, 0, 2 * pairs).view({pairs, 2, n}),
           pair = both.select(1, 0) * n + both.select(1, 1), combined;
    if (!rank(call, pair, combined)) throw_refused(call, "sorting", at::kLong);
    ranks = k % 2 ? at::cat({combined, ranks.narrow(0, k - 1, 1)}) : combined;
  }
  ranks = ranks.view({n});
  Tensor in_order = empty_like(ranks, {n}, at::kLong);
  order = empty_like(ranks, {n}, at::kLong);
  if (!sort_into(call, ranks, 0, false, &in_order, &order)) throw_refused(call, "sorting", at::kLong);
  starts = run_starts(call, in_order);
  return true;
}

Three unique_dim(const Tensor& self, int64_t dim, bool sorted, bool inverse, bool counts) {
  static Op op("aten::unique_dim");
  Three result;
  if (unique_along(op, self, dim, starts_in_order, inverse, counts, result)) return result;
  return fallback<ATEN_OP(unique_dim)>(self, dim, sorted, inverse, counts);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_unique", unique);
  m.impl("_unique2", unique2);
  m.impl("unique_consecutive", unique_consecutive);
  m.impl("unique_dim", unique_dim);
  m.impl("unique_dim_consecutive", consecutive_dim);
}

}  // namespace
}  // namespace fl::bridge
