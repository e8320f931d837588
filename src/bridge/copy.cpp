// Copies: within a device, between devices, to and from the host.
//
// Bytes cross to the host as they are, contiguous or in the other side's own
// dense order; casts and strides are the device's work where it can do them.
#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/NativeFunctions.h>
#include <ATen/native/Fill.h>

#include "bridge/copy.h"
#include "bridge/device_allocator.h"
#include "bridge/host_allocator.h"
#include "bridge/iterator.h"
#include "bridge/ops/programs.h"
#include "bridge/sync_debug.h"
#include "runtime/capture.h"

namespace fl::bridge {

namespace {

Op copy_op("aten::copy_");
Op fill_op("aten::fill_");

FORMULA(conj_copy, "aten::copy_", conj(x))
FORMULA(neg_copy, "aten::copy_", -x)

// The same elements with the bits of `like`: what is lazily conjugated or
// negated in one and not in the other is made so.
Tensor with_bits_of(const Tensor& t, const Tensor& like) {
  Tensor stored = t;
  if (t.is_conj() != like.is_conj()) {
    Tensor plain = stored.is_conj() ? stored.conj() : stored;  // flips the bit, moves nothing
    Tensor made = at::conj_physical(plain);
    stored = stored.is_conj() ? made : made.conj();
    if (stored.is_conj() != like.is_conj()) stored = stored.conj();
  }
  if (stored.is_neg() != like.is_neg()) {
    Tensor plain = stored.is_neg() ? stored._neg_view() : stored;
    Tensor made = at::neg(plain);
    stored = like.is_neg() ? made._neg_view() : made;
  }
  return stored;
}

// A view without the lazy bits: the elements as stored.
Tensor as_stored(const Tensor& t) {
  Tensor s = t;
  if (s.is_conj()) s = s.conj();
  if (s.is_neg()) s = s._neg_view();
  return s;
}

bool dense(const Tensor& t) { return t.is_non_overlapping_and_dense(); }

// Do the elements of both lie in memory in the same order, without gaps?
bool same_dense_order(const Tensor& a, const Tensor& b) {
  if (a.is_contiguous() && b.is_contiguous()) return true;
  return dense(a) && dense(b) && a.strides() == b.strides();
}

bool can_copy(const Chip& chip, const Tensor& a, ScalarType b) {
  return chip.claims(FL_ENTRY_COPY, FL_ANY, to_dtype(a.scalar_type())) &&
         chip.claims(FL_ENTRY_COPY, FL_ANY, to_dtype(b));
}

void transfer(const Tensor& t, int kind, void* to, const void* from, size_t bytes) {
  Stream& stream = current_stream(t.device().index());
  fl_tensor view{const_cast<void*>(t.const_data_ptr()),
                 t.sizes().data(),
                 t.strides().data(),
                 static_cast<int32_t>(t.dim()),
                 to_dtype(t.scalar_type()),
                 0,
                 0};
  const fl_tensor* tensors[] = {&view};
  // Each replay copies again: the host's memory has to stay, and the chip to reach it by itself.
  if (Capture* capture = capture_of(stream))
    if (!is_pinned(kind == FL_HOST_TO_DEVICE ? from : to))
      capture->refuse(
          "a copy to or from host memory that is not pinned (pin_memory(), and non_blocking=True), or "
          ".item()");
  fl_launch launch = make_launch(copy_op, stream, tensors, 1);
  LaunchScope scope(stream);
  check(stream.chip->memory.copy(&launch, kind, to, from, bytes),
        kind == FL_HOST_TO_DEVICE ? "copy from the host to the device" : "copy from the device to the host");
}

void device_to_device(const Tensor& dst, const Tensor& src);

// ------------------------------------------------------------ host → device
void host_to_device(const Tensor& dst, const Tensor& source, bool non_blocking) {
  const Chip& chip = *current_stream(dst.device().index()).chip;
  Tensor src = source;
  // A dtype that the device cannot convert is converted here.
  if (src.scalar_type() != dst.scalar_type() && !can_copy(chip, dst, src.scalar_type()))
    src = src.to(dst.scalar_type());
  bool direct =
      src.scalar_type() == dst.scalar_type() && same_dense_order(dst, src) && src.sizes() == dst.sizes();
  if (!direct && !dense(src)) src = src.contiguous();
  Tensor target = direct ? dst : empty_on(dst.device(), src.sizes(), src.strides(), src.scalar_type());
  if (!non_blocking) note_sync();
  transfer(target, FL_HOST_TO_DEVICE, target.mutable_data_ptr(), src.const_data_ptr(), src.nbytes());
  Stream& stream = current_stream(dst.device().index());
  // Pinned memory is read when the stream gets there: it is kept until then.
  if (is_pinned(src.const_data_ptr()))
    record_host_use(src.const_data_ptr(), src.storage().data_ptr().get_context(), stream);
  if (!direct) device_to_device(dst, target);
  // As on CUDA: a plain copy is done when it returns, and any stream may use the result.
  if (!non_blocking) synchronize(stream);
}

// Waits for a transfer into host memory.  Where the wait ends early (a time
// limit, a hanging kernel), the device may still write there later: the memory
// is kept for good.
void wait_for(const Tensor& landing, Stream& stream) {
  try {
    synchronize(stream);
  } catch (const Error& error) {
    if (error.status() == FL_TIMEOUT) new Tensor(landing);
    throw;
  }
}

// ------------------------------------------------------------ device → host
void device_to_host(const Tensor& dst, const Tensor& source, bool non_blocking) {
  Stream& stream = current_stream(source.device().index());
  Tensor src = source;
  bool cast = src.scalar_type() != dst.scalar_type();
  bool pinned = is_pinned(dst.const_data_ptr());
  if (cast && can_copy(*stream.chip, src, dst.scalar_type())) {
    Tensor converted = at::empty_like(src, src.options().dtype(dst.scalar_type()));
    device_to_device(converted, src);
    src = converted;
    cast = false;
  }
  bool direct = !cast && same_dense_order(dst, src);
  if (!direct && !dense(src)) {
    Tensor packed = empty_on(src.device(), src.sizes(), {}, src.scalar_type());
    device_to_device(packed, src);
    src = packed;
    direct = !cast && same_dense_order(dst, src);
  }
  Tensor landing =
      direct ? dst : at::empty_strided(src.sizes(), src.strides(), src.options().device(at::kCPU));
  const bool waits = !(direct && pinned && non_blocking);
  if (waits) note_sync();  // which may throw: before anything is written to `landing`
  transfer(src, FL_DEVICE_TO_HOST, landing.mutable_data_ptr(), src.const_data_ptr(), src.nbytes());
  if (!waits) {
    record_host_use(dst.const_data_ptr(), dst.storage().data_ptr().get_context(), stream);
    return;
  }
  wait_for(landing, stream);
  if (!direct) dst.copy_(landing);
}

// ------------------------------------------------------------ within a device
void device_to_device(const Tensor& dst, const Tensor& src) {
  if (dst.is_alias_of(src) && dst.data_ptr() == src.data_ptr() && dst.strides() == src.strides() &&
      dst.sizes() == src.sizes() && dst.scalar_type() == src.scalar_type())
    return;
  at::assert_no_partial_overlap(dst, src);
  // Where PyTorch cannot tell, the source is copied aside first (the ABI's rule for operators).
  if (dst.is_alias_of(src) && at::get_overlap_status(dst, src) == at::MemOverlapStatus::TooHard) {
    Tensor aside = empty_on(src.device(), src.sizes(), {}, src.scalar_type());
    device_to_device(aside, src);
    return device_to_device(dst, aside);
  }
  copy_on_device(copy_op, dst, src);
}

// ------------------------------------------------------------ across devices
void across_devices(const Tensor& dst, const Tensor& source) {
  Stream& from = current_stream(source.device().index());
  Stream& to = current_stream(dst.device().index());
  for (const Stream* s : {&from, &to})
    if (Capture* capture = capture_of(*s)) capture->refuse("a copy to or from another device");
  if (from.chip != to.chip || !from.chip->memory.copy_peer) {
    // Two chips, or one without a path between its devices: through the host.
    Tensor host = at::empty_like(source, source.options().device(at::kCPU));
    device_to_host(host, source, false);
    host_to_device(dst, host, false);
    return;
  }
  Tensor src = source;
  if (!dense(src)) {
    src = empty_on(src.device(), src.sizes(), {}, src.scalar_type());
    device_to_device(src, source);
  }
  bool direct = src.scalar_type() == dst.scalar_type() && same_dense_order(dst, src);
  Tensor target = direct ? dst : empty_on(dst.device(), src.sizes(), src.strides(), src.scalar_type());
  // The destination's earlier work first, then the copy on the source's
  // stream, then the destination goes on.
  Event ready(to.device, false), done(from.device, false);
  ready.record(to);
  ready.block(from);
  const fl_tensor view{const_cast<void*>(src.const_data_ptr()),
                       src.sizes().data(),
                       src.strides().data(),
                       static_cast<int32_t>(src.dim()),
                       to_dtype(src.scalar_type()),
                       0,
                       0};
  const fl_tensor* tensors[] = {&view};
  fl_launch launch = make_launch(copy_op, from, tensors, 1);
  LaunchScope scope(from);
  check(from.chip->memory.copy_peer(&launch, to.local, target.mutable_data_ptr(), src.const_data_ptr(),
                                    src.nbytes()),
        "copy between devices");
  done.record(from);
  done.block(to);
  if (!direct) device_to_device(dst, target);
}

}  // namespace

Tensor constant_on(const Tensor& host, c10::Device device) {
  Stream& stream = current_stream(device.index());
  Capture* capture = capture_of(stream);
  if (!capture) return host.to(device);
  Tensor packed = host.contiguous();
  Tensor made = empty_on(device, packed.sizes(), {}, packed.scalar_type());
  if (made.numel() == 0) return made;
  guarded([&] {
    const void* kept = capture->keep_bytes(packed.const_data_ptr(), packed.nbytes());
    const fl_launch launch = make_launch(copy_op, stream, nullptr, 0);
    LaunchScope scope(stream);
    check(stream.chip->memory.copy(&launch, FL_HOST_TO_DEVICE, made.mutable_data_ptr(), kept, made.nbytes()),
          "copy of an operator's constants to the device");
  });
  return made;
}

namespace {

Tensor copy_from(const Tensor& self, const Tensor& dst, bool non_blocking) {
  if (dst.numel() == 0 && self.numel() == 0) return dst;
  if (at::isComplexType(self.scalar_type()) && !at::isComplexType(dst.scalar_type()) &&
      dst.scalar_type() != at::kBool) {  // as PyTorch's own copies
    TORCH_WARN_ONCE("Casting complex values to real discards the imaginary part");
  }
  at::assert_no_internal_overlap(dst);
  Tensor source = self.sizes() == dst.sizes() ? self : self.expand(dst.sizes());
  if (source.is_conj() != dst.is_conj() || source.is_neg() != dst.is_neg())
    source = with_bits_of(source, dst);
  Tensor src = as_stored(source), to = as_stored(dst);
  if (to.numel() == 0) return dst;
  guarded([&] {
    if (!is_fl(src)) host_to_device(to, src, non_blocking);
    else if (!is_fl(to)) device_to_host(to, src, non_blocking);
    else if (src.device() == to.device()) device_to_device(to, src);
    else across_devices(to, src);
  });
  return dst;
}

Tensor copy_from_and_resize(const Tensor& self, const Tensor& dst) {
  if (dst.sizes() != self.sizes()) const_cast<Tensor&>(dst).resize_(self.sizes());
  return copy_from(self, dst, false);
}

at::Scalar local_scalar_dense(const Tensor& self) {
  TORCH_CHECK(self.numel() == 1, "a Tensor with ", self.numel(), " elements cannot be converted to Scalar");
  Tensor landing = at::detail::empty_cpu({}, self.scalar_type());
  note_sync();
  guarded([&] {
    transfer(self, FL_DEVICE_TO_HOST, landing.mutable_data_ptr(), self.const_data_ptr(), self.element_size());
    wait_for(landing, current_stream(self.device().index()));
  });
  return at::native::_local_scalar_dense_cpu(landing);
}

Tensor& fill_scalar(Tensor& self, const at::Scalar& value) {
  check_fits(value, self.scalar_type());
  guarded([&] { fill_on_device(fill_op, self, value); });
  return self;
}

Tensor& fill_tensor(Tensor& self, const Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ",
              value.dim(), " dimensions.");
  if (!is_fl(value)) return fill_scalar(self, value.item());
  return self.copy_(value);
}

Tensor& zero(Tensor& self) { return fill_scalar(self, 0); }

}  // namespace

