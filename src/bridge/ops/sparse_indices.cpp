// Index tuples of sparse tensors: order, groups, row pointers, joins.
#include "bridge/ops/sparse.h"
#include "bridge/ops/spmm.h"

namespace fl::bridge::sparse {
namespace {

Tensor longs(const Tensor& like, IntArrayRef sizes) { return empty_like(like, sizes, at::kLong); }

// The dtype in which values of `dtype` are added up.
ScalarType wide(ScalarType dtype) {
  if (at::isReducedFloatingType(dtype)) return at::kFloat;
  if (dtype == at::kComplexHalf) return at::kComplexFloat;
  return dtype == at::kBool ? at::kInt : dtype;
}

Tensor narrowed(const Tensor& sum, ScalarType dtype) {
  return dtype == at::kBool ? sum.ne(0) : sum.to(dtype);
}

}  // namespace

Tensor linear_index(const Tensor& indices, IntArrayRef sizes) {
  int64_t n = indices.size(1), d = static_cast<int64_t>(sizes.size());
  if (d == 0) return at::zeros({n}, indices.options().dtype(at::kLong));
  int64_t whole = 1;
  for (int64_t size : sizes)
    TORCH_CHECK(!__builtin_mul_overflow(whole, std::max<int64_t>(size, 1), &whole), "sparse tensor of sizes ",
                sizes, ": its elements are too many to be numbered with 63 bits");
  Tensor linear = indices.select(0, d - 1).to(at::kLong);
  int64_t stride = 1;
  for (int64_t k = d - 1; k-- > 0;) {
    stride *= sizes[k + 1];
    linear = at::add(linear, indices.select(0, k).to(at::kLong), stride);
  }
  return linear;
}

Groups group(const Tensor& keys, bool are_sorted) {
  int64_t n = keys.size(0);
  if (n == 0) return {Tensor(), longs(keys, {0}), 0};
  Groups g;
  Tensor sorted = keys;
  if (!are_sorted) std::tie(sorted, g.order) = at::sort(keys, /*stable=*/true, 0, false);
  Tensor begins = at::zeros({n}, keys.options().dtype(at::kLong));
  if (n > 1) begins.narrow(0, 1, n - 1).copy_(sorted.narrow(0, 1, n - 1).ne(sorted.narrow(0, 0, n - 1)));
  g.segment = begins.cumsum(0);
  g.count = g.segment.select(0, n - 1).item<int64_t>() + 1;
  return g;
}

Tensor Groups::unique(const Tensor& t, int64_t dim) const {
  at::DimVector sizes(t.sizes());
  sizes[dim] = count;
  Tensor out = empty_like(t, sizes, t.scalar_type());
  return count ? out.index_copy_(dim, segment, sorted(t, dim)) : out;
}

Tensor Groups::sum(const Tensor& values) const {
  at::DimVector sizes(values.sizes());
  sizes[0] = count;
  ScalarType dtype = values.scalar_type();
  Tensor out = at::zeros(sizes, values.options().dtype(wide(dtype)));
  if (out.numel()) out.index_add_(0, segment, sorted(values).to(wide(dtype)));
  return narrowed(out, dtype);
}

void accumulate(const Tensor& to, const Tensor& index, const Tensor& values) {
  ScalarType dtype = to.scalar_type();
  if (values.numel() == 0) return;
  if (wide(dtype) == dtype) {
    const_cast<Tensor&>(to).index_add_(0, index, values);
    return;
  }
  const_cast<Tensor&>(to).copy_(
      narrowed(to.to(wide(dtype)).index_add_(0, index, values.to(wide(dtype))), dtype));
}

Tensor row_begin(const Tensor& rows, int64_t n, ScalarType dtype) {
  Tensor count = at::zeros({n + 1}, rows.options().dtype(at::kLong));
  if (rows.numel()) {
    Tensor index = rows.to(at::kLong);
    // Not index_add_: a wrong row is a RuntimeError, as of the CPU's products.
    count.narrow(0, 1, n).scatter_add_(0, index, at::ones(index.sizes(), index.options()));
  }
  return count.cumsum(0).to(dtype);
}

Pairs pairs(Call& call, const Tensor& begin, const Tensor& length) {
  int64_t n = length.numel();
  Tensor first = at::zeros({n + 1}, length.options());
  if (n == 0) return {longs(length, {0}), longs(length, {0})};
  first.narrow(0, 1, n).copy_(length.cumsum(0));
  int64_t total = first.select(0, n).item<int64_t>();
  Tensor left = rows_of(call, first, total);
  Tensor within = at::arange(total, left.options()).sub_(first.index_select(0, left));
  return {left, within.add_(begin.index_select(0, left))};
}

Match find(const Tensor& sorted, const Tensor& keys) {
  int64_t n = sorted.numel();
  if (n == 0)
    return {at::zeros(keys.sizes(), keys.options()),
            at::zeros(keys.sizes(), keys.options().dtype(at::kBool))};
  Tensor at = at::searchsorted(sorted, keys).clamp_(0, n - 1);
  return {at, sorted.index_select(0, at).eq(keys)};
}

Tensor dense_at(const Tensor& dense, const Tensor& indices) {
  int64_t d = indices.size(0);
  if (d == 0) {
    at::DimVector sizes{indices.size(1)};
    sizes.append(dense.sizes().begin(), dense.sizes().end());
    return dense.expand(sizes).clone(at::MemoryFormat::Contiguous);
  }
  if (d > FL_MAX_INDICES) {
    at::DimVector sizes{-1};
    sizes.append(dense.sizes().begin() + d, dense.sizes().end());
    return dense.reshape(sizes).index_select(0, linear_index(indices, dense.sizes().slice(0, d)));
  }
  c10::List<std::optional<Tensor>> list;
  for (int64_t k = 0; k < d; ++k) list.push_back(indices.select(0, k).to(at::kLong));
  return dense.index(list);
}

Tensor& set_coo(Tensor& r, IntArrayRef sizes, const Tensor& indices, const Tensor& values, bool coalesced) {
  auto* impl = at::sparse::get_sparse_impl(r);
  impl->raw_resize_(indices.size(0), values.dim() - 1, sizes);
  impl->set_indices_and_values_unsafe(indices, values.to(r.scalar_type()));
  impl->set_coalesced(coalesced || values.size(0) == 0);
  return r;
}

Tensor make_coo(const Tensor& like, IntArrayRef sizes, const Tensor& indices, const Tensor& values,
                bool coalesced) {
  return at::_sparse_coo_tensor_with_dims_and_tensors(
      indices.size(0), values.dim() - 1, sizes, indices, values,
      like.options().layout(at::kSparse).dtype(values.scalar_type()), coalesced);
}

Tensor coalesced(const Tensor& t) {
  if (t.is_coalesced()) return t;
  Tensor indices = t._indices(), values = t._values();
  if (t._nnz() < 2) return make_coo(t, t.sizes(), indices.clone(), values.clone(), true);
  Groups g = group(linear_index(indices, t.sizes().slice(0, t.sparse_dim())));
  return make_coo(t, t.sizes(), g.unique(indices, 1), g.sum(values), true);
}

Tensor& set_compressed(Tensor& r, const Tensor& made, const Tensor& like) {
  auto [begin, plain] = at::sparse_csr::getCompressedPlainIndices(made);
  ScalarType dtype = at::sparse_csr::getCompressedPlainIndices(like).first.scalar_type();
  at::sparse_csr::get_sparse_csr_impl(r)->set_member_tensors(begin.to(dtype), plain.to(dtype),
                                                             made.values().to(r.scalar_type()), made.sizes());
  return r;
}

at::Scalar as_stored(const at::Scalar& value, ScalarType dtype) {
  return at::isIntegralType(dtype, true) && value.isFloatingPoint()
             ? at::Scalar(static_cast<int64_t>(value.toDouble()))
             : value;
}

Tensor& combine(const Tensor& self, const Tensor& product, const at::Scalar& beta, const at::Scalar& alpha,
                Tensor& out) {
  ScalarType dtype = product.scalar_type();
  Tensor scaled = alpha.equal(1) ? product : product.mul(as_stored(alpha, dtype));
  at::Scalar b = as_stored(beta, dtype);
  return b.equal(0) ? out.copy_(scaled) : at::add_out(out, scaled, self, b);
}

namespace {

Tensor coalesce(const Tensor& self) {
  static Op op("aten::_coalesce");
  Call(op, self).composed();
  return coalesced(self);
}

Tensor& coo_to_csr_out(const Tensor& rows, int64_t size, bool out_int32, Tensor& out) {
  static Op op("aten::_convert_indices_from_coo_to_csr");
  Into<at::meta::structured__convert_indices_from_coo_to_csr> shape(out);
  shape.meta(rows, size, out_int32);
  Call(op, rows).composed();
  return out.copy_(row_begin(rows, size, out.scalar_type()));
}

Tensor& csr_to_coo_out(const Tensor& begin, const Tensor& plain, bool out_int32, bool transpose,
                       Tensor& out) {
  static Op op("aten::_convert_indices_from_csr_to_coo");
  Into<at::meta::structured__convert_indices_from_csr_to_coo> shape(out);
  shape.meta(begin, plain, out_int32, transpose);
  Call call(op, plain);
  call.composed();
  if (out.numel() == 0) return out;
  int64_t batches = begin.dim() - 1, nnz = plain.size(-1);
  if (batches) {
    Tensor batch =
        at::sparse::full_coo_indices(begin.sizes().slice(0, batches), plain.options().dtype(at::kLong));
    out.narrow(0, 0, batches).copy_(batch.unsqueeze(-1).expand({batches, -1, nnz}).reshape({batches, -1}));
  }
  out.select(0, batches + (transpose ? 1 : 0)).copy_(rows_of(call, begin, nnz).reshape({-1}));
  out.select(0, batches + (transpose ? 0 : 1)).copy_(plain.reshape({-1}));
  return out;
}

// One number is read on the host; what is wrong, if something is, is PyTorch's to say.
void validate_compressed(bool is_row, const Tensor& begin, const Tensor& plain, int64_t n, int64_t width,
                         int64_t nnz) {
  static Op op("aten::_validate_compressed_sparse_indices");
  Call call(op, begin);
  call.view(plain);
  call.composed();
  auto explain = [&] {
    at::native::_validate_compressed_sparse_indices_cpu(is_row, begin.cpu(), plain.cpu(), n, width, nnz);
  };
  if (plain.numel() == 0 || begin.numel() == 0 || begin.size(-1) != n + 1 || plain.size(-1) != nnz)
    return explain();
  Tensor length = begin.narrow(-1, 1, n) - begin.narrow(-1, 0, n);
  Tensor good = begin.select(-1, 0).eq(0).all() & begin.select(-1, n).eq(nnz).all() & plain.ge(0).all() &
                plain.lt(width).all();
  if (n) good = good & length.ge(0).all() & length.le(width).all();
  if (nnz > 1 && n) {
    // Within a row the indices grow.
    at::DimVector sizes(plain.sizes());
    sizes.back() = nnz + 1;
    Tensor starts = at::zeros(sizes, plain.options().dtype(at::kBool));
    Tensor at = begin.narrow(-1, 0, n).clamp(0, nnz).to(at::kLong);
    starts.scatter_(-1, at, true);
    good =
        good &
        (plain.narrow(-1, 1, nnz - 1).gt(plain.narrow(-1, 0, nnz - 1)) | starts.narrow(-1, 1, nnz - 1)).all();
  }
  if (!good.item<bool>()) explain();
}

// The places of a strided tensor, in its first `sparse_dim` dimensions, where anything is.
Tensor dense_to_coo(const Tensor& self, int64_t sparse_dim) {
  static Op op("aten::_to_sparse");
  Call(op, self).composed();
  int64_t dims = self.dim();
  TORCH_CHECK((sparse_dim > 0 || dims == 0) && sparse_dim <= dims,
              "sparse_dim argument must be in >=1 and <=", dims, ", but got ", sparse_dim);
  Tensor filled = self.ne(0);
  for (int64_t k = dims; k-- > sparse_dim;) filled = filled.any(k);
  Tensor indices = filled.nonzero().t().contiguous();
  return make_coo(self, self.sizes(), indices, dense_at(self, indices), true);
}

Tensor dense_to_sparse(const Tensor& self, std::optional<at::Layout> layout, at::OptionalIntArrayRef blocks,
                       std::optional<int64_t> dense_dim) {
  if (layout.value_or(at::kSparse) != at::kSparse || blocks)
    return at::native::dense_to_sparse(self, layout, blocks, dense_dim);
  return dense_to_coo(self, self.dim() - dense_dim.value_or(0));
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) { m.impl("_coalesce", coalesce); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_convert_indices_from_coo_to_csr.out", coo_to_csr_out);
  m.impl("_convert_indices_from_csr_to_coo.out", csr_to_coo_out);
  m.impl("_validate_compressed_sparse_indices", validate_compressed);
  m.impl("_to_sparse.sparse_dim", dense_to_coo);
  m.impl("_to_sparse", dense_to_sparse);
  // These of PyTorch are made of operators.
  m.impl("_to_sparse_csr", TORCH_FN(at::native::dense_to_sparse_csr));
  m.impl("_to_sparse_csc", TORCH_FN(at::native::dense_to_sparse_csc));
  m.impl("_to_sparse_bsr", TORCH_FN(at::native::dense_to_sparse_bsr));
  m.impl("_to_sparse_bsc", TORCH_FN(at::native::dense_to_sparse_bsc));
}

}  // namespace
}  // namespace fl::bridge::sparse

// ------------------------------------------------------------------- stubs
// Of headers that PyTorch does not install.
namespace at::native {

using flatten_indices_fn = Tensor (*)(const Tensor&, IntArrayRef);
DECLARE_DISPATCH(flatten_indices_fn, flatten_indices_stub)
REGISTER_PRIVATEUSE1_DISPATCH(flatten_indices_stub, &fl::bridge::sparse::linear_index)

}  // namespace at::native
