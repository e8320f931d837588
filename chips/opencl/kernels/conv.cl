// Convolution as products of panels that are packed straight from the image (vector.cl and block.cl go before).
//
// Host and kernels see one correlation: position i of the result (a lattice in the tensor) meets with tap t the source
// at i × step + base + t × tap_step, where outside is zero. The gradient of x is one for each phase of the stride.
// On a processor `correlate` packs the windows of a block of positions into memory of its group, which stays in the
// cache, and multiplies all weights with them, DEPTH of the sum at a time; `weigh` (the gradient of w) packs blocks of
// both operands. Elsewhere `tiles` does either through local memory.
// Macros: those of block.cl and vector.cl; MASK (of integers as wide as CT), TO_MASK; one of PACK, CORRELATE, WEIGH,
// JOIN, TILES and TILES_WEIGH.
typedef struct {
  long units, groups, splits;
  long m, depth, images, channels;  // of a group: rows (of the result, or of w's gradient) and source channels
  long size[3], from[3], taps[3], step[3], base[3], tap_step[3];
  long source_offset, source_image, source_channel, source_stride[3], source_extent;
  long target_offset, target_image, target_channel, target_stride[3];
  long weight_offset, weight_group, weight_row, weight_channel, weight_tap[3];
  long bias_offset, bias_stride, has_bias;
  long packed_offset, group_offset, group_bytes;
  // Positions packed together; weigh: parts of all positions, columns of a unit; correlate: rows with sums in memory.
  long block, pieces, chunk;
} P;

#define ARGUMENTS                                                                                             \
  const P p, __global uchar *source_base, __global uchar *target_base,               \
      __global uchar *weight_base, __global uchar *bias_base, __global uchar *packed_base, __global uchar *own_base
#define ROW_PANELS ((p.m + ROWS - 1) / ROWS)
#define TAPS (p.taps[0] * p.taps[1] * p.taps[2])
#define POSITIONS_OF(p) ((p)->images * (p)->size[0] * (p)->size[1] * (p)->size[2])
#define POSITIONS POSITIONS_OF(&p)
// Columns of the gradient of w: tap, then channel.
#define WIDTH (TAPS * p.channels)

// Where the source lies that a tap and channel of a group sees at a position; false outside.
static inline int find_source(const P* p, long group, long tapped, long position, long* at) {
  const long tap = tapped / p->channels, c = tapped % p->channels;
  const long t[3] = {tap / p->taps[2] / p->taps[1], tap / p->taps[2] % p->taps[1], tap % p->taps[2]};
  long rest = position;
  int inside = 1;
  *at = (group * p->channels + c) * p->source_channel;
  for (int d = 2; d >= 0; --d) {
    const long s = rest % p->size[d] * p->step[d] + p->base[d] + t[d] * p->tap_step[d];
    rest /= p->size[d];
    inside &= s >= 0 && s < p->from[d];
    *at += s * p->source_stride[d];
  }
  *at += rest * p->source_image;
  return inside;
}
static inline long target_at(const P* p, long position) {
  long at = 0, rest = position;
  for (int d = 2; d >= 0; --d) {
    at += rest % p->size[d] * p->target_stride[d];
    rest /= p->size[d];
  }
  return at + rest * p->target_image;
}
static inline long tap_at(const P* p, long tap) {
  return tap % p->taps[2] * p->weight_tap[2] + tap / p->taps[2] % p->taps[1] * p->weight_tap[1] +
         tap / p->taps[2] / p->taps[1] * p->weight_tap[0];
}

