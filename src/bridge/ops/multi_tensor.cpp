#include "bridge/ops/multi_tensor.h"

namespace fl::bridge {
namespace {

const int64_t kStep = 1, kBroadcast = 0;

// Tensors that may be walked as one line: dense, all in the same order.
bool flat(const Tensor& t, const Tensor& lead) {
  return t.numel() == 1 ? true : t.sizes() == lead.sizes() && t.strides() == lead.strides();
}

}  // namespace

MultiTensor::MultiTensor(Call& call, size_t items) : call_(call) {
  numels_.reserve(items);
  inputs_.reserve(items * 4);
  outputs_.reserve(items * 3);
}

bool MultiTensor::add(c10::ArrayRef<const Tensor*> outputs, c10::ArrayRef<const Tensor*> inputs,
                      c10::ArrayRef<fl_scalar> item_scalars) {
  const Tensor& lead = *outputs[0];
  n_inputs_ = static_cast<int>(inputs.size());
  n_outputs_ = static_cast<int>(outputs.size());
  n_scalars_ = static_cast<int>(item_scalars.size());
  if (lead.numel() == 0) return true;
  bool line = lead.is_non_overlapping_and_dense();
  for (const Tensor* t : outputs) line &= flat(*t, lead);
  for (const Tensor* t : inputs) line &= flat(*t, lead);
  if (line) {
    const int64_t* size = &numels_.emplace_back(lead.numel());
    auto view = [&](const Tensor& t) {
      fl_tensor v = call_.view(t);
      v.sizes = size;
      v.strides = t.numel() == 1 && *size != 1 ? &kBroadcast : &kStep;
      v.ndim = 1;
      return v;
    };
    for (const Tensor* t : outputs) outputs_.push_back(view(*t));
    for (const Tensor* t : inputs) inputs_.push_back(view(*t));
  } else {
    Space& space = spaces_.emplace_back(lead.sizes());
    if (!space.ok()) return false;
    for (const Tensor* t : outputs) space.add(call_.view(*t));
    for (const Tensor* t : inputs) space.add(call_.view(*t));
    if (!space.finish()) return false;
    outputs_.insert(outputs_.end(), space.tensors(), space.tensors(n_outputs_));
    inputs_.insert(inputs_.end(), space.tensors(n_outputs_), space.tensors(space.count()));
  }
  scalars_.insert(scalars_.end(), item_scalars.begin(), item_scalars.end());
  ++items_;
  return true;
}

bool MultiTensor::run(const fl_program* program, c10::ArrayRef<fl_scalar> shared) {
  if (items_ == 0) return true;
  if (call_.chip().op.multi_tensor) {
    fl_multi_tensor_args args{program,         inputs_.data(), outputs_.data(), shared.data(),
                              scalars_.data(), items_,         n_scalars_};
    if (call_.native(call_.chip().op.multi_tensor, args, {outputs_.data()})) return true;
  }
  call_.composed();
  for (int i = 0; i < items_; ++i) {
    fl_scalar scalars[FL_MAX_SCALARS];
    auto end = std::copy(shared.begin(), shared.end(), scalars);
    std::copy_n(scalars_.begin() + i * n_scalars_, n_scalars_, end);
    const fl_pointwise_args args{program, inputs_.data() + i * n_inputs_, outputs_.data() + i * n_outputs_,
                                 scalars};
    if (!pointwise(call_, args, &args.outputs, 1)) {
      if (i == 0) return false;
      throw_refused(call_, "a program that it took a moment ago", to_scalar_type(args.outputs->dtype));
    }
  }
  return true;
}

}  // namespace fl::bridge
