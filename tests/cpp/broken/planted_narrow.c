/* A copy of int64 goes through double: numbers beyond 2^53 lose their low bits. */
#include "planted.h"
static fl_status faulty(const fl_launch* l, const fl_copy_args* a) {
  fl_status status = copy(l, a);
  walk w;
  if (status != FL_OK || a->to.dtype != FL_I64) return status;
  walk_start(&w, &a->to, 1);
  do {
    int64_t* p = (int64_t*)w.p[0];
    if (*p < INT64_MAX - 512) *p = (int64_t)(double)*p;
  } while (walk_next(&w));
  return status;
}
static void plant(void) { op.copy = faulty; }