// What lies outside takes no part: zeros in its place make infinite weights or gradients NaN. So a sum that is NaN is
// made again without them, up to the first NaN, which is soon met where many are.
#define PLAIN _Pragma("clang loop vectorize(disable) interleave(disable) unroll(disable)")
static CT sum_inside(__global const uchar* x, __global const uchar* w, const P* p, long group, long row, long position) {
  CT sum = 0;
  PLAIN for (long k = 0; k < p->depth && !isnan(sum); ++k) {
    long at;
    if (find_source(p, group, k, position, &at))
      sum = MULTIPLY_ADD(LOAD_X(w, group * p->weight_group + row * p->weight_row +
                                       k % p->channels * p->weight_channel + tap_at(p, k / p->channels)),
                         LOAD_X(x, at), sum);
  }
  return sum;
}
// Whether a tap sees the outside from any position.
static inline int leaves(const P* p, long tap) {
  const long t[3] = {tap / p->taps[2] / p->taps[1], tap / p->taps[2] % p->taps[1], tap % p->taps[2]};
  int out = 0;
  for (int d = 0; d < 3; ++d) {
    const long first = p->base[d] + t[d] * p->tap_step[d], last = first + (p->size[d] - 1) * p->step[d];
    out |= first < 0 || last >= p->from[d];
  }
  return out;
}
static CT weigh_inside(__global const uchar* x, __global const uchar* y, const P* p, long group, long row, long tapped) {
  WIDE sum = 0;
  PLAIN for (long position = 0; position < POSITIONS_OF(p) && !isnan(sum); ++position) {
    long at;
    if (find_source(p, group, tapped, position, &at))
      sum += (WIDE)LOAD_X(y, (group * p->m + row) * p->target_channel + target_at(p, position)) * LOAD_X(x, at);
  }
  return (CT)sum;
}

#ifdef PACK
// Weights in panels [group][m / ROWS][tap][channel][ROWS].
__kernel void conv(ARGUMENTS) {
  __global CT* packed = (__global CT*)(packed_base + p.packed_offset);
  __global const uchar* w = weight_base + p.weight_offset;
  UNITS(unit, p.groups * ROW_PANELS) {
    const long group = unit / ROW_PANELS, first = unit % ROW_PANELS * ROWS, rows = min((long)ROWS, p.m - first);
    __global CT* panel = packed + unit * p.depth * ROWS;
    const long origin = group * p.weight_group + first * p.weight_row;
    for (long tap = 0; tap < TAPS; ++tap) {
      const long at = origin + tap_at(&p, tap);
      for (long r = 0; r < ROWS; ++r)
        for (long c = 0; c < p.channels; ++c)
          panel[(tap * p.channels + c) * ROWS + r] =
              r < rows ? LOAD_X(w, at + r * p.weight_row + c * p.weight_channel) : (CT)0;
    }
  }
}
#endif

#if defined(CORRELATE) || defined(WEIGH)
#define RUNS 4
// 16 positions: where their windows begin in the source, as runs of neighbours, and where they lie in the target.
typedef struct {
  long off[16], to[16];
  int16 s0, s1, s2, used;  // used: -1 where there is a position
  MASK run[RUNS];
  long delta[RUNS];
  int runs;            // 0: too many
  long low, high;      // least and largest offset that a load of all runs touches
  int dense, count;    // the target's positions are neighbours; positions
} Lanes;

static inline void find_lanes(Lanes* q, const P* p, long first) {
  int s0[16], s1[16], s2[16], used[16], number[16];
  const long positions = p->images * p->size[0] * p->size[1] * p->size[2], step = p->step[2] * p->source_stride[2];
  long rest = min(first, positions - 1);
  int i2 = rest % p->size[2];
  rest /= p->size[2];
  int i1 = rest % p->size[1];
  rest /= p->size[1];
  int i0 = rest % p->size[0];
  long image = rest / p->size[0];
  q->runs = 0;
  q->dense = 1;
  q->count = min(16L, max(0L, positions - first));
  long delta = 0;
  int run = -1;
  for (int l = 0; l < 16; ++l) {
    used[l] = l < q->count ? -1 : 0;
    s0[l] = i0 * p->step[0] + p->base[0];
    s1[l] = i1 * p->step[1] + p->base[1];
    s2[l] = i2 * p->step[2] + p->base[2];
    q->off[l] = image * p->source_image + s0[l] * p->source_stride[0] + s1[l] * p->source_stride[1] +
                s2[l] * p->source_stride[2];
    q->to[l] = image * p->target_image + i0 * p->target_stride[0] + i1 * p->target_stride[1] +
               i2 * p->target_stride[2];
    if (used[l]) {
      if (q->to[l] != q->to[0] + l) q->dense = 0;
      if (run < 0 || q->off[l] - l * step != delta) {
        ++run;
        delta = q->off[l] - l * step;
        if (run < RUNS) q->delta[run] = delta;
      }
    }
    number[l] = used[l] ? run : -1;
    if (l + 1 < q->count && ++i2 == p->size[2]) {
      i2 = 0;
      if (++i1 == p->size[1]) {
        i1 = 0;
        if (++i0 == p->size[0]) {
          i0 = 0;
          ++image;
        }
      }
    }
  }
  q->s0 = vload16(0, s0);
  q->s1 = vload16(0, s1);
  q->s2 = vload16(0, s2);
  q->used = vload16(0, used);
  const int16 numbers = vload16(0, number);
  q->runs = run < RUNS && (step == 1 || step == 2) ? run + 1 : 0;
  q->low = LONG_MAX;
  q->high = LONG_MIN;
  for (int r = 0; r < q->runs; ++r) {
    q->run[r] = TO_MASK(numbers == r);
    q->low = min(q->low, q->delta[r]);
    q->high = max(q->high, q->delta[r] + 15 * step);
  }
}

