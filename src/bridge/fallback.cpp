// The third tier: an operator on the CPU, announced, counted and by the policy.
#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <c10/util/Exception.h>

#include <chrono>
#include <sstream>
#include <unordered_set>

#include "bridge/fallback.h"
#include "bridge/generator.h"
#include "bridge/sync_debug.h"
#include "runtime/capture.h"
#include "runtime/index_error.h"

namespace fl::bridge {

namespace {

using torch::jit::Stack;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Is the operator in a comma-separated setting?  "aten::sort" and "sort" both name it.
bool listed(const char* setting_name, const std::string& op) {
  std::string list = setting(setting_name);
  if (list.empty()) return false;
  std::string bare = op.substr(op.rfind(':') + 1);
  std::stringstream entries(list);
  for (std::string entry; std::getline(entries, entry, ',');) {
    entry.erase(0, entry.find_first_not_of(' '));
    entry.erase(entry.find_last_not_of(' ') + 1);
    if (entry == op || entry == bare) return true;
  }
  return false;
}

// What an operator's tensors look like, for messages: "float32[3, 4], int64[2]".
std::string describe(const Stack& arguments) {
  std::ostringstream text;
  int n = 0;
  auto add = [&](const Tensor& t) {
    if (!t.defined() || ++n > 6) return;
    text << (n > 1 ? ", " : "") << t.scalar_type();
    if (t.is_nested()) text << "[nested]";
    else text << t.sizes();
  };
  for (const c10::IValue& v : arguments) {
    if (v.isTensor()) add(v.toTensor());
    else if (v.isTensorList())
      for (const Tensor& t : v.toTensorVector()) add(t);
  }
  return text.str();
}

// Operators that take tensors of the host beside the device's, by their documentation.
const std::unordered_set<std::string>& takes_host_tensors() {
  static const std::unordered_set<std::string> names{"aten::index",
                                                     "aten::_index_put_impl_",
                                                     "aten::index_put",
                                                     "aten::index_put_",
                                                     "aten::tensor_split",
                                                     "aten::_pack_padded_sequence",
                                                     "aten::_ctc_loss",
                                                     "aten::_ctc_loss_backward",
                                                     "aten::_cudnn_ctc_loss",
                                                     "aten::_pad_packed_sequence",
                                                     "aten::repeat_interleave"};
  return names;
}

// Where the CPU's kernel for these arguments is.
c10::DispatchKeySet host_keys(const c10::FunctionSchema& schema, const Stack& arguments) {
  c10::DispatchKeySet keys(c10::DispatchKey::CPU);
  bool any = false;
  auto see = [&](const Tensor& t) {
    if (!t.defined()) return;
    any = true;
    if (t.is_sparse()) keys = keys.add(c10::DispatchKey::SparseCPU);
    else if (at::sparse_csr::is_sparse_compressed(t)) keys = keys.add(c10::DispatchKey::SparseCsrCPU);
    else if (t.is_nested()) keys = keys.add(c10::DispatchKey::NestedTensorCPU);
  };
  for (const c10::IValue& v : arguments) {
    if (v.isTensor()) see(v.toTensor());
    else if (v.isTensorList())
      for (const Tensor& t : v.toTensorVector()) see(t);
  }
  if (any) return keys;
  // A new tensor's kernel is chosen by the layout that is asked for.
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (schema.arguments()[i].name() != "layout" || arguments[i].isNone()) continue;
    const c10::Layout layout = arguments[i].toLayout();
    if (layout == at::kSparse) keys = keys.add(c10::DispatchKey::SparseCPU);
    else if (at::sparse_csr::is_sparse_compressed(layout)) keys = keys.add(c10::DispatchKey::SparseCsrCPU);
  }
  return keys;
}

struct HostCall {
  const c10::OperatorHandle& op;
  const c10::FunctionSchema& schema;
  std::optional<c10::Device> device;
  uint64_t bytes = 0;
  // Device tensors that the operator writes, with what stood for them on the host.
  std::vector<std::pair<Tensor, Tensor>> written;
  std::vector<std::pair<Tensor, Tensor>> lent;  // every device tensor and its stand-in

  explicit HostCall(const c10::OperatorHandle& op) : op(op), schema(op.schema()) {}

  void see_device(const Tensor& t) {
    if (!is_fl(t)) return;
    if (!device) device = t.device();
    else if (*device != t.device()) throw_mixed_devices(find_op(schema.name()), *device, t.device());
  }

