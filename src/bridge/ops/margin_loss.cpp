// Losses with a program of their own: binary cross entropy, the margin losses, and rrelu.
#include <ATen/core/Reduction.h>

#include "bridge/devices.h"
#include "bridge/ops/reduction.h"
#include "program/expr.h"

namespace fl::bridge {
namespace {

Tensor reduced(const Tensor& loss, int64_t reduction) {
  if (reduction == at::Reduction::Mean) return loss.mean();
  return reduction == at::Reduction::Sum ? loss.sum() : loss;
}
// What a reduced loss's gradient is multiplied by.
double share(int64_t reduction, int64_t count) {
  return reduction == at::Reduction::Mean ? 1 / static_cast<double>(count) : 1;
}

// ----------------------------------------------------- binary cross entropy
// Logarithms end at -100, so that a wrong certainty costs a finite amount.
const fl_program* cross_entropy(uint8_t tx, uint8_t tt, uint8_t tw, uint8_t type, uint8_t memory) {
  static Programs programs;
  return programs.get(key_of(tx, tt, tw, type, memory), [&](Builder& b) {
    Expr x{&b, b.load(0, tx, type)}, t{&b, b.load(1, tt, type)};
    Expr loss = (t - 1) * max(log1p(-x), -100) - t * max(log(x), -100);
    if (tw) loss = loss * Expr{&b, b.load(2, tw, type)};
    b.store(0, loss.v, memory);
  });
}

Tensor& bce_out(const Tensor& self, const Tensor& target, const std::optional<Tensor>& weight,
                int64_t reduction, Tensor& out) {
  static Op op("aten::binary_cross_entropy");
  check_devices(op, {&self, &target, given(weight)});
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(self.scalar_type()),
                              "\"binary_cross_entropy\" not implemented for '",
                              c10::toString(self.scalar_type()), "'");
  TORCH_CHECK(self.scalar_type() == target.scalar_type(), "Found dtype ", c10::toString(target.scalar_type()),
              " but expected ", c10::toString(self.scalar_type()));
  Call call(op, self);
  if (self.numel())
    at::_assert_async(at::logical_and(self.ge(0), self.le(1)).all(),
                      "all elements of input should be between 0 and 1");
  const bool whole = reduction == at::Reduction::None;
  at::native::resize_output(out, whole ? self.sizes() : IntArrayRef());
  const uint8_t type = to_register(self.scalar_type()), tw = dtype_of(weight);
  const Tensor& factor = tw ? *weight : self;
  auto program = [&](uint8_t memory) {
    return cross_entropy(dtype_of(self), dtype_of(target), tw, type, memory);
  };
  bool done = true;
  if (whole) {
    done = tw ? run_program(call, program(dtype_of(out)), {&out}, {&self, &target, &factor})
              : run_program(call, program(dtype_of(out)), {&out}, {&self, &target});
  } else if (self.numel() == 0) {
    out.fill_(reduction == at::Reduction::Mean ? NAN : 0);
  } else {
    static Programs finishes;
    const uint8_t memory = dtype_of(out);
    const fl_program* scale = finishes.get(key_of(type, memory), [&](Builder& b) {
      b.store(0, b.op(FL_OP_DIV, b.load(0, type), b.scalar(0, type)), memory);
    });
    fl_scalar count = scalar_f(reduction == at::Reduction::Mean ? static_cast<double>(self.numel()) : 1);
    Reduction r{FL_REDUCE_SUM, type, program(type), scale, nullptr, &count};
    done = tw ? reduce(call, r, Mask().set(), {&self, &target, &factor}, {&out})
              : reduce(call, r, Mask().set(), {&self, &target}, {&out});
  }
  if (!done) throw_refused(call, "pointwise", self.scalar_type());
  return out;
}
Tensor bce(const Tensor& self, const Tensor& target, const std::optional<Tensor>& weight, int64_t reduction) {
  Tensor out =
      reduction == at::Reduction::None ? at::empty_like(self) : empty_like(self, {}, self.scalar_type());
  return bce_out(self, target, weight, reduction, out);
}

Tensor& bce_backward_out(const Tensor& grad, const Tensor& self, const Tensor& target,
                         const std::optional<Tensor>& weight, int64_t reduction, Tensor& out) {
  static Op op("aten::binary_cross_entropy_backward");
  static Programs programs;
  at::native::resize_output(out, self.sizes());
  Call call(op, self);
  const uint8_t tg = dtype_of(grad), tx = dtype_of(self), tt = dtype_of(target), tw = dtype_of(weight),
                to = dtype_of(out), type = to_register(self.scalar_type());
  const fl_program* program = programs.get(key_of(tg, tx, tt, tw, to), [&](Builder& b) {
    Expr g{&b, b.load(0, tg, type)}, x{&b, b.load(1, tx, type)}, t{&b, b.load(2, tt, type)};
    Expr r = g * (x - t) / max((1 - x) * x, 1e-12f) * Expr{&b, b.scalar(0, type)};
    if (tw) r = r * Expr{&b, b.load(3, tw, type)};
    b.store(0, r.v, to);
  });
  fl_scalar scale = scalar_f(share(reduction, self.numel()));
  bool done = tw ? run_program(call, program, {&out}, {&grad, &self, &target, &*weight}, {scale})
                 : run_program(call, program, {&out}, {&grad, &self, &target}, {scale});
  if (!done) throw_refused(call, "pointwise", self.scalar_type());
  return out;
}
Tensor bce_backward(const Tensor& grad, const Tensor& self, const Tensor& target,
                    const std::optional<Tensor>& weight, int64_t reduction) {
  Tensor out = at::empty_like(self);
  return bce_backward_out(grad, self, target, weight, reduction, out);
}

// ------------------------------------------------------------- multi margin
struct Rows {
  Tensor x, target;  // [N, C], [N] or [N, K]
  bool single;       // given without the batch
};

// p and the target's dtype are checked where the CPU checks them.
Rows multi_margin_rows(const Tensor& self, const Tensor& target, const at::Scalar& p, const Tensor* weight) {
  const int64_t n = self.dim() == 2 ? self.size(0) : 1, classes = self.dim() == 0 ? 1 : self.size(-1);
  TORCH_CHECK(p.toInt() == 1 || p.toInt() == 2, "only p == 1 and p == 2 supported");
  TORCH_CHECK(self.dim() <= 2 && classes != 0 && (self.dim() < 2 || self.size(1) != 0),
              "Expected non-empty vector or matrix with optional 0-dim batch size, but got: ", self.sizes());
  TORCH_CHECK(target.dim() <= 1 && target.numel() == n,
              "multi_margin_loss: target tensor should be 1-D with size equal to the number of input samples "
              "(batch size). Expected target size [",
              n, "], but got ", target.sizes(), ". Input has shape ", self.sizes(), ".");
  TORCH_CHECK(!weight || (weight->dim() <= 1 && weight->numel() == classes),
              "inconsistent weight size, expected ", classes, " but got ",
              weight ? weight->sizes() : IntArrayRef());
  TORCH_CHECK(target.scalar_type() == at::kLong, "expected scalar type Long but found ",
              c10::toString(target.scalar_type()));
  TORCH_CHECK(!weight || weight->scalar_type() == self.scalar_type(), "expected scalar type ",
              c10::toString(self.scalar_type()), " but found ", c10::toString(weight->scalar_type()));
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(self.scalar_type()),
                              "\"multi_margin_loss\" not implemented for '",
                              c10::toString(self.scalar_type()), "'");
  return {self.reshape({n, classes}), target.reshape({n, 1}), self.dim() < 2};
}

