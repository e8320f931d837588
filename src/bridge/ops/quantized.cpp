// Quantized tensors: making them, taking them apart, moving them.  Their elements
// are integers to the chip; scales and zero points are the quantizer's, on the host.
#include "bridge/ops/quantized.h"

#include <ATen/native/quantized/AffineQuantizer.h>
#include <ATen/ops/_empty_affine_quantized_native.h>
#include <ATen/ops/_empty_per_channel_affine_quantized_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/clone_native.h>
#include <ATen/ops/dequantize_native.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/empty_native.h>
#include <ATen/ops/empty_quantized_native.h>
#include <ATen/ops/empty_strided_native.h>
#include <ATen/ops/q_per_channel_axis_native.h>
#include <ATen/ops/q_per_channel_scales_native.h>
#include <ATen/ops/q_per_channel_zero_points_native.h>
#include <ATen/ops/q_scale_native.h>
#include <ATen/ops/q_zero_point_native.h>
#include <ATen/ops/qscheme_native.h>
#include <ATen/ops/quantize_per_channel_native.h>
#include <ATen/ops/quantize_per_tensor_dynamic_native.h>
#include <ATen/ops/quantize_per_tensor_native.h>
#include <ATen/ops/squeeze_native.h>
#include <ATen/ops/unsqueeze_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>
#include <c10/core/DeviceGuard.h>

#include "bridge/fallback.h"
#include "bridge/ops/programs.h"
#include "program/expr.h"

namespace fl::bridge {

Tensor integers_of(const Tensor& quantized) {
  ScalarType type = at::toUnderlying(quantized.scalar_type());
  TORCH_CHECK(quantized.scalar_type() == at::kQInt8 || quantized.scalar_type() == at::kQUInt8 ||
                  quantized.scalar_type() == at::kQInt32,
              "quantized tensors on ", kDevice, " are qint8, quint8 or qint32, not ",
              quantized.scalar_type());
  c10::DispatchKey key = is_fl(quantized) ? c10::DispatchKey::PrivateUse1 : c10::DispatchKey::CPU;
  Tensor t = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(quantized.storage()), c10::DispatchKeySet(key), c10::scalarTypeToTypeMeta(type));
  t.unsafeGetTensorImpl()->set_storage_offset(quantized.storage_offset());
  t.unsafeGetTensorImpl()->set_sizes_and_strides(quantized.sizes(), quantized.strides());
  return t;
}

