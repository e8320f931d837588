// cdist, pdist and their gradients: one reduction over broadcast operands, so that no
// difference is ever stored.
#include "bridge/devices.h"
#include "bridge/ops/reduction.h"
#include "program/expr.h"

namespace fl::bridge {
namespace {

// What kind of norm p is; kOther takes p as a scalar.
enum Norm { kZero, kOne, kTwo, kMax, kOther, kBelowOne, kBelowTwo };
Norm norm_of(double p) {
  if (p == 0) return kZero;
  if (p == 1) return kOne;
  if (p == 2) return kTwo;
  if (std::isinf(p)) return kMax;
  return p < 1 ? kBelowOne : p < 2 ? kBelowTwo : kOther;
}

const fl_program* term(Norm norm, uint8_t memory, uint8_t type) {
  static Programs programs;
  return programs.get(key_of(norm, memory), [&](Builder& b) {
    Expr x{&b, b.load(0, memory, type)}, y{&b, b.load(1, memory, type)}, d = abs(x - y), r = d;
    if (norm == kZero) r = select(d != 0, d.like(1), d.like(0));  // NaN counts
    else if (norm == kTwo) r = d * d;
    else if (norm >= kOther) r = pow(d, Expr{&b, b.scalar(0, type)});
    b.store(0, r.v, type);
  });
}
const fl_program* root(Norm norm, uint8_t type, uint8_t memory) {
  static Programs programs;
  return programs.get(key_of(norm, memory), [&](Builder& b) {
    Expr x{&b, b.load(0, type)};
    if (norm == kTwo) x = sqrt(x);
    else if (norm >= kOther) x = pow(x, Expr{&b, b.scalar(0, type)});
    b.store(0, x.v, memory);
  });
}

// Rows side by side in memory: then neighbouring results are computed together.
Tensor side_by_side(const Tensor& t) { return t.transpose(1, 2).contiguous().transpose(1, 2); }

// out [B, P, R] = |x1[b, p] - x2[b, r]|_p
void distances(Call& call, const Tensor& x1_in, const Tensor& x2_in, double p, const Tensor& out) {
  const Tensor x1 = side_by_side(x1_in), x2 = side_by_side(x2_in);
  const Norm norm = norm_of(p);
  const uint8_t memory = dtype_of(x1), type = to_register(x1.scalar_type());
  Tensor a = x1.unsqueeze(2).expand({x1.size(0), x1.size(1), x2.size(1), x1.size(2)}), b = x2.unsqueeze(1);
  fl_scalar power = scalar_f(p), inverse = scalar_f(1 / p);
  Reduction r{norm == kMax ? uint16_t{FL_REDUCE_MAX} : uint16_t{FL_REDUCE_SUM},
              type,
              term(norm, memory, type),
              root(norm, type, dtype_of(out)),
              &power,
              &inverse};
  if (!reduce(call, r, mask_of(3, 4), {&a, &b}, {&out})) throw_refused(call, "reduce", x1.scalar_type());
}

// The derivative of the distance by x1[k], times grad: what is summed over x2's rows.
const fl_program* slope(Norm norm, uint8_t memory, uint8_t type) {
  static Programs programs;
  return programs.get(key_of(norm, memory), [&](Builder& b) {
    Expr x{&b, b.load(0, memory, type)}, y{&b, b.load(1, memory, type)}, g{&b, b.load(2, memory, type)},
        dist{&b, b.load(3, memory, type)};
    Expr d = x - y, zero = d.like(0), r = zero;
    if (norm == kOne) r = g * sign(d);
    else if (norm == kTwo) r = select(dist == 0, zero, g * d / dist);
    else if (norm == kMax) r = select(abs(d) == dist, g * sign(d), zero);
    else if (norm >= kOther) {
      Expr p{&b, b.scalar(0, type)}, scale = g / pow(dist, p - 1);
      r = norm == kOther ? d * pow(abs(d), p - 2) * scale : sign(d) * pow(abs(d), p - 1) * scale;
      Expr none = norm == kBelowOne ? (dist == 0) | (d == 0) : dist == 0;
      r = select(none, zero, r);
    }
    b.store(0, r.v, type);
  });
}
const fl_program* narrowed(uint8_t type, uint8_t memory) {
  static Programs programs;
  return programs.get(key_of(type, memory), [&](Builder& b) { b.store(0, b.load(0, type), memory); });
}

void slopes(Call& call, const Tensor& grad, const Tensor& x1, const Tensor& x2, double p, const Tensor& dist,
            const Tensor& out) {
  const uint8_t memory = dtype_of(x1), type = to_register(x1.scalar_type());
  Tensor a = x1.unsqueeze(2).expand({x1.size(0), x1.size(1), x2.size(1), x1.size(2)}), b = x2.unsqueeze(1),
         g = grad.unsqueeze(3), d = dist.unsqueeze(3);
  fl_scalar power = scalar_f(p);
  Reduction r{FL_REDUCE_SUM, type, slope(norm_of(p), memory, type), narrowed(type, dtype_of(out)), &power};
  if (!reduce(call, r, mask_of(2, 4), {&a, &b, &g, &d}, {&out}))
    throw_refused(call, "reduce", x1.scalar_type());
}

at::DimVector batch_of(const Tensor& a, const Tensor& b) {
  auto lead = [](const Tensor& t) { return t.sizes().slice(0, static_cast<size_t>(t.dim()) - 2); };
  auto sizes = at::infer_size(lead(a), lead(b));
  return {sizes.begin(), sizes.end()};
}
// t, [batch…, m, n], as [B, m, n].
Tensor batched(const Tensor& t, const at::DimVector& batch) {
  at::DimVector sizes = batch;
  sizes.push_back(t.size(-2)), sizes.push_back(t.size(-1));
  return t.expand(sizes).reshape({c10::multiply_integers(batch), t.size(-2), t.size(-1)});
}

Tensor cdist_forward(const Tensor& x1, const Tensor& x2, double p, std::optional<int64_t> compute_mode) {
  static Op op("aten::_cdist_forward");
  check_devices(op, {&x1, &x2});
  TORCH_CHECK(x1.dim() >= 2, "cdist only supports at least 2D tensors, X1 got: ", x1.dim(), "D");
  TORCH_CHECK(x2.dim() >= 2, "cdist only supports at least 2D tensors, X2 got: ", x2.dim(), "D");
  TORCH_CHECK(x1.size(-1) == x2.size(-1), "X1 and X2 must have the same number of columns. X1: ", x1.size(-1),
              " X2: ", x2.size(-1));
  TORCH_CHECK(at::isFloatingType(x1.scalar_type()),
              "cdist only supports floating-point dtypes, X1 got: ", x1.scalar_type());
  TORCH_CHECK(at::isFloatingType(x2.scalar_type()),
              "cdist only supports floating-point dtypes, X2 got: ", x2.scalar_type());
  TORCH_CHECK(p >= 0, "cdist only supports non-negative p values");
  const int64_t mode = compute_mode.value_or(0), rows1 = x1.size(-2), rows2 = x2.size(-2);
  TORCH_CHECK(mode >= 0 && mode <= 2, "possible modes: 0, 1, 2, but was: ", mode);
  TORCH_CHECK(x1.scalar_type() == x2.scalar_type(), "expected X1 and X2 to have one dtype, but got ",
              x1.scalar_type(), " and ", x2.scalar_type());
  at::DimVector batch = batch_of(x1, x2), sizes = batch;
  sizes.push_back(rows1), sizes.push_back(rows2);
  Call call(op, x1);
  if (c10::multiply_integers(sizes) == 0) return at::empty(sizes, x1.options());
  if (x1.size(-1) == 0) return at::zeros(sizes, x1.options());
  if (p == 2 && (mode == 1 || (mode == 0 && (rows1 > 25 || rows2 > 25)))) {
    call.composed();
    return at::_euclidean_dist(batched(x1, batch), batched(x2, batch)).view(sizes);
  }
  Tensor out = empty_like(x1, sizes, x1.scalar_type());
  distances(call, batched(x1, batch), batched(x2, batch), p, out.view({-1, rows1, rows2}));
  return out;
}

Tensor cdist_backward(const Tensor& grad, const Tensor& x1, const Tensor& x2, double p, const Tensor& dist) {
  static Op op("aten::_cdist_backward");
  check_devices(op, {&grad, &x1, &x2, &dist});
  const int64_t rows1 = x1.size(-2), rows2 = x2.size(-2), columns = x1.size(-1);
  at::DimVector batch = batch_of(x1, x2), sizes = batch;
  sizes.push_back(rows1), sizes.push_back(columns);
  if (rows1 == 0 || rows2 == 0 || columns == 0 || c10::multiply_integers(batch) == 0 || p == 0)
    return at::zeros(sizes, x1.options());
  Call call(op, x1);
  Tensor out = empty_like(x1, sizes, x1.scalar_type());
  slopes(call, batched(grad, batch), batched(x1, batch), batched(x2, batch), p, batched(dist, batch),
         out.view({-1, rows1, columns}));
  return out;
}

// ------------------------------------------------------------------- pdist
// Where each pair of n rows stands among the pairs i < j, which follow each other row by row;
// [n, n], and one behind the last on the diagonal.
Tensor pair_numbers(const Tensor& like, int64_t n) {
  Tensor rows = at::arange(n, like.options().dtype(at::kLong)), i = rows.unsqueeze(1), j = rows.unsqueeze(0);
  Tensor low = at::minimum(i, j), high = at::maximum(i, j);
  Tensor number = low * (2 * n - 1) - low * low;  // twice i·n - i·(i + 1)/2
  return (number.div(2, "trunc") + high - low - 1).masked_fill_(i == j, n * (n - 1) / 2);
}

Tensor pdist_forward(const Tensor& self, double p) {
  static Op op("aten::_pdist_forward");
  TORCH_CHECK(self.is_contiguous(), "_pdist_forward requires contiguous input");
  TORCH_CHECK(at::isFloatingType(self.scalar_type()), "pdist only supports floating-point dtypes");
  const int64_t n = self.size(0);
  if (n <= 1) return at::empty({0}, self.options());
  const int64_t count = n * (n - 1) / 2;
  if (self.size(1) == 0) return at::zeros({count}, self.options());
  Call call(op, self);
  call.composed();
  Tensor all = empty_like(self, {n, n}, self.scalar_type()), x = self.unsqueeze(0);
  distances(call, x, x, p, all.unsqueeze(0));
  // Each pair comes twice, with the same distance.
  Tensor out = empty_like(self, {count + 1}, self.scalar_type());
  return out.scatter_(0, pair_numbers(self, n).flatten(), all.flatten()).narrow(0, 0, count).clone();
}

Tensor pdist_backward(const Tensor& grad, const Tensor& self, double p, const Tensor& pdist) {
  static Op op("aten::_pdist_backward");
  const int64_t n = self.size(0);
  if (n <= 1 || self.size(1) == 0 || p == 0) return at::zeros_like(self, at::MemoryFormat::Contiguous);
  Call call(op, self);
  call.composed();
  Tensor number = pair_numbers(self, n).flatten();
  auto square = [&](const Tensor& t) {
    return at::cat({t, at::zeros({1}, t.options())}).index_select(0, number).view({1, n, n});
  };
  Tensor out = empty_like(self, self.sizes(), self.scalar_type()), x = self.unsqueeze(0);
  slopes(call, square(grad.reshape({-1})), x, x, p, square(pdist), out.unsqueeze(0));
  return out;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_cdist_forward", cdist_forward);
  m.impl("_cdist_backward", cdist_backward);
  m.impl("_pdist_forward", pdist_forward);
  m.impl("_pdist_backward", pdist_backward);
}

}  // namespace
}  // namespace fl::bridge
