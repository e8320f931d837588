// Elementwise operators over TensorIterator, for pointwise*.cpp and families
// that run through PyTorch's dispatch stubs.
#pragma once

#include "bridge/bridge.h"
#include "program/expr.h"

namespace fl::bridge {

// Runs the iterator's operator with PyTorch's own CPU kernel on host views of
// the operands, converted to the types that kernel expects: the third tier of
// operators that come through a dispatch stub.  Announces and accounts for it.
// promote: the kernel expects its inputs in the common dtype.
template <class F>
void run_on_host(Op& op, at::TensorIteratorBase& iter, F&& cpu_kernel, bool promote = true);

// A host-side copy of an iterator and what has to be written back.
class HostIterator {
 public:
  HostIterator(Op& op, at::TensorIteratorBase& iter, bool promote = true, bool is_reduction = false);
  at::TensorIterator& get() { return iter_; }
  void finish();  // writes outputs back and accounts for the fallback

 private:
  Op& op_;
  at::TensorIteratorBase& device_iter_;
  std::vector<Tensor> host_;     // as the CPU kernel sees them
  std::vector<Tensor> targets_;  // per output: where a converted result goes
  at::TensorIterator iter_;
  uint64_t bytes_ = 0;
  int64_t started_ns_ = 0;
};

template <class F>
void run_on_host(Op& op, at::TensorIteratorBase& iter, F&& cpu_kernel, bool promote) {
  HostIterator host(op, iter, promote);
  cpu_kernel(host.get());
  host.finish();
}

// A number that the dtype cannot hold is refused, as on the CPU: "value cannot
// be converted to type uint8_t without overflow".
void check_fits(const at::Scalar& value, ScalarType type);

// What PyTorch says where an operator writes several times to one place.
void warn_of_expanded(const char* name, const char* indexing);

// The result of a structured operator as its shape function asks for it: with strides, or, where all operands
// are channels-last, with a memory format and none.
Tensor empty_as_asked(const at::TensorOptions& options, IntArrayRef sizes, IntArrayRef strides);

// Shape function, result and kernel in one object.  PyTorch's functional form of a structured operator
// allocates through the dispatcher and calls .out through it again: about 280 ns more.
template <class Base>
struct Functional final : Base {
  Tensor out;
  void set_output_raw_strided(int64_t index, IntArrayRef sizes, IntArrayRef strides,
                              at::TensorOptions options) override {
    out = empty_as_asked(options, sizes, strides);
    Base::set_output_raw_strided(index, sizes, strides, options);
  }
  void set_output_strided(int64_t index, IntArrayRef sizes, IntArrayRef strides,
                          at::TensorOptions options) override {
    set_output_raw_strided(index, sizes, strides, options);
  }
  const Tensor& maybe_get_output(int64_t) override { return out; }
};

// ---------------------------------------------------------------- the tables
// Each line gives a stub its kernel on the device: a formula over the inputs x,
// y, z (and in[k]), in the register type of the common dtype.  Where the chip
// cannot run the formula, PyTorch's CPU kernel runs on host memory.
//
//   STUB(tanh_backward_stub, "aten::tanh_backward", x * conj(1 - y * y))

// clang-format off
#define FL_FORMULA(id, name, by_output, ...)                                                          \
  namespace id##_fl {                                                                                 \
  static Value build([[maybe_unused]] Builder& b, [[maybe_unused]] const Value* values,               \
                     [[maybe_unused]] uint8_t type, [[maybe_unused]] ScalarType common) {             \
    [[maybe_unused]] auto in = [&](int i) { return Expr{&b, values[i]}; };                            \
    [[maybe_unused]] Expr x = in(0), y = in(1), z = in(2), w = in(3);                                 \
    Expr result = __VA_ARGS__;                                                                        \
    return result.v;                                                                                  \
  }                                                                                                   \
  static IteratorOp op(name, build, by_output);                                                       \
  }
#define FORMULA(id, name, ...) FL_FORMULA(id, name, false, __VA_ARGS__)
// Computed in the output's dtype, whatever the inputs' are.
#define FORMULA_OF_OUTPUT(id, name, ...) FL_FORMULA(id, name, true, __VA_ARGS__)

#define FL_REGISTER_STUB(stub, function)                                                              \
  }                                                                                                   \
  namespace at::native {                                                                              \
  REGISTER_PRIVATEUSE1_DISPATCH(stub, function)                                                       \
  }                                                                                                   \
  namespace fl::bridge {

// A stub whose kernel takes the iterator alone.
#define STUB(stub, name, ...)                                                                         \
  FORMULA(stub, name, __VA_ARGS__)                                                                    \
  namespace stub##_fl {                                                                               \
  constexpr auto kernel = [](auto& iter) {                                                            \
    if (!run_iterator(op, iter))                                                                      \
      run_on_host(op.op, iter, [](at::TensorIterator& host) { at::native::stub(at::kCPU, host); });   \
  };                                                                                                  \
  }                                                                                                   \
  FL_REGISTER_STUB(stub, ::fl::bridge::stub##_fl::kernel)

// A stub whose kernel takes numbers too: `parameters` is their parenthesised
// list, `arguments` their names, `scalars` what the formula sees behind the inputs.
#define STUB_WITH(stub, name, parameters, arguments, scalars, ...)                                    \
  FORMULA(stub, name, __VA_ARGS__)                                                                    \
  namespace stub##_fl {                                                                               \
  constexpr auto kernel = [](auto& iter, FL_UNPAREN parameters) {                                     \
    const at::Scalar numbers[] = {FL_UNPAREN scalars};                                                \
    for (const at::Scalar& number : numbers) check_fits(number, iter.dtype(0));                       \
    if (!run_iterator(op, iter, numbers, static_cast<int>(std::size(numbers))))                       \
      run_on_host(op.op, iter, [&](at::TensorIterator& host) {                                        \
        at::native::stub(at::kCPU, host, FL_UNPAREN arguments);                                       \
      });                                                                                             \
  };                                                                                                  \
  }                                                                                                   \
  FL_REGISTER_STUB(stub, ::fl::bridge::stub##_fl::kernel)

#define FL_UNPAREN(...) __VA_ARGS__

// The .out form of a structured operator that runs through a stub; its
// functional and in-place forms are PyTorch's own.
#define OUT(op, overload) \
  m.impl(#op "." #overload, static_cast<at::_ops::op##_##overload::schema*>(&at::cpu::op##_outf));
// An operator whose implementation in at::native serves any device through a stub.
#define NATIVE(op, overload, function) \
  m.impl(#op "." #overload, static_cast<at::_ops::op##_##overload::schema*>(&at::native::function));
#define NATIVE0(op, function) m.impl(#op, static_cast<at::_ops::op::schema*>(&at::native::function));
// clang-format on

}  // namespace fl::bridge
