// Attention without the L × S matrix: blocks of scores are made, used and forgotten (Dao et al., "FlashAttention: fast
// and memory-efficient exact attention with IO-awareness", NeurIPS 2022). Macros: CT (what is computed in), V (its
// vectors, V(16)), ROWS and on a processor VECTORS (as the registers allow), LOAD, STORE (of the dtype), LOAD_L, STORE_L
// (of lse's), SCALE; BACKWARD.
//
// On a processor stage 0 lays k, v (and for the backward q and the gradient) out as the products read them, so that
// those know one layout and no edges; a work-item then takes ROWS rows. Elsewhere a group takes ROWS rows by local memory.
enum { Q, K, VALUE, OUT, LSE, GRAD, BIAS, GRAD_Q, GRAD_K, GRAD_V, TENSORS };
typedef struct {
  long batch, heads, kv_heads, l, s, e, ev;
  long l_pad, s_pad;  // to multiples of KEYS
  long causal, has_bias;
  ulong scale;  // bits of a double
  float narrow_scale, reserved;
  long stride[TENSORS][4], offset[TENSORS];
  long panels[TENSORS], rows[TENSORS];  // of packed tensors in the work memory; negative: not needed
  long statistics;                      // [batch × heads][l_pad] of lse, then of the gradient's share of each row
} P;

#define ARGUMENTS                                                                                                   \
  __global const uchar *q_base, __global const uchar *k_base, __global const uchar *v_base, __global uchar *out_base, \
      __global uchar *lse_base, __global const uchar *grad_base, __global const uchar *bias_base,                     \
      __global uchar *grad_q_base, __global uchar *grad_k_base, __global uchar *grad_v_base, __global uchar *work
#define AT(t, b, h, i, j) \
  ((b) * p.stride[t][0] + (h) * p.stride[t][1] + (i) * p.stride[t][2] + (j) * p.stride[t][3])
#define MOST 256  // of e and ev

// Score of a query and a key that are there: bias and causal mask.
#define MASKED(x, b, h, l_, s_)                                                         \
  ((p.causal && (s_) > (l_)) ? (CT)-INFINITY                                            \
                             : (p.has_bias ? (x) + LOAD(bias, AT(BIAS, b, h, l_, s_)) : (x)))

#define BASES                                                    \
  __global const uchar* q = q_base + p.offset[Q];                \
  __global const uchar* key = k_base + p.offset[K];              \
  __global const uchar* value = v_base + p.offset[VALUE];        \
  __global uchar* out = out_base + p.offset[OUT];                \
  __global uchar* lse = lse_base + p.offset[LSE];                \
  __global const uchar* grad = grad_base + p.offset[GRAD];       \
  __global const uchar* bias = bias_base + p.offset[BIAS];       \
  __global uchar* grad_q = grad_q_base + p.offset[GRAD_Q];       \
  __global uchar* grad_k = grad_k_base + p.offset[GRAD_K];       \
  __global uchar* grad_v = grad_v_base + p.offset[GRAD_V];       \
  __global CT* statistics = (__global CT*)(work + p.statistics);

#ifdef PROCESSOR
// ---------------------------------------------------------------- one work-item, vectors
#define KEYS 64
#define COLUMNS (16 * VECTORS)
#define PADDED(n) (((n) + COLUMNS - 1) / COLUMNS * COLUMNS)

// s [ROWS][VECTORS] += a [ROWS][depth] · COLUMNS of b.
#define PRODUCT(a, a_row, b, b_row, depth)                                                                  \
  for (long k_ = 0; k_ < (depth); ++k_) {                                                                   \
    V(16) b_[VECTORS];                                                                                      \
    _Pragma("unroll") for (int v = 0; v < VECTORS; ++v) b_[v] = vload16(v, (b) + k_ * (b_row));             \
    _Pragma("unroll") for (int r = 0; r < ROWS; ++r) {                                                      \
      const V(16) x = (V(16))((a)[r * (a_row) + k_]);                                                       \
      _Pragma("unroll") for (int v = 0; v < VECTORS; ++v) s[r][v] = fma(x, b_[v], s[r][v]);                 \
    }                                                                                                       \
  }
// Not vectorised: strides are not known, and it takes the compiler long.
#define PLAIN _Pragma("clang loop vectorize(disable) interleave(disable) unroll(disable)")
#define EACH_SUM                                   \
  _Pragma("unroll") for (int r = 0; r < ROWS; ++r) \
    _Pragma("unroll") for (int v = 0; v < VECTORS; ++v)
