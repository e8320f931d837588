// Layer, group, RMS and batch norm in three steps: `sums` over the points of each cell (what is normalised together, or
// a channel), in pieces; `finish`, which turns them into numbers for each cell; `apply`, point by point.
// Macros besides those of lanes.cl: DOTS (sums of gradients; else moments); BACKWARD.
enum {
  X, Y /* or the gradient of it */, GRAD_X, WEIGHT, BIAS /* backward: a factor of the cell */, MEAN, RSTD,
  FIRST, SECOND,             // made by `finish`: what rounding has left of the mean; backward: the gradient's parts
  RUNNING_MEAN, RUNNING_VAR,
  RESULT_A, RESULT_B,        // mean and rstd, to be kept; backward: the gradients of bias and weight
  OPERANDS
};
typedef struct {
  long kind;  // 0: not there, 1: of x's dtype, 2: F32
  long offset;
  long stride[4];
} Operand;
typedef struct {
  long units, pieces, blocks;  // blocks: of LANES cells in a row of them, with ACROSS
  long size[4];                // sums, finish: cells (2), then points (2)
  long rms, training, count;   // count: points of a cell
  ulong eps, momentum;         // bits of a WIDE
  long sums_offset;
  Operand o[OPERANDS];
} P;

#ifdef FP64
#define NUMBER(x) as_double(p.x)
#else
#define NUMBER(x) as_float((uint)p.x)
#endif

#define ARGUMENTS                                                                                                   \
  const P p, __global uchar *b0, __global uchar *b1, __global uchar *b2, __global uchar *b3, \
      __global uchar *b4, __global uchar *b5, __global uchar *b6, __global uchar *b7, __global uchar *b8,           \
      __global uchar *b9, __global uchar *b10, __global uchar *b11, __global uchar *b12, __global uchar *sums_base
#define BASES __global uchar* const base[] = {b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11, b12}
#define BASE(k) (base[k] + p.o[k].offset)

// Values of an operand that may be missing, and is of either dtype.
#define LANES_OF(k, at, stride, n, missing)                     \
  (p.o[k].kind == 0   ? (VT)(missing)                           \
   : p.o[k].kind == 1 ? lanes_X(BASE(k), at, stride, n, 0)      \
                      : lanes_F32(BASE(k), at, stride, n, 0))
#define VALUE_OF(k, at, missing) \
  (p.o[k].kind == 0 ? (WIDE)(missing) : p.o[k].kind == 1 ? (WIDE)LOAD_X(BASE(k), at) : (WIDE)LOAD_F32(BASE(k), at))
#define KEEP(k, at, v)                                                      \
  if (p.o[k].kind == 1) STORE_X(BASE(k), at, (CT)(v));                      \
  else if (p.o[k].kind == 2) STORE_F32(BASE(k), at, (float)(v))