Tensor multi_margin(const Tensor& self, const Tensor& target, const at::Scalar& p, const at::Scalar& margin,
                    const std::optional<Tensor>& weight, int64_t reduction) {
  static Op op("aten::multi_margin_loss");
  check_devices(op, {&self, &target, given(weight)});
  Rows r = multi_margin_rows(self, target, p, given(weight));
  Call call(op, self);
  call.composed();
  Tensor h = (r.x - r.x.gather(1, r.target)).add_(margin).clamp_min_(0);
  if (p.toInt() == 2) h = h * h;
  if (given(weight)) h = h * weight->reshape({-1}).gather(0, r.target.flatten()).unsqueeze(1);
  Tensor loss = h.scatter(1, r.target, 0).sum(1).div_(r.x.size(1));
  if (reduction == at::Reduction::None) return loss.reshape(target.sizes());
  return reduced(loss, reduction);
}
Tensor& multi_margin_out(const Tensor& self, const Tensor& target, const at::Scalar& p,
                         const at::Scalar& margin, const std::optional<Tensor>& weight, int64_t reduction,
                         Tensor& out) {
  Tensor loss = multi_margin(self, target, p, margin, weight, reduction);
  at::native::resize_output(out, loss.sizes());
  return out.copy_(loss);
}

Tensor multi_margin_backward(const Tensor& grad, const Tensor& self, const Tensor& target,
                             const at::Scalar& p, const at::Scalar& margin,
                             const std::optional<Tensor>& weight, int64_t reduction) {
  static Op op("aten::multi_margin_loss_backward");
  Rows r = multi_margin_rows(self, target, p, given(weight));
  Call call(op, self);
  call.composed();
  Tensor z = (r.x - r.x.gather(1, r.target)).add_(margin), on = z.gt(0).to(self.scalar_type());
  Tensor h = p.toInt() == 2 ? on * z * 2 : on;
  if (given(weight)) h = h * weight->reshape({-1}).gather(0, r.target.flatten()).unsqueeze(1);
  h = h.scatter(1, r.target, 0) * (share(reduction, r.x.size(0)) / static_cast<double>(r.x.size(1)));
  h = h.scatter(1, r.target, h.sum(1, true).neg());
  Tensor g = reduction == at::Reduction::None ? grad.reshape({-1, 1}) : grad.reshape({1, 1});
  return (h * g).view(self.sizes());
}
Tensor& multi_margin_backward_out(const Tensor& grad, const Tensor& self, const Tensor& target,
                                  const at::Scalar& p, const at::Scalar& margin,
                                  const std::optional<Tensor>& weight, int64_t reduction, Tensor& out) {
  Tensor g = multi_margin_backward(grad, self, target, p, margin, weight, reduction);
  at::native::resize_output(out, g.sizes());
  return out.copy_(g);
}

