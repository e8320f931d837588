// Functional forms of elementwise operators, which make their own result, and in-place forms.
//
// PyTorch's forms of a structured operator run its shape function, allocate through the dispatcher and call
// the .out form through it, which runs the shape function again: about 280 ns more than shape function,
// allocation and kernel in one object, which is what these are. They run PyTorch's own shape functions and
// kernels, so that they differ from the .out forms in nothing else.
#include <ATen/NativeFunctions.h>
#include <ATen/native/Activation.h>
#include <ATen/native/Gelu.h>

#include "bridge/iterator.h"

namespace fl::bridge {

namespace {

// What a schema has as optional, a shape function takes as a reference that may be empty.
template <class T>
const T& passed(const T& value) {
  return value;
}
at::OptionalScalarRef passed(const std::optional<at::Scalar>& value) {
  return value ? at::OptionalScalarRef(*value) : at::OptionalScalarRef();
}
at::OptionalTensorRef passed(const std::optional<Tensor>& value) {
  return value ? at::OptionalTensorRef(*value) : at::OptionalTensorRef();
}

// As Functional, for a form that writes into its first operand.
template <class Base>
struct InPlace final : Base {
  explicit InPlace(const Tensor& self) : self(self) {}
  const Tensor& self;
  void set_output_raw_strided(int64_t index, IntArrayRef sizes, IntArrayRef strides,
                              at::TensorOptions options) override {
    TORCH_CHECK(options.dtype() == self.dtype(), "Bad in-place call: input tensor dtype ", self.dtype(),
                " and output tensor dtype ", options.dtype(), " should match");
    TORCH_CHECK(options.device() == self.device(), "Bad in-place call: input tensor device ", self.device(),
                " and output tensor device ", options.device(), " should match");
    TORCH_CHECK(sizes == self.sizes(), "Bad in-place call: input tensor size ", self.sizes(),
                " and output tensor size ", sizes, " should match");
    Base::set_output_raw_strided(index, sizes, strides, options);
  }
  void set_output_strided(int64_t index, IntArrayRef sizes, IntArrayRef strides,
                          at::TensorOptions options) override {
    set_output_raw_strided(index, sizes, strides, options);
  }
  const Tensor& maybe_get_output(int64_t) override { return self; }
};

template <class Native, class Schema>
struct Form;
template <class Native, class... Args>
struct Form<Native, Tensor(Args...)> {
  static Tensor call(Args... args) {
    Functional<Native> op;
    op.meta(passed(args)...);
    op.impl(passed(args)..., op.out);
    return std::move(op.out);
  }
};
template <class Native, class... Args>
struct Form<Native, Tensor&(Tensor&, Args...)> {
  static Tensor& call(Tensor& self, Args... args) {
    InPlace<Native> op(self);
    op.meta(self, passed(args)...);
    op.impl(self, passed(args)..., self);
    return self;
  }
};

// PyTorch's implementation of these two is for the CPU alone.
struct Gelu : at::meta::structured_gelu {
  void impl(const Tensor&, c10::string_view approximate, const Tensor&) {
    at::native::GeluKernel(kDevice, *this, at::native::get_gelutype_enum(approximate));
  }
};
struct GeluBackward : at::meta::structured_gelu_backward {
  void impl(const Tensor&, const Tensor&, c10::string_view approximate, const Tensor&) {
    at::native::GeluBackwardKernel(kDevice, *this, at::native::get_gelutype_enum(approximate));
  }
};

// clang-format off
#define FORM(op) m.impl(#op, Form<at::native::structured_##op##_out, at::_ops::op::schema>::call);
#define FORM2(op, overload, type)   \
  m.impl(#op "." #overload, Form<at::native::structured_##type, at::_ops::op##_##overload::schema>::call);
// Both forms.
#define FORMS(op) FORM(op) m.impl(#op "_", Form<at::native::structured_##op##_out, at::_ops::op##_::schema>::call);
#define FORMS2(op, overload, type)  \
  FORM2(op, overload, type)         \
  m.impl(#op "_." #overload, Form<at::native::structured_##type, at::_ops::op##__##overload::schema>::call);

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  // One operand.
  FORMS(acos) FORMS(acosh) FORMS(asin) FORMS(asinh) FORMS(atan) FORMS(atanh) FORMS(bitwise_not) FORMS(ceil) FORMS(cos) FORMS(cosh)
  FORMS(digamma) FORMS(erf) FORMS(erfc) FORMS(erfinv) FORMS(exp) FORMS(exp2) FORMS(expm1) FORMS(floor) FORMS(frac) FORMS(lgamma)
  FORMS(log) FORMS(log10) FORMS(log1p) FORMS(log2) FORMS(neg) FORMS(reciprocal) FORMS(round) FORMS(rsqrt) FORMS(sgn)
  FORMS(sigmoid) FORMS(sign) FORM(signbit) FORMS(sin) FORMS(sinc) FORMS(sinh) FORMS(sqrt) FORMS(tan) FORMS(tanh) FORMS(trunc)
  FORM(isneginf) FORM(isposinf)
  // Activations.
  FORMS(elu) FORMS(hardsigmoid) FORM(hardshrink) FORMS(leaky_relu) FORMS(mish) FORMS(silu) FORM(softplus)
  FORM(softshrink) FORMS(threshold)
  m.impl("gelu", Form<Gelu, at::_ops::gelu::schema>::call);
  m.impl("gelu_backward", Form<GeluBackward, at::_ops::gelu_backward::schema>::call);
  // Two operands.
  FORMS(atan2) FORM(fmax) FORM(fmin) FORMS(hypot) FORM(maximum) FORM(minimum) FORM(logaddexp)
  FORMS2(eq, Tensor, eq_Tensor_out) FORMS2(ne, Tensor, ne_Tensor_out) FORMS2(lt, Tensor, lt_Tensor_out)
  FORMS2(le, Tensor, le_Tensor_out) FORMS2(gt, Tensor, gt_Tensor_out) FORMS2(ge, Tensor, ge_Tensor_out)
  FORMS2(eq, Scalar, eq_Scalar_out) FORMS2(ne, Scalar, ne_Scalar_out) FORMS2(lt, Scalar, lt_Scalar_out)
  FORMS2(le, Scalar, le_Scalar_out) FORMS2(gt, Scalar, gt_Scalar_out) FORMS2(ge, Scalar, ge_Scalar_out)
  FORMS2(bitwise_and, Tensor, bitwise_and_out) FORMS2(bitwise_or, Tensor, bitwise_or_out)
  FORMS2(bitwise_xor, Tensor, bitwise_xor_out)
  FORMS2(mul, Tensor, mul_out) FORMS2(div, Tensor, div_out) FORMS2(remainder, Tensor, remainder_out) FORMS2(fmod, Tensor, fmod_out) FORMS2(div, Tensor_mode, div_out_mode)
  FORM2(pow, Tensor_Scalar, pow_Tensor_Scalar_out) FORM2(pow, Tensor_Tensor, pow_Tensor_Tensor_out)
  m.impl("pow_.Scalar", Form<at::native::structured_pow_Tensor_Scalar_out, at::_ops::pow__Scalar::schema>::call);
  m.impl("pow_.Tensor", Form<at::native::structured_pow_Tensor_Tensor_out, at::_ops::pow__Tensor::schema>::call);
  FORMS2(xlogy, Tensor, xlogy_out) FORM(mse_loss) FORM(smooth_l1_loss)
  // Three.
  FORMS(addcmul) FORMS(addcdiv) FORMS2(lerp, Scalar, lerp_Scalar) FORMS2(lerp, Tensor, lerp_Tensor)
  FORMS(clamp) FORMS2(clamp, Tensor, clamp_Tensor_out) FORMS(clamp_min) FORMS(clamp_max)
  // Gradients of activations.
  FORM(tanh_backward) FORM(sigmoid_backward) FORM(silu_backward) FORM(threshold_backward)
  FORM(elu_backward) FORM(leaky_relu_backward) FORM(hardsigmoid_backward) FORM(softplus_backward)
}
// clang-format on

}  // namespace
}  // namespace fl::bridge
