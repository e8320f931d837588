// The numbers of a mask's true elements, in order. A work-item takes a part: `stage` 0 counts its true elements, 1
// writes their numbers behind those of the parts before.
typedef struct {
  long n, parts, part;
  long rank, size[16], stride[16];
  long mask, index, count, counts;  // offsets
} P;
#define BLOCK 64

__kernel void compact(const P p, int stage, __global const uchar* mask_base, __global uchar* index_base,
                      __global uchar* count_base, __global uchar* counts_base) {
  __global const uchar* mask = mask_base + p.mask;
  __global long* index = (__global long*)(index_base + p.index);
  __global long* counts = (__global long*)(counts_base + p.counts);
  UNITS(piece, p.parts) {
    long found = 0;
    if (stage)
      for (long before = 0; before < piece; ++before) found += counts[before];
    const long last = min(p.n, (piece + 1) * p.part), inner = p.size[p.rank - 1], step = p.stride[p.rank - 1];
    for (long i = piece * p.part; i < last;) {
      long rest = i, o = 0;
      for (int d = (int)p.rank - 1; d >= 0; --d) {
        o += rest % p.size[d] * p.stride[d];
        rest /= p.size[d];
      }
      const long m = min(inner - i % inner, last - i);
      if (stage == 0) {
        for (long j = 0; j < m; ++j) found += mask[o + j * step] != 0;
      } else {
        // Without branches to a block, for which there is room: behind the last of a part others write.
        long block[BLOCK];
        for (long j0 = 0; j0 < m; j0 += BLOCK) {
          int here = 0;
          for (long j = j0; j < min(m, j0 + BLOCK); ++j) {
            block[here] = i + j;
            here += mask[o + j * step] != 0;
          }
          for (int k = 0; k < here; ++k) index[found + k] = block[k];
          found += here;
        }
      }
      i += m;
    }
    if (stage == 0) counts[piece] = found;
    else if (piece == p.parts - 1) *(__global long*)(count_base + p.count) = found;
  }
}
