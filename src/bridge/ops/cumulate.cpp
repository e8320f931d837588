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

Tensor& logcumsumexp_out(const Tensor& self, int64_t dim, Tensor& out) {
  static Op op("aten::_logcumsumexp.out");
  TORCH_CHECK_NOT_IMPLEMENTED(!at::isIntegralType(self.scalar_type(), true),
                              "\"logcumsumexp_out_cpu\" not implemented for '",
                              c10::toString(self.scalar_type()), "'");
  at::native::resize_output(out, self.sizes());
  Call call(op, self);
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