// ------------------------------------------------------- multilabel margin
Rows multilabel_rows(const Tensor& self, const Tensor& target) {
  TORCH_CHECK(
      (self.dim() == 2 && self.size(1) != 0) || (self.dim() == 1 && self.size(0) != 0) || self.dim() == 0,
      "Expected non-empty vector or matrix with optional 0-dim batch size, but got: ", self.sizes());
  const int64_t n = self.dim() == 2 ? self.size(0) : 1, classes = self.dim() == 0 ? 1 : self.size(-1);
  TORCH_CHECK(
      self.dim() == 2 ? target.sizes() == self.sizes() : target.dim() <= 1 && target.numel() == classes,
      "inconsistent target size: ", target.sizes(), " for input of size: ", self.sizes());
  TORCH_CHECK(target.scalar_type() == at::kLong, "expected scalar type Long but found ",
              c10::toString(target.scalar_type()));
  return {self.reshape({n, classes}), target.reshape({n, classes}), self.dim() < 2};
}

// A row's targets end at the first negative one.
struct Targets {
  Tensor valid, index;  // [N, C]; index 0 where not valid
  explicit Targets(const Tensor& target) {
    valid = target.lt(0).cumsum(1, at::kLong).eq(0);
    index = target.masked_fill(valid.logical_not(), 0);
  }
};

// Pairs (target, other class) in pieces that fit: f(first target, how many).
template <class F>
void in_pieces(const Tensor& x, F&& f) {
  const int64_t classes = x.size(1),
                step = std::max<int64_t>(1, (int64_t{1} << 24) / std::max<int64_t>(1, x.numel()));
  for (int64_t k = 0; k < classes; k += step) f(k, std::min(step, classes - k));
}

std::tuple<Tensor, Tensor> multilabel_forward(const Tensor& self, const Tensor& target, int64_t reduction) {
  static Op op("aten::multilabel_margin_loss_forward");
  check_devices(op, {&self, &target});
  Rows r = multilabel_rows(self, target);
  Call call(op, self);
  call.composed();
  const int64_t n = r.x.size(0), classes = r.x.size(1);
  Targets t(r.target);
  Tensor ours =
      at::zeros(r.x.sizes(), self.options()).scatter_add_(1, t.index, t.valid.to(self.scalar_type())).gt(0);
  Tensor loss = at::zeros({n}, self.options()), chosen = r.x.gather(1, t.index);
  in_pieces(r.x, [&](int64_t k, int64_t count) {
    Tensor z = (1 - chosen.narrow(1, k, count).unsqueeze(2) + r.x.unsqueeze(1)).clamp_min_(0);
    Tensor none = ours.unsqueeze(1).logical_or(t.valid.narrow(1, k, count).unsqueeze(2).logical_not());
    loss.add_(z.masked_fill_(none, 0).sum({1, 2}));
  });
  loss.div_(classes);
  Tensor is_target = ours.to(self.scalar_type()).view(target.sizes());
  if (reduction == at::Reduction::None) return {r.single ? loss.squeeze(0) : loss, is_target};
  return {reduced(loss, reduction), is_target};
}
std::tuple<Tensor&, Tensor&> multilabel_forward_out(const Tensor& self, const Tensor& target,
                                                    int64_t reduction, Tensor& out, Tensor& is_target) {
  auto [loss, ours] = multilabel_forward(self, target, reduction);
  at::native::resize_output(out, loss.sizes());
  at::native::resize_output(is_target, ours.sizes());
  return {out.copy_(loss), is_target.copy_(ours)};
}

