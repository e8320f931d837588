// Weight normalisation, w = g v/|v| with a length for each index of the first or the last dimension,
// and its gradients: a reduction and a program each.  Halves are computed in F32.
#include <ATen/OpMathType.h>

#include "bridge/ops/programs.h"
#include "program/expr.h"

namespace fl::bridge {
namespace {

// The dimensions that a length is measured over.
at::DimVector measured(const Tensor& v, const Tensor& g, int64_t dim) {
  TORCH_CHECK(dim == 0 || dim == v.dim() - 1, "_weight_norm_interface: dim is the first or the last, 0 or ",
              v.dim() - 1, ", not ", dim);
  TORCH_CHECK(g.numel() == v.size(dim), "_weight_norm_interface: dimension ", dim, " of v ", v.sizes(),
              " has ", v.size(dim), " lengths; g has ", g.sizes());
  at::DimVector dims;
  for (int64_t d = 0; d < v.dim(); ++d)
    if (d != dim) dims.push_back(d);
  return dims;
}

std::tuple<Tensor, Tensor> weight_norm(const Tensor& v, const Tensor& g, int64_t dim) {
  static Op op("aten::_weight_norm_interface");
  static Programs programs;
  Call call(op, v);
  call.composed();
  at::DimVector dims = measured(v, g, dim);
  const ScalarType wide = at::toOpMathType(v.scalar_type());
  Tensor norm = dims.empty() ? v.to(wide).abs() : at::linalg_vector_norm(v, 2, dims, true, wide);
  Tensor w = empty_like(v, v.sizes(), v.scalar_type());
  const uint8_t memory = dtype_of(v), lengths = dtype_of(g), type = to_dtype(wide);
  const fl_program* program = programs.get(key_of(memory, lengths), [&](Builder& b) {
    Expr x{&b, b.load(0, memory, type)}, length{&b, b.load(1, lengths, type)}, n{&b, b.load(2, type)};
    b.store(0, (x * (length / n)).v, memory);
  });
  if (!run_program(call, program, {&w}, {&v, &g, &norm})) throw_refused(call, "pointwise", v.scalar_type());
  return {w, norm};
}

std::tuple<Tensor, Tensor> weight_norm_backward(const Tensor& grad, const Tensor& v, const Tensor& g,
                                                const Tensor& norm, int64_t dim) {
  static Op op("aten::_weight_norm_interface_backward");
  static Programs products, by_direction, by_length;
  Call call(op, v);
  call.composed();
  at::DimVector dims = measured(v, g, dim);
  const ScalarType wide = at::toOpMathType(v.scalar_type());
  const uint8_t memory = dtype_of(v), lengths = dtype_of(g), type = to_dtype(wide), norms = dtype_of(norm);
  Tensor along = empty_like(v, v.sizes(), wide);
  const fl_program* program = products.get(key_of(memory), [&](Builder& b) {
    Expr d{&b, b.load(0, memory, type)}, x{&b, b.load(1, memory, type)};
    b.store(0, (d * x).v, type);
  });
  if (!run_program(call, program, {&along}, {&grad, &v})) throw_refused(call, "pointwise", v.scalar_type());
  if (!dims.empty()) along = along.sum(dims, true);

  Tensor grad_v = empty_like(v, v.sizes(), v.scalar_type());
  Tensor grad_g = empty_like(g, g.sizes(), g.scalar_type());
  program = by_direction.get(key_of(memory, lengths, norms), [&](Builder& b) {
    Expr d{&b, b.load(0, memory, type)}, x{&b, b.load(1, memory, type)}, length{&b, b.load(2, lengths, type)},
        n{&b, b.load(3, norms, type)}, a{&b, b.load(4, type)};
    b.store(0, (length / n * (d - x * (a / (n * n)))).v, memory);
  });
  if (!run_program(call, program, {&grad_v}, {&grad, &v, &g, &norm, &along}))
    throw_refused(call, "pointwise", v.scalar_type());
  program = by_length.get(key_of(lengths, norms), [&](Builder& b) {
    Expr a{&b, b.load(0, type)}, n{&b, b.load(1, norms, type)};
    b.store(0, (a / n).v, lengths);
  });
  if (!run_program(call, program, {&grad_g}, {&along, &norm}))
    throw_refused(call, "pointwise", v.scalar_type());
  return {grad_v, grad_g};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_weight_norm_interface", weight_norm);
  m.impl("_weight_norm_interface_backward", weight_norm_backward);
}

}  // namespace
}  // namespace fl::bridge