namespace {

// ---------------------------------------------------------- float ↔ quantized
// scale and zero point: launch scalars, or one a channel as tensors that broadcast.
struct Parameters {
  double scale = 1;
  int64_t zero_point = 0;
  Tensor scales, zero_points;
  bool float_zero_points = false;
};

Parameters per_channel(const Tensor& like, const Tensor& scales, const Tensor& zero_points, int64_t axis,
                       bool float_zero_points) {
  at::DimVector sizes(static_cast<size_t>(like.dim()), 1);
  sizes[static_cast<size_t>(axis)] = scales.numel();
  Parameters p;
  p.scales = scales.to(like.device(), at::kFloat).contiguous().view(sizes);
  p.zero_points =
      zero_points.to(like.device(), float_zero_points ? at::kFloat : at::kInt).contiguous().view(sizes);
  p.float_zero_points = float_zero_points;
  return p;
}

// 32-bit values need sums in 64 bits.
uint8_t integer_register(ScalarType type) { return type == at::kInt ? FL_I64 : FL_I32; }

struct Formula {
  Expr scale, zero_point;  // F32; integer, or F32
  Formula(Builder& b, const Parameters& p, uint8_t integer)
      : scale{&b, p.scales.defined() ? b.load(1, FL_F32) : b.scalar(0, FL_F32)} {
    if (!p.scales.defined()) zero_point = {&b, b.scalar(1, integer)};
    else if (p.float_zero_points) zero_point = {&b, b.load(2, FL_F32)};
    else zero_point = {&b, b.load(2, FL_I32, integer)};
  }
};

void launch(Op& op, const fl_program* program, const Tensor& out, const Tensor& in, const Parameters& p) {
  Call call(op, out);
  fl_scalar scale = scalar_f(static_cast<float>(p.scale)), zero_point = scalar_i(p.zero_point);
  bool done = p.scales.defined() ? run_program(call, program, {&out}, {&in, &p.scales, &p.zero_points})
                                 : run_program(call, program, {&out}, {&in}, {scale, zero_point});
  if (!done) throw_refused(call, "pointwise", out.scalar_type());
}

void quantize(Op& op, const Tensor& from, const Tensor& quantized, const Parameters& p) {
  static Programs programs;
  Tensor out = integers_of(quantized), in = from.to(at::kFloat);
  const uint8_t memory = dtype_of(out), integer = integer_register(out.scalar_type());
  const fl_program* program =
      programs.get(key_of(memory, p.scales.defined(), p.float_zero_points), [&](Builder& b) {
        Formula f(b, p, integer);
        Expr x{&b, b.load(0, FL_F32)};
        const double low = memory == FL_U8 ? 0 : memory == FL_I8 ? -128 : -2147483648.0;
        const double high = memory == FL_U8 ? 255 : memory == FL_I8 ? 127 : 2147483647.0;
        // Far beyond the dtype's range and well within the register's.
        const double far = integer == FL_I64 ? 1e12 : 1e8;
        Expr inverse = 1.0 / f.scale;
        if (p.float_zero_points) inverse = select(f.scale == 0, f.scale.like(1), inverse);
        // What lies half way goes to the even level, or, before the zero point has joined, to the even
        // multiple.
        Expr zero = f.zero_point.cast(FL_F32);
        Expr level = p.float_zero_points || kZeroPointBeforeRounding ? round(x * inverse + zero)
                                                                     : round(x * inverse) + zero;
        Expr q = min(max(level, -far), far).cast(integer);
        b.store(0, min(max(q, low), high).v, memory);
      });
  launch(op, program, out, in, p);
}

void dequantize(Op& op, const Tensor& quantized, const Tensor& to, const Parameters& p) {
  static Programs programs;
  Tensor in = integers_of(quantized);
  const uint8_t memory = dtype_of(in), integer = integer_register(in.scalar_type());
  const fl_program* program =
      programs.get(key_of(memory, p.scales.defined(), p.float_zero_points), [&](Builder& b) {
        Formula f(b, p, integer);
        Expr q{&b, b.load(0, memory, integer)};
        Expr distance = p.float_zero_points ? q.cast(FL_F32) - f.zero_point : (q - f.zero_point).cast(FL_F32);
        b.store(0, (distance * f.scale).v, FL_F32);
      });
  launch(op, program, to, in, p);
}

Parameters per_tensor(double scale, int64_t zero_point) {
  Parameters p;
  p.scale = scale, p.zero_point = zero_point;
  return p;
}

Op quantize_op("aten::quantize_per_tensor"), quantize_channels_op("aten::quantize_per_channel"),
    dequantize_op("aten::dequantize.self");

void quantize_tensor(const Tensor& from, Tensor& to, double scale, int64_t zero_point) {
  quantize(quantize_op, from, to, per_tensor(scale, zero_point));
}
void dequantize_tensor(const Tensor& from, Tensor& to, double scale, int64_t zero_point) {
  dequantize(dequantize_op, from, to, per_tensor(scale, zero_point));
}
template <bool kFloatZeroPoints>
void quantize_channels(const Tensor& from, Tensor& to, const Tensor& scales, const Tensor& zero_points,
                       int64_t axis) {
  quantize(quantize_channels_op, from, to, per_channel(from, scales, zero_points, axis, kFloatZeroPoints));
}
template <bool kFloatZeroPoints>
void dequantize_channels(const Tensor& from, Tensor& to, const Tensor& scales, const Tensor& zero_points,
                         int64_t axis) {
  dequantize(dequantize_op, from, to, per_channel(from, scales, zero_points, axis, kFloatZeroPoints));
}

// ------------------------------------------------------------------ integers
Tensor int_repr(const Tensor& self) {
  static Op op("aten::int_repr");
  Call call(op, self);
  call.composed();
  return integers_of(self).clone();
}

Tensor make_per_tensor(const Tensor& self, double scale, int64_t zero_point) {
  static Op op("aten::_make_per_tensor_quantized_tensor");
  Call call(op, self);
  call.composed();
  Tensor out = at::_empty_affine_quantized(
      self.sizes(), self.options().dtype(at::toQIntType(self.scalar_type())), scale, zero_point);
  copy_step(integers_of(out), self);
  return out;
}

Tensor make_per_channel(const Tensor& self, const Tensor& scales, const Tensor& zero_points, int64_t axis) {
  static Op op("aten::_make_per_channel_quantized_tensor");
  Call call(op, self);
  call.composed();
  Tensor out = at::_empty_per_channel_affine_quantized(
      self.sizes(), scales, zero_points, axis, self.options().dtype(at::toQIntType(self.scalar_type())));
  copy_step(integers_of(out), self);
  return out;
}

bool equal(const Tensor& self, const Tensor& other) {
  static Op op("aten::equal");
  if (!other.is_quantized() || self.sizes() != other.sizes() || self.scalar_type() != other.scalar_type())
    return false;
  Call call(op, self);
  call.composed();
  if (!at::get_qtensorimpl(self)->quantizer()->equalTo(at::get_qtensorimpl(other)->quantizer())) return false;
  return at::equal(integers_of(self), integers_of(other));
}

// The same elements in other places: their integers are moved.
template <class Move>
Tensor moved(Op& op, const Tensor& self, Move&& move) {
  TORCH_CHECK(self.qscheme() == at::kPerTensorAffine, op.name, " takes tensors quantized per tensor, not ",
              c10::toString(self.qscheme()));
  return at::_make_per_tensor_quantized_tensor(move(integers_of(self)), self.q_scale(), self.q_zero_point());
}
Tensor flip(const Tensor& self, IntArrayRef dims) {
  static Op op("aten::flip");
  return moved(op, self, [&](const Tensor& integers) { return integers.flip(dims); });
}
Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  static Op op("aten::index_select");
  return moved(op, self, [&](const Tensor& integers) { return integers.index_select(dim, index); });
}

