// Selection by a mask: nonzero, masked_select, masked_scatter.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>

#include "bridge/devices.h"
#include "bridge/ops/indexing.h"
#include "bridge/ops/order.h"
#include "program/expr.h"

namespace fl::bridge {
namespace {

// Which elements are not zero, as BOOL; undefined: the chip cannot.
Tensor truth(Call& call, const Tensor& self) {
  static Programs programs;
  if (self.scalar_type() == at::kBool) return self;
  const uint8_t dtype = dtype_of(self);
  if (to_register(self.scalar_type()) == FL_NONE) return {};
  Tensor mask = empty_like(self, self.sizes(), at::kBool);
  const fl_program* program =
      programs.get(dtype, [&](Builder& b) { b.store(0, b.load(0, dtype, FL_BOOL), FL_BOOL); });
  return run_program(call, program, {&mask}, {&self}) ? mask : Tensor();
}

// Row-major numbers as coordinates, a column for each dimension; where `count`
// (one element) is given, rows from there on get `fill`.
void coordinates(Call& call, const Tensor& numbers, IntArrayRef sizes, const Tensor& out, const Tensor* count,
                 int64_t fill) {
  static Programs programs;
  // Below 2^53 a quotient in F64 is exact when it is cut off, and no integer division is as fast.
  auto does = [&](unsigned op) { return call.claims(FL_ENTRY_POINTWISE, op, FL_F64); };
  const bool fast = does(FL_OP_DIV) && does(FL_OP_TRUNC) && does(FL_OP_CAST);
  auto quotient = [&](Expr a, Expr b) {
    if (!fast) return apply(FL_OP_DIV_TRUNC, a, b);
    return trunc(a.cast(FL_F64) / b.cast(FL_F64)).cast(FL_I64);
  };
  int64_t step = 1;
  for (int64_t d = static_cast<int64_t>(sizes.size()); d-- > 0; step *= sizes[d]) {
    Tensor column = out.select(1, d);
    const bool innermost = step == 1, outermost = d == 0;
    const fl_program* program =
        programs.get(key_of(count != nullptr, innermost, outermost, fast), [&](Builder& b) {
          Expr at{&b, b.load(0, FL_I64)}, below{&b, b.scalar(0, FL_I64)}, size{&b, b.scalar(1, FL_I64)};
          if (!innermost) at = quotient(at, below);
          if (!outermost) at = at - quotient(at, size) * size;
          if (count) {
            Expr row{&b, b.index(-1, FL_I64)}, rows{&b, b.load(1, FL_I64)}, other{&b, b.scalar(2, FL_I64)};
            at = select(row < rows, at, other);
          }
          b.store(0, at.v, FL_I64);
        });
    const fl_scalar by = scalar_i(step), size = scalar_i(sizes[d]);
    if (count ? !run_program(call, program, {&column}, {&numbers, count}, {by, size, scalar_i(fill)},
                             Order::kRows)
              : !run_program(call, program, {&column}, {&numbers}, {by, size}))
      throw_refused(call, "integer programs", at::kLong);
  }
}

void check_nonzero(const Tensor& self) {
  TORCH_CHECK(self.dim() <= FL_MAX_DIMS, "nonzero is not supported for tensors with more than ", FL_MAX_DIMS,
              " dimensions");
}

void check_out_device(const char* name, const Tensor& out, const Tensor& self) {
  TORCH_CHECK(out.device() == self.device(), name, ": expected out= and the input to be on the same device, ",
              "but they are on ", out.device(), " and ", self.device());
}

Tensor nonzero_any(const Tensor& self) {
  static Op op("aten::nonzero");
  check_nonzero(self);
  Call call(op, self);
  Tensor mask = truth(call, self);
  if (!mask.defined()) return fallback<ATEN_OP(nonzero)>(self);
  Tensor numbers = compact(call, mask);
  // In one dimension they are the coordinates, unless that would hold much memory for few.
  if (self.dim() == 1) return (numbers.numel() * 2 >= self.numel() ? numbers : numbers.clone()).unsqueeze(1);
  Tensor out = empty_on(self.device(), {numbers.numel(), self.dim()},
                        {1, std::max<int64_t>(1, numbers.numel())}, at::kLong);
  coordinates(call, numbers, self.sizes(), out, nullptr, 0);
  return out;
}

Tensor& nonzero_out(const Tensor& self, Tensor& out) {
  TORCH_CHECK(out.scalar_type() == at::kLong,
              "nonzero: Expected out tensor to have scalar type Long but got scalar type", out.scalar_type());
  check_out_device("nonzero", out, self);
  at::assert_no_overlap(out, self);
  Tensor found = nonzero_any(self);
  if (at::native::resize_output(out, found.sizes())) out.as_strided_(found.sizes(), found.strides());
  out.copy_(found);
  return out;
}

Tensor& nonzero_static_out(const Tensor& self, int64_t size, int64_t fill, Tensor& out) {
  static Op op("aten::nonzero_static.out");
  TORCH_CHECK(size >= 0, "nonzero_static: 'size' must be an non-negative integer");
  TORCH_CHECK(out.scalar_type() == at::kLong,
              "nonzero_static: Expected out tensor to have scalar type Long but got scalar type",
              out.scalar_type());
  check_out_device("nonzero_static", out, self);
  at::assert_no_internal_overlap(out);
  check_nonzero(self);
  at::native::resize_output(out, {size, self.dim()});
  if (out.numel() == 0) return out;
  Call call(op, self);
  Tensor mask = self.numel() ? truth(call, self) : Tensor();
  if (self.numel() && !mask.defined()) return fallback<ATEN_OP2(nonzero_static, out)>(self, size, fill, out);
  call.composed();
  const int64_t some = std::min(size, self.numel());
  if (some) {
    Positions found = positions(call, mask);
    coordinates(call, found.index.narrow(0, 0, some), self.sizes(), out.narrow(0, 0, some), &found.count,
                fill);
  }
  if (some < size) fill_step(out.narrow(0, some, size - some), fill);
  return out;
}
Tensor nonzero_static(const Tensor& self, int64_t size, int64_t fill) {
  TORCH_CHECK(size >= 0, "nonzero_static: 'size' must be an non-negative integer");
  // A column for each dimension, as nonzero's and as PyTorch predicts for all but the CPU.
  Tensor out = empty_on(self.device(), {size, self.dim()}, {1, size}, at::kLong);
  return nonzero_static_out(self, size, fill, out);
}

// ---------------------------------------------------------- masked_select
void check_masked_select(const Tensor& self, const Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  TORCH_CHECK(self.device() == mask.device(),
              "Expected all tensors to be on the same device, but found at least two devices, ",
              self.device(), " and ", mask.device(), "! (in aten::masked_select)");
}

// `out` is made here, or resized.
void masked_select_into(const Tensor& self, const Tensor& mask, Tensor& out) {
  static Op op("aten::masked_select");
  auto [m, s] = at::expand_outplace(mask, self, "masked_select");
  Call call(op, self);
  Tensor numbers = compact(call, *m), flat = s->reshape({-1});
  if (!out.defined()) out = empty_like(self, numbers.sizes(), self.scalar_type());
  else at::native::resize_output(out, numbers.sizes());
  if (out.numel() == 0) return;
  if (!gather_into(call, out, flat.select(0, 0), {&numbers}, {Axis{flat.numel(), flat.stride(0)}}))
    throw_refused(call, "gather", self.scalar_type());
}

Tensor masked_select(const Tensor& self, const Tensor& mask) {
  check_masked_select(self, mask);
  Tensor out;
  if (!current_stream(self.device().index()).chip->claims(FL_ENTRY_GATHER, FL_ANY, dtype_of(self)))
    return fallback<ATEN_OP(masked_select)>(self, mask);
  masked_select_into(self, mask, out);
  return out;
}

Tensor& masked_select_out(const Tensor& self, const Tensor& mask, Tensor& out) {
  check_masked_select(self, mask);
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "masked_select(): self and result must have the same scalar type");
  check_out_device("masked_select", out, self);
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
  at::assert_no_overlap(out, mask);
  if (!current_stream(self.device().index()).chip->claims(FL_ENTRY_GATHER, FL_ANY, dtype_of(self)))
    return fallback<ATEN_OP2(masked_select, out)>(self, mask, out);
  masked_select_into(self, mask, out);
  return out;
}

// --------------------------------------------------------- masked_scatter
// Each element under the mask takes the source's element of its number.  That the
// source is long enough is checked where it is read.
Tensor& masked_scatter(Tensor& self, const Tensor& mask_in, const Tensor& source) {
  static Op op("aten::masked_scatter_");
  check_devices(op, {&self, &mask_in, &source});
  static Programs places, results;
  at::assert_no_internal_overlap(self);
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "masked_scatter_: expected self and source to have same dtypes but got ", self.scalar_type(),
              " and ", source.scalar_type());
  TORCH_CHECK(mask_in.scalar_type() == at::kBool,
              "masked_scatter_ only supports boolean masks, but got mask with dtype ", mask_in.scalar_type());
  c10::MaybeOwned<Tensor> expanded = at::expand_inplace(self, mask_in, "masked_scatter_");
  const int64_t n = self.numel();
  if (n == 0) return self;
  Call call(op, self);
  const uint8_t dtype = dtype_of(self);
  if (!call.claims(FL_ENTRY_GATHER, FL_ANY, dtype) || to_register(self.scalar_type()) == FL_NONE)
    return fallback<ATEN_OP(masked_scatter_)>(self, mask_in, source);
  call.view(source);
  call.composed();
  Tensor mask = expanded->contiguous(), from = source.reshape({-1});
  if (from.numel() == 0) {  // nothing to read from, so that no launch can tell
    TORCH_CHECK(!mask.any().item().toBool(), "Number of elements of source < number of ones in mask");
    return self;
  }
  Tensor place = empty_like(self, {n}, at::kLong), flat = mask.view({n}),
         taken = empty_like(self, self.sizes(), self.scalar_type());
  const fl_program* to_place = places.get(0, [](Builder& b) {
    Expr is{&b, b.load(0, FL_BOOL)}, count{&b, b.load(1, FL_I64)};
    b.store(0, select(is, count - 1, count.like(0)).v, FL_I64);
  });
  const fl_program* result = results.get(dtype, [&](Builder& b) {
    b.store(0, b.select(b.load(2, FL_BOOL), b.load(1, dtype), b.load(0, dtype)), dtype);
  });
  Tensor row = taken.view({n});
  if (!scan_into(call, FL_SCAN_SUM, flat, 0, place) ||
      !run_program(call, to_place, {&place}, {&flat, &place}) ||
      !gather_into(call, row, from.select(0, 0), {&place}, {Axis{from.numel(), from.stride(0)}}) ||
      !run_program(call, result, {&self}, {&self, &taken, &mask}))
    throw_refused(call, "a step", self.scalar_type());
  return self;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("nonzero", nonzero_any);
  m.impl("nonzero.out", nonzero_out);
  m.impl("nonzero_static", nonzero_static);
  m.impl("nonzero_static.out", nonzero_static_out);
  m.impl("masked_select", masked_select);
  m.impl("masked_select.out", masked_select_out);
  m.impl("masked_scatter_", masked_scatter);
}

}  // namespace
}  // namespace fl::bridge
