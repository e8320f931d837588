// Activations and their gradients: a line each.
#include <ATen/CPUFunctions.h>
#include <ATen/NativeFunctions.h>
#include <ATen/native/Activation.h>

#include <limits>
#include <numbers>

#include "bridge/iterator.h"
#include "bridge/ops/programs.h"

namespace fl::bridge {

using namespace at::native;

// Integers are refused, as PyTorch's kernels do, which then say so themselves.
static Expr real(Expr x) {
  if (!x.is_real()) throw Error(FL_INVALID, "a formula for real numbers");
  return x;
}

// The tables stay as they are laid out.
// clang-format off

STUB_WITH(threshold_stub, "aten::threshold", (const at::Scalar& threshold, const at::Scalar& value),
          (threshold, value), (threshold, value), select(x <= z, w, y))
STUB_WITH(hardtanh_backward_stub, "aten::hardtanh_backward", (const at::Scalar& low, const at::Scalar& high),
          (low, high), (low, high), select((y <= z) | (y >= w), x.like(0), x))
STUB(hardsigmoid_stub, "aten::hardsigmoid", min(max(x + 3, 0), 6) / 6)
STUB(hardsigmoid_backward_stub, "aten::hardsigmoid_backward", select((y > -3) & (y < 3), x / 6, x.like(0)))
STUB(hardswish_stub, "aten::hardswish", x * min(max(x + 3, 0), 6) / 6)
STUB(hardswish_backward_stub, "aten::hardswish_backward",
     select(y <= -3, x.like(0), select(y < 3, x * (y / 3 + 0.5), x)))
STUB_WITH(hardshrink_stub, "aten::hardshrink", (const at::Scalar& lambda), (lambda), (lambda),
          select((real(x) >= -y) & (x <= y), x.like(0), x))
STUB_WITH(softshrink_stub, "aten::softshrink", (const at::Scalar& lambda), (lambda), (lambda),
          select(x > y, x - y, select(x < -y, x + y, x * 0)))
STUB_WITH(shrink_backward_stub, "aten::hardshrink_backward", (const at::Scalar& lambda), (lambda), (lambda),
          select((y >= -z) & (y <= z), x.like(0), x))
STUB_WITH(leaky_relu_stub, "aten::leaky_relu", (const at::Scalar& slope), (slope), (slope), select(real(x) > 0, x, x * y))
STUB_WITH(leaky_relu_backward_stub, "aten::leaky_relu_backward", (const at::Scalar& slope), (slope), (slope),
          select(x > 0, y, y * z))
STUB_WITH(softplus_stub, "aten::softplus", (const at::Scalar& beta, const at::Scalar& threshold), (beta, threshold),
          (beta, threshold), select(x * y > z, x, log1p(exp(x * y)) / y))
STUB_WITH(softplus_backward_stub, "aten::softplus_backward", (const at::Scalar& beta, const at::Scalar& threshold),
          (beta, threshold), (beta, threshold), select(y * z > w, x, x * sigmoid(y * z)))
STUB_WITH(elu_stub, "aten::elu", (const at::Scalar& alpha, const at::Scalar& scale, const at::Scalar& input_scale),
          (alpha, scale, input_scale), (alpha, scale, input_scale),
          select(x <= 0, expm1(x * w) * (y * z), x * z))
STUB(silu_stub, "aten::silu", x * sigmoid(x))
STUB(silu_backward_stub, "aten::silu_backward", [&] {
  Expr s = sigmoid(y);
  return x * s * (1 + y * (1 - s));
}())
STUB(glu_stub, "aten::glu", x * sigmoid(y))
STUB(mish_stub, "aten::mish", x * tanh(log1p(exp(min(x, 40))) + max(x - 40, 0)))
STUB(mish_backward_stub, "aten::mish_backward", [&] {
  Expr t = tanh(log1p(exp(min(y, 40))) + max(y - 40, 0));
  return x * (t + y * sigmoid(y) * (1 - t * t));
}())
STUB(prelu_stub, "aten::_prelu_kernel", select(real(x) > 0, x, x * y))
STUB(glu_jvp_stub, "aten::glu_jvp", [&] {
  Expr s = sigmoid(y);
  return z * s + x * (w - s * w);
}())

// The gradient of elu from its result or from its input.
FORMULA(elu_backward_result, "aten::elu_backward",
        select(y <= 0, x * in(4) * (y + z * w), x * w))
FORMULA(elu_backward_input, "aten::elu_backward",
        select(y <= 0, x * in(4) * (z * w) * exp(y * in(4)), x * w))
static void elu_backward_kernel(at::TensorIteratorBase& iter, const at::Scalar& alpha, const at::Scalar& scale,
                                const at::Scalar& input_scale, bool is_result) {
  const at::Scalar numbers[] = {alpha, scale, input_scale};
  IteratorOp& op = is_result ? elu_backward_result_fl::op : elu_backward_input_fl::op;
  if (!run_iterator(op, iter, numbers, 3))
    run_on_host(op.op, iter, [&](at::TensorIterator& host) {
      elu_backward_stub(at::kCPU, host, alpha, scale, input_scale, is_result);
    });
}
FL_REGISTER_STUB(elu_backward_stub, ::fl::bridge::elu_backward_kernel)

// gelu, exact and by tanh (Hendrycks and Gimpel, arXiv:1606.08415).
constexpr double kRoot2Inverse = 0.70710678118654752440;
constexpr double kBeta = std::numbers::inv_sqrtpi * std::numbers::sqrt2;  // sqrt(2 / pi)
constexpr double kKappa = 0.044715;

FORMULA(gelu_erf, "aten::gelu", x * 0.5 * (1 + erf(x * kRoot2Inverse)))
FORMULA(gelu_tanh, "aten::gelu", 0.5 * x * (1 + tanh(kBeta * (x + kKappa * (x * x * x)))))
FORMULA(gelu_erf_backward, "aten::gelu_backward", [&] {
  Expr cdf = 0.5 * (1 + erf(y * kRoot2Inverse));
  Expr pdf = exp(y * y * -0.5) * (kBeta * 0.5);
  return x * (cdf + y * pdf);
}())
FORMULA(gelu_tanh_backward, "aten::gelu_backward", [&] {
  Expr t = tanh(kBeta * (y + kKappa * (y * y * y)));
  Expr inner = kBeta * (1 + 3 * kKappa * (y * y));
  return x * (0.5 * (1 + t) + 0.5 * y * (1 - t * t) * inner);
}())
static void gelu_kernel(at::TensorIteratorBase& iter, GeluType approximate) {
  IteratorOp& op = approximate == GeluType::Tanh ? gelu_tanh_fl::op : gelu_erf_fl::op;
  if (!run_iterator(op, iter))
    run_on_host(op.op, iter, [&](at::TensorIterator& host) { GeluKernel(at::kCPU, host, approximate); });
}
static void gelu_backward_kernel(at::TensorIteratorBase& iter, GeluType approximate) {
  IteratorOp& op = approximate == GeluType::Tanh ? gelu_tanh_backward_fl::op : gelu_erf_backward_fl::op;
  if (!run_iterator(op, iter))
    run_on_host(op.op, iter, [&](at::TensorIterator& host) { GeluBackwardKernel(at::kCPU, host, approximate); });
}
FL_REGISTER_STUB(GeluKernel, ::fl::bridge::gelu_kernel)
FL_REGISTER_STUB(GeluBackwardKernel, ::fl::bridge::gelu_backward_kernel)
static Tensor& gelu_out(const Tensor& self, std::string_view approximate, Tensor& out) {
  auto iter = at::TensorIterator::unary_op(out, self);
  gelu_kernel(iter, get_gelutype_enum(approximate));
  return out;
}
static Tensor& gelu_backward_out(const Tensor& grad, const Tensor& self, std::string_view approximate, Tensor& out) {
  auto iter = at::TensorIterator::borrowing_binary_op(out, grad, self);
  gelu_backward_kernel(iter, get_gelutype_enum(approximate));
  return out;
}

// relu: PyTorch's own goes through clamp_min and the dispatcher once more.
FORMULA(relu, "aten::relu", at_least(x, x.like(0)))
static void run_relu(at::TensorIterator& iter) {
  TORCH_CHECK_NOT_IMPLEMENTED(iter.dtype(0) != at::kBool, "Boolean inputs not supported for relu");
  if (!run_iterator(relu_fl::op, iter))
    run_on_host(relu_fl::op.op, iter, [](at::TensorIterator& host) {
      Tensor out = host.output();
      at::clamp_min_out(out, host.input(), 0);
    });
}
static Tensor relu(const Tensor& self) {
  // The iterator would allocate it through the dispatcher.
  Tensor out = self.is_contiguous() ? empty_on(self.device(), self.sizes(), {}, self.scalar_type()) : Tensor();
  auto iter = at::TensorIterator::unary_op(out, self);
  run_relu(iter);
  return iter.output();
}
static Tensor& relu_in_place(Tensor& self) {
  auto iter = at::TensorIterator::unary_op(self, self);
  run_relu(iter);
  return self;
}

// The iterator of PyTorch's shape function borrows its halves, which are gone by then; a fallback reads them.
static Tensor& glu_out(const Tensor& self, int64_t dim, Tensor& out) {
  TORCH_CHECK(self.dim() > 0, "glu does not support 0-dimensional tensors");
  dim = at::maybe_wrap_dim(dim, self.dim());
  const int64_t half = self.size(dim) / 2;
  TORCH_CHECK(self.size(dim) % 2 == 0, "Halving dimension must be even, but dimension ", dim, " is size ",
              self.size(dim));
  Tensor first = self.narrow(dim, 0, half), second = self.narrow(dim, half, half);
  auto iter = at::TensorIterator::borrowing_binary_op(out, first, second);
  glu_stub(kDevice, iter);
  return out;
}

// log_sigmoid: the buffer of the CPU's kernel is not needed, as on CUDA.
FORMULA(log_sigmoid, "aten::log_sigmoid_forward", min(x, 0) - log1p(exp(-abs(x))))
FORMULA(log_sigmoid_gradient, "aten::log_sigmoid_backward", [&] {
  Expr e = exp(-abs(y)), tail = e / (1 + e);
  return x * select(y < 0, 1 - tail, tail);
}())
static std::tuple<Tensor&, Tensor&> log_sigmoid_forward_out(const Tensor& self, Tensor& out, Tensor& buffer) {
  auto iter = at::TensorIterator::unary_op(out, self);
  TORCH_CHECK_NOT_IMPLEMENTED(run_iterator(log_sigmoid_fl::op, iter), "log_sigmoid: ", self.device(), " cannot run it in ", self.scalar_type());
  return {out, buffer};
}
static std::tuple<Tensor, Tensor> log_sigmoid_forward(const Tensor& self) {
  Tensor out = at::empty_like(self), buffer = at::empty({0}, self.options());
  log_sigmoid_forward_out(self, out, buffer);
  return {out, buffer};
}
static Tensor& log_sigmoid_backward_out(const Tensor& grad, const Tensor& self, const Tensor&, Tensor& out) {
  auto iter = at::TensorIterator::borrowing_binary_op(out, grad, self);
  TORCH_CHECK_NOT_IMPLEMENTED(run_iterator(log_sigmoid_gradient_fl::op, iter), "log_sigmoid_backward: ", self.device(), " cannot run it in ", self.scalar_type());
  return out;
}
static Tensor log_sigmoid_backward(const Tensor& grad, const Tensor& self, const Tensor& buffer) {
  Tensor out = at::empty_like(grad);
  return log_sigmoid_backward_out(grad, self, buffer, out);
}

// Both halves in one program: g·sigmoid(b), and g·a·sigmoid'(b).
static Tensor& glu_backward_out(const Tensor& grad, const Tensor& self, int64_t dim, Tensor& out) {
  static Op op("aten::glu_backward");
  static Programs programs;
  TORCH_CHECK(self.dim() > 0, "glu does not support 0-dimensional tensors");
  dim = at::maybe_wrap_dim(dim, self.dim());
  const int64_t half = self.size(dim) / 2;
  TORCH_CHECK(self.size(dim) % 2 == 0, "Halving dimension must be even, but dimension ", dim, " is size ",
              self.size(dim));
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(self.scalar_type()), "\"glu_backward\" not implemented for '",
                              c10::toString(self.scalar_type()), "'");
  at::DimVector halved(self.sizes());
  halved[static_cast<size_t>(dim)] = half;
  Tensor gradient = grad.expand(halved);
  for (const Tensor* t : {&grad, const_cast<const Tensor*>(&out)})
    TORCH_CHECK(t->scalar_type() == self.scalar_type(), "Found dtype ", c10::toString(t->scalar_type()),
                " but expected ", c10::toString(self.scalar_type()));
  at::native::resize_output(out, self.sizes());
  at::assert_no_internal_overlap(out);
  at::assert_no_partial_overlap(out, self);
  at::assert_no_overlap(out, grad);
  const uint8_t memory = dtype_of(self), type = to_register(self.scalar_type());
  const fl_program* program = programs.get(memory, [&](Builder& b) {
    Expr x{&b, b.load(0, memory, type)}, y{&b, b.load(1, memory, type)}, g{&b, b.load(2, memory, type)};
    Expr s = sigmoid(y), first = g * s;
    b.store(0, first.v, memory);
    b.store(1, (first * x * (1 - s)).v, memory);
  });
  Call call(op, self);
  Tensor a = self.narrow(dim, 0, half), c = self.narrow(dim, half, half), da = out.narrow(dim, 0, half),
         dc = out.narrow(dim, half, half);
  if (!run_program(call, program, {&da, &dc}, {&a, &c, &gradient})) throw_refused(call, "pointwise", self.scalar_type());
  return out;
}
static Tensor glu_backward(const Tensor& grad, const Tensor& self, int64_t dim) {
  Tensor out = at::empty(self.sizes(), self.options());
  return glu_backward_out(grad, self, dim, out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  OUT(threshold, out) OUT(threshold_backward, grad_input) OUT(hardsigmoid, out) OUT(hardsigmoid_backward, grad_input)
  OUT(hardshrink, out) OUT(hardshrink_backward, grad_input) OUT(softshrink, out) OUT(softshrink_backward, grad_input)
  OUT(leaky_relu, out) OUT(leaky_relu_backward, grad_input) OUT(softplus, out) OUT(softplus_backward, grad_input)
  OUT(elu, out) OUT(elu_backward, grad_input) OUT(silu, out) OUT(silu_backward, grad_input) OUT(mish, out)
  m.impl("glu.out", glu_out);
  m.impl("gelu.out", gelu_out);
  m.impl("gelu_backward.grad_input", gelu_backward_out);
  m.impl("log_sigmoid_forward", log_sigmoid_forward);
  m.impl("log_sigmoid_forward.output", log_sigmoid_forward_out);
  m.impl("log_sigmoid_backward", log_sigmoid_backward);
  m.impl("log_sigmoid_backward.grad_input", log_sigmoid_backward_out);
  m.impl("glu_backward", glu_backward);
  m.impl("glu_backward.grad_input", glu_backward_out);
  m.impl("relu", relu);
  m.impl("relu_", relu_in_place);
  NATIVE0(hardtanh, hardtanh)
  NATIVE0(hardtanh_, hardtanh_)
  NATIVE(hardtanh, out, hardtanh_out)
  NATIVE0(hardtanh_backward, hardtanh_backward)
  NATIVE(hardtanh_backward, grad_input, hardtanh_backward_out)
  NATIVE0(hardswish, hardswish)
  NATIVE0(hardswish_, hardswish_)
  NATIVE(hardswish, out, hardswish_out)
  NATIVE0(hardswish_backward, hardswish_backward)
  NATIVE0(mish_backward, mish_backward)
  NATIVE0(_prelu_kernel, _prelu_kernel)
  NATIVE0(_prelu_kernel_backward, _prelu_kernel_backward)
  NATIVE0(glu_jvp, glu_jvp)
}

}  // namespace fl::bridge
// clang-format on
