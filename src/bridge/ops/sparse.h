// What the operators on sparse tensors are built from: sorting and grouping
// index tuples, row pointers, joins.  All of it runs on the device; only the
// number of elements of a result is read on the host.
#pragma once

#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/native/SparseTensorUtils.h>

#include "bridge/ops/programs.h"

namespace fl::bridge::sparse {

// The row-major number of each column of `indices` [d, n] in a box of these d
// sizes.  Refuses sizes whose product is beyond 63 bits.
Tensor linear_index(const Tensor& indices, IntArrayRef sizes);

// Equal keys (I64 [n]) brought together, in ascending order.
struct Groups {
  Tensor order;    // position among the keys of each sorted element; undefined: they were sorted
  Tensor segment;  // the group of each sorted element, 0 … count-1
  int64_t count;
  Tensor sorted(const Tensor& t, int64_t dim = 0) const {
    return order.defined() ? t.index_select(dim, order) : t;
  }
  // One of each group, which must be equal.
  Tensor unique(const Tensor& t, int64_t dim = 0) const;
  // Along dimension 0.
  Tensor sum(const Tensor& values) const;
};
Groups group(const Tensor& keys, bool are_sorted = false);

// to[index[i]] += values[i] along dimension 0; BOOL: or.  Half dtypes add up in F32.
void accumulate(const Tensor& to, const Tensor& index, const Tensor& values);

// Where each row of a matrix with n rows begins: [n + 1], from each element's row.
Tensor row_begin(const Tensor& rows, int64_t n, ScalarType dtype);

// The pairs (i, begin[i] + 0 … begin[i] + length[i]-1).
struct Pairs {
  Tensor left, right;
};
Pairs pairs(Call& call, const Tensor& begin, const Tensor& length);

// Where in `sorted` (distinct keys) each key is, and whether; 0 where not.
struct Match {
  Tensor at, found;
};
Match find(const Tensor& sorted, const Tensor& keys);

// A strided tensor at the places of `indices` [d, n]: [n, the other dimensions].
Tensor dense_at(const Tensor& dense, const Tensor& indices);

// Takes indices and values as the whole of `r`, converted to its dtype.
Tensor& set_coo(Tensor& r, IntArrayRef sizes, const Tensor& indices, const Tensor& values, bool coalesced);
Tensor make_coo(const Tensor& like, IntArrayRef sizes, const Tensor& indices, const Tensor& values,
                bool coalesced);
Tensor coalesced(const Tensor& t);
// `made` (any sparse compressed layout) becomes the whole of `r`; index dtype as `like`'s.
Tensor& set_compressed(Tensor& r, const Tensor& made, const Tensor& like);

// A number as the dtype holds it: 2.5 is 2 for integers.
at::Scalar as_stored(const at::Scalar& value, ScalarType dtype);
// out = beta × self + alpha × product; self is not read when beta is 0.
Tensor& combine(const Tensor& self, const Tensor& product, const at::Scalar& beta, const at::Scalar& alpha,
                Tensor& out);

// The matrix with these elements times dense [K, N]: [n_rows, N].
struct Elements {
  Tensor rows, columns, values;
  int64_t n_rows;
  bool sorted;   // by row
  Tensor begin;  // where rows begin, if known; then `rows` may be undefined
};
Tensor multiply(Call& call, Elements e, const Tensor& dense);
// COO [M, K] × COO [K, N], coalesced.
Tensor sparse_sparse(Call& call, const Tensor& a, const Tensor& b);

}  // namespace fl::bridge::sparse