// to [ROWS][KEYS] = a [ROWS][depth] · panels
#define SCORES(to, a, a_row, panels, depth)                                             \
  for (int part_ = 0; part_ < KEYS / COLUMNS; ++part_) {                                \
    V(16) s[ROWS][VECTORS];                                                             \
    EACH_SUM s[r][v] = (V(16))0;                                                        \
    PRODUCT(a, a_row, (panels) + part_ * (depth) * COLUMNS, COLUMNS, depth)             \
    EACH_SUM vstore16(s[r][v], v, (to) + r * KEYS + part_ * COLUMNS);                   \
  }
// to [ROWS][width] = to × factor + a [ROWS][KEYS] · rows
#define ACCUMULATE(to, a, rows, width, factor)                                          \
  for (long c_ = 0; c_ < (width); c_ += COLUMNS) {                                      \
    V(16) s[ROWS][VECTORS];                                                             \
    EACH_SUM s[r][v] = vload16(v, (to) + r * (width) + c_) * (factor);                  \
    PRODUCT(a, KEYS, (rows) + c_, width, KEYS)                                          \
    EACH_SUM vstore16(s[r][v], v, (to) + r * (width) + c_);                             \
  }

static inline CT largest(V(16) v) {
  const V(8) a = fmax(v.lo, v.hi);
  const V(4) b = fmax(a.lo, a.hi);
  const V(2) c = fmax(b.lo, b.hi);
  return fmax(c.x, c.y);
}
static inline CT total(V(16) v) {
  const V(8) a = v.lo + v.hi;
  const V(4) b = a.lo + a.hi;
  const V(2) c = b.lo + b.hi;
  return c.x + c.y;
}

// Panels [length / COLUMNS][width][COLUMNS] and rows [length][padded width] of a tensor [heads][length][width].
static void pack(const P* p_, int t, __global const uchar* from, long heads, long length, long padded, long width,
                 __global uchar* work) {
  const P p = *p_;
  const long blocks = padded / COLUMNS, row = PADDED(width);
  UNITS(unit, p.batch * heads * blocks) {
    const long block = unit % blocks, head = unit / blocks, b = head / heads, h = head % heads;
    __global CT* panel = (__global CT*)(work + p.panels[t]) + (head * padded + block * COLUMNS) * width;
    __global CT* rows = (__global CT*)(work + p.rows[t]) + (head * padded + block * COLUMNS) * row;
    for (long i = 0; i < COLUMNS; ++i) {
      const long at = block * COLUMNS + i;
      const long base = AT(t, b, h, min(at, length - 1), 0), step = p.stride[t][3];
      PLAIN for (long j = 0; j < width; ++j) {
        const CT x = at < length ? LOAD(from, base + j * step) : (CT)0;
        if (p.panels[t] >= 0) panel[j * COLUMNS + i] = x;
        if (p.rows[t] >= 0) rows[i * row + j] = x;
      }
      if (p.rows[t] >= 0)
        PLAIN for (long j = width; j < row; ++j) rows[i * row + j] = 0;
    }
  }
}
#define LOAD_ROWS(to, t, from, b, h, first, length, width, factor)                                    \
  for (int r = 0; r < ROWS; ++r)                                                                      \
    PLAIN for (long j = 0; j < (width); ++j)                                                          \
      (to)[r * (width) + j] = LOAD(from, AT(t, b, h, min((first) + r, (length)-1), j)) * (factor);

