/* spmm (sums of F32) does not check its columns, and reads outside. */
#include "planted.h"
static int64_t number(const fl_tensor* t, int64_t i) {
  return load((char*)t->data + i * t->strides[0] * storage[t->dtype].size, t->dtype, FL_I64).i;
}
static float* element(const fl_tensor* t, int64_t b, int64_t m, int64_t n) {
  return (float*)t->data + b * t->strides[0] + m * t->strides[1] + n * t->strides[2];
}
static fl_status spmm(const fl_launch* l, const fl_spmm_args* a) {
  if (a->mode != FL_SPMM_SUM || a->out.dtype != FL_F32) return FL_UNSUPPORTED;
  for (int64_t b = 0; b < a->out.sizes[0]; ++b)
    for (int64_t m = 0; m < a->out.sizes[1]; ++m)
      for (int64_t n = 0; n < a->out.sizes[2]; ++n) {
        int64_t j = number(&a->row_begin, m), end = number(&a->row_begin, m + 1);
        double sum = j < end ? 0 : a->empty.v.f;
        for (; j < end; ++j) {
          int64_t k = a->columns ? number(a->columns, j) : j;
          if (k < 0 || k >= a->dense.sizes[1]) k = a->dense.sizes[1]; /* one row beyond, not a crash */
          float v = a->values ? ((float*)a->values->data)[j * a->values->strides[0]] : 1;
          sum += (double)v * *element(&a->dense, b, k, n);
        }
        *element(&a->out, b, m, n) = (float)sum;
      }
  return FL_OK;
}
static void plant(void) {
  static fl_claim more[sizeof claims / sizeof *claims + 1];
  memcpy(more, claims, sizeof claims);
  more[op.n_claims++] = (fl_claim){FL_ENTRY_SPMM, FL_SPMM_SUM, FL_BIT(FL_F32)};
  op.claims = more, op.spmm = spmm;
}
