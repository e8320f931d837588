// out[i] = in[0] ∘ … ∘ in[i] along an axis. A work-item takes a slice, or LANES slices that lie side by side in memory,
// or, of few long slices, a part: `stage` 0 then only finds what each part comes to, and 1 starts from what the parts
// before come to. Macros: A (accumulator), START, STEP(a, v), VALUE(p, i), RESULT(p, i, a); with ORDERED instead of STEP
// TAKES(a, v): v takes the place of a, and where it was goes to `index` if there is one; ACROSS when lanes go across slices.
#ifdef ACROSS
#define LANES 16
#else
#define LANES 1
#endif
typedef struct {
  long units, parts, part, n;  // `part` elements are a part
  long row;                    // blocks of LANES slices in a row of them
  long rank, size[16], stride[3][16];  // of slices: in, out, index
  long step[3];                        // along the axis
  long offset[3], totals, has_index;
} P;

typedef struct {
  A value;
#ifdef ORDERED
  long where;
#endif
} Total;

#ifdef ORDERED
#define JOIN(l, v, place)                                     \
  {                                                           \
    const A v_ = v;                                           \
    const int takes = at[l] < 0 || (TAKES(acc[l], v_));       \
    acc[l] = takes ? v_ : acc[l];                             \
    at[l] = takes ? (place) : at[l];                          \
  }
#define STORE_WHERE(l, i) \
  if (p.has_index) STORE_I64(q_index, o[2] + (l) + (i) * p.step[2], at[l]);
#else
#define JOIN(l, v, place)    \
  {                          \
    const A v_ = v;          \
    acc[l] = STEP(acc[l], v_); \
  }
#define STORE_WHERE(l, i)
#endif

#ifdef ACROSS
#define EACH_LANE(lanes) _Pragma("clang loop vectorize(assume_safety)") for (long l = 0; l < (lanes); ++l)
// Blocks of LANES, which have vectors, and what is left of a row.
#define BY_WIDTH(what)        \
  if (lanes == LANES) {       \
    what(LANES)               \
  } else {                    \
    what(lanes)               \
  }
#else
#define EACH_LANE(lanes) for (long l = 0; l < 1; ++l)
#define BY_WIDTH(what) what(1)
#endif
#define FIND(lanes)                                                                   \
  for (long i = first; i < last; ++i)                                                 \
    EACH_LANE(lanes) JOIN(l, VALUE(q_in, o[0] + l + i * p.step[0]), i)
#define RUN(lanes)                                                                    \
  for (long i = first; i < last; ++i)                                                 \
    EACH_LANE(lanes) {                                                                \
      JOIN(l, VALUE(q_in, o[0] + l + i * p.step[0]), i)                               \
      RESULT(q_out, o[1] + l + i * p.step[1], acc[l]);                                \
      STORE_WHERE(l, i)                                                               \
    }

__kernel void scan(const P p, int stage, __global const uchar* in, __global uchar* out, __global uchar* index,
                   __global uchar* totals_base) {
  __global const uchar* q_in = in + p.offset[0];
  __global uchar* q_out = out + p.offset[1];
  __global uchar* q_index = index + p.offset[2];
  __global Total* totals = (__global Total*)(totals_base + p.totals);
  UNITS(unit, p.units) {
    const long piece = unit % p.parts, cell = unit / p.parts;
    long rest = cell, o[3] = {0, 0, 0}, lanes = 1;
    for (int d = (int)p.rank - 1; d >= 0; --d) {
      long c;
#ifdef ACROSS
      if (d == p.rank - 1) {
        c = rest % p.row * LANES;
        rest /= p.row;
        lanes = min((long)LANES, p.size[d] - c);
      } else
#endif
      {
        c = rest % p.size[d];
        rest /= p.size[d];
      }
      for (int k = 0; k < 3; ++k) o[k] += c * p.stride[k][d];
    }
    const long first = piece * p.part, last = min(p.n, first + p.part);
    A acc[LANES];
    for (int l = 0; l < LANES; ++l) acc[l] = START;
#ifdef ORDERED
    long at[LANES];
    for (int l = 0; l < LANES; ++l) at[l] = -1;
#endif
    if (stage == 0) {
      BY_WIDTH(FIND)
      for (long l = 0; l < lanes; ++l) {
        __global Total* t = totals + (cell * LANES + l) * p.parts + piece;
        t->value = acc[l];
#ifdef ORDERED
        t->where = at[l];
#endif
      }
      continue;
    }
    for (long before = 0; before < piece; ++before)
      for (long l = 0; l < lanes; ++l) {
        __global const Total* t = totals + (cell * LANES + l) * p.parts + before;
        JOIN(l, t->value, t->where)
      }
    BY_WIDTH(RUN)
  }
}
