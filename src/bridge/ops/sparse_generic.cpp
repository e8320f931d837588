// Sparse tensors: the operators whose kernels in PyTorch touch no element
// themselves.  They work on indices and values through other operators, so the
// kernel that PyTorch has for its own CPU does for this device what it does there.
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DeviceGuard.h>

#include <sstream>

#include "bridge/fallback.h"

namespace fl::bridge {
namespace {

using c10::DispatchKey;

class Generic final : public c10::OperatorKernel {
 public:
  Generic(DispatchKey host, bool counted) : host_(host), counted_(counted) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    if (host_ == DispatchKey::SparseCPU) fall_back_elsewhere();
    if (counted_) record(op).composed.fetch_add(1, std::memory_order_relaxed);
    // New sparse tensors are made on the current device.
    const c10::OptionalDeviceGuard guard(device_of(torch::jit::last(*stack, op.schema().arguments().size())));
    op.redispatchBoxed(c10::DispatchKeySet(host_), stack);
  }

 private:
  // Each COO tensor is made by an operator below.
  static void fall_back_elsewhere() {
    static const bool done [[maybe_unused]] = [] {
      set_fallback(DispatchKey::SparsePrivateUse1,
                   torch::CppFunction::makeFromBoxedFunction<&run_fallback>());
      return true;
    }();
  }
  static std::optional<c10::Device> device_of(c10::ArrayRef<c10::IValue> arguments) {
    std::optional<c10::Device> found;
    for (const c10::IValue& v : arguments) {
      if (v.isDevice() && v.toDevice().type() == kDevice && v.toDevice().has_index()) return v.toDevice();
      if (found) continue;
      if (v.isTensor() && is_fl(v.toTensor())) found = v.toTensor().device();
      else if (v.isTensorList() && !v.toTensorList().empty() && is_fl(v.toTensorList().get(0)))
        found = v.toTensorList().get(0).device();
    }
    return found;
  }
  Op& record(const c10::OperatorHandle& op) {
    Op* known = op_.load(std::memory_order_acquire);
    if (!known) op_.store(known = &find_op(op.schema().name()), std::memory_order_release);
    return *known;
  }
  const DispatchKey host_;
  const bool counted_;
  std::atomic<Op*> op_{nullptr};
};

void add(torch::Library& m, DispatchKey host, bool counted, const char* names, bool three_forms = false) {
  std::istringstream words(names);
  for (std::string name; words >> name;)
    for (const char* form : {"", "_", ".out"}) {
      if (*form && !three_forms) break;
      m.impl((name + form).c_str(),
             torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Generic>(host, counted)));
    }
}

// Each in three forms: f, f_, f.out.
constexpr const char* kUnary =
    "abs sgn asinh atanh asin atan ceil erf expm1 floor frac log1p rad2deg deg2rad neg round sin sinh sqrt "
    "tan tanh trunc erfinv sign";

constexpr const char* kCooMetadata =
    "empty.memory_format empty_like unsqueeze zeros.out resize_as_sparse_ _sparse_coo_tensor_with_dims "
    "_sparse_coo_tensor_with_dims_and_tensors sparse_resize_ sparse_resize_and_clear_ sparse_dim _dimI "
    "dense_dim _dimV _nnz is_coalesced _indices _values _coalesced_ indices values";
constexpr const char* kCoo =
    "copy_ clone zero_ copy_sparse_to_sparse_ view_as_real view_as_complex conj_physical.out add.Tensor "
    "add_.Tensor _sparse_broadcast_to cat div.Tensor div_.Tensor div.out div.Tensor_mode div_.Tensor_mode "
    "div.out_mode floor_divide floor_divide_.Tensor floor_divide.out isnan mm mm.out mul.Tensor mul_.Tensor "
    "mv narrow_copy permute relu relu_ sum sum.dim_IntList threshold_backward.grad_input threshold_backward "
    "native_norm native_norm.ScalarOpt_dim_dtype norm.ScalarOpt_dim_dtype norm.ScalarOpt_dim sub.out "
    "sub.Tensor sub_.Tensor _to_dense _to_sparse.sparse_dim _to_sparse "
    "_to_sparse_csr _to_sparse_csc _to_sparse_bsr _to_sparse_bsc signbit signbit.out any "
    "pow.Tensor_Scalar_out pow.Tensor_Scalar isinf isposinf isposinf.out isneginf isneginf.out";

constexpr const char* kCompressedMetadata =
    "empty.memory_format resize_ empty_like resize_as_sparse_ sparse_dim dense_dim _nnz values crow_indices "
    "col_indices ccol_indices row_indices";
constexpr const char* kCompressed =
    "copy_ clone zero_ angle angle.out _conj_physical conj_physical.out conj_physical_ add.Tensor "
    "add_.Tensor fill_.Scalar isnan mm mm.out mul.Tensor mul_.Tensor mul.out mul.Scalar mul_.Scalar relu "
    "relu_ select.int sum sum.dim_IntList threshold_backward.grad_input threshold_backward addmm sparse_mask "
    "_to_dense _to_sparse.sparse_dim _to_sparse _to_sparse_csr _to_sparse_csc signbit signbit.out normal_ "
    "isinf isposinf isposinf.out isneginf isneginf.out select_copy.int";

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  add(m, DispatchKey::SparseCPU, true, kUnary, true);
  add(m, DispatchKey::SparseCPU, true, "nan_to_num", true);
  add(m, DispatchKey::SparseCPU, true, kCoo);
  add(m, DispatchKey::SparseCPU, false, kCooMetadata);
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  add(m, DispatchKey::SparseCsrCPU, true, kUnary, true);
  add(m, DispatchKey::SparseCsrCPU, true, kCompressed);
  add(m, DispatchKey::SparseCsrCPU, false, kCompressedMetadata);
}

}  // namespace
}  // namespace fl::bridge
