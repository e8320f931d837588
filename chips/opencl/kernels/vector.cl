// 16 neighbours in memory as a vector, and back.
// Macros: CT (computed in), LOAD_X and STORE_X (the dtype in memory), VECTOR (16 of CT), X_IS_CT where the two are one.
#ifdef PROCESSOR
#ifdef X_IS_CT
static inline VECTOR LOAD16_X(__global const uchar* p, long at) { return vload16(0, (__global const CT*)p + at); }
static inline void STORE16_X(__global uchar* p, long at, VECTOR v) { vstore16(v, 0, (__global CT*)p + at); }
#else
static inline VECTOR LOAD16_X(__global const uchar* p, long at) {
  CT t[16];
  for (int l = 0; l < 16; ++l) t[l] = LOAD_X(p, at + l);
  return vload16(0, t);
}
static inline void STORE16_X(__global uchar* p, long at, VECTOR v) {
  CT t[16];
  vstore16(v, 0, t);
  for (int l = 0; l < 16; ++l) STORE_X(p, at + l, t[l]);
}
#endif
#endif