#ifdef SUMS
// Two sums for each cell and piece. Moments: of x - c and (x - c)², c the cell's first value, so that a large mean
// cancels nothing (0 for RMS). Dots: of h and h·x̂, h = gradient × weight.
__kernel void norm(ARGUMENTS TEAM_ARGUMENT) {
  BASES;
  __global WIDE* sums = (__global WIDE*)(sums_base + p.sums_offset);
  const long n = p.size[2] * p.size[3], piece_size = (n + p.pieces - 1) / p.pieces;
  LANE_UNITS(unit, p.units) {
    const long piece = unit % p.pieces, which = unit / p.pieces;
#if defined(ACROSS) && defined(PROCESSOR)
    const long c1 = which % p.blocks * LANES, c0 = which / p.blocks, count = min((long)LANES, p.size[1] - c1);
#else
    const long c1 = which % p.size[1], c0 = which / p.size[1], count = LANES;
#endif
    long cell[OPERANDS], step[OPERANDS];
    for (int k = 0; k <= RSTD; ++k) {
      cell[k] = c0 * p.o[k].stride[0] + c1 * p.o[k].stride[1];
#ifdef ACROSS
      step[k] = p.o[k].stride[1];
#else
      step[k] = p.o[k].stride[3];
#endif
    }
#ifdef ACROSS
    const VT center = p.rms ? (VT)0 : lanes_X(BASE(X), cell[X], step[X], count, 0);
#else
    const VT center = p.rms ? (VT)0 : (VT)(LOAD_X(BASE(X), cell[X]));
#endif
    WV a = (WV)0, b = (WV)0;
    for (long i = piece * piece_size, end = min(n, i + piece_size); i < end;) {
      const long p0 = i / p.size[3], p1 = i % p.size[3], m = min(p.size[3] - p1, end - i);
      long at[OPERANDS];
      for (int k = 0; k <= RSTD; ++k) at[k] = cell[k] + p0 * p.o[k].stride[2] + p1 * p.o[k].stride[3];
      STEPS(j, here, 0, m, count) {
#define AT(k) (at[k] + j * p.o[k].stride[3])
#ifdef DOTS
        // A lane behind the last has gradient 0.
        const VT h = lanes_X(BASE(Y), AT(Y), step[Y], here, 0) * LANES_OF(WEIGHT, AT(WEIGHT), step[WEIGHT], here, 1);
        const VT x = (lanes_X(BASE(X), AT(X), step[X], here, 0) - LANES_OF(MEAN, AT(MEAN), step[MEAN], here, 0)) *
                     LANES_OF(RSTD, AT(RSTD), step[RSTD], here, 1);
        a += TO_WIDE(h);
        b += TO_WIDE(h * x);
#else
        VT x = lanes_X(BASE(X), AT(X), step[X], here, 0);
        const WV d = TO_WIDE(x) - TO_WIDE(center);
#if defined(PROCESSOR) && !defined(ACROSS)
        if (here < LANES) {
          WIDE t[LANES];
          vstore16(d, 0, t);
          for (long l = here; l < LANES; ++l) t[l] = 0;
          const WV some = vload16(0, t);
          a += some;
          b += some * some;
          continue;
        }
#endif
        a += d;
        b += d * d;
#endif
      }
      i += m;
    }
    a = TOTAL(a);
    b = TOTAL(b);
    const long slot = ((c0 * p.size[1] + c1) * p.pieces + piece) * 2;
#if defined(ACROSS) && defined(PROCESSOR)
    WIDE ta[LANES], tb[LANES];
    vstore16(a, 0, ta);
    vstore16(b, 0, tb);
    for (long l = 0; l < count; ++l) {
      sums[slot + l * p.pieces * 2] = ta[l];
      sums[slot + l * p.pieces * 2 + 1] = tb[l];
    }
#else
    if (LEADS) {
#ifdef PROCESSOR
      sums[slot] = a.s0;
      sums[slot + 1] = b.s0;
#else
      sums[slot] = a;
      sums[slot + 1] = b;
#endif
    }
#endif
  }
}
#endif

