/* Gather does not check its indices, and reads outside. */
#include "planted.h"
static fl_status faulty(const fl_launch* l, const fl_gather_args* a) {
  fl_gather_args b = *a;
  if (!(b.flags & FL_INDEX_WRAP))
    for (int k = 0; k < b.n_indices; ++k) b.index_size[k] = INT64_MAX;
  return gather(l, &b);
}
static void plant(void) { op.gather = faulty; }
