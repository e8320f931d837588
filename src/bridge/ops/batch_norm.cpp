// Batch norm.  running_mean and running_var are updated on every tier, although
// the schema of native_batch_norm does not say that they are written.
#include "bridge/devices.h"
#include "bridge/ops/reduction.h"

namespace fl::bridge {
namespace {

ScalarType statistics_type(const Tensor& x) {
  return at::isReducedFloatingType(x.scalar_type()) ? at::kFloat : x.scalar_type();
}

// x as the ABI's [N, C, S].  Spatial dimensions must collapse into one stride,
// which contiguous and channels-last tensors do; others are copied.
struct Planes {
  int64_t sizes[3], strides[3];
  fl_tensor view;
};
bool collapses(const Tensor& x) {
  int64_t step = -1;  // of the next dimension further out; one of size 1 has any
  for (int64_t d = x.dim(); d-- > 2;) {
    if (x.size(d) == 1) continue;
    if (step >= 0 && x.stride(d) != step) return false;
    step = x.stride(d) * x.size(d);
  }
  return true;
}
// As on PyTorch's CPU, strides of dimensions of size 1, which suggest_memory_format() reads, decide nothing.
at::MemoryFormat format_of(const Tensor& x) {
  for (auto format :
       {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast, at::MemoryFormat::ChannelsLast3d})
    if (x.is_contiguous(format)) return format;
  return x.suggest_memory_format();
}
Tensor collapsible(const Tensor& x) { return collapses(x) ? x : x.contiguous(x.suggest_memory_format()); }
void planes(const Call& call, const Tensor& x, Planes& p) {
  p.sizes[0] = x.size(0), p.sizes[1] = x.size(1), p.sizes[2] = 1;
  p.strides[0] = x.stride(0), p.strides[1] = x.stride(1), p.strides[2] = 1;
  for (int64_t d = 2; d < x.dim(); ++d) p.sizes[2] *= x.size(d);
  for (int64_t d = x.dim() - 1; d >= 2; --d)
    if (x.size(d) != 1) {
      p.strides[2] = x.stride(d);
      break;
    }
  p.view = fl_tensor{const_cast<void*>(x.const_data_ptr()), p.sizes, p.strides, 3, call.view(x).dtype, 0, 0};
}

Mask all_but_channels() { return Mask().set().reset(1); }
at::DimVector channel_shape(const Tensor& x) {
  at::DimVector shape(x.dim(), 1);
  shape[1] = x.size(1);
  return shape;
}
const Tensor* pointer(const Tensor& t) { return t.defined() ? &t : nullptr; }

// y = (x - mean)·scale·weight + bias, per channel; `variance`: scale is 1/sqrt(that + eps).
bool normalise(Call& call, const Tensor& x, const Tensor& y, const Tensor* weight, const Tensor* bias,
               const Tensor& mean, const Tensor& scale, bool variance, double eps) {
  static Programs programs;
  auto shape = channel_shape(x);
  Tensor m = mean.view(shape), s = scale.view(shape), w = weight ? weight->view(shape) : s,
         c = bias ? bias->view(shape) : s;
  uint8_t type = to_register(x.scalar_type()), tx = dtype_of(x), tm = dtype_of(m), ts = dtype_of(s),
          tw = dtype_of(w), tc = dtype_of(c);
  const fl_program* program =
      programs.get(key_of(tx, tm, ts, tw, tc, variance, weight ? 1 : 0, bias ? 1 : 0), [&](Builder& b) {
        Value v = b.load(0, tx, type), mv = b.load(1, tm, type), sv = b.load(2, ts, type),
              wv = b.load(3, tw, type), cv = b.load(4, tc, type), e = b.scalar(0, type);
        if (variance) sv = b.op(FL_OP_RSQRT, b.op(FL_OP_ADD, sv, e));
        v = b.op(FL_OP_MUL, b.op(FL_OP_SUB, v, mv), sv);
        if (weight) v = b.op(FL_OP_MUL, v, wv);
        if (bias) v = b.op(FL_OP_ADD, v, cv);
        b.store(0, v, tx);
      });
  return run_program(call, program, {&y}, {&x, &m, &s, &w, &c}, {scalar_f(eps)});
}

// running = (1 - momentum)·running + momentum·statistic·factor
void update_running(Call& call, const Tensor& running, const Tensor& statistic, double momentum,
                    double factor) {
  static Programs programs;
  uint8_t tr = dtype_of(running), ts = dtype_of(statistic), type = to_register(statistic.scalar_type());
  const fl_program* program = programs.get(key_of(tr, ts), [&](Builder& b) {
    Value old = b.op(FL_OP_MUL, b.load(0, tr, type), b.scalar(0, type));
    b.store(0, b.op(FL_OP_ADD, old, b.op(FL_OP_MUL, b.load(1, ts, type), b.scalar(1, type))), tr);
  });
  if (!run_program(call, program, {&running}, {&running, &statistic},
                   {scalar_f(1 - momentum), scalar_f(momentum * factor)}))
    throw_refused(call, "pointwise", running.scalar_type());
}

void check_channels(const Tensor& x, const Tensor* t, const char* name) {
  TORCH_CHECK(!t || t->numel() == x.size(1), name, " should contain ", x.size(1), " elements not ",
              t ? t->numel() : 0);
}

struct Result {
  Tensor y, mean, rstd;
};

Result run(Op& op, const Tensor& x_in, const std::optional<Tensor>& weight_in,
           const std::optional<Tensor>& bias_in, const Tensor& running_mean, const Tensor& running_var,
           bool training, double momentum, double eps) {
  TORCH_CHECK(x_in.dim() >= 2, op.name, ": expected an input of at least 2 dimensions, got ", x_in.sizes());
  TORCH_CHECK(at::isFloatingType(x_in.scalar_type()), op.name, " is not implemented for ",
              c10::toString(x_in.scalar_type()));
  TORCH_CHECK(training || (running_mean.defined() && running_var.defined()), op.name,
              ": running_mean and running_var must be defined in evaluation mode");
  const Tensor *rm = pointer(running_mean), *rv = pointer(running_var);
  check_channels(x_in, rm, "running_mean");
  check_channels(x_in, rv, "running_var");
  check_channels(x_in, given(weight_in), "weight");
  check_channels(x_in, given(bias_in), "bias");
  Tensor x = collapsible(x_in);
  Result out;
  out.y = at::empty(x.sizes(), x.options().memory_format(format_of(x_in)));
  int64_t channels = x.size(1), count = channels ? x.numel() / channels : 0;
  ScalarType statistics = statistics_type(x);
  out.mean = empty_like(x, {training ? channels : 0}, statistics);
  out.rstd = empty_like(x, {training ? channels : 0}, statistics);
  Call call(op, x);
  if (x.numel() == 0) {
    if (training) out.mean.zero_(), out.rstd.zero_();
    return out;
  }

  // Chips take per-channel tensors of F32 or of x's dtype.
  auto channel = [&](const Tensor& t) {
    bool fits = t.scalar_type() == at::kFloat || t.scalar_type() == x.scalar_type();
    return fits ? t.contiguous() : t.to(statistics).contiguous();
  };
  Tensor weight = given(weight_in) ? channel(*weight_in) : Tensor(),
         bias = given(bias_in) ? channel(*bias_in) : Tensor();
  auto takes = [&](const Tensor* t) {
    return !t ||
           (t->is_contiguous() && (t->scalar_type() == at::kFloat || t->scalar_type() == x.scalar_type()));
  };

  if (call.claims(FL_ENTRY_BATCH_NORM, FL_ANY, dtype_of(x)) && takes(rm) && takes(rv)) {
    Planes px, py;
    planes(call, x, px);
    planes(call, out.y, py);
    fl_tensor w, b, m, v, sm, sr;
    if (weight.defined()) w = call.view(weight);
    if (bias.defined()) b = call.view(bias);
    if (rm) m = call.view(*rm), v = call.view(*rv);
    if (training) sm = call.view(out.mean), sr = call.view(out.rstd);
    fl_batch_norm_args args{px.view,
                            py.view,
                            weight.defined() ? &w : nullptr,
                            bias.defined() ? &b : nullptr,
                            rm ? &m : nullptr,
                            rm ? &v : nullptr,
                            training ? &sm : nullptr,
                            training ? &sr : nullptr,
                            momentum,
                            eps,
                            training,
                            0};
    if (call.native(call.chip().op.batch_norm, args, {&args.x, &args.y})) return out;
  }

  call.composed();
  bool done;
  if (training) {
    Tensor variance = out.rstd;  // first the variance, then its inverse root in place
    done = moments_into(call, x, all_but_channels(), 0, false, &variance, &out.mean);
    if (done && rm) {
      double unbiased = static_cast<double>(count) / static_cast<double>(std::max<int64_t>(1, count - 1));
      update_running(call, *rm, out.mean, momentum, 1);
      update_running(call, *rv, variance, momentum, unbiased);
    }
    static Programs roots;
    uint8_t type = to_register(statistics), memory = to_dtype(statistics);
    const fl_program* root = roots.get(memory, [&](Builder& b) {
      b.store(0, b.op(FL_OP_RSQRT, b.op(FL_OP_ADD, b.load(0, memory), b.scalar(0, type))), memory);
    });
    done = done && run_program(call, root, {&out.rstd}, {&variance}, {scalar_f(eps)}) &&
           normalise(call, x, out.y, pointer(weight), pointer(bias), out.mean, out.rstd, false, eps);
  } else {
    done = normalise(call, x, out.y, pointer(weight), pointer(bias), rm->contiguous(), rv->contiguous(), true,
                     eps);
  }
  if (!done) throw_refused(call, "pointwise or reduce", x.scalar_type());
  return out;
}

std::tuple<Tensor, Tensor, Tensor> run_backward(Op& op, const Tensor& grad_in, const Tensor& x_in,
                                                const std::optional<Tensor>& weight_in,
                                                const std::optional<Tensor>& running_mean,
                                                const std::optional<Tensor>& running_var,
                                                const std::optional<Tensor>& save_mean,
                                                const std::optional<Tensor>& save_rstd, bool training,
                                                double eps, std::array<bool, 3> mask) {
  Tensor x = collapsible(x_in), grad = grad_in;
  // The gradient in x's layout: one walk through memory for both.
  if (!collapses(grad) || grad.strides() != x.strides()) grad = at::empty_like(x).copy_(grad_in);
  ScalarType statistics = statistics_type(x);
  Tensor grad_x, grad_w, grad_b;
  if (mask[0]) grad_x = at::empty(x.sizes(), x.options().memory_format(x.suggest_memory_format()));
  ScalarType affine = given(weight_in) ? weight_in->scalar_type() : statistics;
  bool fits = affine == at::kFloat || affine == x.scalar_type();
  ScalarType gradient = fits ? affine : statistics;
  if (mask[1]) grad_w = empty_like(x, {x.size(1)}, gradient);
  if (mask[2]) grad_b = empty_like(x, {x.size(1)}, gradient);
  Call call(op, x);
  if (x.numel() == 0) {
    if (mask[1]) grad_w.zero_();
    if (mask[2]) grad_b.zero_();
    return {grad_x, grad_w, grad_b};
  }
  Tensor mean, rstd, weight;
  if (training) {
    mean = save_mean->to(statistics).contiguous(), rstd = save_rstd->to(statistics).contiguous();
  } else {
    TORCH_CHECK(given(running_mean) && given(running_var), op.name,
                ": evaluation mode needs running statistics");
    mean = running_mean->to(statistics).contiguous();
    rstd = running_var->to(statistics).add(eps).rsqrt();
  }
  if (given(weight_in)) weight = fits ? weight_in->contiguous() : weight_in->to(statistics).contiguous();

  bool done = false;
  if (call.claims(FL_ENTRY_BATCH_NORM_BACKWARD, FL_ANY, dtype_of(x))) {
    Planes pg, px, pgx;
    planes(call, grad, pg);
    planes(call, x, px);
    if (mask[0]) planes(call, grad_x, pgx);
    fl_tensor w, m = call.view(mean), r = call.view(rstd), gw, gb;
    if (weight.defined()) w = call.view(weight);
    if (mask[1]) gw = call.view(grad_w);
    if (mask[2]) gb = call.view(grad_b);
    fl_batch_norm_backward_args args{pg.view,
                                     px.view,
                                     weight.defined() ? &w : nullptr,
                                     &m,
                                     &r,
                                     mask[0] ? &pgx.view : nullptr,
                                     mask[1] ? &gw : nullptr,
                                     mask[2] ? &gb : nullptr,
                                     training,
                                     0};
    done = call.native(call.chip().op.batch_norm_backward, args, {&args.grad_y, &args.x});
  }
  if (!done) {
    call.composed();
    auto shape = channel_shape(x);
    at::DimVector dims(1, 0);
    for (int64_t d = 2; d < x.dim(); ++d) dims.push_back(d);
    Tensor gy = grad.to(statistics), r = rstd.view(shape),
           xhat = x.to(statistics).sub(mean.view(shape)).mul(r);
    Tensor sum_dy = gy.sum(dims, true), sum_dy_xhat = gy.mul(xhat).sum(dims, true);
    if (mask[1]) grad_w.copy_(sum_dy_xhat.view(-1));
    if (mask[2]) grad_b.copy_(sum_dy.view(-1));
    if (mask[0]) {
      double count = static_cast<double>(x.numel() / x.size(1));
      Tensor result = training ? gy.sub(sum_dy.div(count)).sub(xhat.mul(sum_dy_xhat.div(count))) : gy;
      result = result.mul(r);
      grad_x.copy_(weight.defined() ? result.mul(weight.view(shape).to(statistics)) : result);
    }
  }
  if (mask[1] && grad_w.scalar_type() != affine) grad_w = grad_w.to(affine);
  if (mask[2] && grad_b.scalar_type() != affine) grad_b = grad_b.to(affine);
  return {grad_x, grad_w, grad_b};
}

// ---------------------------------------------------------------- entry points
Tensor tensor_or_none(const std::optional<Tensor>& t) { return t ? *t : Tensor(); }

using Three = std::tuple<Tensor, Tensor, Tensor>;

Three batch_norm_forward(const Tensor& x, const std::optional<Tensor>& weight,
                         const std::optional<Tensor>& bias, const std::optional<Tensor>& mean,
                         const std::optional<Tensor>& var, bool training, double momentum, double eps) {
  static Op op("aten::native_batch_norm");
  check_devices(op, {&x, given(weight), given(bias), given(mean), given(var)});
  Result r = run(op, x, weight, bias, tensor_or_none(mean), tensor_or_none(var), training, momentum, eps);
  return {r.y, r.mean, r.rstd};
}

std::tuple<Tensor&, Tensor&, Tensor&> batch_norm_forward_out(
    const Tensor& x, const std::optional<Tensor>& weight, const std::optional<Tensor>& bias,
    const std::optional<Tensor>& mean, const std::optional<Tensor>& var, bool training, double momentum,
    double eps, Tensor& out, Tensor& save_mean, Tensor& save_rstd) {
  static Op forward_op("aten::native_batch_norm.out");
  check_devices(forward_op, {&x, given(weight), given(bias), given(mean), given(var)});
  auto [y, m, r] = batch_norm_forward(x, weight, bias, mean, var, training, momentum, eps);
  for (auto [to, from] : {std::pair<Tensor*, Tensor*>{&out, &y}, {&save_mean, &m}, {&save_rstd, &r}}) {
    if (!to->defined()) continue;
    if (to->device() != x.device()) throw_mixed_devices(forward_op, x.device(), to->device());
    TORCH_CHECK(to->scalar_type() == from->scalar_type(), "expected scalar type ", from->scalar_type(),
                " but found ", to->scalar_type());
    if (to != &out && !training) {  // there is nothing to save
      TORCH_CHECK(to->dim() == 1, forward_op.name, ": expected saved statistics of one dimension, but got ",
                  to->sizes());
      continue;
    }
    at::native::resize_output(*to, from->sizes());
    to->copy_(*from);
  }
  return {out, save_mean, save_rstd};
}

Three legit(const Tensor& x, const std::optional<Tensor>& weight, const std::optional<Tensor>& bias,
            Tensor& mean, Tensor& var, bool training, double momentum, double eps) {
  static Op op("aten::_native_batch_norm_legit");
  check_devices(op, {&x, given(weight), given(bias), &mean, &var});
  Result r = run(op, x, weight, bias, mean, var, training, momentum, eps);
  return {r.y, r.mean, r.rstd};
}

std::tuple<Tensor&, Tensor&, Tensor&> legit_out(const Tensor& x, const std::optional<Tensor>& weight,
                                                const std::optional<Tensor>& bias, Tensor& mean, Tensor& var,
                                                bool training, double momentum, double eps, Tensor& out,
                                                Tensor& save_mean, Tensor& save_rstd) {
  return batch_norm_forward_out(x, weight, bias, mean, var, training, momentum, eps, out, save_mean,
                                save_rstd);
}

Three legit_no_stats(const Tensor& x, const std::optional<Tensor>& weight, const std::optional<Tensor>& bias,
                     bool training, double momentum, double eps) {
  static Op op("aten::_native_batch_norm_legit.no_stats");
  check_devices(op, {&x, given(weight), given(bias)});
  Result r = run(op, x, weight, bias, {}, {}, training, momentum, eps);
  return {r.y, r.mean, r.rstd};
}

std::tuple<Tensor&, Tensor&, Tensor&> legit_no_stats_out(const Tensor& x, const std::optional<Tensor>& weight,
                                                         const std::optional<Tensor>& bias, bool training,
                                                         double momentum, double eps, Tensor& out,
                                                         Tensor& save_mean, Tensor& save_rstd) {
  return batch_norm_forward_out(x, weight, bias, {}, {}, training, momentum, eps, out, save_mean, save_rstd);
}

Three legit_no_training(const Tensor& x, const std::optional<Tensor>& weight,
                        const std::optional<Tensor>& bias, const Tensor& mean, const Tensor& var,
                        double momentum, double eps) {
  static Op op("aten::_native_batch_norm_legit_no_training");
  check_devices(op, {&x, given(weight), given(bias), &mean, &var});
  Result r = run(op, x, weight, bias, mean, var, false, momentum, eps);
  return {r.y, r.mean, r.rstd};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> with_update(const Tensor& x, const std::optional<Tensor>& weight,
                                                       const std::optional<Tensor>& bias, Tensor& mean,
                                                       Tensor& var, double momentum, double eps) {
  static Op op("aten::_batch_norm_with_update");
  check_devices(op, {&x, given(weight), given(bias), &mean, &var});
  Result r = run(op, x, weight, bias, mean, var, true, momentum, eps);
  return {r.y, r.mean, r.rstd, empty_like(x, {0}, at::kByte)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> no_update(const Tensor& x, const std::optional<Tensor>& weight,
                                                     const std::optional<Tensor>& bias,
                                                     const std::optional<Tensor>& mean,
                                                     const std::optional<Tensor>& var, double momentum,
                                                     double eps) {
  static Op op("aten::_batch_norm_no_update");
  check_devices(op, {&x, given(weight), given(bias), given(mean), given(var)});
  bool training = !given(mean);
  Result r = run(op, x, weight, bias, tensor_or_none(mean), tensor_or_none(var), training, momentum, eps);
  return {r.y, r.mean, r.rstd, empty_like(x, {0}, at::kByte)};
}

Three batch_norm_backward_legacy(const Tensor& grad, const Tensor& x, const std::optional<Tensor>& weight,
                                 const std::optional<Tensor>& running_mean,
                                 const std::optional<Tensor>& running_var,
                                 const std::optional<Tensor>& save_mean,
                                 const std::optional<Tensor>& save_rstd, bool training, double eps,
                                 std::array<bool, 3> mask) {
  static Op op("aten::native_batch_norm_backward");
  check_devices(op, {&grad, &x, given(weight), given(running_mean), given(running_var), given(save_mean),
                     given(save_rstd)});
  return run_backward(op, grad, x, weight, running_mean, running_var, save_mean, save_rstd, training, eps,
                      mask);
}

Three batch_norm_backward(const Tensor& grad, const Tensor& x, const Tensor& weight,
                          const std::optional<Tensor>& running_mean, const std::optional<Tensor>& running_var,
                          const std::optional<Tensor>& save_mean, const std::optional<Tensor>& save_rstd,
                          bool update, double eps, std::array<bool, 3> mask, const Tensor&) {
  static Op op("aten::batch_norm_backward");
  check_devices(
      op, {&grad, &x, &weight, given(running_mean), given(running_var), given(save_mean), given(save_rstd)});
  return run_backward(op, grad, x, weight, running_mean, running_var, save_mean, save_rstd, update, eps,
                      mask);
}

std::tuple<Tensor, Tensor> update_stats(const Tensor& x, const std::optional<Tensor>& running_mean,
                                        const std::optional<Tensor>& running_var, double momentum) {
  static Op op("aten::batch_norm_update_stats");
  check_devices(op, {&x, given(running_mean), given(running_var)});
  Tensor mean = empty_like(x, {x.size(1)}, statistics_type(x)), var = at::empty_like(mean);
  Call call(op, x);
  int64_t count = x.size(1) ? x.numel() / x.size(1) : 0;
  if (count == 0) return {mean.fill_(NAN), var.fill_(NAN)};
  call.composed();
  if (!moments_into(call, x, all_but_channels(), 0, false, &var, &mean))
    throw_refused(call, "reduce", x.scalar_type());
  if (given(running_mean)) update_running(call, *running_mean, mean, momentum, 1);
  if (given(running_var))
    update_running(call, *running_var, var, momentum,
                   static_cast<double>(count) / static_cast<double>(std::max<int64_t>(1, count - 1)));
  return {mean, var};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_batch_norm", batch_norm_forward);
  m.impl("native_batch_norm.out", batch_norm_forward_out);
  m.impl("native_batch_norm_backward", batch_norm_backward_legacy);
  m.impl("_native_batch_norm_legit", legit);
  m.impl("_native_batch_norm_legit.out", legit_out);
  m.impl("_native_batch_norm_legit.no_stats", legit_no_stats);
  m.impl("_native_batch_norm_legit.no_stats_out", legit_no_stats_out);
  m.impl("_native_batch_norm_legit_no_training", legit_no_training);
  m.impl("_batch_norm_with_update", with_update);
  m.impl("_batch_norm_no_update", no_update);
  m.impl("batch_norm_backward", batch_norm_backward);
  m.impl("batch_norm_update_stats", update_stats);
}

}  // namespace
}  // namespace fl::bridge
