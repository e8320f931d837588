/* The second input of a pointwise program is read as if it were contiguous. */
#include "planted.h"
static fl_status faulty(const fl_launch* l, const fl_pointwise_args* a) {
  int64_t strides[FL_MAX_DIMS], pitch = 1;
  fl_tensor in[FL_MAX_INPUTS];
  fl_pointwise_args b = *a;
  if (a->program->n_inputs < 2) return pointwise(l, a);
  memcpy(in, a->inputs, a->program->n_inputs * sizeof *in);
  for (int d = in[1].ndim - 1; d >= 0; --d) strides[d] = pitch, pitch *= in[1].sizes[d];
  in[1].strides = strides, b.inputs = in;
  return pointwise(l, &b);
}
static void plant(void) { op.pointwise = faulty; }
