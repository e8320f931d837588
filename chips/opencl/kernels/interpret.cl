// Runs a program given as code (Instruction in points.cpp) over a space of up to DIMS dimensions. On a processor each
// work-item takes a range of points in blocks along the innermost dimension, one instruction a block, so that the
// inner loops are vectors; elsewhere a block is one point.
#ifdef PROCESSOR
#define BLOCK 64
#else
#define BLOCK 1
#endif
#define OPERANDS 12
#define NOT_ZERO(b) ((b) == 0 ? (report(fault, tag, 6, 2, 0, 0), 1) : (b))
#define REG(type, slot) ((T_##type*)(registers + (size_t)(slot) * BLOCK * WIDTH))[j]
// Not vectorised: that takes the compiler longer than all that is ever interpreted.
#define EACH _Pragma("clang loop vectorize(disable) interleave(disable) unroll(disable)") for (long j = 0; j < m; ++j)

typedef struct {
  ushort what, out, a, b, c, operand;
  uint reserved;
  long literal;
} Instruction;
typedef struct {
  long n, n_code, n_operands;
  long size[DIMS];
  long stride[DIMS][OPERANDS];
  long offset[OPERANDS];
} Parameters;
typedef struct {
  ulong bits[16][2];
} Scalars;

__kernel void interpret(const Parameters p, const Scalars scalars, int first_dim, __global const Instruction* code,
                        __global uchar* b0, __global uchar* b1, __global uchar* b2, __global uchar* b3,
                        __global uchar* b4, __global uchar* b5, __global uchar* b6, __global uchar* b7,
                        __global uchar* b8, __global uchar* b9, __global uchar* b10, __global uchar* b11,
                        __global Fault* fault, ulong tag) {
  __global uchar* base[OPERANDS] = {b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11};
  uchar registers[SLOTS * BLOCK * WIDTH] __attribute__((aligned(64)));
#ifdef PROCESSOR
  long row = FIRST_UNIT(p.n);
  const long end = END_UNIT(p.n);
  while (row < end) {
#else
  UNITS(row, p.n) {
#endif
    long at[DIMS], rest = row;
    for (int d = DIMS - 1; d > 0; --d) {
      at[d] = rest % p.size[d];
      rest /= p.size[d];
    }
    at[0] = rest;
#ifdef PROCESSOR
    const long m = min(min(p.size[DIMS - 1] - at[DIMS - 1], end - row), (long)BLOCK);
#else
    const long m = 1;
#endif
    for (long i = 0; i < p.n_code; ++i) {
      const Instruction in = code[i];
      const ushort out = in.out, a = in.a, b = in.b, c = in.c;
      long o = 0, s = 0;
      __global uchar* q = b0;
      ulong2 bits = (ulong2)(0, 0);
      if (in.what < 64) {  // a load or a store: `operand` counts inputs, then outputs
        q = base[in.operand] + p.offset[in.operand];
        for (int d = 0; d < DIMS; ++d) o += at[d] * p.stride[d][in.operand];
        s = p.stride[DIMS - 1][in.operand];
      } else if (in.what < 72) {
        bits = (ulong2)(scalars.bits[in.operand][0], scalars.bits[in.operand][1]);
      } else if (in.what < 80) {
        bits = (ulong2)((ulong)in.literal, 0);
      } else if (in.what < 96) {  // where a point is: o + j * s
        int d = in.operand == 0xffff ? DIMS - 1 : in.operand + first_dim;
        o = in.operand == 0xffff ? row : at[d];
        s = d == DIMS - 1;
      }
      switch (in.what) { CASES }
    }
#ifdef PROCESSOR
    row += m;
#endif
  }
}
