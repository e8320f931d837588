// Sparse compressed tensors (CSR, CSC, BSR, BSC): sums, products, reductions.
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtilsMulti.h>

#include "bridge/ops/sparse.h"
#include "bridge/ops/spmm.h"
#include "runtime/index_error.h"

namespace fl::bridge::sparse {
namespace {

using at::sparse_csr::getCompressedPlainIndices;
using at::sparse_csr::is_sparse_compressed;

Tensor make_compressed(const Tensor& like, IntArrayRef sizes, const Tensor& begin, const Tensor& plain,
                       const Tensor& values, at::Layout layout) {
  ScalarType dtype = getCompressedPlainIndices(like).first.scalar_type();
  return at::_sparse_compressed_tensor_unsafe(begin.to(dtype), plain.to(dtype), values, sizes,
                                              values.scalar_type(), layout, values.device(), std::nullopt);
}

// A matrix in coordinates in the layout, with the index dtype, of `like`.
Tensor to_layout_of(const Tensor& coo, const Tensor& like) {
  at::OptionalIntArrayRef block;
  at::DimVector sizes;
  if (like.layout() == at::kSparseBsr || like.layout() == at::kSparseBsc) {
    sizes = at::sparse_csr::getBlockSize(like);
    block = sizes;
  }
  return coo.to_sparse(like.layout(), block);
}

bool is_matrix(const Tensor& t) { return t.dim() == 2 && t.dense_dim() == 0; }

// ------------------------------------------------------------------- sums
Tensor& add_out(const Tensor& self, const Tensor& other, const at::Scalar& alpha, Tensor& out) {
  static Op op("aten::add");
  for (const Tensor* t : {&self, &other})
    if (t->device() != out.device()) throw_mixed_devices(op, out.device(), t->device());
  if (out.layout() == at::kStrided) {
    Call(op, out).composed();
    if (self.layout() == at::kStrided) return at::add_out(out, self, other.to_sparse(), alpha);
    Tensor scaled = alpha.equal(1) ? other : other.mul(as_stored(alpha, other.scalar_type()));
    return at::add_out(out, scaled, self.to_sparse());
  }
  TORCH_CHECK(self.sizes() == other.sizes(),
              "torch.add: Expected input tensors to have the same shape, but got tensor `self` with shape ",
              self.sizes(), " and tensor `other` with shape ", other.sizes());
  if (!is_matrix(self)) return fallback<ATEN_OP2(add, out)>(self, other, alpha, out);
  Call(op, out).composed();
  Tensor sum = at::add(self.to_sparse(), other.to_sparse(), alpha);
  return set_compressed(out, to_layout_of(coalesced(sum), self), self);
}

// ---------------------------------------------------------------- products
// The elements of a matrix, or of its transpose.
Elements elements_of(const Tensor& t, bool transposed) {
  int64_t n_rows = t.size(transposed ? 1 : 0);
  if (t.layout() == (transposed ? at::kSparseCsc : at::kSparseCsr)) {
    auto [begin, plain] = getCompressedPlainIndices(t);
    return {Tensor(), plain, t.values(), n_rows, true, begin};
  }
  Tensor coo = t.is_sparse() ? t : t.to_sparse(), indices = coo._indices();
  Tensor rows = indices.select(0, 0), columns = indices.select(0, 1);
  if (transposed) std::swap(rows, columns);
  return {rows, columns, coo._values(), n_rows, false, Tensor()};
}

Tensor product_of(Call& call, const Tensor& mat1, const Tensor& mat2) {
  if (mat1.layout() == at::kStrided) return multiply(call, elements_of(mat2, true), mat1.t()).t();
  return multiply(call, elements_of(mat1, false), mat2);
}

Tensor& addmm_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const at::Scalar& beta,
                  const at::Scalar& alpha, Tensor& out) {
  static InvalidIndexOp op("aten::addmm");
  Call call(op, out);
  for (const Tensor* t : {&self, &mat1, &mat2})
    if (t->device() != out.device()) throw_mixed_devices(op, out.device(), t->device());
  TORCH_CHECK(mat1.dim() == 2, "mat1 must be a matrix, got ", mat1.dim(), "-D tensor");
  TORCH_CHECK(mat2.dim() == 2, "mat2 must be a matrix, got ", mat2.dim(), "-D tensor");
  TORCH_CHECK(mat1.size(1) == mat2.size(0), "mat1 and mat2 shapes cannot be multiplied (", mat1.size(0), "x",
              mat1.size(1), " and ", mat2.size(0), "x", mat2.size(1), ")");
  at::DimVector sizes{mat1.size(0), mat2.size(1)};
  bool both = mat1.layout() != at::kStrided && mat2.layout() != at::kStrided;
  if (out.layout() != at::kStrided) {
    TORCH_CHECK(both, "addmm: computation is not implemented for ", out.layout(), " + ", mat1.layout(), " @ ",
                mat2.layout());
    call.composed();
    Tensor product = sparse_sparse(call, mat1.to_sparse(), mat2.to_sparse());
    if (!alpha.equal(1)) product = product.mul(as_stored(alpha, product.scalar_type()));
    if (!beta.equal(0)) {
      TORCH_CHECK(self.sizes() == IntArrayRef(sizes), "The input tensor must be a matrix with size ",
                  sizes[0], "x", sizes[1], ", but got a ", self.dim(), "-D tensor");
      Tensor whole = self.layout() == at::kStrided ? self.to_sparse(2) : self.to_sparse();
      product = coalesced(at::add(product, whole, as_stored(beta, product.scalar_type())));
    }
    Tensor made = to_layout_of(coalesced(product), out);
    return set_compressed(out, made, mat1);
  }
  auto whole =
      out.is_same(self) ? c10::MaybeOwned<Tensor>::borrowed(self) : at::expand_size(self, sizes, "addmm");
  TORCH_CHECK(whole->sizes() == IntArrayRef(sizes), "The input tensor must be a matrix with size ", sizes[0],
              "x", sizes[1], ", but got a ", whole->dim(), "-D tensor with size ", whole->sizes());
  Tensor product = both
                       ? (call.composed(), sparse_sparse(call, mat1.to_sparse(), mat2.to_sparse()).to_dense())
                       : product_of(call, mat1, mat2);
  if (!out.is_same(self)) at::native::resize_output(out, sizes);
  // A sparse `self` with a strided result.
  Tensor addend = whole->layout() == at::kStrided || beta.equal(0) ? *whole : whole->to_dense();
  return combine(addend, product, beta, alpha, out);
}

Tensor& addmv_out(const Tensor& self, const Tensor& mat, const Tensor& vec, const at::Scalar& beta,
                  const at::Scalar& alpha, Tensor& out) {
  static Op op("aten::addmv");
  Call call(op, out);
  call.view(vec), call.view(self);
  TORCH_CHECK(mat.dim() == 2, "addmv: Expected mat to be 2-D");
  TORCH_CHECK(vec.dim() == 1, "addmv: Expected vec to be 1-D");
  TORCH_CHECK(mat.size(1) == vec.size(0), "size mismatch, got input (", mat.size(0), "), mat (", mat.size(0),
              "x", mat.size(1), "), vec (", vec.size(0), ")");
  auto whole = at::expand_size(self, {mat.size(0)});
  Tensor product = multiply(call, elements_of(mat, false), vec.unsqueeze(1)).squeeze(1);
  if (!out.is_same(self)) at::native::resize_output(out, {mat.size(0)});
  return combine(*whole, product, beta, alpha, out);
}

// left[rows[j]] · right[columns[j]] for each j, some at a time: the rows are copied together.
Tensor row_products(const Tensor& left, const Tensor& right, const Tensor& rows, const Tensor& columns) {
  int64_t n = rows.size(0), width = std::max<int64_t>(1, left.size(1)),
          step = std::max<int64_t>(1, (1 << 24) / width);
  auto some = [&](int64_t from, int64_t count) {
    return left.index_select(0, rows.narrow(0, from, count))
        .mul_(right.index_select(0, columns.narrow(0, from, count)))
        .sum(1, false, left.scalar_type());
  };
  if (n <= step) return some(0, n);
  Tensor out = at::empty({n}, left.options());
  for (int64_t from = 0; from < n; from += step)
    out.narrow(0, from, std::min(step, n - from)).copy_(some(from, std::min(step, n - from)));
  return out;
}

void check_sampled(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Tensor& out) {
  auto batch = [](const Tensor& t) { return t.sizes().slice(0, t.dim() - 2); };
  const char* op = "sampled_addmm: ";
  for (auto [name, t] : {std::make_pair("mat1", &mat1), std::make_pair("mat2", &mat2)}) {
    TORCH_CHECK(t->layout() == at::kStrided, op, "Expected ", name, " to have strided layout, but got ",
                t->layout());
    TORCH_CHECK(t->dim() >= 2, op, "Expected ", name, " to be a matrix, got ", t->dim(), "-D tensor");
  }
  TORCH_CHECK(self.layout() == at::kSparseCsr, op, "Expected self to have sparse csr layout, but got ",
              self.layout());
  TORCH_CHECK(out.layout() == at::kSparseCsr, op, "Expected result to have sparse csr layout, but got ",
              out.layout());
  TORCH_CHECK(self.dense_dim() == 0, op, "Expected non-hybrid self tensor");
  for (auto [name, other] : {std::make_pair("mat1 and mat2", &mat2), std::make_pair("mat1 and self", &self),
                             std::make_pair("mat1 and result", &out)})
    TORCH_CHECK(mat1.scalar_type() == other->scalar_type(), op, "Expected ", name,
                " to have the same dtype, but got ", mat1.scalar_type(), " and ", other->scalar_type());
  TORCH_CHECK(batch(mat1) == batch(mat2), op, "Expected mat1 and mat2 to have the same batch size, but got ",
              batch(mat1), " and ", batch(mat2));
  TORCH_CHECK(self.dim() == 2 || batch(self) == batch(mat1), op,
              "Expected self and mat1 to have the same batch size, but got ", batch(self), " and ",
              batch(mat1));
  TORCH_CHECK(mat1.size(-1) == mat2.size(-2), op, "mat1 and mat2 shapes cannot be multiplied (",
              mat1.size(-2), "x", mat1.size(-1), " and ", mat2.size(-2), "x", mat2.size(-1), ")");
  TORCH_CHECK(self.size(-2) == mat1.size(-2), op, "self.shape[-2] must match mat1.shape[-2]");
  TORCH_CHECK(self.size(-1) == mat2.size(-1), op, "self.shape[-1] must match mat2.shape[-1]");
  ScalarType t = self.scalar_type();
  TORCH_CHECK(at::isFloatingType(t) || at::isComplexType(t), "sparse_sampled_addmm: Expected self to be a ",
              "floating-point or complex tensor, but got ", t);
}

Tensor& sampled_addmm_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const at::Scalar& beta,
                          const at::Scalar& alpha, Tensor& out) {
  static Op op("aten::sparse_sampled_addmm");
  Call call(op, out);
  call.view(mat1), call.view(mat2);
  if (self.device() != out.device()) throw_mixed_devices(op, out.device(), self.device());
  check_sampled(self, mat1, mat2, out);
  call.composed();
  at::DimVector batch(mat1.sizes().slice(0, mat1.dim() - 2)), sizes(batch);
  int64_t m = self.size(-2), n = self.size(-1), k = mat1.size(-1), nnz = self._nnz();
  sizes.append({m, n});
  auto per_batch = [&](const Tensor& t) {
    at::DimVector whole(batch);
    whole.push_back(t.size(-1));
    return t.expand(whole);
  };
  Tensor begin = per_batch(self.crow_indices()), columns = per_batch(self.col_indices()),
         values = per_batch(self.values());
  Tensor sums = at::zeros_like(values, at::MemoryFormat::Contiguous);
  if (nnz && k && sums.numel()) {
    Tensor rows = rows_of(call, begin.reshape({-1, m + 1}), nnz),
           places = columns.reshape({-1, nnz}).to(at::kLong);
    Tensor number = at::arange(rows.size(0), rows.options()).unsqueeze(1);
    rows = at::add(rows, number, m).reshape({-1}), places = at::add(places, number, n).reshape({-1});
    sums = row_products(mat1.reshape({-1, k}), mat2.transpose(-1, -2).reshape({-1, k}), rows, places)
               .view(values.sizes());
  }
  Tensor made = at::empty_like(sums);
  combine(values, sums, beta, alpha, made);
  const ScalarType index = out.crow_indices().scalar_type();
  auto own = [&](const Tensor& t) { return t.to(index).clone(at::MemoryFormat::Contiguous); };
  at::sparse_csr::get_sparse_csr_impl(out)->set_member_tensors(own(begin), own(columns), made, sizes);
  return out;
}
Tensor sampled_addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const at::Scalar& beta,
                     const at::Scalar& alpha) {
  Tensor out = at::empty({0, 0}, self.options());
  return sampled_addmm_out(self, mat1, mat2, beta, alpha, out);
}