// ---------------------------------------------------------------------- copies
// The quantizer of `from`, for a tensor on another device.
at::QuantizerPtr quantizer_on(const Tensor& from, c10::Device device) {
  if (from.qscheme() == at::kPerTensorAffine)
    return at::make_per_tensor_affine_quantizer(from.q_scale(), from.q_zero_point(), from.scalar_type());
  return at::make_per_channel_affine_quantizer(from.q_per_channel_scales().to(device),
                                               from.q_per_channel_zero_points().to(device),
                                               from.q_per_channel_axis(), from.scalar_type());
}

Tensor copy_from(const Tensor& self, const Tensor& dst, bool non_blocking) {
  TORCH_CHECK(
      dst.is_quantized(),
      "Copying from quantized Tensor to non-quantized Tensor is not allowed, please use dequantize to get "
      "a float Tensor from a quantized Tensor");
  if (!self.is_quantized()) {
    TORCH_CHECK(self.scalar_type() == at::kFloat, "Quantized copy only works with kFloat as source Tensor");
    Tensor there = self.to(dst.device());
    Tensor made = at::get_qtensorimpl(dst)->quantizer()->quantize(there.expand(dst.sizes()));
    integers_of(dst).copy_(integers_of(made), non_blocking);
    return dst;
  }
  TORCH_CHECK(self.qscheme() == dst.qscheme(), "Quantized Copy only works with same qscheme");
  TORCH_CHECK(self.scalar_type() == dst.scalar_type(), "Quantized copy only works with the same dtype, not ",
              self.scalar_type(), " and ", dst.scalar_type());
  at::set_quantizer_(dst, quantizer_on(self, dst.device()));
  integers_of(dst).copy_(integers_of(self), non_blocking);
  return dst;
}

Tensor copy_from_and_resize(const Tensor& self, const Tensor& dst) {
  TORCH_CHECK(dst.sizes() == self.sizes(), "a quantized tensor of ", dst.sizes(), " does not take one of ",
              self.sizes());
  return copy_from(self, dst, false);
}

// Everything else.
void refuse(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, op.schema().operator_name(), " is not there for quantized tensors on ",
                              kDevice, ": use dequantize() before it, or .cpu()");
}
// Each quantized tensor is made by an operator that calls this.
void refuse_elsewhere() {
  static const bool done [[maybe_unused]] = [] {
    set_fallback(c10::DispatchKey::QuantizedPrivateUse1,
                 torch::CppFunction::makeFromBoxedFunction<&refuse>());
    return true;
  }();
}

