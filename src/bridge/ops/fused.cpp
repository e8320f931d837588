// Fused optimizer steps and the gradient scaler: one program over all
// parameters.
#include "program/expr.h"
#include "bridge/ops/multi_tensor.h"
#include "bridge/ops/reduction.h"

namespace fl::bridge {
namespace {

using at::TensorList;

// The parameters that one launch can take: one device, one dtype for all lists.
void check_lists(const Op& op, TensorList self, std::initializer_list<TensorList> lists) {
  for (TensorList list : lists)
    TORCH_CHECK(list.size() == self.size(), op.name, ": lists of ", self.size(), " and ", list.size(),
                " tensors");
  for (size_t i = 0; i < self.size(); ++i)
    for (TensorList list : lists) {
      TORCH_CHECK(list[i].device() == self[i].device(), op.name, ": tensor ", i, " is on ", self[i].device(),
                  " and ", list[i].device());
      TORCH_CHECK(list[i].sizes() == self[i].sizes(), op.name, ": tensor ", i, " has shapes ",
                  self[i].sizes(), " and ", list[i].sizes());
    }
}

// Groups of equal dtypes (mixed lists are legal), each run by `step`.
template <class Step>
void by_dtype(TensorList self, TensorList grads, Step&& step) {
  std::vector<bool> done(self.size(), false);
  for (size_t first = 0; first < self.size(); ++first) {
    if (done[first]) continue;
    std::vector<size_t> group;
    for (size_t i = first; i < self.size(); ++i)
      if (!done[i] && self[i].scalar_type() == self[first].scalar_type() &&
          grads[i].scalar_type() == grads[first].scalar_type() && self[i].device() == self[first].device())
        group.push_back(i), done[i] = true;
    step(group);
  }
}

// grad = grad / scale, unless an infinity was found: what the gradient scaler asks of a fused step.
void unscale(Call& call, TensorList grads, const std::vector<size_t>& group, const Tensor& scale,
             const Tensor* found) {
  static Programs programs;
  const Tensor& lead = grads[group[0]];
  uint8_t memory = dtype_of(lead), type = to_register(lead.scalar_type()), ts = dtype_of(scale);
  const fl_program* program =
      programs.get(key_of(memory, ts, found ? dtype_of(*found) : uint8_t{FL_NONE}), [&](Builder& b) {
        Value g = b.load(0, memory), v = b.op(FL_OP_DIV, g, b.load(1, ts, type));
        if (found) v = b.select(b.load(2, dtype_of(*found), FL_BOOL), g, v);
        b.store(0, v, memory);
      });
  MultiTensor items(call, group.size());
  for (size_t i : group) {
    const Tensor* from[] = {&grads[i], &scale, found};
    items.add({&grads[i]}, {from, found ? size_t{3} : size_t{2}});
  }
  if (!items.run(program)) throw_refused(call, "pointwise", lead.scalar_type());
}

// A learning rate as the caller gave it: a number, or a tensor (on the host or
// on the device).
struct Rate {
  double value = 0;
  const Tensor* tensor = nullptr;
  explicit Rate(double v) : value(v) {}
  explicit Rate(const Tensor& t) {
    if (is_fl(t)) tensor = &t;
    else value = t.item<double>();
  }
};

struct Adam {
  double beta1, beta2, weight_decay, eps;
  bool amsgrad, maximize, decoupled;
};

// What depends on the step alone, once for each parameter instead of once for
// each element:
//   [0] lr / (1 - beta1^t)   [1] sqrt(1 - beta2^t), negative when the step is skipped   [2] lr
// 1 - beta^t as -expm1(t·log beta): in F32 the plain difference loses five digits.
Tensor step_factors(Call& call, TensorList steps, const std::vector<size_t>& group, const Rate& lr,
                    const Adam& a, const Tensor* found, uint8_t type) {
  static Programs programs;
  Tensor out = empty_like(steps[group[0]], {static_cast<int64_t>(group.size()), 3}, to_scalar_type(type));
  uint8_t tstep = dtype_of(steps[group[0]]), tf = found ? dtype_of(*found) : uint8_t{FL_NONE},
          tl = lr.tensor ? dtype_of(*lr.tensor) : uint8_t{FL_NONE};
  const fl_program* program = programs.get(key_of(tstep, tf, tl, type), [&](Builder& b) {
    int input = 0;
    Value t = b.load(input++, tstep, type), log1 = b.scalar(0, type), log2 = b.scalar(1, type),
          number = b.scalar(2, type);
    Value rate = lr.tensor ? b.load(input++, tl, type) : number;
    auto correction = [&](Value log) { return b.op(FL_OP_NEG, b.op(FL_OP_EXPM1, b.op(FL_OP_MUL, t, log))); };
    Value root = b.op(FL_OP_SQRT, correction(log2));
    if (found) root = b.select(b.load(input++, tf, FL_BOOL), b.op(FL_OP_NEG, root), root);
    b.store(0, b.op(FL_OP_DIV, rate, correction(log1)), type);
    b.store(1, root, type);
    b.store(2, rate, type);
  });
  MultiTensor items(call, group.size());
  for (size_t k = 0; k < group.size(); ++k) {
    Tensor row = out.select(0, static_cast<int64_t>(k)),
           cells[] = {row.select(0, 0), row.select(0, 1), row.select(0, 2)};
    const Tensor* to[] = {&cells[0], &cells[1], &cells[2]};
    c10::SmallVector<const Tensor*, 3> from{&steps[group[k]]};
    if (lr.tensor) from.push_back(lr.tensor);
    if (found) from.push_back(found);
    items.add(to, from);
  }
  fl_scalar scalars[] = {scalar_f(std::log(a.beta1)), scalar_f(std::log(a.beta2)), scalar_f(lr.value)};
  if (!items.run(program, scalars)) throw_refused(call, "pointwise", out.scalar_type());
  return out;
}

const fl_program* adam_program(uint8_t tp, uint8_t tg, uint8_t tm, uint8_t tf, uint8_t type, const Adam& a) {
  static Programs programs;
  bool decay = a.weight_decay != 0;
  return programs.get(key_of(tp, tg, tm, tf, a.amsgrad, a.maximize, a.decoupled, decay), [&](Builder& b) {
    Value p = b.load(0, tp, type), g = b.load(1, tg, type), m = b.load(2, tm, type), v = b.load(3, tm, type);
    Value rate = b.load(4, tf, type), root = b.load(5, tf, type), lr = b.load(6, tf, type);
    Value beta1 = b.scalar(0, type), rest1 = b.scalar(1, type), beta2 = b.scalar(2, type),
          rest2 = b.scalar(3, type);
    Value eps = b.scalar(4, type), wd = b.scalar(5, type), zero = b.scalar(6, type);
    Value skip = b.op(FL_OP_LT, root, zero);
    if (a.maximize) g = b.op(FL_OP_NEG, g);
    Value q = p;
    if (decay && a.decoupled) q = b.op(FL_OP_SUB, p, b.op(FL_OP_MUL, b.op(FL_OP_MUL, lr, wd), p));
    if (decay && !a.decoupled) g = b.op(FL_OP_ADD, g, b.op(FL_OP_MUL, p, wd));
    Value m2 = b.op(FL_OP_ADD, b.op(FL_OP_MUL, beta1, m), b.op(FL_OP_MUL, rest1, g));
    Value v2 = b.op(FL_OP_ADD, b.op(FL_OP_MUL, beta2, v), b.op(FL_OP_MUL, rest2, b.op(FL_OP_MUL, g, g)));
    Value top = v2;
    if (a.amsgrad) top = b.op(FL_OP_MAX, b.load(7, tm, type), v2);
    Value denominator = b.op(FL_OP_ADD, b.op(FL_OP_DIV, b.op(FL_OP_SQRT, top), root), eps);
    q = b.op(FL_OP_SUB, q, b.op(FL_OP_MUL, rate, b.op(FL_OP_DIV, m2, denominator)));
    b.store(0, b.select(skip, p, q), tp);
    b.store(1, b.select(skip, m, m2), tm);
    b.store(2, b.select(skip, v, v2), tm);
    if (a.amsgrad) b.store(3, b.select(skip, b.load(7, tm, type), top), tm);
  });
}

void adam(Op& op, TensorList self, TensorList grads, TensorList averages, TensorList squares, TensorList tops,
          TensorList steps, const Rate& lr, const Adam& a, const std::optional<Tensor>& scale,
          const std::optional<Tensor>& found) {
  if (self.empty()) return;
  check_lists(op, self, {grads, averages, squares});
  if (a.amsgrad) check_lists(op, self, {tops});
  TORCH_CHECK(steps.size() == self.size(), op.name, ": ", self.size(), " parameters and ", steps.size(),
              " steps");
  by_dtype(self, grads, [&](const std::vector<size_t>& group) {
    const Tensor& lead = self[group[0]];
    Call call(op, lead);
    if (given(scale)) unscale(call, grads, group, *scale, given(found));
    uint8_t tp = dtype_of(lead), tg = dtype_of(grads[group[0]]), tm = dtype_of(averages[group[0]]);
    uint8_t type = to_register(lead.scalar_type()) == FL_F64 ? FL_F64 : FL_F32;
    Tensor factors = step_factors(call, steps, group, lr, a, given(found), type);
    MultiTensor items(call, group.size());
    for (size_t k = 0; k < group.size(); ++k) {
      size_t i = group[k];
      Tensor row = factors.select(0, static_cast<int64_t>(k)), rate = row.select(0, 0),
             root = row.select(0, 1), number = row.select(0, 2);
      const Tensor* to[] = {&self[i], &averages[i], &squares[i], a.amsgrad ? &tops[i] : nullptr};
      const Tensor* from[] = {&self[i], &grads[i], &averages[i], &squares[i],
                              &rate,    &root,     &number,      a.amsgrad ? &tops[i] : nullptr};
      items.add({to, a.amsgrad ? size_t{4} : size_t{3}}, {from, a.amsgrad ? size_t{8} : size_t{7}});
    }
    fl_scalar scalars[] = {
        scalar_f(a.beta1), scalar_f(1 - a.beta1),    scalar_f(a.beta2), scalar_f(1 - a.beta2),
        scalar_f(a.eps),   scalar_f(a.weight_decay), scalar_f(0)};
    if (!items.run(adam_program(tp, tg, tm, type, type, a), scalars))
      throw_refused(call, "pointwise", lead.scalar_type());
  });
}

#define FL_ADAM(name, text, decoupled)                                                                       \
  void name(TensorList self, TensorList grads, TensorList averages, TensorList squares, TensorList tops,     \
            TensorList steps, double lr, double beta1, double beta2, double decay, double eps, bool amsgrad, \
            bool maximize, const std::optional<Tensor>& scale, const std::optional<Tensor>& found) {         \
    static Op op(text);                                                                                      \
    adam(op, self, grads, averages, squares, tops, steps, Rate(lr),                                          \
         {beta1, beta2, decay, eps, amsgrad, maximize, decoupled}, scale, found);                            \
  }                                                                                                          \
  void name##_tensor_lr(TensorList self, TensorList grads, TensorList averages, TensorList squares,          \
                        TensorList tops, TensorList steps, const Tensor& lr, double beta1, double beta2,     \
                        double decay, double eps, bool amsgrad, bool maximize,                               \
                        const std::optional<Tensor>& scale, const std::optional<Tensor>& found) {            \
    static Op op(text);                                                                                      \
    adam(op, self, grads, averages, squares, tops, steps, Rate(lr),                                          \
         {beta1, beta2, decay, eps, amsgrad, maximize, decoupled}, scale, found);                            \
  }
FL_ADAM(fused_adam, "aten::_fused_adam_", false)
FL_ADAM(fused_adamw, "aten::_fused_adamw_", true)

// ------------------------------------------------------------------------ SGD
struct Sgd {
  double weight_decay, momentum, dampening;
  bool nesterov, maximize, first;
};

void sgd(Op& op, TensorList self, TensorList grads, TensorList buffers, const Rate& lr, const Sgd& s,
         const std::optional<Tensor>& scale, const std::optional<Tensor>& found_in) {
  static Programs programs;
  if (self.empty()) return;
  check_lists(op, self, {grads});
  bool momentum = s.momentum != 0, decay = s.weight_decay != 0;
  if (momentum) check_lists(op, self, {buffers});
  const Tensor* found = given(found_in);
  by_dtype(self, grads, [&](const std::vector<size_t>& group) {
    const Tensor& lead = self[group[0]];
    Call call(op, lead);
    if (given(scale)) unscale(call, grads, group, *scale, found);
    uint8_t tp = dtype_of(lead), tg = dtype_of(grads[group[0]]), type = to_register(lead.scalar_type());
    uint8_t tl = lr.tensor ? dtype_of(*lr.tensor) : uint8_t{FL_NONE},
            tf = found ? dtype_of(*found) : uint8_t{FL_NONE};
    int form = momentum | decay << 1 | s.nesterov << 2 | s.maximize << 3 | s.first << 4;
    const fl_program* program = programs.get(key_of(tp, tg, tl, tf, form), [&](Builder& b) {
      int input = 0;
      Value p = b.load(input++, tp), g = b.load(input++, tg, type), buffer = p, rate = b.scalar(0, type);
      Value mu = b.scalar(1, type), rest = b.scalar(2, type), wd = b.scalar(3, type);
      if (momentum) buffer = b.load(input++, tp);
      if (lr.tensor) rate = b.load(input++, tl, type);
      if (s.maximize) g = b.op(FL_OP_NEG, g);
      if (decay) g = b.op(FL_OP_ADD, g, b.op(FL_OP_MUL, wd, p));
      Value next = g;
      if (momentum) {
        if (!s.first) next = b.op(FL_OP_ADD, b.op(FL_OP_MUL, mu, buffer), b.op(FL_OP_MUL, rest, g));
        g = s.nesterov ? b.op(FL_OP_ADD, g, b.op(FL_OP_MUL, mu, next)) : next;
      }
      Value q = b.op(FL_OP_SUB, p, b.op(FL_OP_MUL, rate, g));
      if (found) {
        Value skip = b.load(input++, tf, FL_BOOL);
        q = b.select(skip, p, q);
        if (momentum) next = b.select(skip, buffer, next);
      }
      b.store(0, q, tp);
      if (momentum) b.store(1, next, tp);
    });
    MultiTensor items(call, group.size());
    for (size_t i : group) {
      c10::SmallVector<const Tensor*, 5> from{&self[i], &grads[i]}, to{&self[i]};
      if (momentum) from.push_back(&buffers[i]), to.push_back(&buffers[i]);
      if (lr.tensor) from.push_back(lr.tensor);
      if (found) from.push_back(found);
      items.add(to, from);
    }
    fl_scalar scalars[] = {scalar_f(lr.value), scalar_f(s.momentum), scalar_f(1 - s.dampening),
                           scalar_f(s.weight_decay)};
    if (!items.run(program, scalars)) throw_refused(call, "pointwise", lead.scalar_type());
  });
}

void fused_sgd(TensorList self, TensorList grads, TensorList buffers, double decay, double momentum,
               double lr, double dampening, bool nesterov, bool maximize, bool first,
               const std::optional<Tensor>& scale, const std::optional<Tensor>& found) {
  static Op op("aten::_fused_sgd_");
  sgd(op, self, grads, buffers, Rate(lr), {decay, momentum, dampening, nesterov, maximize, first}, scale,
      found);
}
void fused_sgd_tensor_lr(TensorList self, TensorList grads, TensorList buffers, double decay, double momentum,
                         const Tensor& lr, double dampening, bool nesterov, bool maximize, bool first,
                         const std::optional<Tensor>& scale, const std::optional<Tensor>& found) {
  static Op op("aten::_fused_sgd_");
  sgd(op, self, grads, buffers, Rate(lr), {decay, momentum, dampening, nesterov, maximize, first}, scale,
      found);
}

// -------------------------------------------------------------------- Adagrad
struct Adagrad {
  double lr_decay, weight_decay, eps;
  bool maximize;
};

void adagrad(Op& op, TensorList self, TensorList grads, TensorList sums, TensorList steps, const Rate& lr,
             const Adagrad& a, const std::optional<Tensor>& scale, const std::optional<Tensor>& found_in) {
  static Programs programs;
  if (self.empty()) return;
  check_lists(op, self, {grads, sums});
  TORCH_CHECK(steps.size() == self.size(), op.name, ": ", self.size(), " parameters and ", steps.size(),
              " steps");
  const Tensor* found = given(found_in);
  by_dtype(self, grads, [&](const std::vector<size_t>& group) {
    const Tensor& lead = self[group[0]];
    Call call(op, lead);
    if (given(scale)) unscale(call, grads, group, *scale, found);
    uint8_t tp = dtype_of(lead), tg = dtype_of(grads[group[0]]), ts = dtype_of(sums[group[0]]),
            tt = dtype_of(steps[group[0]]), type = to_register(lead.scalar_type());
    uint8_t tl = lr.tensor ? dtype_of(*lr.tensor) : uint8_t{FL_NONE},
            tf = found ? dtype_of(*found) : uint8_t{FL_NONE};
    int form = (a.weight_decay != 0) | a.maximize << 1;
    const fl_program* program = programs.get(key_of(tp, tg, ts, tt, tl, tf, form), [&](Builder& b) {
      int input = 0;
      Expr p{&b, b.load(input++, tp)}, g{&b, b.load(input++, tg, type)}, sum{&b, b.load(input++, ts, type)},
          step{&b, b.load(input++, tt, type)}, decay{&b, b.scalar(1, type)}, eps{&b, b.scalar(2, type)};
      Expr rate{&b, lr.tensor ? b.load(input++, tl, type) : b.scalar(0, type)};
      if (a.maximize) g = -g;
      if (a.weight_decay != 0) g = g + p * Expr{&b, b.scalar(3, type)};
      Expr total = sum + g * g, q = p - rate / ((step - 1) * decay + 1) * g / (sqrt(total) + eps);
      if (found) {
        Expr skip{&b, b.load(input++, tf, FL_BOOL)};
        q = select(skip, p, q), total = select(skip, sum, total);
      }
      b.store(0, q.v, tp);
      b.store(1, total.v, ts);
    });
    MultiTensor items(call, group.size());
    for (size_t i : group) {
      c10::SmallVector<const Tensor*, 6> from{&self[i], &grads[i], &sums[i], &steps[i]};
      if (lr.tensor) from.push_back(lr.tensor);
      if (found) from.push_back(found);
      items.add({&self[i], &sums[i]}, from);
    }
    fl_scalar scalars[] = {scalar_f(lr.value), scalar_f(a.lr_decay), scalar_f(a.eps),
                           scalar_f(a.weight_decay)};
    if (!items.run(program, scalars)) throw_refused(call, "pointwise", lead.scalar_type());
  });
}

void fused_adagrad(TensorList self, TensorList grads, TensorList sums, TensorList steps, double lr,
                   double lr_decay, double decay, double eps, bool maximize,
                   const std::optional<Tensor>& scale, const std::optional<Tensor>& found) {
  static Op op("aten::_fused_adagrad_");
  adagrad(op, self, grads, sums, steps, Rate(lr), {lr_decay, decay, eps, maximize}, scale, found);
}
void fused_adagrad_tensor_lr(TensorList self, TensorList grads, TensorList sums, TensorList steps,
                             const Tensor& lr, double lr_decay, double decay, double eps, bool maximize,
                             const std::optional<Tensor>& scale, const std::optional<Tensor>& found) {
  static Op op("aten::_fused_adagrad_");
  adagrad(op, self, grads, sums, steps, Rate(lr), {lr_decay, decay, eps, maximize}, scale, found);
}

// ------------------------------------------------------------ gradient scaler
// grads *= inv_scale; found_inf = 1 where one of them was not finite.
void non_finite_check(TensorList grads, Tensor& found, const Tensor& inverse) {
  static Op op("aten::_amp_foreach_non_finite_check_and_unscale_");
  static Programs checks, products, joins;
  if (grads.empty()) return;
  TORCH_CHECK(found.numel() == 1 && found.scalar_type() == at::kFloat, op.name,
              ": found_inf must be a float32 number");
  TORCH_CHECK(inverse.numel() == 1 && inverse.scalar_type() == at::kFloat, op.name,
              ": inv_scale must be a float32 number");
  by_dtype(grads, grads, [&](const std::vector<size_t>& group) {
    const Tensor& lead = grads[group[0]];
    TORCH_CHECK(lead.device() == found.device() && lead.device() == inverse.device(), op.name,
                ": gradients on ", lead.device(), ", found_inf on ", found.device(), ", inv_scale on ",
                inverse.device());
    TORCH_CHECK(at::isFloatingType(lead.scalar_type()), op.name, ": gradients of ",
                c10::toString(lead.scalar_type()));
    Call call(op, lead);
    call.composed();
    uint8_t memory = dtype_of(lead), type = to_register(lead.scalar_type());
    // x - x is 0 for finite x alone.
    const fl_program* check = checks.get(memory, [&](Builder& b) {
      Value x = b.load(0, memory);
      b.store(0, b.cast(b.op(FL_OP_SUB, x, x), FL_BOOL), FL_BOOL);
    });
    Tensor flags = empty_like(lead, {static_cast<int64_t>(group.size())}, at::kBool);
    MultiTensor items(call, group.size());
    bool done = true;
    for (size_t k = 0; k < group.size(); ++k) {
      const Tensor& g = grads[group[k]];
      Tensor flag = flags.select(0, static_cast<int64_t>(k));
      if (g.numel() == 0) fill_step(flag, false);
      else done = done && reduce(call, {FL_REDUCE_ANY, FL_BOOL, check}, Mask().set(), {&g}, {&flag});
      items.add({&g}, {&g, &inverse});
    }
    const fl_program* product = products.get(memory, [&](Builder& b) {
      b.store(0, b.op(FL_OP_MUL, b.load(0, memory), b.load(1, FL_F32, type)), memory);
    });
    Tensor any = empty_like(lead, {}, at::kBool);
    const fl_program* join = joins.get(0, [](Builder& b) {
      b.store(0, b.op(FL_OP_MAX, b.load(0, FL_F32), b.load(1, FL_BOOL, FL_F32)), FL_F32);
    });
    done = done && items.run(product) &&
           reduce(call, {FL_REDUCE_ANY, FL_BOOL}, Mask().set(), {&flags}, {&any}) &&
           run_program(call, join, {&found}, {&found, &any});
    if (!done) throw_refused(call, "pointwise or reduce", lead.scalar_type());
  });
}

Tensor& update_scale(Tensor& scale, Tensor& tracker, const Tensor& found, double growth, double backoff,
                     int64_t interval) {
  static Op op("aten::_amp_update_scale_");
  static Programs programs;
  TORCH_CHECK(tracker.numel() == 1 && tracker.scalar_type() == at::kInt, op.name,
              ": growth_tracker must be an int32 number");
  TORCH_CHECK(scale.numel() == 1 && scale.scalar_type() == at::kFloat, op.name,
              ": current_scale must be a float32 number");
  TORCH_CHECK(found.numel() == 1 && found.scalar_type() == at::kFloat, op.name,
              ": found_inf must be a float32 number");
  Call call(op, scale);
  const fl_program* program = programs.get(0, [](Builder& b) {
    Value s = b.load(0, FL_F32), n = b.load(1, FL_I32), skip = b.load(2, FL_F32, FL_BOOL);
    Value one = b.scalar(3, FL_I32), zero = b.scalar(4, FL_I32);
    Value next = b.op(FL_OP_ADD, n, one), full = b.op(FL_OP_EQ, next, b.scalar(2, FL_I32));
    Value grown = b.op(FL_OP_MUL, s, b.scalar(0, FL_F32));
    grown = b.select(b.cast(b.op(FL_OP_SUB, grown, grown), FL_BOOL), s, grown);  // never to infinity
    b.store(0, b.select(skip, b.op(FL_OP_MUL, s, b.scalar(1, FL_F32)), b.select(full, grown, s)), FL_F32);
    b.store(1, b.select(skip, zero, b.select(full, zero, next)), FL_I32);
  });
  if (!run_program(call, program, {&scale, &tracker}, {&scale, &tracker, &found},
                   {scalar_f(growth), scalar_f(backoff), scalar_i(interval), scalar_i(1), scalar_i(0)}))
    throw_refused(call, "pointwise", at::kFloat);
  return scale;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_adam_", fused_adam);
  m.impl("_fused_adam_.tensor_lr", fused_adam_tensor_lr);
  m.impl("_fused_adamw_", fused_adamw);
  m.impl("_fused_adamw_.tensor_lr", fused_adamw_tensor_lr);
  m.impl("_fused_sgd_", fused_sgd);
  m.impl("_fused_sgd_.tensor_lr", fused_sgd_tensor_lr);
  m.impl("_fused_adagrad_", fused_adagrad);
  m.impl("_fused_adagrad_.tensor_lr", fused_adagrad_tensor_lr);
  m.impl("_amp_foreach_non_finite_check_and_unscale_", non_finite_check);
  m.impl("_amp_update_scale_", update_scale);
}

}  // namespace
}  // namespace fl::bridge