// Null where a register does not hold what the dtypes do.
static const fl_program* conversion(uint8_t from, uint8_t to) {
  static Programs programs;
  if (register_type(from) == FL_NONE || register_type(to) == FL_NONE) return nullptr;
  if (from != to && (from == FL_U64 || to == FL_U64)) return nullptr;  // a register reads it as signed
  return programs.get(key_of(from, to), [&](Builder& b) { b.store(0, b.load(0, from), to); });
}

static bool copy_views(Call& call, const fl_tensor& to, const fl_tensor& from, int64_t element_size) {
  fl_copy_args args{from, to};
  if (call.native(call.chip().op.copy, args, {&args.to, &args.from})) return true;
  // Of one dtype, which the chip does not know: bit by bit.
  constexpr uint8_t kBits[] = {FL_NONE, FL_U8, FL_I16, FL_NONE, FL_I32, FL_NONE, FL_NONE, FL_NONE, FL_I64};
  if (from.dtype == to.dtype && element_size < std::ssize(kBits) && kBits[element_size]) {
    args.from.dtype = args.to.dtype = kBits[element_size];
    if (call.native(call.chip().op.copy, args, {&args.to, &args.from})) return true;
  }
  const fl_program* program = conversion(from.dtype, to.dtype);
  const fl_tensor* shown[] = {&to, &from};
  return program && pointwise(call, {program, &from, &to, nullptr}, shown, 2);
}

