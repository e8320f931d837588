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

#include "bridge/iterator.h"
#include "bridge/ops/programs.h"
#include "program/expr.h"

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

// Scale, zero point (broadcast to the input) and whether to do it at all are on the device.
void quantize_if(Call& call, const Tensor& output, const Tensor& mask, const Tensor& input,
                 const Tensor& scale, const Tensor& zero, const Tensor& enabled, int64_t low, int64_t high) {
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
  if (!run_program(call, program, {&output, &mask}, {&input, &scale, &zero, &enabled},
                   {number(low), number(high)}))
    throw_refused(call, "pointwise", input.scalar_type());
}
Tensor first(const Tensor& t) { return t.reshape({-1}).narrow(0, 0, 1); }

void per_tensor_on_device(Tensor& output, Tensor& mask, const Tensor& input, const Tensor& scale,
                          const Tensor& zero, const Tensor& enabled, int64_t low, int64_t high) {
  static Op op("aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams");
  Call call(op, output);
  quantize_if(call, output, mask, input, first(scale), first(zero), first(enabled), low, high);
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

// ------------------------------------------------ an observer and what it scales
// Scale and zero point from a range, by the rules of FBGEMM's ChooseQuantizationParams: the range contains 0,
// a scale has an inverse in float and is no smaller than kLeastScale, and 0 is a level.
constexpr float kLeastScale = 6.1e-5f;

struct Choice {
  Expr scale, zero;
};
// What it needs of the bounds, as a launch's scalars.
enum Bound { kLeast, kMost, kLevels, kAbove, kBelow, kSpan };
std::array<fl_scalar, 6> bounds(int64_t least, int64_t most) {
  const int64_t above = (most - least) / 2;
  return {number(least), number(most),       number(most - least),
          number(above), number(-above - 1), scalar_f(kLeastScale * static_cast<float>(most - least))};
}
Choice choose(Builder& b, Expr low, Expr high, bool symmetric) {
  const uint8_t type = low.type();
  auto in_float = [&](Expr x) { return x.cast(FL_F32).cast(type); };
  auto bound = [&](Bound which, uint8_t as) { return Expr{&b, b.scalar(which, as)}; };
  auto both_sides = [&] { return (low < 0) & (high > 0); };
  Expr least = bound(kLeast, type), most = bound(kMost, type), span = bound(kSpan, type);
  if (symmetric) {
    Expr both = both_sides();
    auto unit = [&](Expr x, Bound end) { return abs((x.cast(FL_F32) / bound(end, FL_F32)).cast(type)); };
    Expr widest = max(unit(low, kBelow), unit(high, kAbove));
    low = select(both, in_float(widest * bound(kBelow, type)), low);
    high = select(both, in_float(widest * bound(kAbove, type)), high);
  }
  low = min(low, 0);
  high = max(high, 0);
  Expr scale = (high - low) / bound(kLevels, type), single = scale.cast(FL_F32);
  scale = select((single == 0) | (abs(reciprocal(single)) == std::numeric_limits<double>::infinity()),
                 scale.like(0.1), scale);
  // A scale below the least one widens the range.
  Expr small = scale < kLeastScale, wider = (double{kLeastScale} / scale.cast(FL_F32)).cast(type);
  Expr wide_high = select(low == 0, span, select(high == 0, high, in_float(high * wider)));
  Expr wide_low = select(low == 0, low, select(high == 0, -span, in_float(low * wider)));
  low = select(small, wide_low, low);
  high = select(small, wide_high, high);
  scale = select(small, scale.like(kLeastScale), scale);
  // From the end whose terms are smaller.
  Expr from_low = low / scale, from_high = high / scale;
  Expr zero =
      select(abs(least) - abs(from_low) < abs(most) - abs(from_high), least - from_low, most - from_high);
  if (symmetric) zero = select(both_sides(), (least + most) / 2, zero);
  return {scale, round(min(max(zero, least), most))};
}

// Moving averages of the smallest and largest value, and what is quantized with them.  The flags stay on the
// device: what is switched off is computed and dropped.
std::tuple<Tensor, Tensor> moving_average_quantize(const Tensor& self, const Tensor& observer_on,
                                                   const Tensor& quantizer_on, Tensor& running_min,
                                                   Tensor& running_max, Tensor& scale, Tensor& zero,
                                                   double averaging, int64_t least, int64_t most,
                                                   int64_t axis, bool per_row, bool symmetric) {
  static Op op("aten::_fused_moving_avg_obs_fq_helper");
  static Programs averages, choices;
  TORCH_CHECK(!per_row || axis == 0, op.name,
              ": quantization by channel is along axis 0, but got ch_axis=", axis);
  TORCH_CHECK(at::isFloatingType(self.scalar_type()), op.name, ": expected a floating-point input, but got ",
              self.scalar_type());
  TORCH_CHECK(least < most, op.name, ": quant_min should be less than quant_max, but got ", least, " and ",
              most);
  Call call(op, self);
  call.composed();
  if (per_row && running_min.numel() == 0) {
    const int64_t rows = self.size(0);
    running_min.resize_({rows}).fill_(std::numeric_limits<double>::infinity());
    running_max.resize_({rows}).fill_(-std::numeric_limits<double>::infinity());
    scale.resize_({rows});
    zero.resize_({rows});
  }
  const int64_t channels = per_row ? self.size(0) : 1;
  for (const Tensor* t : {&running_min, &running_max, &scale, &zero})
    TORCH_CHECK(t->numel() == channels, op.name, ": expected ", channels,
                " running minima, maxima, scales and zero points for an input of size ", self.sizes(),
                ", but got ", t->numel());
  Tensor min = running_min.view({-1}), max = running_max.view({-1}), s = scale.view({-1}),
         z = zero.view({-1}), observe = first(observer_on), quantize = first(quantizer_on);
  if (self.numel() != 0 || observer_on.item<bool>()) {
    auto [low, high] = per_row ? at::aminmax(self.flatten(1), 1) : at::aminmax(self);
    const uint8_t memory = dtype_of(min), from = dtype_of(low), on = dtype_of(observe);
    const fl_program* program = averages.get(key_of(memory, from, on), [&](Builder& b) {
      Expr go{&b, b.load(4, on, FL_BOOL)}, weight{&b, b.scalar(0, memory)};
      for (int i : {0, 1}) {
        Expr running{&b, b.load(i, memory)}, now{&b, b.load(2 + i, from, memory)};
        Expr next = select(abs(running) == std::numeric_limits<double>::infinity(), now,
                           running + weight * (now - running));
        b.store(i, select(go, next, running).v, memory);
      }
    });
    Tensor l = low.view({-1}), h = high.view({-1});
    if (!run_program(call, program, {&min, &max}, {&min, &max, &l, &h, &observe}, {scalar_f(averaging)}))
      throw_refused(call, "pointwise", min.scalar_type());
  }
  const uint8_t memory = dtype_of(min), ts = dtype_of(s), tz = dtype_of(z), on = dtype_of(quantize),
                type = call.claims(FL_ENTRY_POINTWISE, FL_OP_DIV, FL_F64) ? FL_F64 : FL_F32;
  const fl_program* program = choices.get(key_of(memory, ts, tz, on, type, symmetric), [&](Builder& b) {
    Expr go{&b, b.load(2, on, FL_BOOL)}, scale_{&b, b.load(3, ts, type)}, zero_{&b, b.load(4, tz, FL_I64)};
    Choice c = choose(b, {&b, b.load(0, memory, type)}, {&b, b.load(1, memory, type)}, symmetric);
    b.store(0, select(go, c.scale, scale_).v, ts);
    b.store(1, select(go, c.zero.cast(FL_I64), zero_).v, tz);
  });
  auto q = bounds(least, most);
  if (!run_program(call, program, {&s, &z}, {&min, &max, &quantize, &s, &z},
                   {q[0], q[1], q[2], q[3], q[4], q[5]}))
    throw_refused(call, "pointwise", min.scalar_type());
  Tensor output = at::empty_like(self), mask = at::empty_like(self, self.options().dtype(at::kBool));
  at::DimVector shape(per_row ? self.dim() : 1, 1);
  shape[0] = channels;
  quantize_if(call, output, mask, self, s.view(shape), z.view(shape), quantize, least, most);
  return {output, mask};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_moving_avg_obs_fq_helper", moving_average_quantize);
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
