// A program over the points of a space: the layouts that kernels are generated for, and running it.
#pragma once

#include "fl/author/space.h"
#include "launch.h"
#include "program.h"

namespace ocl {

// Operands of a plan as a space; strides in elements, inputs first.
struct Points {
  const Plan* plan;
  Space<kMaxOperands> space;
  const void* data[kMaxOperands];
  const fl_scalar* scalars = nullptr;

  explicit Points(const Plan* p) : plan(p), space(p->n_inputs + p->n_outputs) {}
  // From the entry's tensors: outputs[0] gives the shape.
  Points(const Plan* p, const fl_tensor* inputs, const fl_tensor* outputs, const fl_scalar* s);
};

// A plan's scalars, two longs each.
void push_scalars(Parameters& q, const Plan& plan, const fl_scalar* scalars);

// Whether a program has gone over enough points to be worth a kernel of its own, these included: not yet;
// yes, behind the scenes; yes, and this launch is worth waiting for it.
Compile count_points(const Plan& plan, uint64_t points, uint64_t launches = 1);

// may_compile false: interpreted if that is possible; for callers that have a kernel of their own coming.
fl_status run_points(const fl_launch* launch, const Points& points, bool may_compile = true);

}  // namespace ocl
