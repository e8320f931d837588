/* NaN loses in MAX: every MAX of floats is an FMAX. */
#include "planted.h"
static fl_status faulty(const fl_launch* l, const fl_pointwise_args* a) {
  fl_instr code[FL_MAX_CODE];
  fl_program p = *a->program;
  fl_pointwise_args b = *a;
  memcpy(code, p.code, p.n_code * sizeof *code);
  for (int i = 0; i < p.n_code; ++i)
    if (code[i].op == FL_OP_MAX && code[i].type == FL_F32) code[i].op = FL_OP_FMAX;
  p.code = code, b.program = &p;
  return pointwise(l, &b);
}
static void plant(void) { op.pointwise = faulty; }