  // out= tensors may be resized by the kernel: they get memory of the host's own,
  // contiguous, because some kernels of the CPU write as if it were.
  Tensor stand_in(const Tensor& t, bool write, bool out) {
    if (!is_fl(t)) return t;
    for (auto& [device_tensor, host] : lent)
      if (device_tensor.is_same(t)) {
        if (write) note_written(t, host);
        return host;
      }
    Tensor host;
    if (t.is_nested()) {
      host = nested_on(t, at::kCPU);
      bytes += nested_memory(t).nbytes();
    } else if (t.layout() != at::kStrided) {
      host = t.to(at::kCPU);
    } else if (out) {
      at::assert_no_internal_overlap(t);
      host = at::empty(t.sizes(), t.options().device(at::kCPU).requires_grad(false));
      if (t.numel() != 0) host.copy_(t), bytes += t.nbytes();
    } else {
      host = host_view(t);
      if (!is_mapped(t)) bytes += t.nbytes();
    }
    lent.emplace_back(t, host);
    if (write) note_written(t, host);
    return host;
  }
  void note_written(const Tensor& t, const Tensor& host) {
    for (auto& [known, _] : written)
      if (known.is_same(t)) return;
    written.emplace_back(t, host);
  }

  // Brings what was written back to the device.
  void write_back() {
    for (auto& [t, host] : written) {
      if (t.is_nested()) {
        nested_memory(t).copy_(nested_memory(host));
        continue;
      }
      if (t.layout() != at::kStrided) {
        if (t.layout() != at::kSparse) at::resize_as_sparse_(t, host);
        t.copy_(host);
        continue;
      }
      if (host.sizes() != t.sizes()) {  // resized: in the strides that the operator chose
        if (keeps_strides(host)) {
          size_t span = at::detail::computeStorageNbytes(host.sizes(), host.strides(), 1);
          t.resize_({static_cast<int64_t>(span)});
          t.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides());
        } else {
          t.resize_(host.sizes());
        }
      }
      if (t.numel() == 0) continue;
      if (is_mapped(t) && host.storage().data() == host_storage(t)) continue;
      t.copy_(host);
      bytes += t.nbytes();
    }
  }
  // Gaps between the elements stay; where some lie in one place (strides of 0) nothing could be copied.
  static bool keeps_strides(const Tensor& t) { return at::has_internal_overlap(t) != at::MemOverlap::Yes; }
  static const void* host_storage(const Tensor& t) { return host_view(t).storage().data(); }

  // A result of the host on the device.  What the operator returned of its own
  // arguments comes back as those.
  Tensor to_device(const Tensor& host) {
    if (!host.defined() || !device) return host;
    for (auto& [t, lent_host] : lent)
      if (lent_host.is_same(host)) return t;
    if (host.is_nested()) return nested_on(host, *device);
    if (host.layout() != at::kStrided) return host.to(*device);
    bytes += host.nbytes();
    if (host.is_non_overlapping_and_dense() || !keeps_strides(host)) return host.to(*device);
    // A part of what the kernel worked on, in which to() would not keep the strides.
    Tensor t = empty_on(*device, host.sizes(), host.strides(), host.scalar_type());
    t.copy_(host);
    return t;
  }
};

}  // namespace

// ---------------------------------------------------------------- the policy
void announce_fallback(Op& op, const char* detail) {
  const std::string name = op.name;
  if (Capture* capture = current_capture())
    guarded([&] { capture->refuse(name + " on the CPU, as it has no kernel on this device"); });
  bool allowed = listed("fallback_allow", name);
  bool denied = listed("fallback_deny", name);
  TORCH_CHECK_NOT_IMPLEMENTED(allowed || (!denied && fallback_policy() != Fallback::kError), name, "(",
                              detail,
                              ") has no kernel on this device and would run on the CPU, which the setting ",
                              denied ? "FL_FALLBACK_DENY" : "FL_FALLBACK=error",
                              " forbids. Allow it with torch.fl.config.fallback = \"warn\" "
                              "or FL_FALLBACK_ALLOW=",
                              name, ".");
  uint64_t before = op.fallback.fetch_add(1, std::memory_order_relaxed);
  if (before != 0) return;
  const char* line = user_line();
  op.first_call_site.store(line, std::memory_order_release);
  if (allowed || fallback_policy() == Fallback::kQuiet) return;
  TORCH_WARN(name, "(", detail, ") has no kernel on this device and runs on the CPU",
             line ? ", first at " : "", line ? line : "",
             ". It is slow and is said once an operator; torch.fl.op_report() counts the calls, "
             "FL_FALLBACK=error refuses them.");
}

