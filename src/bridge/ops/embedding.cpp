// Embedding: rows by number, and the sum of gradients back into them.
#include "bridge/devices.h"
#include "bridge/ops/indexing.h"

namespace fl::bridge {
namespace {

void check_indices(const Tensor& indices) {
  TORCH_CHECK(indices.scalar_type() == at::kLong || indices.scalar_type() == at::kInt,
              "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, "
              "Int; but got ",
              c10::toString(indices.scalar_type()), " instead (while checking arguments for embedding)");
}

// The operands of rows[index] over `sizes`: table without its rows, data, index broadcast along the columns.
struct Rows {
  at::DimVector table, index;
  Axis axis;
  Rows(const Tensor& table_in, const Tensor& index_in)
      : table(index_in.dim() + 1, 0), index(index_in.strides()) {
    table.back() = table_in.stride(1);
    index.push_back(0);
    axis = {table_in.size(0), table_in.stride(0)};
  }
};

Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t padding, bool scale_by_frequency,
                 bool sparse) {
  static Op op("aten::embedding");
  TORCH_CHECK(weight.dim() == 2, "'weight' must be 2-D");
  check_indices(indices);
  check_devices(op, {&weight, &indices});
  at::DimVector sizes(indices.sizes());
  sizes.push_back(weight.size(1));
  Tensor out = empty_like(weight, sizes, weight.scalar_type());
  Call call(op, weight);
  Space space(sizes);
  if (out.numel() == 0) return out;
  if (space.ok()) {
    Rows rows(weight, indices);
    fl_tensor w = call.view(weight), i = call.view(indices);
    space.add(call.view(out));
    space.add(w.data, w.dtype, rows.table.data());
    space.add(i.data, i.dtype, rows.index.data());
    if (space.finish() && gather_space(call, space, &rows.axis.size, &rows.axis.stride, 0)) return out;
  }
  return fallback<ATEN_OP(embedding)>(weight, indices, padding, scale_by_frequency, sparse);
}

Tensor embedding_dense_backward(const Tensor& grad_in, const Tensor& indices, int64_t count, int64_t padding,
                                bool scale_by_frequency) {
  static Op op("aten::embedding_dense_backward");
  check_devices(op, {&grad_in, &indices});
  static Programs masks;
  check_indices(indices);
  Call call(op, grad_in);
  int64_t columns = grad_in.size(-1);
  ScalarType dtype = grad_in.scalar_type();
  // Half gradients add up in F32: a frequent word meets thousands of them.
  ScalarType wide = at::isReducedFloatingType(dtype) ? at::kFloat : dtype;
  Tensor out = empty_like(grad_in, {count, columns}, wide);
  fill_step(out, 0);
  if (grad_in.numel() == 0 || out.numel() == 0) return out.to(dtype);

  Tensor index = indices.reshape({-1}), grad = grad_in.reshape({-1, columns});
  if (padding >= 0 || scale_by_frequency || dtype != wide) {
    call.composed();
    Tensor rows = empty_like(grad, grad.sizes(), wide), index_column = index.unsqueeze(1),
           scale = index_column;
    if (scale_by_frequency) {
      Tensor ones = at::ones(index.sizes(), out.options());
      scale = at::zeros({count}, out.options())
                  .scatter_add_(0, index.to(at::kLong), ones)
                  .gather(0, index.to(at::kLong))
                  .unsqueeze(1);
    }
    uint8_t type = to_register(wide), tg = dtype_of(grad), ti = dtype_of(index), ts = dtype_of(scale);
    const fl_program* program = masks.get(key_of(tg, ti, ts, scale_by_frequency), [&](Builder& b) {
      Value g = b.load(0, tg, type), i = b.load(1, ti, FL_I64), s = b.load(2, ts, type);
      if (scale_by_frequency) g = b.op(FL_OP_DIV, g, s);
      b.store(0, b.select(b.op(FL_OP_EQ, i, b.scalar(0, FL_I64)), b.scalar(1, type), g), type);
    });
    if (!run_program(call, program, {&rows}, {&grad, &index_column, &scale},
                     {scalar_i(padding), scalar_f(0)}))
      throw_refused(call, "pointwise", wide);
    grad = rows;
  }
  Space space(grad.sizes());
  Rows rows(out, index);
  fl_tensor o = call.view(out), i = call.view(index);
  space.add(o.data, o.dtype, rows.table.data());
  space.add(call.view(grad));
  space.add(i.data, i.dtype, rows.index.data());
  space.finish();
  if (!scatter_space(call, FL_SCATTER_ADD, space, &rows.axis.size, &rows.axis.stride, 0))
    return fallback<ATEN_OP(embedding_dense_backward)>(grad_in, indices, count, padding, scale_by_frequency);
  return out.to(dtype);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("embedding", embedding);
  m.impl("embedding_dense_backward", embedding_dense_backward);
}

}  // namespace
}  // namespace fl::bridge