#ifndef BACKWARD
__kernel void attention(const P p, int stage, ARGUMENTS) {
  BASES
  if (stage == 0) {
    pack(&p, K, key, p.kv_heads, p.s, p.s_pad, p.e, work);
    pack(&p, VALUE, value, p.kv_heads, p.s, p.s_pad, p.ev, work);
    return;
  }
  const long blocks = (p.l + ROWS - 1) / ROWS, width = PADDED(p.ev);
  CT query[ROWS * MOST], made[ROWS * MOST], tile[ROWS * KEYS], high[ROWS], sum[ROWS], factor[ROWS];
  UNITS(unit, p.batch * p.heads * blocks) {
    const long head = unit / blocks, b = head / p.heads, h = head % p.heads, l0 = unit % blocks * ROWS;
    const long kv = b * p.kv_heads + h / (p.heads / p.kv_heads);
    __global const CT* panels = (__global const CT*)(work + p.panels[K]) + kv * p.s_pad * p.e;
    __global const CT* rows = (__global const CT*)(work + p.rows[VALUE]) + kv * p.s_pad * width;
    LOAD_ROWS(query, Q, q, b, h, l0, p.l, p.e, SCALE)
    for (long i = 0; i < ROWS * width; ++i) made[i] = 0;
    for (int r = 0; r < ROWS; ++r) high[r] = -INFINITY, sum[r] = 0;
    const long last = p.causal ? min(p.s, l0 + ROWS) : p.s;
    for (long first = 0; first < last; first += KEYS) {
      SCORES(tile, query, p.e, panels + first * p.e, p.e)
      const long there = min((long)KEYS, p.s - first);
      if (p.has_bias || (p.causal && first + KEYS > l0))
        for (int r = 0; r < ROWS; ++r)
          PLAIN for (long j = 0; j < there; ++j)
            tile[r * KEYS + j] = MASKED(tile[r * KEYS + j], b, h, min(l0 + r, p.l - 1), first + j);
      for (int r = 0; r < ROWS; ++r) {
        CT* x = tile + r * KEYS;
        PLAIN for (long j = there; j < KEYS; ++j) x[j] = -INFINITY;
        V(16) x0 = vload16(0, x), x1 = vload16(1, x), x2 = vload16(2, x), x3 = vload16(3, x);
        const CT now = fmax(high[r], largest(fmax(fmax(x0, x1), fmax(x2, x3))));
        const CT base = now == -INFINITY ? (CT)0 : now;  // all masked so far
        factor[r] = exp(high[r] - base);
        high[r] = now;
        x0 = exp(x0 - base), x1 = exp(x1 - base), x2 = exp(x2 - base), x3 = exp(x3 - base);
        sum[r] = sum[r] * factor[r] + total((x0 + x1) + (x2 + x3));
        vstore16(x0, 0, x);
        vstore16(x1, 1, x);
        vstore16(x2, 2, x);
        vstore16(x3, 3, x);
      }
      ACCUMULATE(made, tile, rows + first * width, width, factor[r])
    }
    for (int r = 0; r < ROWS && l0 + r < p.l; ++r) {
      const CT d = sum[r] == 0 ? (CT)0 : (CT)1 / sum[r];
      PLAIN for (long j = 0; j < p.ev; ++j) STORE(out, AT(OUT, b, h, l0 + r, j), made[r * width + j] * d);
      STORE_L(lse, AT(LSE, b, h, l0 + r, 0), sum[r] == 0 ? (CT)-INFINITY : high[r] + log(sum[r]));
    }
  }
}
#else
__kernel void attention(const P p, int stage, ARGUMENTS) {
  BASES
  CT left[ROWS * MOST], right[ROWS * MOST], made[2][ROWS * MOST], tile[ROWS * KEYS], slope[ROWS * KEYS];
  const long e_pad = PADDED(p.e), ev_pad = PADDED(p.ev);
  __global CT* shares = statistics + p.batch * p.heads * p.l_pad;
  if (stage == 0) {
    pack(&p, K, key, p.kv_heads, p.s, p.s_pad, p.e, work);
    pack(&p, VALUE, value, p.kv_heads, p.s, p.s_pad, p.ev, work);
    pack(&p, Q, q, p.heads, p.l, p.l_pad, p.e, work);
    pack(&p, GRAD, grad, p.heads, p.l, p.l_pad, p.ev, work);
    // Rows that are not there, or whose keys are all masked, have probabilities of 0.
    UNITS(unit, p.batch * p.heads * p.l_pad) {
      const long l = unit % p.l_pad, head = unit / p.l_pad, b = head / p.heads, h = head % p.heads;
      CT share = 0, x = INFINITY;
      if (l < p.l) {
        PLAIN for (long j = 0; j < p.ev; ++j) share += LOAD(grad, AT(GRAD, b, h, l, j)) * LOAD(out, AT(OUT, b, h, l, j));
        x = LOAD_L(lse, AT(LSE, b, h, l, 0));
      }
      shares[unit] = share;
      statistics[unit] = x == -INFINITY ? (CT)INFINITY : x;
    }
    return;
  }
  // Stage 1: the gradient of q, by queries, over the keys. Stage 2: those of k and v, by keys, over the queries of all
  // heads that they serve.
  const int by_key = stage == 2;
  const long heads = by_key ? p.kv_heads : p.heads, length = by_key ? p.s : p.l, across = by_key ? p.l : p.s;
  const long padded = by_key ? p.l_pad : p.s_pad, group = p.heads / p.kv_heads, blocks = (length + ROWS - 1) / ROWS;
  UNITS(unit, p.batch * heads * blocks) {
    const long head = unit / blocks, b = head / heads, own = head % heads, row = unit % blocks * ROWS;
    LOAD_ROWS(left, (by_key ? K : Q), (by_key ? key : q), b, own, row, length, p.e, SCALE)
    LOAD_ROWS(right, (by_key ? VALUE : GRAD), (by_key ? value : grad), b, own, row, length, p.ev, (CT)1)
    for (long i = 0; i < ROWS * max(e_pad, ev_pad); ++i) made[0][i] = made[1][i] = 0;
    for (long member = 0; member < (by_key ? group : 1); ++member) {
      const long h = by_key ? own * group + member : own;
      const long at = (by_key ? b * p.heads + h : b * p.kv_heads + h / group) * padded;
      __global const CT* panels[] = {(__global const CT*)(work + p.panels[by_key ? Q : K]) + at * p.e,
                                     (__global const CT*)(work + p.panels[by_key ? GRAD : VALUE]) + at * p.ev};
      __global const CT* rows[] = {(__global const CT*)(work + p.rows[by_key ? Q : K]) + at * e_pad,
                                   (__global const CT*)(work + p.rows[GRAD]) + at * ev_pad};
      __global const CT* high = statistics + (b * p.heads + h) * p.l_pad;
      __global const CT* share = shares + (b * p.heads + h) * p.l_pad;
      const long last = p.causal && !by_key ? min(p.s, row + ROWS) : across;
      for (long first = p.causal && by_key ? row / KEYS * KEYS : 0; first < last; first += KEYS) {
        for (int side = 0; side < 2; ++side) {
          const long depth = side ? p.ev : p.e;
          SCORES((side ? slope : tile), (side ? right : left), depth, panels[side] + first * depth, depth)
        }
        const long there = min((long)KEYS, across - first);
        for (int r = 0; r < ROWS; ++r) {
          const long here = min(row + r, length - 1);
          if (p.has_bias || p.causal)
            PLAIN for (long j = 0; j < there; ++j)
              tile[r * KEYS + j] = MASKED(tile[r * KEYS + j], b, h, by_key ? first + j : here, by_key ? here : first + j);
          PLAIN for (long j = there; j < KEYS; ++j) tile[r * KEYS + j] = -INFINITY;
        }
        // The probabilities, and the gradient of the scores.
        for (int r = 0; r < ROWS; ++r) {
          const long here = min(row + r, length - 1);
          for (int j = 0; j < KEYS; j += 16) {
            V(16) high_ = (V(16))0, share_ = high_;
            if (by_key) high_ = vload16(0, high + first + j), share_ = vload16(0, share + first + j);
            else high_ += high[here], share_ += share[here];
            const V(16) x = exp(vload16(0, tile + r * KEYS + j) - high_);
            vstore16(x, 0, tile + r * KEYS + j);
            vstore16(x * (vload16(0, slope + r * KEYS + j) - share_), 0, slope + r * KEYS + j);
          }
        }
        for (int side = 0; side <= by_key; ++side) {
          const long width = side ? ev_pad : e_pad;
          ACCUMULATE(made[side], (side ? tile : slope), rows[side] + first * width, width, (CT)1)
        }
      }
    }
    for (int r = 0; r < ROWS && row + r < length; ++r) {
      PLAIN for (long j = 0; j < p.e; ++j)
        STORE((by_key ? grad_k : grad_q), AT((by_key ? GRAD_K : GRAD_Q), b, own, row + r, j), made[0][r * e_pad + j] * SCALE);
      if (by_key)
        PLAIN for (long j = 0; j < p.ev; ++j) STORE(grad_v, AT(GRAD_V, b, own, row + r, j), made[1][r * ev_pad + j]);
    }
  }
}
#endif

