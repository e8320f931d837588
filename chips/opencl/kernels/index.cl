// Gather and scatter. A work-item takes one of `n` cells (a point of the first CELLS dimensions) and walks the other
// dimensions in row-major order; where cells can meet at one element they are walked, so no two work-items write to
// one. Macros: CELLS and WALKED (numbers of dimensions), INDICES, BYTES (of an element); SCATTER when it is one, then
// COMBINE(before, value), with LOAD and STORE for its dtype, for modes that compute.
#define RANK (CELLS + WALKED)
typedef struct {
  long n, walked, wrap;
  long size[RANK];
  long dense_stride[RANK];   // of gather's out, scatter's from
  long sparse_stride[RANK];  // of gather's from, scatter's to
  long index_stride[INDICES][RANK];
  long index_size[INDICES];
  long index_step[INDICES];  // elements of the sparse side for one step of the index
  long index_wide[INDICES];  // I64, not I32
  long index_offset[INDICES];
  long dense_offset, sparse_offset;
} P;

#if BYTES == 1
typedef uchar Element;
#elif BYTES == 2
typedef ushort Element;
#elif BYTES == 4
typedef uint Element;
#elif BYTES == 8
typedef ulong Element;
#else
typedef ulong2 Element;
#endif

#define INDEX_ARGUMENTS_1 __global const uchar* i0
#define INDEX_ARGUMENTS_2 INDEX_ARGUMENTS_1, __global const uchar* i1
#define INDEX_ARGUMENTS_3 INDEX_ARGUMENTS_2, __global const uchar* i2
#define INDEX_ARGUMENTS_4 INDEX_ARGUMENTS_3, __global const uchar* i3
#define INDEX_ARGUMENTS_5 INDEX_ARGUMENTS_4, __global const uchar* i4
#define INDEX_ARGUMENTS_6 INDEX_ARGUMENTS_5, __global const uchar* i5
#define INDEX_ARGUMENTS_7 INDEX_ARGUMENTS_6, __global const uchar* i6
#define INDEX_ARGUMENTS_8 INDEX_ARGUMENTS_7, __global const uchar* i7
#define INDEX_LIST_1 i0
#define INDEX_LIST_2 INDEX_LIST_1, i1
#define INDEX_LIST_3 INDEX_LIST_2, i2
#define INDEX_LIST_4 INDEX_LIST_3, i3
#define INDEX_LIST_5 INDEX_LIST_4, i4
#define INDEX_LIST_6 INDEX_LIST_5, i5
#define INDEX_LIST_7 INDEX_LIST_6, i6
#define INDEX_LIST_8 INDEX_LIST_7, i7
#define PASTE2(a, b) a##b
#define PASTE(a, b) PASTE2(a, b)

__kernel void index(PARAMETERS, __global uchar* dense_base, __global uchar* sparse_base,
                    PASTE(INDEX_ARGUMENTS_, INDICES), __global Fault* fault, ulong tag) {
#ifdef IN_MEMORY
  const P p = *(__global const P*)((__global const uchar*)parameters + parameters_offset);
#endif
  __global uchar* dense = dense_base + p.dense_offset;
  __global uchar* sparse = sparse_base + p.sparse_offset;
  __global const uchar* indices[] = {PASTE(INDEX_LIST_, INDICES)};
  UNITS(cell, p.n) {
    long at[RANK], rest = cell;
    for (int d = CELLS - 1; d >= 0; --d) {
      at[d] = rest % p.size[d];
      rest /= p.size[d];
    }
    for (int d = CELLS; d < RANK; ++d) at[d] = 0;
    for (long step = 0; step < p.walked; ++step) {
      long d_at = 0, s_at = 0;
      for (int d = 0; d < RANK; ++d) {
        d_at += at[d] * p.dense_stride[d];
        s_at += at[d] * p.sparse_stride[d];
      }
      int fine = 1;
      for (int k = 0; k < INDICES; ++k) {
        long where = 0;
        for (int d = 0; d < RANK; ++d) where += at[d] * p.index_stride[k][d];
        __global const uchar* source = indices[k] + p.index_offset[k];
        const long given = p.index_wide[k] ? ((__global const long*)source)[where] : ((__global const int*)source)[where];
        const long i = given < 0 && p.wrap ? given + p.index_size[k] : given;
        if (i < 0 || i >= p.index_size[k]) {
          report(fault, tag, 7, 1, given, p.index_size[k]);
          fine = 0;
          break;
        }
        s_at += i * p.index_step[k];
      }
      if (fine) {
#ifndef SCATTER
        ((__global Element*)dense)[d_at] = ((__global const Element*)sparse)[s_at];
#elif defined(COMBINE)
        STORE(sparse, s_at, COMBINE(LOAD(sparse, s_at), LOAD(dense, d_at)));
#else
        ((__global Element*)sparse)[s_at] = ((__global const Element*)dense)[d_at];
#endif
      }
      for (int d = RANK - 1; d >= CELLS; --d) {
        if (++at[d] < p.size[d]) break;
        at[d] = 0;
      }
    }
  }
}
