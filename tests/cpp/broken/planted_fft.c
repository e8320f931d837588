/* A Fourier transform whose angles are rounded to float before they are reduced. */
#include "planted.h"
static fl_status faulty(const fl_launch* l, const fl_fft_args* a) {
  walk w;
  int64_t sizes[FL_MAX_DIMS], steps[2][FL_MAX_DIMS], n = a->in.ndim ? a->in.sizes[a->axis] : 1;
  int64_t from_step = a->in.ndim ? 2 * a->in.strides[a->axis] : 0,
          to_step = a->in.ndim ? 2 * a->out.strides[a->axis] : 0;
  fl_tensor in = a->in, out = a->out;
  if (n > 2048) return (void)l, FL_UNSUPPORTED; /* would take minutes */
  float* line = malloc(2 * n * sizeof *line);
  for (int d = 0; d < in.ndim; ++d) { /* the template has no complex numbers: as pairs of floats */
    sizes[d] = d == a->axis ? 1 : in.sizes[d];
    steps[0][d] = 2 * in.strides[d], steps[1][d] = 2 * out.strides[d];
  }
  in.sizes = out.sizes = sizes, in.strides = steps[0], out.strides = steps[1], in.dtype = out.dtype = FL_F32;
  walk_start(&w, &in, 1), walk_add(&w, &out, 1);
  do {
    float *from = (float*)w.p[0], *to = (float*)w.p[1];
    for (int64_t k = 0; k < n; ++k)
      line[2 * k] = from[k * from_step], line[2 * k + 1] = from[k * from_step + 1];
    for (int64_t j = 0; j < n; ++j) {
      double re = 0, im = 0;
      for (int64_t k = 0; k < n; ++k) {
        double turn = (float)(6.283185307179586 / n * (double)(j * k)), c = cos(turn),
               s = a->inverse ? sin(turn) : -sin(turn);
        re += line[2 * k] * c - line[2 * k + 1] * s, im += line[2 * k] * s + line[2 * k + 1] * c;
      }
      to[j * to_step] = (float)(re * a->scale), to[j * to_step + 1] = (float)(im * a->scale);
    }
  } while (walk_next(&w));
  free(line);
  return FL_OK;
}
static void plant(void) {
  static fl_claim more[sizeof claims / sizeof *claims + 1];
  memcpy(more, claims, sizeof claims);
  more[op.n_claims].entry = FL_ENTRY_FFT, more[op.n_claims].kind = FL_ANY,
  more[op.n_claims].dtypes = FL_BIT(FL_C64);
  op.n_claims++, op.claims = more, op.fft = faulty;
}
