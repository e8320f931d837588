// Products with sparse coordinate matrices.
#include <ATen/ExpandUtils.h>

#include "bridge/ops/sparse.h"
#include "bridge/ops/spmm.h"
#include "runtime/index_error.h"

namespace fl::bridge::sparse {

Tensor multiply(Call& call, Elements e, const Tensor& factor) {
  // PyTorch hands conjugated views to matrix products as they are, and values may be such views in any
  // operator.
  const Tensor values = e.values.resolve_conj().resolve_neg(), dense = factor.resolve_conj().resolve_neg();
  TORCH_CHECK(values.scalar_type() == dense.scalar_type(),
              "expected m1 and m2 to have the same dtype, but got: ", c10::toString(values.scalar_type()),
              " != ", c10::toString(dense.scalar_type()));
  int64_t count = values.size(0), width = dense.size(1);
  Tensor out = at::zeros({e.n_rows, width}, dense.options());
  if (count == 0 || out.numel() == 0) return out;
  if (dense.size(0) && call.claims(FL_ENTRY_SPMM, FL_SPMM_SUM, dtype_of(dense))) {
    Tensor columns = e.columns, v = values, begin = e.begin;
    if (!begin.defined()) {
      begin = row_begin(e.rows, e.n_rows, at::kLong);
      if (!e.sorted) {
        Tensor order = at::argsort(e.rows, /*stable=*/true, 0, false);
        columns = columns.index_select(0, order), v = v.index_select(0, order);
      }
      columns = columns.to(at::kLong);
    } else {
      // Rows that the user gave: whatever they are, the chip stays inside the values.
      begin = begin.clamp(0, count);
      columns = columns.to(begin.scalar_type());
    }
    if (spmm_into(call, {FL_SPMM_SUM, begin, dense, &columns, &v}, out, 0)) return out;
  }
  call.composed();
  Tensor rows = e.rows.defined() ? e.rows : rows_of(call, e.begin, count);
  Tensor products = dense.index_select(0, e.columns.to(at::kLong)).mul_(values.unsqueeze(1));
  accumulate(out, rows, products);
  return out;
}

Tensor sparse_sparse(Call& call, const Tensor& a_in, const Tensor& b_in) {
  Tensor a = coalesced(a_in), b = coalesced(b_in);
  Tensor ai = a._indices(), bi = b._indices();
  int64_t n = b.size(0);
  Tensor begin = row_begin(bi.select(0, 0), n, at::kLong), middle = ai.select(0, 1);
  Tensor length = begin.narrow(0, 1, n) - begin.narrow(0, 0, n);
  // Each element of a meets a row of b.
  Pairs p = pairs(call, begin.narrow(0, 0, n).index_select(0, middle), length.index_select(0, middle));
  Tensor values = a._values().index_select(0, p.left).mul(b._values().index_select(0, p.right));
  Tensor indices =
      at::stack({ai.select(0, 0).index_select(0, p.left), bi.select(0, 1).index_select(0, p.right)});
  return coalesced(make_coo(a, {a.size(0), b.size(1)}, indices, values, false));
}

namespace {

Elements elements_of(const Tensor& t) {
  Tensor indices = t._indices();
  return {indices.select(0, 0), indices.select(0, 1), t._values(), t.size(0), t.is_coalesced(), Tensor()};
}

void check_matrices(const char* name, const Tensor& sparse, const Tensor& dense) {
  TORCH_CHECK(sparse.is_sparse() && dense.layout() == at::kStrided, name,
              ": expected a sparse and a strided matrix, but got layouts ", sparse.layout(), " and ",
              dense.layout());
  TORCH_CHECK(sparse.sparse_dim() == 2, name, ": matrices expected, got ", sparse.sparse_dim(), "D tensor");
  TORCH_CHECK(sparse.dense_dim() == 0, name, ": scalar values expected, got ", sparse.dense_dim(),
              "D values");
  TORCH_CHECK(dense.dim() == 2, name, ": matrices expected, got ", dense.dim(), "D tensor");
  TORCH_CHECK(dense.size(0) == sparse.size(1), name, ": Argument #3 (dense): Expected dim 0 size ",
              sparse.size(1), ", got ", dense.size(0));
}

Tensor& addmm_into(const Tensor& self, const Tensor& sparse, const Tensor& dense, const at::Scalar& beta,
                   const at::Scalar& alpha, Tensor& out) {
  static InvalidIndexOp op("aten::addmm");
  Call call(op, out);
  for (const Tensor* t : {&self, &sparse, &dense})
    if (t->device() != out.device()) throw_mixed_devices(op, out.device(), t->device());
  check_matrices("addmm", sparse, dense);
  TORCH_CHECK(out.layout() == at::kStrided && self.layout() == at::kStrided,
              "addmm: expected strided tensors for 'self' and the result, got ", self.layout(), " and ",
              out.layout());
  Tensor product = multiply(call, elements_of(sparse), dense);
  if (!out.is_same(self)) at::native::resize_output(out, {sparse.size(0), dense.size(1)});
  return combine(self, product, beta, alpha, out);
}

Tensor& addmm_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const at::Scalar& beta,
                  const at::Scalar& alpha, Tensor& out) {
  auto whole = at::expand_size(self, {mat1.size(0), mat2.size(1)}, "addmm_out");
  return addmm_into(*whole, mat1, mat2, beta, alpha, out);
}
Tensor addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const at::Scalar& beta,
             const at::Scalar& alpha) {
  Tensor out = at::empty({0}, self.options());
  return addmm_out(self, mat1, mat2, beta, alpha, out);
}
Tensor& addmm_in_place(Tensor& self, const Tensor& mat1, const Tensor& mat2, const at::Scalar& beta,
                       const at::Scalar& alpha) {
  TORCH_CHECK(self.dim() == 2 && self.size(0) == mat1.size(0) && self.size(1) == mat2.size(1),
              "addmm: expected 'self' to be ", mat1.size(0), " x ", mat2.size(1), ", got ", self.sizes());
  return addmm_into(self, mat1, mat2, beta, alpha, self);
}

