// Linear algebra that is products and triangular systems: solves with triangular
// and factored matrices, Cholesky's factor, products of reflectors, permutations
// of pivots, LU with partial pivoting and what PyTorch builds from it, the exponential.  Everything is
// queued; orthogonal and spectral decompositions are the CPU's.
#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/native/TransposeType.h>
#include <ATen/ops/_linalg_det_native.h>
#include <ATen/ops/_linalg_slogdet_native.h>
#include <ATen/ops/_linalg_solve_ex_native.h>
#include <ATen/ops/cholesky_inverse_native.h>
#include <ATen/ops/linalg_cholesky_ex_native.h>
#include <ATen/ops/linalg_householder_product_native.h>
#include <ATen/ops/linalg_inv_ex_native.h>
#include <ATen/ops/linalg_lu_factor_ex_native.h>
#include <ATen/ops/linalg_lu_native.h>
#include <ATen/ops/linalg_lu_solve_native.h>
#include <ATen/ops/linalg_solve_triangular_native.h>
#include <ATen/ops/lu_unpack_native.h>
#include <ATen/ops/triangular_solve_native.h>

#include <cmath>

#include "bridge/iterator.h"
#include "bridge/ops/programs.h"
#include "program/expr.h"

namespace fl::bridge {
namespace {

using at::native::TransposeType;

constexpr int64_t kBlock = 32;

// [..., r, c] → [B, r, c]
Tensor batch_of(const Tensor& t) { return t.reshape({-1, t.size(-2), t.size(-1)}); }
Tensor conjugate_transpose(const Tensor& t) { return t.mT().conj().resolve_conj(); }

// ------------------------------------------------------------- triangular solves
// The inverses of the diagonal blocks of lower triangular a [B, n, n], as
// [B, n/size rounded up, size, size]; the last is padded with an identity.  Pairs of
// inverted blocks are merged: [[P, 0], [C, Q]]⁻¹ = [[P⁻¹, 0], [-Q⁻¹CP⁻¹, Q⁻¹]].
Tensor invert_blocks(const Tensor& a, int64_t size, bool unit) {
  const int64_t batch = a.size(0), n = a.size(1), whole = n / size, tail = n - whole * size;
  const int64_t blocks = whole + (tail > 0), rows = a.stride(1), columns = a.stride(2);
  Tensor inverse = at::eye(size, a.options()).repeat({batch, blocks, 1, 1});
  if (whole)
    inverse.narrow(1, 0, whole)
        .copy_(a.as_strided({batch, whole, size, size}, {a.stride(0), size * (rows + columns), rows, columns},
                            a.storage_offset()));
  if (tail)
    inverse.select(1, whole)
        .narrow(1, 0, tail)
        .narrow(2, 0, tail)
        .copy_(a.narrow(1, n - tail, tail).narrow(2, n - tail, tail));
  inverse.tril_();
  Tensor diagonal = inverse.diagonal(0, -2, -1);
  if (unit) diagonal.fill_(1);
  else diagonal.reciprocal_();
  const int64_t matrices = batch * blocks;
  for (int64_t s = 1; s < size; s *= 2) {
    const int64_t pairs = size / (2 * s);
    auto part = [&](int64_t row, int64_t column) {
      return inverse.as_strided({matrices, pairs, s, s}, {size * size, 2 * s * (size + 1), size, 1},
                                row * s * size + column * s);
    };
    Tensor corner = part(1, 0);
    corner.copy_(at::matmul(at::matmul(part(1, 1), corner), part(0, 0)).neg_());
  }
  return inverse;
}

// X with a·X = b, in columns; a [B, n, n] triangular, b [B, n, m].
Tensor solve(const Tensor& a, const Tensor& b, bool upper, bool unit) {
  at::NoTF32Guard exact;
  const int64_t n = a.size(1);
  int64_t size = 1;
  while (size < n && size < kBlock) size *= 2;
  Tensor inverse = invert_blocks(upper ? a.mT() : a, size, unit);
  if (upper) inverse = inverse.mT();
  Tensor x = at::empty({b.size(0), b.size(2), n}, b.options()).mT();  // by columns, as the CPU's
  const int64_t blocks = inverse.size(1);
  for (int64_t step = 0; step < blocks; ++step) {
    const int64_t block = upper ? blocks - 1 - step : step, first = block * size,
                  rows = std::min(size, n - first);
    // What is known lies before the block, or behind it.
    const int64_t known = upper ? first + rows : 0, count = upper ? n - known : first;
    Tensor right = b.narrow(1, first, rows);
    if (count)
      right = at::baddbmm(right, a.narrow(1, first, rows).narrow(2, known, count), x.narrow(1, known, count),
                          1, -1);
    x.narrow(1, first, rows)
        .copy_(at::bmm(inverse.select(1, block).narrow(1, 0, rows).narrow(2, 0, rows), right));
  }
  return x;
}

// op(a)·X = b, or X·op(a) = b; any batch dimensions.
Tensor solve_any(Tensor a, Tensor b, bool left, bool upper, TransposeType transpose, bool unit) {
  if (transpose != TransposeType::NoTranspose) a = a.mT(), upper = !upper;
  if (transpose == TransposeType::ConjTranspose) a = a.conj().resolve_conj();
  if (!left) a = a.mT(), b = b.mT(), upper = !upper;
  at::DimVector sizes(b.sizes());
  sizes.back() = a.size(-1);
  Tensor x = solve(batch_of(a.expand(sizes)), batch_of(b), upper, unit).view(b.sizes());
  return left ? x : x.mT();
}

// What PyTorch means by `a` is its memory, column by column: a matrix that lies row by row comes with
// `transpose` and the triangle that its memory has, whatever its lazy bits say.
Tensor by_columns(const Tensor& a) {
  Tensor plain = a.is_conj() ? a.conj() : a;
  return plain.stride(-2) != 1 && plain.stride(-1) == 1 ? plain.mT() : plain;
}

void triangular_solve_kernel(const Tensor& a, const Tensor& b, bool left, bool upper, TransposeType transpose,
                             bool unit) {
  static Op op("aten::linalg_solve_triangular");
  if (b.numel() == 0) return;
  Call call(op, b);
  call.composed();
  b.copy_(solve_any(by_columns(a), b, left, upper, transpose, unit));
}

// ------------------------------------------------------------------------ pivots
// What the row swaps i ↔ pivots[i] - 1, in order, make of 0 … m-1.  A swap is a
// permutation; they are composed in pairs.
Tensor permutation_of(const Tensor& pivots, int64_t m) {
  const int64_t k = pivots.size(-1);
  at::DimVector sizes(pivots.sizes());
  sizes.back() = m;
  if (pivots.numel() == 0) return at::arange(m, pivots.options().dtype(at::kLong)).expand(sizes);
  Tensor flat = pivots.reshape({-1, k}).to(at::kLong) - 1;
  const auto options = flat.options();
  Tensor positions = at::arange(m, options);
  Tensor total = positions.expand({flat.size(0), m});
  constexpr int64_t kSwaps = 64;
  for (int64_t first = 0; first < k; first += kSwaps) {
    const int64_t count = std::min(kSwaps, k - first);
    Tensor from = at::arange(first, first + count, options).unsqueeze(1),
           to = flat.narrow(1, first, count).unsqueeze(2);
    Tensor swaps = at::where(positions == from, to, at::where(positions == to, from, positions));
    while (swaps.size(1) > 1) {
      const int64_t pairs = swaps.size(1) / 2;
      Tensor halves = swaps.narrow(1, 0, 2 * pairs).view({flat.size(0), pairs, 2, m});
      Tensor joined = at::gather(halves.select(2, 0), 2, halves.select(2, 1));
      swaps = swaps.size(1) % 2 ? at::cat({joined, swaps.narrow(1, 2 * pairs, 1)}, 1) : joined;
    }
    total = at::gather(total, 1, swaps.squeeze(1));
  }
  return total.reshape(sizes);
}

void unpack_pivots_kernel(at::TensorIterator& iter, int64_t, int64_t max_pivot) {
  static Op op("aten::lu_unpack");
  Tensor permutation = iter.tensor(0);
  Call call(op, permutation);
  call.composed();
  permutation.copy_(permutation_of(iter.tensor(1), max_pivot));
}

void lu_solve_kernel(const Tensor& lu, const Tensor& pivots, const Tensor& b, TransposeType transpose) {
  static Op op("aten::linalg_lu_solve");
  if (b.numel() == 0) return;
  Call call(op, b);
  call.composed();
  Tensor rows = permutation_of(pivots, b.size(-2)).unsqueeze(-1).expand(b.sizes());
  if (transpose == TransposeType::NoTranspose) {
    Tensor y = solve_any(lu, at::gather(b, -2, rows), true, false, transpose, true);
    b.copy_(solve_any(lu, y, true, true, transpose, false));
  } else {
    Tensor y = solve_any(lu, b, true, true, transpose, false);
    b.scatter_(-2, rows, solve_any(lu, y, true, false, transpose, true));
  }
}

// ------------------------------------------------------------------------- LU
// LAPACK's info: the number of the first true element of `bad` [..., n], or 0.
void first_bad(const Tensor& bad, const Tensor& info) {
  Tensor number = at::arange(1, bad.size(-1) + 1, bad.options().dtype(at::kInt));
  const int64_t none = bad.size(-1) + 1;
  Tensor first = at::where(bad, number, none).amin(-1);
  info.copy_(at::where(first == none, 0, first).view(info.sizes()));
}

// Eliminates the columns of a panel [B, h, w] one after the other; swaps [B, min(h, w)], if defined, gets
// the row that each of the first rows was exchanged with.  About ten launches a column.
void eliminate(Call& call, const Tensor& panel, const Tensor& swaps) {
  static Programs programs;
  const int64_t batch = panel.size(0), height = panel.size(1), width = panel.size(2);
  const uint8_t memory = dtype_of(panel);
  const fl_program* scaled = programs.get(key_of(memory, 0), [&](Builder& b) {
    Expr x{&b, b.load(0, memory)}, d{&b, b.load(1, memory)};
    b.store(0, select(d == 0, x, x / d).v, memory);
  });
  const fl_program* reduced = programs.get(key_of(memory, 1), [&](Builder& b) {
    Expr x{&b, b.load(0, memory)}, l{&b, b.load(1, memory)}, r{&b, b.load(2, memory)};
    b.store(0, (x - l * r).v, memory);
  });
  auto run = [&](const fl_program* program, const Tensor& out, std::initializer_list<const Tensor*> in) {
    if (!run_program(call, program, {&out}, in)) throw_refused(call, "pointwise", panel.scalar_type());
  };
  for (int64_t c = 0; c < std::min(height, width); ++c) {
    Tensor column = panel.select(2, c).narrow(1, c, height - c), row = panel.narrow(1, c, 1);
    if (swaps.defined()) {
      // LAPACK's size of a complex number.
      Tensor size = panel.is_complex() ? at::real(column).abs() + at::imag(column).abs() : column.abs();
      Tensor swap = swaps.narrow(1, c, 1);
      swap.copy_(at::argmax(size, 1, true).add_(c));
      Tensor index = swap.unsqueeze(2).expand({batch, 1, width});
      Tensor other = at::gather(panel, 1, index), mine = row.clone();
      Tensor(panel).scatter_(1, index, mine);
      row.copy_(other);
    }
    if (c + 1 == height) break;
    Tensor pivot = column.narrow(1, 0, 1), below = column.narrow(1, 1, height - c - 1);
    run(scaled, below, {&below, &pivot});
    if (c + 1 == width) break;
    Tensor rest = panel.narrow(1, c + 1, height - c - 1).narrow(2, c + 1, width - c - 1);
    Tensor left = below.unsqueeze(2), right = row.narrow(2, c + 1, width - c - 1);
    run(reduced, rest, {&rest, &left, &right});
  }
}

// a [B, m, n] becomes L and U, by panels; pivots [B, min(m, n)], if defined, gets the row exchanges, from 1
// on.
void lu_factor(Call& call, const Tensor& a, const Tensor& pivots) {
  at::NoTF32Guard exact;
  const int64_t m = a.size(1), n = a.size(2), k = std::min(m, n);
  for (int64_t first = 0; first < k; first += kBlock) {
    const int64_t width = std::min(kBlock, k - first), height = m - first, behind = first + width;
    Tensor rows = a.narrow(1, first, height), panel = rows.narrow(2, first, width).contiguous();
    Tensor swaps;
    if (pivots.defined()) swaps = at::empty({a.size(0), width}, a.options().dtype(at::kLong));
    eliminate(call, panel, swaps);
    rows.narrow(2, first, width).copy_(panel);
    if (swaps.defined()) {
      Tensor order = permutation_of(swaps.add_(1), height).unsqueeze(2);
      auto exchange = [&](Tensor part) { part.copy_(at::gather(part, 1, order.expand(part.sizes()))); };
      if (first) exchange(rows.narrow(2, 0, first));
      if (behind < n) exchange(rows.narrow(2, behind, n - behind));
      pivots.narrow(1, first, width).copy_(swaps.add_(first));
    }
    if (behind < n) {
      Tensor right = rows.narrow(2, behind, n - behind), top = right.narrow(1, 0, width);
      top.copy_(solve(panel.narrow(1, 0, width), top, false, true));
      if (width < height)
        right.narrow(1, width, height - width).baddbmm_(panel.narrow(1, width, height - width), top, 1, -1);
    }
  }
}

// Without pivots, which PyTorch's CPU refuses, the exchanges are of each row with itself.
void lu_factor_kernel(const Tensor& input, const Tensor& pivots, const Tensor& infos, bool pivot) {
  static Op op("aten::linalg_lu_factor_ex");
  if (input.numel() == 0) return;
  Call call(op, input);
  call.composed();
  Tensor a = batch_of(input).clone(at::MemoryFormat::Contiguous);
  Tensor exchanges = pivot ? at::empty({a.size(0), pivots.size(-1)}, pivots.options())
                           : at::arange(1, pivots.size(-1) + 1, pivots.options()).expand(pivots.sizes());
  lu_factor(call, a, pivot ? exchanges : Tensor());
  pivots.copy_(exchanges.reshape(pivots.sizes()));
  first_bad(a.diagonal(0, -2, -1) == 0, infos);
  input.copy_(a.view(input.sizes()));
}

// ---------------------------------------------------------------------- Cholesky
// The lower factor of a [B, n, n], of which the lower triangle is read: by panels, the columns
// of a panel one after the other.
Tensor cholesky_factor(Call& call, const Tensor& a) {
  at::NoTF32Guard exact;
  static Programs programs;
  const int64_t n = a.size(1);
  const uint8_t memory = dtype_of(a);
  const fl_program* scaled = programs.get(key_of(memory, 0), [&](Builder& b) {
    Expr x{&b, b.load(0, memory)}, d{&b, b.load(1, memory)};
    b.store(0, (x / sqrt(d)).v, memory);
  });
  const fl_program* reduced = programs.get(key_of(memory, 1), [&](Builder& b) {
    Expr x{&b, b.load(0, memory)}, l{&b, b.load(1, memory)}, r{&b, b.load(2, memory)};
    b.store(0, (x - l * conj(r)).v, memory);
  });
  auto run = [&](const fl_program* program, const Tensor& out, std::initializer_list<const Tensor*> in) {
    if (!run_program(call, program, {&out}, in)) throw_refused(call, "pointwise", a.scalar_type());
  };
  Tensor factor = at::zeros(a.sizes(), a.options());
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t width = std::min(kBlock, n - first), height = n - first;
    Tensor panel = a.narrow(1, first, height).narrow(2, first, width).contiguous();
    if (first) {
      Tensor before = factor.narrow(1, first, height).narrow(2, 0, first);
      panel = at::baddbmm(panel, before, conjugate_transpose(before.narrow(1, 0, width)), 1, -1);
    }
    for (int64_t c = 0; c < width; ++c) {
      Tensor column = factor.select(2, first + c).narrow(1, first + c, height - c).unsqueeze(2);
      Tensor source = panel.narrow(1, c, height - c).narrow(2, c, 1), pivot = source.narrow(1, 0, 1);
      run(scaled, column, {&source, &pivot});
      if (c + 1 == width) break;
      Tensor rest = panel.narrow(1, c + 1, height - c - 1).narrow(2, c + 1, width - c - 1);
      Tensor left = column.narrow(1, 1, height - c - 1), right = column.narrow(1, 1, width - c - 1).mT();
      run(reduced, rest, {&rest, &left, &right});
    }
  }
  return factor;
}

void cholesky_kernel(const Tensor& input, const Tensor& info, bool upper) {
  static Op op("aten::linalg_cholesky_ex");
  if (input.numel() == 0) return;
  Call call(op, input);
  call.composed();
  Tensor factor = cholesky_factor(call, batch_of(upper ? conjugate_transpose(input) : input));
  Tensor diagonal = factor.diagonal(0, -2, -1);
  if (diagonal.is_complex()) diagonal = at::real(diagonal);
  first_bad((diagonal > 0).logical_not(), info.view({-1}));
  input.copy_((upper ? conjugate_transpose(factor) : factor).reshape(input.sizes()));
}

Tensor solve_factored(const Tensor& factor, const Tensor& b, bool upper) {
  const auto plain = TransposeType::NoTranspose, turned = TransposeType::ConjTranspose;
  Tensor y = solve_any(factor, b, true, upper, upper ? turned : plain, false);
  return solve_any(factor, y, true, upper, upper ? plain : turned, false);
}

Tensor cholesky_solve_helper(const Tensor& b, const Tensor& factor, bool upper) {
  static Op op("aten::_cholesky_solve_helper");
  if (b.numel() == 0) return at::empty_like(b);
  Call call(op, b);
  call.composed();
  return solve_factored(factor, b, upper);
}

Tensor& cholesky_inverse_kernel(Tensor& result, Tensor& infos, bool upper) {
  static Op op("aten::cholesky_inverse");
  if (result.numel() == 0) return result;
  Call call(op, result);
  call.composed();
  first_bad(result.diagonal(0, -2, -1) == 0, infos);
  Tensor identity = at::eye(result.size(-1), result.options()).expand(result.sizes());
  result.copy_(solve_factored(result, identity, upper));
  return result;
}

// --------------------------------------------------------------------- reflectors
// H1 H2 … Hk = I - V T Vᴴ with T = (I + diag(tau) S)⁻¹ diag(tau), S the part of VᴴV above its diagonal.
Tensor& reflectors_kernel(Tensor& result, const Tensor& tau) {
  static Op op("aten::linalg_householder_product");
  if (result.numel() == 0) return result;
  Call call(op, result);
  call.composed();
  const int64_t m = result.size(-2), n = result.size(-1), k = tau.size(-1);
  Tensor identity = at::eye(m, n, result.options());
  if (k == 0) return result.copy_(identity.expand(result.sizes()));
  at::NoTF32Guard exact;
  Tensor v = batch_of(result).narrow(2, 0, k).tril(-1) + at::eye(m, k, result.options());
  Tensor factors = tau.reshape({-1, k, 1}), vh = conjugate_transpose(v);
  Tensor above = at::matmul(vh, v).triu(1) * factors;
  Tensor t = solve(above, factors * vh.narrow(2, 0, n), true, true);
  return result.copy_((identity - at::matmul(v, t)).view(result.sizes()));
}

// ------------------------------------------------------------------- exponential
// Taylor's polynomial after Paterson and Stockmeyer, of the matrix divided by a power of two, and squared
// as often.  The degree's remainder is below the dtype's precision for norms up to `reach`.
Tensor taylor_exponential(const Tensor& a) {
  const bool single = c10::toRealValueType(a.scalar_type()) == at::kFloat;
  const int64_t group = 4, groups = 4;  // degree 16
  const double reach = single ? 2.4 : 0.75;
  const int64_t n = a.size(-1);
  Tensor norm = a.abs().sum(-2).amax(-1);
  Tensor halvings = at::log2(norm / reach).ceil_().nan_to_num_(0.0, 0.0, 0.0).clamp_(0, 1000);
  const auto most = static_cast<int64_t>(halvings.max().item().toDouble());  // how many products there are
  std::vector<Tensor> powers = {at::eye(n, a.options()).expand(a.sizes()),
                                most ? a * at::exp2(-halvings).unsqueeze(-1).unsqueeze(-1) : a};
  while (static_cast<int64_t>(powers.size()) <= group) powers.push_back(at::bmm(powers[1], powers.back()));
  // Σ over i of (Σ over j of Aʲ/(i·group + j)!) A^(i·group), the last with one coefficient more.
  auto inverse_factorial = [](int64_t k) { return 1 / std::tgamma(static_cast<double>(k + 1)); };
  Tensor result;
  for (int64_t i = groups - 1; i >= 0; --i) {
    const int64_t terms = i == groups - 1 ? group + 1 : group;
    Tensor sum = powers[0] * inverse_factorial(i * group);
    for (int64_t j = 1; j < terms; ++j)
      sum = sum.add_(powers[static_cast<size_t>(j)], inverse_factorial(i * group + j));
    result = result.defined() ? at::baddbmm(sum, result, powers.back()) : sum;
  }
  for (int64_t k = 0; k < most; ++k) {
    Tensor square = at::bmm(result, result);
    result = a.size(0) == 1 ? square : at::where((halvings > k).unsqueeze(-1).unsqueeze(-1), square, result);
  }
  return result;
}

Tensor matrix_exp(const Tensor& self) {
  static Op op("aten::linalg_matrix_exp");
  TORCH_CHECK(self.dim() >= 2, "linalg.matrix_exp: The input tensor A must have at least 2 dimensions.");
  TORCH_CHECK(self.size(-1) == self.size(-2),
              "linalg.matrix_exp: A must be batches of square matrices, but they are ", self.size(-2), " by ",
              self.size(-1), " matrices");
  TORCH_CHECK(at::isFloatingType(self.scalar_type()) || self.is_complex(),
              "linalg.matrix_exp: Expected a floating point or complex tensor as input. Got ",
              self.scalar_type());
  if (self.numel() == 0) return at::empty_like(self, at::MemoryFormat::Contiguous);
  Call call(op, self);
  call.composed();
  if (self.size(-1) == 1) return self.exp();
  Tensor a = batch_of(self);
  if (at::isReducedFloatingType(a.scalar_type())) a = a.to(at::kFloat);
  return taylor_exponential(a).to(self.scalar_type()).view(self.sizes());
}

// ------------------------------------------------------------------- registration
// The .out form of a structured operator: PyTorch's shape function and its implementation, which comes back
// to the kernels here through stubs.  PyTorch's own wrapper for the CPU (at::cpu) would replace an output of
// other strides than it likes by one in host memory.
template <class Native, class Operator, class Schema = typename Operator::schema>
struct Structured;
template <class Native, class Operator, class R, class... A>
struct Structured<Native, Operator, R(A...)> {
  static constexpr size_t outputs() {
    if constexpr (std::is_reference_v<R>) return 1;
    else return std::tuple_size_v<R>;
  }
  static constexpr size_t kInputs = sizeof...(A) - outputs();

