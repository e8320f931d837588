// x[i, :, j], its assignment, gather and the scatter family.
#include <ATen/native/IndexKernel.h>
#include <ATen/native/TensorAdvancedIndexing.h>
#include <ATen/native/IndexingUtils.h>
#include <ATen/ops/_index_put_impl_native.h>
#include <ATen/ops/gather_meta.h>
#include <ATen/ops/index_cpu_dispatch.h>
#include <ATen/ops/index_native.h>
#include <ATen/ops/index_reduce_meta.h>
#include <ATen/ops/scatter_add_meta.h>
#include <ATen/ops/scatter_meta.h>
#include <ATen/ops/scatter_reduce_meta.h>

#include <limits>

#include "bridge/devices.h"
#include "bridge/ops/indexing.h"
#include "runtime/index_error.h"

namespace fl::bridge {
namespace {

using Indices = c10::List<std::optional<Tensor>>;

// ------------------------------------------------------------ x[i, :, j]
// The iterator's operands are out, from, indices… (put: to, from, indices…);
// strides of the indexed dimensions are in bytes.
template <class Launch>
void launch_iterator(const char* name, at::TensorIteratorBase& iter, IntArrayRef sizes, IntArrayRef strides,
                     Launch&& launch) {
  TORCH_CHECK_NOT_IMPLEMENTED(sizes.size() <= FL_MAX_INDICES, name, " with ", sizes.size(),
                              " index tensors: at most ", FL_MAX_INDICES, " are supported on ",
                              iter.device(0));
  if (iter.numel() == 0) return;
  Space space(iter.shape());
  auto check_dims = [&](bool fits) {
    TORCH_CHECK_NOT_IMPLEMENTED(fits, name, " over ", iter.ndim(), " dimensions: at most ", FL_MAX_DIMS,
                                " are supported on ", iter.device(0));
  };
  check_dims(space.ok());
  for (int i = 0; i < iter.ntensors(); ++i) {
    int64_t element = iter.element_size(i), steps[Space::kDims];
    for (int d = 0; d < iter.ndim(); ++d) steps[d] = iter.strides(i)[d] / element;
    space.add(iter.data_ptr(i), to_dtype(iter.dtype(i)), steps);
  }
  check_dims(space.finish());
  int64_t element = iter.element_size(0), steps[FL_MAX_INDICES];
  for (size_t k = 0; k < strides.size(); ++k) steps[k] = strides[k] / element;
  launch(space, sizes.data(), steps);
}

void index_kernel(at::TensorIteratorBase& iter, IntArrayRef sizes, IntArrayRef strides) {
  static Op op("aten::index.Tensor");
  Call call(op, iter.device(0));
  launch_iterator("index", iter, sizes, strides,
                  [&](const Space& space, const int64_t* n, const int64_t* steps) {
                    if (!gather_space(call, space, n, steps, FL_INDEX_WRAP))
                      throw_refused(call, "gather", iter.dtype(0));
                  });
}

void index_put_kernel(at::TensorIterator& iter, IntArrayRef sizes, IntArrayRef strides, bool accumulate) {
  static Op op("aten::_index_put_impl_");
  Call call(op, iter.device(0));
  uint16_t mode = accumulate ? FL_SCATTER_ADD : FL_SCATTER_SET;
  launch_iterator("index_put_", iter, sizes, strides,
                  [&](const Space& space, const int64_t* n, const int64_t* steps) {
                    if (!scatter_space(call, mode, space, n, steps, FL_INDEX_WRAP))
                      throw_refused(call, "scatter", iter.dtype(0));
                  });
}

// What PyTorch calls for accumulation, and for deterministic assignment, on any
// device but its CPU; the chip keeps the order itself [SCA-3].
void index_put_ordered(Tensor& self, const Indices& given_indices, const Tensor& value, bool accumulate) {
  static Op op("aten::_index_put_impl_");
  namespace n = at::native;
  n::checkIndexTensorTypes(at::IOptTensorListRef(given_indices), /*allow_int=*/true);
  auto indices = at::expand_outplace(
      n::expandTensors(self, at::IOptTensorListRef(given_indices), /*ensure_same_device=*/true));
  indices.resize(self.dim());
  Tensor to = self;
  if (!n::hasContiguousSubspace(indices)) std::tie(to, indices) = n::transposeToFront(to, indices);

  // The shape of x[…]: dimensions before the indices, theirs, and after.
  at::DimVector sizes, strides, axis_sizes, axis_strides;
  IntArrayRef walked;
  for (int64_t d = 0; d < to.dim(); ++d) {
    if (!indices[d].defined()) {
      sizes.push_back(to.size(d)), strides.push_back(to.stride(d));
      continue;
    }
    if (axis_sizes.empty()) {
      walked = indices[d].sizes();
      sizes.insert(sizes.end(), walked.begin(), walked.end());
      strides.resize(sizes.size(), 0);
    }
    axis_sizes.push_back(to.size(d)), axis_strides.push_back(to.stride(d));
  }
  int64_t first = 0;
  while (first < to.dim() && !indices[first].defined()) ++first;

  TORCH_CHECK(at::is_expandable_to(value.sizes(), sizes), "shape mismatch: value tensor of shape ",
              value.sizes(), " cannot be broadcast to indexing result of shape ", sizes);
  TORCH_CHECK(value.scalar_type() == self.scalar_type(),
              "Index put requires the source and destination dtypes match, got ",
              c10::toString(self.scalar_type()), " for the destination and ",
              c10::toString(value.scalar_type()), " for the source.");
  Call call(op, self);
  Space space(sizes);
  if (space.ok() && space.numel() == 0) return;
  bool done = space.ok() && axis_sizes.size() <= FL_MAX_INDICES;
  if (done) {
    fl_tensor whole = call.view(to);
    space.add(whole.data, whole.dtype, strides.data());
    space.add(call.view(value));
    for (const Tensor& index : indices) {
      if (!index.defined()) continue;
      fl_tensor view = call.view(index);
      at::DimVector steps(sizes.size(), 0);
      for (int64_t d = 0; d < index.dim(); ++d)
        if (index.size(d) != 1) steps[first + d] = index.stride(d);
      space.add(view.data, view.dtype, steps.data());
    }
    done = space.finish() && scatter_space(call, accumulate ? FL_SCATTER_ADD : FL_SCATTER_SET, space,
                                           axis_sizes.data(), axis_strides.data(), FL_INDEX_WRAP);
  }
  if (!done) throw_refused(call, "scatter", self.scalar_type());
}

// Shape function, iterator and output of x[…] in one object, as PyTorch
// generates them for its own devices.
struct IndexFunctional final : at::native::structured_index_out {
  Tensor out;
  void make(int64_t i, IntArrayRef sizes, IntArrayRef strides, at::TensorOptions options) {
    out = strides.empty() ? at::empty(sizes, options) : at::empty_strided(sizes, strides, options);
    at::native::structured_index_out::set_output_raw_strided(i, sizes, strides, options);
  }
  void set_output_strided(int64_t i, IntArrayRef sizes, IntArrayRef strides,
                          at::TensorOptions options) override {
    make(i, sizes, strides, options);
  }
  void set_output_raw_strided(int64_t i, IntArrayRef sizes, IntArrayRef strides,
                              at::TensorOptions options) override {
    make(i, sizes, strides, options);
  }
  const Tensor& maybe_get_output(int64_t) override { return out; }
};

// How many dimensions are indexed: a mask stands for as many as it has.
size_t indexed_dims(const Indices& indices) {
  size_t count = 0;
  for (const std::optional<Tensor>& index : indices)
    if (index && index->defined())
      count += index->scalar_type() == at::kBool || index->scalar_type() == at::kByte
                   ? static_cast<size_t>(index->dim())
                   : 1;
  return count;
}

// More indices than the ABI takes become one, into a tensor whose indexed dimensions are one.
struct OneIndex {
  Tensor whole, flat;  // `flat` is a view of `whole`, or a copy
  Indices indices;
  OneIndex(const Tensor& self, const Indices& given_indices) : whole(self) {
    namespace n = at::native;
    n::checkIndexTensorTypes(at::IOptTensorListRef(given_indices), /*allow_int=*/true);
    auto expanded = at::expand_outplace(
        n::expandTensors(self, at::IOptTensorListRef(given_indices), /*ensure_same_device=*/true));
    expanded.resize(self.dim());
    if (!n::hasContiguousSubspace(expanded)) std::tie(whole, expanded) = n::transposeToFront(whole, expanded);
    at::DimVector sizes;
    Tensor place, outside;
    for (int64_t d = 0; d < whole.dim(); ++d) {
      const Tensor& index = expanded[d];
      const int64_t size = whole.size(d);
      if (!index.defined()) {
        sizes.push_back(size);
        if (!place.defined()) indices.push_back(std::nullopt);
        continue;
      }
      Tensor wrapped = at::where(index.lt(0), index.add(size), index.to(at::kLong));
      Tensor wrong = wrapped.lt(0).logical_or_(wrapped.ge(size));
      if (place.defined()) {
        place = place.mul_(size).add_(wrapped), outside.logical_or_(wrong), sizes.back() *= size;
      } else {
        place = wrapped, outside = wrong, sizes.push_back(size);
      }
    }
    indices.push_back(place.masked_fill_(outside, std::numeric_limits<int64_t>::max()));
    flat = whole.reshape(sizes);
  }
};

Tensor index_tensor(const Tensor& self, const Indices& indices) {
  if (C10_UNLIKELY(indexed_dims(indices) > FL_MAX_INDICES)) {
    OneIndex one(self, indices);
    return index_tensor(one.flat, one.indices);
  }
  IndexFunctional op;
  auto shape = op.meta(self, at::IOptTensorListRef(indices));
  op.impl(self, shape.sizes, shape.strides, op.out);
  return op.out;
}

Tensor& index_tensor_out(const Tensor& self, const Indices& indices, Tensor& out) {
  if (C10_UNLIKELY(indexed_dims(indices) > FL_MAX_INDICES)) {
    OneIndex one(self, indices);
    return at::cpu::index_outf(one.flat, one.indices, out);
  }
  return at::cpu::index_outf(self, indices, out);
}

// Accumulates in a wider type where the chip lacks self's.
Tensor& index_put_widely(Tensor& self, const Indices& indices, const Tensor& values, bool unsafe) {
  static Op op("aten::_index_put_impl_");
  Call call(op, self);
  if (call.claims(FL_ENTRY_SCATTER, FL_SCATTER_ADD, dtype_of(self)))
    return at::native::_index_put_impl_(self, indices, values, true, unsafe);
  const ScalarType type = combined_in(call, FL_SCATTER_ADD, self.scalar_type());
  if (type == self.scalar_type())
    return fallback<ATEN_OP(_index_put_impl_)>(self, indices, values, true, unsafe);
  call.composed();
  Tensor wide = self.to(type);
  at::native::_index_put_impl_(wide, indices, values.to(type), true, unsafe);
  return self.copy_(wide);
}

Tensor& index_put_impl(Tensor& self, const Indices& indices, const Tensor& values, bool accumulate,
                       bool unsafe) {
  if (C10_UNLIKELY(indexed_dims(indices) > FL_MAX_INDICES)) {
    OneIndex one(self, indices);
    index_put_impl(one.flat, one.indices, values, accumulate, unsafe);
    if (!one.flat.is_alias_of(self)) one.whole.copy_(one.flat.view(one.whole.sizes()));
    return self;
  }
  if (accumulate && is_fl(self)) return index_put_widely(self, indices, values, unsafe);
  return at::native::_index_put_impl_(self, indices, values, accumulate, unsafe);
}

// -------------------------------------------------------- gather, scatter
Tensor at_least_1d(const Tensor& t) { return t.dim() ? t : t.unsqueeze(0); }

// Over index's sizes: `whole` without `dim`, `part` (null strides: one value), index.
bool along(Call& call, int mode, const Tensor& whole_in, int64_t dim, const Tensor& index_in,
           const Tensor& part_in) {
  Tensor whole = at_least_1d(whole_in), index = at_least_1d(index_in), part = part_in;
  if (index.numel() == 0) return true;
  dim = at::maybe_wrap_dim(dim, whole.dim());
  Space space(index.sizes());
  if (!space.ok()) return false;
  at::DimVector strides(whole.strides());
  Axis axis{whole.size(dim), strides[dim]};
  strides[dim] = 0;
  fl_tensor view = call.view(whole);
  auto add_part = [&] {
    fl_tensor p = call.view(part);
    at::DimVector steps(index.dim(), 0);
    if (part.dim() == index.dim()) steps.assign(part.strides().begin(), part.strides().end());
    space.add(p.data, p.dtype, steps.data());
  };
  if (mode < 0) add_part();
  space.add(view.data, view.dtype, strides.data());
  if (mode >= 0) add_part();
  space.add(call.view(index));
  if (!space.finish()) return false;
  return mode < 0 ? gather_space(call, space, &axis.size, &axis.stride, 0)
                  : scatter_space(call, static_cast<uint16_t>(mode), space, &axis.size, &axis.stride, 0);
}

Tensor& gather_out(const Tensor& self, int64_t dim, const Tensor& index, bool sparse_grad, Tensor& out) {
  static InvalidIndexOp op("aten::gather.out");
  check_devices(op, {&self, &index});
  Into<at::meta::structured_gather> shape(out);
  shape.meta(self, dim, index, sparse_grad);
  Call call(op, self);
  if (along(call, -1, self, dim, index, at_least_1d(out))) return out;
  return fallback<ATEN_OP2(gather, out)>(self, dim, index, sparse_grad, out);
}

// A narrow dtype whose mode the chip lacks is scattered in the type that computes with it.
ScalarType scattered_in(const Call& call, int mode, ScalarType dtype) {
  return call.claims(FL_ENTRY_SCATTER, mode, to_dtype(dtype)) ? dtype : to_scalar_type(to_register(dtype));
}
bool scatters(const Call& call, int mode, ScalarType dtype) {
  dtype = scattered_in(call, mode, dtype);
  return call.claims(FL_ENTRY_SCATTER, mode, to_dtype(dtype)) || scatters_by_order(call, mode, dtype);
}

// out = self, then scattered into.  False: the chip cannot; nothing has happened.
bool scatter_over(Call& call, int mode, const Tensor& self, int64_t dim, const Tensor& index,
                  const Tensor& part, const Tensor& out) {
  if (!scatters(call, mode, out.scalar_type())) return false;
  if (!out.is_same(self)) const_cast<Tensor&>(out).copy_(self);
  if (index.numel() == 0) return true;
  if (ScalarType wider = scattered_in(call, mode, out.scalar_type()); wider != out.scalar_type()) {
    call.composed();
    Tensor wide = out.to(wider);
    if (!scatter_over(call, mode, wide, dim, index, part.to(wider), wide)) return false;
    const_cast<Tensor&>(out).copy_(wide);
    return true;
  }
  if (call.claims(FL_ENTRY_SCATTER, mode, dtype_of(out))) return along(call, mode, out, dim, index, part);
  Tensor place = at_least_1d(index), from = part;
  if (part.dim() == place.dim())
    for (int64_t d = 0; d < place.dim(); ++d) from = from.narrow(d, 0, place.size(d));
  return scatter_by_order(call, mode, at_least_1d(out), dim, place, from.expand(place.sizes()));
}

Tensor value_of(const at::Scalar& value, const Tensor& like) { return at::full({}, value, like.options()); }

int mode_of(c10::string_view reduce) {
  TORCH_CHECK(reduce == "add" || reduce == "multiply", "reduce argument must be either add or multiply.");
  return reduce == "add" ? FL_SCATTER_ADD : FL_SCATTER_MUL;
}

Tensor& scatter_src_out(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                        Tensor& out) {
  static InvalidIndexOp op("aten::scatter.src_out");
  check_devices(op, {&self, &index, &src});
  Into<at::meta::structured_scatter_src> shape(out);
  shape.meta(self, dim, index, src);
  Call call(op, self);
  if (scatter_over(call, FL_SCATTER_SET, self, dim, index, at_least_1d(src), out)) return out;
  return fallback<ATEN_OP2(scatter, src_out)>(self, dim, index, src, out);
}
Tensor& scatter_value_out(const Tensor& self, int64_t dim, const Tensor& index, const at::Scalar& value,
                          Tensor& out) {
  static InvalidIndexOp op("aten::scatter.value_out");
  check_devices(op, {&self, &index});
  Into<at::meta::structured_scatter_value> shape(out);
  shape.meta(self, dim, index, value);
  Call call(op, self);
  if (scatter_over(call, FL_SCATTER_SET, self, dim, index, value_of(value, self), out)) return out;
  return fallback<ATEN_OP2(scatter, value_out)>(self, dim, index, value, out);
}
Tensor& scatter_reduce_out(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                           c10::string_view reduce, Tensor& out) {
  static InvalidIndexOp op("aten::scatter.reduce_out");
  check_devices(op, {&self, &index, &src});
  Into<at::meta::structured_scatter_reduce> shape(out);
  shape.meta(self, dim, index, src, reduce);
  Call call(op, self);
  if (scatter_over(call, mode_of(reduce), self, dim, index, at_least_1d(src), out)) return out;
  return fallback<ATEN_OP2(scatter, reduce_out)>(self, dim, index, src, reduce, out);
}
Tensor& scatter_value_reduce_out(const Tensor& self, int64_t dim, const Tensor& index,
                                 const at::Scalar& value, c10::string_view reduce, Tensor& out) {
  static InvalidIndexOp op("aten::scatter.value_reduce_out");
  check_devices(op, {&self, &index});
  Into<at::meta::structured_scatter_value_reduce> shape(out);
  shape.meta(self, dim, index, value, reduce);
  Call call(op, self);
  if (scatter_over(call, mode_of(reduce), self, dim, index, value_of(value, self), out)) return out;
  return fallback<ATEN_OP2(scatter, value_reduce_out)>(self, dim, index, value, reduce, out);
}
Tensor& scatter_add_out(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                        Tensor& out) {
  static InvalidIndexOp op("aten::scatter_add.out");
  check_devices(op, {&self, &index, &src});
  Into<at::meta::structured_scatter_add> shape(out);
  shape.meta(self, dim, index, src);
  Call call(op, self);
  if (scatter_over(call, FL_SCATTER_ADD, self, dim, index, at_least_1d(src), out)) return out;
  return fallback<ATEN_OP2(scatter_add, out)>(self, dim, index, src, out);
}

// out = self, with src combined into it; without include_self the places that take part begin as if empty.
// False: the chip cannot; nothing has happened.
bool reduce_over(Call& call, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                 c10::string_view reduce, bool include_self, Tensor& out) {
  int mode = reduce == "prod"   ? FL_SCATTER_MUL
             : reduce == "amax" ? FL_SCATTER_MAX
             : reduce == "amin" ? FL_SCATTER_MIN
                                : FL_SCATTER_ADD;
  if (!scatters(call, mode, out.scalar_type())) return false;
  call.composed();
  auto scatter = [&](int how, const Tensor& from, const Tensor& part, const Tensor& to) {
    if (!scatter_over(call, how, from, dim, index, part, to))
      throw_refused(call, "scatter", out.scalar_type());
  };
  Tensor from = self;
  if (!include_self) {
    from = at::empty_like(self);
    scatter(FL_SCATTER_SET, self, value_of(scatter_identity(mode, self.scalar_type()), self), from);
  }
  scatter(mode, from, at_least_1d(src), out);
  if (reduce == "mean" && index.numel()) {
    Tensor count = include_self ? at::ones_like(out) : at::zeros_like(out);
    scatter(FL_SCATTER_ADD, count, value_of(1, out), count);
    count.masked_fill_(count == 0, 1);
    if (at::isIntegralType(out.scalar_type(), true)) out.div_(count, "floor");
    else out.div_(count);
  }
  return true;
}

Tensor& scatter_reduce_two_out(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                               c10::string_view reduce, bool include_self, Tensor& out) {
  static InvalidIndexOp op("aten::scatter_reduce.two_out");
  check_devices(op, {&self, &index, &src});
  Into<at::meta::structured_scatter_reduce_two> shape(out);
  shape.meta(self, dim, index, src, reduce, include_self);
  Call call(op, self);
  if (reduce_over(call, self, dim, index, src, reduce, include_self, out)) return out;
  return fallback<ATEN_OP2(scatter_reduce, two_out)>(self, dim, index, src, reduce, include_self, out);
}

// scatter_reduce with one index for each slice.
Tensor& index_reduce_out(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                         c10::string_view reduce, bool include_self, Tensor& out) {
  static Op op("aten::index_reduce.out");
  check_devices(op, {&self, &index, &source});
  TORCH_WARN_ONCE("index_reduce() is in beta and the API may change at any time.");
  Into<at::meta::structured_index_reduce> shape(out);
  shape.meta(self, dim, index, source, reduce, include_self);
  Call call(op, self);
  Tensor to = at_least_1d(self), from = at_least_1d(source), result = at_least_1d(out);
  dim = at::maybe_wrap_dim(dim, to.dim());
  at::DimVector sizes(from.dim(), 1);
  sizes[dim] = index.numel();
  Tensor places = index.reshape(sizes).to(at::kLong).expand(from.sizes());
  if (reduce_over(call, to, dim, places, from, reduce, include_self, result)) return out;
  return fallback<ATEN_OP2(index_reduce, out)>(self, dim, index, source, reduce, include_self, out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("index_reduce.out", index_reduce_out);
  m.impl("index.Tensor", index_tensor);
  m.impl("index.Tensor_out", index_tensor_out);
  m.impl("_index_put_impl_", index_put_impl);
  m.impl("gather.out", gather_out);
  m.impl("scatter.src_out", scatter_src_out);
  m.impl("scatter.value_out", scatter_value_out);
  m.impl("scatter.reduce_out", scatter_reduce_out);
  m.impl("scatter.value_reduce_out", scatter_value_reduce_out);
  m.impl("scatter_add.out", scatter_add_out);
  m.impl("scatter_reduce.two_out", scatter_reduce_two_out);
}

}  // namespace

void index_stub_kernel(at::TensorIteratorBase& iter, IntArrayRef sizes, IntArrayRef strides) {
  index_kernel(iter, sizes, strides);
}
void index_put_stub_kernel(at::TensorIterator& iter, IntArrayRef sizes, IntArrayRef strides,
                           bool accumulate) {
  index_put_kernel(iter, sizes, strides, accumulate);
}
void index_put_ordered_kernel(Tensor& self, const c10::List<std::optional<Tensor>>& indices,
                              const Tensor& value, bool accumulate, bool) {
  index_put_ordered(self, indices, value, accumulate);
}
}  // namespace fl::bridge

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(index_put_with_sort_stub, &fl::bridge::index_put_ordered_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(index_stub, &fl::bridge::index_stub_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(index_put_stub, &fl::bridge::index_put_stub_kernel)
}  // namespace at::native
