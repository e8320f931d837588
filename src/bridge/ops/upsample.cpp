// upsample_nearest1d … _upsample_lanczos2d_aa and their gradients.
#include <ATen/ops/_upsample_bicubic2d_aa_backward_meta.h>
#include <ATen/ops/_upsample_bicubic2d_aa_meta.h>
#include <ATen/ops/_upsample_bilinear2d_aa_backward_meta.h>
#include <ATen/ops/_upsample_bilinear2d_aa_meta.h>
#include <ATen/ops/_upsample_lanczos2d_aa_backward_meta.h>
#include <ATen/ops/_upsample_lanczos2d_aa_meta.h>
#include <ATen/ops/_upsample_nearest_exact1d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact1d_meta.h>
#include <ATen/ops/_upsample_nearest_exact2d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact2d_meta.h>
#include <ATen/ops/_upsample_nearest_exact3d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact3d_meta.h>
#include <ATen/ops/upsample_bicubic2d_backward_meta.h>
#include <ATen/ops/upsample_bicubic2d_meta.h>
#include <ATen/ops/upsample_bilinear2d_backward_meta.h>
#include <ATen/ops/upsample_bilinear2d_meta.h>
#include <ATen/ops/upsample_linear1d_backward_meta.h>
#include <ATen/ops/upsample_linear1d_meta.h>
#include <ATen/ops/upsample_nearest1d_backward_meta.h>
#include <ATen/ops/upsample_nearest1d_meta.h>
#include <ATen/ops/upsample_nearest2d_backward_meta.h>
#include <ATen/ops/upsample_nearest2d_meta.h>
#include <ATen/ops/upsample_nearest3d_backward_meta.h>
#include <ATen/ops/upsample_nearest3d_meta.h>
#include <ATen/ops/upsample_trilinear3d_backward_meta.h>
#include <ATen/ops/upsample_trilinear3d_meta.h>

#include "bridge/ops/resample.h"

namespace fl::bridge {
namespace {

using Scale = std::optional<double>;

template <class... Scales>
Resampling resampling(Filter filter, Scales... scales) {
  return {filter, false, {scales...}};
}
template <class... Scales>
Resampling resampling(Filter filter, bool align_corners, Scales... scales) {
  return {filter, align_corners, {scales...}};
}

// Rest: align_corners, where there is one, and the scales.
template <class AtenOp, class Meta, Filter filter, class... Rest>
struct Forward {
  static Tensor& run(const Tensor& self, IntArrayRef size, Rest... rest, Tensor& out) {
    static Op op(AtenOp::name);
    Into<Meta> shape(out);
    shape.meta(self, size, rest...);
    Call call(op, self);
    if (resample(call, resampling(filter, rest...), self, out)) return out;
    return fallback<AtenOp>(self, size, rest..., out);
  }
};
template <class AtenOp, class Meta, Filter filter, class... Rest>
struct Backward {
  static Tensor& run(const Tensor& grad, IntArrayRef size, IntArrayRef input_size, Rest... rest,
                     Tensor& grad_in) {
    static Op op(AtenOp::name);
    Into<Meta> shape(grad_in);
    shape.meta(grad, size, input_size, rest...);
    Call call(op, grad);
    if (resample_backward(call, resampling(filter, rest...), grad, grad_in)) return grad_in;
    return fallback<AtenOp>(grad, size, input_size, rest..., grad_in);
  }
};

#define FL_UPSAMPLE(name, filter, ...)                                                                  \
  m.impl(#name ".out",                                                                                  \
         Forward<at::_ops::name##_out, at::meta::structured_##name, Filter::filter, __VA_ARGS__>::run); \
  m.impl(#name "_backward.grad_input",                                                                  \
         Backward<at::_ops::name##_backward_grad_input, at::meta::structured_##name##_backward,         \
                  Filter::filter, __VA_ARGS__>::run)

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  FL_UPSAMPLE(upsample_nearest1d, kNearest, Scale);
  FL_UPSAMPLE(upsample_nearest2d, kNearest, Scale, Scale);
  FL_UPSAMPLE(upsample_nearest3d, kNearest, Scale, Scale, Scale);
  FL_UPSAMPLE(_upsample_nearest_exact1d, kNearestExact, Scale);
  FL_UPSAMPLE(_upsample_nearest_exact2d, kNearestExact, Scale, Scale);
  FL_UPSAMPLE(_upsample_nearest_exact3d, kNearestExact, Scale, Scale, Scale);
  FL_UPSAMPLE(upsample_linear1d, kLinear, bool, Scale);
  FL_UPSAMPLE(upsample_bilinear2d, kLinear, bool, Scale, Scale);
  FL_UPSAMPLE(upsample_trilinear3d, kLinear, bool, Scale, Scale, Scale);
  FL_UPSAMPLE(upsample_bicubic2d, kCubic, bool, Scale, Scale);
  FL_UPSAMPLE(_upsample_bilinear2d_aa, kLinearAntialias, bool, Scale, Scale);
  FL_UPSAMPLE(_upsample_bicubic2d_aa, kCubicAntialias, bool, Scale, Scale);
  FL_UPSAMPLE(_upsample_lanczos2d_aa, kLanczosAntialias, bool, Scale, Scale);
}

}  // namespace
}  // namespace fl::bridge