// ------------------------------------------------- reducing sparse × dense
int mode_of(c10::string_view reduce) {
  if (reduce == "sum") return FL_SPMM_SUM;
  if (reduce == "mean") return FL_SPMM_MEAN;
  if (reduce == "amax") return FL_SPMM_MAX;
  if (reduce == "amin") return FL_SPMM_MIN;
  TORCH_CHECK(reduce != "prod", "sparse_mm_reduce: reduce type of prod has not been enabled.");
  TORCH_CHECK(false, "reduce argument must be either sum, prod, mean, amax or amin, got ", reduce);
}

void check_reduce(const Tensor& self, const Tensor& other) {
  const char* op = "sparse_mm_reduce: ";
  TORCH_CHECK(self.layout() == at::kSparseCsr, op, "expect self to be SparseCsr, got ", self.layout());
  TORCH_CHECK(is_matrix(self), op, "expected self to be a 2-D non-hybrid tensor, got ", self.dim(),
              "-D tensor.");
  TORCH_CHECK(other.layout() == at::kStrided && other.dim() == 2, op,
              "expected other to be a strided 2-D tensor, got ", other.dim(), "-D tensor.");
  TORCH_CHECK(self.size(1) == other.size(0), op, "mat1 and mat2 shapes cannot be multiplied (", self.size(0),
              "x", self.size(1), " and ", other.size(0), "x", other.size(1), ")");
  TORCH_CHECK(self.scalar_type() == other.scalar_type(), op,
              "expected input and other to have the same dtype, but got ", self.scalar_type(), " and ",
              other.scalar_type());
}

