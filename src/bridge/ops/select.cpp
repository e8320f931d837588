// Indexing along one dimension with a list of positions: index_select, index_add,
// index_copy, index_fill; and into the flat tensor: take, put.
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/index_add_meta.h>
#include <ATen/ops/index_copy_meta.h>

#include "bridge/devices.h"
#include "bridge/iterator.h"
#include "bridge/ops/indexing.h"
#include "runtime/index_error.h"

namespace fl::bridge {
namespace {

constexpr int kGather = -1;

// Over part's sizes, whose dimension `dim` is walked by `index` (1-d or 0-d):
// part = whole there (kGather), or whole (mode)= part.  A 0-d part is one value
// for the sizes given.
bool select(Call& call, int mode, const Tensor& whole_in, int64_t dim, const Tensor& index,
            const Tensor& part_in, IntArrayRef sizes, uint32_t flags = 0) {
  Tensor whole = whole_in.dim() ? whole_in : whole_in.unsqueeze(0);
  Space space(sizes);
  if (!space.ok()) return false;
  if (space.numel() == 0) return true;
  at::DimVector strides(whole.strides()), steps(whole.dim(), 0), along(whole.dim(), 0);
  Axis axis{whole.size(dim), strides[dim]};
  strides[dim] = 0;
  along[dim] = index.dim() ? index.stride(0) : 0;
  if (part_in.dim() == whole.dim()) steps.assign(part_in.strides().begin(), part_in.strides().end());
  fl_tensor w = call.view(whole), p = call.view(part_in), i = call.view(index);
  if (mode == kGather) space.add(p.data, p.dtype, steps.data());
  space.add(w.data, w.dtype, strides.data());
  if (mode != kGather) space.add(p.data, p.dtype, steps.data());
  space.add(i.data, i.dtype, along.data());
  if (!space.finish()) return false;
  return mode == kGather
             ? gather_space(call, space, &axis.size, &axis.stride, flags)
             : scatter_space(call, static_cast<uint16_t>(mode), space, &axis.size, &axis.stride, flags);
}

Tensor at_least_1d(const Tensor& t) { return t.dim() ? t : t.unsqueeze(0); }

void check_index(const char* name, const Tensor& index) {
  TORCH_CHECK_INDEX(index.dim() <= 1, name,
                    "(): Index is supposed to be a vector, but got dim: ", index.dim());
  TORCH_CHECK(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt, name,
              "(): Expected dtype int32/int64 for index");
}

// What is written has one place for each element, and none of them is read.
void check_overlap(const Tensor& out, std::initializer_list<const Tensor*> inputs) {
  at::assert_no_internal_overlap(out);
  for (const Tensor* t : inputs) at::assert_no_overlap(out, *t);
}

Tensor& index_select_out(const Tensor& self, int64_t dim, const Tensor& index, Tensor& out) {
  static Op op("aten::index_select");
  check_devices(op, {&self, &index});
  check_index("index_select", index);
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "index_select(): self and result must have the same scalar type");
  dim = at::maybe_wrap_dim(dim, std::max<int64_t>(1, self.dim()));
  at::DimVector sizes(self.sizes());
  if (self.dim()) sizes[dim] = index.numel();
  else
    TORCH_CHECK(index.numel() == 1, "index_select(): Index to scalar can have only 1 value, got ",
                index.numel(), " value(s)");
  check_overlap(out, {&self, &index});
  at::native::resize_output(out, sizes);
  Call call(op, self);
  Tensor part = at_least_1d(out);
  if (select(call, kGather, self, dim, index, part, part.sizes())) return out;
  return fallback<ATEN_OP2(index_select, out)>(self, dim, index, out);
}

Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  Tensor out = empty_like(self, {0}, self.scalar_type());
  return index_select_out(self, dim, index, out);
}

// Writes into `out`, which holds self; dtypes that the chip does not add in
// are done in wider ones.
bool write(Call& call, int mode, const Tensor& out, int64_t dim, const Tensor& index, const Tensor& part,
           IntArrayRef sizes) {
  if (call.claims(FL_ENTRY_SCATTER, mode, dtype_of(out)))
    return select(call, mode, out, dim, index, part, sizes);
  const ScalarType type = combined_in(call, static_cast<uint16_t>(mode), out.scalar_type());
  if (type == out.scalar_type()) return false;
  call.composed();
  Tensor wide = out.to(type);
  if (!select(call, mode, wide, dim, index, part.to(type), sizes)) return false;
  const_cast<Tensor&>(out).copy_(wide);
  return true;
}

Tensor& index_add_out(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                      const at::Scalar& alpha, Tensor& out) {
  // The CPU scatters where there are several dimensions, and a wrong index is then scatter's error.
  static Op flat("aten::index_add.out");
  static InvalidIndexOp scattered("aten::index_add.out");
  Into<at::meta::structured_index_add> shape(out);
  dim = shape.meta(self, dim, index, source, alpha).dim;
  if (!out.is_same(self)) out.copy_(self);
  Call call(self.dim() > 1 ? scattered : flat, self);
  Tensor part = at_least_1d(alpha.equal(1) ? source : source.mul(alpha));
  if (write(call, FL_SCATTER_ADD, out, dim, index, part, part.sizes())) return out;
  return fallback<ATEN_OP2(index_add, out)>(self, dim, index, source, alpha, out);
}

