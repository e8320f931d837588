/* Among equal values MIN and MAX give the index of the last: the reduced dimensions are walked backwards. */
#include "planted.h"
static fl_status faulty(const fl_launch* l, const fl_reduce_args* a) {
  int64_t strides[FL_MAX_DIMS], n = 1;
  fl_tensor in = a->inputs[0];
  fl_reduce_args b = *a;
  walk w;
  if (!a->index || a->pre) return reduce(l, a);
  for (int d = 0; d < in.ndim; ++d) {
    int reduced = a->index->sizes[d] != in.sizes[d];
    strides[d] = reduced ? -in.strides[d] : in.strides[d];
    if (reduced)
      in.data = (char*)in.data + (in.sizes[d] - 1) * in.strides[d] * storage[in.dtype].size, n *= in.sizes[d];
  }
  in.strides = strides, b.inputs = &in;
  fl_status status = reduce(l, &b);
  walk_start(&w, a->index, 1);
  do *(int64_t*)w.p[0] = n - 1 - *(int64_t*)w.p[0];
  while (status == FL_OK && walk_next(&w));
  return status;
}
static void plant(void) { op.reduce = faulty; }
