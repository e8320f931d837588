// What every file of the bridge uses: dtypes, views, and Call, one operator on
// one device.
//
// The three tiers of an operator, tried in order for each call:
//
//     Tensor& mm_out(const Tensor& a, const Tensor& b, Tensor& out) {
//       static Op op("aten::mm");
//       Call call(op, out);
//       fl_gemm_args args{call.view(a), call.view(b), call.view(out), ...};
//       if (call.native(call.chip().op.gemm, args, {&args.a, &args.b, &args.out})) return out;   // 1
//       if (...) { call.composed(); ...; return out; }                                           // 2
//       return fallback<ATEN_OP2(mm, out)>(a, b, out);                                           // 3
//     }
#pragma once

#include <ATen/ATen.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/op_registration/adaption.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/DispatchStub.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <initializer_list>
#include <mutex>

#include "bridge/compat.h"
#include "chip/error.h"
#include "chip/registry.h"
#include "program/program.h"
#include "runtime/allocator.h"
#include "runtime/config.h"
#include "runtime/launch.h"
#include "runtime/stream.h"

namespace fl::bridge {

using at::IntArrayRef;
using at::ScalarType;
using at::Tensor;

constexpr auto kDevice = c10::DeviceType::PrivateUse1;

// FL_NONE for what the ABI does not know (quantized, bits).
uint8_t to_dtype(ScalarType type) noexcept;
ScalarType to_scalar_type(uint8_t dtype) noexcept;

// Where a chip computes a dtype: F16 → F32, I8 → I32, …
inline uint8_t to_register(ScalarType type) noexcept { return register_type(to_dtype(type)); }

// A number as a scalar of the register type.
fl_scalar to_scalar(const at::Scalar& value, uint8_t type);

inline bool is_fl(const at::TensorBase& t) { return t.defined() && t.device().type() == kDevice; }

// Rethrows fl::Error as what Python should see: torch.OutOfMemoryError,
// IndexError, RuntimeError (torch.AcceleratorError for a lost device).
// Used at the borders: C++ that PyTorch calls throws c10::Error only.
[[noreturn]] void rethrow_as_torch(const Error& error);
template <class F>
auto guarded(F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const Error& error) {
    rethrow_as_torch(error);
  }
}

[[noreturn]] void throw_mixed_devices(const Op& op, c10::Device first, c10::Device second);

// Do PyTorch's settings allow TF32 in products of float32?  A convolution has a setting of its own, which
// allows it from the start; here it also asks for that of products, which does not.
bool allows_tf32(at::Float32Op of);

// One execution of an operator on the device of `lead`, on that device's
// current stream.  Allocates nothing.
class Call {
 public:
  Call(Op& op, const at::TensorBase& lead) : Call(op, lead.device()) {}
  Call(Op& op, c10::Device device) : op_(op), device_(device), stream_(current_stream(device.index())) {}

  const Chip& chip() const noexcept { return *stream_.chip; }
  Stream& stream() const noexcept { return stream_; }
  Op& op() const noexcept { return op_; }
  bool claims(unsigned entry, unsigned kind, uint8_t dtype) const noexcept {
    return chip().claims(entry, kind, dtype);
  }

  // The ABI's view of a tensor: borrows sizes and strides from it.  Throws
  // "Expected all tensors to be on the same device" for any other device.
  fl_tensor view(const at::TensorBase& t) const {
    if (C10_UNLIKELY(t.device() != device_)) throw_mixed_devices(op_, device_, t.device());
    return fl_tensor{const_cast<void*>(t.const_data_ptr()),
                     t.sizes().data(),
                     t.strides().data(),
                     static_cast<int32_t>(t.dim()),
                     to_dtype(t.scalar_type()),
                     0,
                     0};
  }

  // Launches from now on are of products of F32, which may be as exact as the user says.
  void is_product(at::Float32Op of) {
    if (allows_tf32(of)) flags_ |= FL_LAUNCH_TF32;
  }

  // Run the chip's entry.  False when the chip has no such entry or says
  // FL_UNSUPPORTED: nothing has happened then.  `tensors` is for fault reports.
  template <class Args>
  bool native(fl_status (*entry)(const fl_launch*, const Args*), const Args& args,
              std::initializer_list<const fl_tensor*> tensors) {
    return native(entry, args, tensors.begin(), static_cast<int>(tensors.size()));
  }
  template <class Args>
  bool native(fl_status (*entry)(const fl_launch*, const Args*), const Args& args,
              const fl_tensor* const* tensors, int n_tensors) {
    if (!entry) return false;
    fl_status status = submit(entry, args, tensors, n_tensors);
    if (C10_UNLIKELY(status != FL_OK)) {
      if (status == FL_UNSUPPORTED) return false;
      fail(status, tensors, n_tensors);
    }
    if (!counted_) op_.native.fetch_add(1, std::memory_order_relaxed), counted_ = true;
    return true;
  }

