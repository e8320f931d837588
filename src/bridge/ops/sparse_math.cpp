// Sparse coordinate tensors: sums, products, masks, selection, softmax.
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/WrapDimUtilsMulti.h>

#include "bridge/ops/sparse.h"

namespace fl::bridge::sparse {
namespace {

Tensor keys_of(const Tensor& t) { return linear_index(t._indices(), t.sizes().slice(0, t.sparse_dim())); }

// [n] seen with the dimensions of values [n, …].
Tensor along_values(const Tensor& t, const Tensor& values) {
  at::DimVector sizes(values.dim(), 1);
  sizes[0] = t.size(0);
  return t.view(sizes);
}

// values[at] where found, else 0.
Tensor values_at(const Tensor& values, const Match& match) {
  if (values.size(0) == 0) {
    at::DimVector sizes(values.sizes());
    sizes[0] = match.at.size(0);
    return at::zeros(sizes, values.options());
  }
  Tensor chosen = values.index_select(0, match.at);
  return chosen.masked_fill_(along_values(match.found.logical_not(), chosen), 0);
}

void check_castable(ScalarType from, ScalarType to, const char* name) {
  TORCH_CHECK(at::canCast(from, to), "Can't convert result type ", from, " to output ", to, " in ", name,
              " operation");
}

// --------------------------------------------------------------------- add
Tensor& add_to_dense(Call& call, const Tensor& dense, const Tensor& t, const at::Scalar& alpha, Tensor& out) {
  TORCH_CHECK(dense.sizes() == t.sizes(),
              "add: expected 'self' and 'other' to have same size, but self has size ", dense.sizes(),
              " while other has size ", t.sizes(),
              " (FYI: dense-sparse addition does not currently support broadcasting)");
  ScalarType common = at::promoteTypes(dense.scalar_type(), t.scalar_type());
  check_castable(common, out.scalar_type(), "add");
  call.view(dense);
  int64_t d = t.sparse_dim();
  if (!out.is_same(dense)) at::native::resize_output(out, dense.sizes());
  if (t._nnz() == 0 || out.numel() == 0) return out.is_same(dense) ? out : out.copy_(dense);
  at::DimVector rows{-1};
  rows.append(dense.sizes().begin() + d, dense.sizes().end());
  Tensor values = t._values().to(common);
  if (!alpha.equal(1)) values = values.mul(as_stored(alpha, common));
  bool direct = out.scalar_type() == common && out.is_contiguous();
  if (direct && !out.is_same(dense)) out.copy_(dense);
  Tensor sum = direct ? out : dense.to(common, false, /*copy=*/true).contiguous();
  accumulate(d ? sum.view(rows) : sum.unsqueeze(0), linear_index(t._indices(), t.sizes().slice(0, d)),
             values);
  return direct ? out : out.copy_(sum);
}

Tensor& add_out(const Tensor& self, const Tensor& other, const at::Scalar& alpha, Tensor& out) {
  static Op op("aten::add");
  Call call(op, self);
  call.composed();
  TORCH_CHECK(other.is_sparse(), "add(sparse, dense) is not supported. Use add(dense, sparse) instead.");
  if (self.device() != other.device()) throw_mixed_devices(op, self.device(), other.device());
  if (!self.is_sparse()) return add_to_dense(call, self, other, alpha, out);
  TORCH_CHECK(out.is_sparse(), "add: expected 'out' to be a sparse tensor");
  TORCH_CHECK(self.sizes() == other.sizes(), "add: expected sizes of 'self' and 'other' to match, but ",
              self.sizes(), " != ", other.sizes());
  ScalarType common = at::promoteTypes(self.scalar_type(), other.scalar_type());
  check_castable(common, out.scalar_type(), "add");
  auto scaled = [&](const Tensor& values) {
    Tensor v = values.to(common);
    return alpha.equal(1) ? v : v.mul(as_stored(alpha, common));
  };
  if (other._nnz() == 0) return out.is_same(self) ? out : at::copy_sparse_to_sparse_(out, self);
  if (self._nnz() == 0)
    return set_coo(out, other.sizes(), other._indices().clone(), scaled(other._values()).clone(),
                   other.is_coalesced());
  TORCH_CHECK(self.sparse_dim() == other.sparse_dim() && self.dense_dim() == other.dense_dim(),
              "add: expected 'self' and 'other' to have same density, but 'self' has ", self.sparse_dim(),
              " sparse dimensions while 'other' has ", other.sparse_dim(), " sparse dimensions");
  Tensor indices = at::cat({self._indices(), other._indices()}, 1);
  Tensor values = at::cat({self._values().to(common), scaled(other._values())}, 0);
  bool tidy = self.is_coalesced() && other.is_coalesced();
  // Repeated sums of sparse tensors must not grow without bound.
  if (!tidy && values.size(0) <= self.numel()) return set_coo(out, self.sizes(), indices, values, false);
  Tensor sum = coalesced(make_coo(self, self.sizes(), indices, values, false));
  return set_coo(out, self.sizes(), sum._indices(), sum._values(), tidy);
}

// --------------------------------------------------------------------- mul
// Keeps the places of `t`.
Tensor& mul_dense(const Tensor& dense, const Tensor& given, Tensor& out) {
  auto shape = at::infer_size(dense.sizes(), given.sizes());
  Tensor t = dense.dim() > given.dim() ? coalesced(given) : given;
  int64_t dense_dims = t.dense_dim();
  if (dense.dim() > dense_dims && t.sizes() != IntArrayRef(shape)) {
    t = at::_sparse_broadcast_to(t, shape);
    dense_dims = t.dense_dim();
  }
  Tensor indices = t._indices(), values = t._values(), factor = dense;
  if (dense.dim() > dense_dims) factor = dense_at(dense.expand(shape), indices);
  return set_coo(out, shape, indices.clone(), values.mul(factor), t.is_coalesced());
}

// Both sparse, of equal sparse sizes; the values' dimensions broadcast.
Tensor& mul_sparse(const Tensor& a, const Tensor& b, Tensor& out) {
  int64_t d = a.sparse_dim();
  TORCH_CHECK(d == b.sparse_dim() && a.sizes().slice(0, d) == b.sizes().slice(0, d),
              "mul: expected 'self' and 'other' to have same sizes when both are sparse, but ", a.sizes(),
              " != ", b.sizes());
  // The one with duplicates keeps them.
  const Tensor &left = a.is_coalesced() && !b.is_coalesced() ? b : a, &other = left.is_same(a) ? b : a;
  Tensor right = coalesced(other);
  Match match = find(keys_of(right), keys_of(left));
  Tensor kept = match.found.nonzero().squeeze(1), at = match.at.index_select(0, kept);
  Tensor values = left._values().index_select(0, kept).mul(right._values().index_select(0, at));
  at::DimVector sizes(a.sizes().slice(0, d));
  sizes.append(values.sizes().begin() + 1, values.sizes().end());
  return set_coo(out, sizes, left._indices().index_select(1, kept), values, left.is_coalesced());
}

Tensor& mul_out(const Tensor& self, const Tensor& other, Tensor& out) {
  static Op op("aten::mul");
  Call(op, out).composed();
  // A number of the host is taken as it is.
  for (const Tensor* t : {&self, &other})
    if (t->device() != out.device() && (t->dim() || !t->device().is_cpu()))
      throw_mixed_devices(op, out.device(), t->device());
  TORCH_CHECK(out.is_sparse(), "mul: expected 'out' to be a sparse tensor");
  check_castable(at::result_type(self, other), out.scalar_type(), "mul");
  if (!other.is_sparse()) return mul_dense(other, self, out);
  if (!self.is_sparse()) return mul_dense(self, other, out);
  if (!self.dim() || !other.dim()) {
    // Of two numbers the coalesced one multiplies; the other keeps its elements.
    bool swap = other.dim() || (!self.dim() && self.is_coalesced() && !other.is_coalesced());
    const Tensor &number = swap ? self : other, &t = swap ? other : self;
    Tensor value = coalesced(number)._values();
    if (value.size(0)) return mul_dense(value.select(0, 0), t, out);
    Tensor indices = t._indices(), values = t._values();
    return set_coo(out, t.sizes(), indices.narrow_copy(1, 0, 0), values.narrow_copy(0, 0, 0), true);
  }
  return mul_sparse(self, other, out);
}

// -------------------------------------------------------------------- masks
Tensor sparse_mask(const Tensor& t, const Tensor& mask) {
  static Op op("aten::sparse_mask");
  Call(op, mask).composed();
  TORCH_CHECK(mask.sizes() == t.sizes(), "sparse_mask(): operands have incompatible sizes; self has size ",
              t.sizes(), " but mask has size ", mask.sizes());
  if (t.device() != mask.device()) throw_mixed_devices(op, t.device(), mask.device());
  if (t.is_same(mask)) return t;
  if (!mask.numel() || !mask._nnz()) return mask.clone().to(t.scalar_type());
  Tensor indices = mask._indices(), values;
  if (t.is_sparse()) {
    TORCH_CHECK(
        t.sparse_dim() == mask.sparse_dim(),
        "sparse_mask(): the number of sparse dimensions in `self` should match that of the `mask`. Got "
        "`self.sparse_dim() == ",
        t.sparse_dim(), "` != `mask.sparse_dim() == ", mask.sparse_dim(), "`.");
    Tensor from = coalesced(t);
    values = values_at(from._values(), find(keys_of(from), keys_of(mask)));
  } else {
    values = dense_at(t, indices);
  }
  return make_coo(t, mask.sizes(), indices.clone(), values, mask.is_coalesced());
}

Tensor mask_projection(const Tensor& t, const Tensor& mask, bool accumulate_matches) {
  static Op op("aten::_sparse_mask_projection");
  Call(op, t).composed();
  TORCH_CHECK(mask.sizes() == t.sizes(),
              "_sparse_mask_projection(): operands have incompatible sizes; self has size ", t.sizes(),
              " but mask has size ", mask.sizes());
  Tensor values = t._values(), factor;
  if (!t.numel() || !t._nnz() || !mask._nnz()) {
    factor = at::zeros({t._nnz()}, values.options());
  } else {
    Groups g = group(keys_of(mask), mask.is_coalesced());
    Match match = find(g.unique(keys_of(mask)), keys_of(t));
    factor = match.found.to(values.scalar_type());
    if (accumulate_matches && !mask.is_coalesced())
      factor = factor.mul(g.sum(at::ones({mask._nnz()}, values.options())).index_select(0, match.at));
  }
  return make_coo(t, t.sizes(), t._indices().clone(), values.mul(along_values(factor, values)),
                  t.is_coalesced());
}

// ---------------------------------------------------------------- selection
Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  static Op op("aten::index_select");
  Call call(op, self);
  call.view(index);
  call.composed();
  TORCH_CHECK_INDEX(self.dim() > 0, "index_select() cannot be applied to a 0-dim tensor.");
  TORCH_CHECK_INDEX(index.dim() == 1 && index.scalar_type() == at::kLong,
                    "index_select() argument index must be 1-D long-tensor.");
  dim = at::maybe_wrap_dim(dim, self.dim());
  int64_t size = self.size(dim), d = self.sparse_dim();
  Tensor wrapped = at::where(index.lt(0), index + size, index);
  at::DimVector sizes(self.sizes());
  sizes[dim] = index.size(0);
  Tensor indices = self._indices(), values = self._values();
  if (dim >= d)
    return make_coo(self, sizes, indices.clone(), values.index_select(dim - d + 1, wrapped),
                    self.is_coalesced());
  // Elements by their place in the dimension, and how many there are of each.
  Tensor place = indices.select(0, dim), order = at::argsort(place, /*stable=*/true, 0, false);
  Tensor begin = row_begin(place, size, at::kLong);
  Tensor length = begin.narrow(0, 1, size) - begin.narrow(0, 0, size);
  Pairs p = pairs(call, begin.narrow(0, 0, size).index_select(0, wrapped), length.index_select(0, wrapped));
  Tensor chosen = order.index_select(0, p.right), made = indices.index_select(1, chosen);
  made.select(0, dim).copy_(p.left);
  // Along the first dimension the elements come out in order.
  return make_coo(self, sizes, made, values.index_select(0, chosen), self.is_coalesced() && dim == 0);
}

// ---------------------------------------------------- the gradient of a sum
Tensor sum_backward(const Tensor& grad_in, const Tensor& self, IntArrayRef dims) {
  static Op op("aten::_sparse_sum_backward");
  Call(op, self).composed();
  if ((grad_in.layout() != at::kStrided && !grad_in._nnz()) || !grad_in.numel()) return at::zeros_like(self);
  Tensor input = coalesced(self), indices = input._indices(), values = input._values();
  int64_t d = input.sparse_dim();
  auto summed = at::dim_list_to_bitset(dims, input.dim());
  at::DimVector kept, kept_sizes, dense;  // sparse dimensions that stay; values' dimensions that were summed
  for (int64_t k = 0; k < input.dim(); ++k) {
    if (k >= d && summed[k]) dense.push_back(k - d + 1);
    if (k < d && !summed[k]) kept.push_back(k), kept_sizes.push_back(input.size(k));
  }
  Tensor grad;
  if (kept.empty()) {
    TORCH_CHECK(!grad_in.is_sparse(),
                "_sparse_sum_backward: expected grad_ Tensor to be dense since all sparse dims are summed");
    grad = grad_in.unsqueeze(0);
  } else {
    TORCH_CHECK(grad_in.is_sparse(),
                "_sparse_sum_backward: expected grad_ Tensor to be sparse, but got dense");
    Tensor from = coalesced(grad_in);
    grad = from._values();
    if (static_cast<int64_t>(kept.size()) != d) {
      std::vector<Tensor> rows;
      for (int64_t k : kept) rows.push_back(indices.select(0, k));
      grad = values_at(grad, find(keys_of(from), linear_index(at::stack(rows), kept_sizes)));
    }
  }
  for (int64_t k : dense) grad = grad.unsqueeze(k);
  return make_coo(input, input.sizes(), indices.clone(),
                  grad.expand(values.sizes()).clone(at::MemoryFormat::Contiguous), true);
}

// ------------------------------------------------------------------ softmax
// Over the elements that are there: those alike in all sparse dimensions but one are a pool.
struct Pools {
  Tensor segment;  // of each element
  int64_t count;
  Pools(const Tensor& t, int64_t dim) {
    Tensor indices = t._indices();
    int64_t d = t.sparse_dim();
    std::vector<Tensor> rows;
    at::DimVector sizes;
    for (int64_t k = 0; k < d; ++k)
      if (k != dim) rows.push_back(indices.select(0, k)), sizes.push_back(t.size(k));
    Tensor keys =
        rows.empty() ? at::zeros({t._nnz()}, indices.options()) : linear_index(at::stack(rows), sizes);
    Groups g = group(keys);
    count = g.count;
    segment = at::empty_like(keys);
    if (g.order.defined()) segment.index_copy_(0, g.order, g.segment);
    else segment.copy_(g.segment);
  }
  // The sum (or the largest) of each pool, at its elements.
  Tensor spread(const Tensor& values, bool largest = false) const {
    at::DimVector sizes(values.sizes());
    sizes[0] = count;
    Tensor pool = at::zeros(sizes, values.options());
    if (largest) {
      Tensor where = along_values(segment, values).expand_as(values);
      pool.fill_(-INFINITY).scatter_reduce_(0, where, values, "amax", true);
    } else {
      pool.index_add_(0, segment, values);
    }
    return pool.index_select(0, segment);
  }
};

Tensor softmax_of(const Tensor& self, int64_t dim, bool half_to_float, bool log) {
  static Op plain("aten::_sparse_softmax"), logarithm("aten::_sparse_log_softmax");
  Call(log ? logarithm : plain, self).composed();
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(self.scalar_type()) || at::isComplexType(self.scalar_type()),
                              "\"", log ? "log_softmax" : "softmax", "\" not implemented for '",
                              c10::toString(self.scalar_type()), "'");
  if (self.numel() == 0) return at::zeros_like(self);
  TORCH_CHECK(!half_to_float, "softmax with half to float conversion is not supported on sparse tensors");
  Tensor t = coalesced(self), values = t._values(), out;
  dim = at::maybe_wrap_dim(dim, t.dim());
  int64_t d = t.sparse_dim();
  if (values.numel() == 0) {
    out = values.clone();
  } else if (dim >= d) {
    out = log ? at::log_softmax(values, dim - d + 1) : at::softmax(values, dim - d + 1);
  } else {
    Pools pools(t, dim);
    Tensor shifted = values - pools.spread(values, true), power = shifted.exp(), sum = pools.spread(power);
    out = log ? shifted.sub_(sum.log_()) : power.div_(sum);
  }
  return make_coo(t, t.sizes(), t._indices().clone(), out, true);
}

