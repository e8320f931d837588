// linalg_cross, and the exclusive-or of all bits that hash_tensor is.
#include <ATen/CPUFunctions.h>
#include <ATen/native/Cross.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/ops/hash_tensor_meta.h>

#include "bridge/devices.h"
#include "bridge/ops/programs.h"
#include "program/expr.h"

namespace fl::bridge {

// The three components in one launch: an output may be an input.
void cross_kernel(const Tensor& result, const Tensor& a, const Tensor& b, const int64_t dim) {
  static Op op("aten::linalg_cross");
  static Programs programs;
  TORCH_CHECK_NOT_IMPLEMENTED(result.scalar_type() != at::kBool, "\"cross\" not implemented for 'Bool'");
  if (result.numel() == 0) return;
  Call call(op, result);
  const uint8_t memory = dtype_of(result), type = to_register(result.scalar_type());
  const fl_program* program = programs.get(memory, [&](Builder& builder) {
    Expr x[3], y[3];
    for (int i = 0; i < 3; ++i)
      x[i] = {&builder, builder.load(i, memory)}, y[i] = {&builder, builder.load(3 + i, memory)};
    for (int i = 0; i < 3; ++i) {
      int j = (i + 1) % 3, k = (i + 2) % 3;
      builder.store(i, (x[j] * y[k] - x[k] * y[j]).v, memory);
    }
  });
  auto part = [&](const Tensor& t, int64_t i) { return t.select(dim, i); };
  Tensor r[3], x[3], y[3];
  for (int i = 0; i < 3; ++i) r[i] = part(result, i), x[i] = part(a, i), y[i] = part(b, i);
  if (type == FL_NONE ||
      !run_program(call, program, {&r[0], &r[1], &r[2]}, {&x[0], &x[1], &x[2], &y[0], &y[1], &y[2]}))
    throw_refused(call, "pointwise", result.scalar_type());
}

namespace {

// PyTorch's function takes the kernel of the first operand's device.
Tensor& cross_out(const Tensor& a, const Tensor& b, int64_t dim, Tensor& out) {
  static Op op("aten::linalg_cross");
  check_devices(op, {&a, &b});
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "expected scalar type ", c10::toString(a.scalar_type()),
              " but found ", c10::toString(b.scalar_type()));
  return at::cpu::linalg_cross_outf(a, b, dim, out);
}

// 64 bits of each value: an integer's own, a float's as float64.
Tensor bits_of(const Tensor& t) {
  if (at::isFloatingType(t.scalar_type())) return t.to(at::kDouble).view(at::kLong);
  return t.scalar_type() == at::kUInt64 ? t.view(at::kLong) : t.to(at::kLong);
}

Tensor& hash_out(const Tensor& self, IntArrayRef dim, bool keepdim, int64_t mode, Tensor& out) {
  static Op op("aten::hash_tensor");
  Into<at::meta::structured_hash_tensor> shape(out);
  shape.meta(self, dim, keepdim, mode);
  TORCH_CHECK_NOT_IMPLEMENTED(!self.is_complex(), "\"xor_sum_cpu\" not implemented for '",
                              c10::toString(self.scalar_type()), "'");
  if (out.numel() == 0) return out;
  if (self.numel() == 0) return out.zero_();
  Call call(op, self);
  call.composed();
  // [results, values of each], folded in half until one is left.
  auto mask = at::native::make_dim_mask(dim, self.dim(), /*allow_empty_dims=*/true);
  at::DimVector order;
  for (int64_t d = 0; d < self.dim(); ++d)
    if (!mask[d]) order.push_back(d);
  for (int64_t d = 0; d < self.dim(); ++d)
    if (mask[d]) order.push_back(d);
  Tensor x = bits_of(self).permute(order).reshape({out.numel(), -1});
  for (int64_t n = x.size(1); n > 1; n = x.size(1)) {
    const int64_t half = (n + 1) / 2;
    Tensor low = x.narrow(1, 0, half).clone();
    low.narrow(1, 0, n - half).bitwise_xor_(x.narrow(1, half, n - half));
    x = low;
  }
  out.view(at::kLong).copy_(x.view(out.sizes()));
  return out;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("linalg_cross.out", cross_out);
  m.impl("hash_tensor.out", hash_out);
}

}  // namespace
}  // namespace fl::bridge

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(cross_stub, &fl::bridge::cross_kernel)
}  // namespace at::native