  // The operator is being built from others or from several launches: counts
  // it once as composed; launches after that do not count as native.
  void composed() {
    if (!counted_) op_.composed.fetch_add(1, std::memory_order_relaxed), counted_ = true;
  }

 private:
  template <class Args>
  fl_status submit(fl_status (*entry)(const fl_launch*, const Args*), const Args& args,
                   const fl_tensor* const* tensors, int count) {
    fl_launch launch = make_launch(op_, stream_, tensors, count);
    launch.flags |= flags_;
    if (C10_UNLIKELY(at::globalContext().deterministicAlgorithms())) launch.flags |= FL_LAUNCH_DETERMINISTIC;
    LaunchScope scope(stream_);
    return entry(&launch, &args);
  }
  [[noreturn]] void fail(fl_status status, const fl_tensor* const* tensors, int n_tensors) const;

  Op& op_;
  c10::Device device_;
  Stream& stream_;
  uint32_t flags_ = 0;
  bool counted_ = false;
};

// ---------------------------------------------------------------- third tier
// Run an operator on the CPU: copies (or maps) its arguments, runs, writes
// results back, in-place and out= included; counts and warns, or raises when
// the policy says so, before any work.  Refuses views and mixed devices.
void run_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// fallback<ATEN_OP2(mm, out)>(a, b, out), from inside a kernel.
template <class AtenOp, class... Args>
decltype(auto) fallback(Args&&... args) {
  return at::native::call_fallback_fn<&run_fallback, AtenOp>::call(std::forward<Args>(args)...);
}

// For kernels that are not boxed (dispatch stubs): announce a fallback of `op`
// by the policy; throws when it is denied, before any work.  Then account for
// it: bytes moved and nanoseconds taken.
void announce_fallback(Op& op, const char* detail);
void account_fallback(Op& op, uint64_t bytes, uint64_t nanoseconds);

// A tensor that host code may read or write in place of `t` (an fl tensor):
// the same memory where the chip maps it (is_mapped), else a copy, which who
// writes it copies back.  The stream has been synchronized.
Tensor host_view(const Tensor& t);
bool is_mapped(const Tensor& t);

// ---------------------------------------------------------- TensorIterator
// Makes the program of an operator for given types.  in[i] are the inputs, converted
// to their register types of common dtype (see IteratorOp::convert).
using Build = Value (*)(Builder&, const Value* in, uint8_t type, ScalarType common);

struct ProgramCache;

// An elementwise operator over a TensorIterator: one line in a table.
struct IteratorOp {
  Op op;
  Build build;
  bool by_output;  // the common dtype is the output's, where the iterator has none
  ProgramCache* cache = nullptr;
  explicit IteratorOp(const char* name, Build build, bool by_output = false)
      : op(name), build(build), by_output(by_output) {}
};

// Run it; `scalars` are extra numbers of the launch (alpha, beta, …), seen by
// build as in[n_inputs + k], in the register type.  False: the chip cannot do
// it; nothing has happened.
bool run_iterator(IteratorOp& op, at::TensorIteratorBase& iter, const at::Scalar* scalars = nullptr,
                  int n_scalars = 0);

// iterator.cpp: a view of each operand in the ABI's terms (last dimension
// fastest).  Returns false when there are more than FL_MAX_DIMS dimensions.
struct IteratorViews {
  int64_t sizes[FL_MAX_DIMS];
  int64_t strides[FL_MAX_INPUTS + FL_MAX_OUTPUTS][FL_MAX_DIMS];
  fl_tensor tensors[FL_MAX_INPUTS + FL_MAX_OUTPUTS];
  bool fill(const at::TensorIteratorBase& iter);
};

// ------------------------------------------------------------- conveniences
// An uninitialised tensor on the device's current stream, without a trip
// through the dispatcher (tensor.cpp).  Empty strides: contiguous.
Tensor empty_on(c10::Device device, IntArrayRef sizes, IntArrayRef strides, ScalarType dtype);
// Contiguous, on the device of `like`.
Tensor empty_like(const Tensor& like, IntArrayRef sizes, ScalarType dtype);
// t itself when one of its last two strides is 1 (GEM-1), else contiguous.
Tensor gemm_operand(const Tensor& t);
// to = from, converted, any layouts, on the device; both non-empty views on one device.
void copy_on_device(Op& op, const Tensor& to, const Tensor& from);
void fill_on_device(Op& op, const Tensor& to, const at::Scalar& value);

}  // namespace fl::bridge
