// Softmax and log-softmax, forward and backward.
#include "fl/author/space.h"
#include "chip.h"
#include "lanes.h"

namespace ocl {

namespace {

// `second` is what the backward reads besides; null in the forward.
fl_status run(const fl_launch* launch, const fl_tensor& first, const fl_tensor* second, const fl_tensor& out,
              int32_t axis, bool log) {
  Device& d = *launch->stream->device;
  if (axis < 0 || axis >= std::max(1, out.ndim))
    return refuse(FL_INVALID, "softmax along axis %d of a tensor of %d dimensions", axis, out.ndim);
  const fl_tensor* t[3] = {&first, second ? second : &first, &out};
  Space<3> space(3);
  int64_t along[3] = {0, 0, 0}, n = 1;
  for (int i = 0; i < out.ndim; ++i) {
    int64_t* s = i == axis ? along : space.push(out.sizes[i]);
    for (int k = 0; k < 3; ++k) s[k] = t[k]->strides[i];
    if (i == axis) n = out.sizes[i];
  }
  space.sort(0), space.merge();
  if (space.ndim == 0) std::fill_n(space.push(1), 3, 0);
  const int64_t inner = space.inner_size(), slices = space.points();
  const bool beside = std::llabs(along[0]) > std::llabs(space.inner_stride(0));
  // A processor's lanes need neighbours; threads are better off with short slices of their own.
  const bool across = d.info.processor ? beside && inner >= 4 && n > 1 : beside || n < 32;
  const int64_t blocks = (inner + kLanes - 1) / kLanes;
  const int64_t units = across && d.info.processor ? slices / inner * blocks : slices;

  Parameters p;
  p.push(units), p.push(n), p.push(space.ndim), p.push(blocks);
  for (int i = 0; i < FL_MAX_DIMS; ++i) p.push(i < space.ndim ? space.size[i] : 1);
  for (int k = 0; k < 3; ++k)
    for (int i = 0; i < FL_MAX_DIMS; ++i) p.push(i < space.ndim ? space.stride[i][k] : 0);
  for (int k = 0; k < 3; ++k) p.push(along[k]);
  const int offsets = p.reserve(3);
  const uint64_t key =
      (((first.dtype * 32u + out.dtype) * 2u + across) * 2u + log) * 2u + (second != nullptr);
  Kernel* kernel = d.library->get(Family::softmax, key, [&] {
    return Source{lanes_source(first.dtype, across) + "#define LOG " + (log ? "1" : "0") +
                      "\n#define keep_OUT keep_" + (out.dtype == first.dtype ? "X" : "F32") +
                      (second ? "\n#define BACKWARD\n" : "\n") + kernel_source_softmax,
                  "", "softmax"};
  });
  if (!kernel) return FL_FAILED;
  Launch l(launch, kernel);
  l.at(1);
  for (int k = 0; k < 3; ++k) p.set(offsets + k, l.buffer(t[k]->data));
  team_memory(l, d, across);
  if (fl_status status = p.pass(l, launch)) return status;
  Shape s = teams(d, units, n, across);
  return l.run(s.groups, s.local);
}

}  // namespace

fl_status softmax(const fl_launch* launch, const fl_softmax_args* a) {
  if (!computes(*launch->stream->device, a->in.dtype) ||
      (a->out.dtype != a->in.dtype && a->out.dtype != FL_F32))
    return FL_UNSUPPORTED;
  return run(launch, a->in, nullptr, a->out, a->axis, a->log != 0);
}

fl_status softmax_backward(const fl_launch* launch, const fl_softmax_backward_args* a) {
  if (!computes(*launch->stream->device, a->out.dtype) || a->grad_out.dtype != a->out.dtype ||
      a->grad_in.dtype != a->out.dtype)
    return FL_UNSUPPORTED;
  return run(launch, a->grad_out, &a->out, a->grad_in, a->axis, a->log != 0);
}

void claim_softmax(Claims& claims) { claims.push_back({FL_ENTRY_SOFTMAX, FL_ANY, kFloats}); }
void claim_softmax_backward(Claims& claims) {
  claims.push_back({FL_ENTRY_SOFTMAX_BACKWARD, FL_ANY, kFloats});
}

}  // namespace ocl
