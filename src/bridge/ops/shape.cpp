// Operators that move elements or make them from their position: cat, flip,
// roll, triangles, ranges.
#include <ATen/Dispatch_v2.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/native/RangeFactories.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/arange_native.h>
#include <ATen/ops/linspace_native.h>
#include <ATen/ops/roll_native.h>
#include <ATen/ops/tril_meta.h>
#include <ATen/ops/triu_meta.h>

#include <algorithm>
#include <limits>

#include "bridge/copy.h"
#include "bridge/ops/programs.h"

namespace fl::bridge {
namespace {

// ------------------------------------------------------------------------ cat
// An empty 1-d tensor joins with anything: an old promise of PyTorch's.
bool skipped(const Tensor& t) { return t.dim() == 1 && t.size(0) == 0; }

struct Join {
  at::DimVector sizes;
  int64_t dim = 0;
  ScalarType dtype;
  at::MemoryFormat format = at::MemoryFormat::Contiguous;
};

Join join_of(const at::MaterializedITensorListRef& tensors, int64_t dim) {
  TORCH_CHECK_VALUE(!tensors.empty(), "expected a non-empty list of Tensors");
  Join join;
  const Tensor* lead = nullptr;
  at::native::ResultTypeState state{};
  bool first = true;
  int position = -1;
  for (const Tensor& t : tensors) {
    ++position;
    TORCH_CHECK(t.dim() > 0, "zero-dimensional tensor (at position ", position, ") cannot be concatenated");
    state = at::native::update_result_type_state(t, state);
    if (skipped(t)) continue;
    if (!lead) {
      lead = &t;
      join.dim = at::maybe_wrap_dim(dim, t.dim());
      join.sizes.assign(t.sizes().begin(), t.sizes().end());
      join.sizes[join.dim] = 0;
    }
    TORCH_CHECK(t.dim() == lead->dim(), "Tensors must have same number of dimensions: got ", lead->dim(),
                " and ", t.dim());
    for (int64_t d = 0; d < t.dim(); ++d)
      TORCH_CHECK(d == join.dim || t.size(d) == join.sizes[d],
                  "Sizes of tensors must match except in dimension ", join.dim, ". Expected size ",
                  join.sizes[d], " but got size ", t.size(d), " in the list.");
    join.sizes[join.dim] += t.size(join.dim);
    auto format = t.suggest_memory_format();
    if (first) join.format = format;
    else if (format != join.format) join.format = at::MemoryFormat::Contiguous;
    first = false;
  }
  if (!lead) join.sizes = {0};  // of any dim
  join.dtype = at::native::result_type(state);
  return join;
}

void join_into(Op& op, const at::MaterializedITensorListRef& tensors, const Join& join, const Tensor& out) {
  Call call(op, out);
  call.composed();  // a copy for each tensor
  fl_tensor place = call.view(out);
  const int64_t step = out.stride(join.dim) * static_cast<int64_t>(out.element_size());
  int64_t at = 0;
  for (const Tensor& t : tensors) {
    if (skipped(t) || t.numel() == 0) continue;
    fl_tensor from = call.view(t);
    bool plain = !(t.is_conj() || t.is_neg() || out.is_conj() || out.is_neg());
    bool done = false;
    if (Space space(t.sizes()); plain && space.ok()) {
      space.add(static_cast<char*>(place.data) + at * step, place.dtype, place.strides);
      space.add(from);
      done = space.finish() && copy_space(call, space, out.element_size());
    }
    if (!done) copy_step(out.narrow(join.dim, at, t.size(join.dim)), t);
    at += t.size(join.dim);
  }
}

Tensor cat(const at::ITensorListRef& list, int64_t dim) {
  static Op op("aten::cat");
  auto tensors = list.materialize();
  Join join = join_of(tensors, dim);
  const Tensor* lead = nullptr;
  for (const Tensor& t : tensors)
    if (is_fl(t) && (!lead || !skipped(t))) {
      lead = &t;
      break;
    }
  TORCH_CHECK(lead, "torch.cat(): no tensor is on the device");
  Tensor out = empty_on(lead->device(), join.sizes, {}, join.dtype);
  if (join.format != at::MemoryFormat::Contiguous)
    out.unsafeGetTensorImpl()->empty_tensor_restride(join.format);
  if (out.numel()) join_into(op, tensors, join, out);
  return out;
}

Tensor& cat_out(const at::ITensorListRef& list, int64_t dim, Tensor& out) {
  static Op op("aten::cat.out");
  auto tensors = list.materialize();
  Join join = join_of(tensors, dim);
  TORCH_CHECK_TYPE(at::can_cast(join.dtype, out.scalar_type()),
                   "torch.cat(): input types can't be cast to the desired output type ", out.scalar_type());
  at::assert_no_internal_overlap(out);
  for (const Tensor& t : tensors) at::assert_no_overlap(out, t);
  if (at::native::resize_output(out, join.sizes) && join.format != at::MemoryFormat::Contiguous)
    out.unsafeGetTensorImpl()->empty_tensor_restride(join.format);
  if (out.numel()) join_into(op, tensors, join, out);
  return out;
}

// ----------------------------------------------------------------------- flip
Tensor flip(const Tensor& self, IntArrayRef dims) {
  static Op op("aten::flip");
  auto flipped = at::dim_list_to_bitset(dims, self.dim());
  Tensor out = at::empty_like(self);
  if (self.numel() == 0) return out;
  Call call(op, self);
  at::DimVector strides(self.strides());
  fl_copy_args args{call.view(self), call.view(out)};
  char* data = static_cast<char*>(args.from.data);
  for (int64_t d = 0; d < self.dim(); ++d)
    if (flipped[d]) {
      data += (self.size(d) - 1) * strides[d] * static_cast<int64_t>(self.element_size());
      strides[d] = -strides[d];
    }
  Space space(self.sizes());
  if (space.ok()) {
    space.add(args.to);
    space.add(data, args.from.dtype, strides.data());
    const bool fits = space.finish();
    args.to = *space.tensors(0);
    args.from = *space.tensors(1);
    if (fits && call.native(call.chip().op.copy, args, {&args.to, &args.from})) return out;
  }
  return fallback<ATEN_OP(flip)>(self, dims);
}

// ---------------------------------------------------------------- narrow_copy
// The CPU's kernel writes out= as if it were contiguous.
Tensor& narrow_copy_out(const Tensor& self, int64_t dim, int64_t start, int64_t length, Tensor& out) {
  static Op op("aten::narrow_copy.out");
  TORCH_CHECK(self.dtype() == out.dtype(),
              "narrow_copy(): self and out expected to have the same dtype, but got ", self.dtype(), " and ",
              out.dtype());
  if (self.device() != out.device()) throw_mixed_devices(op, self.device(), out.device());
  // A RuntimeError as the CPU's, where narrow() raises IndexError, as both do for one below -dim().
  TORCH_CHECK(dim < self.dim(), "narrow_copy(): dimension ", dim, " is out of range for a tensor with ",
              self.dim(), " dimensions");
  Tensor part = self.narrow(dim, start, length);
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, part);
  at::native::resize_output(out, part.sizes());
  Call(op, self).composed();
  if (out.numel()) copy_step(out, part);
  return out;
}
Tensor narrow_copy(const Tensor& self, int64_t dim, int64_t start, int64_t length) {
  Tensor out = empty_like(self, {0}, self.scalar_type());
  return narrow_copy_out(self, dim, start, length, out);
}

// ------------------------------------------------------------------- triangles
template <bool kUpper>
bool triangle(Call& call, const Tensor& self, int64_t diagonal, const Tensor& out) {
  static Programs programs;
  uint8_t memory = dtype_of(self), type = to_register(self.scalar_type());
  if (type == FL_NONE) return false;
  int rows = static_cast<int>(self.dim()) - 2;
  // Positions as wide as the values: a chip may keep both in lanes of one width.
  const int64_t height = self.size(rows), width = self.size(rows + 1);
  const bool narrow = std::max(height, width) < std::numeric_limits<int32_t>::max() / 2;
  const uint8_t index = narrow && (type == FL_F32 || type == FL_I32) ? FL_I32 : FL_I64;
  diagonal = std::clamp(diagonal, -height, width);
  const fl_program* program = programs.get(key_of(memory, rows, index), [&](Builder& b) {
    Value x = b.load(0, memory), zero = b.scalar(1, type), k = b.scalar(0, index);
    Value d = b.op(FL_OP_SUB, b.index(rows + 1, index), b.index(rows, index));
    b.store(0, b.select(b.op(kUpper ? FL_OP_GE : FL_OP_LE, d, k), x, zero), memory);
  });
  return run_program(call, program, {&out}, {&self}, {scalar_i(diagonal), fl_scalar{}}, Order::kKeep);
}

Tensor& triu_out(const Tensor& self, int64_t diagonal, Tensor& out) {
  static Op op("aten::triu.out");
  Into<at::meta::structured_triu> shape(out);
  shape.meta(self, diagonal);
  Call call(op, self);
  if (triangle<true>(call, self, diagonal, out)) return out;
  return fallback<ATEN_OP2(triu, out)>(self, diagonal, out);
}
Tensor& tril_out(const Tensor& self, int64_t diagonal, Tensor& out) {
  static Op op("aten::tril.out");
  Into<at::meta::structured_tril> shape(out);
  shape.meta(self, diagonal);
  Call call(op, self);
  if (triangle<false>(call, self, diagonal, out)) return out;
  return fallback<ATEN_OP2(tril, out)>(self, diagonal, out);
}

// ---------------------------------------------------------------------- ranges
// F64 where the chip has it: PyTorch's CPU steps in double.
uint8_t range_type(const Call& call, ScalarType dtype) {
  if (at::isIntegralType(dtype, true)) return FL_I64;
  bool wide = call.claims(FL_ENTRY_POINTWISE, FL_OP_INDEX, FL_I64) &&
              call.claims(FL_ENTRY_POINTWISE, FL_OP_MUL, FL_F64) &&
              call.claims(FL_ENTRY_POINTWISE, FL_OP_CAST, FL_F64);
  return wide ? FL_F64 : FL_F32;
}

// out[i] = start + i·step
bool range_into(Call& call, const Tensor& out, const at::Scalar& start, const at::Scalar& step) {
  static Programs programs;
  uint8_t memory = dtype_of(out), type = range_type(call, out.scalar_type());
  if (to_register(out.scalar_type()) == FL_NONE) return false;
  const fl_program* program = programs.get(key_of(memory, type), [&](Builder& b) {
    Value i = b.cast(b.index(-1, FL_I64), type);
    Value v = b.op(FL_OP_ADD, b.scalar(0, type), b.op(FL_OP_MUL, i, b.scalar(1, type)));
    b.store(0, b.cast(v, to_register(out.scalar_type())), memory);
  });
  return run_program(call, program, {&out}, {}, {to_scalar(start, type), to_scalar(step, type)},
                     Order::kKeep);
}

void arange_kernel(at::TensorIterator& iter, const at::Scalar& start, const at::Scalar&,
                   const at::Scalar& step) {
  static Op op("aten::arange");
  Tensor out = iter.tensor(0);
  Call call(op, out);
  if (!range_into(call, out, start, step)) throw_refused(call, "pointwise", out.scalar_type());
}

// From both ends towards the middle, so that both are met exactly; to the power of which `base`
// is raised, if given.
void spaced_into(Call& call, const Tensor& out, const at::Scalar& start, const at::Scalar& end, int64_t steps,
                 const at::Scalar* base) {
  static Programs programs;
  ScalarType dtype = out.scalar_type();
  bool integral = at::isIntegralType(dtype, true);
  uint8_t memory = dtype_of(out), target = to_register(dtype);
  uint8_t type = at::isComplexType(dtype) ? target : range_type(call, integral ? at::kDouble : dtype);
  const fl_program* program = programs.get(key_of(memory, type, base != nullptr), [&](Builder& b) {
    Value n = b.index(-1, FL_I64), first = b.scalar(0, type), last = b.scalar(1, type),
          step = b.scalar(2, type);
    Value up = b.op(FL_OP_ADD, first, b.op(FL_OP_MUL, step, b.cast(n, type)));
    Value left = b.op(FL_OP_SUB, b.scalar(3, FL_I64), n);
    Value down = b.op(FL_OP_SUB, last, b.op(FL_OP_MUL, step, b.cast(left, type)));
    Value v = b.select(b.op(FL_OP_LT, n, b.scalar(4, FL_I64)), up, down);
    if (base) v = b.op(FL_OP_POW, b.scalar(5, type), v);
    b.store(0, b.cast(v, target), memory);
  });
  fl_scalar step{};
  if (steps > 1 && (type == FL_C64 || type == FL_C128)) {
    auto d = (end.toComplexDouble() - start.toComplexDouble()) / static_cast<double>(steps - 1);
    step.v.f = d.real(), step.imag = d.imag();
  } else if (steps > 1) {
    step.v.f = (end.toDouble() - start.toDouble()) / static_cast<double>(steps - 1);
  }
  bool done = base ? run_program(call, program, {&out}, {},
                                 {to_scalar(start, type), to_scalar(end, type), step, scalar_i(steps - 1),
                                  scalar_i(steps / 2), to_scalar(*base, type)},
                                 Order::kKeep)
                   : run_program(call, program, {&out}, {},
                                 {to_scalar(start, type), to_scalar(end, type), step, scalar_i(steps - 1),
                                  scalar_i(steps / 2)},
                                 Order::kKeep);
  if (!done) throw_refused(call, "pointwise", dtype);
}

// A number as the dtype holds it: an integer's fraction is gone, a float is rounded.  Refused where it does
// not fit.
at::Scalar held(const at::Scalar& value, ScalarType dtype) {
  at::Scalar result = value;
  AT_DISPATCH_V2(dtype, "held", AT_WRAP([&] { result = value.to<scalar_t>(); }),
                 AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES), at::kBool,
                 at::kHalf, at::kBFloat16, at::kComplexHalf);
  return result;
}

