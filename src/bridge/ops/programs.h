// Launching programs on tensors outside TensorIterator, and the shape functions
// of structured operators: what the operator families share.
#pragma once

#include <ATen/MemoryOverlap.h>
#include <ATen/Operators.h>
#include <ATen/native/Resize.h>

#include <atomic>

#include "bridge/bridge.h"

namespace fl::bridge {

// An iteration space and the operands in it, broadcast to its sizes.  finish()
// drops dimensions of size 1, orders the others by the first operand's strides
// and coalesces them, as far as the caller allows.
enum class Order {
  kAny,   // points may be visited in any order
  kRows,  // row-major order means something (arg reductions): coalesce alone
  kKeep,  // dimensions have a meaning of their own (INDEX along one): touch nothing
};
class Space {
 public:
  static constexpr int kOperands = FL_MAX_INPUTS + FL_MAX_OUTPUTS;
  static constexpr int kDims = 64;  // as many as PyTorch's reductions take
  explicit Space(IntArrayRef sizes);
  Space(const Space&) = delete;
  bool ok() const { return ndim_ >= 0; }  // false: more than kDims dimensions
  int64_t numel() const;

  void add(const fl_tensor& t);                                 // broadcast, aligned at the last dimension
  void add(void* data, uint8_t dtype, const int64_t* strides);  // one stride for each dimension
  // False: more than FL_MAX_DIMS dimensions are left.
  bool finish(Order order = Order::kAny);

  int count() const { return count_; }
  int ndim() const { return ndim_; }
  const int64_t* sizes() const { return sizes_; }
  const int64_t* strides(int operand) const { return strides_[operand]; }
  const fl_tensor* tensors(int first = 0) const { return tensors_ + first; }

 private:
  void permute(const int* order);
  void sort();
  void coalesce();
  int ndim_, count_ = 0;
  int64_t sizes_[kDims];
  int64_t strides_[kOperands][kDims];
  fl_tensor tensors_[kOperands];
};

// Programs by a key that the caller packs from dtypes and variants.  A list
// that only grows: an operator meets a handful of combinations in a process.
class Programs {
 public:
  template <class Make>  // void(Builder&)
  const fl_program* get(uint64_t key, Make&& make) {
    for (Entry* e = head_.load(std::memory_order_acquire); e; e = e->next)
      if (e->key == key) return e->program;
    Builder b;
    make(b);
    auto* entry = new Entry{key, b.finish(), head_.load(std::memory_order_relaxed)};
    while (!head_.compare_exchange_weak(entry->next, entry, std::memory_order_release)) {
    }
    return entry->program;
  }

