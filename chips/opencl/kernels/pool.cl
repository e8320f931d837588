// Pooling over three spatial dimensions. A unit is a row of the result along `along`: the last dimension, or the
// channels where those are neighbours; without a processor it is an element. The backward asks, position by position,
// which windows hold it: nothing is added twice at one place, so the sums have one order.
// Macros: CT, LOAD_X, STORE_X, LOWEST, MAX or ADAPTIVE, BACKWARD.
typedef struct {
  long units, batch, channels, by_channel, has_index, count_padding, divisor;
  long in[3], out[3], window[3], stride[3], padding[3], dilation[3];
  long x_stride[5], y_stride[5], index_stride[5];
  long x_offset, y_offset, index_offset;
} P;

// What output o sees of a dimension: `n` positions from `start` on; `counted` of them in an average.
typedef struct {
  int start, n, counted;
} Window;
static inline int ceil_div(int a, int b) { return b == 1 ? a : (a + b - 1) / b; }
static inline Window window_of(const P* p, int d, int o) {
  Window w;
#ifdef ADAPTIVE
  w.start = (long)o * p->in[d] / p->out[d];
  w.n = ((long)(o + 1) * p->in[d] + p->out[d] - 1) / p->out[d] - w.start;
  w.counted = w.n;
#else
  const int first = o * (int)p->stride[d] - (int)p->padding[d], step = (int)p->dilation[d], in = (int)p->in[d];
  const int begin = first < 0 ? ceil_div(-first, step) : 0, end = min((int)p->window[d], ceil_div(max(0, in - first), step));
  w.n = max(0, end - begin);
  w.start = first + begin * step;
  w.counted = p->count_padding ? min((int)p->window[d], ceil_div(max(0, in + (int)p->padding[d] - first), step)) : w.n;
#endif
  return w;
}
// The outputs whose windows may hold position i.
static inline int2 outputs_of(const P* p, int d, int i) {
#ifdef ADAPTIVE
  return (int2)((int)(i * p->out[d] / p->in[d]), (int)(((i + 1) * p->out[d] + p->in[d] - 1) / p->in[d] - 1));
#else
  const int at = i + (int)p->padding[d], first = at - ((int)p->window[d] - 1) * (int)p->dilation[d];
  return (int2)(first <= 0 ? 0 : ceil_div(first, (int)p->stride[d]), min((int)p->out[d] - 1, at / (int)p->stride[d]));
#endif
}
static inline int holds(const P* p, int d, int o, int i) {
#ifdef ADAPTIVE
  return 1;
#else
  return p->dilation[d] == 1 || (i + (int)p->padding[d] - o * (int)p->stride[d]) % (int)p->dilation[d] == 0;
#endif
}

