#include "bridge/ops/reduction.h"

namespace fl::bridge {
namespace {

// t's strides along the dimensions of the inputs: 0 where reduced.
void output_strides(const Tensor& t, const Mask& mask, int ndim, int64_t* strides) {
  bool kept = t.dim() == ndim;
  for (int d = 0, e = 0; d < ndim; ++d) {
    strides[d] = mask[d] ? 0 : t.stride(e);
    e += kept || !mask[d];
  }
}

}  // namespace

int64_t reduced_count(const Tensor& t, const Mask& mask) {
  int64_t n = 1;
  for (int64_t d = 0; d < t.dim(); ++d)
    if (mask[d]) n *= t.size(d);
  return n;
}

bool reduce(Call& call, const Reduction& reduction, const Mask& mask,
            std::initializer_list<const Tensor*> inputs, std::initializer_list<const Tensor*> outputs,
            const Tensor* index) {
  const Tensor& lead = **inputs.begin();
  Space space(lead.sizes());
  if (!space.ok()) return false;
  for (const Tensor* t : inputs) space.add(call.view(*t));
  int n_inputs = static_cast<int>(inputs.size()), ndim = static_cast<int>(lead.dim());
  auto add = [&](const Tensor& t) {
    int64_t strides[Space::kDims];
    output_strides(t, mask, ndim, strides);
    fl_tensor view = call.view(t);
    space.add(view.data, view.dtype, strides);
  };
  for (const Tensor* t : outputs) add(*t);
  if (index) add(*index);
  if (!space.finish(index ? Order::kRows : Order::kAny)) return false;

  // A dimension that no output walks is reduced.
  int64_t sizes[FL_MAX_DIMS];
  for (int d = 0; d < space.ndim(); ++d) {
    bool walked = false;
    for (int i = n_inputs; i < space.count(); ++i) walked |= space.strides(i)[d] != 0;
    sizes[d] = walked ? space.sizes()[d] : 1;
  }
  fl_tensor results[FL_MAX_OUTPUTS + 1];
  for (int i = n_inputs; i < space.count(); ++i) {
    results[i - n_inputs] = *space.tensors(i);
    results[i - n_inputs].sizes = sizes;
  }
  int n_outputs = static_cast<int>(outputs.size());
  fl_reduce_args args{};
  args.kind = reduction.kind;
  args.accumulate = reduction.accumulate;
  args.n_inputs = static_cast<uint8_t>(n_inputs);
  args.n_outputs = static_cast<uint16_t>(n_outputs);
  args.pre = reduction.pre;
  args.post = reduction.post;
  args.inputs = space.tensors();
  args.outputs = n_outputs ? results : nullptr;
  args.index = index ? &results[n_outputs] : nullptr;
  args.pre_scalars = reduction.pre_scalars;
  args.post_scalars = reduction.post_scalars;
  return call.native(call.chip().op.reduce, args, {space.tensors(), results});
}

bool sum_into(Call& call, const Tensor& in, const Mask& mask, const Tensor& out, double divisor) {
  static Programs programs;
  uint8_t memory = dtype_of(out), type = accumulate_type(out.scalar_type());
  if (type == FL_BOOL) return reduce(call, {FL_REDUCE_ANY, FL_BOOL}, mask, {&in}, {&out});
  if (divisor == 0) return reduce(call, {FL_REDUCE_SUM, type}, mask, {&in}, {&out});
  const fl_program* post = programs.get(key_of(memory, type), [&](Builder& b) {
    b.store(0, b.op(FL_OP_DIV, b.load(0, type), b.scalar(0, type)), memory);
  });
  fl_scalar scalar = scalar_f(divisor);
  return reduce(call, {FL_REDUCE_SUM, type, nullptr, post, nullptr, &scalar}, mask, {&in}, {&out});
}

bool moments_into(Call& call, const Tensor& in, const Mask& mask, double correction, bool root,
                  const Tensor* variance, const Tensor* mean) {
  static Programs posts, squares, quotients;
  const Tensor& like = variance ? *variance : *mean;
  uint8_t memory = dtype_of(like), type = to_register(like.scalar_type());
  int64_t count = reduced_count(in, mask);
  fl_scalar divisor = scalar_f(std::max(0.0, static_cast<double>(count) - correction));
  if (!variance) return sum_into(call, in, mask, *mean, static_cast<double>(count));

  if (call.claims(FL_ENTRY_REDUCE, FL_REDUCE_MOMENTS, type)) {
    const fl_program* post = posts.get(key_of(memory, type, root, mean ? 1 : 0), [&](Builder& b) {
      Value average = b.load(0, type), v = b.op(FL_OP_DIV, b.load(1, type), b.scalar(0, type));
      b.store(0, root ? b.op(FL_OP_SQRT, v) : v, memory);
      if (mean) b.store(1, average, memory);
    });
    Reduction reduction{FL_REDUCE_MOMENTS, type, nullptr, post, nullptr, &divisor};
    return mean ? reduce(call, reduction, mask, {&in}, {variance, mean})
                : reduce(call, reduction, mask, {&in}, {variance});
  }

  // In two passes, which does not cancel for a large mean.
  call.composed();
  Tensor center = empty_like(in, at::native::shape_from_dim_mask(in, mask, true), to_scalar_type(type));
  if (!sum_into(call, in, mask, center, static_cast<double>(count))) return false;
  uint8_t from = dtype_of(in);
  const fl_program* pre = squares.get(key_of(from, type), [&](Builder& b) {
    Value d = b.op(FL_OP_SUB, b.load(0, from, type), b.load(1, type));
    b.store(0, b.op(FL_OP_MUL, d, d), type);
  });
  const fl_program* post = quotients.get(key_of(memory, type, root), [&](Builder& b) {
    Value v = b.op(FL_OP_DIV, b.load(0, type), b.scalar(0, type));
    b.store(0, root ? b.op(FL_OP_SQRT, v) : v, memory);
  });
  if (!reduce(call, {FL_REDUCE_SUM, type, pre, post, nullptr, &divisor}, mask, {&in, &center}, {variance}))
    return false;
  if (mean) copy_step(*mean, center.view(mean->sizes()));
  return true;
}

}  // namespace fl::bridge
