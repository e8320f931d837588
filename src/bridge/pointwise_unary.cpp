// Elementwise operators of one tensor: a line each.
#include <ATen/NativeFunctions.h>
#include <ATen/CPUFunctions.h>
#include <ATen/native/Normalization.h>
#include <ATen/native/TensorCompare.h>
#include <ATen/native/UnaryOps.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "bridge/iterator.h"
#include "bridge/one_device.h"

namespace fl::bridge {

using namespace at::native;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kPi = std::numbers::pi;

// The tables stay as they are laid out.
// clang-format off

STUB(abs_stub, "aten::abs", abs(x))
STUB(acos_stub, "aten::acos", apply(FL_OP_ACOS, x))
STUB(acosh_stub, "aten::acosh", apply(FL_OP_ACOSH, x))
STUB(angle_stub, "aten::angle",
     x.is_complex() ? apply(FL_OP_ANGLE, x) : select(is_nan(x), x, select(x < 0, x.like(kPi), x.like(0))))
STUB(asin_stub, "aten::asin", apply(FL_OP_ASIN, x))
STUB(asinh_stub, "aten::asinh", apply(FL_OP_ASINH, x))
STUB(atan_stub, "aten::atan", apply(FL_OP_ATAN, x))
STUB(atanh_stub, "aten::atanh", apply(FL_OP_ATANH, x))
STUB(bitwise_not_stub, "aten::bitwise_not", !x)
STUB(ceil_stub, "aten::ceil", apply(FL_OP_CEIL, x))
STUB(conj_physical_stub, "aten::conj_physical", conj(x))
STUB(cos_stub, "aten::cos", cos(x))
STUB(cosh_stub, "aten::cosh", apply(FL_OP_COSH, x))
STUB(digamma_stub, "aten::digamma", apply(FL_OP_DIGAMMA, x))
STUB(erf_stub, "aten::erf", erf(x))
STUB(erfc_stub, "aten::erfc", apply(FL_OP_ERFC, x))
STUB(erfinv_stub, "aten::erfinv", apply(FL_OP_ERFINV, x))
STUB(exp_stub, "aten::exp", exp(x))
STUB(exp2_stub, "aten::exp2", exp2(x))
STUB(expm1_stub, "aten::expm1", expm1(x))
STUB(floor_stub, "aten::floor", apply(FL_OP_FLOOR, x))
STUB(frac_stub, "aten::frac", x - trunc(x))
STUB(i0_stub, "aten::i0", apply(FL_OP_I0, x))
STUB(lgamma_stub, "aten::lgamma", apply(FL_OP_LGAMMA, x))
STUB(log_stub, "aten::log", log(x))
STUB(log10_stub, "aten::log10", apply(FL_OP_LOG10, x))
STUB(log1p_stub, "aten::log1p", log1p(x))
STUB(log2_stub, "aten::log2", log2(x))
STUB(logical_not_stub, "aten::logical_not", x == 0)
STUB(neg_stub, "aten::neg", -x)
STUB(reciprocal_stub, "aten::reciprocal", reciprocal(x))
STUB(round_stub, "aten::round", round(x))
STUB(rsqrt_stub, "aten::rsqrt", rsqrt(x))
STUB(sgn_stub, "aten::sgn", sign(x))
STUB(sigmoid_stub, "aten::sigmoid", sigmoid(x))
STUB(sign_stub, "aten::sign", x.type() == FL_BOOL ? x : sign(x))
STUB_WITH(renorm_scale_factor_stub, "aten::renorm", (double largest), (largest), (largest),
          select(x > y, y / (x + 1e-7), x.like(1)))
STUB(signbit_stub, "aten::signbit", x.is_real() ? apply(FL_OP_COPYSIGN, x.like(1), x) < 0 : x < 0)
STUB(sin_stub, "aten::sin", sin(x))
STUB(sinc_stub, "aten::sinc", select(x == 0, x.like(1), sin(x * kPi) / (x * kPi)))
STUB(sinh_stub, "aten::sinh", apply(FL_OP_SINH, x))
STUB(special_entr_stub, "aten::special_entr",
     select(is_nan(x), x, select(x > 0, -x * log(x), select(x == 0, x.like(0), x.like(-kInf)))))
STUB(special_erfcx_stub, "aten::special_erfcx", apply(FL_OP_ERFCX, x))
STUB(special_i0e_stub, "aten::special_i0e", apply(FL_OP_I0E, x))
STUB(special_i1_stub, "aten::special_i1", apply(FL_OP_I1, x))
STUB(special_i1e_stub, "aten::special_i1e", apply(FL_OP_I1E, x))
STUB(special_log_ndtr_stub, "aten::special_log_ndtr", apply(FL_OP_LOG_NDTR, x))
STUB(special_ndtri_stub, "aten::special_ndtri", apply(FL_OP_NDTRI, x))
STUB(sqrt_stub, "aten::sqrt", sqrt(x))
STUB(tan_stub, "aten::tan", apply(FL_OP_TAN, x))
STUB(tanh_stub, "aten::tanh", tanh(x))
STUB(trigamma_stub, "aten::trigamma", apply(FL_OP_TRIGAMMA, x))
STUB(trunc_stub, "aten::trunc", trunc(x))
STUB(isposinf_stub, "aten::isposinf", x == kInf)
STUB(isneginf_stub, "aten::isneginf", x == -kInf)
// eps < 0 means none; a number outside [eps, 1 - eps], rounded to the dtype, is moved to the border.
FORMULA(logit_stub, "aten::logit", [&] {
  Expr clamped = select(y < 0, x, select(x < y, y, select(x > z, z, x)));
  return log(clamped / (1 - clamped));
}())
namespace logit_stub_fl {
constexpr auto kernel = [](auto& iter, const at::Scalar& eps) {
  at::Scalar numbers[2];
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, iter.common_dtype(), "logit", [&] {
    scalar_t low = eps.to<scalar_t>(), high = scalar_t(1) - low;
    numbers[0] = low, numbers[1] = high;
  });
  if (!run_iterator(op, iter, numbers, 2))
    run_on_host(op.op, iter, [&](at::TensorIterator& host) { logit_stub(at::kCPU, host, eps); });
};
}
FL_REGISTER_STUB(logit_stub, ::fl::bridge::logit_stub_fl::kernel)

