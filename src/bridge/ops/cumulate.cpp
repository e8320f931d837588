// Cumulative sums, products, minima, maxima and log-sums of exponentials.
#include <ATen/ops/cumprod_meta.h>
#include <ATen/ops/cumsum_meta.h>

#include "bridge/ops/order.h"

namespace fl::bridge {
namespace {

using OptionalType = std::optional<ScalarType>;

void refuse_bool(const char* name, const Tensor& t) {
  TORCH_CHECK_NOT_IMPLEMENTED(t.scalar_type() != at::kBool, "\"", name, "\" not implemented for 'Bool'");
}

Tensor& cumsum_out(const Tensor& self, int64_t dim, OptionalType dtype, Tensor& out) {
  static Op op("aten::cumsum.out");
  Into<at::meta::structured_cumsum> shape(out);
  shape.meta(self, dim, dtype);
  refuse_bool("cumsum_out_cpu", out);
  Call call(op, self);
  if (scan_into(call, FL_SCAN_SUM, self, dim, out)) return out;
  return fallback<ATEN_OP2(cumsum, out)>(self, dim, dtype, out);
}

Tensor& cumprod_out(const Tensor& self, int64_t dim, OptionalType dtype, Tensor& out) {
  static Op op("aten::cumprod.out");
  Into<at::meta::structured_cumprod> shape(out);
  shape.meta(self, dim, dtype);
  refuse_bool("cumprod_out_cpu", out);
  Call call(op, self);
  if (scan_into(call, FL_SCAN_PROD, self, dim, out)) return out;
  return fallback<ATEN_OP2(cumprod, out)>(self, dim, dtype, out);
}

// cummax and cummin have shaped values and indices.
void cummax_helper(const Tensor& self, Tensor& values, Tensor& indices, int64_t dim) {
  static Op op("aten::_cummax_helper");
  Call call(op, self);
  if (scan_into(call, FL_SCAN_MAX, self, dim, values, &indices)) return;
  fallback<ATEN_OP(_cummax_helper)>(self, values, indices, dim);
}
void cummin_helper(const Tensor& self, Tensor& values, Tensor& indices, int64_t dim) {
  static Op op("aten::_cummin_helper");
  Call call(op, self);
  if (scan_into(call, FL_SCAN_MIN, self, dim, values, &indices)) return;
  fallback<ATEN_OP(_cummin_helper)>(self, values, indices, dim);
}

// ---------------------------------------------- logcumsumexp of complex numbers
Tensor unturned(const Tensor& angle) { return angle - at::round(angle / (2 * M_PI)) * (2 * M_PI); }

// Sums as exp(m) × s with m the largest real part so far: each round combines what lies `step`
// apart.  The angle of s is known up to full turns; PyTorch, which adds one element after the
// other, keeps those of whichever summand is the larger.  So they are counted from the last
// element that was larger than the sum before it.
Tensor complex_logcumsumexp(const Tensor& x, int64_t dim) {
  const int64_t n = x.size(dim);
  Tensor imag = at::imag(x), m = at::real(x).clone(), s = at::empty(x.sizes(), x.options());
  at::real(s).copy_(imag.cos()), at::imag(s).copy_(imag.sin());
  for (int64_t step = 1; step < n; step *= 2) {
    auto left = [&](const Tensor& t) { return t.narrow(dim, 0, n - step); };
    auto right = [&](const Tensor& t) { return t.narrow(dim, step, n - step); };
    Tensor top = at::maximum(left(m), right(m));
    auto scale = [&](const Tensor& from) { return at::where(from == top, 1, (from - top).exp()); };
    Tensor sum = left(s) * scale(left(m)) + right(s) * scale(right(m));
    right(s).copy_(sum), right(m).copy_(top);
  }
  Tensor real = m + s.abs().log(), angle = at::atan2(at::imag(s), at::real(s));
  Tensor place = at::zeros(x.sizes(), x.options().dtype(at::kLong)), turned = at::zeros_like(angle);
  if (n > 1) {
    auto later = [&](const Tensor& t) { return t.narrow(dim, 1, n - 1); };
    auto before = [&](const Tensor& t) { return t.narrow(dim, 0, n - 1); };
    at::DimVector shape(x.dim(), 1);
    shape[dim] = n - 1;
    Tensor places = at::arange(1, n, place.options()).view(shape);
    later(place).copy_(at::where(later(at::real(x)) >= before(real), places, 0));
    later(turned).copy_(unturned(later(angle) - before(angle)));
  }
  Tensor start = std::get<0>(at::cummax(place, dim)), turns = at::cumsum(turned, dim);
  Tensor first = (imag + unturned(angle - imag) - turns).gather(dim, start) + turns;
  Tensor out = at::empty(x.sizes(), x.options());
  at::real(out).copy_(real),
      at::imag(out).copy_(angle + at::round((first - angle) / (2 * M_PI)) * (2 * M_PI));
  return out;
}

Tensor& logcumsumexp_out(const Tensor& self, int64_t dim, Tensor& out) {
  static Op op("aten::_logcumsumexp.out");
  TORCH_CHECK_NOT_IMPLEMENTED(!at::isIntegralType(self.scalar_type(), true),
                              "\"logcumsumexp_out_cpu\" not implemented for '",
                              c10::toString(self.scalar_type()), "'");
  dim = at::maybe_wrap_dim(dim, self.dim());
  at::assert_no_internal_overlap(out);
  at::native::resize_output(out, self.sizes());
  Call call(op, self);
  if (at::isComplexType(self.scalar_type()) && self.dim() && self.numel()) {
    call.composed();
    out.copy_(complex_logcumsumexp(self, dim));
    return out;
  }
  if (scan_into(call, FL_SCAN_LOGSUMEXP, self, dim, out)) return out;
  return fallback<ATEN_OP2(_logcumsumexp, out)>(self, dim, out);
}
Tensor logcumsumexp(const Tensor& self, int64_t dim) {
  Tensor out = empty_like(self, self.sizes(), self.scalar_type());
  return logcumsumexp_out(self, dim, out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("cumsum.out", cumsum_out);
  m.impl("cumprod.out", cumprod_out);
  m.impl("_cummax_helper", cummax_helper);
  m.impl("_cummin_helper", cummin_helper);
  m.impl("_logcumsumexp", logcumsumexp);
  m.impl("_logcumsumexp.out", logcumsumexp_out);
}

}  // namespace
}  // namespace fl::bridge
