// Operators that are about memory and identity, not about numbers.
#include "bridge/bridge.h"
#include "bridge/device_allocator.h"
#include "bridge/guard.h"

namespace fl::bridge {

namespace {

void record_stream(Tensor& self, at::Stream stream) {
  guarded([&] { record_use(self.storage().data_ptr(), to_fl(stream)); });
}

// May `self` become `from` in place?  Plain tensors of the CPU and of fl have
// one implementation class, so module.to("fl") keeps its Parameters and
// `p.data = fl_tensor` works; every other pair follows PyTorch's own rule.
bool has_compatible_shallow_copy_type(const Tensor& self, const Tensor& from) {
  const auto plain = [](const Tensor& t) {
    return t.layout() == at::kStrided && !t.unsafeGetTensorImpl()->is_python_dispatch() &&
           !t.key_set().has_any(
               c10::DispatchKeySet({c10::DispatchKey::NestedTensor, c10::DispatchKey::Functionalize})) &&
           (t.is_cpu() || is_fl(t));
  };
  if (plain(self) && plain(from)) return true;
  return self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("record_stream", &record_stream);
  m.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
}

}  // namespace

}  // namespace fl::bridge
