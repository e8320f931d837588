// Rows of a sparse matrix times dense ones. A work-item takes a row of the result, or LANES elements of it. Macros: A
// (accumulator), LOAD (of the dtype, as A), STORE, MUL(x, y), STEP(a, v); MEAN; ORDERED instead of STEP with
// BETTER(a, v): v wins over a.
#ifdef PROCESSOR
#define LANES 16
#else
#define LANES 1
#endif
typedef struct {
  long batches, m, n, k, count;  // count: of columns or values
  long blocks;                   // of LANES elements in a row
  long dense[3], out[3], winner[3], row_begin, columns, values;  // strides
  long row_wide, column_wide;                                    // I64, not I32
  long has_columns, has_values, has_winner;
  ulong empty[2];
  long offset[6];  // dense, out, winner, row_begin, columns, values
} P;

static inline long number_at(__global const uchar* p, long i, long wide) {
  return wide ? ((__global const long*)p)[i] : ((__global const int*)p)[i];
}

__kernel void spmm(const P p, __global const uchar* dense_base, __global uchar* out_base, __global uchar* winner_base,
                   __global const uchar* row_base, __global const uchar* column_base,
                   __global const uchar* value_base, __global Fault* fault, ulong tag) {
  __global const uchar* dense = dense_base + p.offset[0];
  __global uchar* out = out_base + p.offset[1];
  __global uchar* winner = winner_base + p.offset[2];
  __global const uchar* rows = row_base + p.offset[3];
  __global const uchar* columns = column_base + p.offset[4];
  __global const uchar* values = value_base + p.offset[5];
  const long units = p.batches * p.m * p.blocks;
  UNITS(unit, units) {
    const long n0 = unit % p.blocks * LANES, m = unit / p.blocks % p.m, b = unit / p.blocks / p.m;
    const long lanes = min((long)LANES, p.n - n0);
    const long from = b * p.dense[0] + n0 * p.dense[2], to = b * p.out[0] + m * p.out[1] + n0 * p.out[2];
    // Within the values even where the host did not look.
    const long first = clamp(number_at(rows, m * p.row_begin, p.row_wide), 0L, p.count);
    const long last = clamp(number_at(rows, (m + 1) * p.row_begin, p.row_wide), 0L, p.count);
    A acc[LANES];
    for (int l = 0; l < LANES; ++l) acc[l] = START;
#ifdef ORDERED
    long at[LANES];
    for (int l = 0; l < LANES; ++l) at[l] = -1;
#endif
    for (long j = first; j < last; ++j) {
      const long column = p.has_columns ? number_at(columns, j * p.columns, p.column_wide) : j;
      if (column < 0 || column >= p.k) {
        report(fault, tag, 7, 1, column, p.k);
        continue;
      }
      const A factor = p.has_values ? LOAD(values, j * p.values) : ONE;
      const long row = from + column * p.dense[1];
      for (long l = 0; l < lanes; ++l) {
        const A x = LOAD(dense, row + l * p.dense[2]), v = p.has_values ? MUL(factor, x) : x;
#ifdef ORDERED
        const int better = at[l] < 0 || (BETTER(acc[l], v));
        acc[l] = better ? v : acc[l];
        at[l] = better ? j : at[l];
#else
        acc[l] = STEP(acc[l], v);
#endif
      }
    }
    for (long l = 0; l < lanes; ++l) {
#ifdef MEAN
      acc[l] = acc[l] / (REAL)(last - first);
#endif
      if (last > first) STORE(out, to + l * p.out[2], acc[l]);
      else STORE_EMPTY(out, to + l * p.out[2]);
#ifdef ORDERED
      if (p.has_winner) STORE_I64(winner, b * p.winner[0] + m * p.winner[1] + (n0 + l) * p.winner[2], at[l]);
#endif
    }
  }
}