// -1 where the window of a position has the tap inside.
static inline int16 inside(const Lanes* q, const P* p, long t0, long t1, long t2) {
  const int16 a = q->s0 + (int)(t0 * p->tap_step[0]), b = q->s1 + (int)(t1 * p->tap_step[1]),
              c = q->s2 + (int)(t2 * p->tap_step[2]);
  return (a >= 0) & (a < (int)p->from[0]) & (b >= 0) & (b < (int)p->from[1]) & (c >= 0) & (c < (int)p->from[2]) &
         q->used;
}

static inline VT load_run(__global const uchar* x, long at, long step) {
  if (step == 1) return LOAD16_X(x, at);
  return (VT)(LOAD16_X(x, at).even, LOAD16_X(x, at + 15).odd);
}
// What the positions see at an offset from the beginning of their windows.
static inline VT load_lanes(__global const uchar* x, const Lanes* q, int16 valid, long at, long step, long extent) {
  if (q->runs && q->low + at >= 0 && q->high + at < extent) {
    const MASK mask = TO_MASK(valid);
    VT v = select((VT)0, load_run(x, q->delta[0] + at, step), q->run[0] & mask);
    for (int r = 1; r < q->runs; ++r) v = select(v, load_run(x, q->delta[r] + at, step), q->run[r] & mask);
    return v;
  }
  if (q->count == 0) return (VT)0;
  CT t[16];
  int ok[16];
  vstore16(valid, 0, ok);
  for (int l = 0; l < 16; ++l) {
    t[l] = 0;
    if (ok[l]) t[l] = LOAD_X(x, q->off[l] + at);
  }
  return vload16(0, t);
}
#endif

#ifdef CORRELATE
#define DEPTH 256
#define MOST_LANES 12
#define PANELS_AT_ONCE 32
// n steps from `begin` of what 16 positions see, COLUMNS apart.
static inline void pack_windows(__global const uchar* x, const Lanes* q, const P* p, long group, long begin, long n,
                                long step, __global CT* to) {
  long tap = begin / p->channels, c = begin % p->channels;
  for (long k = 0; k < n; ++tap, c = 0) {
    const long t2 = tap % p->taps[2], t1 = tap / p->taps[2] % p->taps[1], t0 = tap / p->taps[2] / p->taps[1];
    const long stop = min(n, k + p->channels - c);
    const int16 valid = inside(q, p, t0, t1, t2);
    long at = (group * p->channels + c) * p->source_channel + t0 * p->tap_step[0] * p->source_stride[0] +
              t1 * p->tap_step[1] * p->source_stride[1] + t2 * p->tap_step[2] * p->source_stride[2];
    if (step == 1 && q->runs == 1 && all(valid)) {
      for (; k < stop; ++k, at += p->source_channel) vstore16(LOAD16_X(x, q->delta[0] + at), 0, to + k * COLUMNS);
    } else {
      for (; k < stop; ++k, at += p->source_channel)
        vstore16(load_lanes(x, q, valid, at, step, p->source_extent), 0, to + k * COLUMNS);
    }
  }
}

