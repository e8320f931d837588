// Reflection and replication padding in one to three dimensions, and their
// gradients: copies of the inside and of the edges, no kernel of their own.
#include <ATen/EmptyTensor.h>
#include <ATen/native/Padding.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/reflection_pad1d_backward_meta.h>
#include <ATen/ops/reflection_pad1d_meta.h>
#include <ATen/ops/reflection_pad3d_backward_meta.h>
#include <ATen/ops/reflection_pad3d_meta.h>
#include <ATen/ops/replication_pad1d_backward_meta.h>
#include <ATen/ops/replication_pad1d_meta.h>
#include <ATen/ops/replication_pad2d_meta.h>
#include <ATen/ops/replication_pad3d_meta.h>

#include "bridge/ops/programs.h"

namespace fl::bridge {
namespace {

enum class Edge { kReflect, kReplicate };

// What one dimension gets at its ends; negative: is cut off there.
struct Sides {
  int64_t dim, left, right;
};
using Pad = c10::SmallVector<Sides, 3>;

Pad pad_of(const Tensor& t, IntArrayRef padding) {
  Pad pad;
  for (size_t i = 0; i + 1 < padding.size(); i += 2)
    pad.push_back({t.dim() - 1 - static_cast<int64_t>(i) / 2, padding[i], padding[i + 1]});
  return pad;
}

// Without the dispatcher, which would take most of a small tensor's time here.
Tensor narrowed(const Tensor& t, int64_t dim, int64_t start, int64_t length) {
  TORCH_CHECK(start >= 0 && length >= 0 && start + length <= t.size(dim), "padding: elements ", start, " … ",
              start + length, " of dimension ", dim, " of a tensor of shape ", t.sizes());
  at::DimVector sizes(t.sizes());
  sizes[dim] = length;
  return at::native::as_strided_tensorimpl(t, sizes, t.strides(), t.storage_offset() + start * t.stride(dim));
}

// `t` without what negative sides cut off.
Tensor cropped(Tensor t, const Pad& pad) {
  for (const Sides& p : pad) {
    int64_t left = std::max<int64_t>(0, -p.left), right = std::max<int64_t>(0, -p.right);
    if (left || right) t = narrowed(t, p.dim, left, t.size(p.dim) - left - right);
  }
  return t;
}
// `t` without what positive sides add.
Tensor inside(Tensor t, const Pad& pad) {
  for (const Sides& p : pad) t = narrowed(t, p.dim, p.left, t.size(p.dim) - p.left - p.right);
  return t;
}

// An edge of one dimension repeats what lies next to it: from the padded
// tensor's own elements `first`, `count` of them, in reverse for a reflection.
Tensor repeated(const Tensor& padded, const Sides& p, bool left, Edge edge) {
  int64_t n = padded.size(p.dim);
  if (edge == Edge::kReplicate) {
    Tensor one = narrowed(padded, p.dim, left ? p.left : n - p.right - 1, 1);
    at::DimVector sizes(one.sizes());
    sizes[p.dim] = left ? p.left : p.right;
    return one.expand(sizes);
  }
  return left ? narrowed(padded, p.dim, p.left + 1, p.left)
              : narrowed(padded, p.dim, n - 2 * p.right - 1, p.right);
}

// Adds `t`, reversed along the marked dimensions.
void add_reversed(Space& space, Call& call, const Tensor& t, const at::DimVector& reversed) {
  at::DimVector strides(t.strides());
  fl_tensor view = call.view(t);
  char* data = static_cast<char*>(view.data);
  for (int64_t d : reversed) {
    data += (t.size(d) - 1) * strides[d] * static_cast<int64_t>(t.element_size());
    strides[d] = -strides[d];
  }
  space.add(data, view.dtype, strides.data());
}

// to = from, reversed along `dim`.
void copy_reversed(Call& call, const Tensor& to, const Tensor& from, int64_t dim) {
  Space space(to.sizes());
  space.add(call.view(to));
  add_reversed(space, call, from, {dim});
  space.finish();
  fl_copy_args args{*space.tensors(1), *space.tensors(0)};
  if (!call.native(call.chip().op.copy, args, {&args.to, &args.from}))
    throw_refused(call, "copy", to.scalar_type());
}

// to += from, reversed along `dims`.
void add_reversed(Call& call, const Tensor& to, const Tensor& from, const at::DimVector& dims) {
  static Programs programs;
  uint8_t memory = dtype_of(to);
  const fl_program* program = programs.get(key_of(memory), [&](Builder& b) {
    b.store(0, b.op(FL_OP_ADD, b.load(0, memory), b.load(1, memory)), memory);
  });
  Space space(to.sizes());
  space.add(call.view(to));
  add_reversed(space, call, from, dims);
  space.finish();
  // The first tensor is read and written.
  const fl_tensor* shown[] = {space.tensors(0), space.tensors(1)};
  if (!pointwise(call, {program, space.tensors(), space.tensors(), nullptr}, shown, 2))
    throw_refused(call, "addition", to.scalar_type());
}

// The sides that are positive, and whether some are negative.
bool split(Pad& pad) {
  bool negative = false;
  for (Sides& p : pad) {
    negative |= p.left < 0 || p.right < 0;
    p.left = std::max<int64_t>(0, p.left), p.right = std::max<int64_t>(0, p.right);
  }
  return negative;
}
Tensor padded_like(const Tensor& in, const Pad& positive) {
  at::DimVector sizes(in.sizes());
  for (const Sides& p : positive) sizes[p.dim] += p.left + p.right;
  return empty_like(in, sizes, in.scalar_type());
}

// out = in, padded.  A dimension's edges are filled from `out` itself, over
// what the dimensions before have filled, so corners need no case of their own.
void pad_into(Call& call, const Tensor& in, const Pad& sides, const Tensor& out, Edge edge) {
  Pad pad = sides;
  if (split(pad)) {
    // A reflection may reach what is cut off at the other end: cut afterwards.
    Tensor whole = padded_like(in, pad);
    pad_into(call, in, pad, whole, edge);
    return copy_step(out, cropped(whole, sides));
  }
  copy_step(inside(out, pad), in);
  for (size_t k = 0; k < pad.size(); ++k) {
    Tensor part = inside(out, Pad(pad.begin() + k + 1, pad.end()));
    const Sides& p = pad[k];
    for (bool left : {true, false}) {
      int64_t n = left ? p.left : p.right;
      if (!n) continue;
      Tensor to = narrowed(part, p.dim, left ? 0 : part.size(p.dim) - n, n);
      if (edge == Edge::kReflect) copy_reversed(call, to, repeated(part, p, left, edge), p.dim);
      else copy_step(to, repeated(part, p, left, edge));
    }
  }
}

// grad_in = the sum of grad over the places that an element was copied to: the
// inside, and each combination of edges.
void gather_gradient(Call& call, const Tensor& grad, const Pad& sides, const Tensor& grad_in, Edge edge) {
  Pad pad = sides;
  if (split(pad)) {
    Tensor whole = padded_like(grad_in, pad);
    fill_step(whole, 0);
    copy_step(cropped(whole, sides), grad);
    return gather_gradient(call, whole, pad, grad_in, edge);
  }
  copy_step(grad_in, inside(grad, pad));
  int combinations = 1;
  for (size_t k = 0; k < pad.size(); ++k) combinations *= 3;
  for (int c = 1; c < combinations; ++c) {
    Tensor from = grad, to = grad_in;
    at::DimVector dims;
    int rest = c;
    for (const Sides& p : pad) {
      int side = rest % 3;  // 0: inside, 1: left, 2: right
      rest /= 3;
      int64_t n = side == 1 ? p.left : p.right, size = grad_in.size(p.dim);
      if (side == 0) {
        from = narrowed(from, p.dim, p.left, size);
        continue;
      }
      dims.push_back(p.dim);
      from = narrowed(from, p.dim, side == 1 ? 0 : p.left + size, n);
      if (edge == Edge::kReplicate) to = narrowed(to, p.dim, side == 1 ? 0 : size - 1, 1);
      else to = narrowed(to, p.dim, side == 1 ? std::min<int64_t>(1, size) : size - 1 - n, n);
    }
    if (from.numel() == 0) continue;
    if (edge == Edge::kReflect) add_reversed(call, to, from, dims);
    else to.add_(from.sum(dims, /*keepdim=*/true));
  }
}

bool can_pad(const Call& call, const Tensor& t) { return call.claims(FL_ENTRY_COPY, FL_ANY, dtype_of(t)); }
bool can_add(const Call& call, const Tensor& t) {
  return can_pad(call, t) && call.claims(FL_ENTRY_POINTWISE, FL_OP_ADD, to_register(t.scalar_type()));
}

// What one of PyTorch's operators does after its checks.
template <class Fallback>
Tensor& forward(Op& op, const Tensor& self, IntArrayRef padding, Tensor& out, Edge edge,
                Fallback&& otherwise) {
  Call call(op, self);
  if (out.numel() == 0) return out;
  if (!can_pad(call, self)) return otherwise();
  call.composed();
  pad_into(call, self, pad_of(self, padding), out, edge);
  return out;
}
template <class Fallback>
Tensor& backward(Op& op, const Tensor& grad, IntArrayRef padding, Tensor& grad_in, Edge edge,
                 Fallback&& otherwise) {
  Call call(op, grad);
  if (grad_in.numel() == 0) return grad_in;
  if (!can_add(call, grad)) return otherwise();
  call.composed();
  gather_gradient(call, grad, pad_of(grad, padding), grad_in, edge);
  return grad_in;
}

// Of the operators whose shape function PyTorch does not export.
void check_reflection(const Tensor& self, IntArrayRef padding) {
  for (const Sides& p : pad_of(self, padding))
    TORCH_CHECK(p.left < self.size(p.dim) && p.right < self.size(p.dim),
                "Argument #4: Padding size should be less than the corresponding input dimension, but got: "
                "padding (",
                p.left, ", ", p.right, ") at dimension ", p.dim, " of input ", self.sizes());
}
// PyTorch refuses a result that is empty in every padded dimension.
at::DimVector padded_sizes(const Tensor& self, IntArrayRef padding) {
  at::DimVector sizes(self.sizes());
  bool some = false;
  for (const Sides& p : pad_of(self, padding)) some |= (sizes[p.dim] += p.left + p.right) >= 1;
  TORCH_CHECK(some, "input ", self.sizes(), " is too small for padding ", padding,
              ": the calculated output size is ", sizes);
  return sizes;
}
template <int N>
void check_gradient(const Tensor& grad, const Tensor& self, IntArrayRef padding) {
  TORCH_CHECK(padding.size() == 2 * N, "padding size is expected to be ", 2 * N,
              ", but got: ", padding.size());
  auto sizes = padded_sizes(self, padding);
  TORCH_CHECK(grad.sizes() == IntArrayRef(sizes), "grad_output has sizes ", grad.sizes(),
              ", but the padded input has ", sizes);
}

// Gives a new result the input's memory format, as PyTorch's CPU does: of four dimensions of which three are
// padded, too.
void restride(const Tensor& out, const Tensor& self, int64_t spatial) {
  if (spatial >= 2 && self.dim() >= 4)
    out.unsafeGetTensorImpl()->empty_tensor_restride(self.suggest_memory_format());
}

#define FL_PAD(name, edge)                                                                          \
  Tensor& name##_run(const Tensor& self, IntArrayRef padding, Tensor& out) {                        \
    static Op op("aten::" #name);                                                                   \
    return forward(op, self, padding, out, edge,                                                    \
                   [&]() -> Tensor& { return fallback<ATEN_OP2(name, out)>(self, padding, out); }); \
  }                                                                                                 \
  Tensor& name##_out(const Tensor& self, IntArrayRef padding, Tensor& out) {                        \
    Into<at::meta::structured_##name> shape(out);                                                   \
    shape.meta(self, padding);                                                                      \
    return name##_run(self, padding, out);                                                          \
  }                                                                                                 \
  Tensor name(const Tensor& self, IntArrayRef padding) {                                            \
    Tensor out = at::empty({0}, self.options());                                                    \
    Into<at::meta::structured_##name> shape(out);                                                   \
    shape.meta(self, padding);                                                                      \
    restride(out, self, static_cast<int64_t>(padding.size()) / 2);                                  \
    return name##_run(self, padding, out);                                                          \
  }
#define FL_PAD_BACKWARD(name, edge)                                                                      \
  Tensor& name##_backward_out(const Tensor& grad, const Tensor& self, IntArrayRef padding, Tensor& to) { \
    static Op op("aten::" #name "_backward");                                                            \
    Into<at::meta::structured_##name##_backward> shape(to);                                              \
    shape.meta(grad, self, padding);                                                                     \
    return backward(op, grad, padding, to, edge, [&]() -> Tensor& {                                      \
      return fallback<ATEN_OP2(name##_backward, grad_input)>(grad, self, padding, to);                   \
    });                                                                                                  \
  }
// Operators without an exported shape function.
#define FL_PLAIN_BACKWARD(name, n, edge)                                                                 \
  Tensor& name##_backward_out(const Tensor& grad, const Tensor& self, IntArrayRef padding, Tensor& to) { \
    static Op op("aten::" #name "_backward");                                                            \
    check_gradient<n>(grad, self, padding);                                                              \
    at::native::resize_output(to, self.sizes());                                                         \
    return backward(op, grad, padding, to, edge, [&]() -> Tensor& {                                      \
      return fallback<ATEN_OP2(name##_backward, grad_input)>(grad, self, padding, to);                   \
    });                                                                                                  \
  }                                                                                                      \
  Tensor name##_backward(const Tensor& grad, const Tensor& self, IntArrayRef padding) {                  \
    Tensor to = at::empty_like(self);                                                                    \
    return name##_backward_out(grad, self, padding, to);                                                 \
  }

FL_PAD(reflection_pad1d, Edge::kReflect)
FL_PAD(reflection_pad3d, Edge::kReflect)
FL_PAD(replication_pad1d, Edge::kReplicate)
FL_PAD(replication_pad2d, Edge::kReplicate)
FL_PAD(replication_pad3d, Edge::kReplicate)
FL_PAD_BACKWARD(reflection_pad1d, Edge::kReflect)
FL_PAD_BACKWARD(reflection_pad3d, Edge::kReflect)
FL_PAD_BACKWARD(replication_pad1d, Edge::kReplicate)
FL_PLAIN_BACKWARD(reflection_pad2d, 2, Edge::kReflect)
FL_PLAIN_BACKWARD(replication_pad2d, 2, Edge::kReplicate)
FL_PLAIN_BACKWARD(replication_pad3d, 3, Edge::kReplicate)

Tensor& reflection_pad2d_out(const Tensor& self, IntArrayRef padding, Tensor& out) {
  static Op op("aten::reflection_pad2d");
  at::native::padding::check_valid_input<2>(self, padding);
  check_reflection(self, padding);
  at::native::resize_output(out, padded_sizes(self, padding));
  return forward(op, self, padding, out, Edge::kReflect,
                 [&]() -> Tensor& { return fallback<ATEN_OP2(reflection_pad2d, out)>(self, padding, out); });
}
Tensor reflection_pad2d(const Tensor& self, IntArrayRef padding) {
  at::native::padding::check_valid_input<2>(self, padding);
  auto format = self.dim() == 4 ? self.suggest_memory_format() : at::MemoryFormat::Contiguous;
  auto sizes = padded_sizes(self, padding);
  at::detail::check_size_nonnegative(sizes);
  Tensor out = empty_like(self, sizes, self.scalar_type());
  if (format != at::MemoryFormat::Contiguous) out.unsafeGetTensorImpl()->empty_tensor_restride(format);
  return reflection_pad2d_out(self, padding, out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("reflection_pad1d", reflection_pad1d);
  m.impl("reflection_pad1d.out", reflection_pad1d_out);
  m.impl("reflection_pad2d", reflection_pad2d);
  m.impl("reflection_pad2d.out", reflection_pad2d_out);
  m.impl("reflection_pad3d", reflection_pad3d);
  m.impl("reflection_pad3d.out", reflection_pad3d_out);
  m.impl("replication_pad1d", replication_pad1d);
  m.impl("replication_pad1d.out", replication_pad1d_out);
  m.impl("replication_pad2d", replication_pad2d);
  m.impl("replication_pad2d.out", replication_pad2d_out);
  m.impl("replication_pad3d", replication_pad3d);
  m.impl("replication_pad3d.out", replication_pad3d_out);
  m.impl("reflection_pad1d_backward.grad_input", reflection_pad1d_backward_out);
  m.impl("reflection_pad2d_backward", reflection_pad2d_backward);
  m.impl("reflection_pad2d_backward.grad_input", reflection_pad2d_backward_out);
  m.impl("reflection_pad3d_backward.grad_input", reflection_pad3d_backward_out);
  m.impl("replication_pad1d_backward.grad_input", replication_pad1d_backward_out);
  m.impl("replication_pad2d_backward", replication_pad2d_backward);
  m.impl("replication_pad2d_backward.grad_input", replication_pad2d_backward_out);
  m.impl("replication_pad3d_backward", replication_pad3d_backward);
  m.impl("replication_pad3d_backward.grad_input", replication_pad3d_backward_out);
}

}  // namespace
}  // namespace fl::bridge