Tensor counts_of(const Tensor& begin, const Tensor& like) {
  int64_t n = begin.size(0) - 1;
  Tensor count = begin.narrow(0, 1, n) - begin.narrow(0, 0, n);
  return count.clamp_min(1).to(like.scalar_type()).unsqueeze(1);
}

std::tuple<Tensor, Tensor> mm_reduce(const Tensor& self, const Tensor& other, c10::string_view reduce) {
  static Op op("aten::_sparse_mm_reduce_impl");
  Call call(op, other);
  check_reduce(self, other);
  int mode = mode_of(reduce);
  Tensor begin = self.crow_indices(), columns = self.col_indices(), values = self.values().resolve_neg();
  call.view(values);
  Tensor out = at::zeros({self.size(0), other.size(1)}, other.options()),
         winner = at::empty({0}, columns.options());
  if (values.size(0) == 0 || out.numel() == 0) return {out, winner};
  bool wanted = at::GradMode::is_enabled() && (self.requires_grad() || other.requires_grad()) &&
                (mode == FL_SPMM_MAX || mode == FL_SPMM_MIN);
  Tensor won = wanted ? empty_like(out, out.sizes(), at::kLong) : Tensor();
  // Rows that the user gave: whatever they are, the chip stays inside the values.
  Tensor bounded = begin.clamp(0, values.size(0));
  Spmm spmm{mode, bounded, other, &columns, &values, wanted ? &won : nullptr};
  if (!spmm_into(call, spmm, out, 0)) return fallback<ATEN_OP(_sparse_mm_reduce_impl)>(self, other, reduce);
  if (wanted) winner = won.masked_fill_(won.lt(0), values.size(0)).to(columns.scalar_type());
  return {out, winner};
}