void account_fallback(Op& op, uint64_t bytes, uint64_t nanoseconds) {
  op.fallback_bytes.fetch_add(bytes, std::memory_order_relaxed);
  op.fallback_ns.fetch_add(nanoseconds, std::memory_order_relaxed);
}

// ------------------------------------------------------------- host memory
bool is_mapped(const Tensor& t) {
  const Chip& chip = *current_stream(t.device().index()).chip;
  return chip.memory.map && (device(t.device().index()).properties.flags & FL_DEVICE_HOST_ADDRESSABLE);
}

Tensor host_view(const Tensor& t) {
  TORCH_CHECK(t.layout() == at::kStrided, "torch-fl: ", t.layout(), " tensors cannot be seen by the host");
  auto options = t.options().device(at::kCPU).requires_grad(false);
  if (t.storage().nbytes() == 0 || t.numel() == 0) return at::empty_strided(t.sizes(), t.strides(), options);
  if (!is_mapped(t)) {
    Tensor host = at::empty_strided(t.sizes(), t.strides(), options);
    if (at::has_internal_overlap(t) != at::MemOverlap::No) host = at::empty(t.sizes(), options);
    host.copy_(t);
    return host;
  }
  return guarded([&] {
    Stream& stream = current_stream(t.device().index());
    note_sync();
    synchronize(stream);
    void* base = nullptr;
    check(stream.chip->memory.map(stream.local, t.storage().mutable_data(), t.storage().nbytes(), &base),
          "mapping device memory for the host");
    // The storage is kept alive by the host tensor.
    c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), t.storage().nbytes(),
        c10::DataPtr(
            base, new c10::Storage(t.storage()), [](void* kept) { delete static_cast<c10::Storage*>(kept); },
            at::kCPU),
        nullptr, false));
    Tensor host = at::detail::make_tensor<c10::TensorImpl>(
        std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), t.dtype());
    host.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
    if (t.is_conj()) host._set_conj(true);
    if (t.is_neg()) host._set_neg(true);
    return host;
  });
}