// nan_to_num: what is not given is 0, and the largest and smallest of the dtype.
FORMULA(nan_to_num_stub, "aten::nan_to_num",
        select(is_nan(x), y, select(x == kInf, z, select(x == -kInf, w, x))))
namespace nan_to_num_stub_fl {
constexpr auto kernel = [](auto& iter, std::optional<double> nan, std::optional<double> posinf,
                           std::optional<double> neginf) {
  double largest = 0;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, c10::toRealValueType(iter.dtype(0)), "nan_to_num",
                                  [&] { largest = static_cast<double>(std::numeric_limits<scalar_t>::max()); });
  const at::Scalar numbers[] = {nan.value_or(0.0), posinf.value_or(largest), neginf.value_or(-largest)};
  if (c10::isComplexType(iter.dtype(0)) || !run_iterator(op, iter, numbers, 3))
    run_on_host(op.op, iter, [&](at::TensorIterator& host) { nan_to_num_stub(at::kCPU, host, nan, posinf, neginf); });
};
}
FL_REGISTER_STUB(nan_to_num_stub, ::fl::bridge::nan_to_num_stub_fl::kernel)

// Rounded at 10**-decimals; a negative number of decimals divides first.
FORMULA(round_decimals_stub, "aten::round", select(z != 0, round(x / y) * y, round(x * y) / y))
namespace round_decimals_stub_fl {
constexpr auto kernel = [](auto& iter, int64_t decimals) {
  const at::Scalar numbers[] = {std::pow(10.0, static_cast<double>(std::abs(decimals))), decimals < 0};
  if (!run_iterator(op, iter, numbers, 2))
    run_on_host(op.op, iter, [&](at::TensorIterator& host) { round_decimals_stub(at::kCPU, host, decimals); });
};
}
FL_REGISTER_STUB(round_decimals_stub, ::fl::bridge::round_decimals_stub_fl::kernel)

// polygamma(n, x) = (-1)^(n+1) n! zeta(n+1, x); orders 0 and 1 have names of their own.
FORMULA(polygamma_stub, "aten::polygamma", z * apply(FL_OP_ZETA, y, x))
namespace polygamma_stub_fl {
constexpr auto kernel = [](auto& iter, int64_t n) {
  if (n == 0) return digamma_stub(iter.device_type(), iter);
  if (n == 1) return trigamma_stub(iter.device_type(), iter);
  double factor = (n % 2 ? 1.0 : -1.0) * std::tgamma(static_cast<double>(n) + 1);
  const at::Scalar numbers[] = {static_cast<double>(n) + 1, factor};
  if (!run_iterator(op, iter, numbers, 2))
    run_on_host(op.op, iter, [&](at::TensorIterator& host) { polygamma_stub(at::kCPU, host, n); });
};
}
FL_REGISTER_STUB(polygamma_stub, ::fl::bridge::polygamma_stub_fl::kernel)

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  OUT(acos, out) OUT(acosh, out) OUT(asin, out) OUT(asinh, out) OUT(atan, out) OUT(atanh, out)
  OUT(bitwise_not, out) OUT(ceil, out) OUT(cos, out) OUT(cosh, out) OUT(digamma, out) OUT(erf, out)
  OUT(erfc, out) OUT(erfinv, out) OUT(exp, out) OUT(exp2, out) OUT(expm1, out) OUT(floor, out)
  OUT(frac, out) OUT(i0, out) OUT(isneginf, out) OUT(isposinf, out) OUT(lgamma, out) OUT(log, out)
  OUT(log10, out) OUT(log1p, out) OUT(log2, out) OUT(neg, out) OUT(polygamma, out) OUT(reciprocal, out)
  OUT(round, out) OUT(round, decimals_out) OUT(rsqrt, out) OUT(sgn, out) OUT(sigmoid, out) OUT(sign, out)
  OUT(signbit, out) OUT(sin, out) OUT(sinc, out) OUT(sinh, out) OUT(sqrt, out) OUT(tan, out) OUT(tanh, out)
  OUT(trunc, out)
  OUT(special_entr, out) OUT(special_erfcx, out) OUT(special_i0e, out) OUT(special_i1, out)
  OUT(special_i1e, out) OUT(special_log_ndtr, out) OUT(special_ndtri, out)
  OUT(renorm, out)
  ON_ONE_DEVICE(abs, out, abs_out)
  NATIVE0(angle, angle)
  ON_ONE_DEVICE(angle, out, angle_out)
  NATIVE(conj_physical, out, conj_physical_out)
  NATIVE(logical_not, out, logical_not_out)
  ON_ONE_DEVICE(nan_to_num, out, nan_to_num_out)
  NATIVE0(isnan, isnan)
  NATIVE0(logit, logit)
  NATIVE0(logit_, logit_)
  NATIVE(logit, out, logit_out)
  NATIVE(frexp, Tensor_out, frexp_out)
}

}  // namespace fl::bridge
// clang-format on