Tensor multilabel_backward(const Tensor& grad, const Tensor& self, const Tensor& target, int64_t reduction,
                           const Tensor& is_target) {
  static Op op("aten::multilabel_margin_loss_backward");
  Rows r = multilabel_rows(self, target);
  TORCH_CHECK(is_target.sizes() == target.sizes(), "inconsistent is_target size: ", is_target.sizes());
  Call call(op, self);
  call.composed();
  Targets t(r.target);
  Tensor ours = is_target.reshape(r.x.sizes()).ne(0), chosen = r.x.gather(1, t.index);
  Tensor out = at::zeros(r.x.sizes(), self.options());
  in_pieces(r.x, [&](int64_t k, int64_t count) {
    Tensor z = 1 - chosen.narrow(1, k, count).unsqueeze(2) + r.x.unsqueeze(1);
    Tensor none = ours.unsqueeze(1).logical_or(t.valid.narrow(1, k, count).unsqueeze(2).logical_not());
    Tensor on = z.gt(0).logical_and_(none.logical_not()).to(self.scalar_type());
    out.add_(on.sum(1)).scatter_add_(1, t.index.narrow(1, k, count), on.sum(2).neg());
  });
  out.mul_(share(reduction, r.x.size(0)) / static_cast<double>(r.x.size(1)));
  out.mul_(reduction == at::Reduction::None ? grad.reshape({-1, 1}) : grad.reshape({1, 1}));
  return out.view(self.sizes());
}
Tensor& multilabel_backward_out(const Tensor& grad, const Tensor& self, const Tensor& target,
                                int64_t reduction, const Tensor& is_target, Tensor& out) {
  Tensor g = multilabel_backward(grad, self, target, reduction, is_target);
  at::native::resize_output(out, g.sizes());
  return out.copy_(g);
}

// -------------------------------------------------------------------- rrelu
Tensor& rrelu_out(const Tensor& self, Tensor& noise, const at::Scalar& lower, const at::Scalar& upper,
                  bool training, std::optional<at::Generator> generator, Tensor& out) {
  static Op op("aten::rrelu_with_noise");
  TORCH_CHECK(self.sizes() == noise.sizes(),
              "noise tensor shape must match self tensor shape. Got self.shape = ", self.sizes(),
              " noise.shape = ", noise.sizes());
  Call call(op, self);
  call.composed();
  const double low = lower.toDouble(), high = upper.toDouble();
  if (!training) return at::leaky_relu_out(out, self, (low + high) / 2);
  Tensor slope = at::empty_like(self).uniform_(low, high, generator);
  noise.copy_(slope.masked_fill_(self.gt(0), 1));
  return at::mul_out(out, self, slope);
}
Tensor rrelu(const Tensor& self, Tensor& noise, const at::Scalar& lower, const at::Scalar& upper,
             bool training, std::optional<at::Generator> generator) {
  Tensor out = at::empty_like(self, at::MemoryFormat::Contiguous);
  return rrelu_out(self, noise, lower, upper, training, std::move(generator), out);
}
Tensor& rrelu_in_place(Tensor& self, Tensor& noise, const at::Scalar& lower, const at::Scalar& upper,
                       bool training, std::optional<at::Generator> generator) {
  return rrelu_out(self, noise, lower, upper, training, std::move(generator), self);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("binary_cross_entropy", bce);
  m.impl("binary_cross_entropy.out", bce_out);
  m.impl("binary_cross_entropy_backward", bce_backward);
  m.impl("binary_cross_entropy_backward.grad_input", bce_backward_out);
  m.impl("multi_margin_loss", multi_margin);
  m.impl("multi_margin_loss.out", multi_margin_out);
  m.impl("multi_margin_loss_backward", multi_margin_backward);
  m.impl("multi_margin_loss_backward.grad_input", multi_margin_backward_out);
  m.impl("multilabel_margin_loss_forward", multilabel_forward);
  m.impl("multilabel_margin_loss_forward.output", multilabel_forward_out);
  m.impl("multilabel_margin_loss_backward", multilabel_backward);
  m.impl("multilabel_margin_loss_backward.grad_input", multilabel_backward_out);
  m.impl("rrelu_with_noise", rrelu);
  m.impl("rrelu_with_noise.out", rrelu_out);
  m.impl("rrelu_with_noise_", rrelu_in_place);
}

}  // namespace
}  // namespace fl::bridge
