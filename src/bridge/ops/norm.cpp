// Layer, group and RMS norm.  Batch norm is in batch_norm.cpp.
#include <ATen/native/layer_norm.h>

#include "bridge/devices.h"
#include "bridge/ops/reduction.h"

namespace fl::bridge {
namespace {

// Statistics of a half tensor are kept in F32 by chips.
ScalarType statistics_type(ScalarType dtype) { return at::isReducedFloatingType(dtype) ? at::kFloat : dtype; }

// The [N, G, C, S] and [G, C] and [N, G] of the norm entries, over contiguous tensors.
struct Grid {
  int64_t n, g, c, s;
};
struct View {
  int64_t sizes[4], strides[4];
  fl_tensor t;
  View() = default;
  View(const fl_tensor& from, std::initializer_list<int64_t> shape) {
    int nd = static_cast<int>(shape.size());
    std::copy(shape.begin(), shape.end(), sizes);
    int64_t step = 1;
    for (int d = nd - 1; d >= 0; --d) strides[d] = step, step *= sizes[d];
    t = fl_tensor{from.data, sizes, strides, nd, from.dtype, 0, 0};
  }
  View(const View&) = delete;
};
View big(const Call& call, const Tensor& t, const Grid& g) {
  return View(call.view(t), {g.n, g.g, g.c, g.s});
}
View affine(const Call& call, const Tensor& t, const Grid& g) { return View(call.view(t), {g.g, g.c}); }
View statistic(const Call& call, const Tensor& t, const Grid& g) { return View(call.view(t), {g.n, g.g}); }

// All tensors contiguous.  mean null for RMS.
bool norm_native(Call& call, int kind, const Grid& g, const Tensor& x, const Tensor& y, const Tensor* weight,
                 const Tensor* bias, const Tensor* mean, const Tensor& rstd, double eps) {
  if (!call.claims(FL_ENTRY_NORM, kind, dtype_of(x))) return false;
  View vx = big(call, x, g), vy = big(call, y, g), vr = statistic(call, rstd, g);
  View vw = weight ? affine(call, *weight, g) : View({}, {}),
       vb = bias ? affine(call, *bias, g) : View({}, {});
  View vm = mean ? statistic(call, *mean, g) : View({}, {});
  fl_norm_args args{
      vx.t, vy.t, weight ? &vw.t : nullptr, bias ? &vb.t : nullptr, mean ? &vm.t : nullptr, &vr.t, eps,
      kind, 0};
  return call.native(call.chip().op.norm, args, {&args.x, &args.y});
}

bool norm_backward_native(Call& call, int kind, const Grid& g, const Tensor& grad_y, const Tensor& x,
                          const Tensor* weight, const Tensor* mean, const Tensor& rstd, const Tensor* grad_x,
                          const Tensor* grad_weight, const Tensor* grad_bias) {
  if (!call.claims(FL_ENTRY_NORM_BACKWARD, kind, dtype_of(x))) return false;
  View vg = big(call, grad_y, g), vx = big(call, x, g), vr = statistic(call, rstd, g);
  View vw = weight ? affine(call, *weight, g) : View({}, {}),
       vm = mean ? statistic(call, *mean, g) : View({}, {});
  View gx = grad_x ? big(call, *grad_x, g) : View({}, {});
  View gw = grad_weight ? affine(call, *grad_weight, g) : View({}, {});
  View gb = grad_bias ? affine(call, *grad_bias, g) : View({}, {});
  fl_norm_backward_args args{vg.t,
                             vx.t,
                             weight ? &vw.t : nullptr,
                             mean ? &vm.t : nullptr,
                             &vr.t,
                             grad_x ? &gx.t : nullptr,
                             grad_weight ? &gw.t : nullptr,
                             grad_bias ? &gb.t : nullptr,
                             kind,
                             0};
  return call.native(call.chip().op.norm_backward, args, {&args.grad_y, &args.x});
}

// ---------------------------------------------------------------- composition
const fl_program* rstd_program(uint8_t type, uint8_t memory) {
  static Programs programs;
  return programs.get(key_of(type, memory), [&](Builder& b) {
    b.store(0, b.op(FL_OP_RSQRT, b.op(FL_OP_ADD, b.load(0, memory, type), b.scalar(0, type))), memory);
  });
}

bool norm_composed(Call& call, int kind, const Grid& g, const Tensor& x, const Tensor& y,
                   const Tensor* weight, const Tensor* bias, const Tensor* mean, const Tensor& rstd,
                   double eps) {
  static Programs programs, squares;
  call.composed();
  Tensor x4 = x.view({g.n, g.g, g.c, g.s}), y4 = y.view(x4.sizes()), r4 = rstd.view({g.n, g.g, 1, 1});
  Tensor m4 = mean ? mean->view(r4.sizes()) : r4;
  Tensor w4 = weight ? weight->view({1, g.g, g.c, 1}) : r4, b4 = bias ? bias->view({1, g.g, g.c, 1}) : r4;
  uint8_t type = to_register(x.scalar_type()), tx = dtype_of(x), ts = dtype_of(rstd);
  Mask inner = Mask().set(2).set(3);
  if (kind == FL_NORM_LAYER) {
    if (!moments_into(call, x4, inner, 0, false, &r4, &m4)) return false;
  } else {
    const fl_program* pre = squares.get(key_of(tx, type), [&](Builder& b) {
      Value v = b.load(0, tx, type);
      b.store(0, b.op(FL_OP_MUL, v, v), type);
    });
    const fl_program* post = squares.get(key_of(tx, type, ts, 1), [&](Builder& b) {
      b.store(0, b.op(FL_OP_DIV, b.load(0, type), b.scalar(0, type)), ts);
    });
    fl_scalar count = scalar_f(static_cast<double>(g.c * g.s));
    if (!reduce(call, {FL_REDUCE_SUM, type, pre, post, nullptr, &count}, inner, {&x4}, {&r4})) return false;
  }
  if (!run_program(call, rstd_program(type, ts), {&r4}, {&r4}, {scalar_f(eps)})) return false;
  uint8_t tw = weight ? dtype_of(w4) : uint8_t{FL_NONE}, tb = bias ? dtype_of(b4) : uint8_t{FL_NONE};
  const fl_program* program = programs.get(key_of(tx, ts, tw, tb, kind, dtype_of(y)), [&](Builder& b) {
    Value v = b.load(0, tx, type), r = b.load(2, ts, type), m = b.load(1, ts, type);
    Value w = b.load(3, weight ? tw : ts, type), c = b.load(4, bias ? tb : ts, type);
    if (kind == FL_NORM_LAYER) v = b.op(FL_OP_SUB, v, m);
    v = b.op(FL_OP_MUL, v, r);
    if (weight) v = b.op(FL_OP_MUL, v, w);
    if (bias) v = b.op(FL_OP_ADD, v, c);
    b.store(0, v, dtype_of(y));
  });
  return run_program(call, program, {&y4}, {&x4, &m4, &r4, &w4, &b4});
}

// With xhat = (x - mean)·rstd and dy = grad·weight:
//   grad_x = rstd·(dy - mean(dy) - xhat·mean(dy·xhat));  RMS: without mean(dy)
void norm_backward_composed(Call& call, int kind, const Grid& g, const Tensor& grad_y, const Tensor& x,
                            const Tensor* weight, const Tensor* mean, const Tensor& rstd,
                            const Tensor* grad_x, const Tensor* grad_weight, const Tensor* grad_bias) {
  call.composed();
  ScalarType wide = statistics_type(x.scalar_type());
  Tensor gy = grad_y.view({g.n, g.g, g.c, g.s}).to(wide), r = rstd.view({g.n, g.g, 1, 1}).to(wide);
  Tensor xhat = x.view(gy.sizes()).to(wide);
  if (kind == FL_NORM_LAYER) xhat = xhat.sub(mean->view(r.sizes()).to(wide));
  xhat = xhat.mul(r);
  if (grad_weight) grad_weight->view({g.g, g.c}).copy_(gy.mul(xhat).sum({0, 3}));
  if (grad_bias) grad_bias->view({g.g, g.c}).copy_(gy.sum({0, 3}));
  if (!grad_x) return;
  Tensor dy = weight ? gy.mul(weight->view({1, g.g, g.c, 1}).to(wide)) : gy;
  Tensor result = dy.sub(xhat.mul(dy.mul(xhat).mean({2, 3}, true)));
  if (kind == FL_NORM_LAYER) result = result.sub(dy.mean({2, 3}, true));
  grad_x->view(gy.sizes()).copy_(result.mul(r));
}

// Weights of another dtype than x (mixed precision) are converted: chips take
// one dtype.
Tensor contiguous_as(const Tensor& t, ScalarType dtype) {
  return t.scalar_type() == dtype ? t.contiguous() : t.to(dtype).contiguous();
}

struct Forward {
  Tensor y, mean, rstd;
};
Forward run_norm(Op& op, int kind, const Grid& g, const Tensor& x_in, const std::optional<Tensor>& weight_in,
                 const std::optional<Tensor>& bias_in, double eps) {
  TORCH_CHECK(at::isFloatingType(x_in.scalar_type()), op.name, " is not implemented for ",
              c10::toString(x_in.scalar_type()));
  Tensor x = x_in.contiguous(), weight, bias;
  if (given(weight_in)) weight = contiguous_as(*weight_in, x.scalar_type());
  if (given(bias_in)) bias = contiguous_as(*bias_in, x.scalar_type());
  Forward out{empty_like(x, x.sizes(), x.scalar_type()),
              {},
              empty_like(x, {g.n, g.g}, statistics_type(x.scalar_type()))};
  if (kind == FL_NORM_LAYER) out.mean = empty_like(x, {g.n, g.g}, out.rstd.scalar_type());
  if (g.n * g.g == 0) return out;
  Call call(op, x);
  if (x.numel() == 0) {
    if (out.mean.defined()) out.mean.zero_();
    out.rstd.fill_(NAN);
    return out;
  }
  const Tensor *w = weight.defined() ? &weight : nullptr, *b = bias.defined() ? &bias : nullptr,
               *m = out.mean.defined() ? &out.mean : nullptr;
  if (norm_native(call, kind, g, x, out.y, w, b, m, out.rstd, eps)) return out;
  if (!norm_composed(call, kind, g, x, out.y, w, b, m, out.rstd, eps))
    throw_refused(call, "pointwise or reduce", x.scalar_type());
  return out;
}

std::tuple<Tensor, Tensor, Tensor> run_norm_backward(Op& op, int kind, const Grid& g, const Tensor& grad_in,
                                                     const Tensor& x_in, const Tensor* mean_in,
                                                     const Tensor& rstd_in,
                                                     const std::optional<Tensor>& weight_in,
                                                     std::array<bool, 3> mask) {
  Tensor grad_y = contiguous_as(grad_in, x_in.scalar_type()), x = x_in.contiguous(), weight;
  if (given(weight_in)) weight = contiguous_as(*weight_in, x.scalar_type());
  ScalarType statistics = statistics_type(x.scalar_type());
  Tensor rstd = contiguous_as(rstd_in, statistics), mean;
  if (mean_in) mean = contiguous_as(*mean_in, statistics);
  Tensor grad_x, grad_w, grad_b;
  if (mask[0]) grad_x = empty_like(x, x.sizes(), x.scalar_type());
  if (mask[1] && weight.defined()) grad_w = empty_like(x, weight.sizes(), x.scalar_type());
  if (mask[2])
    grad_b = empty_like(x, weight.defined() ? weight.sizes() : IntArrayRef{g.g * g.c}, x.scalar_type());
  const Tensor *gx = grad_x.defined() ? &grad_x : nullptr, *gw = grad_w.defined() ? &grad_w : nullptr,
               *gb = grad_b.defined() ? &grad_b : nullptr;
  Call call(op, x);
  if (x.numel() == 0) {
    if (gw) grad_w.zero_();
    if (gb) grad_b.zero_();
  } else if (!norm_backward_native(call, kind, g, grad_y, x, weight.defined() ? &weight : nullptr,
                                   mean_in ? &mean : nullptr, rstd, gx, gw, gb)) {
    norm_backward_composed(call, kind, g, grad_y, x, weight.defined() ? &weight : nullptr,
                           mean_in ? &mean : nullptr, rstd, gx, gw, gb);
  }
  if (gw && weight_in->scalar_type() != grad_w.scalar_type()) grad_w = grad_w.to(weight_in->scalar_type());
  if (gb && given(weight_in) && weight_in->scalar_type() != grad_b.scalar_type())
    grad_b = grad_b.to(weight_in->scalar_type());
  return {grad_x, grad_w, grad_b};
}

// ---------------------------------------------------------------- layer norm
at::DimVector statistics_shape(const Tensor& x, IntArrayRef normalized) {
  at::DimVector shape;
  for (int64_t d = 0; d < x.dim(); ++d)
    shape.push_back(d < x.dim() - static_cast<int64_t>(normalized.size()) ? x.size(d) : 1);
  return shape;
}

std::tuple<Tensor, Tensor, Tensor> layer_norm(const Tensor& x, IntArrayRef normalized,
                                              const std::optional<Tensor>& weight,
                                              const std::optional<Tensor>& bias, double eps) {
  static Op op("aten::native_layer_norm");
  check_devices(op, {&x, given(weight), given(bias)});
  auto [rows, columns] = at::native::_check_layer_norm_inputs(x, normalized, weight ? *weight : Tensor(),
                                                              bias ? *bias : Tensor());
  Forward out = run_norm(op, FL_NORM_LAYER, {rows, 1, columns, 1}, x, weight, bias, eps);
  auto shape = statistics_shape(x, normalized);
  return {out.y, out.mean.view(shape), out.rstd.view(shape)};
}

std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(
    const Tensor& grad, const Tensor& x, IntArrayRef normalized, const Tensor& mean, const Tensor& rstd,
    const std::optional<Tensor>& weight, const std::optional<Tensor>& bias, std::array<bool, 3> mask) {
  static Op op("aten::native_layer_norm_backward");
  check_devices(op, {&grad, &x, &mean, &rstd, given(weight), given(bias)});
  int64_t columns = c10::multiply_integers(normalized), rows = columns ? x.numel() / columns : mean.numel();
  mask[1] = mask[1] && given(weight);
  mask[2] = mask[2] && given(bias);
  auto [gx, gw, gb] =
      run_norm_backward(op, FL_NORM_LAYER, {rows, 1, columns, 1}, grad, x, &mean, rstd, weight, mask);
  if (gb.defined()) gb = gb.view(normalized);
  return {gx, gw, gb};
}

// ------------------------------------------------------------------ group norm
// Computed in one layout; channels-last comes back as channels-last, as on the CPU.
Tensor in_format_of(const Tensor& x, const Tensor& y) {
  const auto format = x.suggest_memory_format();
  if (!y.defined() || format == at::MemoryFormat::Contiguous) return y;
  Tensor result = y.contiguous(format);
  // Contiguous in both: the strides of dimensions of size 1 are as the format has them.
  if (result.is_same(y)) result.unsafeGetTensorImpl()->empty_tensor_restride(format);
  return result;
}

std::tuple<Tensor, Tensor, Tensor> group_norm(const Tensor& x, const std::optional<Tensor>& weight,
                                              const std::optional<Tensor>& bias, int64_t n, int64_t c,
                                              int64_t hxw, int64_t groups, double eps) {
  static Op op("aten::native_group_norm");
  check_devices(op, {&x, given(weight), given(bias)});
  TORCH_CHECK(groups > 0 && c % groups == 0,
              "Expected number of channels in input to be divisible by num_groups, but "
              "got input of shape ",
              x.sizes(), " and num_groups=", groups);
  Forward out = run_norm(op, FL_NORM_LAYER, {n, groups, c / groups, hxw}, x, weight, bias, eps);
  return {in_format_of(x, out.y), out.mean, out.rstd};
}

std::tuple<Tensor, Tensor, Tensor> group_norm_backward(const Tensor& grad, const Tensor& x,
                                                       const Tensor& mean, const Tensor& rstd,
                                                       const std::optional<Tensor>& weight, int64_t n,
                                                       int64_t c, int64_t hxw, int64_t groups,
                                                       std::array<bool, 3> mask) {
  static Op op("aten::native_group_norm_backward");
  check_devices(op, {&grad, &x, &mean, &rstd, given(weight)});
  auto [gx, gw, gb] =
      run_norm_backward(op, FL_NORM_LAYER, {n, groups, c / groups, hxw}, grad, x, &mean, rstd, weight, mask);
  return {in_format_of(x, gx), gw, gb};
}

// -------------------------------------------------------------------- RMS norm
std::tuple<Tensor, Tensor> rms_norm(const Tensor& x, IntArrayRef normalized,
                                    const std::optional<Tensor>& weight, std::optional<double> eps) {
  static Op op("aten::_fused_rms_norm");
  check_devices(op, {&x, given(weight)});
  auto [rows, columns] =
      at::native::_check_layer_norm_inputs(x, normalized, weight ? *weight : Tensor(), Tensor());
  double epsilon = eps                              ? *eps
                   : x.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon()
                                                    : std::numeric_limits<float>::epsilon();
  Forward out = run_norm(op, FL_NORM_RMS, {rows, 1, columns, 1}, x, weight, std::nullopt, epsilon);
  return {out.y, out.rstd.view(statistics_shape(x, normalized))};
}

std::tuple<Tensor, Tensor> rms_norm_backward(const Tensor& grad, const Tensor& x, IntArrayRef normalized,
                                             const Tensor& rstd, const std::optional<Tensor>& weight,
                                             std::array<bool, 2> mask) {
  static Op op("aten::_fused_rms_norm_backward");
  check_devices(op, {&grad, &x, &rstd, given(weight)});
  int64_t columns = c10::multiply_integers(normalized), rows = columns ? x.numel() / columns : rstd.numel();
  auto [gx, gw, gb] = run_norm_backward(op, FL_NORM_RMS, {rows, 1, columns, 1}, grad, x, nullptr, rstd,
                                        weight, {mask[0], mask[1], false});
  return {gx, gw};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_layer_norm", layer_norm);
  m.impl("native_layer_norm_backward", layer_norm_backward);
  m.impl("native_group_norm", group_norm);
  m.impl("native_group_norm_backward", group_norm_backward);
  m.impl("_fused_rms_norm", rms_norm);
  m.impl("_fused_rms_norm_backward", rms_norm_backward);
}

}  // namespace
}  // namespace fl::bridge