std::tuple<Tensor, Tensor> mm_reduce_backward(const Tensor& self, const Tensor& grad, const Tensor& other,
                                              c10::string_view reduce, const Tensor& winner,
                                              std::array<bool, 2> mask) {
  static Op op("aten::_sparse_mm_reduce_impl_backward");
  Call call(op, other);
  call.composed();
  check_reduce(self, other);
  int mode = mode_of(reduce);
  Tensor begin = self.crow_indices(), columns = self.col_indices().to(at::kLong), values = self.values();
  int64_t nnz = values.size(0);
  Tensor grad_values = at::zeros_like(values),
         grad_other = at::zeros_like(other, at::MemoryFormat::Contiguous);
  if (nnz && grad.numel()) {
    if (mode == FL_SPMM_SUM || mode == FL_SPMM_MEAN) {
      Tensor g = mode == FL_SPMM_MEAN ? grad.div(counts_of(begin, grad)) : grad,
             rows = rows_of(call, begin, nnz);
      if (mask[0]) grad_values = row_products(g, other, rows, columns);
      if (mask[1]) grad_other = multiply(call, {columns, rows, values, other.size(0), false, Tensor()}, g);
    } else {
      Tensor element = winner.to(at::kLong), nobody = element.ge(nnz);
      element = element.clamp(0, nnz - 1);
      Tensor g = grad.masked_fill(nobody, 0), flat = element.reshape({-1});
      Tensor place = columns.index_select(0, flat).view(element.sizes());
      if (mask[0]) accumulate(grad_values, flat, g.mul(other.gather(0, place)).reshape({-1}));
      if (mask[1])
        grad_other.scatter_add_(0, place, g.mul(values.index_select(0, flat).view(element.sizes())));
    }
  }
  Tensor grad_self;
  if (mask[0])
    grad_self = make_compressed(self, self.sizes(), begin, self.col_indices(), grad_values, self.layout());
  return {grad_self, mask[1] ? grad_other : Tensor()};
}