  static R call(A... arguments) {
    auto all = std::tie(arguments...);
    return run(all, std::make_index_sequence<kInputs>(), std::make_index_sequence<outputs()>());
  }
  // A matrix in host memory beside another on the device is not looked for by PyTorch's implementations.
  template <class T>
  static void check(const T& argument, const Tensor& first) {
    if constexpr (std::is_same_v<T, Tensor>)
      TORCH_CHECK(argument.device() == first.device(),
                  "Expected all tensors to be on the same device, but found at least two devices, ",
                  first.device(), " and ", argument.device(), "! (in ", Operator::name, ")");
  }
  template <class Tuple, size_t... I, size_t... O>
  static R run(Tuple& all, std::index_sequence<I...>, std::index_sequence<O...>) {
    (check(std::get<I>(all), std::get<0>(all)), ...);
    Into<Native> op(std::get<kInputs + O>(all)...);
    op.meta(std::get<I>(all)...);
    op.impl(std::get<I>(all)..., std::get<kInputs + O>(all)...);
    if constexpr (std::is_reference_v<R>) return std::get<kInputs>(all);
    else return R(std::get<kInputs + O>(all)...);
  }
};

Tensor& solve_triangular_out(const Tensor& a, const Tensor& b, bool upper, bool left, bool unit,
                             Tensor& out) {
  static Op op("aten::linalg_solve_triangular");
  if (a.device() != b.device()) throw_mixed_devices(op, a.device(), b.device());
  TORCH_CHECK(out.scalar_type() == a.scalar_type(), "linalg.solve_triangular: expected out= of dtype ",
              a.scalar_type(), ", got ", out.scalar_type());
  if (out.is_conj() || out.is_neg()) {
    // PyTorch would hand on the memory behind the view, and a matrix that makes up for it.
    Tensor plain = at::linalg_solve_triangular(a, b, upper, left, unit);
    at::native::resize_output(out, plain.sizes());
    return out.copy_(plain);
  }
  return at::native::linalg_solve_triangular_out(a.resolve_neg(), b, upper, left, unit, out);
}
Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper, bool left, bool unit) {
  Tensor out = at::empty({0}, a.options());
  return solve_triangular_out(a, b, upper, left, unit, out);
}

