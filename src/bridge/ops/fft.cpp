// Fourier transforms: _fft_c2c, _fft_r2c, _fft_c2r, from the chip's entry or from
// products with matrices of roots of unity.
#include <ATen/native/SpectralOpsUtils.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bridge/ops/programs.h"

namespace fl::bridge {
namespace {

// fft_norm_mode of PyTorch: none, by the root of the number of points, by it.
double scale_of(int64_t normalization, IntArrayRef sizes, IntArrayRef dims) {
  if (normalization == 0) return 1;
  double n = 1;
  for (int64_t d : dims) n *= static_cast<double>(sizes[static_cast<size_t>(d)]);
  return 1 / (normalization == 1 ? std::sqrt(n) : n);
}

// ------------------------------------------------------------------- composed
// Complex numbers as pairs of reals in a last dimension: any chip has those.
Tensor times(const Tensor& a, const Tensor& b) {
  Tensor ar = a.select(-1, 0), ai = a.select(-1, 1), br = b.select(-1, 0), bi = b.select(-1, 1);
  return at::stack({ar * br - ai * bi, ar * bi + ai * br}, -1);
}

// exp(∓2πi · phase/n) as pairs, for integers `phase` on the CPU.
Tensor roots(const Tensor& phase, int64_t n, bool inverse) {
  Tensor angle =
      at::remainder(phase, n).to(at::kDouble) * ((inverse ? 2 : -2) * M_PI / static_cast<double>(n));
  return at::stack({angle.cos(), angle.sin()}, -1);
}
Tensor count(int64_t n) { return at::arange(n, at::kLong); }

constexpr int64_t kMatrix = 64;  // lengths up to it are one product

int64_t factor_of(int64_t n) {
  for (int64_t f = kMatrix; f > 1; --f)
    if (n % f == 0) return f;
  return 1;
}

// x [B, n, 2] → [B, n, 2]
Tensor pairs_transform(const Tensor& x, bool inverse);

Tensor matrix_transform(const Tensor& x, bool inverse) {
  const int64_t n = x.size(1);
  Tensor w = roots(at::outer(count(n), count(n)), n, inverse);  // [k, j, 2]
  Tensor re = w.select(-1, 0), im = w.select(-1, 1);
  Tensor rows = at::stack({at::stack({re, im}, -1), at::stack({-im, re}, -1)}, 1);  // [k, part, j, part]
  return at::mm(x.reshape({-1, 2 * n}), rows.reshape({2 * n, 2 * n}).to(x.options())).view({-1, n, 2});
}

Tensor convolution_transform(const Tensor& x, bool inverse) {
  const int64_t n = x.size(1);
  int64_t m = 1;
  while (m < 2 * n - 1) m *= 2;
  Tensor k = count(n), chirp = roots(at::remainder(k * k, 2 * n), 2 * n, inverse);
  Tensor filter = at::zeros({m, 2}, chirp.options());
  Tensor conjugate = chirp * at::tensor({1.0, -1.0});
  filter.narrow(0, 0, n).copy_(conjugate);
  if (n > 1) filter.narrow(0, m - n + 1, n - 1).copy_(conjugate.narrow(0, 1, n - 1).flip(0));
  Tensor factors = chirp.to(x.options());
  Tensor padded = at::zeros({x.size(0), m, 2}, x.options());
  padded.narrow(1, 0, n).copy_(times(x, factors));
  Tensor spectrum = pairs_transform(filter.unsqueeze(0).to(x.options()), false) / static_cast<double>(m);
  Tensor product = times(pairs_transform(padded, false), spectrum);
  return times(pairs_transform(product, true).narrow(1, 0, n), factors);
}

Tensor pairs_transform(const Tensor& x, bool inverse) {
  const int64_t batch = x.size(0), n = x.size(1);
  if (n <= kMatrix) return matrix_transform(x, inverse);
  const int64_t n1 = factor_of(n), n2 = n / n1;
  if (n1 == 1) return convolution_transform(x, inverse);
  // x[a·n2 + b]: over a, twiddles, over b; result k1 + n1·k2.
  Tensor columns = x.reshape({batch, n1, n2, 2}).transpose(1, 2).reshape({batch * n2, n1, 2});
  Tensor first = matrix_transform(columns, inverse).view({batch, n2, n1, 2});
  Tensor turned = times(first, roots(at::outer(count(n2), count(n1)), n, inverse).to(x.options()));
  Tensor second = pairs_transform(turned.transpose(1, 2).reshape({batch * n1, n2, 2}), inverse);
  return second.view({batch, n1, n2, 2}).transpose(1, 2).reshape({batch, n, 2});
}

// --------------------------------------------------------------------- engine
// Over one dimension of `in` into `out`, complex and of the same sizes; `out` may be `in`.
bool transform_dim(Call& call, const Tensor& in, const Tensor& out, int64_t dim, double scale, bool inverse) {
  fl_fft_args args{call.view(in), call.view(out), scale, static_cast<int32_t>(dim), inverse};
  if (call.native(call.chip().op.fft, args, {&args.in, &args.out})) return true;
  ScalarType real = c10::toRealValueType(in.scalar_type());
  if (!call.claims(FL_ENTRY_GEMM, FL_ANY, to_dtype(real))) return false;
  call.composed();
  at::NoTF32Guard exact;
  Tensor moved = at::view_as_real(in).movedim(dim, -2);
  Tensor result = pairs_transform(moved.reshape({-1, in.size(dim), 2}), inverse).view(moved.sizes());
  at::view_as_real(out).copy_((scale == 1 ? result : result * scale).movedim(-2, dim));
  return true;
}

bool transform(Call& call, const Tensor& in, const Tensor& out, IntArrayRef dims, double scale,
               bool inverse) {
  if (out.numel() == 0) return true;
  const Tensor* from = &in;
  for (size_t i = dims.size(); i-- > 0; from = &out)
    if (!transform_dim(call, *from, out, dims[i], i ? 1 : scale, inverse)) return false;
  return true;
}

// The dimensions, each from 0, the first `sorted` of them by falling strides.
at::DimVector wrapped(IntArrayRef dims, const Tensor& self, size_t sorted) {
  at::DimVector all(dims);
  for (int64_t& d : all) d = at::maybe_wrap_dim(d, self.dim());
  std::sort(all.begin(), all.begin() + static_cast<int64_t>(sorted),
            [&](int64_t a, int64_t b) { return self.stride(a) > self.stride(b); });
  return all;
}

// A result lies in memory as the CPU's: the transformed dimensions are the fastest, in their order, and the
// others keep the order of the input's strides.
Tensor empty_result(const Tensor& self, IntArrayRef sizes, IntArrayRef dims, ScalarType dtype) {
  at::DimVector order(sizes.size()), strides(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  // Not stable, as the CPU's: of equal strides, as windows have, that decides.
  auto rest = std::partition(order.begin(), order.end(),
                             [&](int64_t d) { return std::find(dims.begin(), dims.end(), d) == dims.end(); });
  std::sort(order.begin(), rest, [&](int64_t a, int64_t b) { return self.stride(a) > self.stride(b); });
  std::copy(dims.begin(), dims.end(), rest);
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0; step *= std::max<int64_t>(sizes[static_cast<size_t>(order[i])], 1))
    strides[static_cast<size_t>(order[i])] = step;
  return empty_on(self.device(), sizes, strides, dtype);
}

// ------------------------------------------------------------------ operators
Tensor c2c(const Tensor& self, IntArrayRef dim, int64_t normalization, bool forward) {
  static Op op("aten::_fft_c2c");
  TORCH_CHECK(self.is_complex(), "_fft_c2c expects a complex tensor, got ", self.scalar_type());
  if (dim.empty()) return self.clone();
  at::DimVector dims = wrapped(dim, self, dim.size());
  Tensor out = empty_result(self, self.sizes(), dims, self.scalar_type());
  Call call(op, self);
  if (transform(call, self, out, dims, scale_of(normalization, self.sizes(), dims), !forward)) return out;
  return fallback<ATEN_OP(_fft_c2c)>(self, dim, normalization, forward);
}

// X[n - k] = conj X[k]: the second half of a real signal's spectrum, from the first.
void mirror(const Tensor& full, IntArrayRef dims, int64_t half) {
  const int64_t last = dims.back(), n = full.size(last);
  if (half >= n) return;
  Tensor pairs = at::view_as_real(full), from = pairs.narrow(last, 1, n - half).flip(last);
  // In every other transformed dimension index k comes from -k.
  for (int64_t d : dims.slice(0, dims.size() - 1))
    if (full.size(d) > 1) from = from.flip(d).roll(1, d);
  Tensor to = pairs.narrow(last, half, n - half);
  to.select(-1, 0).copy_(from.select(-1, 0));
  to.select(-1, 1).copy_(-from.select(-1, 1));
}

// Between real lines and the first halves of their spectra, where the chip has it.  `real` is the dtype of
// that side.
bool transform_real(Call& call, const Tensor& in, const Tensor& out, ScalarType real, int64_t dim,
                    double scale, bool inverse) {
  if (!call.claims(FL_ENTRY_FFT, FL_ANY, to_dtype(real))) return false;
  fl_fft_args args{call.view(in), call.view(out), scale, static_cast<int32_t>(dim), inverse};
  return call.native(call.chip().op.fft, args, {&args.in, &args.out});
}

bool r2c_into(Call& call, const Tensor& self, IntArrayRef dims, double scale, bool onesided, Tensor& out) {
  const int64_t last = dims.back(), n = self.size(last), half = n / 2 + 1;
  ScalarType complex = c10::toComplexType(self.scalar_type());
  at::DimVector sizes(self.sizes());
  if (onesided) sizes[static_cast<size_t>(last)] = half;
  out = empty_result(self, sizes, dims, complex);
  if (out.numel() == 0) return true;
  IntArrayRef rest = dims.slice(0, dims.size() - 1);
  const double own = rest.empty() ? scale : 1;
  Tensor first = onesided ? out : out.narrow(last, 0, half);
  const bool halved = transform_real(call, self, first, self.scalar_type(), last, own, false);
  if (!halved) {
    Tensor full = onesided ? empty_like(self, self.sizes(), complex) : out, pairs = at::view_as_real(full);
    copy_step(pairs.select(-1, 0), self);
    fill_step(pairs.select(-1, 1), 0);
    if (!transform_dim(call, full, full, last, own, false)) return false;
    if (onesided) at::view_as_real(out).copy_(pairs.narrow(last, 0, half));
  }
  if (!transform(call, first, first, rest, scale, false)) return false;
  if (!onesided && (halved || !rest.empty())) mirror(out, dims, half);
  return true;
}

Tensor r2c(const Tensor& self, IntArrayRef dim, int64_t normalization, bool onesided) {
  static Op op("aten::_fft_r2c");
  TORCH_CHECK(self.is_floating_point(), "_fft_r2c expects a real floating point tensor, got ",
              self.scalar_type());
  Call call(op, self);
  if (dim.empty()) return self.to(c10::toComplexType(self.scalar_type()));
  at::DimVector dims = wrapped(dim, self, dim.size() - 1);
  Tensor out;
  if (self.scalar_type() != at::kHalf &&
      r2c_into(call, self, dims, scale_of(normalization, self.sizes(), dims), onesided, out))
    return out;
  return fallback<ATEN_OP(_fft_r2c)>(self, dim, normalization, onesided);
}

bool c2r_into(Call& call, const Tensor& self, IntArrayRef dims, double scale, int64_t n, Tensor& out) {
  const int64_t last = dims.back(), half = n / 2 + 1;
  at::DimVector sizes(self.sizes());
  sizes[static_cast<size_t>(last)] = n;
  ScalarType complex = self.scalar_type();
  out = empty_result(self, sizes, dims, c10::toRealValueType(complex));
  if (out.numel() == 0) return true;
  IntArrayRef rest = dims.slice(0, dims.size() - 1);
  Tensor given = self.narrow(last, 0, half);
  if (call.claims(FL_ENTRY_FFT, FL_ANY, dtype_of(out))) {
    Tensor spectrum = given;
    if (!rest.empty()) {
      spectrum = empty_like(self, given.sizes(), complex);
      if (!transform(call, given, spectrum, rest, 1, true)) return false;
    }
    return transform_real(call, spectrum, out, out.scalar_type(), last, scale, true);
  }
  Tensor full = empty_like(self, sizes, complex), first = full.narrow(last, 0, half);
  if (rest.empty()) at::view_as_real(first).copy_(at::view_as_real(given));
  else if (!transform(call, given, first, rest, 1, true)) return false;
  // The imaginary parts of the first value, and of the middle one, count for nothing.
  Tensor imaginary = at::view_as_real(full).select(-1, 1);
  fill_step(imaginary.select(last, 0), 0);
  if (n % 2 == 0) fill_step(imaginary.select(last, n / 2), 0);
  mirror(full, {last}, half);
  if (!transform_dim(call, full, full, last, scale, true)) return false;
  copy_step(out, at::view_as_real(full).select(-1, 0));
  return true;
}

Tensor c2r(const Tensor& self, IntArrayRef dim, int64_t normalization, int64_t last_dim_size) {
  static Op op("aten::_fft_c2r");
  TORCH_CHECK(self.is_complex(), "_fft_c2r expects a complex tensor, got ", self.scalar_type());
  Call call(op, self);
  if (dim.empty()) return at::real(self).clone();
  at::DimVector dims = wrapped(dim, self, dim.size() - 1), sizes(self.sizes());
  sizes[static_cast<size_t>(dims.back())] = last_dim_size;
  Tensor out;
  if (self.scalar_type() != at::kComplexHalf && last_dim_size > 0 &&
      self.size(dims.back()) > last_dim_size / 2 &&
      c2r_into(call, self, dims, scale_of(normalization, sizes, dims), last_dim_size, out))
    return out;
  return fallback<ATEN_OP(_fft_c2r)>(self, dim, normalization, last_dim_size);
}

Tensor& into(Tensor& out, const Tensor& result) {
  TORCH_CHECK(out.device() == result.device(), "Expected out tensor to have device ", result.device(),
              ", but got ", out.device(), " instead");
  TORCH_CHECK(at::can_cast(result.scalar_type(), out.scalar_type()), "result type ", result.scalar_type(),
              " can't be cast to the desired output type ", out.scalar_type());
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}
Tensor& c2c_out(const Tensor& self, IntArrayRef dim, int64_t normalization, bool forward, Tensor& out) {
  return into(out, c2c(self, dim, normalization, forward));
}
Tensor& r2c_out(const Tensor& self, IntArrayRef dim, int64_t normalization, bool onesided, Tensor& out) {
  return into(out, r2c(self, dim, normalization, onesided));
}
Tensor& c2r_out(const Tensor& self, IntArrayRef dim, int64_t normalization, int64_t last_dim_size,
                Tensor& out) {
  return into(out, c2r(self, dim, normalization, last_dim_size));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fft_c2c", c2c);
  m.impl("_fft_c2c.out", c2c_out);
  m.impl("_fft_r2c", r2c);
  m.impl("_fft_r2c.out", r2c_out);
  m.impl("_fft_c2r", c2r);
  m.impl("_fft_c2r.out", c2r_out);
}

}  // namespace
}  // namespace fl::bridge