bool copy_space(Call& call, const Space& space, int64_t element_size) {
  return copy_views(call, *space.tensors(0), *space.tensors(1), element_size);
}

void copy_on_device(Op& op, const Tensor& to, const Tensor& from) {
  if (to.numel() == 0) return;  // chips are spared it
  Call call(op, to);
  // Not by an iterator, which costs as much as all the rest.
  Space space(to.sizes());
  if (space.ok()) {
    space.add(call.view(to)), space.add(call.view(from));
    if (space.finish() && copy_space(call, space, to.element_size())) return;
  }
  auto iter = at::TensorIteratorConfig()
                  .check_all_same_dtype(false)
                  .set_check_mem_overlap(false)
                  .resize_outputs(false)
                  .add_output(to)
                  .add_const_input(from)
                  .build();
  // It may coalesce more dimensions than the ABI takes.
  IteratorViews views;
  if (!space.ok()) {
    call.view(from);
    if (views.fill(iter) && copy_views(call, views.tensors[0], views.tensors[1], to.element_size())) return;
  }
  // Neither copies this dtype: the host does.
  run_on_host(op, iter, [](at::TensorIterator& host) { host.output().copy_(host.input()); });
}

void fill_on_device(Op& op, const Tensor& to, const at::Scalar& value) {
  if (to.numel() == 0) return;
  at::Scalar stored = value;
  if (to.is_conj()) stored = value.conj();
  if (to.is_neg()) stored = -value;
  Tensor plain = as_stored(to);
  Call call(op, plain);
  auto fill = [&](const fl_tensor& view) {
    fl_fill_args args{view, to_scalar(stored, view.dtype)};
    if (call.native(call.chip().op.fill, args, {&args.to})) return true;
    const uint8_t type = register_type(view.dtype);
    if (type == FL_NONE) return false;
    static Programs programs;
    const fl_program* program =
        programs.get(view.dtype, [&](Builder& b) { b.store(0, b.scalar(0, type), view.dtype); });
    fl_scalar number = to_scalar(stored, view.dtype == FL_U64 ? view.dtype : type);
    const fl_tensor* shown[] = {&view};
    return pointwise(call, {program, nullptr, &view, &number}, shown, 1);
  };
  Space space(plain.sizes());
  if (space.ok()) {
    space.add(call.view(plain));
    if (space.finish() && fill(*space.tensors())) return;
  }
  Tensor holder = plain;
  auto iter = at::TensorIteratorConfig()
                  .set_check_mem_overlap(false)
                  .check_all_same_dtype(false)
                  .resize_outputs(false)
                  .add_output(holder)
                  .build();
  // It may coalesce more dimensions than the ABI takes.
  IteratorViews views;
  if (!space.ok() && views.fill(iter) && fill(views.tensors[0])) return;
  run_on_host(op, iter, [&](at::TensorIterator& host) { host.output().fill_(stored); });
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar_dense);
  m.impl("fill_.Scalar", fill_scalar);
  m.impl("fill_.Tensor", fill_tensor);
  m.impl("zero_", zero);
}

// The copy itself honours lazy conjugation and negation; their own fallbacks
// would clone, and end here again.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

}  // namespace fl::bridge
