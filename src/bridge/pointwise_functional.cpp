// Functional forms of elementwise operators that make their own result.
//
// PyTorch's functional form of a structured operator allocates through the dispatcher and calls the .out form
// through it again: about 280 ns more than shape function, allocation and kernel in one object, which is what
// these are. They run PyTorch's own shape functions and kernels, so that they differ from the .out forms in
// nothing else.
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

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  // One operand.
  FORM(acos) FORM(acosh) FORM(asin) FORM(asinh) FORM(atan) FORM(atanh) FORM(bitwise_not) FORM(ceil) FORM(cos) FORM(cosh)
  FORM(digamma) FORM(erf) FORM(erfc) FORM(erfinv) FORM(exp) FORM(exp2) FORM(expm1) FORM(floor) FORM(frac) FORM(lgamma)
  FORM(log) FORM(log10) FORM(log1p) FORM(log2) FORM(neg) FORM(reciprocal) FORM(round) FORM(rsqrt) FORM(sgn)
  FORM(sigmoid) FORM(sign) FORM(signbit) FORM(sin) FORM(sinc) FORM(sinh) FORM(sqrt) FORM(tan) FORM(tanh) FORM(trunc)
  FORM(isneginf) FORM(isposinf)
  // Activations.
  FORM(elu) FORM(hardsigmoid) FORM(hardshrink) FORM(leaky_relu) FORM(mish) FORM(silu) FORM(softplus)
  FORM(softshrink) FORM(threshold)
  m.impl("gelu", Form<Gelu, at::_ops::gelu::schema>::call);
  m.impl("gelu_backward", Form<GeluBackward, at::_ops::gelu_backward::schema>::call);
  // Two operands.
  FORM(atan2) FORM(fmax) FORM(fmin) FORM(hypot) FORM(maximum) FORM(minimum) FORM(logaddexp)
  FORM2(eq, Tensor, eq_Tensor_out) FORM2(ne, Tensor, ne_Tensor_out) FORM2(lt, Tensor, lt_Tensor_out)
  FORM2(le, Tensor, le_Tensor_out) FORM2(gt, Tensor, gt_Tensor_out) FORM2(ge, Tensor, ge_Tensor_out)
  FORM2(eq, Scalar, eq_Scalar_out) FORM2(ne, Scalar, ne_Scalar_out) FORM2(lt, Scalar, lt_Scalar_out)
  FORM2(le, Scalar, le_Scalar_out) FORM2(gt, Scalar, gt_Scalar_out) FORM2(ge, Scalar, ge_Scalar_out)
  FORM2(bitwise_and, Tensor, bitwise_and_out) FORM2(bitwise_or, Tensor, bitwise_or_out)
  FORM2(bitwise_xor, Tensor, bitwise_xor_out)
  FORM2(mul, Tensor, mul_out) FORM2(div, Tensor, div_out) FORM2(remainder, Tensor, remainder_out) FORM2(fmod, Tensor, fmod_out) FORM2(div, Tensor_mode, div_out_mode)
  FORM2(pow, Tensor_Scalar, pow_Tensor_Scalar_out) FORM2(pow, Tensor_Tensor, pow_Tensor_Tensor_out)
  FORM2(xlogy, Tensor, xlogy_out) FORM(mse_loss) FORM(smooth_l1_loss)
  // Three.
  FORM(addcmul) FORM(addcdiv) FORM2(lerp, Scalar, lerp_Scalar) FORM2(lerp, Tensor, lerp_Tensor)
  FORM(clamp) FORM2(clamp, Tensor, clamp_Tensor_out) FORM(clamp_min) FORM(clamp_max)
  // Gradients of activations.
  FORM(tanh_backward) FORM(sigmoid_backward) FORM(silu_backward) FORM(threshold_backward)
  FORM(elu_backward) FORM(leaky_relu_backward) FORM(hardsigmoid_backward) FORM(softplus_backward)
}
// clang-format on

}  // namespace
}  // namespace fl::bridge
