// The inner loop of products of packed panels: ROWS × COLUMNS sums that stay in registers.
// Macros: CT (computed in), VT (16 of it), ROWS, MULTIPLY_ADD(x, y, z).
#define COLUMNS 32

// Declares s0 and s1, the halves of each row: over k of a [k][ROWS] × b [k][COLUMNS].
#define BLOCK_SUMS(pa, pb, n)                                                       \
  VT s0[ROWS], s1[ROWS];                                                            \
  _Pragma("unroll") for (int r = 0; r < ROWS; ++r) s0[r] = s1[r] = (VT)0;           \
  for (long k_ = 0; k_ < (n); ++k_) {                                               \
    const VT b0 = vload16(0, (pb) + k_ * COLUMNS), b1 = vload16(1, (pb) + k_ * COLUMNS); \
    _Pragma("unroll") for (int r = 0; r < ROWS; ++r) {                              \
      const VT x = (VT)((pa)[k_ * ROWS + r]);                                       \
      s0[r] = MULTIPLY_ADD(x, b0, s0[r]);                                           \
      s1[r] = MULTIPLY_ADD(x, b1, s1[r]);                                           \
    }                                                                               \
  }