__kernel void conv(ARGUMENTS) {
  __global const CT* packed = (__global const CT*)(packed_base + p.packed_offset);
  __global const uchar* x = source_base + p.source_offset;
  __global uchar* y = target_base + p.target_offset;
  __global const uchar* w = weight_base + p.weight_offset;
  __global const uchar* bias = bias_base + p.bias_offset;
  __global CT* sums = (__global CT*)(own_base + p.group_offset + get_group_id(0) * p.group_bytes);
  __global CT* right = sums + p.chunk * p.block;
  const long row_panels = ROW_PANELS, step = p.step[2] * p.source_stride[2];
  // A unit: a block of positions and a split of what they are multiplied with.
  const long all_panels = p.groups * row_panels, per_split = (all_panels + p.splits - 1) / p.splits;
  UNITS(unit, p.units) {
    const long first = unit / p.splits * p.block, count = min(p.block, POSITIONS - first);
    const long columns = (count + COLUMNS - 1) / COLUMNS;
    Lanes lanes[MOST_LANES];
    for (long l = 0; l < columns * VECTORS; ++l) find_lanes(&lanes[l], &p, first + 16 * l);
    const long stop = min(all_panels, (unit % p.splits + 1) * per_split);
    for (long from = unit % p.splits * per_split, to; from < stop; from = to) {
      const long group = from / row_panels;
      to = min(stop, (group + 1) * row_panels);
      long k0 = 0;
      do {
        const long n = min((long)DEPTH, p.depth - k0);
        const int begins = k0 == 0, ends = k0 + n == p.depth;
        for (long l = 0; l < columns * VECTORS; ++l)
          pack_windows(x, &lanes[l], &p, group, k0, n, step, right + l / VECTORS * COLUMNS * n + l % VECTORS * 16);
        for (long part = from; part < to; part += PANELS_AT_ONCE)
          for (long j = 0; j < columns; ++j)
            for (long panel = part; panel < min(to, part + PANELS_AT_ONCE); ++panel) {
              BLOCK_SUMS(block, packed + (panel * p.depth + k0) * ROWS, right + j * COLUMNS * n, n)
              __global CT* kept = sums + ((panel - from) * columns + j) * ROWS * COLUMNS;
              if (!begins) ADD_SUMS(block, kept)
              if (!ends) {
                KEEP_SUMS(block, kept)
                continue;
              }
              CT tile[ROWS * COLUMNS];
              KEEP_SUMS(block, tile)
              const long m0 = panel % row_panels * ROWS, rows = min((long)ROWS, p.m - m0);
              for (long r = 0; r < rows; ++r) {
                const long row = group * p.m + m0 + r, at = row * p.target_channel;
                const CT add = p.has_bias ? LOAD_X(bias, row * p.bias_stride) : (CT)0;
                for (int v = 0; v < VECTORS; ++v) {
                  const Lanes* q = &lanes[j * VECTORS + v];
                  VT sum = vload16(r * VECTORS + v, tile);
                  if (any(isnan(sum))) {
                    CT again[16];
                    vstore16(sum, 0, again);
                    PLAIN for (int l = 0; l < q->count; ++l)
                      if (isnan(again[l]))
                        again[l] = sum_inside(x, w, &p, group, m0 + r, first + j * COLUMNS + v * 16 + l);
                    sum = vload16(0, again);
                  }
                  sum += add;
                  if (q->dense && q->count == 16) {
                    STORE16_X(y, at + q->to[0], sum);
                  } else {
                    CT some[16];
                    vstore16(sum, 0, some);
                    for (int l = 0; l < q->count; ++l) STORE_X(y, at + q->to[l], some[l]);
                  }
                }
              }
            }
        k0 += n;
      } while (k0 < p.depth);
    }
  }
}
#endif

// Sums of the gradient of w before they are joined: [piece][group][column / COLUMNS][row / ROWS][ROWS][COLUMNS].
#define COLUMN_PANELS ((WIDTH + COLUMNS - 1) / COLUMNS)
#define PANEL(piece, group, column, row) \
  ((((piece) * p.groups + (group)) * COLUMN_PANELS + (column)) * ROW_PANELS + (row)) * ROWS * COLUMNS

