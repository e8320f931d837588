// Membership and places in an order: isin, searchsorted, bucketize; positions by
// repetition: repeat_interleave.  And the trace.
#include <ATen/ScalarOps.h>
#include <ATen/native/BucketizationUtils.h>
#include <ATen/ops/isin_meta.h>

#include "bridge/devices.h"
#include "bridge/ops/indexing.h"
#include "bridge/ops/order.h"
#include "bridge/ops/reduction.h"
#include "program/expr.h"

namespace fl::bridge {
namespace {

using Side = std::optional<c10::string_view>;

// ----------------------------------------------------------- searchsorted
// Undefined: the chip cannot.
Tensor search(Call& call, const Tensor& sorted_any, const Tensor& self, bool right, const Tensor& sorter) {
  ScalarType common = at::result_type(sorted_any, self);
  Tensor sorted = sorted_any.to(common), values = self.to(common);
  if (sorter.defined()) sorted = at::gather(sorted, -1, sorter);
  sorted = sorted.reshape({-1, sorted.size(-1)});
  Tensor found = count_before(
      call, sorted, sorted_any.dim() == 1 ? values.reshape({1, -1}) : values.reshape({-1, values.size(-1)}),
      right);
  return found.defined() ? found.view(self.sizes()) : found;
}

Tensor& searchsorted_out(const Tensor& sorted, const Tensor& self, bool out_int32, bool right, Side side,
                         const std::optional<Tensor>& sorter, Tensor& out) {
  static Op op("aten::searchsorted.Tensor_out");
  Tensor order = sorter ? *sorter : Tensor();
  for (const Tensor* t : std::initializer_list<const Tensor*>{&self, &out, &order})
    if (t->defined() && t->device() != sorted.device()) throw_mixed_devices(op, sorted.device(), t->device());
  at::native::searchsorted_pre_check(sorted, self, out, out_int32, right, side, order);
  at::native::resize_output(out, self.sizes());
  if (self.numel() == 0) return out;
  Call call(op, sorted);
  if (sorted.size(-1) == 0) {
    call.composed();
    fill_step(out, 0);
    return out;
  }
  Tensor found = search(call, sorted, self, side ? *side == "right" : right, order);
  if (!found.defined())
    return fallback<ATEN_OP2(searchsorted, Tensor_out)>(sorted, self, out_int32, right, side, sorter, out);
  return out.copy_(found);
}
Tensor searchsorted_tensor(const Tensor& sorted, const Tensor& self, bool out_int32, bool right, Side side,
                           const std::optional<Tensor>& sorter) {
  Tensor out = empty_like(sorted, {0}, out_int32 ? at::kInt : at::kLong);
  return searchsorted_out(sorted, self, out_int32, right, side, sorter, out);
}
Tensor one_value(const at::Scalar& value, const Tensor& like) {
  return at::native::searchsorted_scalar_tensor(value, like.device());
}
Tensor searchsorted_scalar(const Tensor& sorted, const at::Scalar& self, bool out_int32, bool right,
                           Side side, const std::optional<Tensor>& sorter) {
  return searchsorted_tensor(sorted, one_value(self, sorted), out_int32, right, side, sorter);
}
Tensor& searchsorted_scalar_out(const Tensor& sorted, const at::Scalar& self, bool out_int32, bool right,
                                Side side, const std::optional<Tensor>& sorter, Tensor& out) {
  return searchsorted_out(sorted, one_value(self, sorted), out_int32, right, side, sorter, out);
}

void check_boundaries(const Tensor& boundaries) {
  TORCH_CHECK(boundaries.dim() == 1, "boundaries tensor must be 1 dimension, but got dim(", boundaries.dim(),
              ")");
}
Tensor& bucketize_out(const Tensor& self, const Tensor& boundaries, bool out_int32, bool right, Tensor& out) {
  check_boundaries(boundaries);
  return searchsorted_out(boundaries, self, out_int32, right, {}, {}, out);
}
Tensor bucketize_tensor(const Tensor& self, const Tensor& boundaries, bool out_int32, bool right) {
  check_boundaries(boundaries);
  return searchsorted_tensor(boundaries, self, out_int32, right, {}, {});
}
Tensor bucketize_scalar(const at::Scalar& self, const Tensor& boundaries, bool out_int32, bool right) {
  return bucketize_tensor(one_value(self, boundaries), boundaries, out_int32, right);
}

// -------------------------------------------------------------------- isin
// Few candidates are compared with all elements; in many, sorted, each element is searched for.
constexpr int64_t kFew = 16;

bool isin_into(Call& call, const Tensor& elements, const Tensor& test, bool invert, const Tensor& out) {
  static Programs equal, other, found;
  if (out.numel() == 0) return true;
  const int64_t n = test.numel();
  if (n == 0) {
    call.composed();
    fill_step(out, invert);
    return true;
  }
  // A 0-d tensor counts as any other, as on CUDA: 256 is not among int8 because 0 is.
  const auto wrapped = [](const Tensor& t) { return t.unsafeGetTensorImpl()->is_wrapped_number(); };
  ScalarType common = wrapped(elements) || wrapped(test)
                          ? at::result_type(elements, test)
                          : at::promote_types(elements.scalar_type(), test.scalar_type());
  Tensor x = elements.to(common), candidates = test.to(common).reshape({-1});
  const uint8_t dtype = to_dtype(common);
  if (to_register(common) == FL_NONE) return false;
  if (n <= kFew) {
    at::DimVector sizes(x.sizes());
    sizes.push_back(n);
    Tensor spread = x.unsqueeze(-1).expand(sizes);
    const fl_program* pre = equal.get(
        dtype, [&](Builder& b) { b.store(0, b.op(FL_OP_EQ, b.load(0, dtype), b.load(1, dtype)), FL_BOOL); });
    const fl_program* post =
        !invert ? nullptr
                : other.get(0, [&](Builder& b) { b.store(0, b.op(FL_OP_NOT, b.load(0, FL_BOOL)), FL_BOOL); });
    return reduce(call, {FL_REDUCE_ANY, FL_BOOL, pre, post}, mask_of(-1, spread.dim()),
                  {&spread, &candidates}, {&out});
  }
  call.composed();
  Tensor sorted = empty_like(x, {n}, common), met = empty_like(x, x.sizes(), common);
  if (!sort_into(call, candidates, 0, false, &sorted, nullptr)) return false;
  Tensor place = count_before(call, sorted.view({1, n}), x.reshape({1, -1}), false);
  if (!place.defined()) return false;
  place = place.view(x.sizes());
  Tensor inside = place.clamp_max(n - 1);
  const fl_program* program = found.get(key_of(dtype, invert), [&](Builder& b) {
    Value is = b.op(FL_OP_EQ, b.load(0, dtype), b.load(1, dtype));
    b.store(0, invert ? b.op(FL_OP_NOT, is) : is, FL_BOOL);
  });
  return gather_into(call, met, sorted.select(0, 0), {&inside}, {Axis{n, 1}}) &&
         run_program(call, program, {&out}, {&x, &met});
}

Tensor& isin_out(const Tensor& elements, const Tensor& test, bool unique, bool invert, Tensor& out) {
  static Op op("aten::isin.Tensor_Tensor_out");
  check_devices(op, {&elements, &test});
  Into<at::meta::structured_isin_Tensor_Tensor> shape(out);
  shape.meta(elements, test, unique, invert);
  Call call(op, out);
  if (isin_into(call, elements, test, invert, out)) return out;
  return fallback<ATEN_OP2(isin, Tensor_Tensor_out)>(elements, test, unique, invert, out);
}
Tensor& isin_scalar_out(const Tensor& elements, const at::Scalar& test, bool unique, bool invert,
                        Tensor& out) {
  Into<at::meta::structured_isin_Tensor_Scalar> shape(out);
  shape.meta(elements, test, unique, invert);
  return invert ? at::ne_out(out, elements, test) : at::eq_out(out, elements, test);
}
Tensor& isin_element_out(const at::Scalar& element, const Tensor& test, bool unique, bool invert,
                         Tensor& out) {
  Tensor one = at::full({}, element, at::TensorOptions().device(test.device()).dtype(element.type()));
  one.unsafeGetTensorImpl()->set_wrapped_number(true);
  return isin_out(one, test, unique, invert, out);
}

// ------------------------------------------------------- repeat_interleave
// Ones where each number's last repetition ends; the sum of those before a place is
// its number.
Tensor repeat_interleave(const Tensor& repeats, std::optional<int64_t> output_size) {
  static Op op("aten::repeat_interleave.Tensor");
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  ScalarType dtype = repeats.scalar_type();
  TORCH_CHECK(dtype == at::kLong || dtype == at::kInt, "repeats has to be Long or Int tensor");
  const int64_t n = repeats.size(0);
  if (n == 0) return empty_like(repeats, {0}, dtype);
  Call call(op, repeats);
  call.composed();
  Tensor ends = empty_like(repeats, {n}, at::kLong);
  if (!scan_into(call, FL_SCAN_SUM, repeats, 0, ends)) throw_refused(call, "cumulative sums", at::kLong);
  int64_t total;
  if (output_size) {
    total = *output_size;
  } else {
    Tensor known = at::stack({repeats.min().to(at::kLong), ends.select(0, n - 1)}).cpu();
    TORCH_CHECK(known.data_ptr<int64_t>()[0] >= 0, "repeats can not be negative");
    total = known.data_ptr<int64_t>()[1];
  }
  Tensor marks = at::zeros({total + 1}, ends.options()), one = at::ones({}, ends.options()).expand({n}),
         out = empty_like(repeats, {total}, dtype);
  if (!scatter_into(call, FL_SCATTER_ADD, marks.select(0, 0), one, {&ends}, {Axis{total + 1, 1}}) ||
      !scan_into(call, FL_SCAN_SUM, marks.narrow(0, 0, total), 0, out))
    throw_refused(call, "a step", at::kLong);
  return out;
}

Tensor trace(const Tensor& self) {
  static Op op("aten::trace");
  TORCH_CHECK(self.dim() == 2, "trace: expected a matrix, but got tensor with dim ", self.dim());
  Call call(op, self);
  Tensor diagonal = self.diagonal();
  Tensor out =
      empty_like(self, {}, at::isIntegralType(self.scalar_type(), true) ? at::kLong : self.scalar_type());
  if (diagonal.numel() == 0) {
    fill_step(out, 0);
    return out;
  }
  if (sum_into(call, diagonal, Mask().set(), out)) return out;
  return fallback<ATEN_OP(trace)>(self);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("searchsorted.Tensor", searchsorted_tensor);
  m.impl("searchsorted.Tensor_out", searchsorted_out);
  m.impl("searchsorted.Scalar", searchsorted_scalar);
  m.impl("searchsorted.Scalar_out", searchsorted_scalar_out);
  m.impl("bucketize.Tensor", bucketize_tensor);
  m.impl("bucketize.Tensor_out", bucketize_out);
  m.impl("bucketize.Scalar", bucketize_scalar);
  m.impl("isin.Tensor_Tensor_out", isin_out);
  m.impl("isin.Tensor_Scalar_out", isin_scalar_out);
  m.impl("isin.Scalar_Tensor_out", isin_element_out);
  m.impl("repeat_interleave.Tensor", repeat_interleave);
  m.impl("trace", trace);
}

}  // namespace
}  // namespace fl::bridge
