// out = epilogue(alpha × a·b + beta × c) in blocks of ROWS × COLUMNS.
//
// On a processor: `pack` lays a and b out in panels as the inner loop reads them, converted and padded with zeros, so
// that `multiply` knows one layout and no edges; its accumulators are vectors that stay in registers. Elsewhere `tiles`
// works through local memory.
// Macros: those of block.cl, which goes before; LOAD_B (dtype in memory), FINISH(value) with the epilogue.
typedef struct {
  long batch, m, n, k;
  long a_stride[3], b_stride[3], c_stride[3], out_stride[3];
  long a_batches, b_batches;  // 1 when the batch shares one matrix
  long a_offset, b_offset, c_offset, out_offset, packed_a, packed_b;
  long has_c;
  ulong alpha[2], beta[2];
  long extra_offset[8], extra_stride[8][3];
  ulong scalar[32];
} P;

#ifdef PACK
// side 0: a in panels [m / ROWS][k][ROWS]; side 1: b in panels [n / COLUMNS][k][COLUMNS].
__kernel void pack(PARAMETERS, long parameters_offset, int side, __global const uchar* from, __global uchar* to) {
#ifdef IN_MEMORY
  const P p = *(__global const P*)((__global const uchar*)parameters + parameters_offset);
#endif
  const long width = side ? COLUMNS : ROWS, across = side ? p.n : p.m, panels = (across + width - 1) / width;
  const long units = (side ? p.b_batches : p.a_batches) * panels;
  __global const uchar* source = from + (side ? p.b_offset : p.a_offset);
  __global CT* target = (__global CT*)(to + (side ? p.packed_b : p.packed_a));
  const long s_batch = side ? p.b_stride[0] : p.a_stride[0], s_k = side ? p.b_stride[1] : p.a_stride[2],
             s_across = side ? p.b_stride[2] : p.a_stride[1];
  const long groups = get_num_groups(0), chunk = (units + groups - 1) / groups, begin = get_group_id(0) * chunk;
  const long end = min(units, begin + chunk);
  for (long unit = begin; unit < end; ++unit) {
    const long first = unit % panels * width, count = min(width, across - first);
    const long base = unit / panels * s_batch + first * s_across;
    __global CT* panel = target + unit * width * p.k;
    if (count < width || s_across == 1) {
      for (long k = 0; k < p.k; ++k) {
        if (count == width && side) {
          for (long i = 0; i < COLUMNS; ++i) panel[k * COLUMNS + i] = LOAD_B(source, base + k * s_k + i);
        } else {
          for (long i = 0; i < width; ++i)
            panel[k * width + i] = i < count ? LOAD_B(source, base + k * s_k + i * s_across) : (CT)0;
        }
      }
    } else {
      // The reduced dimension lies together: blocks of it, so that both sides stay in the cache.
      for (long k0 = 0; k0 < p.k; k0 += 16)
        for (long i = 0; i < width; ++i)
          for (long k = k0; k < min(p.k, k0 + 16); ++k) panel[k * width + i] = LOAD_B(source, base + k * s_k + i * s_across);
    }
  }
}
#endif

#define OUTPUT(row, column, sum)                                                                       \
  {                                                                                                    \
    const long row_ = row, column_ = column;                                                           \
    const CT result = RESULT(sum);                                                                     \
    FINISH                                                                                             \
  }