// ------------------------------------------------------------- the fallback
void run_fallback(const c10::OperatorHandle& op, Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  Op& record = find_op(schema.name());
  HostCall call(op);
  const size_t n = schema.arguments().size();
  auto arguments = torch::jit::last(stack, n);
  Stack host(arguments.begin(), arguments.end());

  // A view of device memory cannot be made by the CPU.
  for (const c10::Argument& r : schema.returns())
    TORCH_CHECK_NOT_IMPLEMENTED(
        !(r.alias_info() && !r.alias_info()->isWrite()), schema.name(),
        " returns a view, and views never fall back to the CPU; this operator is not supported yet");

  std::optional<Tensor> host_tensor;
  for (size_t i = 0; i < n; ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    bool write = argument.alias_info() && argument.alias_info()->isWrite();
    if (write && host[i].isTensor() && host[i].toTensor().defined() && host[i].toTensor().device().is_cpu())
      host_tensor = host[i].toTensor();  // also one without dimensions
  }
  bool host_tensors_allowed = !host_tensor && takes_host_tensors().count(schema.name()) != 0;
  auto see = [&](const Tensor& t) {
    call.see_device(t);
    if (t.defined() && t.device().is_cpu() && t.dim() > 0) host_tensor = t;
  };
  for (const c10::IValue& v : host) {
    if (v.isTensor()) see(v.toTensor());
    else if (v.isTensorList())
      for (const Tensor& t : v.toTensorVector()) see(t);
    else if (v.isOptionalTensorList()) {
      for (const std::optional<Tensor>& t : v.toOptionalTensorVector())
        if (t) see(*t);
    } else if (v.isDevice() && v.toDevice().type() == kDevice && !call.device) call.device = v.toDevice();
  }
  if (host_tensor && call.device && !host_tensors_allowed)
    throw_mixed_devices(record, *call.device, host_tensor->device());

  const c10::DispatchKeySet keys = host_keys(schema, host);
  const c10::DispatchKey first = keys.highestPriorityTypeId();
  TORCH_CHECK_NOT_IMPLEMENTED(first == c10::DispatchKey::CPU || op.hasComputedKernelForDispatchKey(first),
                              "Could not run '", schema.name(), "' with ",
                              first == c10::DispatchKey::SparseCPU      ? "sparse coordinate"
                              : first == c10::DispatchKey::SparseCsrCPU ? "sparse compressed"
                                                                        : "nested",
                              " tensors: neither this device nor PyTorch's CPU has a kernel for them");
  announce_fallback(record, describe(host).c_str());
  int64_t started = now_ns();

  for (size_t i = 0; i < n; ++i) {
    c10::IValue& v = host[i];
    const c10::Argument& argument = schema.arguments()[i];
    bool write = argument.alias_info() && argument.alias_info()->isWrite();
    bool out = argument.is_out();
    if (v.isTensor()) {
      v = call.stand_in(v.toTensor(), write, out);
    } else if (v.isTensorList()) {
      std::vector<Tensor> list;
      for (const Tensor& t : v.toTensorVector()) list.push_back(call.stand_in(t, write, out));
      v = c10::IValue(std::move(list));
    } else if (v.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> list;
      for (const std::optional<Tensor>& t : v.toOptionalTensorVector())
        list.push_back(t ? std::optional<Tensor>(call.stand_in(*t, write, out)) : std::nullopt);
      v = c10::IValue(std::move(list));
    } else if (v.isDevice()) {
      if (v.toDevice().type() == kDevice) v = c10::IValue(c10::Device(at::kCPU));
    } else if (argument.type()->isSubtypeOf(*c10::OptionalType::create(c10::GeneratorType::get())) &&
               call.device) {
      // Random numbers come from the device's generator on every tier: it
      // seeds a generator of the host for this one call.
      auto generator =
          v.isNone() ? std::optional<at::Generator>() : std::optional<at::Generator>(v.toGenerator());
      if (!generator || generator->device().type() == kDevice) {
        PhiloxState state = reserve(generator, *call.device, 1);
        at::Generator cpu =
            at::detail::createCPUGenerator(state.seed ^ (state.offset * 0x9e3779b97f4a7c15ull));
        v = c10::IValue(cpu);
      }
    }
  }
  Stack results = host;
  op.redispatchBoxed(keys, &results);

  call.write_back();
  torch::jit::drop(*stack, n);
  for (size_t i = 0; i < results.size(); ++i) {
    c10::IValue& v = results[i];
    if (v.isTensor()) {
      v = call.to_device(v.toTensor());
    } else if (v.isTensorList()) {
      std::vector<Tensor> list;
      for (const Tensor& t : v.toTensorVector()) list.push_back(call.to_device(t));
      v = c10::IValue(std::move(list));
    }
    torch::jit::push(*stack, std::move(v));
  }
  account_fallback(record, call.bytes, static_cast<uint64_t>(now_ns() - started));
}

// Structured operators without a kernel of ours: their functional and in-place
// forms fall back themselves.  PyTorch's default kernels for these would call
// .out with outputs that they allocate by the first tensor's device, and stop
// at an internal assertion when devices are mixed.
const char* const kStructured[] = {"_linalg_svd",      "_linalg_eigh", "linalg_ldl_factor_ex",
                                   "linalg_ldl_solve", "linalg_qr",    "slow_conv_transpose2d"};

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name : kStructured)
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_fallback>());
}

void set_fallback(c10::DispatchKey key, torch::CppFunction function) {
  auto* kept = new torch::Library(torch::Library::IMPL, "_", key, __FILE__, __LINE__);  // for good
  kept->fallback(std::move(function));
}

// Sparse: ops/sparse_generic.cpp; quantized: ops/quantized.cpp.  A compressed tensor comes to be without an
// operator of ours.
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_fallback>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_fallback>());
}

// ------------------------------------------------------------------ errors
void throw_mixed_devices(const Op& op, c10::Device first, c10::Device second) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", first,
              " and ", second, "! (in ", op.name, ")");
}

void Call::fail(fl_status status, const fl_tensor* const* tensors, int n_tensors) const {
  std::string said = take_chip_error();
  std::ostringstream text;
  text << op_.name << " on " << device(device_.index()).name << ": "
       << (said.empty() ? status_text(status) : said) << " (";
  const char* separator = "";
  for (int i = 0; i < n_tensors; ++i) {
    const fl_tensor& t = *tensors[i];
    text << separator << to_scalar_type(t.dtype) << IntArrayRef(t.sizes, static_cast<size_t>(t.ndim));
    separator = ", ";
  }
  text << ")";
  rethrow_as_torch(Error(error_status(op_, status), text.str()));
}

}  // namespace fl::bridge
