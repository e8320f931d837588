// out = epilogue(alpha × a·b + beta × c) in blocks of ROWS × COLUMNS.
//
// On a processor `multiply` takes block_m × block_n of the result at a time, DEPTH of the reduced dimension at a time:
// both operands are laid out in panels as the inner loop reads them, converted, in memory of the group that stays in
// the cache. To do so again for each block costs less than a launch that does it before. Elsewhere `tiles` works through
// local memory.
// Macros: those of block.cl and vector.cl, which go before; FINISH with the epilogue.
typedef struct {
  long batch, m, n, k;
  long a_stride[3], b_stride[3], c_stride[3], out_stride[3];
  long a_offset, b_offset, c_offset, out_offset;
  long own_offset, own_bytes;  // of a group
  long block_m, block_n;
  long has_c;
  ulong alpha[2], beta[2];
  long extra_offset[8], extra_stride[8][3];
  ulong scalar[32];
} P;

#ifdef MULTIPLY
#define DEPTH 256

// A panel [k][ROWS] of n steps. What lies beyond the edge is never used: it may be anything.
static inline void pack_rows(__global const uchar* from, long at, long across, long along, long count, long n,
                             __global CT* panel) {
  long k = 0;
  if (along == 1) {
    for (; k + 16 <= n; k += 16) {
      VT x[ROWS_ROOM];
#pragma unroll
      for (int r = 0; r < ROWS_ROOM; ++r)
        x[r] = r < ROWS ? LOAD16_X(from, at + min((long)r, count - 1) * across + k) : (VT)0;
      PUT_ROWS(x, panel + k * ROWS)
    }
  } else if (count == ROWS) {
    for (; k < n; ++k) {
#pragma unroll
      for (int r = 0; r < ROWS; ++r) panel[k * ROWS + r] = LOAD_X(from, at + r * across + k * along);
    }
  }
  for (; k < n; ++k)
    for (int r = 0; r < ROWS; ++r) panel[k * ROWS + r] = LOAD_X(from, at + min((long)r, count - 1) * across + k * along);
}
// A panel [k][COLUMNS].
static inline void pack_columns(__global const uchar* from, long at, long across, long along, long count, long n,
                                __global CT* panel) {
  long k = 0;
  if (across == 1 && count == COLUMNS) {
    for (; k < n; ++k)
      for (int v = 0; v < VECTORS; ++v) vstore16(LOAD16_X(from, at + k * along + v * 16), v, panel + k * COLUMNS);
  } else if (along == 1) {
    for (; k + 16 <= n; k += 16)
      for (int v = 0; v < VECTORS; ++v) {
        VT x[16];
        for (int l = 0; l < 16; ++l) x[l] = LOAD16_X(from, at + min((long)(v * 16 + l), count - 1) * across + k);
        TRANSPOSE(x, 16)
#pragma unroll
        for (int l = 0; l < 16; ++l) vstore16(x[l], v, panel + (k + l) * COLUMNS);
      }
  }
  for (; k < n; ++k)
    for (int i = 0; i < COLUMNS; ++i)
      panel[k * COLUMNS + i] = LOAD_X(from, at + min((long)i, count - 1) * across + k * along);
}
#endif

#define OUTPUT(row, column, sum)                                                                       \
  {                                                                                                    \
    const long row_ = row, column_ = column;                                                           \
    const CT result = RESULT(sum);                                                                     \
    FINISH                                                                                             \
  }

#ifdef MULTIPLY
__kernel void multiply(const P p, __global const uchar* a_base, __global const uchar* b_base,
                       __global uchar* own_base, __global const uchar* c_base,
                       __global uchar* out_base EXTRA_ARGUMENTS, __global Fault* fault, ulong tag) {
  __global const uchar *a = a_base + p.a_offset, *b = b_base + p.b_offset, *c = c_base + p.c_offset;
  __global uchar* out = out_base + p.out_offset;
  // Sums, and a's and b's panels.
  __global CT* sums = (__global CT*)(own_base + p.own_offset + get_group_id(0) * p.own_bytes);
  __global CT *own_a = sums + p.block_m * p.block_n, *own_b = own_a + p.block_m * min(p.k, (long)DEPTH);
  const long row_blocks = (p.m + p.block_m - 1) / p.block_m, column_blocks = (p.n + p.block_n - 1) / p.block_n;
  UNITS(unit, p.batch * column_blocks * row_blocks) {
    const long m0 = unit % row_blocks * p.block_m, n0 = unit / row_blocks % column_blocks * p.block_n;
    const long batch = unit / row_blocks / column_blocks;
    const long a_at = batch * p.a_stride[0], b_at = batch * p.b_stride[0];
    const long rows = (min(p.block_m, p.m - m0) + ROWS - 1) / ROWS;              // panels
    const long columns = (min(p.block_n, p.n - n0) + COLUMNS - 1) / COLUMNS;
    for (long k0 = 0; k0 < p.k; k0 += DEPTH) {
      const long depth = min((long)DEPTH, p.k - k0);
      const int first = k0 == 0, last = k0 + depth == p.k;
      const long a_step = ROWS * depth, b_step = COLUMNS * depth;
      for (long i = 0; i < rows; ++i)
        pack_rows(a, a_at + (m0 + i * ROWS) * p.a_stride[1] + k0 * p.a_stride[2], p.a_stride[1], p.a_stride[2],
                  min((long)ROWS, p.m - m0 - i * ROWS), depth, own_a + i * a_step);
      for (long j = 0; j < columns; ++j)
        pack_columns(b, b_at + k0 * p.b_stride[1] + (n0 + j * COLUMNS) * p.b_stride[2], p.b_stride[2], p.b_stride[1],
                     min((long)COLUMNS, p.n - n0 - j * COLUMNS), depth, own_b + j * b_step);
      for (long j = 0; j < columns; ++j)
        for (long i = 0; i < rows; ++i) {
          BLOCK_SUMS(block, own_a + i * a_step, own_b + j * b_step, depth)
          __global CT* kept = sums + (j * rows + i) * ROWS * COLUMNS;
          if (!first) ADD_SUMS(block, kept)
          if (!last) {
            KEEP_SUMS(block, kept)
            continue;
          }
          CT tile[ROWS * COLUMNS];
          KEEP_SUMS(block, tile)
          const long row0 = m0 + i * ROWS, column0 = n0 + j * COLUMNS;
          const int height = min((long)ROWS, p.m - row0), width = min((long)COLUMNS, p.n - column0);
          for (int r = 0; r < height; ++r) {
            if (width == COLUMNS) {
#pragma clang loop vectorize(assume_safety)
              for (int l = 0; l < COLUMNS; ++l) OUTPUT(row0 + r, column0 + l, tile[r * COLUMNS + l])
            } else {
              for (int l = 0; l < width; ++l) OUTPUT(row0 + r, column0 + l, tile[r * COLUMNS + l])
            }
          }
        }
    }
  }
}
#endif

