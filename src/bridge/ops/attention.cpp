// Scaled dot product attention in one launch where the chip has it; else
// PyTorch's own composition from products and softmax.
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>

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

// [B, H, L, E] that lies in memory as [B, L, H, E]: the next step, back to
// [B, L, H·E], is then a view.
Tensor heads_last(const Tensor& like, int64_t b, int64_t h, int64_t l, int64_t e) {
  return empty_like(like, {b, l, h, e}, like.scalar_type()).transpose(1, 2);
}

using Forward = std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

Forward forward(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& mask,
                double dropout, bool is_causal, bool, std::optional<double> scale) {
  static Op op("aten::_scaled_dot_product_fused_attention_overrideable");
  TORCH_CHECK(fits(q, k, v, std::nullopt, dropout), op.name, ": the chip does not take query ", q.sizes(),
              " ", c10::toString(q.scalar_type()), ", key ", k.sizes(), ", value ", v.sizes(), ", dropout ",
              dropout, "; call torch.nn.functional.scaled_dot_product_attention, which chooses");
  Tensor out = heads_last(q, q.size(0), q.size(1), q.size(2), v.size(3));
  Tensor lse = empty_like(q, {q.size(0), q.size(1), q.size(2)}, lse_type(q));
  Call call(op, q);
  Bias bias;
  set_bias(call, bias, given(mask), q, k);
  fl_attention_args args{call.view(q),       call.view(k),   call.view(v),
                         call.view(out),     call.view(lse), bias.pointer,
                         scale_of(q, scale), is_causal,      0};
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
  TORCH_CHECK_NOT_IMPLEMENTED(!wanted[3] || !mask.defined() || !mask.requires_grad(), op.name,
                              ": no gradient for the mask");
  Tensor grad_q = heads_last(q, q.size(0), q.size(1), q.size(2), q.size(3));
  Tensor grad_k = heads_last(k, k.size(0), k.size(1), k.size(2), k.size(3));
  Tensor grad_v = heads_last(v, v.size(0), v.size(1), v.size(2), v.size(3));
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
