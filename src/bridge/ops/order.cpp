#include "bridge/ops/order.h"

#include "bridge/ops/indexing.h"
#include "program/expr.h"

namespace fl::bridge {
namespace {

Tensor at_least_1d(const Tensor& t) { return t.dim() ? t : t.unsqueeze(0); }

// In total order, NaN last: does x come before y?
Expr before(Expr x, Expr y, bool descending) {
  Expr less = descending ? x > y : x < y;
  if (!x.is_real()) return less;
  return descending ? less | (is_nan(x) & !is_nan(y)) : less | (is_nan(y) & !is_nan(x));
}
Expr equal_or_both_nan(Expr x, Expr y) { return x.is_real() ? (x == y) | (is_nan(x) & is_nan(y)) : x == y; }

// ------------------------------------------------------------------- scan
// Each round combines what lies `step` apart and doubles the step.
bool scan_composed(Call& call, int kind, const Tensor& in, int64_t dim, const Tensor& out,
                   const Tensor* index) {
  call.composed();
  ScalarType narrow = out.scalar_type(), wide = at::isReducedFloatingType(narrow)  ? at::kFloat
                                                : at::isIntegralType(narrow, true) ? at::kLong
                                                                                   : narrow;
  const int64_t n = in.size(dim);
  Tensor x = in.to(narrow).to(wide, /*non_blocking=*/false, /*copy=*/true), where;
  if (index) {
    at::DimVector shape(in.dim(), 1);
    shape[dim] = n;
    where = at::arange(n, in.options().dtype(at::kLong)).view(shape).expand(in.sizes()).contiguous();
  }
  for (int64_t step = 1; step < n; step *= 2) {
    Tensor left = x.narrow(dim, 0, n - step), right = x.narrow(dim, step, n - step), made;
    switch (kind) {
      case FL_SCAN_SUM:
        made = left + right;
        break;
      case FL_SCAN_PROD:
        made = left * right;
        break;
      case FL_SCAN_LOGSUMEXP:
        made = at::logaddexp(left, right);
        break;
      default: {
        Tensor later = kind == FL_SCAN_MAX ? right >= left : right <= left;
        if (at::isFloatingType(wide)) later = (later & at::eq(left, left)) | at::ne(right, right);
        made = at::where(later, right, left);
        if (index)
          where.narrow(dim, step, n - step)
              .copy_(at::where(later, where.narrow(dim, step, n - step), where.narrow(dim, 0, n - step)));
      }
    }
    right.copy_(made);
  }
  const_cast<Tensor&>(out).copy_(x);
  if (index) const_cast<Tensor&>(*index).copy_(where);
  return true;
}

// ------------------------------------------------------------------- sort
// A bitonic network over rows of a power of two.  Between two arrays, a launch a step:
// elements that lie `distance` apart change places when they are out of order.  The
// first step of each round pairs the elements with their mirror images, so that
// all run in one direction.  What pads the rows has positions from n on and stays
// behind everything; equal values are in the order of their positions.
const fl_program* exchange(uint8_t dtype, bool descending) {
  static Programs programs;
  return programs.get(key_of(dtype, descending), [&](Builder& b) {
    Expr x{&b, b.load(0, dtype)}, y{&b, b.load(1, dtype)}, i{&b, b.load(2, FL_I64)}, j{&b, b.load(3, FL_I64)},
        n{&b, b.scalar(0, FL_I64)};
    Expr swap = before(y, x, descending) | (equal_or_both_nan(x, y) & (j < i));
    swap = (j < n) & ((i >= n) | swap);
    b.store(0, select(swap, y, x).v, dtype);
    b.store(1, select(swap, x, y).v, dtype);
    b.store(2, select(swap, j, i).v, FL_I64);
    b.store(3, select(swap, i, j).v, FL_I64);
  });
}

bool exchange_step(Call& call, const fl_program* program, const Tensor& values, const Tensor& places,
                   const Tensor& new_values, const Tensor& new_places, int64_t distance, bool mirrored,
                   int64_t n) {
  const int64_t block = 2 * distance, rows = values.numel() / block;
  const int64_t sizes[] = {rows, distance};
  Space space(sizes);
  // The first halves, and the second ones, backwards where mirrored.
  const int64_t first[] = {block, 1}, second[] = {block, mirrored ? -1 : 1};
  const int64_t start = mirrored ? block - 1 : distance;
  auto add = [&](const Tensor& t) {
    fl_tensor view = call.view(t);
    char* data = static_cast<char*>(view.data);
    space.add(data, view.dtype, first);
    space.add(data + start * t.element_size(), view.dtype, second);
  };
  add(values), add(places), add(new_values), add(new_places);
  space.finish(Order::kKeep);
  fl_scalar length = scalar_i(n);
  const fl_tensor* shown[] = {space.tensors(0), space.tensors(2)};
  return pointwise(call, {program, space.tensors(), space.tensors(4), &length}, shown, 2);
}

bool sort_composed(Call& call, const Tensor& in, int64_t dim, bool descending, const Tensor* values,
                   const Tensor* index) {
  ScalarType dtype = in.scalar_type();
  if (at::isComplexType(dtype) || dtype == at::kUInt64 || to_register(dtype) == FL_NONE) return false;
  call.composed();
  const int64_t n = in.size(dim);
  int64_t padded = 1;
  while (padded < n) padded *= 2;
  Tensor moved = in.movedim(dim, -1);
  at::DimVector sizes(moved.sizes());
  sizes.back() = padded;
  Tensor x = at::zeros(sizes, in.options()), y = at::empty(sizes, in.options());
  x.narrow(-1, 0, n).copy_(moved);
  Tensor i = at::arange(padded, in.options().dtype(at::kLong)).expand(sizes).contiguous(),
         j = at::empty(sizes, i.options());
  const fl_program* program = exchange(dtype_of(in), descending);
  for (int64_t block = 2; block <= padded; block *= 2)
    for (int64_t distance = block / 2; distance > 0; distance /= 2) {
      if (!exchange_step(call, program, x, i, y, j, distance, distance == block / 2, n)) return false;
      std::swap(x, y), std::swap(i, j);
    }
  auto give = [&](const Tensor* to, const Tensor& from) {
    if (to) to->movedim(dim, -1).copy_(from.narrow(-1, 0, to->size(dim)));
  };
  give(values, x), give(index, i);
  return true;
}

// ---------------------------------------------------------------- compact
// Each true element goes where the count of those before it says; the others to a
// place behind all.
Positions positions_composed(Call& call, const Tensor& mask) {
  static Programs programs;
  call.composed();
  const int64_t n = mask.numel();
  Tensor flat = mask.reshape({n}), counts = empty_like(mask, {n}, at::kLong),
         numbers = empty_like(mask, {n}, at::kLong), found = empty_like(mask, {n + 1}, at::kLong);
  if (!scan_into(call, FL_SCAN_SUM, flat, 0, counts)) throw_refused(call, "cumulative sums", at::kLong);
  Tensor targets = empty_like(mask, {n}, at::kLong);
  const fl_program* program = programs.get(0, [&](Builder& b) {
    Expr is{&b, b.load(0, FL_BOOL)}, count{&b, b.load(1, FL_I64)}, behind{&b, b.scalar(0, FL_I64)};
    b.store(0, select(is, count - 1, behind).v, FL_I64);
    b.store(1, b.index(-1, FL_I64), FL_I64);
  });
  if (!run_program(call, program, {&targets, &numbers}, {&flat, &counts}, {scalar_i(n)}, Order::kRows) ||
      !scatter_into(call, FL_SCATTER_SET, found.select(0, 0), numbers, {&targets}, {Axis{n + 1, 1}}))
    throw_refused(call, "scatter", at::kLong);
  return {found.narrow(0, 0, n), counts.narrow(0, n - 1, 1)};
}

}  // namespace

bool scan_into(Call& call, int kind, const Tensor& in_any, int64_t dim, const Tensor& out_any,
               const Tensor* index_any) {
  if (out_any.numel() == 0) return true;
  Tensor in = at_least_1d(in_any), out = at_least_1d(out_any), index;
  if (index_any) index = at_least_1d(*index_any);
  dim = at::maybe_wrap_dim(dim, in.dim());
  if (in.dim() <= FL_MAX_DIMS && call.claims(FL_ENTRY_SCAN, static_cast<unsigned>(kind), dtype_of(out))) {
    fl_tensor where;
    if (index_any) where = call.view(index);
    fl_scan_args args{call.view(in), call.view(out), index_any ? &where : nullptr, static_cast<int32_t>(dim),
                      static_cast<int32_t>(kind)};
    if (call.native(call.chip().op.scan, args, {&args.in, &args.out})) return true;
  }
  return scan_composed(call, kind, in, dim, out, index_any ? &index : nullptr);
}

bool sort_into(Call& call, const Tensor& in_any, int64_t dim, bool descending, const Tensor* values_any,
               const Tensor* index_any) {
  const Tensor* some = values_any ? values_any : index_any;
  if (!some || some->numel() == 0) return true;
  Tensor in = at_least_1d(in_any), values, index;
  if (values_any) values = at_least_1d(*values_any);
  if (index_any) index = at_least_1d(*index_any);
  dim = at::maybe_wrap_dim(dim, in.dim());
  if (in.dim() <= FL_MAX_DIMS && call.claims(FL_ENTRY_SORT, FL_ANY, dtype_of(in))) {
    fl_tensor sorted, where;
    if (values_any) sorted = call.view(values);
    if (index_any) where = call.view(index);
    fl_sort_args args{call.view(in), values_any ? &sorted : nullptr, index_any ? &where : nullptr,
                      static_cast<int32_t>(dim), descending};
    if (call.native(call.chip().op.sort, args, {&args.in, values_any ? &sorted : &where})) return true;
  }
  return sort_composed(call, in, dim, descending, values_any ? &values : nullptr,
                       index_any ? &index : nullptr);
}

Positions positions(Call& call, const Tensor& mask) {
  if (mask.dim() <= FL_MAX_DIMS && call.claims(FL_ENTRY_COMPACT, FL_ANY, FL_BOOL)) {
    Positions p{empty_like(mask, {mask.numel()}, at::kLong), empty_like(mask, {1}, at::kLong)};
    fl_compact_args args{call.view(mask), call.view(p.index), call.view(p.count)};
    if (call.native(call.chip().op.compact, args, {&args.mask, &args.index})) return p;
  }
  return positions_composed(call, mask);
}

Tensor compact(Call& call, const Tensor& mask) {
  if (mask.numel() == 0) return empty_like(mask, {0}, at::kLong);
  Positions p = positions(call, mask);
  return p.index.narrow(0, 0, p.count.item().toLong());
}

// PyTorch's binary search, whose steps are a gather and a program each: what lies
// before is known up to `low`, what lies behind from `high`, and `probe` is looked at next.
Tensor count_before(Call& call, const Tensor& sorted, const Tensor& values, bool right) {
  static Programs programs;
  const int64_t n = sorted.size(-1);
  const uint8_t dtype = dtype_of(values);
  if (to_register(values.scalar_type()) == FL_NONE || at::isComplexType(values.scalar_type()) ||
      values.scalar_type() == at::kUInt64)
    return {};
  call.composed();
  at::TensorOptions options = values.options().dtype(at::kLong);
  Tensor met = empty_like(values, values.sizes(), values.scalar_type()),
         low = at::zeros(values.sizes(), options), high = at::full(values.sizes(), n, options),
         probe = at::full(values.sizes(), n / 2, options);
  // Without its last dimension, along which the probe moves; one row serves all.
  Tensor rows = sorted.select(-1, 0).unsqueeze(-1);
  const fl_program* program = programs.get(key_of(dtype, right), [&](Builder& b) {
    Expr value{&b, b.load(0, dtype)}, bound{&b, b.load(1, dtype)}, from{&b, b.load(2, FL_I64)},
        to{&b, b.load(3, FL_I64)}, last{&b, b.scalar(0, FL_I64)};
    auto middle = [&] { return from + apply(FL_OP_SHR, to - from, from.like(1)); };
    Expr open = from < to, behind = right ? bound > value : bound >= value, at = middle();
    Expr next = select(open & !behind, at + 1, from);
    to = select(open & behind, at, to), from = next;
    b.store(0, from.v, FL_I64);
    b.store(1, to.v, FL_I64);
    b.store(2, min(middle(), last).v, FL_I64);
  });
  for (int64_t left = n; left > 0; left /= 2)
    if (!gather_into(call, met, rows, {&probe}, {Axis{n, sorted.stride(-1)}}) ||
        !run_program(call, program, {&low, &high, &probe}, {&values, &met, &low, &high}, {scalar_i(n - 1)}))
      return {};
  return low;
}

}  // namespace fl::bridge
