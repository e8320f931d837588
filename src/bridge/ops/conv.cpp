// Convolutions: forward and backward, also transposed, in one to three dimensions.
#include "bridge/devices.h"
#include "bridge/ops/reduction.h"

namespace fl::bridge {
namespace {

struct Geometry {
  at::DimVector stride, padding, dilation, output_padding;
  bool transposed;
  int64_t groups, spatial;
};

at::DimVector spread(IntArrayRef values, int64_t n, const char* what) {
  TORCH_CHECK(static_cast<int64_t>(values.size()) == n || values.size() == 1, "expected ", what,
              " to be a single ", "integer value or a list of ", n,
              " values to match the convolution dimensions, but got ", what, "=", values);
  return values.size() == 1 ? at::DimVector(n, values[0]) : at::DimVector(values.begin(), values.end());
}

Geometry geometry(const Tensor& x, const Tensor& w, IntArrayRef stride, IntArrayRef padding,
                  IntArrayRef dilation, bool transposed, IntArrayRef output_padding, int64_t groups) {
  int64_t n = w.dim() - 2;
  TORCH_CHECK(n >= 1 && n <= 3 && x.dim() == w.dim(), "Expected ", w.dim(), "-dimensional input for ",
              w.dim(), "-dimensional weight ", w.sizes(), ", but got ", x.dim(),
              "-dimensional input of size ", x.sizes(), " instead");
  TORCH_CHECK(groups > 0, "expected groups to be positive, but got groups=", groups);
  Geometry g{spread(stride, n, "stride"),
             spread(padding, n, "padding"),
             spread(dilation, n, "dilation"),
             spread(output_padding, n, "output_padding"),
             transposed,
             groups,
             n};
  for (int64_t d = 0; d < n; ++d) {
    TORCH_CHECK(g.padding[d] >= 0, "negative padding is not supported");
    TORCH_CHECK(g.output_padding[d] >= 0, "negative output_padding is not supported");
    TORCH_CHECK(g.stride[d] > 0, "non-positive stride is not supported");
    TORCH_CHECK(g.dilation[d] > 0, "dilation should be greater than zero");
  }
  int64_t channels = transposed ? w.size(0) : w.size(1) * groups;
  TORCH_CHECK(x.size(1) == channels, "Given groups=", groups, ", weight of size ", w.sizes(),
              ", expected input", x.sizes(), " to have ", channels, " channels, but got ", x.size(1),
              " channels instead");
  TORCH_CHECK(w.size(0) >= groups && w.size(0) % groups == 0, "expected weight to be ",
              transposed ? "divisible" : "at least and divisible", " by ", groups,
              " at dimension 0, but got weight of size ", w.sizes(), " instead");
  TORCH_CHECK(x.scalar_type() == w.scalar_type(), "Input type (", c10::toString(x.scalar_type()),
              ") and weight type (", c10::toString(w.scalar_type()), ") should be the same");
  return g;
}

at::DimVector output_sizes(const Tensor& x, const Tensor& w, const Geometry& g) {
  at::DimVector sizes{x.size(0), g.transposed ? w.size(1) * g.groups : w.size(0)};
  for (int64_t d = 0; d < g.spatial; ++d) {
    int64_t reach = g.dilation[d] * (w.size(d + 2) - 1) + 1;
    if (g.transposed) {
      sizes.push_back((x.size(d + 2) - 1) * g.stride[d] - 2 * g.padding[d] + reach + g.output_padding[d]);
    } else {
      int64_t room = x.size(d + 2) + 2 * g.padding[d] - reach;
      TORCH_CHECK(room >= 0, "Calculated padded input size per channel: ", x.size(d + 2) + 2 * g.padding[d],
                  " in dimension ", d, ". Kernel size: ", reach,
                  ". Kernel size can't be greater than actual input size");
      sizes.push_back(room / g.stride[d] + 1);
    }
  }
  // As PyTorch: an output may be empty along some dimensions, not along all.
  IntArrayRef spatial = IntArrayRef(sizes).slice(2);
  TORCH_CHECK(std::any_of(spatial.begin(), spatial.end(), [](int64_t n) { return n > 0; }) &&
                  std::all_of(spatial.begin(), spatial.end(), [](int64_t n) { return n >= 0; }),
              "Given input size per channel: ", x.sizes().slice(2),
              ". Calculated output size per channel: ", spatial, ". Output size is too small");
  return sizes;
}

// Channels-last where the input or the weight is, as PyTorch does.
// A line is an image of one row to PyTorch.
at::MemoryFormat format_of(const Tensor& t) {
  if (t.dim() != 3) return t.suggest_memory_format();
  return t.stride(1) == 1 ? t.unsqueeze(2).suggest_memory_format() : at::MemoryFormat::Contiguous;
}
// Of the output.  Lines PyTorch makes contiguous first; with one channel or one place they may be in both
// formats.
at::MemoryFormat format_of(const Tensor& x, const Tensor& w) {
  auto format = x.dim() == 3 && !x.is_contiguous() ? at::MemoryFormat::Contiguous : format_of(x);
  return format == at::MemoryFormat::Contiguous ? format_of(w) : format;
}

Tensor empty(const Tensor& like, IntArrayRef sizes, at::MemoryFormat format) {
  if (sizes.size() != 3 || format == at::MemoryFormat::Contiguous)
    return at::empty(sizes, like.options().memory_format(format));
  return at::empty({sizes[0], sizes[1], 1, sizes[2]}, like.options().memory_format(format)).squeeze(2);
}

// One launch.  For a transposed convolution the caller exchanges x and y.
bool convolve(Call& call, int kind, const Tensor& x, const Tensor& w, const Tensor& y, const Tensor* bias,
              const Geometry& g) {
  if (!call.claims(FL_ENTRY_CONV, kind, dtype_of(x))) return false;
  fl_conv_args args{};
  args.x = call.view(x);
  args.w = call.view(w);
  args.y = call.view(y);
  fl_tensor bias_view;
  if (bias) bias_view = call.view(*bias), args.bias = &bias_view;
  for (int64_t d = 0; d < g.spatial; ++d) {
    args.stride[d] = static_cast<int32_t>(g.stride[d]);
    args.padding[d] = static_cast<int32_t>(g.padding[d]);
    args.dilation[d] = static_cast<int32_t>(g.dilation[d]);
  }
  args.groups = static_cast<int32_t>(g.groups);
  args.kind = kind;
  call.is_product(at::Float32Op::CONV);
  return call.native(call.chip().op.conv, args, {&args.x, &args.w, &args.y});
}

// ------------------------------------------- composed from gemm: im2col, col2im
// The windows of padded x, [N, groups, C/groups, W…, Y…], as a view.
Tensor windows(const Tensor& padded, const Tensor& w, const Tensor& y, const Geometry& g) {
  at::DimVector sizes{padded.size(0), g.groups, padded.size(1) / g.groups};
  at::DimVector strides{padded.stride(0), padded.stride(1) * sizes[2], padded.stride(1)};
  for (int64_t d = 0; d < g.spatial; ++d)
    sizes.push_back(w.size(d + 2)), strides.push_back(padded.stride(d + 2) * g.dilation[d]);
  for (int64_t d = 0; d < g.spatial; ++d)
    sizes.push_back(y.size(d + 2)), strides.push_back(padded.stride(d + 2) * g.stride[d]);
  return padded.as_strided(sizes, strides, padded.storage_offset());
}

at::DimVector pads(const Geometry& g) {
  at::DimVector pad;
  for (int64_t d = g.spatial - 1; d >= 0; --d) pad.push_back(g.padding[d]), pad.push_back(g.padding[d]);
  return pad;
}

int64_t points(const Tensor& t) { return t.numel() / std::max<int64_t>(1, t.size(0) * t.size(1)); }

// [N·G, C/G·W, Y]
Tensor columns(const Tensor& x, const Tensor& w, const Tensor& y, const Geometry& g) {
  Tensor padded = at::constant_pad_nd(x, pads(g), 0);
  return windows(padded, w, y, g)
      .reshape({x.size(0) * g.groups, x.size(1) / g.groups * points(w), points(y)});
}

void composed_forward(const Tensor& x, const Tensor& w, Tensor y, const Geometry& g) {
  int64_t rows = w.size(0) / g.groups;
  Tensor filters = w.reshape({1, g.groups, rows, w.size(1) * points(w)})
                       .expand({x.size(0), g.groups, rows, w.size(1) * points(w)})
                       .reshape({x.size(0) * g.groups, rows, w.size(1) * points(w)});
  y.copy_(at::bmm(filters, columns(x, w, y, g)).view(y.sizes()));
}

void composed_weight(const Tensor& x, Tensor w, const Tensor& y, const Geometry& g) {
  int64_t rows = w.size(0) / g.groups;
  Tensor per_image =
      at::bmm(y.reshape({x.size(0) * g.groups, rows, points(y)}), columns(x, w, y, g).transpose(1, 2));
  w.copy_(per_image.view({x.size(0), g.groups * rows, -1}).sum(0).view(w.sizes()));
}

void composed_data(Tensor x, const Tensor& w, const Tensor& y, const Geometry& g) {
  int64_t rows = w.size(0) / g.groups;
  at::DimVector padded_sizes{x.size(0), x.size(1)};
  for (int64_t d = 0; d < g.spatial; ++d) padded_sizes.push_back(x.size(d + 2) + 2 * g.padding[d]);
  Tensor padded = at::zeros(padded_sizes, x.options());
  Tensor filters = w.reshape({1, g.groups, rows, w.size(1) * points(w)})
                       .expand({x.size(0), g.groups, rows, w.size(1) * points(w)})
                       .reshape({x.size(0) * g.groups, rows, w.size(1) * points(w)});
  Tensor cols = at::bmm(filters.transpose(1, 2), y.reshape({x.size(0) * g.groups, rows, points(y)}));
  // Within one tap of the filter the windows do not overlap: a sum over taps.
  at::DimVector shape{x.size(0), g.groups, x.size(1) / g.groups, points(w)};
  for (int64_t d = 0; d < g.spatial; ++d) shape.push_back(y.size(d + 2));
  Tensor taps = cols.view(shape), places = windows(padded, w, y, g);
  for (int64_t tap = 0; tap < points(w); ++tap) {
    Tensor place = places;
    for (int64_t d = g.spatial - 1, rest = tap; d >= 0; --d) {
      place = place.select(3 + d, rest % w.size(d + 2));
      rest /= w.size(d + 2);
    }
    place.add_(taps.select(3, tap));
  }
  Tensor inner = padded;
  for (int64_t d = 0; d < g.spatial; ++d) inner = inner.narrow(d + 2, g.padding[d], x.size(d + 2));
  x.copy_(inner);
}

// kind for a convolution whose x, w and y are those of the ABI.
void run(Call& call, int kind, const Tensor& x, const Tensor& w, const Tensor& y, const Tensor* bias,
         const Geometry& g) {
  if (convolve(call, kind, x, w, y, bias, g)) return;
  call.composed();
  std::optional<at::NoTF32Guard> exact;
  if (!allows_tf32(at::Float32Op::CONV)) exact.emplace();
  if (kind == FL_CONV_FORWARD) {
    composed_forward(x, w, y, g);
    at::DimVector shape(y.dim(), 1);
    shape[1] = y.size(1);
    if (bias) Tensor(y).add_(bias->view(shape));
  } else if (kind == FL_CONV_BACKWARD_DATA) {
    composed_data(x, w, y, g);
  } else {
    composed_weight(x, w, y, g);
    at::DimVector dims(1, 0);
    for (int64_t d = 2; d < y.dim(); ++d) dims.push_back(d);
    if (bias) at::sum_out(const_cast<Tensor&>(*bias), y, dims);
  }
}

// Rank, device and dtype are checked by the callers' geometry(); what bool gives is the CPU's affair.
bool computable(ScalarType dtype) { return dtype != at::kBool; }

Tensor forward(const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias, IntArrayRef stride,
               IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef output_padding,
               int64_t groups) {
  static Op op("aten::convolution");
  check_devices(op, {&x, &w, given(bias)});
  Geometry g = geometry(x, w, stride, padding, dilation, transposed, output_padding, groups);
  auto sizes = output_sizes(x, w, g);
  const Tensor* b = given(bias);
  TORCH_CHECK(!b || (b->dim() == 1 && b->size(0) == sizes[1]), "Given transposed=", transposed,
              ", weight of size ", w.sizes(), ", expected bias to be 1-dimensional with ", sizes[1],
              " elements, but got bias of size ", b->sizes(), " instead");
  TORCH_CHECK(!b || b->scalar_type() == x.scalar_type(), "Input type (", c10::toString(x.scalar_type()),
              ") and bias type (", c10::toString(b->scalar_type()), ") should be the same");
  if (!computable(x.scalar_type()))
    return fallback<ATEN_OP(convolution)>(x, w, bias, stride, padding, dilation, transposed, output_padding,
                                          groups);
  Tensor y = empty(x, sizes, format_of(x, w));
  if (y.numel() == 0) return y;
  Call call(op, x);
  at::DimVector shape(y.dim(), 1);
  shape[1] = y.size(1);
  if (x.numel() == 0 || w.numel() == 0) {
    call.composed();
    return b ? y.copy_(b->view(shape).expand(sizes)) : y.zero_();
  }
  if (!transposed) {
    run(call, FL_CONV_FORWARD, x, w, y, b, g);
  } else {
    run(call, FL_CONV_BACKWARD_DATA, y, w, x, nullptr, g);
    if (b) y.add_(b->view(shape));
  }
  return y;
}

std::tuple<Tensor, Tensor, Tensor> backward(const Tensor& grad, const Tensor& x, const Tensor& w,
                                            at::OptionalIntArrayRef bias_sizes, IntArrayRef stride,
                                            IntArrayRef padding, IntArrayRef dilation, bool transposed,
                                            IntArrayRef output_padding, int64_t groups,
                                            std::array<bool, 3> mask) {
  static Op op("aten::convolution_backward");
  check_devices(op, {&grad, &x, &w});
  Geometry g = geometry(x, w, stride, padding, dilation, transposed, output_padding, groups);
  auto format = format_of(x, w);
  Tensor grad_x, grad_w, grad_b;
  if (mask[0]) grad_x = empty(x, x.sizes(), format);
  if (mask[1]) grad_w = empty(w, w.sizes(), format);
  if (mask[2]) grad_b = at::empty({grad.size(1)}, grad.options());
  Call call(op, x);
  if (grad.numel() == 0 || x.numel() == 0 || w.numel() == 0) {
    call.composed();
    for (Tensor* t : {&grad_x, &grad_w})
      if (t->defined()) t->zero_();
  } else if (!transposed) {
    if (mask[0]) run(call, FL_CONV_BACKWARD_DATA, grad_x, w, grad, nullptr, g);
    if (mask[1]) run(call, FL_CONV_BACKWARD_WEIGHT, x, grad_w, grad, mask[2] ? &grad_b : nullptr, g);
    if (mask[1]) mask[2] = false;  // done
  } else {
    if (mask[0]) run(call, FL_CONV_FORWARD, grad, w, grad_x, nullptr, g);
    if (mask[1]) run(call, FL_CONV_BACKWARD_WEIGHT, grad, grad_w, x, nullptr, g);
  }
  if (mask[2]) {
    at::DimVector dims(1, 0);
    for (int64_t d = 2; d < grad.dim(); ++d) dims.push_back(d);
    at::sum_out(grad_b, grad, dims);
  }
  (void)bias_sizes;
  return {grad_x, grad_w, grad_b};
}

std::tuple<Tensor, Tensor, Tensor> backward_overrideable(const Tensor& grad, const Tensor& x, const Tensor& w,
                                                         IntArrayRef stride, IntArrayRef padding,
                                                         IntArrayRef dilation, bool transposed,
                                                         IntArrayRef output_padding, int64_t groups,
                                                         std::array<bool, 3> mask) {
  return backward(grad, x, w, std::nullopt, stride, padding, dilation, transposed, output_padding, groups,
                  mask);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution", forward);
  m.impl("convolution_backward", backward);
  // What PyTorch's own _convolution picks for this device.
  m.impl("convolution_overrideable", forward);
  m.impl("convolution_backward_overrideable", backward_overrideable);
}

}  // namespace
}  // namespace fl::bridge