#ifdef WEIGH
__kernel void conv(ARGUMENTS) {
  __global const uchar* x = source_base + p.source_offset;
  __global const uchar* y = target_base + p.target_offset;
  __global CT* sums = (__global CT*)(packed_base + p.packed_offset);
  __global CT* left = (__global CT*)(own_base + p.group_offset + get_group_id(0) * p.group_bytes);
  const long row_panels = ROW_PANELS, chunks = (WIDTH + p.chunk - 1) / p.chunk, step = p.step[2] * p.source_stride[2];
  __global CT* right = left + row_panels * ROWS * p.block;
  const long blocks = (POSITIONS + p.block - 1) / p.block, per_piece = (blocks + p.pieces - 1) / p.pieces;
  UNITS(unit, p.units) {
    const long piece = unit % p.pieces, chunk = unit / p.pieces % chunks, group = unit / p.pieces / chunks;
    const long q0 = chunk * p.chunk, q1 = min(WIDTH, q0 + p.chunk), panels = (q1 - q0 + COLUMNS - 1) / COLUMNS;
    int fresh = 1;
    for (long b = piece * per_piece, b1 = min(blocks, b + per_piece); b < b1 || fresh; ++b) {
      const long begin = b * p.block, n = b < b1 ? min(p.block, POSITIONS - begin) : 0;
      for (long k = 0; k < n; k += 16) {
        Lanes lanes;
        find_lanes(&lanes, &p, begin + k);
        for (long row = 0; row < row_panels * ROWS; row += ROWS) {
          VT t[ROWS_ROOM];
#pragma unroll
          for (int r = 0; r < ROWS_ROOM; ++r) {
            const long at = (group * p.m + row + r) * p.target_channel;
            if (r >= ROWS || row + r >= p.m) {
              t[r] = (VT)0;
            } else if (lanes.dense && lanes.count == 16) {
              t[r] = load_run(y, at + lanes.to[0], 1);
            } else {
              CT some[16];
              for (int l = 0; l < 16; ++l) {
                some[l] = 0;
                if (l < lanes.count) some[l] = LOAD_X(y, at + lanes.to[l]);
              }
              t[r] = vload16(0, some);
            }
          }
          __global CT* to = left + row * p.block + k * ROWS;
          PUT_ROWS(t, to)
        }
        long c = q0 % p.channels, tap = q0 / p.channels, at = 0;
        int16 valid = (int16)0;
        int known = 0;
        for (long q = 0; q < panels * COLUMNS; q += 16) {
          VT t[16];
          for (int l = 0; l < 16; ++l) {
            if (q0 + q + l >= q1) {
              t[l] = (VT)0;
              continue;
            }
            if (!known) {
              const long t2 = tap % p.taps[2], t1 = tap / p.taps[2] % p.taps[1], t0 = tap / p.taps[2] / p.taps[1];
              valid = inside(&lanes, &p, t0, t1, t2);
              at = (group * p.channels + c) * p.source_channel + t0 * p.tap_step[0] * p.source_stride[0] +
                   t1 * p.tap_step[1] * p.source_stride[1] + t2 * p.tap_step[2] * p.source_stride[2];
              known = 1;
            }
            t[l] = load_lanes(x, &lanes, valid, at, step, p.source_extent);
            at += p.source_channel;
            if (++c == p.channels) {
              c = 0;
              ++tap;
              known = 0;
            }
          }
          TRANSPOSE(t, 16)
          __global CT* to = right + (q / COLUMNS * p.block + k) * COLUMNS + q % COLUMNS;
#pragma unroll
          for (int l = 0; l < 16; ++l) vstore16(t[l], 0, to + l * COLUMNS);
        }
      }
      for (long panel = 0; panel < panels; ++panel)
        for (long row = 0; row < row_panels; ++row) {
          BLOCK_SUMS(block, left + row * ROWS * p.block, right + panel * COLUMNS * p.block, n)
          __global CT* to = sums + PANEL(piece, group, q0 / COLUMNS + panel, row);
          if (!fresh) ADD_SUMS(block, to)
          KEEP_SUMS(block, to)
        }
      fresh = 0;
    }
  }
}
#endif

