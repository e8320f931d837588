// Reductions: sum, mean, prod, all, any, minima and maxima, norms, variances.
#include <ATen/ops/all_meta.h>
#include <ATen/ops/amax_meta.h>
#include <ATen/ops/amin_meta.h>
#include <ATen/ops/aminmax_meta.h>
#include <ATen/ops/any_meta.h>
#include <ATen/ops/argmax_meta.h>
#include <ATen/ops/argmin_meta.h>
#include <ATen/ops/linalg_vector_norm_meta.h>
#include <ATen/ops/max_meta.h>
#include <ATen/ops/mean_meta.h>
#include <ATen/ops/min_meta.h>
#include <ATen/ops/norm_meta.h>
#include <ATen/ops/prod_meta.h>
#include <ATen/ops/sum_meta.h>

#include "bridge/devices.h"
#include "bridge/ops/reduction.h"

namespace fl::bridge {
namespace {

using at::OptionalIntArrayRef;
using at::native::make_dim_mask;
using at::native::shape_from_dim_mask;
using OptionalType = std::optional<ScalarType>;

// Conj and neg bits are resolved before a kernel runs (PyTorch's fallback for
// those keys), so inputs are plain.

// True when the result is settled without a launch: nothing to write, or
// nothing to read and everything is `identity`.
bool settled(Call& call, const Tensor& in, const Tensor& out, const at::Scalar& identity) {
  if (out.numel() == 0) return true;
  if (in.numel()) return false;
  call.composed();
  fill_step(out, identity);
  return true;
}

// ------------------------------------------------------------------ sum, mean
bool sum_or_mean(Call& call, const Tensor& in, const Mask& mask, const Tensor& out, bool mean) {
  int64_t count = reduced_count(in, mask);
  if (settled(call, in, out, mean ? at::Scalar(NAN) : at::Scalar(0))) return true;
  return sum_into(call, in, mask, out, mean ? static_cast<double>(count) : 0);
}

ScalarType sum_type(const Tensor& in, OptionalType dtype) {
  return dtype ? *dtype : at::isIntegralType(in.scalar_type(), true) ? at::kLong : in.scalar_type();
}
ScalarType mean_type(const Tensor& in, OptionalType dtype) {
  ScalarType type = dtype.value_or(in.scalar_type());
  TORCH_CHECK(at::isFloatingType(type) || at::isComplexType(type), "mean(): ",
              dtype ? "expected a floating point or complex dtype, but got "
                    : "could not infer output dtype. Input dtype must be either a floating point or complex "
                      "dtype. Got: ",
              c10::toString(type));
  return type;
}

Tensor sum_dim(const Tensor& self, OptionalIntArrayRef dim, bool keepdim, OptionalType dtype) {
  static Op op("aten::sum.dim_IntList");
  Mask mask = make_dim_mask(dim, self.dim());
  Tensor out = empty_like(self, shape_from_dim_mask(self, mask, keepdim), sum_type(self, dtype));
  Call call(op, self);
  if (sum_or_mean(call, self, mask, out, false)) return out;
  return fallback<ATEN_OP2(sum, dim_IntList)>(self, dim, keepdim, dtype);
}

Tensor sum(const Tensor& self, OptionalType dtype) {
  static Op op("aten::sum");
  Tensor out = empty_like(self, {}, sum_type(self, dtype));
  Call call(op, self);
  if (sum_or_mean(call, self, Mask().set(), out, false)) return out;
  return fallback<ATEN_OP(sum)>(self, dtype);
}

Tensor& sum_out(const Tensor& self, OptionalIntArrayRef dim, bool keepdim, OptionalType dtype, Tensor& out) {
  static Op op("aten::sum.IntList_out");
  Into<at::meta::structured_sum_dim_IntList> shape(out);
  shape.meta(self, dim, keepdim, dtype);
  Call call(op, self);
  if (sum_or_mean(call, self, make_dim_mask(dim, self.dim()), out, false)) return out;
  return fallback<ATEN_OP2(sum, IntList_out)>(self, dim, keepdim, dtype, out);
}

Tensor mean_dim(const Tensor& self, OptionalIntArrayRef dim, bool keepdim, OptionalType dtype) {
  static Op op("aten::mean.dim");
  ScalarType type = mean_type(self, dtype);
  Mask mask = make_dim_mask(dim, self.dim());
  Tensor out = empty_like(self, shape_from_dim_mask(self, mask, keepdim), type);
  Call call(op, self);
  if (sum_or_mean(call, self, mask, out, true)) return out;
  return fallback<ATEN_OP2(mean, dim)>(self, dim, keepdim, dtype);
}

Tensor mean(const Tensor& self, OptionalType dtype) {
  static Op op("aten::mean");
  Tensor out = empty_like(self, {}, mean_type(self, dtype));
  Call call(op, self);
  if (sum_or_mean(call, self, Mask().set(), out, true)) return out;
  return fallback<ATEN_OP(mean)>(self, dtype);
}

Tensor& mean_out(const Tensor& self, OptionalIntArrayRef dim, bool keepdim, OptionalType dtype, Tensor& out) {
  static Op op("aten::mean.out");
  Into<at::meta::structured_mean_dim> shape(out);
  shape.meta(self, dim, keepdim, dtype);
  Call call(op, self);
  if (sum_or_mean(call, self, make_dim_mask(dim, self.dim()), out, true)) return out;
  return fallback<ATEN_OP2(mean, out)>(self, dim, keepdim, dtype, out);
}

bool nansum_into(Call& call, const Tensor& in, const Mask& mask, const Tensor& out) {
  if (!at::isFloatingType(in.scalar_type())) return sum_or_mean(call, in, mask, out, false);
  if (settled(call, in, out, 0)) return true;
  static Programs programs;
  uint8_t memory = dtype_of(in), from = to_register(in.scalar_type()),
          type = accumulate_type(out.scalar_type());
  if (type == FL_BOOL) return false;
  const fl_program* pre = programs.get(key_of(memory, type), [&](Builder& b) {
    Value x = b.load(0, memory, from), zero = b.scalar(0, from);
    b.store(0, b.cast(b.select(b.op(FL_OP_NE, x, x), zero, x), type), type);
  });
  fl_scalar zero = scalar_f(0);
  return reduce(call, {FL_REDUCE_SUM, type, pre, nullptr, &zero}, mask, {&in}, {&out});
}

Tensor& nansum_out(const Tensor& self, OptionalIntArrayRef dim, bool keepdim, OptionalType dtype,
                   Tensor& out) {
  static Op op("aten::nansum.out");
  TORCH_CHECK(!at::isComplexType(self.scalar_type()), "nansum does not support complex inputs");
  Mask mask = make_dim_mask(dim, self.dim());
  TORCH_CHECK(out.scalar_type() == dtype.value_or(out.scalar_type()), "Expected out tensor to have dtype ",
              c10::toString(dtype.value_or(out.scalar_type())), ", but got ", out.dtype(), " instead");
  at::native::resize_output(out, shape_from_dim_mask(self, mask, keepdim));
  Call call(op, self);
  if (nansum_into(call, self, mask, out)) return out;
  return fallback<ATEN_OP2(nansum, out)>(self, dim, keepdim, dtype, out);
}

Tensor nansum(const Tensor& self, OptionalIntArrayRef dim, bool keepdim, OptionalType dtype) {
  Tensor out = empty_like(self, {0}, sum_type(self, dtype));
  return nansum_out(self, dim, keepdim, dtype, out);
}

// ----------------------------------------------------------------------- prod
bool prod_into(Call& call, const Tensor& in, const Mask& mask, const Tensor& out) {
  if (settled(call, in, out, 1)) return true;
  uint8_t type = accumulate_type(out.scalar_type());
  return reduce(call, {static_cast<uint16_t>(type == FL_BOOL ? FL_REDUCE_ALL : FL_REDUCE_PROD), type}, mask,
                {&in}, {&out});
}

Tensor prod(const Tensor& self, OptionalType dtype) {
  static Op op("aten::prod");
  Tensor out = empty_like(self, {}, sum_type(self, dtype));
  Call call(op, self);
  if (prod_into(call, self, Mask().set(), out)) return out;
  return fallback<ATEN_OP(prod)>(self, dtype);
}

Tensor& prod_out(const Tensor& self, int64_t dim, bool keepdim, OptionalType dtype, Tensor& out) {
  static Op op("aten::prod.int_out");
  Into<at::meta::structured_prod_dim_int> shape(out);
  shape.meta(self, dim, keepdim, dtype);
  Call call(op, self);
  if (prod_into(call, self, mask_of(dim, self.dim()), out)) return out;
  return fallback<ATEN_OP2(prod, int_out)>(self, dim, keepdim, dtype, out);
}

// ------------------------------------------------------------------- all, any
template <bool kAll>
bool logical_into(Call& call, const Tensor& in, const Mask& mask, const Tensor& out) {
  if (settled(call, in, out, kAll)) return true;
  return reduce(call, {kAll ? FL_REDUCE_ALL : FL_REDUCE_ANY, FL_BOOL}, mask, {&in}, {&out});
}

Tensor& all_out(const Tensor& self, int64_t dim, bool keepdim, Tensor& out) {
  static Op op("aten::all.out");
  Into<at::meta::structured_all_dim> shape(out);
  shape.meta(self, dim, keepdim);
  Call call(op, self);
  if (logical_into<true>(call, self, mask_of(dim, self.dim()), out)) return out;
  return fallback<ATEN_OP2(all, out)>(self, dim, keepdim, out);
}
Tensor& any_out(const Tensor& self, int64_t dim, bool keepdim, Tensor& out) {
  static Op op("aten::any.out");
  Into<at::meta::structured_any_dim> shape(out);
  shape.meta(self, dim, keepdim);
  Call call(op, self);
  if (logical_into<false>(call, self, mask_of(dim, self.dim()), out)) return out;
  return fallback<ATEN_OP2(any, out)>(self, dim, keepdim, out);
}
Tensor& all_dims_out(const Tensor& self, OptionalIntArrayRef dim, bool keepdim, Tensor& out) {
  static Op op("aten::all.dims_out");
  Into<at::meta::structured_all_dims> shape(out);
  shape.meta(self, dim, keepdim);
  Call call(op, self);
  if (logical_into<true>(call, self, make_dim_mask(dim, self.dim(), true), out)) return out;
  return fallback<ATEN_OP2(all, dims_out)>(self, dim, keepdim, out);
}
Tensor& any_dims_out(const Tensor& self, OptionalIntArrayRef dim, bool keepdim, Tensor& out) {
  static Op op("aten::any.dims_out");
  Into<at::meta::structured_any_dims> shape(out);
  shape.meta(self, dim, keepdim);
  Call call(op, self);
  if (logical_into<false>(call, self, make_dim_mask(dim, self.dim(), true), out)) return out;
  return fallback<ATEN_OP2(any, dims_out)>(self, dim, keepdim, out);
}
Tensor& all_all_out(const Tensor& self, Tensor& out) {
  static Op op("aten::all.all_out");
  Into<at::meta::structured_all> shape(out);
  shape.meta(self);
  Call call(op, self);
  if (logical_into<true>(call, self, Mask().set(), out)) return out;
  return fallback<ATEN_OP2(all, all_out)>(self, out);
}
Tensor& any_all_out(const Tensor& self, Tensor& out) {
  static Op op("aten::any.all_out");
  Into<at::meta::structured_any> shape(out);
  shape.meta(self);
  Call call(op, self);
  if (logical_into<false>(call, self, Mask().set(), out)) return out;
  return fallback<ATEN_OP2(any, all_out)>(self, out);
}

// ------------------------------------------------------------ minima, maxima
// values and index each if given.
bool extremum(Call& call, bool maximum, const Tensor& in, const Mask& mask, const Tensor* values,
              const Tensor* index) {
  ScalarType dtype = in.scalar_type();
  if ((values ? values : index)->numel() == 0) return true;
  if (dtype == at::kUInt64 || at::isComplexType(dtype)) return false;  // I64 would order the bits as signed
  uint8_t type = index && dtype == at::kBool ? uint8_t{FL_I64} : accumulate_type(dtype);
  uint16_t kind =
      type == FL_BOOL ? (maximum ? FL_REDUCE_ANY : FL_REDUCE_ALL) : (maximum ? FL_REDUCE_MAX : FL_REDUCE_MIN);
  if (!values) return reduce(call, {kind, type}, mask, {&in}, {}, index);
  return reduce(call, {kind, type}, mask, {&in}, {values}, index);
}

Tensor& amax_out(const Tensor& self, IntArrayRef dim, bool keepdim, Tensor& out) {
  static Op op("aten::amax.out");
  Into<at::meta::structured_amax> shape(out);
  shape.meta(self, dim, keepdim);
  Call call(op, self);
  if (extremum(call, true, self, make_dim_mask(dim, self.dim()), &out, nullptr)) return out;
  return fallback<ATEN_OP2(amax, out)>(self, dim, keepdim, out);
}
Tensor& amin_out(const Tensor& self, IntArrayRef dim, bool keepdim, Tensor& out) {
  static Op op("aten::amin.out");
  Into<at::meta::structured_amin> shape(out);
  shape.meta(self, dim, keepdim);
  Call call(op, self);
  if (extremum(call, false, self, make_dim_mask(dim, self.dim()), &out, nullptr)) return out;
  return fallback<ATEN_OP2(amin, out)>(self, dim, keepdim, out);
}

Tensor max_all(const Tensor& self) {
  static Op op("aten::max");
  TORCH_CHECK(self.numel() > 0,
              "max(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
              "reduction dim with the 'dim' argument.");
  Tensor out = empty_like(self, {}, self.scalar_type());
  Call call(op, self);
  if (extremum(call, true, self, Mask().set(), &out, nullptr)) return out;
  return fallback<ATEN_OP(max)>(self);
}
Tensor min_all(const Tensor& self) {
  static Op op("aten::min");
  TORCH_CHECK(self.numel() > 0,
              "min(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
              "reduction dim with the 'dim' argument.");
  Tensor out = empty_like(self, {}, self.scalar_type());
  Call call(op, self);
  if (extremum(call, false, self, Mask().set(), &out, nullptr)) return out;
  return fallback<ATEN_OP(min)>(self);
}

std::tuple<Tensor&, Tensor&> max_dim_out(const Tensor& self, int64_t dim, bool keepdim, Tensor& values,
                                         Tensor& index) {
  static Op op("aten::max.dim_max");
  Into<at::meta::structured_max_dim> shape(values, index);
  shape.meta(self, dim, keepdim);
  Call call(op, self);
  if (extremum(call, true, self, mask_of(dim, self.dim()), &values, &index)) return {values, index};
  return fallback<ATEN_OP2(max, dim_max)>(self, dim, keepdim, values, index);
}
std::tuple<Tensor&, Tensor&> min_dim_out(const Tensor& self, int64_t dim, bool keepdim, Tensor& values,
                                         Tensor& index) {
  static Op op("aten::min.dim_min");
  Into<at::meta::structured_min_dim> shape(values, index);
  shape.meta(self, dim, keepdim);
  Call call(op, self);
  if (extremum(call, false, self, mask_of(dim, self.dim()), &values, &index)) return {values, index};
  return fallback<ATEN_OP2(min, dim_min)>(self, dim, keepdim, values, index);
}

Mask arg_mask(const Tensor& self, std::optional<int64_t> dim) {
  return dim ? mask_of(*dim, self.dim()) : Mask().set();
}
Tensor& argmax_out(const Tensor& self, std::optional<int64_t> dim, bool keepdim, Tensor& out) {
  static Op op("aten::argmax.out");
  Into<at::meta::structured_argmax> shape(out);
  shape.meta(self, dim, keepdim);
  Call call(op, self);
  if (extremum(call, true, self, arg_mask(self, dim), nullptr, &out)) return out;
  return fallback<ATEN_OP2(argmax, out)>(self, dim, keepdim, out);
}
Tensor& argmin_out(const Tensor& self, std::optional<int64_t> dim, bool keepdim, Tensor& out) {
  static Op op("aten::argmin.out");
  Into<at::meta::structured_argmin> shape(out);
  shape.meta(self, dim, keepdim);
  Call call(op, self);
  if (extremum(call, false, self, arg_mask(self, dim), nullptr, &out)) return out;
  return fallback<ATEN_OP2(argmin, out)>(self, dim, keepdim, out);
}

std::tuple<Tensor&, Tensor&> aminmax_out(const Tensor& self, std::optional<int64_t> dim, bool keepdim,
                                         Tensor& min, Tensor& max) {
  static Op op("aten::aminmax.out");
  Into<at::meta::structured_aminmax> shape(min, max);
  shape.meta(self, dim, keepdim);
  Call call(op, self);
  call.composed();
  Mask mask = arg_mask(self, dim);
  if (extremum(call, false, self, mask, &min, nullptr) && extremum(call, true, self, mask, &max, nullptr))
    return {min, max};
  return fallback<ATEN_OP2(aminmax, out)>(self, dim, keepdim, min, max);
}

// ---------------------------------------------------------------------- norms
bool norm_into(Call& call, const Tensor& in, double p, const Mask& mask, const Tensor& out) {
  if (settled(call, in, out, p < 0 ? INFINITY : 0)) return true;
  static Programs pres, posts;
  enum {
    kZero,
    kOne,
    kTwo,
    kInf,
    kMinusInf,
    kAny
  } form = p == 0           ? kZero
           : p == 1         ? kOne
           : p == 2         ? kTwo
           : p == INFINITY  ? kInf
           : p == -INFINITY ? kMinusInf
                            : kAny;
  uint8_t memory = dtype_of(in), from = to_register(in.scalar_type()), to = dtype_of(out),
          type = to_register(out.scalar_type());
  if (from == FL_NONE || type == FL_NONE) return false;
  const fl_program* pre = pres.get(key_of(memory, type, form), [&](Builder& b) {
    Value x = b.load(0, memory);
    if (at::isComplexType(in.scalar_type())) x = b.op(FL_OP_ABS, x);
    x = b.cast(x, type);
    switch (form) {
      case kZero:
        x = b.cast(b.cast(x, FL_BOOL), type);
        break;
      case kTwo:
        x = b.op(FL_OP_MUL, x, x);
        break;
      case kAny:
        x = b.op(FL_OP_POW, b.op(FL_OP_ABS, x), b.scalar(0, type));
        break;
      default:
        x = b.op(FL_OP_ABS, x);
    }
    b.store(0, x, type);
  });
  const fl_program* post =
      form != kTwo && form != kAny ? nullptr : posts.get(key_of(to, type, form), [&](Builder& b) {
        Value x = b.load(0, type);
        b.store(0, form == kTwo ? b.op(FL_OP_SQRT, x) : b.op(FL_OP_POW, x, b.scalar(0, type)), to);
      });
  uint16_t kind = form == kInf ? FL_REDUCE_MAX : form == kMinusInf ? FL_REDUCE_MIN : FL_REDUCE_SUM;
  fl_scalar power = scalar_f(p), inverse = scalar_f(1 / p);
  return reduce(call, {kind, type, pre, post, &power, &inverse}, mask, {&in}, {&out});
}

Tensor& vector_norm_out(const Tensor& self, const at::Scalar& ord, OptionalIntArrayRef dim, bool keepdim,
                        OptionalType dtype, Tensor& out) {
  static Op op("aten::linalg_vector_norm.out");
  Into<at::meta::structured_linalg_vector_norm> shape(out);
  shape.meta(self, ord, dim, keepdim, dtype);
  Call call(op, self);
  if (norm_into(call, self, ord.toDouble(), make_dim_mask(dim, self.dim()), out)) return out;
  return fallback<ATEN_OP2(linalg_vector_norm, out)>(self, ord, dim, keepdim, dtype, out);
}
Tensor& norm_out(const Tensor& self, const std::optional<at::Scalar>& p, IntArrayRef dim, bool keepdim,
                 Tensor& out) {
  static Op op("aten::norm.out");
  Into<at::meta::structured_norm_ScalarOpt_dim> shape(out);
  shape.meta(self, p ? at::OptionalScalarRef(*p) : at::OptionalScalarRef(), dim, keepdim);
  Call call(op, self);
  if (norm_into(call, self, p ? p->toDouble() : 2, make_dim_mask(dim, self.dim()), out)) return out;
  return fallback<ATEN_OP2(norm, out)>(self, p, dim, keepdim, out);
}
Tensor& norm_dtype_out(const Tensor& self, const std::optional<at::Scalar>& p, IntArrayRef dim, bool keepdim,
                       ScalarType dtype, Tensor& out) {
  static Op op("aten::norm.dtype_out");
  Into<at::meta::structured_norm_ScalarOpt_dim_dtype> shape(out);
  shape.meta(self, p ? at::OptionalScalarRef(*p) : at::OptionalScalarRef(), dim, keepdim, dtype);
  Call call(op, self);
  if (norm_into(call, self, p ? p->toDouble() : 2, make_dim_mask(dim, self.dim()), out)) return out;
  return fallback<ATEN_OP2(norm, dtype_out)>(self, p, dim, keepdim, dtype, out);
}

// ------------------------------------------------------------------ variances
// Variance or its root and mean into tensors that have the result's shape.
bool variance_into(Call& call, const Tensor& in, const Mask& mask,
                   const std::optional<at::Scalar>& correction, bool root, const Tensor& variance,
                   const Tensor* mean) {
  if (settled(call, in, variance, NAN)) {
    if (mean) settled(call, in, *mean, NAN);
    return true;
  }
  return moments_into(call, in, mask, correction ? correction->toDouble() : 1, root, &variance, mean);
}

void check_variance(const char* name, const Tensor& self) {
  TORCH_CHECK(at::isFloatingType(self.scalar_type()) || at::isComplexType(self.scalar_type()), name,
              " only support floating point and complex dtypes");
}
void warn_degrees(const char* name, const Tensor& self, const Mask& mask,
                  const std::optional<at::Scalar>& correction) {
  int64_t n = self.numel() ? reduced_count(self, mask) : 0;
  if (static_cast<double>(n) <= (correction ? correction->toDouble() : 1))
    TORCH_WARN(name,
               "(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor "
               "(input numel divided by output numel).");
}

template <bool kRoot>
Tensor& spread_into(Op& op, const Tensor& self, OptionalIntArrayRef dim,
                    const std::optional<at::Scalar>& correction, bool keepdim, const Mask& mask,
                    Tensor& out) {
  Call call(op, self);
  if (variance_into(call, self, mask, correction, kRoot, out, nullptr)) return out;
  if constexpr (kRoot) return fallback<ATEN_OP2(std, correction_out)>(self, dim, correction, keepdim, out);
  else return fallback<ATEN_OP2(var, correction_out)>(self, dim, correction, keepdim, out);
}

// Of a complex tensor: of the parts, added.
template <bool kRoot>
Tensor spread_of_parts(Op& op, const Tensor& self, OptionalIntArrayRef dim,
                       const std::optional<at::Scalar>& correction, bool keepdim, const Mask& mask) {
  auto variance = [&](const Tensor& part) {
    Tensor out = empty_like(part, shape_from_dim_mask(part, mask, keepdim), part.scalar_type());
    return spread_into<false>(op, part, dim, correction, keepdim, mask, out);
  };
  Tensor sum = variance(at::real(self)).add_(variance(at::imag(self)));
  return kRoot ? sum.sqrt_() : sum;
}

template <bool kRoot>
Tensor& spread_out(const Tensor& self, OptionalIntArrayRef dim, const std::optional<at::Scalar>& correction,
                   bool keepdim, Tensor& out) {
  static Op op(kRoot ? "aten::std.correction_out" : "aten::var.correction_out");
  check_variance("std and var", self);
  check_devices(op, {&self, &out});
  Mask mask = make_dim_mask(dim, self.dim());
  const bool parts = at::isComplexType(self.scalar_type());
  const ScalarType result = c10::toRealValueType(self.scalar_type());
  TORCH_CHECK(at::can_cast(result, out.scalar_type()), "result type ", result,
              " can't be cast to the desired output type ", out.scalar_type());
  at::native::resize_output(out, shape_from_dim_mask(self, mask, keepdim));
  if (!parts && at::isComplexType(out.scalar_type())) {
    if constexpr (kRoot) return out.copy_(at::std(self, dim, correction, keepdim));
    else return out.copy_(at::var(self, dim, correction, keepdim));
  }
  warn_degrees(kRoot ? "std" : "var", self, mask, correction);
  if (parts) return out.copy_(spread_of_parts<kRoot>(op, self, dim, correction, keepdim, mask));
  return spread_into<kRoot>(op, self, dim, correction, keepdim, mask, out);
}

template <bool kRoot>
Tensor spread(const Tensor& self, OptionalIntArrayRef dim, const std::optional<at::Scalar>& correction,
              bool keepdim) {
  check_variance("std and var", self);
  Tensor out = empty_like(self, shape_from_dim_mask(self, make_dim_mask(dim, self.dim()), keepdim),
                          c10::toRealValueType(self.scalar_type()));
  return spread_out<kRoot>(self, dim, correction, keepdim, out);
}

template <bool kRoot>
std::tuple<Tensor, Tensor> spread_mean(const Tensor& self, OptionalIntArrayRef dim,
                                       const std::optional<at::Scalar>& correction, bool keepdim) {
  static Op op(kRoot ? "aten::std_mean.correction" : "aten::var_mean.correction");
  check_variance(kRoot ? "std_mean" : "var_mean", self);
  Mask mask = make_dim_mask(dim, self.dim());
  warn_degrees(kRoot ? "std_mean" : "var_mean", self, mask, correction);
  if (at::isComplexType(self.scalar_type()))
    return {spread_of_parts<kRoot>(op, self, dim, correction, keepdim, mask), at::mean(self, dim, keepdim)};
  auto sizes = shape_from_dim_mask(self, mask, keepdim);
  Tensor out = empty_like(self, sizes, self.scalar_type()),
         mean = empty_like(self, sizes, self.scalar_type());
  Call call(op, self);
  if (variance_into(call, self, mask, correction, kRoot, out, &mean)) return {out, mean};
  if constexpr (kRoot) return fallback<ATEN_OP2(std_mean, correction)>(self, dim, correction, keepdim);
  else return fallback<ATEN_OP2(var_mean, correction)>(self, dim, correction, keepdim);
}

Tensor count_nonzero(const Tensor& self, IntArrayRef dim) {
  static Op op("aten::count_nonzero.dim_IntList");
  static Programs programs;
  Mask mask = make_dim_mask(dim, self.dim());
  Tensor out = empty_like(self, shape_from_dim_mask(self, mask, false), at::kLong);
  Call call(op, self);
  if (settled(call, self, out, 0)) return out;
  uint8_t memory = dtype_of(self);
  if (to_register(self.scalar_type()) != FL_NONE) {
    const fl_program* pre = programs.get(
        memory, [&](Builder& b) { b.store(0, b.cast(b.load(0, memory, FL_BOOL), FL_I64), FL_I64); });
    if (reduce(call, {FL_REDUCE_SUM, FL_I64, pre}, mask, {&self}, {&out})) return out;
  }
  return fallback<ATEN_OP2(count_nonzero, dim_IntList)>(self, dim);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("sum", sum);
  m.impl("sum.dim_IntList", sum_dim);
  m.impl("sum.IntList_out", sum_out);
  m.impl("mean", mean);
  m.impl("mean.dim", mean_dim);
  m.impl("mean.out", mean_out);
  m.impl("nansum", nansum);
  m.impl("nansum.out", nansum_out);
  m.impl("prod", prod);
  m.impl("prod.int_out", prod_out);
  m.impl("all.out", all_out);
  m.impl("any.out", any_out);
  m.impl("all.dims_out", all_dims_out);
  m.impl("any.dims_out", any_dims_out);
  m.impl("all.all_out", all_all_out);
  m.impl("any.all_out", any_all_out);
  m.impl("amax.out", amax_out);
  m.impl("amin.out", amin_out);
  m.impl("max", max_all);
  m.impl("min", min_all);
  m.impl("max.dim_max", max_dim_out);
  m.impl("min.dim_min", min_dim_out);
  m.impl("argmax.out", argmax_out);
  m.impl("argmin.out", argmin_out);
  m.impl("aminmax.out", aminmax_out);
  m.impl("linalg_vector_norm.out", vector_norm_out);
  m.impl("norm.out", norm_out);
  m.impl("norm.dtype_out", norm_dtype_out);
  m.impl("std.correction", spread<true>);
  m.impl("var.correction", spread<false>);
  m.impl("std.correction_out", spread_out<true>);
  m.impl("var.correction_out", spread_out<false>);
  m.impl("std_mean.correction", spread_mean<true>);
  m.impl("var_mean.correction", spread_mean<false>);
  m.impl("count_nonzero.dim_IntList", count_nonzero);
}

}  // namespace
}  // namespace fl::bridge
