// Sliding windows and what undoes them: im2col, col2im, the gradient of
// unfold; and channel_shuffle.
#include <ATen/native/im2col_shape_check.h>

#include "bridge/ops/programs.h"

namespace fl::bridge {
namespace {

// ------------------------------------------------------------ im2col, col2im
void check_pairs(IntArrayRef kernel, IntArrayRef dilation, IntArrayRef padding, IntArrayRef stride) {
  TORCH_CHECK(kernel.size() == 2 && dilation.size() == 2 && padding.size() == 2 && stride.size() == 2,
              "It is expected kernel_size, dilation, padding and stride equal to 2 values, but got ", kernel,
              ", ", dilation, ", ", padding, " and ", stride);
}

// How many windows fit along dimension d.
int64_t count(IntArrayRef image, int d, IntArrayRef kernel, IntArrayRef dilation, IntArrayRef padding,
              IntArrayRef stride) {
  return (image[d] + 2 * padding[d] - (dilation[d] * (kernel[d] - 1) + 1)) / stride[d] + 1;
}

Tensor& im2col_out(const Tensor& self, IntArrayRef kernel, IntArrayRef dilation, IntArrayRef padding,
                   IntArrayRef stride, Tensor& out) {
  static Op op("aten::im2col");
  check_pairs(kernel, dilation, padding, stride);
  at::native::im2col_shape_check(self, Tensor(), kernel[0], kernel[1], dilation[0], dilation[1], padding[0],
                                 padding[1], stride[0], stride[1]);
  Call call(op, self);
  call.view(out);
  Tensor image = self.dim() == 3 ? self.unsqueeze(0) : self;
  int64_t rows = count(image.sizes().slice(2), 0, kernel, dilation, padding, stride);
  int64_t columns = count(image.sizes().slice(2), 1, kernel, dilation, padding, stride);
  int64_t n = image.size(0), c = image.size(1), taps = kernel[0] * kernel[1];
  at::DimVector sizes{n, c * taps, rows * columns};
  at::native::resize_output(out, self.dim() == 3 ? IntArrayRef(sizes).slice(1) : IntArrayRef(sizes));
  if (out.numel() == 0) return out;
  call.composed();
  if (padding[0] || padding[1])
    image = at::constant_pad_nd(image, {padding[1], padding[1], padding[0], padding[0]});
  int64_t h = image.stride(2), v = image.stride(3);
  Tensor windows = image.as_strided(
      {n, c, kernel[0], kernel[1], rows, columns},
      {image.stride(0), image.stride(1), h * dilation[0], v * dilation[1], h * stride[0], v * stride[1]},
      image.storage_offset());
  if (out.is_contiguous()) copy_step(out.view(windows.sizes()), windows);
  else copy_step(out, windows.reshape(out.sizes()));
  return out;
}
Tensor im2col(const Tensor& self, IntArrayRef kernel, IntArrayRef dilation, IntArrayRef padding,
              IntArrayRef stride) {
  Tensor out = at::empty({0}, self.options());
  return im2col_out(self, kernel, dilation, padding, stride, out);
}

// The windows o whose tap `offset` (may be negative) lies in the image: first and count.
struct Hits {
  int64_t first, count, at;  // at: where in the image
};
Hits hits(int64_t offset, int64_t stride, int64_t windows, int64_t size) {
  int64_t first = offset < 0 ? (-offset + stride - 1) / stride : 0;
  int64_t room = size - 1 - offset;
  int64_t last = room < 0 ? -1 : std::min(windows - 1, room / stride);
  return {first, std::max<int64_t>(0, last - first + 1), first * stride + offset};
}

Tensor& col2im_out(const Tensor& self, IntArrayRef output, IntArrayRef kernel, IntArrayRef dilation,
                   IntArrayRef padding, IntArrayRef stride, Tensor& out) {
  static Op op("aten::col2im");
  TORCH_CHECK(output.size() == 2, "It is expected output_size equals to 2, but got size ", output.size());
  check_pairs(kernel, dilation, padding, stride);
  at::native::col2im_shape_check(self, Tensor(), output[0], output[1], kernel[0], kernel[1], dilation[0],
                                 dilation[1], padding[0], padding[1], stride[0], stride[1]);
  Call call(op, self);
  call.view(out);
  Tensor columns = self.dim() == 2 ? self.unsqueeze(0) : self;
  int64_t windows[2];
  for (int d = 0; d < 2; ++d) windows[d] = count(output, d, kernel, dilation, padding, stride);
  int64_t n = columns.size(0), c = columns.size(1) / (kernel[0] * kernel[1]);
  at::DimVector sizes{n, c, output[0], output[1]};
  at::native::resize_output(out, self.dim() == 2 ? IntArrayRef(sizes).slice(1) : IntArrayRef(sizes));
  if (out.numel() == 0) return out;
  call.composed();
  out.zero_();
  Tensor image = self.dim() == 2 ? out.unsqueeze(0) : out;
  Tensor taps = columns.reshape({n, c, kernel[0], kernel[1], windows[0], windows[1]});
  // Within one tap the windows do not overlap: a sum over taps.
  for (int64_t i = 0; i < kernel[0]; ++i)
    for (int64_t j = 0; j < kernel[1]; ++j) {
      Hits y = hits(i * dilation[0] - padding[0], stride[0], windows[0], output[0]);
      Hits x = hits(j * dilation[1] - padding[1], stride[1], windows[1], output[1]);
      if (!y.count || !x.count) continue;
      Tensor from = taps.select(2, i).select(2, j).narrow(2, y.first, y.count).narrow(3, x.first, x.count);
      image.slice(2, y.at, y.at + (y.count - 1) * stride[0] + 1, stride[0])
          .slice(3, x.at, x.at + (x.count - 1) * stride[1] + 1, stride[1])
          .add_(from);
    }
  return out;
}
Tensor col2im(const Tensor& self, IntArrayRef output, IntArrayRef kernel, IntArrayRef dilation,
              IntArrayRef padding, IntArrayRef stride) {
  Tensor out = at::empty({0}, self.options());
  return col2im_out(self, output, kernel, dilation, padding, stride, out);
}

// -------------------------------------------------------- the gradient of unfold
// Windows `step` apart overlap, but not their first `step` elements, nor the
// next: a sum over such blocks.
Tensor unfold_backward(const Tensor& grad, IntArrayRef sizes, int64_t dim, int64_t size, int64_t step) {
  static Op op("aten::unfold_backward");
  Call call(op, grad);
  call.composed();
  if (sizes.empty()) return grad.sum();
  Tensor out = at::zeros(sizes, grad.options());
  if (grad.numel() == 0) return out;
  dim = at::maybe_wrap_dim(dim, static_cast<int64_t>(sizes.size()));
  int64_t windows = grad.size(dim);
  for (int64_t first = 0; first < size; first += step) {
    int64_t width = std::min(step, size - first);
    out.narrow(dim, first, (windows - 1) * step + width)
        .unfold(dim, width, step)
        .add_(grad.narrow(-1, first, width));
  }
  return out;
}

// -------------------------------------------------------------- channel_shuffle
Tensor channel_shuffle(const Tensor& self, int64_t groups) {
  static Op op("aten::channel_shuffle");
  TORCH_CHECK(self.dim() > 2, "channel_shuffle expects input with > 2 dims, but got input with sizes ",
              self.sizes());
  int64_t channels = self.size(1);
  TORCH_CHECK(groups > 0,
              "Number of groups to divide channels in must be positive. Value of groups:", groups);
  TORCH_CHECK(channels % groups == 0, "Number of channels must be divisible by groups. Got ", channels,
              " channels and ", groups, " groups.");
  Tensor out = at::empty(self.sizes(), self.options().memory_format(self.suggest_memory_format()));
  if (out.numel() == 0) return out;
  Call call(op, self);
  call.composed();
  int64_t each = channels / groups;
  copy_step(out.unflatten(1, {each, groups}), self.unflatten(1, {groups, each}).transpose(1, 2));
  return out;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("im2col", im2col);
  m.impl("im2col.out", im2col_out);
  m.impl("col2im", col2im);
  m.impl("col2im.out", col2im_out);
  m.impl("unfold_backward", unfold_backward);
  m.impl("channel_shuffle", channel_shuffle);
}

}  // namespace
}  // namespace fl::bridge
