// Recurrent layers: the LSTM a whole layer at a time, and the fused cells of LSTM and GRU, which PyTorch
// chooses for this device.
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/ops/lstm_native.h>

#include "program/expr.h"
#include "bridge/ops/programs.h"

namespace fl::bridge {
namespace {

using at::TensorList;
using Optional = std::optional<Tensor>;

// A program over [N, H] whose operands may be columns first … first+H-1 of wider matrices.
class Step {
 public:
  Step(Call& call, IntArrayRef sizes) : call_(call), space_(sizes) {}
  Step& outputs(const Tensor& t, int first = 0, int count = 1) {
    n_outputs_ += count;
    return add(t, first, count);
  }
  Step& inputs(const Tensor& t, int first = 0, int count = 1) { return add(t, first, count); }
  // False: the chip cannot.
  bool run(const fl_program* program) {
    if (space_.numel() == 0) return true;
    space_.finish();
    return pointwise(call_, program, space_, n_outputs_);
  }

 private:
  // Blocks first, first+1, … of `t`, each as wide as the space.
  Step& add(const Tensor& t, int first, int count) {
    const int64_t rows = space_.sizes()[0], width = space_.sizes()[1];
    TORCH_CHECK(t.dim() == 2 && t.size(0) == rows && t.size(1) >= (first + count) * width, call_.op().name,
                ": expected ", rows, " rows of at least ", (first + count) * width, " columns, got ",
                t.sizes());
    TORCH_CHECK(type_ == ScalarType::Undefined || t.scalar_type() == type_, call_.op().name,
                ": expected scalar type ", type_, " but found ", t.scalar_type());
    type_ = t.scalar_type();
    fl_tensor view = call_.view(t);
    int64_t bytes = width * view.strides[1] * static_cast<int64_t>(t.element_size());
    for (int k = first; k < first + count; ++k)
      space_.add(static_cast<char*>(view.data) + k * bytes, view.dtype, view.strides);
    return *this;
  }
  Call& call_;
  Space space_;
  int n_outputs_ = 0;
  ScalarType type_ = ScalarType::Undefined;
};

Expr load(Builder& b, int input, uint8_t memory) { return {&b, b.load(input, memory)}; }
void store(Builder& b, int output, Expr value, uint8_t memory) { b.store(output, value.v, memory); }

// ---------------------------------------------------------------------- LSTM
// Gates are kept as they are before activation, [N, 4H]: input, forget, cell, output.

// cy = σ(f)·cx + σ(i)·tanh(g), hy = σ(o)·tanh(cy)
void lstm_step(Call& call, const Tensor& gates, const Tensor& cx, const Tensor& cy, const Tensor& hy) {
  static Programs programs;
  uint8_t type = dtype_of(gates);
  const fl_program* program = programs.get(type, [&](Builder& b) {
    auto in = [&](int k) { return load(b, k, type); };
    Expr c = sigmoid(in(1)) * in(4) + sigmoid(in(0)) * tanh(in(2));
    store(b, 0, c, type);
    store(b, 1, sigmoid(in(3)) * tanh(c), type);
  });
  if (Step(call, cy.sizes()).outputs(cy).outputs(hy).inputs(gates, 0, 4).inputs(cx).run(program)) return;
  auto gate = gates.chunk(4, 1);
  cy.copy_(gate[1].sigmoid() * cx + gate[0].sigmoid() * gate[2].tanh());
  hy.copy_(gate[3].sigmoid() * cy.tanh());
}

// Gradients of the gates, and of cx (grad_cx may be grad_cy).  One of grad_hy and grad_cy may be undefined.
void lstm_step_backward(Call& call, const Tensor& grad_hy, const Tensor& grad_cy, const Tensor& gates,
                        const Tensor& cx, const Tensor& cy, const Tensor& grad_gates, const Tensor& grad_cx) {
  static Programs outer, inner;
  uint8_t type = dtype_of(gates);
  bool has_h = grad_hy.defined(), has_c = grad_cy.defined();
  // Two launches: there are five results, and programs have four.  grad_cx holds the cell's in between.
  const fl_program* first = outer.get(key_of(type, has_h, has_c), [&](Builder& b) {
    Expr o = sigmoid(load(b, 0, type)), top = tanh(load(b, 1, type));
    Expr h = has_h ? load(b, 2, type) : o.like(0), c = has_c ? load(b, 2 + has_h, type) : o.like(0);
    store(b, 0, h * top * o * (1 - o), type);
    store(b, 1, c + h * o * (1 - top * top), type);
  });
  const fl_program* second = inner.get(type, [&](Builder& b) {
    Expr i = sigmoid(load(b, 0, type)), f = sigmoid(load(b, 1, type)), g = tanh(load(b, 2, type));
    Expr c = load(b, 3, type), grad = load(b, 4, type);
    store(b, 0, grad * g * i * (1 - i), type);
    store(b, 1, grad * c * f * (1 - f), type);
    store(b, 2, grad * i * (1 - g * g), type);
    store(b, 3, grad * f, type);
  });
  Step one(call, cy.sizes()), two(call, cy.sizes());
  one.outputs(grad_gates, 3).outputs(grad_cx).inputs(gates, 3).inputs(cy);
  if (has_h) one.inputs(grad_hy);
  if (has_c) one.inputs(grad_cy);
  two.outputs(grad_gates, 0, 3).outputs(grad_cx).inputs(gates, 0, 3).inputs(cx).inputs(grad_cx);
  if (one.run(first) && two.run(second)) return;
  auto by_operators = at::_thnn_differentiable_lstm_cell_backward(
      has_h ? Optional(grad_hy) : std::nullopt, has_c ? Optional(grad_cy) : std::nullopt, gates,
      at::zeros_like(gates), std::nullopt, std::nullopt, cx, cy);
  grad_gates.copy_(std::get<0>(by_operators));
  grad_cx.copy_(std::get<2>(by_operators));
}

Tensor gates_of(const Tensor& input, const Tensor& hidden, const Optional& b1, const Optional& b2) {
  Tensor gates = input + hidden;
  if (given(b1)) gates = gates.add_(*b1);
  if (given(b2)) gates = gates.add_(*b2);
  return gates;
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input, const Tensor& hidden, const Tensor& cx,
                                             const Optional& b1, const Optional& b2) {
  static Op op("aten::_thnn_fused_lstm_cell");
  Call call(op, input);
  call.composed();
  Tensor workspace = gates_of(input, hidden, b1, b2);
  const int64_t sizes[] = {workspace.size(0), workspace.size(1) / 4};
  Tensor cy = empty_like(cx, sizes, cx.scalar_type()), hy = empty_like(cx, sizes, cx.scalar_type());
  lstm_step(call, workspace, cx.expand(sizes), cy, hy);
  return {hy, cy, workspace};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const Optional& grad_hy, const Optional& grad_cy,
                                                      const Tensor& cx, const Tensor& cy,
                                                      const Tensor& workspace, bool has_bias) {
  static Op op("aten::_thnn_fused_lstm_cell_backward_impl");
  if (!given(grad_hy) && !given(grad_cy)) return {};
  Call call(op, workspace);
  call.composed();
  Tensor grad_gates = empty_like(workspace, workspace.sizes(), workspace.scalar_type());
  Tensor grad_cx = empty_like(cy, cy.sizes(), cy.scalar_type());
  lstm_step_backward(call, grad_hy.value_or(Tensor()), grad_cy.value_or(Tensor()), workspace,
                     cx.expand(cy.sizes()), cy, grad_gates, grad_cx);
  return {grad_gates, grad_cx, has_bias ? grad_gates.sum(0) : Tensor()};
}

// ------------------------------------------------------------ a layer of LSTM
// PyTorch's operator for one layer in one direction: its derivative is there, and calls the backward below.
// One product makes the input's part of all steps; a step is a product and a program.

constexpr int64_t kLstm = 2;  // of mode: RNN with relu, RNN with tanh, LSTM, GRU

// [steps, N, 5H]: the gates before activation, and the cell's state after the step.
struct Workspace {
  Tensor gates, cells;
  Workspace(const Tensor& t, int64_t hidden)
      : gates(t.narrow(2, 0, 4 * hidden)), cells(t.narrow(2, 4 * hidden, hidden)) {}
};

// The rows of all steps as one matrix.
Tensor rows(const Tensor& t) { return t.reshape({t.size(0) * t.size(1), t.size(2)}); }

std::tuple<Tensor, Tensor, Tensor, Tensor> lstm_layer(const Tensor& input, const Tensor& w_ih,
                                                      const Tensor& w_hh, const Tensor& b_ih,
                                                      const Tensor& b_hh, const Tensor& hx, const Tensor& cx,
                                                      bool reverse, IntArrayRef batch_sizes, int64_t mode,
                                                      int64_t hidden, int64_t, bool has_biases, bool, bool,
                                                      bool) {
  static Op op("aten::mkldnn_rnn_layer");
  TORCH_CHECK_NOT_IMPLEMENTED(mode == kLstm && batch_sizes.empty(), op.name, " on ", input.device(),
                              " takes LSTM (mode 2) without batch_sizes: call torch.lstm");
  for (const Tensor* t : {&w_ih, &w_hh, &hx, &cx})
    TORCH_CHECK(t->scalar_type() == input.scalar_type(), "lstm: the input is ",
                c10::toString(input.scalar_type()), ", and a weight or state of shape ", t->sizes(), " is ",
                c10::toString(t->scalar_type()));
  Call call(op, input);
  call.composed();
  int64_t steps = input.size(0), batch = input.size(1);
  Tensor workspace = empty_like(input, {steps, batch, 5 * hidden}, input.scalar_type());
  Tensor output = empty_like(input, {steps, batch, hidden}, input.scalar_type());
  Workspace kept(workspace, hidden);
  Tensor all = kept.gates.view({steps * batch, 4 * hidden}), w = w_hh.t();
  if (has_biases) at::addmm_out(all, b_ih + b_hh, rows(input), w_ih.t());
  else at::mm_out(all, rows(input), w_ih.t());
  Tensor h = hx, c = cx;
  for (int64_t k = 0; k < steps; ++k) {
    int64_t at = reverse ? steps - 1 - k : k;
    Tensor gates = kept.gates.select(0, at), cy = kept.cells.select(0, at), hy = output.select(0, at);
    at::addmm_out(gates, gates, h, w);
    lstm_step(call, gates, c, cy, hy);
    h = hy, c = cy;
  }
  return {output, h.clone(), c.clone(), workspace};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> lstm_layer_backward(
    const Tensor& input, const Tensor& w_ih, const Tensor& w_hh, const Tensor&, const Tensor&,
    const Tensor& hx, const Tensor& cx, const Tensor& output, const Tensor&, const Tensor&,
    const Optional& grad_output, const Optional& grad_hy, const Optional& grad_cy, bool reverse, int64_t,
    int64_t hidden, int64_t, bool has_biases, bool, bool, IntArrayRef, bool, const Tensor& workspace) {
  static Op op("aten::mkldnn_rnn_layer_backward");
  if (!given(grad_output) && !given(grad_hy) && !given(grad_cy)) return {};
  Call call(op, input);
  call.composed();
  int64_t steps = input.size(0);
  Workspace kept(workspace, hidden);
  Tensor grad_gates = empty_like(input, kept.gates.sizes(), input.scalar_type());
  Tensor h = grad_hy.value_or(Tensor()), c = grad_cy.value_or(Tensor());
  Tensor grad_h = empty_like(hx, hx.sizes(), hx.scalar_type());
  Tensor grad_c = empty_like(cx, cx.sizes(), cx.scalar_type());
  for (int64_t k = steps - 1; k >= 0; --k) {
    int64_t at = reverse ? steps - 1 - k : k, before = reverse ? at + 1 : at - 1;
    if (given(grad_output)) {
      Tensor own = grad_output->select(0, at);
      if (k == steps - 1) h = h.defined() ? h + own : own;
      else h = at::addmm_out(grad_h, own, grad_gates.select(0, reverse ? at - 1 : at + 1), w_hh);
    } else if (k < steps - 1) {
      h = at::mm_out(grad_h, grad_gates.select(0, reverse ? at - 1 : at + 1), w_hh);
    }
    lstm_step_backward(call, h, c, kept.gates.select(0, at), k ? kept.cells.select(0, before) : cx,
                       kept.cells.select(0, at), grad_gates.select(0, at), grad_c);
    c = grad_c;
  }
  Tensor first = grad_gates.select(0, reverse ? steps - 1 : 0), all = rows(grad_gates), turned = all.t();
  // The state before each step but the first is the output of the step before.
  Tensor grad_w_hh = first.t().mm(hx);
  if (steps > 1) {
    Tensor later = rows(grad_gates.narrow(0, reverse ? 0 : 1, steps - 1));
    at::addmm_out(grad_w_hh, grad_w_hh, later.t(), rows(output.narrow(0, reverse ? 1 : 0, steps - 1)));
  }
  Tensor grad_bias = has_biases ? all.sum(0) : Tensor();
  return {all.mm(w_ih).view(input.sizes()),
          turned.mm(rows(input)),
          grad_w_hh,
          grad_bias,
          grad_bias,
          first.mm(w_hh),
          grad_c};
}

// Does lstm_layer serve the call?  PyTorch's own composition serves the others (projections, subclasses),
// and words the errors.
bool by_layers(const Tensor& input, TensorList hx, TensorList params, bool has_biases, int64_t cells,
               bool bidirectional, bool batch_first) {
  size_t each = has_biases ? 4 : 2;
  if (input.dim() != 3 || input.size(batch_first) == 0 || !at::isFloatingType(input.scalar_type()) ||
      hx.size() != 2 || cells < 1 || params.size() != static_cast<size_t>(cells) * each || hx[0].dim() != 3 ||
      hx[0].sizes() != hx[1].sizes() || hx[0].size(0) != cells || hx[0].size(1) != input.size(!batch_first))
    return false;
  if (at::isTensorSubclassLike(input) || at::areAnyTensorSubclassLike(hx) ||
      at::areAnyTensorSubclassLike(params))
    return false;
  auto here = [&](const Tensor& t) { return t.defined() && t.device() == input.device(); };
  if (!std::all_of(hx.begin(), hx.end(), here) || !std::all_of(params.begin(), params.end(), here))
    return false;
  int64_t hidden = hx[0].size(2), gates = 4 * hidden, directions = bidirectional ? 2 : 1;
  for (size_t k = 0; k < params.size(); ++k) {
    int64_t width = static_cast<int64_t>(k / each) < directions ? input.size(2) : directions * hidden;
    int64_t shape[] = {gates, k % each == 0 ? width : hidden};
    if (params[k].sizes() != IntArrayRef(shape, k % each < 2 ? 2 : 1)) return false;
  }
  return true;
}

std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input, TensorList hx, TensorList params,
                                        bool has_biases, int64_t layers, double dropout, bool train,
                                        bool bidirectional, bool batch_first) {
  int64_t directions = bidirectional ? 2 : 1;
  if (!by_layers(input, hx, params, has_biases, layers * directions, bidirectional, batch_first))
    return at::native::lstm(input, hx, params, has_biases, layers, dropout, train, bidirectional,
                            batch_first);
  int64_t hidden = hx[0].size(2);
  Tensor x = (batch_first ? input.transpose(0, 1) : input).contiguous();
  Tensor no_bias = has_biases ? Tensor() : at::empty({0}, input.options());
  std::vector<Tensor> outputs(directions), hy, cy;
  const Tensor* w = params.begin();
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (int64_t direction = 0; direction < directions; ++direction, w += has_biases ? 4 : 2) {
      int64_t cell = layer * directions + direction;
      auto [y, h, c, workspace] =
          at::mkldnn_rnn_layer(x, w[0], w[1], has_biases ? w[2] : no_bias, has_biases ? w[3] : no_bias,
                               hx[0].select(0, cell), hx[1].select(0, cell), direction == 1, {}, kLstm,
                               hidden, layers, has_biases, bidirectional, batch_first, train);
      outputs[direction] = y;
      hy.push_back(h), cy.push_back(c);
    }
    x = directions == 2 ? at::cat(outputs, 2) : outputs[0];
    if (dropout != 0 && train && layer + 1 < layers) x = at::dropout(x, dropout, true);
  }
  return {batch_first ? x.transpose(0, 1) : x, at::stack(hy), at::stack(cy)};
}

// ----------------------------------------------------------------------- GRU
// The workspace keeps reset, update and new gates, hx, and the hidden part of new.
std::tuple<Tensor, Tensor> gru_cell(const Tensor& input, const Tensor& hidden, const Tensor& hx,
                                    const Optional& b1, const Optional& b2) {
  static Op op("aten::_thnn_fused_gru_cell");
  static Programs gates, results;
  Call call(op, input);
  call.composed();
  int64_t n = input.size(0), width = hx.size(1);
  uint8_t type = dtype_of(input);
  bool has_1 = given(b1), has_2 = given(b2);
  Tensor workspace = empty_like(input, {n, 5 * width}, input.scalar_type());
  Tensor hy = empty_like(hx, {n, width}, hx.scalar_type());
  const fl_program* two_gates = gates.get(key_of(type, has_1, has_2), [&](Builder& b) {
    Expr x = load(b, 0, type), h = load(b, 1, type);
    if (has_1) x = x + load(b, 2, type);
    if (has_2) h = h + load(b, 2 + has_1, type);
    store(b, 0, sigmoid(x + h), type);
  });
  const fl_program* rest = results.get(key_of(type, has_1, has_2), [&](Builder& b) {
    Expr reset = load(b, 0, type), update = load(b, 1, type), before = load(b, 2, type);
    Expr x = load(b, 3, type), h = load(b, 4, type);
    if (has_1) x = x + load(b, 5, type);
    if (has_2) h = h + load(b, 5 + has_1, type);
    Expr fresh = tanh(x + reset * h);
    store(b, 0, fresh, type), store(b, 1, before, type), store(b, 2, h, type);
    store(b, 3, fresh + update * (before - fresh), type);
  });
  Step one(call, {n, 2 * width}), two(call, {n, width});
  Tensor all_hidden = hidden.expand({n, 3 * width});
  one.outputs(workspace).inputs(input).inputs(all_hidden);
  two.outputs(workspace, 2, 3)
      .outputs(hy)
      .inputs(workspace, 0, 2)
      .inputs(hx.expand({n, width}))
      .inputs(input, 2)
      .inputs(all_hidden, 2);
  for (const Tensor* bias : {given(b1), given(b2)})
    if (bias) one.inputs(bias->expand({n, 3 * width})), two.inputs(bias->expand({n, 3 * width}), 2);
  if (one.run(two_gates) && two.run(rest)) return {hy, workspace};

  auto x = (has_1 ? input + *b1 : input).chunk(3, 1), h = (has_2 ? hidden + *b2 : hidden).chunk(3, 1);
  Tensor reset = (x[0] + h[0]).sigmoid_(), update = (x[1] + h[1]).sigmoid_();
  Tensor fresh = at::addcmul(x[2], reset, h[2]).tanh_();
  return {at::addcmul(fresh, update, hx - fresh),
          at::cat({reset, update, fresh, hx.expand({n, width}), h[2].expand({n, width})}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad,
                                                                     const Tensor& workspace, bool has_bias) {
  static Op op("aten::_thnn_fused_gru_cell_backward");
  static Programs inputs, hiddens;
  Call call(op, workspace);
  call.composed();
  int64_t n = grad.size(0), width = grad.size(1);
  uint8_t type = dtype_of(workspace);
  auto made = [&](int64_t columns) { return empty_like(workspace, {n, columns}, workspace.scalar_type()); };
  Tensor d_input = made(3 * width), d_hidden = made(3 * width), d_hx = made(width);
  const fl_program* of_input = inputs.get(type, [&](Builder& b) {
    Expr reset = load(b, 0, type), update = load(b, 1, type), fresh = load(b, 2, type);
    Expr hx = load(b, 3, type), h = load(b, 4, type), g = load(b, 5, type);
    Expr d_fresh = g * (1 - update) * (1 - fresh * fresh);
    store(b, 0, d_fresh * h * reset * (1 - reset), type);
    store(b, 1, g * (hx - fresh) * update * (1 - update), type);
    store(b, 2, d_fresh, type), store(b, 3, g * update, type);
  });
  const fl_program* of_hidden = hiddens.get(type, [&](Builder& b) {
    store(b, 0, load(b, 0, type), type), store(b, 1, load(b, 1, type), type);
    store(b, 2, load(b, 2, type) * load(b, 3, type), type);
  });
  Step one(call, grad.sizes()), two(call, grad.sizes());
  one.outputs(d_input, 0, 3).outputs(d_hx).inputs(workspace, 0, 5).inputs(grad);
  two.outputs(d_hidden, 0, 3).inputs(d_input, 0, 3).inputs(workspace);
  if (!one.run(of_input) || !two.run(of_hidden)) {
    auto w = workspace.chunk(5, 1);
    Tensor reset = w[0], update = w[1], fresh = w[2], hx = w[3], hidden = w[4];
    Tensor d_update = at::sigmoid_backward(grad * (hx - fresh), update);
    Tensor d_fresh = at::tanh_backward(grad - grad * update, fresh);
    Tensor d_reset = at::sigmoid_backward(d_fresh * hidden, reset);
    d_input = at::cat({d_reset, d_update, d_fresh}, 1), d_hx = grad * update;
    d_hidden = at::cat({d_reset, d_update, d_fresh * reset}, 1);
  }
  return {d_input, d_hidden, d_hx, has_bias ? d_input.sum(0) : Tensor(),
          has_bias ? d_hidden.sum(0) : Tensor()};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", lstm_cell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward);
  m.impl("_thnn_fused_gru_cell", gru_cell);
  m.impl("_thnn_fused_gru_cell_backward", gru_cell_backward);
  m.impl("mkldnn_rnn_layer", lstm_layer);
  m.impl("mkldnn_rnn_layer_backward", lstm_layer_backward);
  m.impl("lstm.input", lstm);
}
// lstm is composite: it must be reached before autograd, which then sees its layers.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { m.impl("lstm.input", lstm); }

}  // namespace
}  // namespace fl::bridge
