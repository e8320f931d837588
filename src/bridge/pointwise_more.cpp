// Elementwise operators that a formula over one iterator does not cover: two outputs, or the bits of a half.
#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <ATen/native/Activation.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/native/UnaryOps.h>

#include <cmath>

#include "bridge/iterator.h"
#include "bridge/ops/programs.h"

namespace fl::bridge {

using namespace at::native;

// An operand of the iterator on its device.
static Tensor on_device(const at::TensorIteratorBase& iter, int operand, ScalarType dtype) {
  const Tensor& t = iter.tensor(operand);
  return t.device() == iter.device(0) ? t : t.to(iter.device(0), dtype);
}

// x = mantissa × 2**exponent.
static bool frexp(Op& op, at::TensorIteratorBase& iter) {
  static Programs programs;
  if (iter.numel() == 0) return true;
  Call call(op, iter.device(0));
  const Tensor &mantissa = iter.tensor(0), &exponent = iter.tensor(1), &x = iter.tensor(2);
  uint8_t memory = dtype_of(x), to = dtype_of(mantissa), whole = dtype_of(exponent);
  const fl_program* program = programs.get(key_of(memory, to, whole), [&](Builder& b) {
    Expr v{&b, b.load(0, memory)};
    b.store(0, apply(FL_OP_FREXP_MANTISSA, v).cast(register_type(to)).v, to);
    b.store(1, apply(FL_OP_FREXP_EXPONENT, v).cast(register_type(whole)).v, whole);
  });
  return run_program(call, program, {&mantissa, &exponent}, {&x});
}
static void frexp_kernel(at::TensorIteratorBase& iter) {
  static Op op("aten::frexp");
  if (!frexp(op, iter)) run_on_host(op, iter, [](at::TensorIterator& host) { frexp_stub(at::kCPU, host); });
}

static bool prelu_backward(Op& op, at::TensorIteratorBase& iter) {
  static Programs programs;
  if (iter.numel() == 0) return true;
  Call call(op, iter.device(0));
  const Tensor &to_self = iter.tensor(0), &to_weight = iter.tensor(1), &self = iter.tensor(2),
               &weight = iter.tensor(3), &grad = iter.tensor(4);
  uint8_t memory = dtype_of(self);
  const fl_program* program = programs.get(memory, [&](Builder& b) {
    Expr x{&b, b.load(0, memory)}, w{&b, b.load(1, memory)}, g{&b, b.load(2, memory)};
    b.store(0, select(x > 0, g, w * g).v, memory);
    b.store(1, select(x > 0, x.like(0), x * g).v, memory);
  });
  return run_program(call, program, {&to_self, &to_weight}, {&self, &weight, &grad});
}
static void prelu_backward_kernel(at::TensorIterator& iter) {
  static Op op("aten::_prelu_kernel_backward");
  if (!prelu_backward(op, iter))
    run_on_host(op, iter, [](at::TensorIterator& host) { prelu_backward_stub(at::kCPU, host); });
}

// nextafter by the bits of a number, which grow with its magnitude: for halves, of which a register has none,
// and where the chip lacks the opcode.
struct Bits {
  ScalarType integer;
  uint8_t dtype;
  int count;
  double nan;
};
static bool next_bits(Call& call, at::TensorIteratorBase& iter, const Bits& bits) {
  static Programs programs;
  ScalarType common = iter.common_dtype();
  uint8_t dtype = to_dtype(common);
  Tensor x = on_device(iter, 1, common).to(common), y = on_device(iter, 2, common).to(common);
  Tensor out =
      iter.dtype(0) == common ? iter.tensor(0) : empty_like(iter.tensor(0), iter.tensor(0).sizes(), common);
  Tensor x_bits = x.view(bits.integer), y_bits = y.view(bits.integer), out_bits = out.view(bits.integer);
  const fl_program* program = programs.get(dtype, [&](Builder& b) {
    Expr a{&b, b.load(0, dtype)}, c{&b, b.load(1, dtype)};
    Expr p{&b, b.load(2, bits.dtype)}, q{&b, b.load(3, bits.dtype)};
    Expr sign = q & -std::ldexp(1.0, bits.count - 1), away = (a < c) == (a > 0);
    Expr step = select(a == 0, sign | 1.0, select(away, p + 1.0, p - 1.0));
    b.store(0, select(is_nan(a) | is_nan(c), p.like(bits.nan), select(a == c, q, step)).v, bits.dtype);
  });
  if (!run_program(call, program, {&out_bits}, {&x, &y, &x_bits, &y_bits})) return false;
  if (!out.is_same(iter.tensor(0))) copy_step(iter.tensor(0), out);
  return true;
}
FORMULA(nextafter_real, "aten::nextafter", apply(FL_OP_NEXTAFTER, x, y))
static void nextafter_kernel(at::TensorIteratorBase& iter) {
  Op& op = nextafter_real_fl::op.op;
  bool done = iter.numel() == 0;
  const bool half = !done && at::isReducedFloatingType(iter.common_dtype());
  if (!done && !half) done = run_iterator(nextafter_real_fl::op, iter);
  if (!done && (half || iter.common_dtype() == at::kFloat)) {
    Call call(op, iter.device(0));
    if (!half) call.composed();
    const double nan = iter.common_dtype() == at::kHalf ? 0x7e00 : half ? 0x7fc0 : 0x7fc00000;
    done = next_bits(call, iter, half ? Bits{at::kShort, FL_I16, 16, nan} : Bits{at::kInt, FL_I32, 32, nan});
  }
  if (!done) run_on_host(op, iter, [](at::TensorIterator& host) { nextafter_stub(at::kCPU, host); });
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { NATIVE(mvlgamma, out, mvlgamma_out) }

}  // namespace fl::bridge

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(frexp_stub, &fl::bridge::frexp_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(prelu_backward_stub, &fl::bridge::prelu_backward_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(nextafter_stub, &fl::bridge::nextafter_kernel)
}  // namespace at::native