Tensor& index_copy_out(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                       Tensor& out) {
  static Op op("aten::index_copy.out");
  Into<at::meta::structured_index_copy> shape(out);
  dim = shape.meta(self, dim, index, source).dim;
  if (!out.is_same(self)) out.copy_(self);
  Call call(op, self);
  Tensor part = at_least_1d(source);
  if (write(call, FL_SCATTER_SET, out, dim, index, part, part.sizes())) return out;
  return fallback<ATEN_OP2(index_copy, out)>(self, dim, index, source, out);
}

Tensor& index_fill_tensor(Tensor& self, int64_t dim, const Tensor& index, const Tensor& value) {
  static Op op("aten::index_fill_.int_Scalar");
  check_devices(op, {&self, &index});
  TORCH_CHECK(value.dim() == 0,
              "index_fill_ only supports a 0-dimensional value tensor, but got tensor with ", value.dim(),
              " dimension(s).");
  TORCH_CHECK_INDEX(index.scalar_type() == at::kLong, "index_fill_(): Expected dtype int64 for index.");
  TORCH_CHECK(index.dim() <= 1, "Index has to be a vector/scalar");
  at::assert_no_overlap(self, index);
  if (C10_UNLIKELY(at::has_internal_overlap(self) == at::MemOverlap::Yes))
    warn_of_expanded("index_fill_", "tensor[mask] = scalar");
  dim = at::maybe_wrap_dim(dim, std::max<int64_t>(1, self.dim()));
  at::DimVector sizes(at_least_1d(self).sizes());
  sizes[dim] = index.numel();
  Call call(op, self);
  Tensor one = value.to(self.options());
  // Alone of its kind, it takes negative positions.
  if (select(call, FL_SCATTER_SET, self, dim, index, one, sizes, FL_INDEX_WRAP)) return self;
  return fallback<ATEN_OP2(index_fill_, int_Tensor)>(self, dim, index, value);
}

Tensor& index_fill_scalar(Tensor& self, int64_t dim, const Tensor& index, const at::Scalar& value) {
  TORCH_CHECK(!value.isComplex() || at::isComplexType(self.scalar_type()),
              "index_fill_(): Converting complex Scalar to non-complex type is not supported");
  return index_fill_tensor(self, dim, index, at::full({}, value, self.options()));
}

// -------------------------------------------------------------------- take, put
Tensor& take_out(const Tensor& self, const Tensor& index, Tensor& out) {
  static Op op("aten::take.out");
  check_devices(op, {&self, &index});
  TORCH_CHECK(index.scalar_type() == at::kLong, "take(): Expected a long tensor for index, but got ",
              c10::toString(index.scalar_type()));
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "take(): self and out expected to have the same dtype, but got self.dtype = ", self.dtype(),
              " and out.dtype = ", out.dtype());
  TORCH_CHECK_INDEX(self.numel() > 0 || index.numel() == 0, "take(): tried to take from an empty tensor");
  check_overlap(out, {&self, &index});
  at::native::resize_output(out, index.sizes());
  Call call(op, self);
  Tensor flat = self.reshape({-1}), first = flat.numel() ? flat.select(0, 0) : flat;
  if (gather_into(call, out, first, {&index}, {Axis{flat.numel(), flat.stride(0)}}, FL_INDEX_WRAP))
    return out;
  return fallback<ATEN_OP2(take, out)>(self, index, out);
}

Tensor take(const Tensor& self, const Tensor& index) {
  Tensor out = empty_like(self, index.sizes(), self.scalar_type());
  return take_out(self, index, out);
}

Tensor& put(Tensor& self, const Tensor& index, const Tensor& source, bool accumulate) {
  static Op op("aten::put_");
  check_devices(op, {&self, &index, &source});
  TORCH_CHECK(index.scalar_type() == at::kLong, "put_(): Expected a long tensor for index, but got ",
              c10::toString(index.scalar_type()));
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "put_(): self and source expected to have the same dtype, but "
              "got self.dtype = ",
              self.dtype(), " and source.dtype = ", source.dtype());
  TORCH_CHECK(index.numel() == source.numel(),
              "put_(): Expected source and index to have the same number of elements, "
              "but got source.numel() = ",
              source.numel(), ", index.numel() = ", index.numel());
  TORCH_CHECK_INDEX(self.numel() > 0 || index.numel() == 0,
                    "put_(): Tried to put elements into an empty tensor");
  check_overlap(self, {&index, &source});
  if (index.numel() == 0) return self;
  Call call(op, self);
  uint16_t mode = accumulate ? FL_SCATTER_ADD : FL_SCATTER_SET;
  ScalarType type = self.scalar_type();
  if (!call.claims(FL_ENTRY_SCATTER, mode, dtype_of(self))) type = combined_in(call, mode, type);
  bool direct = self.is_contiguous() && type == self.scalar_type();
  Tensor flat = (direct ? self : self.to(type).contiguous()).view({-1});
  Tensor from = source.reshape({-1}).to(flat.scalar_type()), where = index.reshape({-1});
  if (!scatter_into(call, mode, flat.select(0, 0), from, {&where}, {Axis{flat.numel(), 1}}, FL_INDEX_WRAP))
    return fallback<ATEN_OP(put_)>(self, index, source, accumulate);
  return direct ? self : self.copy_(flat.view(self.sizes()));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("index_select", index_select);
  m.impl("index_select.out", index_select_out);
  m.impl("index_add.out", index_add_out);
  m.impl("index_copy.out", index_copy_out);
  m.impl("index_fill_.int_Scalar", index_fill_scalar);
  m.impl("index_fill_.int_Tensor", index_fill_tensor);
  m.impl("take", take);
  m.impl("take.out", take_out);
  m.impl("put_", put);
}

}  // namespace
}  // namespace fl::bridge