Tensor softmax_backward_of(const Tensor& grad_in, const Tensor& output, int64_t dim, const Tensor& self,
                           bool log) {
  static Op plain("aten::_sparse_softmax_backward_data"),
      logarithm("aten::_sparse_log_softmax_backward_data");
  Call(log ? logarithm : plain, output).composed();
  TORCH_CHECK(grad_in.is_sparse(), "grad must be sparse");
  TORCH_CHECK(grad_in.sizes() == output.sizes(), "expected gradient and output to be of the same size");
  dim = at::maybe_wrap_dim(dim, self.dim());
  int64_t d = output.sparse_dim();
  Tensor out = coalesced(output), grad = coalesced(grad_in), o = out._values();
  Tensor g = values_at(grad._values(), find(keys_of(grad), keys_of(out))).to(o.scalar_type()), made;
  if (o.numel() == 0) {
    made = o.clone();
  } else if (dim >= d) {
    made = log ? at::_log_softmax_backward_data(g, o, dim - d + 1, o.scalar_type())
               : at::_softmax_backward_data(g, o, dim - d + 1, o.scalar_type());
  } else {
    Pools pools(out, dim);
    made = log ? g - o.exp() * pools.spread(g) : o * (g - pools.spread(o * g));
  }
  return make_coo(out, out.sizes(), out._indices().clone(), made, true);
}

Tensor softmax(const Tensor& self, int64_t dim, bool half) { return softmax_of(self, dim, half, false); }
Tensor log_softmax(const Tensor& self, int64_t dim, bool half) { return softmax_of(self, dim, half, true); }
Tensor softmax_backward(const Tensor& grad, const Tensor& out, int64_t dim, const Tensor& self) {
  return softmax_backward_of(grad, out, dim, self, false);
}
Tensor log_softmax_backward(const Tensor& grad, const Tensor& out, int64_t dim, const Tensor& self) {
  return softmax_backward_of(grad, out, dim, self, true);
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("add.out", add_out);
  m.impl("mul.out", mul_out);
  m.impl("sparse_mask", sparse_mask);
  m.impl("_sparse_mask_projection", mask_projection);
  m.impl("index_select", index_select);
  m.impl("_sparse_sum_backward", sum_backward);
  m.impl("_sparse_softmax", softmax);
  m.impl("_sparse_log_softmax", log_softmax);
  m.impl("_sparse_softmax_backward_data", softmax_backward);
  m.impl("_sparse_log_softmax_backward_data", log_softmax_backward);
}

}  // namespace
}  // namespace fl::bridge::sparse
