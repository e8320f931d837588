// Scaled dot product attention in one launch where the chip has it; else
// PyTorch's own composition from products and softmax.
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>

#include <algorithm>
#include <array>

#include "bridge/ops/programs.h"

namespace fl::bridge {
namespace {

bool fits(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& mask,
          double dropout) {
  if (dropout != 0 || q.dim() != 4 || k.dim() != 4 || v.dim() != 4 || !is_fl(q)) return false;
  if (k.scalar_type() != q.scalar_type() || v.scalar_type() != q.scalar_type()) return false;
  if (q.numel() == 0 || k.numel() == 0 || v.numel() == 0) return false;
  if (q.size(0) != k.size(0) || k.size(0) != v.size(0) || k.size(1) != v.size(1) || q.size(1) % k.size(1))
    return false;
  if (q.size(3) != k.size(3) || k.size(2) != v.size(2)) return false;
  if (given(mask) && (mask->dim() > 4 || mask->requires_grad())) return false;
  const Chip& chip = *current_stream(q.device().index()).chip;
  uint8_t dtype = dtype_of(q);
  bool backward = at::GradMode::is_enabled() && (q.requires_grad() || k.requires_grad() || v.requires_grad());
  return chip.claims(FL_ENTRY_ATTENTION, FL_ANY, dtype) &&
         (!backward || chip.claims(FL_ENTRY_ATTENTION_BACKWARD, FL_ANY, dtype));
}

int64_t choose(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& mask,
               double dropout, bool is_causal, std::optional<double>, bool enable_gqa) {
  // Causal over a rectangle with a mask: PyTorch refuses that combination itself.
  bool same_heads = q.dim() == 4 && k.dim() == 4 && q.size(1) == k.size(1);
  bool fused = at::globalContext().userEnabledOverrideableSDP() && fits(q, k, v, mask, dropout) &&
               (enable_gqa || same_heads) && !(is_causal && given(mask));
  return static_cast<int64_t>(fused ? sdp::SDPBackend::overrideable : sdp::SDPBackend::math);
}

// The mask as [B, H, L, S] by strides.
struct Bias {
  Tensor expanded;
  fl_tensor view;
  const fl_tensor* pointer = nullptr;
};
void set_bias(const Call& call, Bias& bias, const Tensor* mask, const Tensor& q, const Tensor& k) {
  if (!mask) return;
  bias.expanded = mask->to(q.scalar_type()).expand({q.size(0), q.size(1), q.size(2), k.size(2)});
  bias.view = call.view(bias.expanded);
  bias.pointer = &bias.view;
}

double scale_of(const Tensor& q, std::optional<double> scale) {
  return scale ? *scale : 1 / std::sqrt(static_cast<double>(q.size(3)));
}
ScalarType lse_type(const Tensor& q) { return q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

// The result for queries, of value's last size, with its dimensions in the order of
// q's in memory, as PyTorch's shape function says.  Heads that are a view of
// [B, L, H, E] so stay one, and the next step, back to [B, L, H·E], moves nothing.
Tensor like_queries(const Tensor& q, int64_t e) {
  if (q.size(3) == e) return at::empty_like(q);
  std::array<int64_t, 4> order{0, 1, 2, 3}, place{};
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return q.stride(a) > q.stride(b); });
  at::DimVector sizes;
  for (int64_t d = 0; d < 4; ++d) {
    sizes.push_back(order[d] == 3 ? e : q.size(order[d]));
    place[order[d]] = d;
  }
  return empty_like(q, sizes, q.scalar_type()).permute(place);
}

using Forward = std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

Forward forward(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& mask,
                double dropout, bool is_causal, bool, std::optional<double> scale) {
  static Op op("aten::_scaled_dot_product_fused_attention_overrideable");
  TORCH_CHECK(fits(q, k, v, std::nullopt, dropout), op.name, ": the chip does not take query ", q.sizes(),
              " ", c10::toString(q.scalar_type()), ", key ", k.sizes(), ", value ", v.sizes(), ", dropout ",
              dropout, "; call torch.nn.functional.scaled_dot_product_attention, which chooses");
  Tensor out = like_queries(q, v.size(3));
  Tensor lse = empty_like(q, {q.size(0), q.size(1), q.size(2)}, lse_type(q));
  Call call(op, q);
  Bias bias;
  set_bias(call, bias, given(mask), q, k);
  fl_attention_args args{call.view(q),       call.view(k),   call.view(v),
                         call.view(out),     call.view(lse), bias.pointer,
                         scale_of(q, scale), is_causal,      0};
  call.is_product(at::Float32Op::MATMUL);
  if (!call.native(call.chip().op.attention, args, {&args.q, &args.k, &args.v}))
    throw_refused(call, "attention", q.scalar_type());
  Tensor none;
  return {out,
          lse,
          none,
          none,
          c10::SymInt(q.size(2)),
          c10::SymInt(k.size(2)),
          empty_like(q, {}, at::kLong),
          empty_like(q, {}, at::kLong),
          none};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> backward(const Tensor& grad, const Tensor& q, const Tensor& k,
                                                    const Tensor& v, const Tensor& mask,
                                                    std::array<bool, 4> wanted, const Tensor& out,
                                                    const Tensor& lse, const Tensor&, const Tensor&,
                                                    c10::SymInt, c10::SymInt, double, bool is_causal,
                                                    const Tensor&, const Tensor&,
                                                    std::optional<double> scale) {
  static Op op("aten::_scaled_dot_product_fused_attention_overrideable_backward");
  if (!grad.defined()) return {};
  TORCH_CHECK_NOT_IMPLEMENTED(!wanted[3] || !mask.defined() || !mask.requires_grad(), op.name,
                              ": no gradient for the mask");
  Tensor grad_q = at::empty_like(q);
  Tensor grad_k = at::empty_like(k);
  Tensor grad_v = at::empty_like(v);
  Call call(op, q);
  Bias bias;
  set_bias(call, bias, mask.defined() ? &mask : nullptr, q, k);
  fl_attention_backward_args args{call.view(q),
                                  call.view(k),
                                  call.view(v),
                                  call.view(out),
                                  call.view(lse),
                                  call.view(grad),
                                  bias.pointer,
                                  call.view(grad_q),
                                  call.view(grad_k),
                                  call.view(grad_v),
                                  scale_of(q, scale),
                                  is_causal,
                                  0};
  call.is_product(at::Float32Op::MATMUL);
  if (!call.native(call.chip().op.attention_backward, args, {&args.q, &args.k, &args.v}))
    throw_refused(call, "attention's backward", q.scalar_type());
  return {wanted[0] ? grad_q : Tensor(), wanted[1] ? grad_k : Tensor(), wanted[2] ? grad_v : Tensor(),
          Tensor()};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_sdp_choice", choose);
  m.impl("_scaled_dot_product_fused_attention_overrideable", forward);
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", backward);
}

}  // namespace

int64_t sdp_choice(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& mask,
                   double dropout, bool is_causal, std::optional<double> scale, bool enable_gqa) {
  return choose(q, k, v, mask, dropout, is_causal, scale, enable_gqa);
}
}  // namespace fl::bridge

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &fl::bridge::sdp_choice)
}  // namespace at::native