#ifdef TILES
// A group of SIDE × SIDE work-items makes a block of that many times 4 rows and columns.
#define SIDE 16
#define BLOCK (SIDE * 4)
#define DEPTH 16
__kernel void tiles(const P p, __global const uchar* a_base, __global const uchar* b_base,
                    __global const uchar* c_base, __global uchar* out_base EXTRA_ARGUMENTS, __global Fault* fault,
                    ulong tag) {
  __local CT left[DEPTH][BLOCK + 1], right[DEPTH][BLOCK + 1];
  __global const uchar* a = a_base + p.a_offset;
  __global const uchar* b = b_base + p.b_offset;
  __global const uchar* c = c_base + p.c_offset;
  __global uchar* out = out_base + p.out_offset;
  const long row_blocks = (p.m + BLOCK - 1) / BLOCK, column_blocks = (p.n + BLOCK - 1) / BLOCK;
  const long group = get_group_id(0), batch = group / (row_blocks * column_blocks);
  const long m0 = group / column_blocks % row_blocks * BLOCK, n0 = group % column_blocks * BLOCK;
  const int id = get_local_id(0), ty = id / SIDE, tx = id % SIDE;
  CT sum[4][4];
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) sum[i][j] = ZERO;
  for (long k0 = 0; k0 < p.k; k0 += DEPTH) {
    for (int i = id; i < BLOCK * DEPTH; i += SIDE * SIDE) {
      // The dimension with stride 1 goes along the work-items.
      const int by_k = p.a_stride[2] == 1;
      const int k = by_k ? i % DEPTH : i / BLOCK, m = by_k ? i / DEPTH : i % BLOCK;
      left[k][m] = m0 + m < p.m && k0 + k < p.k
                       ? LOAD_X(a, batch * p.a_stride[0] + (m0 + m) * p.a_stride[1] + (k0 + k) * p.a_stride[2]) : ZERO;
      const int b_by_k = p.b_stride[1] == 1;
      const int kb = b_by_k ? i % DEPTH : i / BLOCK, n = b_by_k ? i / DEPTH : i % BLOCK;
      right[kb][n] = n0 + n < p.n && k0 + kb < p.k
                         ? LOAD_X(b, batch * p.b_stride[0] + (k0 + kb) * p.b_stride[1] + (n0 + n) * p.b_stride[2]) : ZERO;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < DEPTH; ++k)
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j)
          sum[i][j] = MULTIPLY_ADD(left[k][ty + i * SIDE], right[k][tx + j * SIDE], sum[i][j]);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) {
      const long m = m0 + ty + i * SIDE, n = n0 + tx + j * SIDE;
      if (m < p.m && n < p.n) OUTPUT(m, n, sum[i][j])
    }
}
#endif

#ifdef PLAIN
// A work-item for each element: for types without vectors of 16.
__kernel void plain(const P p, __global const uchar* a_base, __global const uchar* b_base,
                    __global const uchar* c_base, __global uchar* out_base EXTRA_ARGUMENTS, __global Fault* fault,
                    ulong tag) {
  __global const uchar* a = a_base + p.a_offset;
  __global const uchar* b = b_base + p.b_offset;
  __global const uchar* c = c_base + p.c_offset;
  __global uchar* out = out_base + p.out_offset;
  const long units = p.batch * p.m * p.n;
  UNITS(unit, units) {
    const long batch = unit / (p.m * p.n), m = unit / p.n % p.m, n = unit % p.n;
    CT sum = ZERO;
    for (long k = 0; k < p.k; ++k)
      sum = MULTIPLY_ADD(LOAD_X(a, batch * p.a_stride[0] + m * p.a_stride[1] + k * p.a_stride[2]),
                         LOAD_X(b, batch * p.b_stride[0] + k * p.b_stride[1] + n * p.b_stride[2]), sum);
    OUTPUT(m, n, sum)
  }
}
#endif
