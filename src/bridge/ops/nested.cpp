// Nested tensors of strided layout, and the layers that PyTorch evaluates on them.  Its own functions work on
// the memory behind a nested tensor, or tensor by tensor, with operators of the device; only sizes are read
// on the host.
#include <ATen/NestedTensorImpl.h>
#include <ATen/native/nested/NestedTensorUtils.h>

#include <cmath>

#include "bridge/fallback.h"
#include "bridge/ops/programs.h"

namespace fl::bridge {

Tensor nested_memory(const Tensor& t) {
  return at::native::get_nested_tensor_impl(t)->get_unsafe_storage_as_tensor();
}

Tensor nested_on(const Tensor& t, c10::Device device) {
  auto* impl = at::native::get_nested_tensor_impl(t);
  return at::native::wrap_buffer(nested_memory(t).to(device), impl->get_nested_sizes(),
                                 impl->get_nested_strides(), impl->get_storage_offsets());
}

namespace {

// ------------------------------------------------------- parts of attention
// mask_type 0: one mask for all, [T, T]; 1: of each batch's positions, [B, T]; 2: as large as the input.
Tensor masked_softmax(const Tensor& self, const Tensor& mask, std::optional<int64_t> dim,
                      std::optional<int64_t> mask_type) {
  static Op op("aten::_masked_softmax");
  TORCH_CHECK(mask.scalar_type() == at::kBool, "Mask should be a boolean tensor");
  TORCH_CHECK(mask_type, "Mask Type should be defined");
  TORCH_CHECK(*mask_type >= 0 && *mask_type <= 2,
              "Mask Type should be 0 (src_mask), 1 (src_key_padding_mask), or 2 (default_mask)");
  const bool of_heads = self.dim() == 4 && mask.dim() == 2 && self.size(3) == mask.size(1);
  const bool of_batch =
      of_heads && *mask_type == 1 && self.size(0) == mask.size(0) && self.size(2) == mask.size(1);
  const bool of_all = of_heads && *mask_type == 0 && self.size(2) == mask.size(0);
  TORCH_CHECK(mask.sizes() == self.sizes() || of_batch || of_all,
              "Mask shape should match input. mask: ", mask.sizes(), " input: ", self.sizes());
  Call call(op, self);
  call.composed();
  Tensor hidden = of_batch ? mask.unsqueeze(1).unsqueeze(1) : mask;
  // Where everything is hidden there is nothing: no NaN.
  return self.masked_fill(hidden, -INFINITY).softmax(dim.value_or(self.dim() - 1)).masked_fill_(hidden, 0);
}

// [B, T, 3·D] to queries, divided by √(D / heads), keys and values, each [B, heads, T, D / heads].
std::tuple<Tensor, Tensor, Tensor> transform_bias_rescale_qkv(const Tensor& qkv, const Tensor& bias,
                                                              int64_t heads) {
  static Op op("aten::_transform_bias_rescale_qkv");
  Tensor all =
      qkv.is_nested() ? at::native::NestedTensor_to_padded_tensor_generic(qkv, 0, std::nullopt) : qkv;
  const int64_t batch = all.size(0), length = all.size(1), width = all.size(2) / 3;
  TORCH_CHECK(all.size(2) % 3 == 0 && width % heads == 0, "_transform_bias_rescale_qkv: ", all.size(2),
              " is not three times a multiple of ", heads, " heads");
  Call call(op, all);
  call.composed();
  all = (all + bias).view({batch, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4}).contiguous();
  return {all[0].mul_(1 / std::sqrt(static_cast<double>(width / heads))), all[1], all[2]};
}

// ------------------------------------------------------- layer normalisation
// All rows of a nested tensor whose last dimension is regular.
Tensor rows_of(const Tensor& nested, int64_t width) {
  Tensor whole = at::native::nested_tensor_impl_is_contiguous(at::native::get_nested_tensor_impl(nested))
                     ? nested
                     : nested.contiguous();
  return nested_memory(whole).view({-1, width});
}
Tensor as_nested(const Tensor& rows, const Tensor& like) {
  return at::native::wrap_buffer(rows.reshape({-1}),
                                 at::native::get_nested_tensor_impl(like)->get_nested_sizes());
}
std::tuple<Tensor, Tensor, Tensor> layer_norm(const Tensor& input, IntArrayRef shape,
                                              const std::optional<Tensor>& weight,
                                              const std::optional<Tensor>& bias, double eps) {
  TORCH_CHECK_VALUE(given(weight) && given(bias), "NestedTensor layer_norm requires weight and bias");
  TORCH_CHECK(shape.size() == 1 && at::native::get_nested_tensor_impl(input)->opt_size(-1) == shape[0],
              "layer_norm of a nested tensor is over its last dimension, which must be regular, not over ",
              shape);
  auto [out, mean, rstd] = at::native_layer_norm(rows_of(input, shape[0]), shape, weight, bias, eps);
  return {as_nested(out, input), mean, rstd};
}
std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(
    const Tensor& grad, const Tensor& input, IntArrayRef shape, const Tensor& mean, const Tensor& rstd,
    const std::optional<Tensor>& weight, const std::optional<Tensor>& bias, std::array<bool, 3> mask) {
  auto [to_input, to_weight, to_bias] = at::native_layer_norm_backward(
      rows_of(grad, shape[0]), rows_of(input, shape[0]), shape, mean, rstd, weight, bias, mask);
  return {to_input.defined() ? as_nested(to_input, input) : to_input, to_weight, to_bias};
}

Tensor& addmm_activation_out(const Tensor& self, const Tensor& a, const Tensor& b, const at::Scalar& beta,
                             const at::Scalar& alpha, bool use_gelu, Tensor& out) {
  at::addmm_out(out, self, a, b, beta, alpha);
  return use_gelu ? at::gelu_(out) : out.relu_();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_masked_softmax", masked_softmax);
  m.impl("_addmm_activation.out", addmm_activation_out);
  m.impl("_transform_bias_rescale_qkv", transform_bias_rescale_qkv);
  m.impl("_native_multi_head_attention", TORCH_FN(at::native::native_multi_head_attention_cpu));
  m.impl("_transformer_encoder_layer_fwd", TORCH_FN(at::native::transformer_encoder_layer_forward));
  m.impl("_nested_tensor_from_mask", TORCH_FN(at::native::NestedTensor_nested_tensor_from_mask));
  m.impl("_nested_tensor_from_mask_left_aligned",
         TORCH_FN(at::native::NestedTensor_nested_tensor_from_mask_left_aligned));
  m.impl("_nested_from_padded", TORCH_FN(at::native::nested_from_padded_generic));
  m.impl("_nested_view_from_buffer", TORCH_FN(at::native::_nested_view_from_buffer));
}

TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  m.impl("_transform_bias_rescale_qkv", transform_bias_rescale_qkv);
  m.impl("native_layer_norm", layer_norm);
  m.impl("native_layer_norm_backward", layer_norm_backward);
#define FL_NESTED(name, function) m.impl(name, TORCH_FN(at::native::function));
  FL_NESTED("abs", NestedTensor_abs)
  FL_NESTED("abs_", NestedTensor_abs_)
  FL_NESTED("sgn", NestedTensor_sgn)
  FL_NESTED("sgn_", NestedTensor_sgn_)
  FL_NESTED("add.Tensor", NestedTensor_add_Tensor)
  FL_NESTED("add_.Tensor", NestedTensor_add__Tensor)
  FL_NESTED("all.dim", NestedTensor_all)
  FL_NESTED("logical_not", NestedTensor_logical_not)
  FL_NESTED("logical_not_", NestedTensor_logical_not_)
  FL_NESTED("cat", cat_nested)
  FL_NESTED("chunk", chunk_nested_tensor)
  FL_NESTED("copy_", copy_nested_)
  FL_NESTED("cos", NestedTensor_cos)
  FL_NESTED("div.Tensor", NestedTensor_div_Tensor)
  FL_NESTED("div.Scalar", NestedTensor_div_Scalar)
  FL_NESTED("embedding", NestedTensor_embedding)
  FL_NESTED("empty_like", empty_like_nested)
  FL_NESTED("isnan", NestedTensor_isnan)
  FL_NESTED("is_same_size", nested_is_same_size)
  FL_NESTED("linear", nested_linear)
  FL_NESTED("linear_backward", nested_linear_backward)
  FL_NESTED("matmul", matmul_nested)
  FL_NESTED("matmul_backward", matmul_backward_nested)
  FL_NESTED("matmul.out", matmul_out_nested)
  FL_NESTED("mul.Tensor", NestedTensor_mul_Tensor)
  FL_NESTED("mul_.Tensor", NestedTensor_mul__Tensor)
  FL_NESTED("mul.Scalar", NestedTensor_mul_Scalar)
  FL_NESTED("mul_.Scalar", NestedTensor_mul__Scalar)
  FL_NESTED("narrow", narrow_nested_symint)
  FL_NESTED("neg", NestedTensor_neg)
  FL_NESTED("neg_", NestedTensor_neg_)
  FL_NESTED("relu", NestedTensor_relu)
  FL_NESTED("relu_", NestedTensor_relu_)
  FL_NESTED("gelu_", NestedTensor_gelu_)
  FL_NESTED("gelu", NestedTensor_gelu)
  FL_NESTED("gelu_backward", gelu_backwards_nested)
  FL_NESTED("select.int", select_nested)
  FL_NESTED("_nested_select_backward", _nested_select_backward_symint)
  FL_NESTED("silu", NestedTensor_silu)
  FL_NESTED("silu_", NestedTensor_silu_)
  FL_NESTED("silu_backward", silu_backward_nested)
  FL_NESTED("sin", NestedTensor_sin)
  FL_NESTED("detach", detach)
  FL_NESTED("_softmax", softmax_nested)
  FL_NESTED("_softmax_backward_data", nested_softmax_backward)
  FL_NESTED("split_with_sizes", split_with_sizes_nested)
  FL_NESTED("squeeze", squeeze_nested)
  FL_NESTED("sqrt", NestedTensor_sqrt)
  FL_NESTED("tanh", NestedTensor_tanh)
  FL_NESTED("tanh_", NestedTensor_tanh_)
  FL_NESTED("threshold_backward", threshold_backwards_nested)
  FL_NESTED("transpose.int", transpose_nested)
  FL_NESTED("_nested_tensor_size", _nested_tensor_size)
  FL_NESTED("_nested_tensor_strides", _nested_tensor_strides)
  FL_NESTED("_nested_tensor_storage_offsets", _nested_tensor_storage_offsets)
  FL_NESTED("_nested_from_padded_and_nested_example", NestedTensor_from_padded_and_nested_example)
  FL_NESTED("unsqueeze", unsqueeze_nested)
  FL_NESTED("where.self", NestedTensor_where)
  FL_NESTED("where.self_out", NestedTensor_where_out)
  FL_NESTED("clone", clone_nested)
  FL_NESTED("zero_", zero_nested_)
  FL_NESTED("sub.Tensor", NestedTensor_sub_Tensor)
  FL_NESTED("values", values_nested)
  FL_NESTED("unbind.int", NestedTensor_unbind)
  FL_NESTED("_to_copy", _to_copy_nested)
  FL_NESTED("masked_fill.Scalar", NestedTensor_masked_fill)
  FL_NESTED("view", view_nested)
  FL_NESTED("eq.Scalar", eq_scalar_nested)
  FL_NESTED("eq.Tensor", eq_tensor_nested)
  FL_NESTED("ge.Scalar", ge_scalar_nested)
  FL_NESTED("gt.Scalar", gt_scalar_nested)
  FL_NESTED("normal_", normal_nested_)
  FL_NESTED("alias", alias_nested)
  FL_NESTED("isinf", NestedTensor_isinf)
  FL_NESTED("isposinf", NestedTensor_isposinf)
  FL_NESTED("isneginf", NestedTensor_isneginf)
  FL_NESTED("_transformer_encoder_layer_fwd", transformer_encoder_layer_forward)
  FL_NESTED("bmm", bmm_nested)
  FL_NESTED("to_padded_tensor", NestedTensor_to_padded_tensor_generic)
  FL_NESTED("_nested_tensor_softmax_with_shape", NestedTensor_softmax_dropout)
  FL_NESTED("_native_multi_head_attention", native_multi_head_attention_cpu)
  FL_NESTED("_fused_sdp_choice", _fused_sdp_choice_cpp)
#undef FL_NESTED
  m.impl("fill_.Scalar", static_cast<Tensor& (*)(Tensor&, const at::Scalar&)>(at::native::fill_nested_));
  m.impl("fill_.Tensor", static_cast<Tensor& (*)(Tensor&, const Tensor&)>(at::native::fill_nested_));
  m.impl("squeeze.dim", static_cast<Tensor (*)(const Tensor&, int64_t)>(at::native::squeeze_dim_nested));
  m.impl("squeeze.dims", static_cast<Tensor (*)(const Tensor&, IntArrayRef)>(at::native::squeeze_dim_nested));
}

// Sums, and what else PyTorch reads on the host.
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_fallback>());
}

}  // namespace
}  // namespace fl::bridge
