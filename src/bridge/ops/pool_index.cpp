// Pooling by windows that vary, and what undoes pooling: adaptive and fractional
// maximum, max_unpool.
#include <ATen/native/FractionalMaxPooling.h>
#include <ATen/ops/adaptive_max_pool2d_backward_meta.h>
#include <ATen/ops/adaptive_max_pool2d_meta.h>
#include <ATen/ops/adaptive_max_pool3d_backward_meta.h>
#include <ATen/ops/adaptive_max_pool3d_meta.h>
#include <ATen/ops/fractional_max_pool2d_backward_meta.h>
#include <ATen/ops/fractional_max_pool2d_meta.h>
#include <ATen/ops/fractional_max_pool3d_meta.h>

#include "bridge/devices.h"
#include "bridge/ops/pool_windows.h"

namespace fl::bridge {
namespace {

// ------------------------------------------------------------- adaptive maximum
// The windows that are alike and do not overlap, where the sizes divide.
std::optional<Window> even_windows(const Tensor& x, const Tensor& y, int n) {
  Window w;
  for (int d = 0; d < n; ++d) {
    int64_t in = x.size(2 + d), out = y.size(2 + d);
    if (in % out) return std::nullopt;
    w.kernel[d] = w.stride[d] = static_cast<int32_t>(in / out);
  }
  return w;
}

template <int n, class AtenOp, class Meta>
std::tuple<Tensor&, Tensor&> adaptive(const Tensor& self, IntArrayRef size, Tensor& out, Tensor& index) {
  static Op op(AtenOp::name);
  Into<Meta> shape(out, index);
  shape.meta(self, size);
  Call call(op, self);
  if (out.numel() == 0) return {out, index};
  Tensor x = batched(self, n), y = batched(out, n), i = batched(index, n);
  auto even = even_windows(x, y, n);
  if (even && pool(call, n, *even, x, y, &i)) return {out, index};
  call.composed();
  std::vector<Tensor> taps;
  for (int d = 0; d < n; ++d) taps.push_back(adaptive_taps(call, x, n, d, y.size(2 + d)));
  if (max_over(call, x, taps, y, &i)) return {out, index};
  return fallback<AtenOp>(self, size, out, index);
}

// The gradient of every pooling that kept indices.
template <int n>
Tensor& spread_gradient(Op& op, const Tensor& grad, const Tensor& index, Tensor& grad_in) {
  Call call(op, grad);
  if (grad_in.numel() == 0) return grad_in;
  call.composed();
  if (grad.numel() == 0) fill_step(grad_in, 0);
  else sum_by_index(batched(grad, n), batched(index, n), batched(grad_in, n));
  return grad_in;
}
template <int n, class AtenOp, class Meta>
Tensor& adaptive_backward(const Tensor& grad, const Tensor& self, const Tensor& index, Tensor& grad_in) {
  static Op op(AtenOp::name);
  Into<Meta> shape(grad_in);
  shape.meta(grad, self, index);
  return spread_gradient<n>(op, grad, index, grad_in);
}

// ----------------------------------------------------------- fractional maximum
template <int n, class AtenOp, class Meta>
std::tuple<Tensor&, Tensor&> fractional(const Tensor& self, IntArrayRef kernel, IntArrayRef size,
                                        const Tensor& samples, Tensor& out, Tensor& index) {
  static Op op(AtenOp::name);
  Into<Meta> shape(out, index);
  shape.meta(self, kernel, size, samples);
  at::native::fractional_max_pool_check_shape<n>(self, samples);
  Call call(op, self);
  call.view(samples);
  if (out.numel() == 0) return {out, index};
  Tensor x = batched(self, n), y = batched(out, n), i = batched(index, n);
  call.composed();
  std::vector<Tensor> taps;
  for (int d = 0; d < n; ++d)
    taps.push_back(fractional_taps(x, n, d, y.size(2 + d), kernel[static_cast<size_t>(d)], samples));
  if (max_over(call, x, taps, y, &i)) return {out, index};
  return fallback<AtenOp>(self, kernel, size, samples, out, index);
}
Tensor& fractional2d_backward(const Tensor& grad, const Tensor& self, IntArrayRef kernel, IntArrayRef size,
                              const Tensor& index, Tensor& grad_in) {
  static Op op("aten::fractional_max_pool2d_backward");
  Into<at::meta::structured_fractional_max_pool2d_backward> shape(grad_in);
  shape.meta(grad, self, kernel, size, index);
  return spread_gradient<2>(op, grad, index, grad_in);
}
Tensor& fractional3d_backward_out(const Tensor& grad, const Tensor& self, IntArrayRef, IntArrayRef size,
                                  const Tensor& index, Tensor& grad_in) {
  static Op op("aten::fractional_max_pool3d_backward");
  TORCH_CHECK(grad.sizes() == index.sizes() && grad.sizes().slice(grad.dim() - 3) == size,
              "fractional_max_pool3d_backward(): gradOutput has sizes ", grad.sizes(),
              ", which do not fit indices of ", index.sizes(), " and output size ", size);
  at::native::resize_output(grad_in, self.sizes());
  return spread_gradient<3>(op, grad, index, grad_in);
}
Tensor fractional3d_backward(const Tensor& grad, const Tensor& self, IntArrayRef kernel, IntArrayRef size,
                             const Tensor& index) {
  Tensor grad_in = at::empty(self.sizes(), self.options());
  return fractional3d_backward_out(grad, self, kernel, size, index, grad_in);
}

// ------------------------------------------------------------------- max_unpool
template <int n>
Tensor& unpool(Op& op, const Tensor& self, const Tensor& index, IntArrayRef size, Tensor& out) {
  TORCH_CHECK(index.scalar_type() == at::kLong,
              "elements in indices should be type int64 but got: ", index.scalar_type());
  TORCH_CHECK(size.size() == n, "There should be exactly ", n, " elements in output_size, but got ",
              size.size(), " elements.");
  TORCH_CHECK(self.dim() == n + 1 || self.dim() == n + 2, "Input to max_unpooling", n, "d should be a ",
              n + 1, "d or ", n + 2, "d Tensor, but got a tensor with ", self.dim(), " dimensions.");
  TORCH_CHECK(self.sizes() == index.sizes(),
              "Expected shape of indices to be same as that of the input tensor (", self.sizes(),
              ") but got indices tensor with shape: ", index.sizes());
  for (int64_t d = 1; d < self.dim(); ++d)
    TORCH_CHECK(self.size(d) > 0, "max_unpooling", n,
                "d(): Expected input to have non-zero size for non-batch ", "dimensions, but got ",
                self.sizes(), " with dimension ", d, " being empty.");
  at::DimVector sizes(self.sizes().slice(0, self.dim() - n));
  sizes.insert(sizes.end(), size.begin(), size.end());
  at::native::resize_output(out, sizes);
  Call call(op, self);
  call.view(index), call.view(out);
  if (out.numel() == 0) return out;
  call.composed();
  Tensor flat = at::zeros(sizes, self.options());
  int64_t channel = self.dim() - n;
  flat.flatten(channel).scatter_(channel, index.flatten(channel), self.flatten(channel));
  copy_step(out, flat);
  return out;
}
Tensor& unpool2d_out(const Tensor& self, const Tensor& index, IntArrayRef size, Tensor& out) {
  static Op op("aten::max_unpool2d");
  check_devices(op, {&self, &index});
  return unpool<2>(op, self, index, size, out);
}
Tensor unpool2d(const Tensor& self, const Tensor& index, IntArrayRef size) {
  at::DimVector sizes(self.sizes());
  for (size_t d = 0; d < size.size() && d < sizes.size(); ++d)
    sizes[sizes.size() - size.size() + d] = size[d];
  auto format = self.dim() == 4 ? self.suggest_memory_format() : at::MemoryFormat::Contiguous;
  Tensor out = at::empty(sizes, self.options().memory_format(format));
  return unpool2d_out(self, index, size, out);
}
Tensor& unpool3d_out(const Tensor& self, const Tensor& index, IntArrayRef size, IntArrayRef stride,
                     IntArrayRef padding, Tensor& out) {
  static Op op("aten::max_unpool3d");
  check_devices(op, {&self, &index});
  TORCH_CHECK(stride.size() == 3 && padding.size() == 3,
              "There should be exactly three elements (depth, height, ",
              "width) in stride and padding, but got ", stride, " and ", padding);
  TORCH_CHECK(stride[0] > 0 && stride[1] > 0 && stride[2] > 0,
              "strides should be greater than zero, but got stride: ", stride);
  return unpool<3>(op, self, index, size, out);
}
Tensor unpool3d(const Tensor& self, const Tensor& index, IntArrayRef size, IntArrayRef stride,
                IntArrayRef padding) {
  Tensor out = at::empty({0}, self.options());
  return unpool3d_out(self, index, size, stride, padding, out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("adaptive_max_pool2d.out",
         adaptive<2, at::_ops::adaptive_max_pool2d_out, at::meta::structured_adaptive_max_pool2d>);
  m.impl("adaptive_max_pool3d.out",
         adaptive<3, at::_ops::adaptive_max_pool3d_out, at::meta::structured_adaptive_max_pool3d>);
  m.impl("adaptive_max_pool2d_backward.grad_input",
         adaptive_backward<2, at::_ops::adaptive_max_pool2d_backward_grad_input,
                           at::meta::structured_adaptive_max_pool2d_backward>);
  m.impl("adaptive_max_pool3d_backward.grad_input",
         adaptive_backward<3, at::_ops::adaptive_max_pool3d_backward_grad_input,
                           at::meta::structured_adaptive_max_pool3d_backward>);
  m.impl("fractional_max_pool2d.output",
         fractional<2, at::_ops::fractional_max_pool2d_output, at::meta::structured_fractional_max_pool2d>);
  m.impl("fractional_max_pool3d.output",
         fractional<3, at::_ops::fractional_max_pool3d_output, at::meta::structured_fractional_max_pool3d>);
  m.impl("fractional_max_pool2d_backward.grad_input", fractional2d_backward);
  m.impl("fractional_max_pool3d_backward", fractional3d_backward);
  m.impl("fractional_max_pool3d_backward.grad_input", fractional3d_backward_out);
  m.impl("max_unpool2d", unpool2d);
  m.impl("max_unpool2d.out", unpool2d_out);
  m.impl("max_unpool3d", unpool3d);
  m.impl("max_unpool3d.out", unpool3d_out);
}

}  // namespace
}  // namespace fl::bridge
