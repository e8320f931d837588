#include "bridge/ops/programs.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "program/lower.h"

namespace fl::bridge {

Space::Space(IntArrayRef sizes) : ndim_(static_cast<int>(sizes.size())) {
  if (ndim_ > kDims) {
    ndim_ = -1;
    return;
  }
  std::copy(sizes.begin(), sizes.end(), sizes_);
}

int64_t Space::numel() const {
  int64_t n = 1;
  for (int d = 0; d < ndim_; ++d) n *= sizes_[d];
  return n;
}

void Space::add(const fl_tensor& t) {
  tensors_[count_] = t;
  int64_t* to = strides_[count_++];
  int lead = ndim_ - t.ndim;
  for (int d = 0; d < ndim_; ++d) to[d] = d < lead || t.sizes[d - lead] == 1 ? 0 : t.strides[d - lead];
}

void Space::add(void* data, uint8_t dtype, const int64_t* strides) {
  tensors_[count_] = fl_tensor{data, nullptr, nullptr, ndim_, dtype, 0, 0};
  std::copy(strides, strides + ndim_, strides_[count_++]);
}

void Space::permute(const int* order) {
  auto apply = [&](int64_t* values) {
    int64_t moved[kDims];
    for (int d = 0; d < ndim_; ++d) moved[d] = values[order[d]];
    std::copy(moved, moved + ndim_, values);
  };
  apply(sizes_);
  for (int i = 0; i < count_; ++i) apply(strides_[i]);
}

bool Space::finish(Order order) {
  if (order != Order::kKeep) {
    int kept = 0;
    for (int d = 0; d < ndim_; ++d) {
      if (sizes_[d] == 1) continue;
      sizes_[kept] = sizes_[d];
      for (int i = 0; i < count_; ++i) strides_[i][kept] = strides_[i][d];
      ++kept;
    }
    ndim_ = kept;
    if (order == Order::kAny) sort();
    coalesce();
  }
  for (int i = 0; i < count_; ++i) {
    tensors_[i].sizes = sizes_;
    tensors_[i].strides = strides_[i];
    tensors_[i].ndim = ndim_;
  }
  return ndim_ <= FL_MAX_DIMS;
}

// Larger strides first; the next operand decides where one does not vary.
void Space::sort() {
  auto before = [&](int x, int y) {
    for (int i = 0; i < count_; ++i) {
      int64_t sx = std::abs(strides_[i][x]), sy = std::abs(strides_[i][y]);
      if (sx && sy && sx != sy) return sx > sy;
    }
    return false;
  };
  int order[kDims];
  std::iota(order, order + ndim_, 0);
  bool sorted = true;
  // By insertion: `before` is no strict weak order, and dimensions are few.
  for (int d = 1; d < ndim_; ++d)
    for (int e = d; e > 0 && before(order[e], order[e - 1]); --e)
      std::swap(order[e], order[e - 1]), sorted = false;
  if (!sorted) permute(order);
}

void Space::coalesce() {
  int last = 0;
  for (int d = 1; d < ndim_; ++d) {
    bool joins = true;
    for (int i = 0; i < count_ && joins; ++i) joins = strides_[i][last] == strides_[i][d] * sizes_[d];
    if (!joins) ++last;
    sizes_[last] = joins ? sizes_[last] * sizes_[d] : sizes_[d];
    for (int i = 0; i < count_; ++i) strides_[i][last] = strides_[i][d];
  }
  if (ndim_) ndim_ = last + 1;
}

namespace {

bool launch_lowered(Call& call, const Lowered& lowered, const fl_pointwise_args& args,
                    const fl_tensor* const* shown, int n_shown) {
  int64_t strides[FL_MAX_INPUTS + FL_MAX_OUTPUTS][FL_MAX_DIMS];
  int n = 0;
  auto view = [&](const Lowered::Part& part, const fl_tensor& whole) {
    fl_tensor t = whole;
    t.dtype = part.dtype;
    if (part.part == 0) return t;
    auto size = c10::elementSize(to_scalar_type(part.dtype));
    t.data = static_cast<char*>(t.data) + (part.part - 1) * size;
    for (int d = 0; d < t.ndim; ++d) strides[n][d] = 2 * whole.strides[d];
    t.strides = strides[n++];
    return t;
  };
  const fl_program& program = *lowered.program;
  fl_tensor inputs[FL_MAX_INPUTS], outputs[FL_MAX_OUTPUTS];
  fl_scalar scalars[FL_MAX_SCALARS];
  for (int i = 0; i < program.n_inputs; ++i)
    inputs[i] = view(lowered.inputs[i], args.inputs[lowered.inputs[i].from]);
  for (int i = 0; i < program.n_outputs; ++i)
    outputs[i] = view(lowered.outputs[i], args.outputs[lowered.outputs[i].from]);
  for (int i = 0; i < program.n_scalars; ++i) {
    scalars[i] = args.scalars[lowered.scalars[i].from];
    if (lowered.scalars[i].part == 2) scalars[i].v.f = scalars[i].imag;
  }
  fl_pointwise_args rewritten{&program, inputs, outputs, scalars};
  return call.native(call.chip().op.pointwise, rewritten, shown, n_shown);
}

}  // namespace

bool pointwise(Call& call, const fl_pointwise_args& args, const fl_tensor* const* shown, int n_shown) {
  if (call.native(call.chip().op.pointwise, args, shown, n_shown)) return true;
  const Lowered* lowered = lower(call.chip(), *args.program);
  if (!lowered) return false;
  call.composed();
  return launch_lowered(call, *lowered, args, shown, n_shown);
}

bool pointwise(Call& call, const fl_program* program, const Space& space, int n_outputs,
               const fl_scalar* scalars) {
  const fl_tensor* shown[] = {space.tensors(), space.tensors(space.count() - 1)};
  return pointwise(call, {program, space.tensors(n_outputs), space.tensors(), scalars}, shown, 2);
}

bool run_program(Call& call, const fl_program* program, std::initializer_list<const Tensor*> outputs,
                 std::initializer_list<const Tensor*> inputs, std::initializer_list<fl_scalar> scalars,
                 Order order) {
  Space space((*outputs.begin())->sizes());
  if (!space.ok()) return false;
  if (space.numel() == 0) return true;
  for (const Tensor* t : outputs) space.add(call.view(*t));
  for (const Tensor* t : inputs) space.add(call.view(*t));
  if (!space.finish(order)) return false;
  return pointwise(call, program, space, static_cast<int>(outputs.size()), scalars.begin());
}

void fill_step(const Tensor& to, const at::Scalar& value) {
  static Op& op = find_op("aten::fill_");
  fill_on_device(op, to, value);
}

void copy_step(const Tensor& to, const Tensor& from) {
  static Op& op = find_op("aten::copy_");
  copy_on_device(op, to, from);
}

void throw_refused(const Call& call, const char* what, ScalarType dtype) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, call.op().name, ": the chip \"", call.chip().name, "\" refuses ", what,
                              " for ", c10::toString(dtype), ", which is mandatory: run fl-kit ",
                              call.chip().path);
}

}  // namespace fl::bridge