void linspace_kernel(at::TensorIterator& iter, const at::Scalar& start, const at::Scalar& end,
                     int64_t steps) {
  static Op op("aten::linspace");
  Tensor out = iter.tensor(0);
  Call call(op, out);
  spaced_into(call, out, held(start, out.scalar_type()), held(end, out.scalar_type()), steps, nullptr);
}

Tensor& logspace_out(const at::Scalar& start, const at::Scalar& end, int64_t steps, double base,
                     Tensor& out) {
  static Op op("aten::logspace.out");
  TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
  TORCH_CHECK_NOT_IMPLEMENTED(out.scalar_type() != at::kBool && out.scalar_type() != at::kComplexHalf,
                              "\"logspace_cpu\" not implemented for '", c10::toString(out.scalar_type()),
                              "'");
  if (out.numel() != steps) out.resize_({steps});
  if (steps == 0) return out;
  at::assert_no_internal_overlap(out);
  Call call(op, out);
  at::Scalar number = base, last = steps == 1 ? start : end;
  // One step alone is not rounded to an integer first.
  bool keep = steps == 1 && !at::isComplexType(out.scalar_type());
  spaced_into(call, out, keep ? at::Scalar(start.toDouble()) : held(start, out.scalar_type()),
              keep ? at::Scalar(start.toDouble()) : held(last, out.scalar_type()), steps, &number);
  return out;
}

