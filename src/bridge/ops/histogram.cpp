// Counting: bincount, histc, histogram and histogramdd.  Each value's bin is computed where the
// values are; scatter counts.
#include <ATen/native/Histogram.h>
#include <ATen/ops/_histogramdd_bin_edges_native.h>
#include <ATen/ops/_histogramdd_from_bin_cts_native.h>
#include <ATen/ops/_histogramdd_from_bin_tensors_native.h>
#include <ATen/ops/histc_native.h>
#include <ATen/ops/histogram_native.h>

#include <ATen/OpMathType.h>

#include "bridge/one_device.h"
#include "bridge/ops/indexing.h"
#include "program/expr.h"

namespace fl::bridge {
namespace {

enum class Bins { kLinear, kLinearChecked, kSearched };

// The bin that a division gives each value, in one launch; where it has none, the number of bins.
Tensor divided(Call& call, const Tensor& x, const Tensor& first, const Tensor& last, int64_t bins) {
  static Programs programs;
  Tensor out = empty_like(x, x.sizes(), at::kLong);
  const uint8_t type = dtype_of(x);
  const fl_program* program = programs.get(type, [&](Builder& b) {
    Expr v{&b, b.load(0, type)}, low{&b, b.load(1, type)}, high{&b, b.load(2, type)},
        count{&b, b.scalar(0, type)}, n{&b, b.scalar(1, FL_I64)};
    Expr inside = (v >= low) & (v <= high);  // not NaN
    // Of integers, PyTorch on CUDA takes the whole part of the quotient too.
    Expr scaled = (v - low) * count;
    scaled = v.is_real() ? scaled / (high - low) : apply(FL_OP_DIV_TRUNC, scaled, high - low);
    Expr bin = select(inside, scaled, v.like(0)).cast(FL_I64);
    b.store(0, select(inside, min(bin, n - 1), n).v, FL_I64);
  });
  const bool whole = c10::isIntegralType(x.scalar_type(), false);
  if (!run_program(call, program, {&out}, {&x, &first, &last},
                   {whole ? scalar_i(bins) : scalar_f(static_cast<double>(bins)), scalar_i(bins)}))
    throw_refused(call, "pointwise", x.scalar_type());
  return out;
}

// The bin of each value; its number of bins where it has none.
Tensor bins_of(Call& call, const Tensor& x, const Tensor& edges, Bins how) {
  const int64_t bins = edges.size(0) - 1;
  Tensor first = edges.select(0, 0), last = edges.select(0, bins), bin;
  if (how == Bins::kLinear && !at::isReducedFloatingType(x.scalar_type()))
    return divided(call, x, first, last, bins);
  if (how == Bins::kSearched) {
    bin = at::searchsorted(edges.contiguous(), x.contiguous(), /*out_int32=*/false, /*right=*/true) - 1;
  } else {
    // Halves are rounded after each step, as on the CPU.
    bin = x.sub(first).mul(bins).div(last.sub(first)).nan_to_num(0, 0, 0).clamp(0, bins).to(at::kLong);
    if (how == Bins::kLinearChecked) {
      // The division may be one off what the edges say.
      Tensor low = bin.sub(1).clamp_min(0), right = low - 1;
      for (int64_t k = 0; k < 3; ++k) {
        Tensor at_edge = low.add(k),
               edge = edges.index_select(0, at_edge.clamp_max(bins).flatten()).view_as(x);
        right = right +
                at::logical_and(edge.le(x), at_edge.le(at::minimum(bin.add(1), at_edge.new_full({}, bins))));
      }
      bin = right;
    }
  }
  bin = bin.clamp_max(bins - 1);  // the last bin has its right edge
  return bin.masked_fill(at::logical_or(x.lt(first), x.gt(last)).logical_or(x.isnan()), bins);
}

void count_into(Op& op, const Tensor& self, const std::optional<Tensor>& weight, bool density, Tensor& hist,
                const at::TensorList& edges, Bins how) {
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(self.scalar_type()),
                              "\"histogram_cpu\" not implemented for '", c10::toString(self.scalar_type()),
                              "'");
  Call call(op, self);
  call.composed();
  const int64_t dims = self.size(-1), count = dims ? self.numel() / dims : 0;
  if (hist.numel() == 0) return;
  if (count == 0) {
    hist.zero_();
  } else {
    Tensor points = self.reshape({count, dims}), place, outside;
    for (int64_t d = 0; d < dims; ++d) {
      const int64_t bins = hist.size(d);
      Tensor bin = bins_of(call, points.select(1, d), edges[d], how), out = bin.eq(bins);
      place = place.defined() ? place * bins + bin : bin;
      outside = outside.defined() ? outside.logical_or(out) : out;
    }
    place = place.masked_fill(outside, hist.numel());
    // Halves stop counting at 2048.
    ScalarType wide = at::toOpMathType(self.scalar_type());
    Tensor values = given(weight) ? weight->reshape({count}).to(wide)
                                  : at::ones({1}, self.options().dtype(wide)).expand({count});
    Tensor sums = at::zeros({hist.numel() + 1}, self.options().dtype(wide)).scatter_add_(0, place, values);
    hist.copy_(sums.narrow(0, 0, hist.numel()).view(hist.sizes()));
  }
  if (!density) return;
  hist.div_(hist.sum());
  for (int64_t d = 0; d < dims; ++d) {
    at::DimVector shape(dims, 1);
    shape[d] = hist.size(d);
    hist.div_(edges[d].diff().reshape(shape));
  }
}

// Stubs, so that PyTorch's own checks, shapes and edges are around them.
void histogram_searched(const Tensor& self, const std::optional<Tensor>& weight, bool density, Tensor& hist,
                        const at::TensorList& edges) {
  static Op op("aten::histogram");
  count_into(op, self, weight, density, hist, edges, Bins::kSearched);
}
void histogram_linear(const Tensor& self, const std::optional<Tensor>& weight, bool density, Tensor& hist,
                      const at::TensorList& edges, bool local_search) {
  static Op histogram("aten::histogram"), histc("aten::histc");
  count_into(local_search ? histogram : histc, self, weight, density, hist, edges,
             local_search ? Bins::kLinearChecked : Bins::kLinear);
}
void outer_edges(const Tensor& input, const int64_t dims, std::vector<double>& left,
                 std::vector<double>& right) {
  // The shape of the edges does not depend on the values, but PyTorch keeps them in host memory.
  auto [low, high] = at::aminmax(input, 0);
  Tensor both = at::stack({low, high}).to(at::kDouble).cpu();
  const double* values = both.const_data_ptr<double>();
  std::copy(values, values + dims, left.begin());
  std::copy(values + dims, values + 2 * dims, right.begin());
}

// Integers, which CUDA counts and PyTorch's CPU does not: in 64 bits, by whole arithmetic.
Tensor& histc_of_integers(const Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max,
                          Tensor& out) {
  static Op op("aten::histc");
  Call call(op, self);
  call.composed();
  TORCH_CHECK(bins > 0, "torch.histc(): bins must be > 0, not ", bins);
  TORCH_CHECK(out.scalar_type() == self.scalar_type(),
              "torch.histc(): input and out have one dtype; input is ", self.scalar_type(), ", out ",
              out.scalar_type());
  int64_t low = min.to<int64_t>(), high = max.to<int64_t>(), most;
  if (low == high && self.numel()) {
    auto [least, greatest] = at::aminmax(self);
    Tensor both = at::stack({least, greatest}).to(at::kLong).cpu();
    low = both.const_data_ptr<int64_t>()[0], high = both.const_data_ptr<int64_t>()[1];
  }
  if (low == high) --low, ++high;
  TORCH_CHECK(low < high, "torch.histc(): max must be larger than min; they are ", high, " and ", low);
  TORCH_CHECK_NOT_IMPLEMENTED(
      !__builtin_sub_overflow(high, low, &most) && !__builtin_mul_overflow(most, bins, &most),
      "torch.histc(): ", bins, " bins over the integers from ", low, " to ", high,
      " need more than 64 bits; convert the input to float64");
  Tensor x = self.to(at::kLong).flatten(), edge = at::empty({2}, x.options());
  edge[0].fill_(low), edge[1].fill_(high);
  Tensor bin = divided(call, x, edge[0], edge[1], bins);
  Tensor counts =
      at::zeros({bins + 1}, x.options()).scatter_add_(0, bin, at::ones({1}, x.options()).expand_as(bin));
  at::native::resize_output(out, {bins});
  return out.copy_(counts.narrow(0, 0, bins));
}
bool has_integers(const Tensor& self) { return c10::isIntegralType(self.scalar_type(), false); }
Tensor& histc_out(const Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max,
                  Tensor& out) {
  return has_integers(self) ? histc_of_integers(self, bins, min, max, out)
                            : at::native::histogram_histc_out(self, bins, min, max, out);
}
Tensor histc(const Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
  if (!has_integers(self)) return at::native::histogram_histc(self, bins, min, max);
  Tensor out = at::empty({0}, self.options());
  return histc_of_integers(self, bins, min, max, out);
}

Tensor bincount(const Tensor& self, const std::optional<Tensor>& weights, c10::SymInt minlength_in) {
  static Op op("aten::bincount");
  check_devices(op, {&self, given(weights)});
  const int64_t minlength = minlength_in.expect_int();
  TORCH_CHECK(minlength >= 0, "minlength should be >= 0");
  TORCH_CHECK_NOT_IMPLEMENTED(at::isIntegralType(self.scalar_type(), false),
                              "\"bincount_cpu\" not implemented for '", c10::toString(self.scalar_type()),
                              "'");
  Call call(op, self);
  call.composed();
  if (self.dim() == 1 && self.numel() == 0) return at::zeros({minlength}, self.options().dtype(at::kLong));
  TORCH_CHECK(self.dim() == 1, "bincount only supports 1-d non-negative integral inputs.");
  TORCH_CHECK(!given(weights) || (weights->dim() == 1 && weights->numel() == self.numel()),
              "weights should be 1-d and have the same length as input");
  // How long the result is, the values say.
  auto [low, high] = at::aminmax(self);
  Tensor range = at::stack({low, high}).to(at::kLong).cpu();
  TORCH_CHECK(range.const_data_ptr<int64_t>()[0] >= 0,
              "bincount only supports 1-d non-negative integral inputs.");
  const int64_t bins = std::max(range.const_data_ptr<int64_t>()[1] + 1, minlength);
  Tensor index = self.to(at::kLong);
  if (!given(weights))
    return at::zeros({bins}, index.options())
        .scatter_add_(0, index, at::ones({1}, index.options()).expand_as(index));
  ScalarType dtype = weights->scalar_type() == at::kFloat ? at::kFloat : at::kDouble;
  Tensor values = weights->to(dtype);
  return at::zeros({bins}, values.options()).scatter_add_(0, index, values);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("bincount", bincount);
  m.impl("histc", histc);
  m.impl("histc.out", histc_out);
  ON_ONE_DEVICE(histogram, bin_ct, histogram)
  ON_ONE_DEVICE(histogram, bin_ct_out, histogram_out)
  ON_ONE_DEVICE(histogram, bins_tensor, histogram)
  ON_ONE_DEVICE(histogram, bins_tensor_out, histogram_out)
  ON_ONE_DEVICE0(_histogramdd_bin_edges, histogramdd_bin_edges)
  ON_ONE_DEVICE0(_histogramdd_from_bin_cts, _histogramdd)
  ON_ONE_DEVICE0(_histogramdd_from_bin_tensors, _histogramdd)
}

}  // namespace

void histogram_searched_stub(const Tensor& self, const std::optional<Tensor>& weight, bool density,
                             Tensor& hist, const at::TensorList& edges) {
  histogram_searched(self, weight, density, hist, edges);
}
void histogram_linear_stub(const Tensor& self, const std::optional<Tensor>& weight, bool density,
                           Tensor& hist, const at::TensorList& edges, bool local_search) {
  histogram_linear(self, weight, density, hist, edges, local_search);
}
void outer_edges_stub(const Tensor& input, const int64_t dims, std::vector<double>& left,
                      std::vector<double>& right) {
  outer_edges(input, dims, left, right);
}
}  // namespace fl::bridge

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(histogramdd_stub, &fl::bridge::histogram_searched_stub)
REGISTER_PRIVATEUSE1_DISPATCH(histogramdd_linear_stub, &fl::bridge::histogram_linear_stub)
REGISTER_PRIVATEUSE1_DISPATCH(histogram_select_outer_bin_edges_stub, &fl::bridge::outer_edges_stub)
}  // namespace at::native