// -------------------------------------------------------------- reductions
Tensor reduce_csr(Op& op, const Tensor& self, IntArrayRef dims_in, bool keepdim,
                  std::optional<ScalarType> dtype, bool product) {
  Call call(op, self);
  call.composed();
  TORCH_CHECK(self.layout() == at::kSparseCsr && is_matrix(self),
              "reductions of sparse compressed tensors are of 2-D ", "CSR tensors, not of ", self.layout());
  TORCH_CHECK(keepdim, "reduction operations on CSR tensors with keepdim=False is unsupported");
  auto dims = at::dim_list_to_bitset(dims_in, 2);
  if (dims_in.empty()) dims[0] = dims[1] = true;
  Tensor begin = self.crow_indices(), columns = self.col_indices(), values = self.values();
  if (dtype) values = values.to(*dtype);
  int64_t m = self.size(0), n = self.size(1);
  bool whole = dims[0] && dims[1];
  if (at::isIntegralType(values.scalar_type(), true)) values = values.to(at::kLong);
  Groups g = whole     ? group(at::zeros({values.size(0)}, columns.options().dtype(at::kLong)), true)
             : dims[0] ? group(columns.to(at::kLong))
                       : group(rows_of(call, begin, values.size(0)), true);
  Tensor made;
  if (!product) {
    made = g.sum(values);
  } else {
    made = at::ones({g.count}, values.options());
    if (g.count) made.scatter_reduce_(0, g.segment, g.sorted(values), "prod", true);
  }
  if (dims[0]) {
    Tensor places = whole ? at::zeros({g.count}, columns.options()) : g.unique(columns);
    Tensor row = at::zeros({2}, begin.options());
    row.select(0, 1).fill_(g.count);
    return make_compressed(self, {1, whole ? std::min<int64_t>(1, n) : n}, row, places, made, self.layout());
  }
  Tensor filled = at::zeros_like(begin);
  if (m) filled.narrow(0, 1, m).copy_(begin.narrow(0, 1, m).ne(begin.narrow(0, 0, m)).cumsum(0));
  return make_compressed(self, {m, 1}, filled, at::zeros({g.count}, columns.options()), made, self.layout());
}

