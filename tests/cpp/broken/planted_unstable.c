/* It sorts as well, but a stack of equal values comes out upside down. */
#include "planted.h"
static int precedes(float a, float b, int descending) {
  if (a != a || b != b) return descending ? a != a && b == b : a == a && b != b;
  return descending ? a > b : a < b;
}
static fl_status faulty(const fl_launch* l, const fl_sort_args* a) {
  const fl_tensor* some = a->out ? a->out : a->index;
  fl_tensor in = a->in, head = a->in;
  int64_t sizes[FL_MAX_DIMS], n = in.ndim ? in.sizes[a->axis] : 1, k = in.ndim ? some->sizes[a->axis] : 1;
  int64_t step = in.ndim ? in.strides[a->axis] : 0;
  walk w;
  (void)l;
  if (in.dtype != FL_F32 || n > 2000) return FL_UNSUPPORTED; /* it is slow */
  for (int d = 0; d < in.ndim; ++d) sizes[d] = d == a->axis ? 1 : in.sizes[d];
  head.sizes = sizes;
  fl_tensor to[2] = {a->out ? *a->out : *some, a->index ? *a->index : *some};
  to[0].sizes = to[1].sizes = sizes;
  walk_start(&w, &head, 1), walk_add(&w, to, 2);
  do {
    const float* x = (const float*)w.p[0];
    for (int64_t i = 0; i < n; ++i) {
      int64_t place = 0; /* how many come before: of equal ones those behind */
      for (int64_t j = 0; j < n; ++j) {
        int first = precedes(x[j * step], x[i * step], a->descending);
        place += first || (j > i && !precedes(x[i * step], x[j * step], a->descending));
      }
      if (place >= k) continue;
      if (a->out) ((float*)w.p[1])[in.ndim ? place * a->out->strides[a->axis] : 0] = x[i * step];
      if (a->index) ((int64_t*)w.p[2])[in.ndim ? place * a->index->strides[a->axis] : 0] = i;
    }
  } while (walk_next(&w));
  return FL_OK;
}
static fl_claim more[sizeof claims / sizeof *claims];
static void plant(void) {
  const unsigned n = sizeof claims / sizeof *claims - 1;
  memcpy(more, claims, n * sizeof *claims);
  more[n] = (fl_claim){FL_ENTRY_SORT, FL_ANY, FL_BIT(FL_F32)};
  op.claims = more, op.n_claims = n + 1, op.sort = faulty;
}
