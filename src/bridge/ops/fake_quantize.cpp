// Fake quantization: rounding to the values that a quantized tensor can hold, and
// the gradients through it.  Programs; PyTorch's own functions check and allocate.
#include <ATen/native/quantized/FakeQuantAffine.h>
#include <ATen/ops/_fake_quantize_learnable_per_channel_affine_backward_native.h>
#include <ATen/ops/_fake_quantize_learnable_per_channel_affine_native.h>
#include <ATen/ops/_fake_quantize_learnable_per_tensor_affine_backward_native.h>
#include <ATen/ops/_fake_quantize_learnable_per_tensor_affine_native.h>
#include <ATen/ops/_fake_quantize_per_tensor_affine_cachemask_tensor_qparams_native.h>
#include <ATen/ops/fake_quantize_per_channel_affine_cachemask_native.h>
#include <ATen/ops/fake_quantize_per_tensor_affine_cachemask_native.h>

#include "bridge/expr.h"
#include "bridge/iterator.h"
#include "bridge/ops/programs.h"

namespace fl::bridge {
namespace {

// The steps of a value: its level before and after clamping, whether it was within.
struct Levels {
  Expr level, clamped, within;
  // zero_first: the zero point joins in before rounding, which differs for what lies half way.
  Levels(Expr x, Expr inverse, Expr zero, Expr low, Expr high, bool zero_first = false)
      : level(zero_first ? round(zero + x * inverse) : zero + round(x * inverse)),
        clamped(min(max(level, low), high)),
        within((low <= level) & (level <= high)) {}
};

using Scalars = std::initializer_list<fl_scalar>;

void launch(Op& op, const fl_program* program, std::initializer_list<const Tensor*> out,
            std::initializer_list<const Tensor*> in, Scalars scalars) {
  Call call(op, **out.begin());
  if (!run_program(call, program, out, in, scalars))
    throw_refused(call, "pointwise", (*out.begin())->scalar_type());
}
fl_scalar number(int64_t value) { return scalar_f(static_cast<double>(value)); }

void per_tensor(Tensor& output, Tensor& mask, const Tensor& input, float scale, int64_t zero, int64_t low,
                int64_t high) {
  static Op op("aten::fake_quantize_per_tensor_affine_cachemask");
  static Programs programs;
  const uint8_t memory = dtype_of(input), type = to_register(input.scalar_type());
  const fl_program* program = programs.get(key_of(memory), [&](Builder& b) {
    auto s = [&](int i) { return Expr{&b, b.scalar(i, type)}; };
    Levels levels(Expr{&b, b.load(0, memory)}, s(1), s(2), s(3), s(4));
    Expr scale_{&b, b.scalar(0, FL_F32)};  // this product is float's, whatever the input is
    b.store(0, ((levels.clamped - s(2)).cast(FL_F32) * scale_).cast(type).v, memory);
    b.store(1, levels.within.v, FL_BOOL);
  });
  launch(op, program, {&output, &mask}, {&input},
         {scalar_f(scale), scalar_f(1.0f / scale), number(zero), number(low), number(high)});
}

// Scale, zero point and whether to do it at all are on the device.
void per_tensor_on_device(Tensor& output, Tensor& mask, const Tensor& input, const Tensor& scale,
                          const Tensor& zero, const Tensor& enabled, int64_t low, int64_t high) {
  static Op op("aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams");
  static Programs programs;
  const uint8_t memory = dtype_of(input), type = to_register(input.scalar_type());
  const fl_program* program =
      programs.get(key_of(memory, dtype_of(scale), dtype_of(zero), dtype_of(enabled)), [&](Builder& b) {
        Expr x{&b, b.load(0, memory)}, scale_{&b, b.load(1, dtype_of(scale), FL_F32)},
            zero_{&b, b.load(2, dtype_of(zero), FL_I64)}, on{&b, b.load(3, dtype_of(enabled), FL_BOOL)};
        Expr low_{&b, b.scalar(0, type)}, high_{&b, b.scalar(1, type)}, z = zero_.cast(type);
        Levels levels(x, (1.0 / scale_).cast(type), z, low_, high_);
        b.store(0, select(on, ((levels.clamped - z).cast(FL_F32) * scale_).cast(type), x).v, memory);
        b.store(1, (levels.within | !on).v, FL_BOOL);
      });
  Tensor s = scale.reshape({-1}).narrow(0, 0, 1), z = zero.reshape({-1}).narrow(0, 0, 1),
         e = enabled.reshape({-1}).narrow(0, 0, 1);
  launch(op, program, {&output, &mask}, {&input, &s, &z, &e}, {number(low), number(high)});
}

// The gradients of value, scale and zero point.
void store_gradients(Builder& b, Expr x, Expr grad, Expr scale, Expr inverse, Expr zero, Expr low, Expr high,
                     Expr factor, uint8_t memory) {
  Levels levels(x, inverse, zero, low, high, true);
  Expr none = x.like(0), value = ((levels.clamped - zero) * scale).cast(FL_F32).cast(x.type());
  Expr outside = grad * (select(levels.level < low, low, high) - zero) * factor;
  b.store(0, select(levels.within, grad, none).v, memory);
  b.store(1, select(levels.within, grad * (value - x) * inverse * factor, outside).v, memory);
  b.store(2, select(levels.within, none, -(grad * scale * factor)).v, memory);
}

void gradients_per_tensor(at::TensorIterator& iter, float scale, float inverse, int64_t zero, int64_t low,
                          int64_t high, float factor) {
  static Op op("aten::_fake_quantize_learnable_per_tensor_affine_backward");
  static Programs programs;
  Tensor dx = iter.tensor(0), dscale = iter.tensor(1), dzero = iter.tensor(2), x = iter.tensor(3),
         grad = iter.tensor(4);
  const uint8_t memory = dtype_of(x), type = to_register(x.scalar_type());
  const fl_program* program = programs.get(key_of(memory), [&](Builder& b) {
    auto s = [&](int i) { return Expr{&b, b.scalar(i, type)}; };
    store_gradients(b, {&b, b.load(0, memory)}, {&b, b.load(1, memory)}, s(0), s(1), s(2), s(3), s(4), s(5),
                    memory);
  });
  launch(op, program, {&dx, &dscale, &dzero}, {&x, &grad},
         {scalar_f(scale), scalar_f(inverse), number(zero), number(low), number(high), scalar_f(factor)});
}

void gradients_per_channel(at::TensorIterator& iter, int64_t low, int64_t high, float factor) {
  static Op op("aten::_fake_quantize_learnable_per_channel_affine_backward");
  static Programs programs;
  Tensor dx = iter.tensor(0), dscale = iter.tensor(1), dzero = iter.tensor(2), x = iter.tensor(3),
         grad = iter.tensor(4), scale = iter.tensor(5), zero = iter.tensor(6);
  const uint8_t memory = dtype_of(x), type = to_register(x.scalar_type());
  const fl_program* program = programs.get(key_of(memory, dtype_of(scale), dtype_of(zero)), [&](Builder& b) {
    auto s = [&](int i) { return Expr{&b, b.scalar(i, type)}; };
    Expr scale_{&b, b.load(2, dtype_of(scale), type)},
        zero_ = Expr{&b, b.load(3, dtype_of(zero), FL_I64)}.cast(type);
    store_gradients(b, {&b, b.load(0, memory)}, {&b, b.load(1, memory)}, scale_, 1.0 / scale_, zero_, s(0),
                    s(1), s(2), memory);
  });
  launch(op, program, {&dx, &dscale, &dzero}, {&x, &grad, &scale, &zero},
         {number(low), number(high), scalar_f(factor)});
}

void per_channel(at::TensorIterator& iter, at::TensorIterator& iter_mask, int64_t low, int64_t high) {
  static Op op("aten::fake_quantize_per_channel_affine_cachemask");
  static Programs programs;
  Tensor output = iter.tensor(0), x = iter.tensor(1), scale = iter.tensor(2), zero = iter.tensor(3),
         mask = iter_mask.tensor(0);
  const uint8_t memory = dtype_of(x), type = to_register(x.scalar_type());
  const bool float_zero = at::isFloatingType(zero.scalar_type());
  const fl_program* program = programs.get(key_of(memory, dtype_of(scale), dtype_of(zero)), [&](Builder& b) {
    Expr scale_{&b, b.load(1, dtype_of(scale), type)},
        zero_ = float_zero ? Expr{&b, b.load(2, dtype_of(zero), type)}
                           : Expr{&b, b.load(2, dtype_of(zero), FL_I64)}.cast(type);
    Levels levels({&b, b.load(0, memory)}, 1.0 / scale_, zero_, {&b, b.scalar(0, type)},
                  {&b, b.scalar(1, type)}, float_zero);
    b.store(0, ((levels.clamped - zero_) * scale_).v, memory);
    b.store(1, levels.within.v, FL_BOOL);
  });
  launch(op, program, {&output, &mask}, {&x, &scale, &zero}, {number(low), number(high)});
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  NATIVE0(fake_quantize_per_tensor_affine_cachemask, fake_quantize_per_tensor_affine_cachemask)
  NATIVE0(_fake_quantize_per_tensor_affine_cachemask_tensor_qparams,
          _fake_quantize_per_tensor_affine_cachemask_tensor_qparams)
  NATIVE0(fake_quantize_per_channel_affine_cachemask, fake_quantize_per_channel_affine_cachemask)
  NATIVE0(_fake_quantize_learnable_per_tensor_affine, _fake_quantize_learnable_per_tensor_affine)
  NATIVE0(_fake_quantize_learnable_per_tensor_affine_backward,
          _fake_quantize_learnable_per_tensor_affine_backward)
  NATIVE0(_fake_quantize_learnable_per_channel_affine, _fake_quantize_learnable_per_channel_affine)
  NATIVE0(_fake_quantize_learnable_per_channel_affine_backward,
          _fake_quantize_learnable_per_channel_affine_backward)
}

}  // namespace

constexpr auto fake_per_tensor_fl = per_tensor;
constexpr auto fake_per_tensor_on_device_fl = per_tensor_on_device;
constexpr auto fake_gradients_per_tensor_fl = gradients_per_tensor;
constexpr auto fake_per_channel_fl = per_channel;
constexpr auto fake_gradients_per_channel_fl = gradients_per_channel;
}  // namespace fl::bridge

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(fake_quant_tensor_cachemask_stub, fl::bridge::fake_per_tensor_fl)
REGISTER_PRIVATEUSE1_DISPATCH(fake_quant_tensor_cachemask_tensor_qparams_stub,
                              fl::bridge::fake_per_tensor_on_device_fl)
REGISTER_PRIVATEUSE1_DISPATCH(fake_quant_grad_learnable_tensor_stub, fl::bridge::fake_gradients_per_tensor_fl)
REGISTER_PRIVATEUSE1_DISPATCH(fake_quant_per_channel_cachemask_stub, fl::bridge::fake_per_channel_fl)
REGISTER_PRIVATEUSE1_DISPATCH(fake_quant_grad_learnable_channel_stub,
                              fl::bridge::fake_gradients_per_channel_fl)
}  // namespace at::native