#else
// ---------------------------------------------------------------- a group, local memory
// Blocks are ROWS × ROWS scores. Results are in local memory as well: each work-item has elements of its own.
#define FILL(to, t, from, b, h, first, length, width)                                            \
  for (long i_ = id; i_ < ROWS * (width); i_ += SIZE) {                                          \
    const long r_ = i_ / (width), j_ = i_ % (width);                                             \
    (to)[i_] = (first) + r_ < (length) ? LOAD(from, AT(t, b, h, (first) + r_, j_)) : (CT)0;      \
  }
// Of a result [ROWS][width], this work-item's elements.
#define EACH_OWN(width)                                   \
  for (long i = id; i < ROWS * (width); i += SIZE)        \
    for (long row = i / (width), column = i % (width), once = 1; once; once = 0)
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE);

#ifndef BACKWARD
__kernel __attribute__((reqd_work_group_size(SIZE, 1, 1)))
void attention(const P p, int stage, ARGUMENTS, __local CT* query, __local CT* other, __local CT* made) {
  BASES
  __local CT tile[ROWS][ROWS + 1], high[ROWS], sum[ROWS], factor[ROWS];
  const int id = (int)get_local_id(0);
  const long blocks = (p.l + ROWS - 1) / ROWS;
  TEAM_UNITS(unit, p.batch * p.heads * blocks) {
    const long head = unit / blocks, b = head / p.heads, h = head % p.heads, l0 = unit % blocks * ROWS;
    const long hk = h / (p.heads / p.kv_heads), last = p.causal ? min(p.s, l0 + ROWS) : p.s;
    EACH_OWN(p.ev) made[i] = 0;
    FILL(query, Q, q, b, h, l0, p.l, p.e)
    if (id < ROWS) high[id] = -INFINITY, sum[id] = 0;
    for (long first = 0; first < last; first += ROWS) {
      FILL(other, K, key, b, hk, first, p.s, p.e)
      BARRIER
      for (int i = id; i < ROWS * ROWS; i += SIZE) {
        const int r = i / ROWS, j = i % ROWS;
        CT x = 0;
        for (long e = 0; e < p.e; ++e) x = fma(query[r * p.e + e], other[j * p.e + e], x);
        const long l = min(l0 + r, p.l - 1), s = first + j;
        tile[r][j] = s < p.s ? MASKED(x * SCALE, b, h, l, s) : (CT)-INFINITY;
      }
      BARRIER
      FILL(other, VALUE, value, b, hk, first, p.s, p.ev)
      if (id < ROWS) {
        CT now = high[id];
        for (int j = 0; j < ROWS; ++j) now = fmax(now, tile[id][j]);
        const CT base = now == -INFINITY ? (CT)0 : now;  // all masked so far
        factor[id] = exp(high[id] - base);
        high[id] = now;
        CT here = 0;
        for (int j = 0; j < ROWS; ++j) here += tile[id][j] = exp(tile[id][j] - base);
        sum[id] = sum[id] * factor[id] + here;
      }
      BARRIER
      EACH_OWN(p.ev) {
        CT x = made[i] * factor[row];
        for (int j = 0; j < ROWS; ++j) x = fma(tile[row][j], other[j * p.ev + column], x);
        made[i] = x;
      }
      BARRIER
    }
    EACH_OWN(p.ev)
      if (l0 + row < p.l)
        STORE(out, AT(OUT, b, h, l0 + row, column), sum[row] == 0 ? (CT)0 : made[i] / sum[row]);
    if (id < ROWS && l0 + id < p.l)
      STORE_L(lse, AT(LSE, b, h, l0 + id, 0), sum[id] == 0 ? (CT)-INFINITY : high[id] + log(sum[id]));
    BARRIER
  }
}
#else
// Probabilities of the block at (l0, first), and the gradient of its scores.
#define BLOCK_SLOPES(b, h, l0, first)                                                               \
  for (int i = id; i < ROWS * ROWS; i += SIZE) {                                                    \
    const int r = i / ROWS, j = i % ROWS;                                                           \
    CT x = 0, slope = 0, made_ = 0;                                                                 \
    for (long e = 0; e < p.e; ++e) x = fma(query[r * p.e + e], other[j * p.e + e], x);              \
    for (long e = 0; e < p.ev; ++e) slope = fma(gradient[r * p.ev + e], values[j * p.ev + e], slope); \
    const long l = (l0) + r, s = (first) + j, at = ((b) * p.heads + (h)) * p.l_pad + l;             \
    if (l < p.l && s < p.s) made_ = exp(MASKED(x * SCALE, b, h, l, s) - statistics[at]);            \
    tile[r][j] = made_;                                                                             \
    slopes[r][j] = l < p.l ? made_ * (slope - shares[at]) : (CT)0;                                  \
  }