Tensor& eye_m_out(int64_t n, int64_t m, Tensor& out) {
  static Op op("aten::eye.m_out");
  TORCH_CHECK(n >= 0, "n must be greater or equal to 0, got ", n);
  TORCH_CHECK(m >= 0, "m must be greater or equal to 0, got ", m);
  out.resize_({n, m});
  out.zero_();
  if (int64_t least = std::min(n, m))
    out.as_strided({least}, {out.stride(0) + out.stride(1)}, out.storage_offset()).fill_(1);
  return out;
}
Tensor& eye_out(int64_t n, Tensor& out) { return eye_m_out(n, n, out); }

// Where a triangle's elements are, row by row: the rows repeated by their lengths, and in each the columns
// from its first one on.  Memory is of the order of the result.
Tensor triangle_indices(Op& op, int64_t rows, int64_t columns, int64_t offset, bool lower,
                        std::optional<ScalarType> dtype, std::optional<at::Layout> layout,
                        std::optional<c10::Device> device) {
  at::native::check_args(rows, columns, layout);
  ScalarType type = dtype.value_or(at::kLong);
  TORCH_CHECK_NOT_IMPLEMENTED(type == at::kLong || type == at::kInt, "\"", lower ? "tril" : "triu",
                              "_indices\" not implemented for '", c10::toString(type), "'");
  auto options = at::TensorOptions().device(c10::device_or_default(device)).dtype(at::kLong);
  int64_t count = lower ? at::native::get_tril_size(rows, columns, offset)
                        : rows * columns - at::native::get_tril_size(rows, columns, offset - 1);
  Tensor out = at::empty({2, count}, options.dtype(type));
  if (count == 0) return out;
  Call call(op, out);
  call.composed();
  Tensor line = at::arange(rows, options);
  Tensor first = lower ? at::zeros_like(line) : (line + offset).clamp_(0, columns);
  Tensor length = lower ? (line + (offset + 1)).clamp_(0, columns) : columns - first;
  Tensor row = at::repeat_interleave(length, std::optional<int64_t>(count));
  Tensor before = length.cumsum(0) - length - first;  // a position less its column
  copy_step(out.select(0, 0), row);
  copy_step(out.select(0, 1), at::arange(count, options) - before.index_select(0, row));
  return out;
}
Tensor tril_indices(int64_t rows, int64_t columns, int64_t offset, std::optional<ScalarType> dtype,
                    std::optional<at::Layout> layout, std::optional<c10::Device> device,
                    std::optional<bool>) {
  static Op op("aten::tril_indices");
  return triangle_indices(op, rows, columns, offset, true, dtype, layout, device);
}
Tensor triu_indices(int64_t rows, int64_t columns, int64_t offset, std::optional<ScalarType> dtype,
                    std::optional<at::Layout> layout, std::optional<c10::Device> device,
                    std::optional<bool>) {
  static Op op("aten::triu_indices");
  return triangle_indices(op, rows, columns, offset, false, dtype, layout, device);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("cat", cat);
  m.impl("cat.out", cat_out);
  m.impl("flip", flip);
  m.impl("narrow_copy", narrow_copy);
  m.impl("narrow_copy.out", narrow_copy_out);
  m.impl("roll", at::native::roll);  // narrows and a cat
  m.impl("triu.out", triu_out);
  m.impl("tril.out", tril_out);
  m.impl("tril_indices", tril_indices);
  m.impl("triu_indices", triu_indices);
  m.impl("arange.start_out",
         static_cast<Tensor& (*)(const at::Scalar&, const at::Scalar&, const at::Scalar&, Tensor&)>(
             at::native::arange_out));
  m.impl("linspace.out", static_cast<Tensor& (*)(const at::Scalar&, const at::Scalar&, int64_t, Tensor&)>(
                             at::native::linspace_out));
  m.impl("logspace.out", logspace_out);
  m.impl("eye.out", eye_out);
  m.impl("eye.m_out", eye_m_out);
}

}  // namespace

void arange_stub_kernel(at::TensorIterator& iter, const at::Scalar& start, const at::Scalar& steps,
                        const at::Scalar& step) {
  arange_kernel(iter, start, steps, step);
}
void linspace_stub_kernel(at::TensorIterator& iter, const at::Scalar& start, const at::Scalar& end,
                          int64_t steps) {
  linspace_kernel(iter, start, end, steps);
}
}  // namespace fl::bridge

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(arange_stub, &fl::bridge::arange_stub_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(linspace_stub, &fl::bridge::linspace_stub_kernel)
}  // namespace at::native
