// segment_reduce and its gradient: runs of positions along an axis, from spmm.
#include "bridge/devices.h"
#include "bridge/ops/indexing.h"
#include "bridge/ops/spmm.h"

namespace fl::bridge {
namespace {

int mode_of(std::string_view reduce) {
  if (reduce == "sum") return FL_SPMM_SUM;
  if (reduce == "mean") return FL_SPMM_MEAN;
  if (reduce == "min" || reduce == "amin") return FL_SPMM_MIN;
  if (reduce == "max" || reduce == "amax") return FL_SPMM_MAX;
  TORCH_CHECK(reduce == "prod", "unsupported reduction given! ", reduce);
  return FL_SPMM_PROD;
}

// data as [outer × A, inner], and its segments as rows: each outer index has S segments and a
// last row for what none of them has.
struct Segments {
  int64_t outer, length, inner, count;
  Tensor lengths;  // [outer, S]
  Tensor begin;    // [outer × (S + 1) + 1]

  Segments(const Tensor& data, const Tensor& lengths_in, const Tensor& offsets, int64_t axis)
      : outer(1), length(data.size(axis)), inner(1) {
    for (int64_t d = 0; d < axis; ++d) outer *= data.size(d);
    for (int64_t d = axis + 1; d < data.dim(); ++d) inner *= data.size(d);
    Tensor ends;  // [outer, S + 1]: where each segment begins, and the last ends
    if (offsets.defined()) {
      count = offsets.size(-1) - 1;
      ends = offsets.reshape({outer, count + 1}).to(at::kLong);
      lengths = ends.narrow(1, 1, count) - ends.narrow(1, 0, count);
    } else {
      count = lengths_in.size(-1);
      lengths = lengths_in.reshape({outer, count}).to(at::kLong);
      ends = at::cat({at::zeros({outer, 1}, lengths.options()), lengths.cumsum(1)}, 1);
    }
    Tensor shift = at::arange(outer, ends.options()).mul_(length).unsqueeze(1);
    begin = at::cat(
        {(ends + shift).flatten().clamp_(0, outer * length), at::full({1}, outer * length, ends.options())});
  }
  Tensor flat(const Tensor& data) const { return data.reshape({outer * length, inner}); }
  // A result for each row, without the rows that are no segment's.
  Tensor only_segments(const Tensor& rows) const {
    return rows.view({outer, count + 1, inner}).narrow(1, 0, count);
  }
  at::DimVector sizes(const Tensor& data, int64_t axis) const {
    at::DimVector s(data.sizes());
    s[axis] = count;
    return s;
  }
};

Tensor reduce_rows(Call& call, const Segments& s, const Tensor& flat, int mode, const at::Scalar& empty) {
  Tensor out = empty_like(flat, {s.outer * (s.count + 1), s.inner}, flat.scalar_type());
  if (!spmm_into(call, Spmm{mode, s.begin, flat}, out, empty))
    throw_refused(call, "pointwise", flat.scalar_type());
  return s.only_segments(out);
}

double identity(int mode) {
  if (mode == FL_SPMM_MIN) return INFINITY;
  if (mode == FL_SPMM_MAX) return -INFINITY;
  return mode == FL_SPMM_PROD ? 1 : 0;
}

Tensor segment_reduce(const Tensor& data, std::string_view reduce, const std::optional<Tensor>& lengths,
                      const std::optional<Tensor>& indices, const std::optional<Tensor>& offsets,
                      int64_t axis, bool unsafe, const std::optional<at::Scalar>& initial) {
  static Op op("aten::segment_reduce");
  check_devices(op, {&data, given(lengths), given(offsets)});
  axis = at::maybe_wrap_dim(axis, data.dim());
  TORCH_CHECK(data.numel() >= 0);
  TORCH_CHECK(given(offsets) || given(lengths),
              "segment_reduce(): Either lengths or offsets must be defined.");
  TORCH_CHECK(!given(indices), "segment_reduce(): indices based reduction is not supported yet.");
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(data.scalar_type()),
                              "\"_segment_reduce_cpu\" not implemented for '",
                              c10::toString(data.scalar_type()), "'");
  const Tensor& parts = given(offsets) ? *offsets : *lengths;
  TORCH_CHECK(data.device() == parts.device());
  TORCH_CHECK(data.dim() >= parts.dim());
  TORCH_CHECK(axis == parts.dim() - 1, "segment_reduce(): Expected axis to be the last dimension of ",
              given(offsets) ? "offsets" : "lengths", " but got ", axis, ".");
  if (!unsafe && !given(offsets) && parts.numel()) {
    TORCH_CHECK(parts.min().item<int64_t>() >= 0, "lengths contains negative value!");
    TORCH_CHECK(
        at::all(parts.sum({-1}) == data.size(axis)).item<bool>(),
        "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) "
        "when !unsafe.");
  }
  const int mode = mode_of(reduce);
  Segments s(data, parts, given(offsets) ? parts : Tensor(), axis);
  Call call(op, data);
  call.composed();
  if (s.outer * s.count * s.inner == 0) return at::empty(s.sizes(data, axis), data.options());
  const bool mean = mode == FL_SPMM_MEAN;
  Tensor out = reduce_rows(call, s, s.flat(data), mode, mean && !initial ? NAN : identity(mode));
  if (initial) {
    Tensor first = at::full({}, *initial, data.options());
    if (mode == FL_SPMM_MIN) out = at::minimum(out, first);
    else if (mode == FL_SPMM_MAX) out = at::maximum(out, first);
    else if (mode == FL_SPMM_PROD) out = out * first;
    else if (mean) out = out + (first / s.lengths.clamp_min(1).to(data.scalar_type())).unsqueeze(2);
    else out = out + first;
  }
  return out.reshape(s.sizes(data, axis));
}

Tensor segment_reduce_backward(const Tensor& grad, const Tensor& output, const Tensor& data,
                               std::string_view reduce, const std::optional<Tensor>& lengths,
                               const std::optional<Tensor>& offsets, int64_t axis,
                               const std::optional<at::Scalar>& initial) {
  static Op op("aten::_segment_reduce_backward");
  axis = at::maybe_wrap_dim(axis, data.dim());
  TORCH_CHECK(given(lengths) || given(offsets),
              "segment_reduce(): Either lengths or offsets must be defined.");
  const Tensor& parts = given(offsets) ? *offsets : *lengths;
  const int mode = mode_of(reduce);
  Tensor zero = at::zeros(data.sizes(), grad.options());
  Segments s(data, parts, given(offsets) ? parts : Tensor(), axis);
  if (data.numel() == 0 || s.count == 0) return zero;
  Call call(op, grad);
  call.composed();
  // For each position: its row, and what its segment has there; a row of no segment has 0.
  Tensor row = rows_of(call, s.begin, s.outer * s.length);
  auto spread = [&](const Tensor& t) {
    Tensor padded = at::zeros({s.outer, s.count + 1, s.inner}, t.options());
    padded.narrow(1, 0, s.count).copy_(t.reshape({s.outer, s.count, s.inner}));
    return padded.view({-1, s.inner}).index_select(0, row);
  };
  auto counts = [&](const Tensor& t) { return spread(t.unsqueeze(2).expand({s.outer, s.count, s.inner})); };
  Tensor g = spread(grad), x = s.flat(data), result;
  if (mode == FL_SPMM_SUM) {
    result = g;
  } else if (mode == FL_SPMM_MEAN) {
    result = g / counts(s.lengths.clamp_min(1).to(grad.scalar_type())).clamp_min(1);
  } else if (mode == FL_SPMM_PROD) {
    // The product of the others: of a zero or NaN it is not the result divided by it, but made of the rest.
    Tensor out = spread(output), is_zero = x.eq(0), is_nan = x.isnan(),
           alone = at::logical_or(is_zero, is_nan);
    auto among_others = [&](const Tensor& which) {
      Tensor ones = which.to(x.scalar_type());
      return spread(reduce_rows(call, s, ones, FL_SPMM_SUM, 0)).sub_(ones).gt(0);
    };
    Tensor rest = spread(reduce_rows(call, s, x.masked_fill(alone, 1), FL_SPMM_PROD, 1));
    if (initial) rest = rest * *initial;
    rest = at::where(among_others(is_zero), rest * 0, rest).masked_fill_(among_others(is_nan), NAN);
    result = at::where(alone, g * rest, g * out / x.masked_fill(is_zero, 1));
  } else {
    // Shared by equal extremes, as far as the gradient is positive: that is what the CPU does.
    Tensor wins = at::logical_or(x.eq(spread(output)), x.isnan());
    Tensor ties = spread(reduce_rows(call, s, wins.to(x.scalar_type()), FL_SPMM_SUM, 0));
    Tensor shared = at::where(at::logical_and(ties.gt(1), g.gt(0)), g / ties.clamp_min(1), g);
    result = at::where(wins, shared, at::zeros({}, g.options()));
  }
  return result.reshape(data.sizes());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("segment_reduce", segment_reduce);
  m.impl("_segment_reduce_backward", segment_reduce_backward);
}

}  // namespace
}  // namespace fl::bridge
