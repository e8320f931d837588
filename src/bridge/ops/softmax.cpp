// Softmax and log-softmax, forward and backward.
#include "bridge/devices.h"
#include "bridge/ops/reduction.h"

namespace fl::bridge {
namespace {

// out = exp(x - max) / sum, or x - max - log(sum): two reductions and a program each.
bool forward_composed(Call& call, const Tensor& x, int64_t dim, bool log, const Tensor& out) {
  static Programs sums, results;
  call.composed();
  Mask mask = mask_of(dim, x.dim());
  ScalarType wide = at::isReducedFloatingType(x.scalar_type()) ? at::kFloat : x.scalar_type();
  uint8_t type = to_register(wide), tx = dtype_of(x), to = dtype_of(out);
  auto sizes = at::native::shape_from_dim_mask(x, mask, true);
  Tensor top = empty_like(x, sizes, wide), sum = empty_like(x, sizes, wide);
  const fl_program* pre = sums.get(key_of(tx, type), [&](Builder& b) {
    b.store(0, b.op(FL_OP_EXP, b.op(FL_OP_SUB, b.load(0, tx, type), b.load(1, type))), type);
  });
  const fl_program* result = results.get(key_of(tx, to, log), [&](Builder& b) {
    Value d = b.op(FL_OP_SUB, b.load(0, tx, type), b.load(1, type)), s = b.load(2, type);
    b.store(0, log ? b.op(FL_OP_SUB, d, b.op(FL_OP_LOG, s)) : b.op(FL_OP_DIV, b.op(FL_OP_EXP, d), s), to);
  });
  return reduce(call, {FL_REDUCE_MAX, type}, mask, {&x}, {&top}) &&
         reduce(call, {FL_REDUCE_SUM, type, pre}, mask, {&x, &top}, {&sum}) &&
         run_program(call, result, {&out}, {&x, &top, &sum});
}

bool forward_into(Call& call, const Tensor& x, int64_t dim, bool log, const Tensor& out) {
  if (x.numel() == 0) return true;
  if (call.claims(FL_ENTRY_SOFTMAX, FL_ANY, dtype_of(x))) {
    const int64_t one = 1;
    fl_softmax_args args{call.view(x), call.view(out),
                         static_cast<int32_t>(x.dim() ? at::maybe_wrap_dim(dim, x.dim()) : 0), log};
    if (x.dim() == 0)
      for (fl_tensor* t : {&args.in, &args.out}) t->sizes = t->strides = &one, t->ndim = 1;
    if (call.native(call.chip().op.softmax, args, {&args.in, &args.out})) return true;
  }
  return forward_composed(call, x, dim, log, out);
}

void check_forward(const char* name, const Tensor& x, int64_t dim, bool half_to_float) {
  at::maybe_wrap_dim(dim, std::max<int64_t>(1, x.dim()));
  TORCH_CHECK(!half_to_float || x.scalar_type() == at::kHalf, "conversion is supported for Half type only");
  TORCH_CHECK(at::isFloatingType(x.scalar_type()), "\"", name, "\" not implemented for '",
              c10::toString(x.scalar_type()), "'");
}

template <bool kLog>
Tensor forward(const Tensor& x, int64_t dim, bool half_to_float) {
  static Op op(kLog ? "aten::_log_softmax" : "aten::_softmax");
  check_forward(kLog ? "log_softmax" : "softmax", x, dim, half_to_float);
  ScalarType dtype = half_to_float ? at::kFloat : x.scalar_type();
  Tensor out = empty_like(x, x.sizes(), dtype);  // contiguous whatever x is, as PyTorch's shape function says
  Call call(op, x);
  if (forward_into(call, x, dim, kLog, out)) return out;
  if constexpr (kLog) return fallback<ATEN_OP(_log_softmax)>(x, dim, half_to_float);
  else return fallback<ATEN_OP(_softmax)>(x, dim, half_to_float);
}

template <bool kLog>
Tensor& forward_out(const Tensor& x, int64_t dim, bool half_to_float, Tensor& out) {
  static Op op(kLog ? "aten::_log_softmax.out" : "aten::_softmax.out");
  check_forward(kLog ? "log_softmax" : "softmax", x, dim, half_to_float);
  ScalarType dtype = half_to_float ? at::kFloat : x.scalar_type();
  TORCH_CHECK(out.scalar_type() == dtype, "Expected out tensor to have dtype ", c10::toString(dtype),
              ", but got ", c10::toString(out.scalar_type()), " instead");
  at::native::resize_output(out, x.sizes());
  Call call(op, x);
  if (forward_into(call, x, dim, kLog, out)) return out;
  if constexpr (kLog) return fallback<ATEN_OP2(_log_softmax, out)>(x, dim, half_to_float, out);
  else return fallback<ATEN_OP2(_softmax, out)>(x, dim, half_to_float, out);
}

// softmax: y·(g - sum(g·y));  log: g - exp(y)·sum(g)
bool backward_composed(Call& call, const Tensor& grad, const Tensor& y, int64_t dim, bool log,
                       const Tensor& grad_in) {
  static Programs products, results;
  call.composed();
  Mask mask = mask_of(dim, y.dim());
  ScalarType wide = at::isReducedFloatingType(y.scalar_type()) ? at::kFloat : y.scalar_type();
  uint8_t type = to_register(wide), tg = dtype_of(grad), ty = dtype_of(y), to = dtype_of(grad_in);
  Tensor sum = empty_like(y, at::native::shape_from_dim_mask(y, mask, true), wide);
  const fl_program* pre = log ? nullptr : products.get(key_of(tg, ty), [&](Builder& b) {
    b.store(0, b.op(FL_OP_MUL, b.load(0, tg, type), b.load(1, ty, type)), type);
  });
  const fl_program* result = results.get(key_of(tg, ty, to, log), [&](Builder& b) {
    Value g = b.load(0, tg, type), v = b.load(1, ty, type), s = b.load(2, type);
    b.store(0,
            log ? b.op(FL_OP_SUB, g, b.op(FL_OP_MUL, b.op(FL_OP_EXP, v), s))
                : b.op(FL_OP_MUL, v, b.op(FL_OP_SUB, g, s)),
            to);
  });
  Reduction reduction{FL_REDUCE_SUM, type, pre};
  return (log ? reduce(call, reduction, mask, {&grad}, {&sum})
              : reduce(call, reduction, mask, {&grad, &y}, {&sum})) &&
         run_program(call, result, {&grad_in}, {&grad, &y, &sum});
}

bool backward_into(Call& call, const Tensor& grad, const Tensor& y, int64_t dim, bool log,
                   const Tensor& grad_in) {
  if (y.numel() == 0) return true;
  if (call.claims(FL_ENTRY_SOFTMAX_BACKWARD, FL_ANY, dtype_of(y)) &&
      grad_in.scalar_type() == y.scalar_type() && grad.scalar_type() == y.scalar_type() && y.dim()) {
    fl_softmax_backward_args args{call.view(grad), call.view(y), call.view(grad_in),
                                  static_cast<int32_t>(at::maybe_wrap_dim(dim, y.dim())), log};
    if (call.native(call.chip().op.softmax_backward, args, {&args.grad_out, &args.out, &args.grad_in}))
      return true;
  }
  return backward_composed(call, grad, y, dim, log, grad_in);
}

template <bool kLog>
Tensor backward(const Tensor& grad, const Tensor& y, int64_t dim, ScalarType input_dtype) {
  static Op op(kLog ? "aten::_log_softmax_backward_data" : "aten::_softmax_backward_data");
  check_devices(op, {&grad, &y});
  at::maybe_wrap_dim(dim, std::max<int64_t>(1, y.dim()));
  TORCH_CHECK(grad.sizes() == y.sizes(), op.name, ": grad has shape ", grad.sizes(), ", output has ",
              y.sizes());
  Tensor grad_in = empty_like(y, y.sizes(), input_dtype);
  Call call(op, y);
  if (backward_into(call, grad, y, dim, kLog, grad_in)) return grad_in;
  if constexpr (kLog) return fallback<ATEN_OP(_log_softmax_backward_data)>(grad, y, dim, input_dtype);
  else return fallback<ATEN_OP(_softmax_backward_data)>(grad, y, dim, input_dtype);
}

template <bool kLog>
Tensor& backward_out(const Tensor& grad, const Tensor& y, int64_t dim, ScalarType input_dtype,
                     Tensor& grad_in) {
  static Op op(kLog ? "aten::_log_softmax_backward_data.out" : "aten::_softmax_backward_data.out");
  check_devices(op, {&grad, &y});
  at::maybe_wrap_dim(dim, std::max<int64_t>(1, y.dim()));
  TORCH_CHECK(grad_in.scalar_type() == input_dtype, "Expected out tensor to have dtype ",
              c10::toString(input_dtype), ", but got ", c10::toString(grad_in.scalar_type()), " instead");
  at::native::resize_output(grad_in, y.sizes());
  Call call(op, y);
  if (backward_into(call, grad, y, dim, kLog, grad_in)) return grad_in;
  if constexpr (kLog)
    return fallback<ATEN_OP2(_log_softmax_backward_data, out)>(grad, y, dim, input_dtype, grad_in);
  else return fallback<ATEN_OP2(_softmax_backward_data, out)>(grad, y, dim, input_dtype, grad_in);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_softmax", forward<false>);
  m.impl("_softmax.out", forward_out<false>);
  m.impl("_log_softmax", forward<true>);
  m.impl("_log_softmax.out", forward_out<true>);
  m.impl("_softmax_backward_data", backward<false>);
  m.impl("_softmax_backward_data.out", backward_out<false>);
  m.impl("_log_softmax_backward_data", backward<true>);
  m.impl("_log_softmax_backward_data.out", backward_out<true>);
}

}  // namespace
}  // namespace fl::bridge