 private:
  struct Entry {
    uint64_t key;
    const fl_program* program;
    Entry* next;
  };
  std::atomic<Entry*> head_{nullptr};
};

// A key from dtypes and small numbers, 6 bits each.
template <class... T>
uint64_t key_of(T... parts) {
  uint64_t key = 0;
  ((key = key << 6 | (static_cast<uint64_t>(parts) & 63)), ...);
  return key;
}
inline uint8_t dtype_of(const at::TensorBase& t) { return to_dtype(t.scalar_type()); }
// FL_NONE for an undefined tensor.
inline uint8_t dtype_of(const std::optional<Tensor>& t) {
  return t && t->defined() ? dtype_of(*t) : uint8_t{FL_NONE};
}
inline const Tensor* given(const std::optional<Tensor>& t) { return t && t->defined() ? &*t : nullptr; }

inline fl_scalar scalar_f(double value) {
  fl_scalar s{};
  s.v.f = value;
  return s;
}
inline fl_scalar scalar_i(int64_t value) {
  fl_scalar s{};
  s.v.i = value;
  return s;
}

// A launch of the pointwise entry; what the chip's instructions do not cover is rewritten in those that it
// has (program/lower.h), and counts as composed.  False: the chip cannot.
bool pointwise(Call& call, const fl_pointwise_args& args, const fl_tensor* const* shown, int n_shown);
// The same over a finished space, whose first tensors are the outputs.
bool pointwise(Call& call, const fl_program* program, const Space& space, int n_outputs,
               const fl_scalar* scalars = nullptr);

// Run the program over the shape of the first output; inputs are broadcast to
// it.  Nothing happens when it is empty.  False: the chip cannot.
bool run_program(Call& call, const fl_program* program, std::initializer_list<const Tensor*> outputs,
                 std::initializer_list<const Tensor*> inputs, std::initializer_list<fl_scalar> scalars = {},
                 Order order = Order::kAny);

// Steps of compositions, counted as the operators that they are.
void fill_step(const Tensor& to, const at::Scalar& value);
void copy_step(const Tensor& to, const Tensor& from);

// For what every chip does (mandatory opcodes over mandatory types).
[[noreturn]] void throw_refused(const Call& call, const char* what, ScalarType dtype);

// Runs a structured operator's shape function against tensors given as out=:
// checks dtype, device and overlap, resizes.  Kernels honour any strides, so
// there are no proxies.
template <class Meta>
class Into final : public Meta {
 public:
  template <class... Outputs>
  explicit Into(const Outputs&... outputs) : outputs_{&outputs...} {}
  void set_output_strided(int64_t i, IntArrayRef sizes, IntArrayRef strides,
                          at::TensorOptions options) override {
    prepare(i, sizes, strides, options);
  }
  void set_output_raw_strided(int64_t i, IntArrayRef sizes, IntArrayRef strides,
                              at::TensorOptions options) override {
    prepare(i, sizes, strides, options);
  }
  const Tensor& maybe_get_output(int64_t i) override { return *outputs_[i]; }

 private:
  void prepare(int64_t i, IntArrayRef sizes, IntArrayRef strides, const at::TensorOptions& options) {
    const Tensor& out = *outputs_[i];
    // The kernel of the device runs when any operand is there; results go where the first one is.
    TORCH_CHECK(options.device().type() == kDevice,
                "Expected all tensors to be on the same device, but found at least two devices, ",
                options.device(), " and ", c10::Device(kDevice), "!");
    TORCH_CHECK(options.dtype() == out.dtype(), "Expected out tensor to have dtype ", options.dtype(),
                ", but got ", out.dtype(), " instead");
    TORCH_CHECK(options.device() == out.device(), "Expected out tensor to have device ", options.device(),
                ", but got ", out.device(), " instead");
    at::assert_no_internal_overlap(out);
    if (!at::native::resize_output(out, sizes)) return;
    if (!strides.empty()) out.as_strided_(sizes, strides);
    else if (auto format = options.memory_format_opt())
      out.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  }
  const Tensor* outputs_[4];
};

// Runs a structured operator's shape function and allocates its outputs.
template <class Meta, int N = 1>
class Allocate final : public Meta {
 public:
  explicit Allocate(const Tensor& like) : like_(like) {}
  void set_output_strided(int64_t i, IntArrayRef sizes, IntArrayRef strides,
                          at::TensorOptions options) override {
    make(i, sizes, strides, options);
  }
  void set_output_raw_strided(int64_t i, IntArrayRef sizes, IntArrayRef strides,
                              at::TensorOptions options) override {
    make(i, sizes, strides, options);
  }
  const Tensor& maybe_get_output(int64_t i) override { return outputs[i]; }
  Tensor outputs[N];

 private:
  void make(int64_t i, IntArrayRef sizes, IntArrayRef strides, const at::TensorOptions& options) {
    if (!strides.empty()) outputs[i] = at::empty_strided(sizes, strides, options);
    else if (options.memory_format_opt()) outputs[i] = at::empty(sizes, options);
    else outputs[i] = empty_like(like_, sizes, options.dtype().toScalarType());
  }
  const Tensor& like_;
};

}  // namespace fl::bridge
