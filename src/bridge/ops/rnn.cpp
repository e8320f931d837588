// The fused LSTM and GRU cells, which PyTorch chooses for this device: from
// elementwise operators.
#include "bridge/ops/programs.h"

namespace fl::bridge {
namespace {

using Optional = std::optional<Tensor>;

Tensor gates_of(const Tensor& input, const Tensor& hidden, const Optional& b1, const Optional& b2) {
  Tensor gates = input + hidden;
  if (given(b1)) gates = gates.add_(*b1);
  if (given(b2)) gates = gates.add_(*b2);
  return gates;
}

// The workspace keeps the activated gates: input, forget, cell, output.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input, const Tensor& hidden, const Tensor& cx,
                                             const Optional& b1, const Optional& b2) {
  static Op op("aten::_thnn_fused_lstm_cell");
  Call call(op, input);
  call.composed();
  Tensor workspace = gates_of(input, hidden, b1, b2);
  auto gate = workspace.chunk(4, 1);
  for (int k : {0, 1, 3}) gate[k].sigmoid_();
  gate[2].tanh_();
  Tensor cy = at::addcmul(gate[1] * cx, gate[0], gate[2]);
  return {gate[3] * cy.tanh(), cy, workspace};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const Optional& grad_hy, const Optional& grad_cy,
                                                      const Tensor& cx, const Tensor& cy,
                                                      const Tensor& workspace, bool has_bias) {
  static Op op("aten::_thnn_fused_lstm_cell_backward_impl");
  if (!given(grad_hy) && !given(grad_cy)) return {};
  Call call(op, workspace);
  call.composed();
  auto g = workspace.chunk(4, 1);
  Tensor i = g[0], f = g[1], c = g[2], o = g[3], top = cy.tanh();
  Tensor grad = given(grad_cy) ? *grad_cy : at::zeros_like(cx);
  Tensor gates = at::empty_like(workspace, at::MemoryFormat::Contiguous);
  auto to = gates.chunk(4, 1);
  if (given(grad_hy)) {
    grad = grad + at::tanh_backward(*grad_hy * o, top);
    to[3].copy_(at::sigmoid_backward(*grad_hy * top, o));
  } else {
    to[3].zero_();
  }
  to[0].copy_(at::sigmoid_backward(grad * c, i));
  to[1].copy_(at::sigmoid_backward(grad * cx, f));
  to[2].copy_(at::tanh_backward(grad * i, c));
  return {gates, grad * f, has_bias ? gates.sum(0) : Tensor()};
}

// The workspace keeps reset, update and new gates, hx, and the hidden part of new.
std::tuple<Tensor, Tensor> gru_cell(const Tensor& input, const Tensor& hidden, const Tensor& hx,
                                    const Optional& b1, const Optional& b2) {
  static Op op("aten::_thnn_fused_gru_cell");
  Call call(op, input);
  call.composed();
  auto x = (given(b1) ? input + *b1 : input).chunk(3, 1);
  auto h = (given(b2) ? hidden + *b2 : hidden).chunk(3, 1);
  Tensor reset = (x[0] + h[0]).sigmoid_(), update = (x[1] + h[1]).sigmoid_();
  Tensor fresh = at::addcmul(x[2], reset, h[2]).tanh_();
  Tensor hy = at::addcmul(fresh, update, hx - fresh);
  return {hy, at::cat({reset, update, fresh, hx, h[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad,
                                                                     const Tensor& workspace, bool has_bias) {
  static Op op("aten::_thnn_fused_gru_cell_backward");
  Call call(op, workspace);
  call.composed();
  auto w = workspace.chunk(5, 1);
  Tensor reset = w[0], update = w[1], fresh = w[2], hx = w[3], hidden = w[4];
  Tensor d_update = at::sigmoid_backward(grad * (hx - fresh), update);
  Tensor d_fresh = at::tanh_backward(grad - grad * update, fresh);
  Tensor d_reset = at::sigmoid_backward(d_fresh * hidden, reset);
  Tensor d_input = at::cat({d_reset, d_update, d_fresh}, 1),
         d_hidden = at::cat({d_reset, d_update, d_fresh * reset}, 1);
  return {d_input, d_hidden, grad * update, has_bias ? d_input.sum(0) : Tensor(),
          has_bias ? d_hidden.sum(0) : Tensor()};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", lstm_cell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward);
  m.impl("_thnn_fused_gru_cell", gru_cell);
  m.impl("_thnn_fused_gru_cell_backward", gru_cell_backward);
}

}  // namespace
}  // namespace fl::bridge
