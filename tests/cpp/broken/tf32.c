/* Sound: where the host allows it, products of F32 are of operands rounded to 10 bits behind the point. */
#include "planted.h"

static uint32_t rounded(uint32_t bits) {
  const uint32_t exponent = bits & 0x7f800000u;
  return exponent == 0x7f800000u ? bits : (bits + 0xfffu + (bits >> 13 & 1)) & ~0x1fffu;
}

/* A contiguous copy of `t`, rounded, in memory of the launch. */
static fl_status round_operand(const fl_launch* l, fl_tensor* t, int64_t* strides) {
  int64_t n = 1;
  for (int32_t d = t->ndim; d-- > 0;) strides[d] = n, n *= t->sizes[d];
  fl_tensor both[2] = {*t, *t};
  both[0].strides = strides;
  fl_status status = host->scratch(l, (size_t)n * 4, &both[0].data);
  if (status != FL_OK) return status;
  walk w;
  walk_start(&w, both, 2);
  do {
    *(uint32_t*)w.p[0] = rounded(*(const uint32_t*)w.p[1]);
  } while (walk_next(&w));
  *t = both[0];
  return FL_OK;
}

static fl_status in_tf32(const fl_launch* l, const fl_gemm_args* g) {
  if (!(l->flags & FL_LAUNCH_TF32) || g->a.dtype != FL_F32) return gemm(l, g);
  fl_gemm_args rounded_args = *g;
  int64_t a_strides[3], b_strides[3];
  fl_status status = round_operand(l, &rounded_args.a, a_strides);
  if (status == FL_OK) status = round_operand(l, &rounded_args.b, b_strides);
  return status == FL_OK ? gemm(l, &rounded_args) : status;
}
static void plant(void) { op.gemm = in_tf32; }