#ifdef FINISH
__kernel void norm(ARGUMENTS) {
  BASES;
  __global const WIDE* sums = (__global const WIDE*)(sums_base + p.sums_offset);
  LANE_UNITS(unit, p.units) {
    const long c0 = unit / p.size[1], c1 = unit % p.size[1];
#define CELL(k) (c0 * p.o[k].stride[0] + c1 * p.o[k].stride[1])
    WIDE a = 0, b = 0;
    if (p.training)
      for (long piece = 0; piece < p.pieces; ++piece) {
        a += sums[(unit * p.pieces + piece) * 2];
        b += sums[(unit * p.pieces + piece) * 2 + 1];
      }
    const WIDE n = (WIDE)p.count;
#ifdef BACKWARD
    KEEP(RESULT_A, CELL(RESULT_A), a);
    KEEP(RESULT_B, CELL(RESULT_B), b);
    const WIDE w = VALUE_OF(BIAS, CELL(BIAS), 1) / n;
    KEEP(FIRST, CELL(FIRST), p.rms ? 0 : a * w);
    KEEP(SECOND, CELL(SECOND), b * w);
#else
    WIDE mean, var;
    if (p.training) {
      const WIDE center = p.rms ? 0 : (WIDE)LOAD_X(BASE(X), CELL(X)), d = p.rms ? 0 : a / n;
      mean = center + d;
      var = b / n - d * d;
      var = var < 0 ? 0 : var;
      if (p.o[RUNNING_MEAN].kind)
        KEEP(RUNNING_MEAN, CELL(RUNNING_MEAN),
             (1 - NUMBER(momentum)) * VALUE_OF(RUNNING_MEAN, CELL(RUNNING_MEAN), 0) + NUMBER(momentum) * mean);
      if (p.o[RUNNING_VAR].kind)
        KEEP(RUNNING_VAR, CELL(RUNNING_VAR),
             (1 - NUMBER(momentum)) * VALUE_OF(RUNNING_VAR, CELL(RUNNING_VAR), 0) +
                 NUMBER(momentum) * (var * n / (n - 1)));
    } else {
      mean = VALUE_OF(RUNNING_MEAN, CELL(RUNNING_MEAN), 0);
      var = VALUE_OF(RUNNING_VAR, CELL(RUNNING_VAR), 1);
    }
    const WIDE rstd = 1 / sqrt(var + NUMBER(eps));
    const CT center = (CT)mean;
    KEEP(MEAN, CELL(MEAN), center);
    KEEP(RSTD, CELL(RSTD), rstd);
    KEEP(FIRST, CELL(FIRST), ((WIDE)center - mean) * rstd);
    KEEP(RESULT_A, CELL(RESULT_A), mean);
    KEEP(RESULT_B, CELL(RESULT_B), rstd);
#endif
  }
}
#endif

#ifdef APPLY
// Forward: y = x̂ × weight + bias. Backward: (gradient × weight - first - x̂ × second) × rstd.
#ifdef BACKWARD
#define TARGET GRAD_X
#else
#define TARGET Y
#endif
__kernel void norm(ARGUMENTS) {
  BASES;
  // Units are rows, in `blocks` parts; without a processor, points.
  const long part = (p.size[3] + p.blocks - 1) / p.blocks;
  LANE_UNITS(unit, p.units) {
#ifdef PROCESSOR
    const long begin = unit % p.blocks * part, m = min(p.size[3] - begin, part);
    long rest = unit / p.blocks;
#else
    const long begin = unit % p.size[3], m = 1;
    long rest = unit / p.size[3];
#endif
    const long d2 = rest % p.size[2], d1 = rest / p.size[2] % p.size[1], d0 = rest / p.size[2] / p.size[1];
    long at[OPERANDS];
    for (int k = 0; k <= SECOND; ++k)
      at[k] = d0 * p.o[k].stride[0] + d1 * p.o[k].stride[1] + d2 * p.o[k].stride[2] + begin * p.o[k].stride[3];
#undef AT
#define AT(k) (at[k] + j * p.o[k].stride[3])
#define READ_LANES(k, missing) LANES_OF(k, AT(k), p.o[k].stride[3], here, missing)
#ifdef PROCESSOR
    for (long j = 0; j < m; j += LANES) {
      const long here = min((long)LANES, m - j);
#else
    {
      const long j = 0, here = 1;
#endif
      const VT rstd = READ_LANES(RSTD, 1), w = READ_LANES(WEIGHT, 1);
      const VT x = (lanes_X(BASE(X), AT(X), p.o[X].stride[3], here, 0) - READ_LANES(MEAN, 0)) * rstd;
#ifdef BACKWARD
      const VT g = lanes_X(BASE(Y), AT(Y), p.o[Y].stride[3], here, 0);
      const VT v = (g * w - READ_LANES(FIRST, 0) - x * READ_LANES(SECOND, 0)) * rstd;
#else
      const VT v = (x + READ_LANES(FIRST, 0)) * w + READ_LANES(BIAS, 0);
#endif
      keep_X(BASE(TARGET), AT(TARGET), p.o[TARGET].stride[3], here, v);
    }
  }
}
#endif