// PyTorch's functional form would stop at an internal assertion when devices are mixed.
std::tuple<Tensor, Tensor, Tensor, Tensor> solve_ex(const Tensor& a, const Tensor& b, bool left,
                                                    bool check_errors) {
  static Op op("aten::_linalg_solve_ex");
  if (a.device() != b.device()) throw_mixed_devices(op, a.device(), b.device());
  Allocate<at::native::structured__linalg_solve_ex_out, 4> kernel(a);
  kernel.meta(a, b, left, check_errors);
  const auto& out = kernel.outputs;
  kernel.impl(a, b, left, check_errors, out[0], out[1], out[2], out[3]);
  return {out[0], out[1], out[2], out[3]};
}

#define STRUCTURED(op, overload) \
  m.impl(#op "." #overload, &Structured<at::native::structured_##op##_out, at::_ops::op##_##overload>::call);

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("linalg_solve_triangular", solve_triangular);
  m.impl("linalg_solve_triangular.out", solve_triangular_out);
  STRUCTURED(triangular_solve, X)
  STRUCTURED(lu_unpack, out)
  STRUCTURED(linalg_lu_factor_ex, out)
  STRUCTURED(linalg_lu_solve, out)
  STRUCTURED(linalg_lu, out)
  STRUCTURED(_linalg_det, result)
  STRUCTURED(_linalg_slogdet, sign)
  STRUCTURED(_linalg_solve_ex, result)
  STRUCTURED(linalg_inv_ex, inverse)
  STRUCTURED(linalg_cholesky_ex, L)
  FL_UNTIL_2_13(NATIVE0(cholesky, cholesky))
  FL_UNTIL_2_13(NATIVE(cholesky, out, cholesky_out))
  NATIVE0(cholesky_inverse, cholesky_inverse)
  NATIVE(cholesky_inverse, out, cholesky_inverse_out)
  NATIVE0(linalg_householder_product, linalg_householder_product)
  NATIVE(linalg_householder_product, out, linalg_householder_product_out)
  m.impl("_linalg_solve_ex", solve_ex);
  m.impl("_cholesky_solve_helper", cholesky_solve_helper);
  m.impl("linalg_matrix_exp", matrix_exp);
}

}  // namespace

