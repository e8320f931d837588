// Slices and rows of floats, by a team: what softmax and the norms share.
//
// On a processor a team is one work-item with LANES values side by side in a vector. Elsewhere it is a work-group, a
// value each; with ACROSS it is one work-item that walks a slice of its own. The lanes of a processor go along the
// slice, with ACROSS across neighbouring slices.
// Macros: those of vector.cl, which goes before; TO_VECTOR (converts); X_IS_F32; ACROSS.
#ifdef PROCESSOR
#define LANES 16
typedef VECTOR VT;
#define TO_CT(v) TO_VECTOR(v)
#ifdef FP64
typedef double16 WV;
typedef double8 WV8;
typedef double4 WV4;
#define TO_WIDE(v) convert_double16(v)
#else
typedef float16 WV;
typedef float8 WV8;
typedef float4 WV4;
#define TO_WIDE(v) (v)
#endif
#else
#define LANES 1
typedef CT VT;
typedef WIDE WV;
#define TO_WIDE(v) ((WIDE)(v))
#define TO_CT(v) ((CT)(v))
#endif

// `n` values from element `at` on, `other` in the lanes behind them; and back.
#ifdef PROCESSOR
#define LANE_FUNCTIONS(name, load, store, load16, store16)                                          \
  static inline VT lanes_##name(__global const uchar* p, long at, long stride, long n, CT other) {  \
    if (n == LANES && stride == 1) return load16(p, at);                                            \
    if (n == LANES && stride == 0) return (VT)(load(p, at));                                        \
    CT t[LANES];                                                                                    \
    for (int l = 0; l < LANES; ++l) t[l] = other;                                                   \
    for (long l = 0; l < n; ++l) t[l] = load(p, at + l * stride);                                   \
    return vload16(0, t);                                                                           \
  }                                                                                                 \
  static inline void keep_##name(__global uchar* p, long at, long stride, long n, VT v) {           \
    if (n == LANES && stride == 1) {                                                                \
      store16(p, at, v);                                                                            \
    } else {                                                                                        \
      CT t[LANES];                                                                                  \
      vstore16(v, 0, t);                                                                            \
      for (long l = 0; l < n; ++l) store(p, at + l * stride, t[l]);                                 \
    }                                                                                               \
  }
#else
#define LANE_FUNCTIONS(name, load, store, load16, store16)                                                                      \
  static inline VT lanes_##name(__global const uchar* p, long at, long stride, long n, CT other) {             \
    return load(p, at);                                                                                        \
  }                                                                                                            \
  static inline void keep_##name(__global uchar* p, long at, long stride, long n, VT v) { store(p, at, v); }
#endif
LANE_FUNCTIONS(X, LOAD_X, STORE_X, LOAD16_X, STORE16_X)
#ifdef X_IS_F32
#define lanes_F32 lanes_X
#define keep_F32 keep_X
#else
#define LOAD16_F32(p, at) TO_VECTOR(vload16(0, (__global const float*)(p) + (at)))
#define STORE16_F32(p, at, v) vstore16(convert_float16(v), 0, (__global float*)(p) + (at))
LANE_FUNCTIONS(F32, LOAD_F32, STORE_F32, LOAD16_F32, STORE16_F32)
#endif

// LANE_UNITS: what teams do, one after the other. STEPS: a team's positions along a slice, `here` lanes of them in use.
#ifdef ACROSS
#define LANE_UNITS UNITS
#else
#define LANE_UNITS TEAM_UNITS
#endif

#ifdef ACROSS
#define STEPS(i, here, begin, end, count) \
  const long here = count;                \
  for (long i = begin; i < (end); ++i)
#define TEAM_ARGUMENT
#define TOTAL(v) (v)
#define LARGEST(v) (v)
#define LEADS 1
#elif defined(PROCESSOR)
#define STEPS(i, here, begin, end, count) \
  for (long i = begin, here; here = min((long)LANES, (end)-i), i < (end); i += LANES)
#define TEAM_ARGUMENT
static inline WV TOTAL(WV v) {
  const WV8 a = v.lo + v.hi;
  const WV4 b = a.lo + a.hi;
  return (WV)(b.x + b.y + b.z + b.w);
}
static inline VT LARGEST(VT v) {
  CT t[LANES], most;
  vstore16(v, 0, t);
  most = t[0];
  for (int l = 1; l < LANES; ++l) most = fmax(most, t[l]);
  return (VT)most;
}
#define LEADS 1
#else
#define STEPS(i, here, begin, end, count) \
  const long here = 1;                    \
  for (long i = (begin) + get_local_id(0); i < (end); i += get_local_size(0))
// An argument: PoCL 3.1 has made one array in the kernel one for all of its threads.
#define TEAM_ARGUMENT , __local WIDE* team_memory
#define TEAM_JOIN(name, e)                                                \
  static inline WIDE name(WIDE v, __local WIDE* box) {                    \
    const int me = get_local_id(0);                                       \
    box[me] = v;                                                          \
    barrier(CLK_LOCAL_MEM_FENCE);                                         \
    for (int half_ = get_local_size(0) / 2; half_ > 0; half_ /= 2) {      \
      if (me < half_) {                                                   \
        const WIDE a = box[me], b = box[me + half_];                      \
        box[me] = e;                                                      \
      }                                                                   \
      barrier(CLK_LOCAL_MEM_FENCE);                                       \
    }                                                                     \
    v = box[0];                                                           \
    barrier(CLK_LOCAL_MEM_FENCE);                                         \
    return v;                                                             \
  }
TEAM_JOIN(team_total, a + b)
TEAM_JOIN(team_largest, fmax(a, b))
#define TOTAL(v) team_total(v, team_memory)
#define LARGEST(v) ((CT)team_largest((WIDE)(v), team_memory))
#define LEADS (get_local_id(0) == 0)
#endif
