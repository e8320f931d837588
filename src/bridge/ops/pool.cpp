// Pooling: maximum with indices, average and adaptive average, in one to three
// dimensions.
#include <ATen/native/AdaptivePooling.h>
#include <ATen/native/Pool.h>
#include <ATen/ops/avg_pool2d_backward_meta.h>
#include <ATen/ops/avg_pool2d_meta.h>
#include <ATen/ops/avg_pool3d_backward_meta.h>
#include <ATen/ops/avg_pool3d_meta.h>
#include <ATen/ops/max_pool2d_with_indices_backward_meta.h>
#include <ATen/ops/max_pool2d_with_indices_meta.h>

#include "bridge/ops/pool_windows.h"

namespace fl::bridge {
namespace {

void set(int32_t* to, IntArrayRef from, int n) {
  TORCH_CHECK(from.size() == 1 || from.size() == static_cast<size_t>(n), "pooling over ", n,
              " dimensions: kernel_size, stride, padding and dilation must be one number or ", n,
              ", but one of them is ", from);
  for (int d = 0; d < n; ++d) to[d] = static_cast<int32_t>(from.size() == 1 ? from[0] : from[d]);
}
Window window(int n, int kind, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
              IntArrayRef dilation) {
  Window w;
  w.kind = kind;
  set(w.kernel, kernel, n);
  set(w.stride, stride.empty() ? kernel : stride, n);
  set(w.padding, padding, n);
  if (!dilation.empty()) set(w.dilation, dilation, n);
  return w;
}
Window average(int n, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding, bool count_padding,
               std::optional<int64_t> divisor) {
  Window w = window(n, FL_POOL_AVERAGE, kernel, stride, padding, {});
  w.count_padding = count_padding;
  w.divisor = divisor.value_or(0);
  return w;
}

template <class Args>
void apply(Args& args, const Window& w) {
  std::copy(w.kernel, w.kernel + 3, args.kernel);
  std::copy(w.stride, w.stride + 3, args.stride);
  std::copy(w.padding, w.padding + 3, args.padding);
  std::copy(w.dilation, w.dilation + 3, args.dilation);
  args.kind = w.kind;
  args.count_padding = w.count_padding;
  args.divisor = w.divisor;
}

}  // namespace

Tensor batched(const Tensor& t, int n) { return t.dim() == n + 1 ? t.unsqueeze(0) : t; }

bool pool(Call& call, int n, const Window& w, const Tensor& x_in, const Tensor& y_in,
          const Tensor* index_in) {
  if (y_in.numel() == 0) return true;
  Tensor x = batched(x_in, n), y = batched(y_in, n), index = index_in ? batched(*index_in, n) : Tensor();
  const Tensor* windows_index = index_in ? &index : nullptr;
  if (!call.claims(FL_ENTRY_POOL, w.kind, dtype_of(x))) return pool_windows(call, w, x, y, windows_index);
  fl_pool_args args{};
  args.x = call.view(x);
  args.y = call.view(y);
  fl_tensor view;
  if (index_in) view = call.view(index), args.index = &view;
  apply(args, w);
  return call.native(call.chip().op.pool, args, {&args.x, &args.y}) ||
         pool_windows(call, w, x, y, windows_index);
}

bool pool_backward(Call& call, int n, const Window& w, const Tensor& grad_in, const Tensor& grad_x_in,
                   const Tensor* index_in) {
  if (grad_x_in.numel() == 0) return true;
  if (grad_in.numel() == 0) {
    fill_step(grad_x_in, 0);
    return true;
  }
  Tensor grad = batched(grad_in, n), grad_x = batched(grad_x_in, n),
         index = index_in ? batched(*index_in, n) : Tensor();
  const Tensor* windows_index = index_in ? &index : nullptr;
  if (!call.claims(FL_ENTRY_POOL_BACKWARD, w.kind, dtype_of(grad)))
    return pool_windows_backward(call, w, grad, grad_x, windows_index);
  fl_pool_backward_args args{};
  args.grad_y = call.view(grad);
  args.grad_x = call.view(grad_x);
  fl_tensor view;
  if (index_in) view = call.view(index), args.index = &view;
  apply(args, w);
  return call.native(call.chip().op.pool_backward, args, {&args.grad_y, &args.grad_x}) ||
         pool_windows_backward(call, w, grad, grad_x, windows_index);
}

namespace {

// ------------------------------------------------------------------ max, 2-d
std::tuple<Tensor&, Tensor&> max2d_out(const Tensor& x, IntArrayRef kernel, IntArrayRef stride,
                                       IntArrayRef padding, IntArrayRef dilation, bool ceil, Tensor& out,
                                       Tensor& index) {
  static Op op("aten::max_pool2d_with_indices.out");
  Into<at::meta::structured_max_pool2d_with_indices> shape(out, index);
  shape.meta(x, kernel, stride, padding, dilation, ceil);
  Call call(op, x);
  if (pool(call, 2, window(2, FL_POOL_MAX, kernel, stride, padding, dilation), x, out, &index))
    return {out, index};
  return fallback<ATEN_OP2(max_pool2d_with_indices, out)>(x, kernel, stride, padding, dilation, ceil, out,
                                                          index);
}

std::tuple<Tensor, Tensor> max2d(const Tensor& x, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
                                 IntArrayRef dilation, bool ceil) {
  static Op op("aten::max_pool2d_with_indices");
  Allocate<at::meta::structured_max_pool2d_with_indices, 2> shape(x);
  shape.meta(x, kernel, stride, padding, dilation, ceil);
  Call call(op, x);
  if (pool(call, 2, window(2, FL_POOL_MAX, kernel, stride, padding, dilation), x, shape.outputs[0],
           &shape.outputs[1]))
    return {shape.outputs[0], shape.outputs[1]};
  return fallback<ATEN_OP(max_pool2d_with_indices)>(x, kernel, stride, padding, dilation, ceil);
}

Tensor& max2d_backward_out(const Tensor& grad, const Tensor& x, IntArrayRef kernel, IntArrayRef stride,
                           IntArrayRef padding, IntArrayRef dilation, bool ceil, const Tensor& index,
                           Tensor& grad_x) {
  static Op op("aten::max_pool2d_with_indices_backward");
  Into<at::meta::structured_max_pool2d_with_indices_backward> shape(grad_x);
  shape.meta(grad, x, kernel, stride, padding, dilation, ceil, index);
  Call call(op, x);
  if (pool_backward(call, 2, window(2, FL_POOL_MAX, kernel, stride, padding, dilation), grad, grad_x, &index))
    return grad_x;
  return fallback<ATEN_OP2(max_pool2d_with_indices_backward, grad_input)>(grad, x, kernel, stride, padding,
                                                                          dilation, ceil, index, grad_x);
}

// ------------------------------------------------------------------ max, 3-d
at::DimVector max3d_sizes(const Tensor& x, const Window& w, bool ceil) {
  TORCH_CHECK(x.dim() == 4 || x.dim() == 5, "max_pool3d: Expected 4D or 5D tensor, but got ", x.sizes());
  const int64_t first = x.dim() - 3;
  at::DimVector sizes(x.sizes());
  for (int d = 0; d < 3; ++d)
    sizes[first + d] = at::native::pooling_output_shape<int64_t>(x.size(first + d), w.kernel[d], w.padding[d],
                                                                 w.stride[d], w.dilation[d], ceil);
  at::native::pool3d_shape_check(
      x, x.size(first - 1), w.kernel[0], w.kernel[1], w.kernel[2], w.stride[0], w.stride[1], w.stride[2],
      w.padding[0], w.padding[1], w.padding[2], w.dilation[0], w.dilation[1], w.dilation[2], x.size(first),
      x.size(first + 1), x.size(first + 2), sizes[first], sizes[first + 1], sizes[first + 2], "max_pool3d");
  return sizes;
}

std::tuple<Tensor, Tensor> max3d(const Tensor& x, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
                                 IntArrayRef dilation, bool ceil) {
  static Op op("aten::max_pool3d_with_indices");
  Window w = window(3, FL_POOL_MAX, kernel, stride, padding, dilation);
  auto sizes = max3d_sizes(x, w, ceil);
  const bool single = x.dim() == 4;
  auto format = x.suggest_memory_format();
  if (single) {
    sizes.insert(sizes.begin(), 1);
    const bool last = !x.is_contiguous() && batched(x, 3).is_contiguous(at::MemoryFormat::ChannelsLast3d);
    format = last ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::Contiguous;
  }
  Tensor out = at::empty(sizes, x.options().memory_format(format));
  Tensor index = at::empty(sizes, x.options().dtype(at::kLong).memory_format(format));
  if (single) out = out.squeeze(0), index = index.squeeze(0);
  Call call(op, x);
  if (pool(call, 3, w, x, out, &index)) return {out, index};
  return fallback<ATEN_OP(max_pool3d_with_indices)>(x, kernel, stride, padding, dilation, ceil);
}

Tensor max3d_backward(const Tensor& grad, const Tensor& x, IntArrayRef kernel, IntArrayRef stride,
                      IntArrayRef padding, IntArrayRef dilation, bool ceil, const Tensor& index) {
  static Op op("aten::max_pool3d_with_indices_backward");
  Tensor grad_x = at::empty_like(x);
  Call call(op, x);
  if (pool_backward(call, 3, window(3, FL_POOL_MAX, kernel, stride, padding, dilation), grad, grad_x, &index))
    return grad_x;
  return fallback<ATEN_OP(max_pool3d_with_indices_backward)>(grad, x, kernel, stride, padding, dilation, ceil,
                                                             index);
}

// -------------------------------------------------------------------- average
Tensor& avg2d_out(const Tensor& x, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding, bool ceil,
                  bool count_padding, std::optional<int64_t> divisor, Tensor& out) {
  static Op op("aten::avg_pool2d");
  Into<at::meta::structured_avg_pool2d> shape(out);
  shape.meta(x, kernel, stride, padding, ceil, count_padding, divisor);
  Call call(op, x);
  if (pool(call, 2, average(2, kernel, stride, padding, count_padding, divisor), x, out, nullptr)) return out;
  return fallback<ATEN_OP2(avg_pool2d, out)>(x, kernel, stride, padding, ceil, count_padding, divisor, out);
}
Tensor& avg2d_backward_out(const Tensor& grad, const Tensor& x, IntArrayRef kernel, IntArrayRef stride,
                           IntArrayRef padding, bool ceil, bool count_padding, std::optional<int64_t> divisor,
                           Tensor& grad_x) {
  static Op op("aten::avg_pool2d_backward");
  Into<at::meta::structured_avg_pool2d_backward> shape(grad_x);
  shape.meta(grad, x, kernel, stride, padding, ceil, count_padding, divisor);
  Call call(op, x);
  if (pool_backward(call, 2, average(2, kernel, stride, padding, count_padding, divisor), grad, grad_x,
                    nullptr))
    return grad_x;
  return fallback<ATEN_OP2(avg_pool2d_backward, grad_input)>(grad, x, kernel, stride, padding, ceil,
                                                             count_padding, divisor, grad_x);
}
Tensor& avg3d_out(const Tensor& x, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding, bool ceil,
                  bool count_padding, std::optional<int64_t> divisor, Tensor& out) {
  static Op op("aten::avg_pool3d");
  Into<at::meta::structured_avg_pool3d> shape(out);
  shape.meta(x, kernel, stride, padding, ceil, count_padding, divisor);
  Call call(op, x);
  if (pool(call, 3, average(3, kernel, stride, padding, count_padding, divisor), x, out, nullptr)) return out;
  return fallback<ATEN_OP2(avg_pool3d, out)>(x, kernel, stride, padding, ceil, count_padding, divisor, out);
}
Tensor& avg3d_backward_out(const Tensor& grad, const Tensor& x, IntArrayRef kernel, IntArrayRef stride,
                           IntArrayRef padding, bool ceil, bool count_padding, std::optional<int64_t> divisor,
                           Tensor& grad_x) {
  static Op op("aten::avg_pool3d_backward");
  Into<at::meta::structured_avg_pool3d_backward> shape(grad_x);
  shape.meta(grad, x, kernel, stride, padding, ceil, count_padding, divisor);
  Call call(op, x);
  if (pool_backward(call, 3, average(3, kernel, stride, padding, count_padding, divisor), grad, grad_x,
                    nullptr))
    return grad_x;
  return fallback<ATEN_OP2(avg_pool3d_backward, grad_input)>(grad, x, kernel, stride, padding, ceil,
                                                             count_padding, divisor, grad_x);
}

// ------------------------------------------------------------ adaptive average
template <int N>
at::DimVector adaptive_sizes(const Tensor& x, IntArrayRef output) {
  TORCH_CHECK(output.size() == N, "adaptive_avg_pool", N, "d: output_size must be ", N);
  TORCH_CHECK(x.dim() == N + 1 || x.dim() == N + 2, "adaptive_avg_pool", N, "d(): Expected ", N + 1, "D or ",
              N + 2, "D tensor, but got ", x.sizes());
  at::DimVector sizes(x.sizes().slice(0, x.dim() - N));
  for (int d = 0; d < N; ++d) {
    TORCH_CHECK(x.size(x.dim() - N + d) > 0, "adaptive_avg_pool", N,
                "d(): Expected input to have non-zero size for "
                "non-batch dimensions, but input has sizes ",
                x.sizes());
    TORCH_CHECK(output[d] >= 0, "adaptive_avg_pool", N,
                "d: elements of output_size must be greater than or equal to 0");
    sizes.push_back(output[d]);
  }
  return sizes;
}

template <int N>
Tensor adaptive(const Tensor& x, IntArrayRef output) {
  static Op op(N == 2 ? "aten::_adaptive_avg_pool2d" : "aten::_adaptive_avg_pool3d");
  auto sizes = adaptive_sizes<N>(x, output);
  // PyTorch keeps the format of images, not of volumes.
  auto format = x.dim() == 4 && N == 2 ? x.suggest_memory_format() : at::MemoryFormat::Contiguous;
  Tensor out = at::empty(sizes, x.options().memory_format(format));
  Call call(op, x);
  Window w;
  w.kind = FL_POOL_ADAPTIVE_AVERAGE;
  if (x.numel() == 0 || pool(call, N, w, x, out, nullptr)) return out;
  if constexpr (N == 2) return fallback<ATEN_OP(_adaptive_avg_pool2d)>(x, output);
  else return fallback<ATEN_OP(_adaptive_avg_pool3d)>(x, output);
}
template <int N>
Tensor adaptive_backward(const Tensor& grad, const Tensor& x) {
  static Op op(N == 2 ? "aten::_adaptive_avg_pool2d_backward" : "aten::_adaptive_avg_pool3d_backward");
  at::native::adaptive_pool_empty_output_check(
      grad, N == 2 ? "adaptive_avg_pool2d_backward" : "adaptive_avg_pool3d_backward");
  Tensor grad_x = at::empty_like(x);
  Call call(op, x);
  Window w;
  w.kind = FL_POOL_ADAPTIVE_AVERAGE;
  if (pool_backward(call, N, w, grad, grad_x, nullptr)) return grad_x;
  if constexpr (N == 2) return fallback<ATEN_OP(_adaptive_avg_pool2d_backward)>(grad, x);
  else return fallback<ATEN_OP(_adaptive_avg_pool3d_backward)>(grad, x);
}
template <int N>
Tensor& adaptive_out(const Tensor& x, IntArrayRef output, Tensor& out) {
  Tensor result = adaptive<N>(x, output);
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("max_pool2d_with_indices", max2d);
  m.impl("max_pool2d_with_indices.out", max2d_out);
  m.impl("max_pool2d_with_indices_backward.grad_input", max2d_backward_out);
  m.impl("max_pool3d_with_indices", max3d);
  m.impl("max_pool3d_with_indices_backward", max3d_backward);
  m.impl("avg_pool2d.out", avg2d_out);
  m.impl("avg_pool2d_backward.grad_input", avg2d_backward_out);
  m.impl("avg_pool3d.out", avg3d_out);
  m.impl("avg_pool3d_backward.grad_input", avg3d_backward_out);
  m.impl("_adaptive_avg_pool2d", adaptive<2>);
  m.impl("_adaptive_avg_pool2d_backward", adaptive_backward<2>);
  m.impl("_adaptive_avg_pool3d", adaptive<3>);
  m.impl("_adaptive_avg_pool3d_backward", adaptive_backward<3>);
  m.impl("adaptive_avg_pool2d.out", adaptive_out<2>);
  m.impl("adaptive_avg_pool3d.out", adaptive_out<3>);
}

}  // namespace
}  // namespace fl::bridge