#ifdef MULTIPLY
__kernel void multiply(PARAMETERS, long parameters_offset, __global const uchar* packed, __global const uchar* packed2,
                       __global const uchar* c_base, __global uchar* out_base EXTRA_ARGUMENTS, __global Fault* fault,
                       ulong tag) {
#ifdef IN_MEMORY
  const P p = *(__global const P*)((__global const uchar*)parameters + parameters_offset);
#endif
  __global const CT* a = (__global const CT*)(packed + p.packed_a);
  __global const CT* b = (__global const CT*)(packed2 + p.packed_b);
  __global const uchar* c = c_base + p.c_offset;
  __global uchar* out = out_base + p.out_offset;
  const long row_panels = (p.m + ROWS - 1) / ROWS, column_panels = (p.n + COLUMNS - 1) / COLUMNS;
  const long units = p.batch * column_panels * row_panels;
  const long groups = get_num_groups(0), chunk = (units + groups - 1) / groups, begin = get_group_id(0) * chunk;
  const long end = min(units, begin + chunk);
  for (long unit = begin; unit < end; ++unit) {
    const long rp = unit % row_panels, cp = unit / row_panels % column_panels, batch = unit / row_panels / column_panels;
    __global const CT* pa = a + ((p.a_batches == 1 ? 0 : batch) * row_panels + rp) * ROWS * p.k;
    __global const CT* pb = b + ((p.b_batches == 1 ? 0 : batch) * column_panels + cp) * COLUMNS * p.k;
    BLOCK_SUMS(pa, pb, p.k)
    const long m0 = rp * ROWS, n0 = cp * COLUMNS, rows = min((long)ROWS, p.m - m0), columns = min((long)COLUMNS, p.n - n0);
    CT tile[ROWS * COLUMNS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      vstore16(s0[r], 0, tile + r * COLUMNS);
      vstore16(s1[r], 1, tile + r * COLUMNS);
    }
    for (long r = 0; r < rows; ++r)
      for (long i = 0; i < columns; ++i) OUTPUT(m0 + r, n0 + i, tile[r * COLUMNS + i])
  }
}
#endif

#ifdef TILES
// A group of SIDE × SIDE work-items makes a block of that many times 4 rows and columns.
#define SIDE 16
#define BLOCK (SIDE * 4)
#define DEPTH 16
__kernel void tiles(PARAMETERS, long parameters_offset, __global const uchar* a_base, __global const uchar* b_base,
                    __global const uchar* c_base, __global uchar* out_base EXTRA_ARGUMENTS, __global Fault* fault,
                    ulong tag) {
#ifdef IN_MEMORY
  const P p = *(__global const P*)((__global const uchar*)parameters + parameters_offset);
#endif
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
                       ? LOAD_B(a, batch * p.a_stride[0] + (m0 + m) * p.a_stride[1] + (k0 + k) * p.a_stride[2]) : ZERO;
      const int b_by_k = p.b_stride[1] == 1;
      const int kb = b_by_k ? i % DEPTH : i / BLOCK, n = b_by_k ? i / DEPTH : i % BLOCK;
      right[kb][n] = n0 + n < p.n && k0 + kb < p.k
                         ? LOAD_B(b, batch * p.b_stride[0] + (k0 + kb) * p.b_stride[1] + (n0 + n) * p.b_stride[2]) : ZERO;
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
__kernel void plain(PARAMETERS, long parameters_offset, __global const uchar* a_base, __global const uchar* b_base,
                    __global const uchar* c_base, __global uchar* out_base EXTRA_ARGUMENTS, __global Fault* fault,
                    ulong tag) {
#ifdef IN_MEMORY
  const P p = *(__global const P*)((__global const uchar*)parameters + parameters_offset);
#endif
  __global const uchar* a = a_base + p.a_offset;
  __global const uchar* b = b_base + p.b_offset;
  __global const uchar* c = c_base + p.c_offset;
  __global uchar* out = out_base + p.out_offset;
  const long units = p.batch * p.m * p.n;
  for (long unit = get_global_id(0); unit < units; unit += get_global_size(0)) {
    const long batch = unit / (p.m * p.n), m = unit / p.n % p.m, n = unit % p.n;
    CT sum = ZERO;
    for (long k = 0; k < p.k; ++k)
      sum = MULTIPLY_ADD(LOAD_B(a, batch * p.a_stride[0] + m * p.a_stride[1] + k * p.a_stride[2]),
                         LOAD_B(b, batch * p.b_stride[0] + k * p.b_stride[1] + n * p.b_stride[2]), sum);
    OUTPUT(m, n, sum)
  }
}
#endif