__kernel void pool(const P p, __global uchar* x_base, __global uchar* y_base,
                   __global uchar* index_base) {
  __global uchar* x = x_base + p.x_offset;
  __global uchar* y = y_base + p.y_offset;
  __global uchar* index = index_base + p.index_offset;
#ifdef BACKWARD
  const int size[3] = {(int)p.in[0], (int)p.in[1], (int)p.in[2]};
#else
  const int size[3] = {(int)p.out[0], (int)p.out[1], (int)p.out[2]};
#endif
  const int row = p.by_channel ? (int)p.channels : size[2];
  UNITS(unit, p.units) {
#ifdef PROCESSOR
    long rest = unit;
    const int first = 0, last = row;
#else
    long rest = unit / row;
    const int first = unit % row, last = first + 1;
#endif
    int c = 0, at[3] = {0, 0, 0};
    if (p.by_channel) {
      at[2] = rest % size[2];
      rest /= size[2];
    }
    at[1] = rest % size[1];
    rest /= size[1];
    at[0] = rest % size[0];
    rest /= size[0];
    if (!p.by_channel) {
      c = rest % p.channels;
      rest /= p.channels;
    }
    const long n = rest;
#ifndef BACKWARD
    const Window w0 = window_of(&p, 0, at[0]), w1 = window_of(&p, 1, at[1]);
#else
    const int2 r0 = outputs_of(&p, 0, at[0]), r1 = outputs_of(&p, 1, at[1]);
#endif
    for (int j = first; j < last; ++j) {
      if (p.by_channel) c = j;
      else at[2] = j;
#ifndef BACKWARD
      const Window w2 = window_of(&p, 2, at[2]);
      const long from = n * p.x_stride[0] + c * p.x_stride[1];
#ifdef MAX
      CT best = LOWEST;
      long where = (w0.start * p.in[1] + w1.start) * p.in[2] + w2.start;
#define STEP(d) p.dilation[d]
#else
      WIDE sum = 0;
#define STEP(d) 1
#endif
      for (int k0 = 0; k0 < w0.n; ++k0)
        for (int k1 = 0; k1 < w1.n; ++k1) {
          const long i0 = w0.start + k0 * STEP(0), i1 = w1.start + k1 * STEP(1);
          const long line = from + i0 * p.x_stride[2] + i1 * p.x_stride[3];
          for (int k2 = 0; k2 < w2.n; ++k2) {
            const long i2 = w2.start + k2 * STEP(2);
            const CT v = LOAD_X(x, line + i2 * p.x_stride[4]);
#ifdef MAX
            // Selections: which value is larger cannot be predicted.
            const int take = v > best || v != v;
            best = take ? v : best;
            where = take ? (i0 * p.in[1] + i1) * p.in[2] + i2 : where;
#else
            sum += v;
#endif
          }
        }
      const long to = n * p.y_stride[0] + c * p.y_stride[1] + at[0] * p.y_stride[2] + at[1] * p.y_stride[3] +
                      at[2] * p.y_stride[4];
#ifdef MAX
      STORE_X(y, to, best);
      if (p.has_index)
        STORE_I64(index,
                  n * p.index_stride[0] + c * p.index_stride[1] + at[0] * p.index_stride[2] +
                      at[1] * p.index_stride[3] + at[2] * p.index_stride[4],
                  where);
#else
      const long by = p.divisor ? p.divisor : (long)w0.counted * w1.counted * w2.counted;
      STORE_X(y, to, w0.n > 0 && w1.n > 0 && w2.n > 0 ? (CT)(sum / (WIDE)by) : (CT)0);
#endif
#else
      const int2 r2 = outputs_of(&p, 2, at[2]);
      const long from = n * p.y_stride[0] + c * p.y_stride[1];
#ifdef MAX
      const long found = n * p.index_stride[0] + c * p.index_stride[1];
      const long here = (at[0] * p.in[1] + at[1]) * p.in[2] + at[2];
#endif
      WIDE sum = 0;
      for (int o0 = r0.x; o0 <= r0.y; ++o0) {
        if (!holds(&p, 0, o0, at[0])) continue;
        for (int o1 = r1.x; o1 <= r1.y; ++o1) {
          if (!holds(&p, 1, o1, at[1])) continue;
          for (int o2 = r2.x; o2 <= r2.y; ++o2) {
            if (!holds(&p, 2, o2, at[2])) continue;
            const long g = from + o0 * p.y_stride[2] + o1 * p.y_stride[3] + o2 * p.y_stride[4];
#ifdef MAX
            if (LOAD_I64(index, found + o0 * p.index_stride[2] + o1 * p.index_stride[3] + o2 * p.index_stride[4]) == here)
              sum += LOAD_X(y, g);
#else
            const long by = p.divisor ? p.divisor
                                      : (long)window_of(&p, 0, o0).counted * window_of(&p, 1, o1).counted *
                                            window_of(&p, 2, o2).counted;
            sum += (WIDE)LOAD_X(y, g) / (WIDE)by;
#endif
          }
        }
      }
      STORE_X(x,
              n * p.x_stride[0] + c * p.x_stride[1] + at[0] * p.x_stride[2] + at[1] * p.x_stride[3] +
                  at[2] * p.x_stride[4],
              (CT)sum);
#endif
    }
  }
}