Tensor sum(const Tensor& self, IntArrayRef dims, bool keepdim, std::optional<ScalarType> dtype) {
  static Op op("aten::_sparse_csr_sum");
  return reduce_csr(op, self, dims, keepdim, dtype, false);
}
Tensor prod(const Tensor& self, IntArrayRef dims, bool keepdim, std::optional<ScalarType> dtype) {
  static Op op("aten::_sparse_csr_prod");
  return reduce_csr(op, self, dims, keepdim, dtype, true);
}

// ------------------------------------------------------------------ blocks
Tensor to_blocks(const Tensor& self, IntArrayRef block, at::Layout layout) {
  TORCH_CHECK(block.size() == 2, "blocksize needs to be a tuple of length 2, but got ", block.size());
  int64_t h = block[0], w = block[1], m = self.size(0), n = self.size(1);
  TORCH_CHECK(h > 0 && w > 0, "blocksize needs to be positive, but got ", block);
  TORCH_CHECK(m % h == 0 && n % w == 0, "tensor sparse size (", m, ",", n,
              ") must be divisible by given blocksize (", h, ",", w, ")");
  bool by_rows = layout == at::kSparseBsr;
  Tensor coo = self.to_sparse(), rows = coo._indices().select(0, 0), columns = coo._indices().select(0, 1);
  Tensor down = rows.div(h, "floor"), across = columns.div(w, "floor");
  const Tensor &major = by_rows ? down : across, &minor = by_rows ? across : down;
  Groups g = group(at::add(minor, major, by_rows ? n / w : m / h));
  Tensor values = at::zeros({g.count, h, w}, self.values().options());
  if (g.count) {
    c10::List<std::optional<Tensor>> at;
    at.push_back(g.segment);
    at.push_back(g.sorted(rows.sub(down, h)));
    at.push_back(g.sorted(columns.sub(across, w)));
    values.index_put_(at, g.sorted(coo._values()));
  }
  Tensor begin = row_begin(g.unique(major), by_rows ? m / h : n / w, at::kLong);
  return make_compressed(self, self.sizes(), begin, g.unique(minor), values, layout);
}

bool same_blocks(const Tensor& self, IntArrayRef block, at::Layout layout) {
  if (self.layout() != layout) return false;
  TORCH_CHECK(IntArrayRef(at::sparse_csr::getBlockSize(self)) == block, "conversion from ", layout, " to ",
              layout, " with changed blocksize is not supported");
  return true;
}

Tensor to_bsr(const Tensor& self, IntArrayRef block, std::optional<int64_t> dense_dim) {
  static Op op("aten::_to_sparse_bsr");
  if (self.dim() != 2 || self.dense_dim()) return fallback<ATEN_OP(_to_sparse_bsr)>(self, block, dense_dim);
  if (same_blocks(self, block, at::kSparseBsr)) return self;
  Call(op, self).composed();
  return to_blocks(self, block, at::kSparseBsr);
}
Tensor to_bsc(const Tensor& self, IntArrayRef block, std::optional<int64_t> dense_dim) {
  static Op op("aten::_to_sparse_bsc");
  if (self.dim() != 2 || self.dense_dim()) return fallback<ATEN_OP(_to_sparse_bsc)>(self, block, dense_dim);
  if (same_blocks(self, block, at::kSparseBsc)) return self;
  Call(op, self).composed();
  return to_blocks(self, block, at::kSparseBsc);
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("add.out", add_out);
  m.impl("addmm.out", addmm_out);
  m.impl("addmv.out", addmv_out);
  m.impl("sparse_sampled_addmm", sampled_addmm);
  m.impl("sparse_sampled_addmm.out", sampled_addmm_out);
  m.impl("_sparse_mm_reduce_impl", mm_reduce);
  m.impl("_sparse_mm_reduce_impl_backward", mm_reduce_backward);
  m.impl("_sparse_csr_sum.dim_dtype", sum);
  m.impl("_sparse_csr_prod.dim_dtype", prod);
  m.impl("_to_sparse_bsr", to_bsr);
  m.impl("_to_sparse_bsc", to_bsc);
}

}  // namespace
}  // namespace fl::bridge::sparse
