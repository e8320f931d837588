// Negative log likelihood, 1-d and 2-d, from gather, scatter and reductions.
// A target that is no class and not ignored is a fault of the gather.
#include <ATen/core/Reduction.h>
#include <ATen/ops/nll_loss_backward_meta.h>
#include <ATen/ops/nll_loss_forward_meta.h>

#include "bridge/devices.h"
#include "bridge/ops/indexing.h"
#include "bridge/ops/reduction.h"

namespace fl::bridge {
namespace {

int64_t class_dim(const Tensor& x) { return x.dim() == 1 ? 0 : 1; }

// The target with ignored places moved to class 0, so that they can be gathered.
Tensor safe_target(Call& call, const Tensor& target, int64_t ignore) {
  static Programs programs;
  Tensor out = empty_like(target, target.sizes(), at::kLong);
  uint8_t memory = dtype_of(target);
  const fl_program* program = programs.get(memory, [&](Builder& b) {
    Value t = b.load(0, memory, FL_I64), none = b.scalar(0, FL_I64), zero = b.scalar(1, FL_I64);
    b.store(0, b.select(b.op(FL_OP_EQ, t, none), zero, t), FL_I64);
  });
  if (!run_program(call, program, {&out}, {&target}, {scalar_i(ignore), scalar_i(0)}))
    throw_refused(call, "pointwise", at::kLong);
  return out;
}

Tensor picked(Call& call, const Tensor& from, int64_t dim, const Tensor& index) {
  Tensor out = empty_like(from, index.sizes(), from.scalar_type());
  Slice slice(from, dim);
  if (!gather_into(call, out, slice.rest, {&index}, {slice.axis}))
    throw_refused(call, "gather", from.scalar_type());
  return out;
}

// Per place: -x[target]·weight[target], or with kWeight weight[target] alone; 0 where ignored.
enum Term { kLoss, kWeight };
const fl_program* term(Term what, uint8_t tx, uint8_t tt, uint8_t tw, uint8_t type, uint8_t memory) {
  static Programs programs;
  return programs.get(key_of(what, tx, tt, tw, type, memory), [&](Builder& b) {
    Value x = b.load(0, tx, type), t = b.load(1, tt, FL_I64), w = b.load(2, tw == FL_NONE ? tx : tw, type);
    Value ignored = b.op(FL_OP_EQ, t, b.scalar(0, FL_I64)), zero = b.scalar(1, type), one = b.scalar(2, type);
    Value value = what == kWeight ? (tw == FL_NONE ? one : w)
                  : tw == FL_NONE ? b.op(FL_OP_NEG, x)
                                  : b.op(FL_OP_NEG, b.op(FL_OP_MUL, x, w));
    b.store(0, b.select(ignored, zero, value), memory);
  });
}

void check_weight(const Tensor& x, const Tensor* weight) {
  TORCH_CHECK(!weight || weight->scalar_type() == x.scalar_type(), "expected scalar type ",
              c10::toString(x.scalar_type()), " but found ", c10::toString(weight->scalar_type()));
}

void forward_into(Call& call, const Tensor& x, const Tensor& target, const Tensor* weight, int64_t reduction,
                  int64_t ignore, const Tensor& out, const Tensor& total) {
  check_weight(x, weight);
  call.composed();
  if (target.numel() == 0) {
    if (reduction != at::Reduction::None) fill_step(out, reduction == at::Reduction::Mean ? NAN : 0);
    fill_step(total, 0);
    return;
  }
  uint8_t type = to_register(x.scalar_type());
  Tensor index = safe_target(call, target, ignore), chosen = picked(call, x, class_dim(x), index), w;
  if (weight) w = picked(call, *weight, 0, index);
  const Tensor& weights = weight ? w : chosen;
  uint8_t tx = dtype_of(chosen), tt = dtype_of(target), tw = weight ? dtype_of(w) : uint8_t{FL_NONE};
  fl_scalar scalars[] = {scalar_i(ignore), scalar_f(0), scalar_f(1)};
  bool done;
  if (reduction == at::Reduction::None) {
    done = run_program(call, term(kLoss, tx, tt, tw, type, dtype_of(out)), {&out},
                       {&chosen, &target, &weights}, {scalars[0], scalars[1], scalars[2]});
    fill_step(total, 0);
  } else {
    Tensor sum = empty_like(x, {}, to_scalar_type(type)),
           weight_sum = empty_like(x, {}, to_scalar_type(type));
    auto add_up = [&](Term what, const Tensor& to) {
      Reduction r{FL_REDUCE_SUM, type, term(what, tx, tt, tw, type, type), nullptr, scalars};
      return reduce(call, r, Mask().set(), {&chosen, &target, &weights}, {&to});
    };
    done = add_up(kLoss, sum) && add_up(kWeight, weight_sum);
    if (done) {
      static Programs quotients;
      uint8_t to = dtype_of(out), sums = dtype_of(sum);
      bool mean = reduction == at::Reduction::Mean;
      const fl_program* finish = quotients.get(key_of(to, sums, mean), [&](Builder& b) {
        Value s = b.load(0, sums), w = b.load(1, sums);
        b.store(0, mean ? b.op(FL_OP_DIV, s, w) : s, to);
        b.store(1, w, to);
      });
      done = run_program(call, finish, {&out, &total}, {&sum, &weight_sum});
    }
  }
  if (!done) throw_refused(call, "pointwise or reduce", x.scalar_type());
}

// grad_x = 0 but at the target: -grad·weight / total
void backward_into(Call& call, const Tensor& grad, const Tensor& x, const Tensor& target,
                   const Tensor* weight, int64_t reduction, int64_t ignore, const Tensor& total,
                   const Tensor& grad_x) {
  static Programs programs;
  check_weight(x, weight);
  call.composed();
  if (grad_x.numel() == 0) return;
  fill_step(grad_x, 0);
  if (target.numel() == 0) return;
  uint8_t type = to_register(x.scalar_type());
  Tensor index = safe_target(call, target, ignore), w;
  if (weight) w = picked(call, *weight, 0, index);
  const Tensor& weights = weight ? w : total;
  Tensor value = empty_like(x, target.sizes(), x.scalar_type());
  bool mean = reduction == at::Reduction::Mean;
  uint8_t tg = dtype_of(grad), tt = dtype_of(target), tw = dtype_of(weights), ttotal = dtype_of(total);
  const fl_program* program =
      programs.get(key_of(tg, tt, tw, ttotal, dtype_of(value), mean, weight ? 1 : 0), [&](Builder& b) {
        Value g = b.load(0, tg, type), t = b.load(1, tt, FL_I64), wv = b.load(2, tw, type),
              n = b.load(3, ttotal, type);
        Value ignored = b.op(FL_OP_EQ, t, b.scalar(0, FL_I64)), zero = b.scalar(1, type);
        Value v = b.op(FL_OP_NEG, g);
        if (weight) v = b.op(FL_OP_MUL, v, wv);
        if (mean) v = b.op(FL_OP_DIV, v, n);
        b.store(0, b.select(ignored, zero, v), dtype_of(value));
      });
  Slice slice(grad_x, class_dim(grad_x));
  if (!run_program(call, program, {&value}, {&grad, &target, &weights, &total},
                   {scalar_i(ignore), scalar_f(0)}) ||
      !scatter_into(call, FL_SCATTER_SET, slice.rest, value, {&index}, {slice.axis}))
    throw_refused(call, "pointwise or scatter", x.scalar_type());
}

void check_target(const Tensor& target) {
  TORCH_CHECK(target.scalar_type() == at::kLong || target.scalar_type() == at::kByte,
              "expected scalar type Long or Byte for the target but found ",
              c10::toString(target.scalar_type()));
}

std::tuple<Tensor&, Tensor&> nll_forward_out(const Tensor& x, const Tensor& target,
                                             const std::optional<Tensor>& weight, int64_t reduction,
                                             int64_t ignore, Tensor& out, Tensor& total) {
  static Op op("aten::nll_loss_forward");
  check_devices(op, {&x, &target, given(weight)});
  Into<at::meta::structured_nll_loss_forward> shape(out, total);
  shape.meta(x, target, given(weight) ? at::OptionalTensorRef(*weight) : at::OptionalTensorRef(), reduction,
             ignore);
  check_target(target);
  Call call(op, x);
  forward_into(call, x, target, given(weight), reduction, ignore, out, total);
  return {out, total};
}

Tensor& nll_backward_out(const Tensor& grad, const Tensor& x, const Tensor& target,
                         const std::optional<Tensor>& weight, int64_t reduction, int64_t ignore,
                         const Tensor& total, Tensor& grad_x) {
  static Op op("aten::nll_loss_backward");
  Into<at::meta::structured_nll_loss_backward> shape(grad_x);
  shape.meta(grad, x, target, given(weight) ? at::OptionalTensorRef(*weight) : at::OptionalTensorRef(),
             reduction, ignore, total);
  check_target(target);
  Call call(op, x);
  backward_into(call, grad, x, target, given(weight), reduction, ignore, total, grad_x);
  return grad_x;
}

void check_2d(const Tensor& x, const Tensor& target, const Tensor* weight) {
  TORCH_CHECK(
      target.dim() == 3,
      "only batches of spatial targets supported (3D tensors) but got targets of dimension: ", target.dim());
  TORCH_CHECK(x.dim() == 4,
              "only batches of spatial inputs supported (4D tensors), but got input of dimension: ", x.dim());
  TORCH_CHECK(!weight || weight->numel() == x.size(1),
              "weight tensor should be defined either for all or no classes");
  TORCH_CHECK(x.size(0) == target.size(0) && x.size(2) == target.size(1) && x.size(3) == target.size(2),
              "size mismatch (got input: ", x.sizes(), " , target: ", target.sizes(), ")");
  check_target(target);
}

std::tuple<Tensor, Tensor> nll2d_forward(const Tensor& x, const Tensor& target,
                                         const std::optional<Tensor>& weight, int64_t reduction,
                                         int64_t ignore) {
  static Op op("aten::nll_loss2d_forward");
  check_devices(op, {&x, &target, given(weight)});
  check_2d(x, target, given(weight));
  Tensor out =
      empty_like(x, reduction == at::Reduction::None ? target.sizes() : IntArrayRef{}, x.scalar_type());
  Tensor total = empty_like(x, {}, x.scalar_type());
  Call call(op, x);
  forward_into(call, x, target, given(weight), reduction, ignore, out, total);
  return {out, total};
}

Tensor nll2d_backward(const Tensor& grad, const Tensor& x, const Tensor& target,
                      const std::optional<Tensor>& weight, int64_t reduction, int64_t ignore,
                      const Tensor& total) {
  static Op op("aten::nll_loss2d_backward");
  check_2d(x, target, given(weight));
  Tensor grad_x = at::empty_like(x);
  Call call(op, x);
  backward_into(call, grad, x, target, given(weight), reduction, ignore, total, grad_x);
  return grad_x;
}

std::tuple<Tensor&, Tensor&> nll2d_forward_out(const Tensor& x, const Tensor& target,
                                               const std::optional<Tensor>& weight, int64_t reduction,
                                               int64_t ignore, Tensor& out, Tensor& total) {
  auto [loss, sum] = nll2d_forward(x, target, weight, reduction, ignore);
  at::native::resize_output(out, loss.sizes());
  at::native::resize_output(total, {});
  return {out.copy_(loss), total.copy_(sum)};
}

Tensor& nll2d_backward_out(const Tensor& grad, const Tensor& x, const Tensor& target,
                           const std::optional<Tensor>& weight, int64_t reduction, int64_t ignore,
                           const Tensor& total, Tensor& grad_x) {
  at::native::resize_output(grad_x, x.sizes());
  return grad_x.copy_(nll2d_backward(grad, x, target, weight, reduction, ignore, total));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("nll_loss_forward.output", nll_forward_out);
  m.impl("nll_loss_backward.grad_input", nll_backward_out);
  m.impl("nll_loss2d_forward", nll2d_forward);
  m.impl("nll_loss2d_forward.output", nll2d_forward_out);
  m.impl("nll_loss2d_backward", nll2d_backward);
  m.impl("nll_loss2d_backward.grad_input", nll2d_backward_out);
}

}  // namespace
}  // namespace fl::bridge
