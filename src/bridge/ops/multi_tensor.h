// One program over many tensors: one launch where the chip has the entry, else
// one for each item.
#pragma once

#include <deque>
#include <vector>

#include "bridge/ops/programs.h"

namespace fl::bridge {

class MultiTensor {
 public:
  MultiTensor(Call& call, size_t items);

  // Add an item: outputs of one size, inputs broadcast to it, and the scalars of
  // this item.  Empty items are dropped.  False: too many dimensions.
  bool add(c10::ArrayRef<const Tensor*> outputs, c10::ArrayRef<const Tensor*> inputs,
           c10::ArrayRef<fl_scalar> item_scalars = {});

  // `shared` scalars come before an item's.  False: the chip cannot; nothing has happened.
  bool run(const fl_program* program, c10::ArrayRef<fl_scalar> shared = {});

 private:
  Call& call_;
  std::vector<int64_t> numels_;  // of flat items; never reallocates
  std::deque<Space> spaces_;     // of the others
  std::vector<fl_tensor> inputs_, outputs_;
  std::vector<fl_scalar> scalars_;
  int items_ = 0, n_inputs_ = 0, n_outputs_ = 0, n_scalars_ = 0;
};

}  // namespace fl::bridge
