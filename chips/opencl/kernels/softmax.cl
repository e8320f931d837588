// Softmax along an axis, forward and backward (BACKWARD). Operands: what is read, then what is written; LOG: of
// log-softmax; keep_OUT stores the result's dtype.
#define OPERANDS 3
typedef struct {
  long units, n, rank, blocks;  // blocks: of LANES slices in a row of them, with ACROSS
  long size[16];
  long stride[OPERANDS][16];
  long along[OPERANDS];
  long offset[OPERANDS];
} P;

__kernel void softmax(const P p, __global const uchar* first, __global const uchar* second,
                      __global uchar* result TEAM_ARGUMENT) {
  const long last = p.rank - 1;
  LANE_UNITS(unit, p.units) {
    long rest = unit, at[OPERANDS], count = LANES, across[OPERANDS];
    for (int k = 0; k < OPERANDS; ++k) {
      at[k] = 0;
      across[k] = p.along[k];
    }
#if defined(ACROSS) && defined(PROCESSOR)
    const long begin = rest % p.blocks * LANES;
    rest /= p.blocks;
    count = min((long)LANES, p.size[last] - begin);
    for (int k = 0; k < OPERANDS; ++k) {
      at[k] = begin * p.stride[k][last];
      across[k] = p.stride[k][last];
    }
    for (long d = last - 1; d >= 0; --d) {
#else
    for (long d = last; d >= 0; --d) {
#endif
      const long c = rest % p.size[d];
      rest /= p.size[d];
      for (int k = 0; k < OPERANDS; ++k) at[k] += c * p.stride[k][d];
    }
    __global const uchar* x = first + p.offset[0];
    __global const uchar* y = second + p.offset[1];
    __global uchar* out = result + p.offset[2];
#ifndef BACKWARD
    VT top = (VT)(-INFINITY);
    {
      STEPS(i, here, 0, p.n, count) top = fmax(top, lanes_X(x, at[0] + i * p.along[0], across[0], here, -INFINITY));
    }
    top = LARGEST(top);
    WV sum = (WV)0;
    {
      STEPS(i, here, 0, p.n, count)
      sum += TO_WIDE(exp(lanes_X(x, at[0] + i * p.along[0], across[0], here, -INFINITY) - top));
    }
    sum = TOTAL(sum);
    const VT factor = TO_CT((WV)1 / sum), shift = TO_CT(log(sum));
    {
      STEPS(i, here, 0, p.n, count) {
        const VT v = lanes_X(x, at[0] + i * p.along[0], across[0], here, 0) - top;
        keep_OUT(out, at[2] + i * p.along[2], across[2], here, LOG ? v - shift : exp(v) * factor);
      }
    }
#else
    WV sum = (WV)0;
    {
      STEPS(i, here, 0, p.n, count) {
        const VT g = lanes_X(x, at[0] + i * p.along[0], across[0], here, 0);
        sum += TO_WIDE(LOG ? g : g * lanes_X(y, at[1] + i * p.along[1], across[1], here, 0));
      }
    }
    const VT total = TO_CT(TOTAL(sum));
    {
      STEPS(i, here, 0, p.n, count) {
        const VT g = lanes_X(x, at[0] + i * p.along[0], across[0], here, 0);
        const VT v = lanes_X(y, at[1] + i * p.along[1], across[1], here, 0);
        keep_OUT(out, at[2] + i * p.along[2], across[2], here, LOG ? g - exp(v) * total : v * (g - total));
      }
    }
#endif
  }
}