__kernel __attribute__((reqd_work_group_size(SIZE, 1, 1)))
void attention(const P p, int stage, ARGUMENTS, __local CT* query, __local CT* other, __local CT* gradient,
               __local CT* values, __local CT* made, __local CT* made_v) {
  BASES
  __local CT tile[ROWS][ROWS + 1], slopes[ROWS][ROWS + 1];
  __global CT* shares = statistics + p.batch * p.heads * p.l_pad;
  const int id = (int)get_local_id(0);
  const long group = p.heads / p.kv_heads;
  if (stage == 0) {
    UNITS(unit, p.batch * p.heads * p.l_pad) {
      const long l = unit % p.l_pad, head = unit / p.l_pad, b = head / p.heads, h = head % p.heads;
      CT share = 0, x = INFINITY;
      if (l < p.l) {
        for (long j = 0; j < p.ev; ++j) share += LOAD(grad, AT(GRAD, b, h, l, j)) * LOAD(out, AT(OUT, b, h, l, j));
        x = LOAD_L(lse, AT(LSE, b, h, l, 0));
      }
      shares[unit] = share;
      statistics[unit] = x == -INFINITY ? (CT)INFINITY : x;  // all masked: probabilities of 0
    }
  } else if (stage == 1) {
    const long blocks = (p.l + ROWS - 1) / ROWS;
    TEAM_UNITS(unit, p.batch * p.heads * blocks) {
      const long head = unit / blocks, b = head / p.heads, h = head % p.heads, l0 = unit % blocks * ROWS;
      const long hk = h / group, last = p.causal ? min(p.s, l0 + ROWS) : p.s;
      EACH_OWN(p.e) made[i] = 0;
      FILL(query, Q, q, b, h, l0, p.l, p.e)
      FILL(gradient, GRAD, grad, b, h, l0, p.l, p.ev)
      for (long first = 0; first < last; first += ROWS) {
        FILL(other, K, key, b, hk, first, p.s, p.e)
        FILL(values, VALUE, value, b, hk, first, p.s, p.ev)
        BARRIER
        BLOCK_SLOPES(b, h, l0, first)
        BARRIER
        EACH_OWN(p.e) {
          CT x = made[i];
          for (int j = 0; j < ROWS; ++j) x = fma(slopes[row][j], other[j * p.e + column], x);
          made[i] = x;
        }
        BARRIER
      }
      EACH_OWN(p.e) if (l0 + row < p.l) STORE(grad_q, AT(GRAD_Q, b, h, l0 + row, column), made[i] * SCALE);
    }
  } else {
    const long blocks = (p.s + ROWS - 1) / ROWS;
    TEAM_UNITS(unit, p.batch * p.kv_heads * blocks) {
      const long head = unit / blocks, b = head / p.kv_heads, hk = head % p.kv_heads, first = unit % blocks * ROWS;
      EACH_OWN(p.e) made[i] = 0;
      EACH_OWN(p.ev) made_v[i] = 0;
      FILL(other, K, key, b, hk, first, p.s, p.e)
      FILL(values, VALUE, value, b, hk, first, p.s, p.ev)
      for (long h = hk * group; h < (hk + 1) * group; ++h)
        for (long l0 = p.causal ? first / ROWS * ROWS : 0; l0 < p.l; l0 += ROWS) {
          FILL(query, Q, q, b, h, l0, p.l, p.e)
          FILL(gradient, GRAD, grad, b, h, l0, p.l, p.ev)
          BARRIER
          BLOCK_SLOPES(b, h, l0, first)
          BARRIER
          EACH_OWN(p.e)
            for (int r = 0; r < ROWS; ++r) made[i] = fma(slopes[r][row], query[r * p.e + column], made[i]);
          EACH_OWN(p.ev)
            for (int r = 0; r < ROWS; ++r) made_v[i] = fma(tile[r][row], gradient[r * p.ev + column], made_v[i]);
          BARRIER
        }
      EACH_OWN(p.e) if (first + row < p.s) STORE(grad_k, AT(GRAD_K, b, hk, first + row, column), made[i] * SCALE);
      EACH_OWN(p.ev) if (first + row < p.s) STORE(grad_v, AT(GRAD_V, b, hk, first + row, column), made_v[i]);
    }
  }
}
#endif
#endif