#ifdef JOIN
__kernel void conv(ARGUMENTS) {
  __global const CT* sums = (__global const CT*)(packed_base + p.packed_offset);
  __global const uchar* x = source_base + p.source_offset;
  __global const uchar* y = target_base + p.target_offset;
  __global uchar* w = weight_base + p.weight_offset;
  UNITS(unit, p.units) {  // a row of w's gradient, and a channel
    const long c = unit % p.channels, row = unit / p.channels % p.m, group = unit / p.channels / p.m;
    for (long tap = 0; tap < TAPS; ++tap) {
      const long q = tap * p.channels + c;
      WIDE sum = 0;
      for (long piece = 0; piece < p.pieces; ++piece)
        sum += sums[PANEL(piece, group, q / COLUMNS, row / ROWS) + row % ROWS * COLUMNS + q % COLUMNS];
      const CT made = isnan(sum) && leaves(&p, tap) ? weigh_inside(x, y, &p, group, row, q) : (CT)sum;
      STORE_X(w, group * p.weight_group + row * p.weight_row + c * p.weight_channel + tap_at(&p, tap), made);
    }
  }
}
#endif

#if defined(TILES) || defined(TILES_WEIGH)
// A group of SIDE × SIDE work-items makes a block of 4 times as many rows and columns.
#define SIDE 16
#define BLOCK (SIDE * 4)
#define DEPTH 16
static inline CT source_at(__global const uchar* x, const P* p, long group, long tapped, long position) {
  long at;
  return find_source(p, group, tapped, position, &at) ? LOAD_X(x, at) : (CT)0;
}
__kernel void conv(ARGUMENTS) {
  __local CT left[DEPTH][BLOCK + 1], right[DEPTH][BLOCK + 1];
  __global const uchar* x = source_base + p.source_offset;
  __global uchar* y = target_base + p.target_offset;
  __global const uchar* w = weight_base + p.weight_offset;
  __global const uchar* bias = bias_base + p.bias_offset;
  __global CT* sums = (__global CT*)(packed_base + p.packed_offset);
#ifdef TILES
  const long n_all = POSITIONS, k_begin = 0, k_end = p.depth;
#else
  const long n_all = WIDTH, size = (POSITIONS + p.pieces - 1) / p.pieces, k_begin = get_group_id(0) % p.pieces * size,
             k_end = min(POSITIONS, k_begin + size);
#endif
  const long row_blocks = (p.m + BLOCK - 1) / BLOCK, column_blocks = (n_all + BLOCK - 1) / BLOCK;
  const long tile = get_group_id(0) / p.pieces, piece = get_group_id(0) % p.pieces;
  const long n0 = tile % column_blocks * BLOCK, m0 = tile / column_blocks % row_blocks * BLOCK,
             group = tile / column_blocks / row_blocks;
  const int id = get_local_id(0), ty = id / SIDE, tx = id % SIDE;
  CT sum[4][4];
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) sum[i][j] = 0;
  for (long k0 = k_begin; k0 < k_end; k0 += DEPTH) {
    for (int i = id; i < BLOCK * DEPTH; i += SIDE * SIDE) {
#ifdef TILES
      const int k = i % DEPTH, m = i / DEPTH, kb = i / BLOCK, n = i % BLOCK;
      const long kk = k0 + k, tap = kk / p.channels;
      left[k][m] = m0 + m < p.m && kk < k_end
                       ? LOAD_X(w, group * p.weight_group + (m0 + m) * p.weight_row +
                                       kk % p.channels * p.weight_channel + tap_at(&p, tap))
                       : (CT)0;
      right[kb][n] = n0 + n < n_all && k0 + kb < k_end ? source_at(x, &p, group, k0 + kb, n0 + n) : (CT)0;
#else
      const int k = i % DEPTH, m = i / DEPTH;
      left[k][m] = m0 + m < p.m && k0 + k < k_end
                       ? LOAD_X(y, (group * p.m + m0 + m) * p.target_channel + target_at(&p, k0 + k)) : (CT)0;
      right[k][m] = n0 + m < n_all && k0 + k < k_end ? source_at(x, &p, group, n0 + m, k0 + k) : (CT)0;
#endif
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
      if (m >= p.m || n >= n_all) continue;
#ifdef TILES
      const long row = group * p.m + m;
      const CT add = p.has_bias ? LOAD_X(bias, row * p.bias_stride) : (CT)0;
      const CT made = isnan(sum[i][j]) ? sum_inside(x, w, &p, group, m, n) : sum[i][j];
      STORE_X(y, row * p.target_channel + target_at(&p, n), made + add);
#else
      sums[PANEL(piece, group, n / COLUMNS, m / ROWS) + m % ROWS * COLUMNS + n % COLUMNS] = sum[i][j];
#endif
    }
}
#endif
