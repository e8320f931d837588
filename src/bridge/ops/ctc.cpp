// Connectionist temporal classification (Graves et al., ICML 2006): the forward and backward
// recursions in logarithms, one launch a time step over all sequences and states.
#include <numeric>

#include "bridge/ops/indexing.h"
#include "program/expr.h"

namespace fl::bridge {
namespace {

// The sequences of a batch as states: blank, label, blank, label, …, blank.
struct States {
  int64_t steps, batch, labels, count;  // count: states of the longest target
  Tensor symbol;                        // [B, S] the class of each state; blank where there is none
  Tensor skips;                         // [B, S] whether a state is reached from the one before the last, too
  Tensor inputs, last;                  // [B, 1] input lengths; the last state of each sequence
  Tensor emitted;                       // [T, B, S] log-probability of each state's class
};

States states_of(const Tensor& log_probs, const Tensor& targets, IntArrayRef inputs, IntArrayRef lengths,
                 int64_t blank) {
  TORCH_CHECK(log_probs.dim() == 3, "log_probs tensor must be 3D, but got ", log_probs.dim(), "D");
  States s;
  s.steps = log_probs.size(0), s.batch = log_probs.size(1), s.labels = log_probs.size(2);
  TORCH_CHECK_NOT_IMPLEMENTED(log_probs.scalar_type() == at::kFloat || log_probs.scalar_type() == at::kDouble,
                              "\"ctc_loss_cpu\" not implemented for '",
                              c10::toString(log_probs.scalar_type()), "'");
  TORCH_CHECK(
      targets.scalar_type() == at::kLong || targets.scalar_type() == at::kInt,
      "Expected tensor for argument #2 'targets' to have one of the following scalar types: Long, Int; but "
      "got ",
      c10::toString(targets.scalar_type()), " instead (while checking arguments for ctc_loss)");
  TORCH_CHECK(blank >= 0 && blank < s.labels, "blank must be in label range");
  const auto n = static_cast<size_t>(s.batch);
  TORCH_CHECK(inputs.size() == n, "input_lengths must be of size batch_size");
  TORCH_CHECK(lengths.size() == n, "target_lengths must be of size batch_size");
  const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  int64_t longest = 0;
  for (size_t b = 0; b < n; ++b) {
    TORCH_CHECK(lengths[b] >= 0, "Expected target_lengths to have value at least 0, but got value ",
                lengths[b], " (while checking arguments for ctc_loss)");
    TORCH_CHECK(inputs[b] >= 0, "Expected input_lengths to have value at least 0, but got value ", inputs[b],
                " (while checking arguments for ctc_loss)");
    TORCH_CHECK(inputs[b] <= s.steps, "Expected input_lengths to have value at most ", s.steps,
                ", but got value ", inputs[b], " (while checking arguments for ctc_loss)");
    longest = std::max(longest, lengths[b]);
  }
  if (targets.dim() == 1) {
    TORCH_CHECK(targets.size(0) == total, "Expected tensor to have size ", total,
                " at dimension 0, but got size ", targets.size(0),
                " for argument #2 'targets' (while checking arguments for ctc_loss)");
  } else {
    TORCH_CHECK(targets.dim() == 2 && targets.size(0) == s.batch, "Expected targets of ", s.batch,
                " sequences, but got ", targets.sizes(), " (while checking arguments for ctc_loss)");
    TORCH_CHECK(targets.size(1) >= longest, "Expected tensor to have size at least ", longest,
                " at dimension 1, but got size ", targets.size(1),
                " for argument #2 'targets' (while checking arguments for ctc_loss)");
  }
  s.count = 2 * longest + 1;

  // Which target each state is, from the lengths; they are in host memory.
  auto host = at::TensorOptions().dtype(at::kLong);
  Tensor place = at::zeros({s.batch, s.count}, host),
         is_label = at::zeros({s.batch, s.count}, host.dtype(at::kBool)),
         limits = at::empty({2, s.batch, 1}, host);
  int64_t* p = place.mutable_data_ptr<int64_t>();
  bool* l = is_label.mutable_data_ptr<bool>();
  int64_t* e = limits.mutable_data_ptr<int64_t>();
  int64_t begin = 0;
  for (size_t b = 0; b < n; ++b, p += s.count, l += s.count) {
    if (targets.dim() == 2) begin = static_cast<int64_t>(b) * targets.size(1);
    for (int64_t k = 0; k < lengths[b]; ++k) p[2 * k + 1] = begin + k, l[2 * k + 1] = true;
    begin += lengths[b];
    e[b] = inputs[b], e[n + b] = 2 * lengths[b];
  }
  auto there = [&](const Tensor& t) { return t.to(targets.device()); };
  place = there(place), is_label = there(is_label), limits = there(limits);
  s.inputs = limits.select(0, 0), s.last = limits.select(0, 1);
  s.symbol = at::full({s.batch, s.count}, blank, place.options());
  if (longest) s.symbol = at::where(is_label, targets.reshape({-1}).to(at::kLong).take(place), s.symbol);
  s.skips = is_label.clone();
  s.skips.narrow(1, 0, std::min<int64_t>(2, s.count)).fill_(false);
  if (s.count > 2)
    s.skips.narrow(1, 2, s.count - 2)
        .logical_and_(s.symbol.narrow(1, 2, s.count - 2).ne(s.symbol.narrow(1, 0, s.count - 2)));
  s.emitted = log_probs.gather(2, s.symbol.unsqueeze(0).expand({s.steps, s.batch, s.count}));
  return s;
}

// One step: from the states that lead here (their logarithms summed), what is emitted; -inf beyond
// a sequence's end.  On the step `first` of a sequence: where it may begin, instead.
//   inputs: stay, one, two, may skip, emitted, where it may begin, the step it begins at, its last state
const fl_program* step(uint8_t type) {
  static Programs programs;
  return programs.get(type, [&](Builder& b) {
    Expr a{&b, b.load(0, type)}, c{&b, b.load(1, type)}, d{&b, b.load(2, type)};
    Expr skip{&b, b.load(3, FL_BOOL)}, emitted{&b, b.load(4, type)}, begins{&b, b.load(5, FL_BOOL)};
    Expr first{&b, b.load(6, FL_I64)}, last{&b, b.load(7, FL_I64)};
    Expr t{&b, b.scalar(0, FL_I64)}, direction{&b, b.scalar(1, FL_I64)}, state{&b, b.index(1, FL_I64)};
    Expr none = a.like(-INFINITY);
    d = select(skip, d, none);
    Expr most = max(max(a, c), d), base = select(most == none, a.like(0), most);
    Expr sum = log(exp(a - base) + exp(c - base) + exp(d - base)) + base + emitted;
    Expr past = (t - first) * direction;  // steps since the sequence began, in the direction of the walk
    Expr value = select(past == 0, select(begins, emitted, none), select(past > 0, sum, none));
    b.store(0, select(state <= last, value, none).v, type);
  });
}

// alpha (forwards) or beta, [T, B, S].
Tensor walk(Call& call, const States& s, bool forwards) {
  const uint8_t type = dtype_of(s.emitted);
  // Two columns of -inf beside the states, for those that nothing leads to.
  Tensor all = at::full({s.steps, s.batch, s.count + 2}, -INFINITY, s.emitted.options());
  Tensor none = at::full({s.batch, s.count + 2}, -INFINITY, s.emitted.options());
  const int64_t offset = forwards ? 2 : 0;
  Tensor numbers = at::arange(s.count, s.symbol.options()).unsqueeze(0), begins, skips = s.skips, first;
  if (forwards) {
    begins = numbers.le(1).expand({s.batch, s.count}), first = at::zeros_like(s.inputs);
  } else {
    begins = numbers.ge(s.last - 1), first = s.inputs - 1;
    // Skipping leads from a state to the second after it, if that one allows it.
    skips = at::zeros_like(s.skips);
    if (s.count > 2) skips.narrow(1, 0, s.count - 2).copy_(s.skips.narrow(1, 2, s.count - 2));
  }
  for (int64_t i = 0; i < s.steps; ++i) {
    const int64_t t = forwards ? i : s.steps - 1 - i, sign = forwards ? 1 : -1;
    const Tensor before = i ? all.select(0, t - sign) : none;
    auto shifted = [&](int64_t by) { return before.narrow(1, offset - sign * by, s.count); };
    Tensor to = all.select(0, t).narrow(1, offset, s.count), a = shifted(0), b = shifted(1), c = shifted(2),
           emitted = s.emitted.select(0, t);
    if (!run_program(call, step(type), {&to}, {&a, &b, &c, &skips, &emitted, &begins, &first, &s.last},
                     {scalar_i(t), scalar_i(sign)}, Order::kKeep))
      throw_refused(call, "pointwise", s.emitted.scalar_type());
  }
  return all.narrow(2, offset, s.count);
}

std::tuple<Tensor, Tensor> forward(Op& op, const Tensor& log_probs, const Tensor& targets, IntArrayRef inputs,
                                   IntArrayRef lengths, int64_t blank) {
  Call call(op, log_probs);
  call.composed();
  States s = states_of(log_probs, targets, inputs, lengths, blank);
  Tensor alpha = walk(call, s, true).transpose(0, 1).contiguous();  // [B, T, S]
  if (s.batch == 0) return {at::empty({0}, log_probs.options()), alpha};
  Tensor loss;
  if (s.steps == 0) {
    loss = at::full({s.batch}, INFINITY, log_probs.options());
  } else {
    // The last two states at the last step.
    Tensor t = s.inputs.sub(1).clamp_min(0).unsqueeze(2).expand({s.batch, 1, s.count}),
           row = alpha.gather(1, t).select(1, 0), last = row.gather(1, s.last),
           before = row.gather(1, s.last.sub(1).clamp_min(0)).masked_fill(s.last.eq(0), -INFINITY);
    loss = at::logaddexp(last, before).neg().squeeze(1);
  }
  // Without input, nothing but the empty target is certain.
  Tensor nothing = s.inputs.squeeze(1).eq(0), empty = s.last.squeeze(1).eq(0);
  loss = loss.masked_fill(nothing, INFINITY).masked_fill(nothing.logical_and(empty), 0);
  return {loss, alpha};
}

Tensor backward(Op& op, const Tensor& grad, const Tensor& log_probs, const Tensor& targets,
                IntArrayRef inputs, IntArrayRef lengths, const Tensor& loss, const Tensor& alpha,
                int64_t blank, bool zero_infinity) {
  Call call(op, log_probs);
  call.composed();
  if (log_probs.numel() == 0) return at::zeros_like(log_probs);
  States s = states_of(log_probs, targets, inputs, lengths, blank);
  Tensor beta = walk(call, s, false), column = loss.view({1, s.batch, 1}), g = grad.view({1, s.batch, 1});
  // The share of each state in the loss; states of one class add up.
  Tensor share = (alpha.transpose(0, 1) + beta + column - s.emitted).exp_();
  Tensor out = log_probs.exp();
  share = share.masked_fill(share.isnan(), 0);
  out.scatter_add_(2, s.symbol.unsqueeze(0).expand({s.steps, s.batch, s.count}), share.neg());
  Tensor impossible = column.eq(INFINITY);
  out = out.mul(g).masked_fill(impossible, zero_infinity ? 0. : NAN);
  Tensor beyond =
      at::arange(s.steps, s.inputs.options()).view({s.steps, 1, 1}).ge(s.inputs.view({1, s.batch, 1}));
  return out.masked_fill_(beyond, 0);
}

std::vector<int64_t> on_host(const Tensor& lengths, const char* what) {
  TORCH_CHECK(at::isIntegralType(lengths.scalar_type(), /*includeBool=*/false), what, " must be integral");
  Tensor t = lengths.to(at::kCPU, at::kLong).contiguous();
  return {t.const_data_ptr<int64_t>(), t.const_data_ptr<int64_t>() + t.numel()};
}

std::tuple<Tensor, Tensor> ctc(const Tensor& log_probs, const Tensor& targets, IntArrayRef inputs,
                               IntArrayRef lengths, int64_t blank, bool) {
  static Op op("aten::_ctc_loss");
  return forward(op, log_probs, targets, inputs, lengths, blank);
}
std::tuple<Tensor, Tensor> ctc_tensor(const Tensor& log_probs, const Tensor& targets, const Tensor& inputs,
                                      const Tensor& lengths, int64_t blank, bool) {
  static Op op("aten::_ctc_loss.Tensor");
  return forward(op, log_probs, targets, on_host(inputs, "input_lengths"), on_host(lengths, "target_lengths"),
                 blank);
}
Tensor ctc_backward(const Tensor& grad, const Tensor& log_probs, const Tensor& targets, IntArrayRef inputs,
                    IntArrayRef lengths, const Tensor& loss, const Tensor& alpha, int64_t blank,
                    bool zero_infinity) {
  static Op op("aten::_ctc_loss_backward");
  return backward(op, grad, log_probs, targets, inputs, lengths, loss, alpha, blank, zero_infinity);
}
Tensor ctc_backward_tensor(const Tensor& grad, const Tensor& log_probs, const Tensor& targets,
                           const Tensor& inputs, const Tensor& lengths, const Tensor& loss,
                           const Tensor& alpha, int64_t blank, bool zero_infinity) {
  static Op op("aten::_ctc_loss_backward.Tensor");
  return backward(op, grad, log_probs, targets, on_host(inputs, "input_lengths"),
                  on_host(lengths, "target_lengths"), loss, alpha, blank, zero_infinity);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_ctc_loss", ctc);
  m.impl("_ctc_loss.Tensor", ctc_tensor);
  m.impl("_ctc_loss_backward", ctc_backward);
  m.impl("_ctc_loss_backward.Tensor", ctc_backward_tensor);
}

}  // namespace
}  // namespace fl::bridge
