// Autocast on fl: PyTorch's own lists of what runs in low precision, what in
// float32, and what in the widest of its operands.
#include <ATen/autocast_mode.h>

#include "bridge/bridge.h"

namespace fl::bridge {

namespace {

using at::Scalar;

// binary_cross_entropy takes probabilities: rounded to float16 they lose the
// difference that the loss is about.
Tensor banned(const Tensor&, const Tensor&, const std::optional<Tensor>&, int64_t) {
  TORCH_CHECK(
      false,
      "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
      "Use torch.nn.functional.binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss, which take "
      "what comes before the sigmoid and are safe to autocast.");
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define FL_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define FL_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define FL_FP32_SET_OPT(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define FL_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(FL_LOWER)
  FL_LOWER(mkldnn_rnn_layer)  // one layer of torch.lstm (ops/rnn.cpp)
  AT_FORALL_FP32(FL_FP32)
  FL_SINCE_2_14(FL_FP32(linalg_matrix_sqrth))
  AT_FORALL_FP32_SET_OPT_DTYPE(FL_FP32_SET_OPT)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(FL_PROMOTE)
#undef FL_LOWER
#undef FL_FP32
#undef FL_FP32_SET_OPT
#undef FL_PROMOTE
  m.impl("binary_cross_entropy", &banned);
}

}  // namespace

}  // namespace fl::bridge