// PyTorch's functions allocate on the current device: it is the tensor's, or the one asked for, here.
template <class T>
void find_device(std::optional<c10::Device>&, const T&) {}
void find_device(std::optional<c10::Device>& found, const Tensor& t) { found = t.device(); }
void find_device(std::optional<c10::Device>& found, const at::TensorList& list) {
  if (!list.empty()) found = list[0].device();
}
void find_device(std::optional<c10::Device>& found, const std::optional<c10::Device>& asked) {
  if (asked) found = asked;
}
template <auto F>
struct There;
template <class R, class... A, R (*F)(A...)>
struct There<F> {
  static R call(A... arguments) {
    refuse_elsewhere();
    std::optional<c10::Device> device;
    (find_device(device, arguments), ...);
    c10::OptionalDeviceGuard guard(device && device->has_index() ? device : std::nullopt);
    return F(arguments...);
  }
};

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("quantize_per_tensor", There<&at::native::quantize_per_tensor>::call);
  m.impl("quantize_per_tensor.tensor_qparams", There<&at::native::quantize_per_tensor_tensor_qparams>::call);
  m.impl("quantize_per_tensor.tensors", There<&at::native::quantize_per_tensor_list_cpu>::call);
  m.impl("quantize_per_tensor_dynamic", There<&at::native::quantize_per_tensor_dynamic>::call);
  m.impl("quantize_per_channel", There<&at::native::quantize_per_channel>::call);
  m.impl("dequantize.self", TORCH_FN(at::native::dequantize_cpu_or_cuda));
  m.impl("_make_per_tensor_quantized_tensor", make_per_tensor);
  m.impl("_make_per_channel_quantized_tensor", make_per_channel);
}

TORCH_LIBRARY_IMPL(aten, QuantizedPrivateUse1, m) {
  m.impl("empty.memory_format", There<&at::native::empty_unknown_quantized>::call);
  m.impl("empty_strided", There<&at::native::empty_strided_unknown_quantized>::call);
  m.impl("empty_like", There<&at::native::empty_like_quantized>::call);
  m.impl("empty_quantized", There<&at::native::empty_quantized>::call);
  m.impl("_empty_affine_quantized", There<&at::native::empty_affine_quantized>::call);
  m.impl("_empty_per_channel_affine_quantized", There<&at::native::empty_per_channel_affine_quantized>::call);
  m.impl("as_strided", TORCH_FN(at::native::as_strided_qtensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("squeeze", static_cast<Tensor (*)(const Tensor&)>(at::native::squeeze_quantized));
  m.impl("squeeze.dim", static_cast<Tensor (*)(const Tensor&, int64_t)>(at::native::squeeze_quantized));
  m.impl("squeeze.dims", static_cast<Tensor (*)(const Tensor&, IntArrayRef)>(at::native::squeeze_quantized));
  m.impl("unsqueeze", TORCH_FN(at::native::unsqueeze_quantized));
  m.impl("clone", There<&at::native::quantized_clone>::call);
  m.impl("dequantize.self", TORCH_FN(at::native::dequantize_quantized));
  m.impl("dequantize.tensors", TORCH_FN(at::native::dequantize_tensors_quantized_cpu));
  m.impl("q_scale", TORCH_FN(at::native::q_scale_quant));
  m.impl("q_zero_point", TORCH_FN(at::native::q_zero_point_quant));
  m.impl("q_per_channel_scales", TORCH_FN(at::native::q_per_channel_scales));
  m.impl("q_per_channel_zero_points", TORCH_FN(at::native::q_per_channel_zero_points));
  m.impl("q_per_channel_axis", TORCH_FN(at::native::q_per_channel_axis));
  m.impl("qscheme", TORCH_FN(at::native::qscheme_quant));
  m.impl("int_repr", int_repr);
  m.impl("flip", flip);
  m.impl("index_select", index_select);
  m.impl("equal", equal);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
}

}  // namespace

constexpr auto quantize_tensor_fl = quantize_tensor;
constexpr auto dequantize_tensor_fl = dequantize_tensor;
constexpr auto quantize_channels_fl = quantize_channels<false>;
constexpr auto dequantize_channels_fl = dequantize_channels<false>;
constexpr auto quantize_float_channels_fl = quantize_channels<true>;
constexpr auto dequantize_float_channels_fl = dequantize_channels<true>;
}  // namespace fl::bridge

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(quantize_tensor_per_tensor_affine_stub, fl::bridge::quantize_tensor_fl)
REGISTER_PRIVATEUSE1_DISPATCH(dequantize_tensor_per_tensor_affine_stub, fl::bridge::dequantize_tensor_fl)
REGISTER_PRIVATEUSE1_DISPATCH(quantize_tensor_per_channel_affine_stub, fl::bridge::quantize_channels_fl)
REGISTER_PRIVATEUSE1_DISPATCH(dequantize_tensor_per_channel_affine_stub, fl::bridge::dequantize_channels_fl)
REGISTER_PRIVATEUSE1_DISPATCH(quantize_tensor_per_channel_float_qparams_stub,
                              fl::bridge::quantize_float_channels_fl)
REGISTER_PRIVATEUSE1_DISPATCH(dequantize_tensor_per_channel_float_qparams_stub,
                              fl::bridge::dequantize_float_channels_fl)
}  // namespace at::native
