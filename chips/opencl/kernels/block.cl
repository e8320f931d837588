// The inner loop of products of packed panels: ROWS × COLUMNS sums that stay in registers.
// Macros: CT (computed in), VT (16 of it), ROWS and VECTORS (of 16 in a row) as the registers allow,
// MULTIPLY_ADD(x, y, z).
#define COLUMNS (16 * VECTORS)

// Declares sums[ROWS][VECTORS]: over k of a [k][ROWS] × b [k][COLUMNS].
#define BLOCK_SUMS(sums, pa, pb, n)                                                                      \
  VT sums[ROWS][VECTORS];                                                                                \
  EACH_SUM(sums[r][v] = (VT)0)                                                                           \
  for (long k_ = 0; k_ < (n); ++k_) {                                                                    \
    VT b_[VECTORS];                                                                                      \
    _Pragma("unroll") for (int v = 0; v < VECTORS; ++v) b_[v] = vload16(v, (pb) + k_ * COLUMNS);         \
    _Pragma("unroll") for (int r = 0; r < ROWS; ++r) {                                                   \
      const VT x_ = (VT)((pa)[k_ * ROWS + r]);                                                           \
      _Pragma("unroll") for (int v = 0; v < VECTORS; ++v) sums[r][v] = MULTIPLY_ADD(x_, b_[v], sums[r][v]); \
    }                                                                                                    \
  }

// Sums in memory [ROWS][COLUMNS]: added, and kept there.
#define EACH_SUM(code)                                    \
  _Pragma("unroll") for (int r = 0; r < ROWS; ++r)        \
    _Pragma("unroll") for (int v = 0; v < VECTORS; ++v) { code; }
#define ADD_SUMS(sums, from) EACH_SUM(sums[r][v] += vload16(r * VECTORS + v, from))
#define KEEP_SUMS(sums, to) EACH_SUM(vstore16(sums[r][v], r * VECTORS + v, to))

#define ZIP_LO(a, b)                                                                                         \
  ((VT)(a.s0, b.s0, a.s1, b.s1, a.s2, b.s2, a.s3, b.s3, a.s4, b.s4, a.s5, b.s5, a.s6, b.s6, a.s7, b.s7))
#define ZIP_HI(a, b)                                                                                         \
  ((VT)(a.s8, b.s8, a.s9, b.s9, a.sa, b.sa, a.sb, b.sb, a.sc, b.sc, a.sd, b.sd, a.se, b.se, a.sf, b.sf))
// N vectors of 16 to 16 runs of N: each round moves the highest bit of the row's number behind the column's.
#define TRANSPOSE(x, N)                                  \
  _Pragma("unroll") for (int s_ = 1; s_ < N; s_ *= 2) {  \
    VT y_[N];                                            \
    _Pragma("unroll") for (int i_ = 0; i_ < N / 2; ++i_) { \
      y_[2 * i_] = ZIP_LO(x[i_], x[i_ + N / 2]);         \
      y_[2 * i_ + 1] = ZIP_HI(x[i_], x[i_ + N / 2]);     \
    }                                                    \
    _Pragma("unroll") for (int i_ = 0; i_ < N; ++i_) x[i_] = y_[i_]; \
  }

// 16 steps of ROWS rows to a panel [k][ROWS]; x: the rows, and room for as many as make a power of two.
#if ROWS == 6
#define ROWS_ROOM 8
#define PUT_ROWS(x, to)                                        \
  TRANSPOSE(x, 8)                                              \
  _Pragma("unroll") for (int j_ = 0; j_ < 8; ++j_) {           \
    vstore4(x[j_].lo.lo, 0, (to) + j_ * 12);                   \
    vstore2(x[j_].lo.hi.lo, 0, (to) + j_ * 12 + 4);            \
    vstore4(x[j_].hi.lo, 0, (to) + j_ * 12 + 6);               \
    vstore2(x[j_].hi.hi.lo, 0, (to) + j_ * 12 + 10);           \
  }
#else
#define ROWS_ROOM ROWS
#define PUT_ROWS(x, to)                                        \
  TRANSPOSE(x, ROWS)                                           \
  _Pragma("unroll") for (int j_ = 0; j_ < ROWS; ++j_) vstore16(x[j_], j_, to);
#endif