constexpr auto triangular_solve_fl = triangular_solve_kernel;
constexpr auto unpack_pivots_fl = unpack_pivots_kernel;
constexpr auto lu_factor_fl = lu_factor_kernel;
constexpr auto lu_solve_fl = lu_solve_kernel;
constexpr auto cholesky_fl = cholesky_kernel;
constexpr auto cholesky_inverse_fl = cholesky_inverse_kernel;
constexpr auto reflectors_fl = reflectors_kernel;
}  // namespace fl::bridge

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(triangular_solve_stub, fl::bridge::triangular_solve_fl)
REGISTER_PRIVATEUSE1_DISPATCH(unpack_pivots_stub, fl::bridge::unpack_pivots_fl)
REGISTER_PRIVATEUSE1_DISPATCH(lu_factor_stub, fl::bridge::lu_factor_fl)
REGISTER_PRIVATEUSE1_DISPATCH(lu_solve_stub, fl::bridge::lu_solve_fl)
REGISTER_PRIVATEUSE1_DISPATCH(cholesky_stub, fl::bridge::cholesky_fl)
REGISTER_PRIVATEUSE1_DISPATCH(cholesky_inverse_stub, fl::bridge::cholesky_inverse_fl)
REGISTER_PRIVATEUSE1_DISPATCH(orgqr_stub, fl::bridge::reflectors_fl)
}  // namespace at::native
