// Elementwise operators of two tensors, and where, clamp, lerp: a line each.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/NativeFunctions.h>
#include <ATen/CPUFunctions.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/native/Lerp.h>
#include <ATen/native/LinearAlgebra.h>
#include <ATen/native/PointwiseOps.h>
#include <ATen/native/Pow.h>
#include <ATen/native/TensorCompare.h>
#include <ATen/native/TensorFactories.h>

#include <cmath>
#include <limits>

#include "bridge/devices.h"
#include "bridge/alpha.h"
#include "bridge/by_number.h"
#include "bridge/iterator.h"

namespace fl::bridge {

using namespace at::native;

constexpr double kInf = std::numeric_limits<double>::infinity();

// NaN-ignoring for floats; integers have no NaN.
static Expr fmax(Expr a, Expr c) { return a.is_real() ? apply(FL_OP_FMAX, a, c) : max(a, c); }
static Expr fmin(Expr a, Expr c) { return a.is_real() ? apply(FL_OP_FMIN, a, c) : min(a, c); }

// log(exp(a) + exp(c)) without overflow; equal infinities give themselves.
static Expr log_add(Expr a, Expr c, uint16_t log1p_op) {
  Expr m = max(a, c), d = -abs(a - c);
  Expr tail = log1p_op == FL_OP_LOG1P ? log1p(exp(d)) : log2(exp2(d) + 1);
  return select((a == c) & (abs(a) == kInf), a, m + tail);
}

// Ordered by the real parts, of which equal infinities need another formula.
static Expr log_add_complex(Expr a, Expr c) {
  uint8_t real = a.type() == FL_C128 ? FL_F64 : FL_F32;
  Expr ra = a.cast(real), rc = c.cast(real), first = ra < rc;
  Expr low = select(first, a, c), high = select(first, c, a), infinite = (ra == rc) & (abs(ra) == kInf);
  Expr value =
      select(infinite, select(ra < 0, low, log(exp(low) + exp(high))), log1p(exp(low - high)) + high);
  double nan = std::numeric_limits<double>::quiet_NaN();
  return select(is_nan(a) | is_nan(c), apply(FL_OP_COMPLEX, a.like(nan), a.like(nan)), value);
}

// x rounded to fewer bits: T. J. Dekker's way of splitting a number.
static Expr without_bits(Expr x, int bits) {
  Expr big = x * (std::ldexp(1.0, bits) + 1), split = big - (big - x);
  return select(abs(big) < 1e38, split, x);
}

// The tables stay as they are laid out.
// clang-format off

// A stub that takes a number by run_by_number().
#define STUB_BY_NUMBER(stub, name, ...)                                                               \
  FORMULA(stub, name, __VA_ARGS__)                                                                    \
  namespace stub##_fl {                                                                               \
  constexpr auto kernel = [](auto& iter) {                                                            \
    if (!run_by_number(op, op, iter))                                                                 \
      run_on_host(op.op, iter, [](at::TensorIterator& host) { at::native::stub(at::kCPU, host); });   \
  };                                                                                                  \
  }                                                                                                   \
  FL_REGISTER_STUB(stub, ::fl::bridge::stub##_fl::kernel)
STUB_BY_NUMBER(mul_stub, "aten::mul", x * y)
STUB_BY_NUMBER(div_true_stub, "aten::div", x / y)
STUB_BY_NUMBER(div_floor_stub, "aten::div", apply(FL_OP_DIV_FLOOR, x, y))
// The quotient of two halves is a half before it is truncated.
FORMULA(div_trunc_any, "aten::div", apply(FL_OP_DIV_TRUNC, x, y))
FORMULA(div_trunc_half, "aten::div", trunc(without_bits(x / y, common == at::kHalf ? 13 : 16)))
static void div_trunc_kernel(at::TensorIteratorBase& iter) {
  if (!run_by_number(div_trunc_any_fl::op, div_trunc_half_fl::op, iter))
    run_on_host(div_trunc_any_fl::op.op, iter, [](at::TensorIterator& host) { div_trunc_stub(at::kCPU, host); });
}
FL_REGISTER_STUB(div_trunc_stub, ::fl::bridge::div_trunc_kernel)
STUB(remainder_stub, "aten::remainder", apply(FL_OP_REM_FLOOR, x, y))
STUB(fmod_stub, "aten::fmod", apply(FL_OP_REM_TRUNC, x, y))
STUB(atan2_stub, "aten::atan2", apply(FL_OP_ATAN2, x, y))
STUB(bitwise_and_stub, "aten::bitwise_and", x & y)
STUB(bitwise_or_stub, "aten::bitwise_or", x | y)
STUB(bitwise_xor_stub, "aten::bitwise_xor", x ^ y)
STUB(lshift_stub, "aten::bitwise_left_shift", apply(FL_OP_SHL, x, y))
STUB(rshift_stub, "aten::bitwise_right_shift", apply(FL_OP_SHR, x, y))
STUB(logical_and_stub, "aten::logical_and", nonzero(x) & nonzero(y))
STUB(logical_or_stub, "aten::logical_or", nonzero(x) | nonzero(y))
STUB(logical_xor_stub, "aten::logical_xor", nonzero(x) ^ nonzero(y))
STUB(eq_stub, "aten::eq", x == y)
STUB(ne_stub, "aten::ne", x != y)
STUB(lt_stub, "aten::lt", x < y)
STUB(le_stub, "aten::le", x <= y)
STUB(gt_stub, "aten::gt", x > y)
STUB(ge_stub, "aten::ge", x >= y)
STUB(maximum_stub, "aten::maximum", max(x, y))
STUB(minimum_stub, "aten::minimum", min(x, y))
STUB(fmax_stub, "aten::fmax", fmax(x, y))
STUB(fmin_stub, "aten::fmin", fmin(x, y))
STUB(copysign_stub, "aten::copysign", apply(FL_OP_COPYSIGN, x, y))
STUB(hypot_stub, "aten::hypot", apply(FL_OP_HYPOT, x, y))
STUB(gcd_stub, "aten::gcd", apply(FL_OP_GCD, x, y))
STUB(lcm_stub, "aten::lcm", [&] {
  Expr g = apply(FL_OP_GCD, x, y), one = x.like(1);
  return select(g == 0, x.like(0), abs(apply(FL_OP_DIV_TRUNC, x, select(g == 0, one, g)) * y));
}())
STUB(heaviside_stub, "aten::heaviside", select(x == 0, y, (x > 0).cast(type)))
STUB(xlogy_stub, "aten::xlogy", select(is_nan(y), y, select(x == 0, x.like(0), x * log(y))))
STUB(xlog1py_stub, "aten::special_xlog1py", select(is_nan(y), y, select(x == 0, x.like(0), x * log1p(y))))
STUB(zeta_stub, "aten::special_zeta", apply(FL_OP_ZETA, x, y))
STUB(logaddexp_stub, "aten::logaddexp", x.is_complex() ? log_add_complex(x, y) : log_add(x, y, FL_OP_LOG1P))
STUB(logaddexp2_stub, "aten::logaddexp2", log_add(x, y, FL_OP_LOG2))
STUB(sigmoid_backward_stub, "aten::sigmoid_backward", x * conj((1 - y) * y))
STUB(tanh_backward_stub, "aten::tanh_backward", x * conj(1 - y * y))
STUB(mse_stub, "aten::mse_loss", (x - y) * (x - y))
STUB_WITH(smooth_l1_stub, "aten::smooth_l1_loss", (double beta), (beta), (beta),
          [&] { Expr d = abs(x - y); return select(d < z, d * d * 0.5 / z, d - z * 0.5); }())
STUB_WITH(huber_stub, "aten::huber_loss", (double delta), (delta), (delta),
          [&] { Expr d = abs(x - y); return select(d <= z, d * d * 0.5, z * (d - z * 0.5)); }())
STUB_WITH(logit_backward_stub, "aten::logit_backward", (const at::Scalar& eps), (eps), (eps), [&] {
  Expr inside = select(z < 0, (y >= 0) & (y <= 1), (y >= z) & (y <= 1 - z));
  Expr outside = select(z < 0, x.like(std::numeric_limits<double>::quiet_NaN()), x.like(0));
  return select(inside, x / (y * (1 - y)), outside);
}())
STUB(pow_tensor_tensor_stub, "aten::pow", pow(x, y))
STUB(complex_stub, "aten::complex", [&] {
  uint8_t wide = type == FL_F64 ? FL_C128 : FL_C64;
  return apply(FL_OP_COMPLEX, x.cast(wide), y.cast(wide));
}())
STUB(polar_stub, "aten::polar", [&] {
  uint8_t wide = type == FL_F64 ? FL_C128 : FL_C64;
  return apply(FL_OP_COMPLEX, (x * cos(y)).cast(wide), (x * sin(y)).cast(wide));
}())
STUB(igamma_stub, "aten::igamma", apply(FL_OP_IGAMMA, x, y))
STUB(igammac_stub, "aten::igammac", apply(FL_OP_IGAMMAC, x, y))

// Three tensors.
STUB_WITH(addcmul_stub, "aten::addcmul", (const at::Scalar& value), (value), (value), x + w * y * z)
STUB_WITH(addcdiv_stub, "aten::addcdiv", (const at::Scalar& value), (value), (value), x + w * y / z)
STUB_WITH(addr_stub, "aten::addr", (const at::Scalar& beta, const at::Scalar& alpha), (beta, alpha), (beta, alpha),
          [&] {  // beta 0: what x holds, NaN included, does not matter
            Expr alpha = in(4);
            if (x.type() == FL_BOOL) return (w & x) | (alpha & y & z);
            return select(w == 0, alpha * y * z, w * x + alpha * y * z);
          }())
STUB_WITH(mse_backward_stub, "aten::mse_loss_backward", (const at::Scalar& norm), (norm), (norm), w * (x - y) * z)
STUB_WITH(smooth_l1_backward_stub, "aten::smooth_l1_loss_backward", (const at::Scalar& norm, double beta),
          (norm, beta), (norm, beta), [&] {
            Expr d = x - y, beta = in(4);
            return select(d <= -beta, -w * z, select(d >= beta, w * z, w * d * z / beta));
          }())
STUB_WITH(huber_backward_stub, "aten::huber_loss_backward", (const at::Scalar& norm, double delta),
          (norm, delta), (norm, delta), [&] {
            Expr d = x - y, delta = in(4);
            return select(d <= -delta, -w * z * delta, select(d >= delta, w * z * delta, w * d * z));
          }())
STUB(clamp_stub, "aten::clamp", min(max(x, y), z))
STUB_WITH(clamp_scalar_stub, "aten::clamp", (const at::Scalar& low, const at::Scalar& high), (low, high),
          (low, high), at_most(at_least(x, y), z))
STUB_WITH(clamp_min_scalar_stub, "aten::clamp_min", (at::Scalar low), (low), (low), at_least(x, y))
STUB_WITH(clamp_max_scalar_stub, "aten::clamp_max", (at::Scalar high), (high), (high), at_most(x, y))

// Interpolates from the nearer end, as PyTorch does: exact at weight 0 and 1.
static Expr lerp(Expr a, Expr c, Expr weight) {
  Expr size = weight.is_complex() ? abs(weight).cast(weight.type() == FL_C128 ? FL_F64 : FL_F32) : abs(weight);
  return select(size < 0.5, a + weight * (c - a), c - (c - a) * (1 - weight));
}
// A number's end is known before the program is: near and far.
FORMULA(lerp_near, "aten::lerp", x + z * (y - x))
FORMULA(lerp_far, "aten::lerp", y - (y - x) * (1 - z))
static void lerp_number_kernel(at::TensorIteratorBase& iter, const at::Scalar& weight) {
  check_fits(weight, iter.dtype(0));
  double size = weight.isComplex() ? std::abs(weight.toComplexDouble()) : std::abs(weight.toDouble());
  const ScalarType computed = at::toRealValueType(iter.dtype(0));
  if (computed != at::kDouble) size = static_cast<float>(size);
  IteratorOp& op = size < 0.5 ? lerp_near_fl::op : lerp_far_fl::op;
  if (!run_iterator(op, iter, &weight, 1))
    run_on_host(op.op, iter, [&](at::TensorIterator& host) { lerp_kernel_scalar_weight(at::kCPU, host, weight); });
}
FL_REGISTER_STUB(lerp_kernel_scalar_weight, ::fl::bridge::lerp_number_kernel)
STUB(lerp_kernel_tensor_weight, "aten::lerp", lerp(x, y, z))

// add and sub (add of -alpha): the common alphas have programs of their own.
FORMULA(add_one, "aten::add", x + y)
FORMULA(add_minus_one, "aten::sub", x - y)
FORMULA(add_alpha, "aten::add", x + z * y)

static void add_kernel(at::TensorIteratorBase& iter, const at::Scalar& given) {
  const at::Scalar alpha = in_dtype(given, iter.common_dtype());
  bool done = alpha.equal(1)    ? run_iterator(add_one_fl::op, iter)
              : alpha.equal(-1) ? run_iterator(add_minus_one_fl::op, iter)
                                : run_iterator(add_alpha_fl::op, iter, &alpha, 1);
  if (!done) run_on_host(add_alpha_fl::op.op, iter, [&](at::TensorIterator& host) { add_stub(at::kCPU, host, alpha); });
}
FL_REGISTER_STUB(add_stub, ::fl::bridge::add_kernel)

// pow by a number: the frequent exponents need no logarithm.
FORMULA(pow_square, "aten::pow", x * x)
FORMULA(pow_cube, "aten::pow", x * x * x)
FORMULA(pow_root, "aten::pow", sqrt(x))
FORMULA(pow_inverse_root, "aten::pow", rsqrt(x))
FORMULA(pow_inverse, "aten::pow", reciprocal(x))
FORMULA(pow_scalar, "aten::pow", pow(x, y))

static void pow_tensor_scalar_kernel(at::TensorIteratorBase& iter, const at::Scalar& exponent) {
  struct Row { double exponent; IteratorOp& op; bool floating_only, root = false; };
  static const Row rows[] = {{2, pow_square_fl::op, false},      {3, pow_cube_fl::op, false},
                             {0.5, pow_root_fl::op, true, true}, {-0.5, pow_inverse_root_fl::op, true, true},
                             {-1, pow_inverse_fl::op, true}};
  // The roots of -0 and -inf are not their powers; PyTorch takes the powers of float16.
  bool half = iter.common_dtype() == at::kHalf;
  bool floating = !c10::isIntegralType(iter.common_dtype(), true);
  if (!exponent.isComplex() && iter.common_dtype() != at::kBool)
    for (const Row& row : rows)
      if (exponent.toDouble() == row.exponent && (floating || !row.floating_only) && !(half && row.root) &&
          run_iterator(row.op, iter))
        return;
  if (!run_iterator(pow_scalar_fl::op, iter, &exponent, 1))
    run_on_host(pow_scalar_fl::op.op, iter,
                [&](at::TensorIterator& host) { pow_tensor_scalar_stub(at::kCPU, host, exponent); });
}
FL_REGISTER_STUB(pow_tensor_scalar_stub, ::fl::bridge::pow_tensor_scalar_kernel)

// where: the condition is loaded in the output's type, 0 or 1.
FORMULA_OF_OUTPUT(where_any, "aten::where", select(nonzero(x), y, z))
static void where_kernel_fl(at::TensorIterator& iter) {
  if (!run_iterator(where_any_fl::op, iter))
    run_on_host(where_any_fl::op.op, iter, [](at::TensorIterator& host) { where_kernel(at::kCPU, host); }, false);
}
FL_REGISTER_STUB(where_kernel, ::fl::bridge::where_kernel_fl)

// masked_fill: self stays where the mask is not set.
// The value is a number of the launch or a 0-d tensor: the program cache tells them apart by their operands.
FORMULA_OF_OUTPUT(masked_fill, "aten::masked_fill_", select(nonzero(y), z, x))

static at::TensorIterator masked_fill_iterator(const Tensor& self, const Tensor& mask, const Tensor* value) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_fill_ only supports boolean masks, but got mask with dtype ",
              mask.scalar_type());
  at::assert_no_partial_overlap(self, mask);
  c10::MaybeOwned<Tensor> expanded = at::expand_inplace(self, mask, "masked_fill_");
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).check_all_same_dtype(false).resize_outputs(false);
  if (C10_UNLIKELY(at::has_internal_overlap(self) == at::MemOverlap::Yes)) {
    warn_of_expanded("masked_fill_", "tensor[mask] = scalar");
    // Elements in one place are filled when any of them is.
    at::DimVector shared;
    Tensor place = self;
    for (int64_t d = 0; d < self.dim(); ++d)
      if (self.stride(d) == 0 && self.size(d) > 1) shared.push_back(d), place = place.narrow(d, 0, 1);
    config.add_owned_output(place).add_owned_const_input(place);
    config.add_owned_const_input(expanded->any(shared, /*keepdim=*/true));
  } else {
    config.add_output(self).add_const_input(self).add_owned_const_input(*expanded);
  }
  if (value) config.add_const_input(*value);
  return config.build();
}
static Tensor& masked_fill_scalar(Tensor& self, const Tensor& mask, const at::Scalar& value) {
  check_fits(value, self.scalar_type());
  auto iter = masked_fill_iterator(self, mask, nullptr);
  if (!run_iterator(masked_fill_fl::op, iter, &value, 1))
    run_on_host(masked_fill_fl::op.op, iter, [&](at::TensorIterator& host) {
      host.output().masked_fill_(host.input(1), value);
    }, false);
  return self;
}
static Tensor& masked_fill_tensor(Tensor& self, const Tensor& mask, const Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
              value.dim(), " dimension(s).");
  // A complex number for a real tensor is an error or not by its value.
  bool complex = value.is_complex() && !self.is_complex();
  if (!is_fl(value) || complex) return masked_fill_scalar(self, mask, value.item());
  auto iter = masked_fill_iterator(self, mask, &value);
  if (!run_iterator(masked_fill_fl::op, iter))
    run_on_host(masked_fill_fl::op.op, iter, [](at::TensorIterator& host) {
      host.output().masked_fill_(host.input(1), host.input(2).flatten()[0]);
    }, false);
  return self;
}

