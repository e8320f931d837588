/* Scatter ADD adds to what was there before the launch: of equal indices one counts. */
#include "planted.h"
static fl_status faulty(const fl_launch* l, const fl_scatter_args* a) {
  if (a->mode != FL_SCATTER_ADD || !claimed(FL_ENTRY_SCATTER, a->mode, a->to.dtype)) return scatter(l, a);
  int64_t strides[FL_MAX_DIMS], n = 1;
  uint8_t t = a->to.dtype;
  for (int d = a->from.ndim - 1; d >= 0; --d) strides[d] = n, n *= a->from.sizes[d];
  fl_tensor sum = a->from, in[2];
  sum.data = malloc(n * storage[t].size), sum.strides = strides;
  fl_scatter_args s = *a, g = *a;
  g.from = sum; /* reads a->to into sum */
  fl_status status = indexed(l, &g, -1);
  const fl_instr code[] = {
      {FL_OP_LOAD, t, t, 0}, {FL_OP_LOAD, t, t, 1}, {FL_OP_ADD, t, 0, 0, 1}, {FL_OP_STORE, t, t, 2, 0}};
  const fl_program add = {code, 0, 4, 2, 1, 0};
  in[0] = sum, in[1] = a->from;
  if (status == FL_OK) status = pointwise(l, &(fl_pointwise_args){&add, in, &sum, NULL});
  s.from = sum, s.mode = FL_SCATTER_SET;
  if (status == FL_OK) status = scatter(l, &s);
  return free(sum.data), status;
}
static void plant(void) { op.scatter = faulty; }