Tensor& bmm_out(const Tensor& self, const Tensor& mat2, Tensor& out) {
  static Op op("aten::bmm");
  Call call(op, self);
  call.view(mat2);
  TORCH_CHECK(mat2.layout() == at::kStrided, "bmm_sparse: Tensor 'mat2' must be dense");
  TORCH_CHECK(self.dense_dim() == 0, "bmm_sparse: Tensor 'self' must have 0 dense dims, but has ",
              self.dense_dim());
  TORCH_CHECK(self.sparse_dim() == 3, "bmm_sparse: Tensor 'self' must have 3 sparse dims, but has ",
              self.sparse_dim());
  TORCH_CHECK(mat2.dim() == 3, "bmm_sparse: Tensor 'mat2' must have 3 dims, but has ", mat2.dim());
  TORCH_CHECK(self.size(0) == mat2.size(0), "bmm_sparse: 'self.size(0)' and 'mat2.size(0)' must match");
  TORCH_CHECK(self.size(2) == mat2.size(1), "bmm_sparse: 'self.size(2)' and 'mat2.size(1)' must match");
  int64_t batch = self.size(0), m = self.size(1), k = self.size(2), n = mat2.size(2);
  at::native::resize_output(out, {batch, m, n});
  // One matrix with the batch's on its diagonal.
  Tensor indices = self._indices(), b = indices.select(0, 0);
  Elements e{at::add(indices.select(0, 1), b, m),
             at::add(indices.select(0, 2), b, k),
             self._values(),
             batch * m,
             self.is_coalesced(),
             Tensor()};
  return out.copy_(multiply(call, e, mat2.reshape({batch * k, n})).view({batch, m, n}));
}
Tensor bmm(const Tensor& self, const Tensor& mat2) {
  Tensor out = at::empty({0}, mat2.options());
  return bmm_out(self, mat2, out);
}