// equal: one number crosses to the host.  Of two dtypes it compares the values, as CUDA's does (the CPU's refuses).
static bool equal(const Tensor& self, const Tensor& other) {
  static Op op("aten::equal");
  check_devices(op, {&self, &other});
  Call call(op, self);
  if (self.sizes() != other.sizes()) return false;
  if (self.numel() == 0) return true;
  call.composed();
  return at::eq(self, other).all().item<bool>();
}

// ------------------------------------------------------------- hot functional forms
// Those of the other operators are in pointwise_functional.cpp; PyTorch's classes for these two are the CPU's own.
static const Tensor undefined;

static Tensor add_tensor(const Tensor& self, const Tensor& other, const at::Scalar& alpha) {
  Functional<at::TensorIteratorBase> iter;
  iter.build_borrowing_binary_op(undefined, self, other);
  alpha_check(iter.dtype(), alpha);
  add_kernel(iter, alpha);
  return std::move(iter.out);
}
static Tensor sub_tensor(const Tensor& self, const Tensor& other, const at::Scalar& alpha) {
  sub_check(self, other);
  Functional<at::TensorIteratorBase> iter;
  iter.build_borrowing_binary_op(undefined, self, other);
  alpha_check(iter.dtype(), alpha);
  add_kernel(iter, -alpha);
  return std::move(iter.out);
}
static Tensor& add_out(const Tensor& self, const Tensor& other, const at::Scalar& alpha, Tensor& out) {
  auto iter = at::TensorIterator::borrowing_binary_op(out, self, other);
  alpha_check(iter.dtype(), alpha);
  add_kernel(iter, alpha);
  return out;
}
// The iterator sees that the result is the first operand, and refuses another shape.
static Tensor& add_inplace(Tensor& self, const Tensor& other, const at::Scalar& alpha) {
  return add_out(self, other, alpha, self);
}
static Tensor& sub_inplace(Tensor& self, const Tensor& other, const at::Scalar& alpha) {
  sub_check(self, other);
  return add_out(self, other, -alpha, self);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("masked_fill_.Scalar", masked_fill_scalar);
  m.impl("masked_fill_.Tensor", masked_fill_tensor);
  m.impl("equal", equal);
  m.impl("add.Tensor", add_tensor);
  m.impl("sub.Tensor", sub_tensor);
  m.impl("add_.Tensor", add_inplace);
  m.impl("sub_.Tensor", sub_inplace);
  m.impl("add.out", add_out);
  OUT(sub, out) OUT(mul, out) OUT(div, out) OUT(div, out_mode) OUT(remainder, Tensor_out) OUT(fmod, Tensor_out)
  OUT(atan2, out) OUT(bitwise_and, Tensor_out) OUT(bitwise_or, Tensor_out) OUT(bitwise_xor, Tensor_out)
  OUT(bitwise_left_shift, Tensor_out) OUT(bitwise_right_shift, Tensor_out)
  OUT(eq, Tensor_out) OUT(eq, Scalar_out) OUT(ne, Tensor_out) OUT(ne, Scalar_out) OUT(lt, Tensor_out)
  OUT(lt, Scalar_out) OUT(le, Tensor_out) OUT(le, Scalar_out) OUT(gt, Tensor_out) OUT(gt, Scalar_out)
  OUT(ge, Tensor_out) OUT(ge, Scalar_out)
  OUT(maximum, out) OUT(minimum, out) OUT(fmax, out) OUT(fmin, out) OUT(copysign, out) OUT(hypot, out)
  OUT(nextafter, out) OUT(gcd, out) OUT(lcm, out) OUT(heaviside, out) OUT(xlogy, OutTensor)
  OUT(special_xlog1py, out) OUT(special_zeta, out) OUT(logaddexp, out) OUT(logaddexp2, out)
  OUT(sigmoid_backward, grad_input) OUT(tanh_backward, grad_input) OUT(logit_backward, grad_input)
  OUT(mse_loss, out) OUT(smooth_l1_loss, out) OUT(igamma, out) OUT(igammac, out)
  OUT(pow, Tensor_Tensor_out) OUT(pow, Tensor_Scalar_out) OUT(pow, Scalar_out)
  OUT(addcmul, out) OUT(addcdiv, out) OUT(lerp, Scalar_out) OUT(lerp, Tensor_out)
  OUT(clamp, out) OUT(clamp, Tensor_out) OUT(clamp_max, out) OUT(clamp_max, Tensor_out) OUT(clamp_min, out)
  OUT(clamp_min, Tensor_out)
  NATIVE(logical_and, out, logical_and_out)
  NATIVE(logical_or, out, logical_or_out)
  NATIVE(logical_xor, out, logical_xor_out)
  NATIVE0(floor_divide, floor_divide)
  NATIVE(floor_divide_, Tensor, floor_divide_)
  NATIVE(floor_divide, out, floor_divide_out)
  NATIVE(rsub, Tensor, rsub)
  NATIVE(remainder, Scalar_Tensor, remainder)
  NATIVE(__lshift__, Scalar, __lshift__)
  NATIVE(__lshift__, Tensor, __lshift__)
  NATIVE(__ilshift__, Scalar, __ilshift__)
  NATIVE(__ilshift__, Tensor, __ilshift__)
  NATIVE(__rshift__, Scalar, __rshift__)
  NATIVE(__rshift__, Tensor, __rshift__)
  NATIVE(__irshift__, Scalar, __irshift__)
  NATIVE(__irshift__, Tensor, __irshift__)
  NATIVE0(addr, addr)
  NATIVE(addr, out, addr_out)
  NATIVE(complex, out, complex_out)
  NATIVE(polar, out, polar_out)
  NATIVE(where, self, where)
  NATIVE(where, self_out, where_self_out)
  NATIVE(huber_loss, out, huber_loss_out)
  NATIVE0(huber_loss, huber_loss)
  NATIVE(huber_loss_backward, out, huber_loss_backward_out)
  NATIVE(mse_loss_backward, grad_input, mse_loss_backward_out)
  NATIVE0(mse_loss_backward, mse_loss_backward)
  NATIVE(smooth_l1_loss_backward, grad_input, smooth_l1_loss_backward_out)
}

}  // namespace fl::bridge
// clang-format on
