// Embedding bags: sums, means and maxima of rows of a table, from spmm; their gradients;
// and embedding_renorm_.
#include <ATen/OpMathType.h>

#include "bridge/devices.h"
#include "bridge/ops/indexing.h"
#include "bridge/ops/spmm.h"
#include "runtime/index_error.h"

namespace fl::bridge {
namespace {

enum Mode { kSum = 0, kMean = 1, kMax = 2 };
using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;

bool is_index(ScalarType type) { return type == at::kLong || type == at::kInt; }

// Indices and offsets of one dtype, the larger of theirs.
std::pair<Tensor, Tensor> promoted(const Tensor& indices, const Tensor& offsets) {
  TORCH_CHECK(is_index(indices.scalar_type()) && is_index(offsets.scalar_type()),
              "embedding_bag: expected indices and offsets of type Long or Int, but got ",
              c10::toString(indices.scalar_type()), " and ", c10::toString(offsets.scalar_type()));
  ScalarType type = c10::promoteTypes(indices.scalar_type(), offsets.scalar_type());
  return {indices.to(type), offsets.to(type)};
}

void check(const Tensor& weight, const Tensor& indices, const Tensor& offsets, int64_t mode,
           const Tensor* scale, bool include_last) {
  TORCH_CHECK(indices.dim() == 1 || indices.dim() == 2,
              "input has to be a 1D or 2D Tensor, but got Tensor of dimension ", indices.dim());
  TORCH_CHECK(indices.dim() == 2 || offsets.dim() == 1,
              "offsets has to be a 1D Tensor, but got Tensor of dimension ", offsets.dim());
  TORCH_CHECK(weight.dim() == 2, "weight has to be a 2D Tensor, but got Tensor of dimension ", weight.dim());
  TORCH_CHECK(at::isFloatingType(weight.scalar_type()), "expected a floating-point weight, but got ",
              c10::toString(weight.scalar_type()), " (while checking arguments for embedding_bag)");
  if (scale) {
    TORCH_CHECK(mode == kSum,
                "embedding_bag: per_sample_weights was not None. per_sample_weights is only "
                "supported for mode='sum'");
    TORCH_CHECK(scale->scalar_type() == weight.scalar_type(),
                "expected per_sample_weights to have the dtype ", c10::toString(weight.scalar_type()),
                " of weight, but got ", c10::toString(scale->scalar_type()));
    TORCH_CHECK(scale->dim() == 1 && scale->numel() == indices.numel(),
                "expected per_sample_weights to be 1D with as many values as there are indices");
  }
  TORCH_CHECK(!include_last || offsets.size(0) >= 1,
              "include_last_offset: number of offset should be at least 1");
}

// The first offset is 0, none is outside 0 … count: a fault with the offset, and the bound, otherwise.
void check_offsets(Call& call, const Tensor& offsets, int64_t count) {
  Tensor nothing = empty_like(offsets, {}, at::kBool),
         found = empty_like(offsets, offsets.sizes(), at::kBool);
  auto within = [&](int64_t n, int64_t size) {
    Tensor out = found.narrow(0, 0, n), index = offsets.narrow(0, 0, n);
    if (!gather_into(call, out, nothing, {&index}, {Axis{size, 0}}))
      throw_refused(call, "gather", offsets.scalar_type());
  };
  if (offsets.numel() == 0) return;
  within(1, 1);
  within(offsets.numel(), count + 1);
}

// offsets with the number of indices at the end, whatever stood there.
Tensor row_begins(const Tensor& offsets, int64_t bags, int64_t count) {
  Tensor begin = empty_like(offsets, {bags + 1}, offsets.scalar_type());
  // Within the indices, whatever the values: a fault of check_offsets() does not stop what comes after it.
  if (bags) begin.narrow(0, 0, bags).copy_(offsets.narrow(0, 0, bags).clamp(0, count));
  begin.narrow(0, bags, 1).fill_(count);
  return begin;
}

// Bags without the padding's index: what remains moves together.
struct Bags {
  Tensor begin, columns, scale;  // scale undefined: none
};
Bags without_padding(const Bags& bags, int64_t padding) {
  const Tensor& columns = bags.columns;
  const int64_t count = columns.size(0);
  Tensor pad = columns.eq(padding), before = pad.cumsum(0, at::kLong),
         shift = at::cat({at::zeros({1}, before.options()), before});
  // Padding goes to one place behind the others.
  Tensor to = at::where(pad, at::scalar_tensor(count, before.options()),
                        at::arange(count, before.options()) - before);
  auto pack = [&](const Tensor& t) {
    return at::zeros({count + 1}, t.options()).scatter_(0, to, t).narrow(0, 0, count);
  };
  Bags kept;
  kept.begin = bags.begin - shift.index_select(0, bags.begin).to(bags.begin.scalar_type());
  kept.columns = pack(columns);
  if (bags.scale.defined()) kept.scale = pack(bags.scale);
  return kept;
}

// A maximum is a bag's first row, until a larger one comes: NaN that comes later is passed over, and spmm
// lets it win.  So bags are made of -inf in its place, and those that begin with it are found afterwards.
struct Comparable {
  Tensor values, is_nan;
  bool gathered;
  Comparable(Call& call, const Tensor& weight, const Tensor& columns, bool maximum)
      : values(weight), gathered(maximum && columns.numel() && weight.numel()) {
    if (!gathered) return;
    values = empty_like(weight, {columns.size(0), weight.size(1)}, weight.scalar_type());
    const Slice row(weight, 0);
    const Tensor index = columns.unsqueeze(1);
    if (!gather_into(call, values, row.rest, {&index}, {row.axis}))
      throw_refused(call, "gather", weight.scalar_type());
    is_nan = values.isnan();
    values.masked_fill_(is_nan, -INFINITY);
  }
  void begin_with_nan(const Tensor& begin, Tensor& out, Tensor& winner) const {
    const int64_t bags = out.size(0);
    Tensor first = begin.narrow(0, 0, bags).clamp_max(values.size(0) - 1),
           nan = is_nan.index_select(0, first).logical_and_(winner.ge(0));
    out.masked_fill_(nan, NAN);
    winner = at::where(nan, first.to(at::kLong).unsqueeze(1), winner);
  }
};

Four run(Op& op, const Tensor& weight, const Tensor& indices_in, const Tensor& offsets_in, int64_t mode,
         const std::optional<Tensor>& scale, bool include_last, int64_t padding, bool wants_sizes) {
  auto [indices, offsets] = promoted(indices_in, offsets_in);
  check_devices(op, {&weight, &indices_in, &offsets_in, given(scale)});
  check(weight, indices, offsets, mode, given(scale), include_last);
  const int64_t bags = offsets.size(0) - include_last, count = indices.size(0);
  Call call(op, weight);
  if (padding >= 0) call.composed();
  check_offsets(call, offsets, count);
  Bags b{row_begins(offsets, bags, count), indices, given(scale) ? *scale : Tensor()};
  if (padding >= 0) b = without_padding(b, padding);
  Tensor out = empty_like(weight, {bags, weight.size(1)}, weight.scalar_type()), winner;
  if (mode == kMax) winner = empty_like(weight, out.sizes(), at::kLong);
  const Comparable rows(call, weight, b.columns, mode == kMax);
  Spmm spmm{mode == kSum    ? FL_SPMM_SUM
            : mode == kMean ? FL_SPMM_MEAN
                            : FL_SPMM_MAX,
            b.begin,
            rows.values,
            rows.gathered ? nullptr : &b.columns,
            b.scale.defined() ? &b.scale : nullptr,
            mode == kMax ? &winner : nullptr};
  if (!spmm_into(call, spmm, out, 0)) throw_refused(call, "pointwise", weight.scalar_type());
  if (rows.gathered) rows.begin_with_nan(b.begin, out, winner);

  // What the gradients ask for: the bags' sizes without padding, and whose maximum it was.  Each index's bag
  // they find out themselves, where it is empty here.
  Tensor bag_of = empty_like(offsets, {0}, offsets.scalar_type()), sizes, largest;
  if (mode != kSum)
    sizes = (b.begin.narrow(0, 1, bags) - b.begin.narrow(0, 0, bags)).to(offsets.scalar_type());
  else sizes = at::zeros({bags + (!wants_sizes && include_last)}, offsets.options());
  if (mode == kMax) {
    largest = at::zeros(winner.sizes(), offsets.options());
    if (count && winner.numel())
      largest = b.columns.index_select(0, winner.clamp_min(0).flatten())
                    .view_as(winner)
                    .masked_fill_(winner < 0, 0);
  } else {
    largest = sizes.clone();
  }
  return {out, bag_of, sizes, largest};
}

Four embedding_bag(const Tensor& weight, const Tensor& indices, const Tensor& offsets, bool, int64_t mode,
                   bool, const std::optional<Tensor>& scale, bool include_last, int64_t padding) {
  static InvalidIndexOp op("aten::_embedding_bag");
  return run(op, weight, indices, offsets, mode, scale, include_last, padding, true);
}
Four embedding_bag_forward_only(const Tensor& weight, const Tensor& indices, const Tensor& offsets, bool,
                                int64_t mode, bool, const std::optional<Tensor>& scale, bool include_last,
                                int64_t padding) {
  static InvalidIndexOp op("aten::_embedding_bag_forward_only");
  return run(op, weight, indices, offsets, mode, scale, include_last, padding, false);
}

// ---------------------------------------------------------------- gradients
Tensor dense_backward(const Tensor& grad, const Tensor& indices, const Tensor& bag_of, const Tensor& sizes,
                      const Tensor& largest, int64_t count, bool by_frequency, int64_t mode,
                      const std::optional<Tensor>& scale, int64_t padding) {
  static Op op("aten::_embedding_bag_dense_backward");
  Call call(op, grad);
  call.composed();
  const ScalarType dtype = grad.scalar_type(), wide = at::isReducedFloatingType(dtype) ? at::kFloat : dtype;
  if (grad.numel() == 0 || indices.numel() == 0 || count == 0)
    return at::zeros({count, grad.size(1)}, grad.options());
  Tensor g = grad.to(wide);
  if (mode == kMax) {
    g = g.masked_fill(sizes.eq(0).unsqueeze(1), 0);
    return at::zeros({count, grad.size(1)}, g.options()).scatter_add_(0, largest.to(at::kLong), g).to(dtype);
  }
  // In double, as far as the chip has it, like the CPU's scale; a product of three factors in F32 is near
  // enough.
  Tensor factor;
  auto times = [&](const Tensor& t) { factor = factor.defined() ? factor * t : t; };
  if (given(scale)) times(scale->to(wide));
  if (mode == kMean) times(sizes.clamp_min(1).to(wide).reciprocal().index_select(0, bag_of));
  Tensor index = indices.to(at::kLong);
  if (by_frequency) {
    Tensor ones = at::ones(index.sizes(), g.options());
    times(at::zeros({count}, g.options()).scatter_add_(0, index, ones).reciprocal().gather(0, index));
  }
  Tensor rows = g.index_select(0, bag_of);
  if (factor.defined()) rows.mul_(factor.unsqueeze(1));
  if (padding >= 0) rows.masked_fill_(index.eq(padding).unsqueeze(1), 0);
  return at::zeros({count, grad.size(1)}, g.options()).index_add_(0, index, rows).to(dtype);
}

// PyTorch's own asks for contiguous indices of the offsets' dtype and computes bag_of where it is missing.
Tensor backward(const Tensor& grad, const Tensor& indices_in, const Tensor& offsets_in, const Tensor& bag_in,
                const Tensor& sizes, const Tensor& largest, c10::SymInt count, bool by_frequency,
                int64_t mode, bool sparse, const std::optional<Tensor>& scale, int64_t padding) {
  static Op op("aten::_embedding_bag_backward");
  auto [indices, offsets] = promoted(indices_in, offsets_in);
  Tensor bag_of = bag_in;
  if (indices.numel() && bag_of.numel() == 0) {
    Call call(op, grad);
    call.composed();
    bag_of = rows_of(call, row_begins(offsets, grad.size(0), indices.size(0)), indices.size(0))
                 .to(offsets.scalar_type());
  }
  if (sparse)
    return at::_embedding_bag_sparse_backward_symint(grad, indices, offsets, bag_of, sizes, count,
                                                     by_frequency, mode, scale, padding);
  return at::_embedding_bag_dense_backward_symint(grad, indices, bag_of, sizes, largest, count, by_frequency,
                                                  mode, scale, padding);
}

Tensor per_sample_weights_backward(const Tensor& grad, const Tensor& weight, const Tensor& indices_in,
                                   const Tensor& offsets_in, const Tensor& bag_in, int64_t mode,
                                   int64_t padding) {
  static Op op("aten::_embedding_bag_per_sample_weights_backward");
  TORCH_CHECK(mode == kSum, "embedding_bag_backward: per_sample_weights only supported for mode='sum'");
  auto [indices, offsets] = promoted(indices_in, offsets_in);
  const int64_t count = indices.size(0);
  if (count == 0) return at::zeros({0}, grad.options());
  Call call(op, grad);
  call.composed();
  Tensor bag_of = bag_in;
  if (bag_of.numel() == 0) bag_of = rows_of(call, row_begins(offsets, grad.size(0), count), count);
  Tensor out = (grad.index_select(0, bag_of) * weight.index_select(0, indices)).sum(1);
  if (padding >= 0) out.masked_fill_(indices.eq(padding), 0);
  return out;
}

// ---------------------------------------------------------------- renorm
// Rows that are used and longer than max_norm are scaled to it.
Tensor& renorm_rows(Tensor& self, const Tensor& indices, double max_norm, double norm_type) {
  static Op op("aten::embedding_renorm_");
  check_devices(op, {&self, &indices});
  TORCH_CHECK(self.dim() == 2, "'self' must be 2-D (while checking arguments for embedding_renorm_)");
  TORCH_CHECK(is_index(indices.scalar_type()),
              "Expected tensor for argument #2 'indices' to have one of the following scalar types: Long, "
              "Int; but got ",
              c10::toString(indices.scalar_type()),
              " instead (while checking arguments for embedding_renorm_)");
  if (self.numel() == 0 || indices.numel() == 0) return self;
  Call call(op, self);
  call.composed();
  // Equal rows get equal values, so that an index may come twice.
  Tensor index = indices.reshape({-1}), rows = self.index_select(0, index),
         norm = rows.norm(norm_type, {1}, /*keepdim=*/true, at::toOpMathType(self.scalar_type()));
  Tensor scale = at::where(norm > max_norm, max_norm / (norm + 1e-7), at::ones({}, norm.options()));
  self.index_copy_(0, index.to(at::kLong), (rows * scale).to(self.scalar_type()));
  return self;
}

Tensor dense_backward_symint(const Tensor& grad, const Tensor& indices, const Tensor& bag_of,
                             const Tensor& sizes, const Tensor& largest, c10::SymInt count, bool by_frequency,
                             int64_t mode, const std::optional<Tensor>& scale, int64_t padding) {
  return dense_backward(grad, indices, bag_of, sizes, largest, count.expect_int(), by_frequency, mode, scale,
                        padding);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_embedding_bag", embedding_bag);
  m.impl("_embedding_bag_forward_only", embedding_bag_forward_only);
  m.impl("_embedding_bag_backward", backward);
  m.impl("_embedding_bag_dense_backward", dense_backward_symint);
  m.impl("_embedding_bag_per_sample_weights_backward", per_sample_weights_backward);
  m.impl("embedding_renorm_", renorm_rows);
}

}  // namespace
}  // namespace fl::bridge