Tensor sparse_matmul(const Tensor& a, const Tensor& b) {
  static Op op("aten::_sparse_sparse_matmul");
  Call call(op, a);
  call.composed();
  if (a.device() != b.device()) throw_mixed_devices(op, a.device(), b.device());
  TORCH_CHECK(a.is_sparse() && b.is_sparse(), "sparse_matmul: both matrices must be sparse");
  TORCH_CHECK(a.dim() == 2 && b.dim() == 2 && a.dense_dim() == 0 && b.dense_dim() == 0,
              "sparse_matmul: matrices with scalar values expected");
  TORCH_CHECK(a.size(1) == b.size(0), "mat1 and mat2 shapes cannot be multiplied (", a.size(0), "x",
              a.size(1), " and ", b.size(0), "x", b.size(1), ")");
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "mat1 dtype ", a.scalar_type(),
              " does not match mat2 dtype ", b.scalar_type());
  return sparse_sparse(call, a, b);
}

// The rows of sparse × dense that are not empty, and their numbers.
std::pair<Tensor, Tensor> filled_rows(Call& call, const Tensor& sparse, const Tensor& dense) {
  Tensor t = coalesced(sparse), indices = t._indices(), rows = indices.select(0, 0);
  Groups g = group(rows, true);
  Elements e{g.segment, indices.select(0, 1), t._values(), g.count, true, Tensor()};
  return {g.unique(rows), multiply(call, e, dense)};
}

Tensor& hspmm_out(const Tensor& sparse, const Tensor& dense, Tensor& out) {
  static Op op("aten::hspmm");
  Call call(op, sparse);
  check_matrices("hspmm", sparse, dense);
  call.view(dense);
  auto [rows, values] = filled_rows(call, sparse, dense);
  return set_coo(out, {sparse.size(0), dense.size(1)}, rows.unsqueeze(0), values, true);
}
Tensor hspmm(const Tensor& sparse, const Tensor& dense) {
  Tensor out = at::empty({0}, sparse.options());
  return hspmm_out(sparse, dense, out);
}

Tensor& sspaddmm_out(const Tensor& self, const Tensor& sparse, const Tensor& dense, const at::Scalar& beta,
                     const at::Scalar& alpha, Tensor& out) {
  static Op op("aten::sspaddmm");
  Call call(op, sparse);
  check_matrices("sspaddmm", sparse, dense);
  call.view(dense);
  int64_t m = sparse.size(0), n = dense.size(1);
  bool reads_self = self._nnz() != 0;
  TORCH_CHECK(!reads_self || (self.size(0) == m && self.size(1) == n),
              "sspaddmm: Argument #1: Expected sizes ", m, " x ", n, ", got ", self.sizes());
  auto [rows, values] = filled_rows(call, sparse, dense);
  ScalarType dtype = values.scalar_type();
  int64_t count = rows.size(0);
  Tensor places = at::stack({rows.unsqueeze(1).expand({count, n}).reshape({-1}),
                             at::arange(n, rows.options()).expand({count, n}).reshape({-1})});
  Tensor products = values.reshape({-1}).mul(as_stored(alpha, dtype));
  if (reads_self) {
    places = at::cat({self._indices(), places}, 1);
    products = at::cat({self._values().to(dtype).mul(as_stored(beta, dtype)), products});
  }
  return set_coo(out, {m, n}, places, products, false);
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("addmm.out", addmm_out);
  m.impl("addmm", addmm);
  m.impl("addmm_", addmm_in_place);
  m.impl("bmm.out", bmm_out);
  m.impl("bmm", bmm);
  m.impl("_sparse_sparse_matmul", sparse_matmul);
  m.impl("hspmm.out", hspmm_out);
  m.impl("hspmm", hspmm);
  m.impl("sspaddmm.out", sspaddmm_out);
}

}  // namespace
}  // namespace fl::bridge::sparse
