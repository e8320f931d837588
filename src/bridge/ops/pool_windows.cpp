#include "bridge/ops/pool_windows.h"

#include "bridge/ops/indexing.h"
#include "bridge/ops/reduction.h"
#include "bridge/ops/resample.h"
#include "program/expr.h"

namespace fl::bridge {
namespace {

int axes_of(const Tensor& x) { return static_cast<int>(x.dim()) - 2; }

// [Y, K] as [1, 1, 1… Y …1, 1… K …1].
Tensor spread(const Tensor& taps, int n, int d) {
  std::vector<int64_t> sizes(static_cast<size_t>(2 + 2 * n), 1);
  sizes[static_cast<size_t>(2 + d)] = taps.size(0);
  sizes[static_cast<size_t>(2 + n + d)] = taps.size(1);
  return taps.view(sizes);
}

Tensor fixed_taps(Call& call, const Window& w, const Tensor& x, int n, int d, int64_t out) {
  static Programs programs;
  const fl_program* program = programs.get(0, [](Builder& b) {
    auto scalar = [&](int i) { return Expr{&b, b.scalar(i, FL_I64)}; };
    Expr y{&b, b.index(0, FL_I64)}, k{&b, b.index(1, FL_I64)};
    Expr dilation = scalar(2), size = scalar(3), start = y * scalar(0) - scalar(1), at = start + k * dilation;
    // The first tap inside.
    Expr ahead = apply(FL_OP_DIV_TRUNC, max(dilation - 1 - start, 0), dilation);
    Expr first = min(select(start < 0, start + ahead * dilation, start), size - 1);
    b.store(0, select((at < 0) | (at >= size), first, at).v, FL_I64);
  });
  Tensor taps = empty_like(x, {out, w.kernel[d]}, at::kLong);
  if (!run_program(
          call, program, {&taps}, {},
          {scalar_i(w.stride[d]), scalar_i(w.padding[d]), scalar_i(w.dilation[d]), scalar_i(x.size(2 + d))},
          Order::kKeep))
    throw_refused(call, "pointwise", at::kLong);
  return spread(taps, n, d);
}

// The windows of padded x as a view [N, C, Y…, K…].
Tensor window_view(const Tensor& padded, const Window& w, const Tensor& y) {
  int n = axes_of(padded);
  at::DimVector sizes(y.sizes()), strides(padded.strides().slice(0, 2));
  for (int d = 0; d < n; ++d) strides.push_back(padded.stride(2 + d) * w.stride[d]);
  for (int d = 0; d < n; ++d) sizes.push_back(w.kernel[d]), strides.push_back(padded.stride(2 + d));
  return padded.as_strided(sizes, strides, padded.storage_offset());
}

// Padding that every window of y fits in, zeros outside x.
at::DimVector pads_of(const Tensor& x, const Window& w, const Tensor& y) {
  at::DimVector pads;
  for (int d = axes_of(x) - 1; d >= 0; --d) {
    int64_t end = (y.size(2 + d) - 1) * w.stride[d] + w.kernel[d] - w.padding[d];
    pads.push_back(w.padding[d]);
    pads.push_back(std::max<int64_t>(0, end - x.size(2 + d)));
  }
  return pads;
}

// out = in / the number of elements that a window counts.
bool divide_by_count(Call& call, const Window& w, const Tensor& in, IntArrayRef sizes, const Tensor& out) {
  static Programs programs;
  int n = axes_of(in);
  uint8_t from = dtype_of(in), to = dtype_of(out), type = to_register(in.scalar_type());
  int counts = w.divisor ? 0 : w.count_padding ? 1 : 2;
  const fl_program* program = programs.get(key_of(from, to, n, counts), [&](Builder& b) {
    auto scalar = [&](int i) { return Expr{&b, b.scalar(i, FL_I64)}; };
    Expr count = scalar(0);
    for (int d = 0; d < n && counts; ++d) {
      Expr padding = scalar(4 * d + 2), size = scalar(4 * d + 4);
      Expr start = Expr{&b, b.index(2 + d, FL_I64)} * scalar(4 * d + 1) - padding;
      Expr end = min(start + scalar(4 * d + 3), size + padding);
      Expr length = counts == 1 ? end - start : min(end, size) - max(start, 0);
      count = count * length;
    }
    Expr x{&b, b.load(0, from)}, divisor = count.cast(type);
    b.store(0, apply(x.is_real() ? FL_OP_DIV : FL_OP_DIV_TRUNC, x, divisor).v, to);
  });
  std::vector<fl_scalar> scalars{scalar_i(w.divisor ? w.divisor : 1)};
  for (int d = 0; d < n; ++d)
    for (int64_t v : {int64_t{w.stride[d]}, int64_t{w.padding[d]}, int64_t{w.kernel[d]},
                      sizes[static_cast<size_t>(2 + d)]})
      scalars.push_back(scalar_i(v));
  Space space(in.sizes());
  space.add(call.view(out));
  space.add(call.view(in));
  space.finish(Order::kKeep);
  return pointwise(call, program, space, 1, scalars.data());
}

bool average(Call& call, const Window& w, const Tensor& x, const Tensor& y) {
  uint8_t type = accumulate_type(x.scalar_type());
  if (type == FL_BOOL || !call.claims(FL_ENTRY_REDUCE, FL_REDUCE_SUM, type)) return false;
  call.composed();
  Tensor padded = at::constant_pad_nd(x, pads_of(x, w, y), 0), windows = window_view(padded, w, y);
  Tensor sums = empty_like(x, y.sizes(), to_scalar_type(type));
  Mask mask;
  for (int64_t d = y.dim(); d < windows.dim(); ++d) mask.set(static_cast<size_t>(d));
  return reduce(call, {FL_REDUCE_SUM, type}, mask, {&windows}, {&sums}) &&
         divide_by_count(call, w, sums, x.sizes(), y);
}

bool average_backward(Call& call, const Window& w, const Tensor& grad, const Tensor& grad_x) {
  ScalarType computed = to_scalar_type(to_register(grad.scalar_type()));
  if (!call.claims(FL_ENTRY_POINTWISE, FL_OP_DIV, to_dtype(computed))) return false;
  call.composed();
  Tensor part = empty_like(grad, grad.sizes(), computed);
  if (!divide_by_count(call, w, grad.to(computed), grad_x.sizes(), part)) return false;
  at::DimVector pads = pads_of(grad_x, w, grad), sizes(grad_x.sizes());
  int n = axes_of(grad);
  for (int d = 0; d < n; ++d)
    sizes[static_cast<size_t>(2 + d)] +=
        pads[static_cast<size_t>(2 * (n - 1 - d))] + pads[static_cast<size_t>(2 * (n - 1 - d) + 1)];
  Tensor padded = at::zeros(sizes, part.options()), windows = window_view(padded, w, grad);
  // Within one tap the windows do not overlap: a sum over taps.
  int64_t taps = 1;
  for (int d = 0; d < n; ++d) taps *= w.kernel[d];
  for (int64_t tap = 0; tap < taps; ++tap) {
    Tensor place = windows;
    for (int64_t d = n - 1, rest = tap; d >= 0; --d) {
      place = place.select(2 + n + d, rest % w.kernel[d]);
      rest /= w.kernel[d];
    }
    place.add_(part);
  }
  for (int d = 0; d < n; ++d) padded = padded.narrow(2 + d, w.padding[d], grad_x.size(2 + d));
  copy_step(grad_x, padded);
  return true;
}

// Adaptive average is interpolation whose weights are the same over a window.
Resampling means(const Tensor& x) {
  return {Filter::kMean, false, c10::SmallVector<std::optional<double>, 3>(static_cast<size_t>(axes_of(x)))};
}

// winner / below mod count, as a position along the axis: taps[…, that].
Tensor position(Call& call, const Tensor& winner, const Tensor& taps, int64_t below, int n, int d) {
  static Programs programs;
  int64_t dim = 2 + n + d;
  const fl_program* program = programs.get(0, [](Builder& b) {
    Expr k = apply(FL_OP_DIV_TRUNC, Expr{&b, b.load(0, FL_I64)}, Expr{&b, b.scalar(0, FL_I64)});
    b.store(0, apply(FL_OP_REM_TRUNC, k, Expr{&b, b.scalar(1, FL_I64)}).v, FL_I64);
  });
  Tensor digit = at::empty_like(winner), at = at::empty_like(winner);
  Tensor from = taps.select(dim, 0);  // [N, C, Y…, and n - 1 of size 1]
  for (int i = 0; i < n - 1; ++i) from = from.squeeze(-1);
  if (!run_program(call, program, {&digit}, {&winner}, {scalar_i(below), scalar_i(taps.size(dim))}) ||
      !gather_into(call, at, from, {&digit}, {{taps.size(dim), taps.stride(dim)}}))
    throw_refused(call, "gather", at::kLong);
  return at;
}

// The winner of a window with NaN is the last one in it, on PyTorch's CPU and on CUDA; a reduction names the
// first.
bool prefer_last_nan(Call& call, const Tensor& picked, const Mask& mask, int n, const Tensor& winner) {
  static Programs marks, choices;
  const uint8_t memory = dtype_of(picked), type = accumulate_type(picked.scalar_type());
  if (!call.claims(FL_ENTRY_REDUCE, FL_REDUCE_MAX, FL_I64)) return false;
  const fl_program* mark = marks.get(memory, [&](Builder& b) {
    Value x = b.load(0, memory, type);
    b.store(0, b.select(b.op(FL_OP_NE, x, x), b.load(1, FL_I64), b.constant(-1, FL_I64)), FL_I64);
  });
  IntArrayRef taps = picked.sizes().slice(static_cast<size_t>(picked.dim() - n));
  Tensor place = at::arange(c10::multiply_integers(taps), winner.options()).view(taps).expand(picked.sizes()),
         last = empty_like(winner, winner.sizes(), at::kLong);
  if (!reduce(call, {FL_REDUCE_MAX, FL_I64, mark}, mask, {&picked, &place}, {&last})) return false;
  const fl_program* choose = choices.get(0, [](Builder& b) {
    Value nan = b.load(0, FL_I64);
    Value none = b.op(FL_OP_LT, nan, b.constant(0, FL_I64));
    b.store(0, b.select(none, b.load(1, FL_I64), nan), FL_I64);
  });
  return run_program(call, choose, {&winner}, {&last, &winner});
}

}  // namespace

Tensor adaptive_taps(Call& call, const Tensor& x, int n, int d, int64_t out) {
  static Programs programs;
  const fl_program* program = programs.get(0, [](Builder& b) {
    Expr y{&b, b.index(0, FL_I64)}, k{&b, b.index(1, FL_I64)};
    Expr in{&b, b.scalar(0, FL_I64)}, out{&b, b.scalar(1, FL_I64)};
    Expr start = apply(FL_OP_DIV_TRUNC, y * in, out);
    Expr end = apply(FL_OP_DIV_TRUNC, (y + 1) * in + out - 1, out);
    b.store(0, min(start + k, end - 1).v, FL_I64);
  });
  int64_t in = x.size(2 + d), longest = 1;
  for (int64_t y = 0; y < out; ++y)
    longest = std::max(longest, ((y + 1) * in + out - 1) / out - y * in / out);
  Tensor taps = empty_like(x, {out, longest}, at::kLong);
  if (!run_program(call, program, {&taps}, {}, {scalar_i(in), scalar_i(out)}, Order::kKeep))
    throw_refused(call, "pointwise", at::kLong);
  return spread(taps, n, d);
}

Tensor fractional_taps(const Tensor& x, int n, int d, int64_t out, int64_t kernel, const Tensor& samples) {
  int64_t room = x.size(2 + d) - kernel;
  at::DimVector sizes{x.size(0), x.size(1)};
  sizes.resize(static_cast<size_t>(2 + 2 * n), 1);
  sizes[static_cast<size_t>(2 + d)] = out;
  Tensor starts;
  if (out > 1) {
    // In the dtype's own arithmetic, which decides where a product is cut to an integer.
    Tensor sample = samples.select(2, n == 2 ? 1 - d : d).narrow(0, 0, x.size(0)).unsqueeze(2);
    Tensor alpha = at::scalar_tensor(room, x.options().device(at::kCPU)) /
                   at::scalar_tensor(out - 1, x.options().device(at::kCPU));
    Tensor result = at::arange(out, x.options()) + sample;
    starts = result.mul_(alpha.item()).to(at::kLong) - (sample * alpha.item()).to(at::kLong);
    starts.select(2, out - 1).fill_(room);
  } else {
    starts = at::full({x.size(0), x.size(1), 1}, room, x.options().dtype(at::kLong));
  }
  std::vector<int64_t> taps(static_cast<size_t>(2 + 2 * n), 1);
  taps[static_cast<size_t>(2 + n + d)] = kernel;
  return starts.view(sizes) + at::arange(kernel, starts.options()).view(taps);
}

bool max_over(Call& call, const Tensor& x, const std::vector<Tensor>& taps, const Tensor& y,
              const Tensor* index) {
  static Programs programs;
  int n = static_cast<int>(taps.size());
  uint8_t type = accumulate_type(x.scalar_type());
  if (type == FL_BOOL || !call.claims(FL_ENTRY_REDUCE, FL_REDUCE_MAX, type)) return false;
  call.composed();
  at::DimVector sizes(y.sizes());
  for (int d = 0; d < n; ++d) sizes.push_back(taps[static_cast<size_t>(d)].size(2 + n + d));
  Tensor picked = empty_like(x, sizes, x.scalar_type());
  Space space(sizes);
  space.add(call.view(picked));
  at::DimVector strides(x.strides().slice(0, 2));
  strides.resize(sizes.size(), 0);
  fl_tensor from = call.view(x);
  space.add(from.data, from.dtype, strides.data());
  for (const Tensor& t : taps) space.add(call.view(t));
  space.finish();
  if (!gather_space(call, space, x.sizes().data() + 2, x.strides().data() + 2, 0)) return false;

  Mask mask;
  for (int d = 0; d < n; ++d) mask.set(static_cast<size_t>(2 + n + d));
  if (!index) return reduce(call, {FL_REDUCE_MAX, type}, mask, {&picked}, {&y});
  Tensor winner = empty_like(x, y.sizes(), at::kLong);
  if (!reduce(call, {FL_REDUCE_MAX, type}, mask, {&picked}, {&y}, &winner)) return false;
  if ((type == FL_F32 || type == FL_F64) && !prefer_last_nan(call, picked, mask, n, winner)) return false;
  int64_t below = 1, step = 1;
  Tensor sum;
  for (int d = n - 1; d >= 0; --d) {
    Tensor at = position(call, winner, taps[static_cast<size_t>(d)], below, n, d);
    if (sum.defined()) sum.add_(at, step);
    else sum = at;
    below *= sizes[static_cast<size_t>(2 + n + d)];
    step *= x.size(2 + d);
  }
  copy_step(*index, sum);
  return true;
}

void sum_by_index(const Tensor& grad, const Tensor& index, const Tensor& grad_x) {
  bool direct = grad_x.is_contiguous();
  Tensor sums = direct ? grad_x : at::empty(grad_x.sizes(), grad.options());
  fill_step(sums, 0);
  sums.flatten(2).scatter_add_(2, index.flatten(2), grad.flatten(2));
  if (!direct) copy_step(grad_x, sums);
}

bool pool_windows(Call& call, const Window& w, const Tensor& x, const Tensor& y, const Tensor* index) {
  int n = axes_of(x);
  if (w.kind == FL_POOL_ADAPTIVE_AVERAGE) return resample(call, means(x), x, y);
  if (w.kind == FL_POOL_AVERAGE) return average(call, w, x, y);
  std::vector<Tensor> taps;
  call.composed();
  for (int d = 0; d < n; ++d) taps.push_back(fixed_taps(call, w, x, n, d, y.size(2 + d)));
  return max_over(call, x, taps, y, index);
}

bool pool_windows_backward(Call& call, const Window& w, const Tensor& grad, const Tensor& grad_x,
                           const Tensor* index) {
  if (w.kind == FL_POOL_ADAPTIVE_AVERAGE) return resample_backward(call, means(grad_x), grad, grad_x);
  if (w.kind == FL_POOL_AVERAGE) return average_backward(call, w, grad, grad_x);
  call.composed();
  sum_by_index(grad, *index, grad_x);
  return true;
}

}  // namespace fl::bridge
