// Philox4x32-10 and what fl/ops.h makes of its words. Macros: KIND (FL_RANDOM_…), STORE.
typedef struct {
  long n, rank;
  long size[4], stride[4];
  long out_offset;
  ulong seed, offset;
  ulong a, b;   // integers, or the bits of doubles, by kind; UNIFORM: low, high - low
  ulong most;   // UNIFORM: no result is larger; bits of a double
  float fa, fb, fmost, pad;  // the same as floats
} P;

static inline uint4 philox(ulong block, ulong seed) {
  uint4 x = (uint4)((uint)block, (uint)(block >> 32), 0, 0);
  uint k0 = (uint)seed, k1 = (uint)(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    x = (uint4)(mul_hi(0xCD9E8D57u, x.z) ^ x.y ^ k0, 0xCD9E8D57u * x.z, mul_hi(0xD2511F53u, x.x) ^ x.w ^ k1, 0xD2511F53u * x.x);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return x;
}

#define WIDE_WORDS (KIND == 1 || KIND == 3 || KIND == 5 || KIND == 7)

__kernel void random_numbers(const P p, __global uchar* out_base) {
  __global uchar* out = out_base + p.out_offset;
#if WIDE_WORDS
  const long per = 2;
#else
  const long per = 4;
#endif
  const long blocks = (p.n + per - 1) / per;
  UNITS(block, blocks) {
    const uint4 x = philox(p.offset + (ulong)block, p.seed);
    const uint words[4] = {x.x, x.y, x.z, x.w};
    for (long k = 0; k < per && block * per + k < p.n; ++k) {
      const long i = block * per + k;
      long rest = i, at = 0;
      for (int d = 3; d >= 0; --d) {
        at += rest % p.size[d] * p.stride[d];
        rest /= p.size[d];
      }
#if WIDE_WORDS
      const ulong w = words[2 * k] | (ulong)words[2 * k + 1] << 32;
#endif
#if KIND == 0
      STORE(out, at, words[k]);
#elif KIND == 1
      STORE(out, at, w);
#elif KIND == 2
      STORE(out, at, (long)(p.a + words[k] % p.b));
#elif KIND == 3
      STORE(out, at, (long)(p.a + (p.b ? w % p.b : w)));
#elif KIND == 4
      const float unit = (float)(words[k] >> 8) * 0x1p-24f;
      STORE(out, at, min(p.fa + unit * p.fb, p.fmost));
#elif KIND == 5
      STORE(out, at, min(as_double(p.a) + (double)(w >> 11) * 0x1p-53 * as_double(p.b), as_double(p.most)));
#elif KIND == 6
      const uint first = words[k & 2], second = words[k | 1];
      const float u = (float)((first >> 8) + 1) * 0x1p-24f, v = (float)(second >> 8) * 0x1p-24f;
      const float r = sqrt(-2 * log(u));
      STORE(out, at, p.fa + p.fb * (r * ((k & 1) ? sinpi(2 * v) : cospi(2 * v))));
#else
      const ulong w0 = words[0] | (ulong)words[1] << 32, w1 = words[2] | (ulong)words[3] << 32;
      const double u = (double)((w0 >> 11) + 1) * 0x1p-53, v = (double)(w1 >> 11) * 0x1p-53;
      const double r = sqrt(-2 * log(u));
      STORE(out, at, as_double(p.a) + as_double(p.b) * (r * ((k & 1) ? sinpi(2 * v) : cospi(2 * v))));
#endif
    }
  }
}
