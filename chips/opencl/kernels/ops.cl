// What the opcodes of fl/program.h mean in each register type: OP_<opcode>_<type>(a, b, c), and how values lie in
// memory: LOAD_<dtype>(p, i), STORE_<dtype>(p, i, value). Included in every program that runs instructions, generated
// (program.cpp) or interpreted (interpret.cl).
//
// Register types: BOOL uchar (0, 1), I32 int, I64 long, F32 float, F64 double, C64 float2, C128 double2.
#pragma OPENCL FP_CONTRACT OFF
#ifdef FP64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

typedef uchar T_BOOL;
typedef int T_I32;
typedef long T_I64;
typedef float T_F32;
typedef float2 T_C64;
#ifdef FP64
typedef double T_F64;
typedef double2 T_C128;
#endif

// ---------------------------------------------------------------- what went wrong with the data
typedef struct {
  int status;
  uint kind;
  ulong tag;
  long a, b;
} Fault;
// The first one counts.
static inline void report(__global Fault* fault, ulong tag, int status, uint kind, long a, long b) {
  if (atomic_cmpxchg((volatile __global int*)&fault->status, 0, status) == 0) {
    fault->kind = kind;
    fault->tag = tag;
    fault->a = a;
    fault->b = b;
  }
}

// ---------------------------------------------------------------- who does what
// UNITS: those of n units that fall to this work-item; TEAM_UNITS: to its group. On a processor a group is one work-item
// and does neighbours, as many as others or one more: were shares rounded up, of 9 units for 8 groups the first 4 would
// have 8, and they are one thread's.
#ifdef PROCESSOR
static inline long share_before(long n, long group) {
  const long groups = get_num_groups(0);
  return n / groups * group + min(n % groups, group);
}
#define FIRST_UNIT(n) share_before(n, get_group_id(0))
#define END_UNIT(n) share_before(n, get_group_id(0) + 1)
#define UNITS(unit, n) for (long unit = FIRST_UNIT(n), end_ = END_UNIT(n); unit < end_; ++unit)
#define TEAM_UNITS UNITS
#else
#define UNITS(unit, n) for (long unit = get_global_id(0); unit < (n); unit += get_global_size(0))
#define TEAM_UNITS(unit, n) for (long unit = get_group_id(0); unit < (n); unit += get_num_groups(0))
#endif

// ---------------------------------------------------------------- memory
#define MEMORY(dtype, stored, reg)                                                                            \
  static inline reg LOAD_##dtype(__global const uchar* p, long i) { return ((__global const stored*)p)[i]; } \
  static inline void STORE_##dtype(__global uchar* p, long i, reg v) { ((__global stored*)p)[i] = (stored)v; }
MEMORY(U8, uchar, int)
MEMORY(I8, char, int)
MEMORY(U16, ushort, int)
MEMORY(I16, short, int)
MEMORY(I32, int, int)
MEMORY(U32, uint, long)
MEMORY(I64, long, long)
MEMORY(U64, ulong, long)
MEMORY(F32, float, float)
MEMORY(C64, float2, float2)
#ifdef FP64
MEMORY(F64, double, double)
MEMORY(C128, double2, double2)
#endif
static inline uchar LOAD_BOOL(__global const uchar* p, long i) { return p[i] != 0; }
static inline void STORE_BOOL(__global uchar* p, long i, uchar v) { p[i] = v; }

// Half precision in 32-bit arithmetic, which every device has and every compiler vectorises.
static inline float from_half(uint h) {
  uint sign = (h & 0x8000u) << 16, rest = h & 0x7fffu;
  float small = (float)rest * 0x1p-24f;  // subnormal
  uint normal = (rest << 13) + (112u << 23), special = (rest << 13) | 0x7f800000u;
  uint bits = rest >= 0x7c00u ? special : rest < 0x400u ? as_uint(small) : normal;
  return as_float(bits | sign);
}
static inline uint to_half(float f) {
  uint bits = as_uint(f), sign = (bits >> 16) & 0x8000u, rest = bits & 0x7fffffffu;
  uint normal = (rest + 0xfffu + ((rest >> 13) & 1u) - (112u << 23)) >> 13;  // to nearest, ties to even
  uint small = as_uint(as_float(rest) + 0.5f) - as_uint(0.5f);               // the addition rounds at 2^-24
  uint nan = 0x7e00u | (rest >> 13 & 0x3ffu);
  uint made = rest > 0x7f800000u ? nan : rest >= 0x477ff000u ? 0x7c00u : rest < 0x38800000u ? small : normal;
  return made | sign;
}
static inline uint to_bfloat(float f) {
  uint bits = as_uint(f);
  return f != f ? 0x7fc0u | (bits >> 16 & 0x8000u) : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}
static inline float LOAD_F16(__global const uchar* p, long i) { return from_half(((__global const ushort*)p)[i]); }
static inline void STORE_F16(__global uchar* p, long i, float v) { ((__global ushort*)p)[i] = (ushort)to_half(v); }
static inline float LOAD_BF16(__global const uchar* p, long i) {
  return as_float((uint)((__global const ushort*)p)[i] << 16);
}
static inline void STORE_BF16(__global uchar* p, long i, float v) { ((__global ushort*)p)[i] = (ushort)to_bfloat(v); }
static inline float2 LOAD_C32(__global const uchar* p, long i) {
  ushort2 h = ((__global const ushort2*)p)[i];
  return (float2)(from_half(h.x), from_half(h.y));
}
static inline void STORE_C32(__global uchar* p, long i, float2 v) {
  ((__global ushort2*)p)[i] = (ushort2)((ushort)to_half(v.x), (ushort)to_half(v.y));
}

// ---------------------------------------------------------------- conversions: CAST_<from>_<to>
#define SAME(t) \
  static inline T_##t CAST_##t##_##t(T_##t a) { return a; }
SAME(BOOL) SAME(I32) SAME(I64) SAME(F32) SAME(C64)
#define CONVERT(from, to) \
  static inline T_##to CAST_##from##_##to(T_##from a) { return (T_##to)a; }
#define TO_BOOL(from) \
  static inline uchar CAST_##from##_BOOL(T_##from a) { return a != 0; }
CONVERT(BOOL, I32) CONVERT(BOOL, I64) CONVERT(BOOL, F32)
CONVERT(I32, I64) CONVERT(I32, F32) TO_BOOL(I32)
CONVERT(I64, I32) CONVERT(I64, F32) TO_BOOL(I64)
CONVERT(F32, I64) TO_BOOL(F32)
// What does not fit, which OpenCL leaves open, is what x86 processors make of it, as in PyTorch's CPU kernels.
#define TO_INT(a) (fabs(a) < 2147483648.0f ? (int)(a) : INT_MIN)
static inline int CAST_F32_I32(float a) { return TO_INT(a); }
// U64 lives in a long and is a number of its own when converted to a float.
static inline float CAST_U64_F32(long a) { return (float)(ulong)a; }
#define COMPLEX_CASTS(c, real, pair)                                                               \
  static inline uchar CAST_##c##_BOOL(pair a) { return a.x != 0 || a.y != 0; }                     \
  static inline int CAST_##c##_I32(pair a) { return TO_INT(a.x); }                                 \
  static inline long CAST_##c##_I64(pair a) { return (long)a.x; }                                  \
  static inline float CAST_##c##_F32(pair a) { return (float)a.x; }                                \
  static inline pair CAST_BOOL_##c(uchar a) { return (pair)((real)a, 0); }                         \
  static inline pair CAST_I32_##c(int a) { return (pair)((real)a, 0); }                            \
  static inline pair CAST_I64_##c(long a) { return (pair)((real)a, 0); }                           \
  static inline pair CAST_F32_##c(float a) { return (pair)((real)a, 0); }                          \
  static inline pair CAST_U64_##c(long a) { return (pair)((real)(ulong)a, 0); }
COMPLEX_CASTS(C64, float, float2)
#ifdef FP64
SAME(F64) SAME(C128)
CONVERT(BOOL, F64) CONVERT(I32, F64) CONVERT(I64, F64) CONVERT(F32, F64) CONVERT(F64, F32) CONVERT(F64, I64)
TO_BOOL(F64)
static inline int CAST_F64_I32(double a) { return TO_INT(a); }
static inline double CAST_U64_F64(long a) { return (double)(ulong)a; }
COMPLEX_CASTS(C128, double, double2)
static inline double CAST_C64_F64(float2 a) { return (double)a.x; }
static inline double CAST_C128_F64(double2 a) { return a.x; }
static inline float2 CAST_F64_C64(double a) { return (float2)((float)a, 0); }
static inline double2 CAST_F64_C128(double a) { return (double2)(a, 0); }
static inline double2 CAST_C64_C128(float2 a) { return convert_double2(a); }
static inline float2 CAST_C128_C64(double2 a) { return convert_float2(a); }
#endif

// ---------------------------------------------------------------- operations
#define OP1(name, t, e) \
  static inline T_##t OP_##name##_##t(T_##t a) { return (T_##t)(e); }
#define OP2(name, t, e) \
  static inline T_##t OP_##name##_##t(T_##t a, T_##t b) { return (T_##t)(e); }
#define COMPARE(name, t, e) \
  static inline uchar OP_##name##_##t(T_##t a, T_##t b) { return (uchar)((e) ? 1 : 0); }
#define SELECTS(t) \
  static inline T_##t OP_SELECT_##t(uchar a, T_##t b, T_##t c) { return a ? b : c; }
#define COMPARISONS(t)                                                                      \
  COMPARE(EQ, t, a == b) COMPARE(NE, t, a != b) COMPARE(LT, t, a < b) COMPARE(LE, t, a <= b) \
  COMPARE(GT, t, a > b) COMPARE(GE, t, a >= b)

// BOOL
SELECTS(BOOL) COMPARISONS(BOOL)
OP2(ADD, BOOL, a | b) OP2(SUB, BOOL, a ^ b) OP2(MUL, BOOL, a & b) OP2(POW, BOOL, a | (b ^ 1)) OP2(MAX, BOOL, a | b)
OP2(MIN, BOOL, a & b) OP2(AND, BOOL, a & b) OP2(OR, BOOL, a | b) OP2(XOR, BOOL, a ^ b) OP1(NOT, BOOL, a ^ 1)
OP1(NEG, BOOL, a) OP1(ABS, BOOL, a) OP1(SIGN, BOOL, a)

// Integers. Division by zero is caught before (DIV_TRUNC … REM_FLOOR get b == 0 as 1).
#define INTEGERS(t, u, bits)                                                                                    \
  SELECTS(t) COMPARISONS(t)                                                                                     \
  static inline T_##t quotient_##t(T_##t a, T_##t b) { return b == -1 ? (T_##t)((u)0 - (u)a) : a / b; }         \
  static inline T_##t rest_##t(T_##t a, T_##t b) { return b == -1 ? 0 : a % b; }                                \
  static inline T_##t uneven_##t(T_##t r, T_##t b) { return r != 0 && (r < 0) != (b < 0); }                     \
  OP2(ADD, t, (u)a + (u)b) OP2(SUB, t, (u)a - (u)b) OP2(MUL, t, (u)a * (u)b)                                    \
  OP2(DIV_TRUNC, t, quotient_##t(a, b)) OP2(DIV_FLOOR, t, quotient_##t(a, b) - uneven_##t(rest_##t(a, b), b))   \
  OP2(REM_TRUNC, t, rest_##t(a, b)) OP2(REM_FLOOR, t, rest_##t(a, b) + (uneven_##t(rest_##t(a, b), b) ? b : 0)) \
  static inline T_##t OP_POW_##t(T_##t a, T_##t b) {                                                            \
    if (b < 0) return a == 1 || (a == -1 && b % 2 == 0) ? 1 : a == -1 ? -1 : 0;                                 \
    u r = 1, x = (u)a;                                                                                          \
    for (; b; b >>= 1, x *= x) r *= (b & 1) ? x : 1;                                                            \
    return (T_##t)r;                                                                                            \
  }                                                                                                             \
  OP2(MAX, t, max(a, b)) OP2(MIN, t, min(a, b)) OP2(AND, t, a & b) OP2(OR, t, a | b) OP2(XOR, t, a ^ b)         \
  OP1(NOT, t, ~a) OP1(NEG, t, (u)0 - (u)a) OP1(ABS, t, a < 0 ? (u)0 - (u)a : (u)a)                              \
  OP1(SIGN, t, (a > 0) - (a < 0))                                                                               \
  OP2(SHL, t, b < 0 || b >= bits ? 0 : (u)a << (b & (bits - 1)))                                                \
  OP2(SHR, t, a >> (b < 0 || b >= bits ? bits - 1 : b))
INTEGERS(I32, uint, 32)
INTEGERS(I64, ulong, 64)
static inline long OP_GCD_I64(long a, long b) {
  ulong x = a < 0 ? 0UL - (ulong)a : (ulong)a, y = b < 0 ? 0UL - (ulong)b : (ulong)b;
  while (y) {
    ulong r = x % y;
    x = y, y = r;
  }
  return (long)x;
}
static inline int OP_GCD_I32(int a, int b) { return (int)OP_GCD_I64(a, b); }

// Floats. `wide` is the type in which the specification's looser functions are computed: double where there is one.
#ifdef FP64
#define WIDE double
#else
#define WIDE float
#endif
#define FLOATS(t, T, wide)                                                                                    \
  SELECTS(t) COMPARISONS(t)                                                                                   \
  static inline T uneven_##t(T r, T b) { return (r != 0 && (r < 0) != (b < 0)) ? (T)1 : (T)0; }               \
  OP2(ADD, t, a + b) OP2(SUB, t, a - b) OP2(MUL, t, a * b) OP2(DIV, t, a / b) OP2(DIV_TRUNC, t, trunc(a / b)) \
  static inline T OP_DIV_FLOOR_##t(T a, T b) {                                                                \
    T r = fmod(a, b), q = rint((a - r) / b - uneven_##t(r, b));                                               \
    return b == 0 ? a / b : q == 0 ? copysign((T)0, a / b) : q;                                               \
  }                                                                                                           \
  OP2(REM_TRUNC, t, fmod(a, b))                                                                               \
  static inline T OP_REM_FLOOR_##t(T a, T b) {                                                                \
    T r = fmod(a, b);                                                                                         \
    return r + (uneven_##t(r, b) != 0 ? b : (T)0);                                                            \
  }                                                                                                           \
  OP2(POW, t, pow((wide)a, (wide)b)) OP2(MAX, t, a > b || a != a ? a : b) OP2(MIN, t, a < b || a != a ? a : b) \
  OP2(FMAX, t, fmax(a, b)) OP2(FMIN, t, fmin(a, b)) OP1(NEG, t, -a) OP1(ABS, t, fabs(a))                      \
  OP1(SIGN, t, (a > 0) - (a < 0)) OP1(FLOOR, t, floor(a)) OP1(CEIL, t, ceil(a)) OP1(TRUNC, t, trunc(a))       \
  OP1(ROUND, t, rint(a)) OP1(SQRT, t, sqrt(a)) OP1(RSQRT, t, (T)1 / sqrt(a)) OP1(RECIPROCAL, t, (T)1 / a)     \
  OP1(EXP, t, exp(a)) OP1(EXP2, t, exp2(a)) OP1(EXPM1, t, expm1(a)) OP1(LOG, t, log(a)) OP1(LOG2, t, log2(a)) \
  OP1(LOG10, t, log10(a)) OP1(LOG1P, t, log1p(a)) OP1(SIN, t, sin(a)) OP1(COS, t, cos(a))                     \
  OP1(TAN, t, tan((wide)a)) OP1(ASIN, t, asin(a)) OP1(ACOS, t, acos(a)) OP1(ATAN, t, atan((wide)a))           \
  OP1(SINH, t, sinh(a)) OP1(COSH, t, cosh(a)) OP1(TANH, t, tanh(a)) OP1(ASINH, t, asinh(a))                   \
  OP1(ACOSH, t, acosh(a)) OP1(ATANH, t, atanh((wide)a)) OP2(ATAN2, t, atan2((wide)a, (wide)b))                \
  OP2(HYPOT, t, hypot(a, b)) OP2(COPYSIGN, t, copysign(a, b)) OP2(NEXTAFTER, t, nextafter(a, b))              \
  OP1(SIGMOID, t, (T)1 / ((T)1 + exp(-a))) OP1(ERF, t, erf((wide)a)) OP1(ERFC, t, erfc((wide)a))              \
  OP1(LGAMMA, t, lgamma((wide)a))                                                                             \
  static inline T OP_FREXP_MANTISSA_##t(T a) {                                                                \
    int e;                                                                                                    \
    return frexp(a, &e);                                                                                      \
  }                                                                                                           \
  static inline T OP_FREXP_EXPONENT_##t(T a) {                                                                \
    int e = 0;                                                                                                \
    frexp(a, &e);                                                                                             \
    return (T)(isfinite(a) ? e : 0);                                                                          \
  }                                                                                                           \
  OP2(LDEXP, t, ldexp(a, (int)clamp(b, (T)-5000, (T)5000)))                                                   \
  static inline T OP_FMA_##t(T a, T b, T c) { return fma(a, b, c); }                                          \
  OP1(ANGLE, t, a != a ? a : a < 0 ? (T)M_PI_F : (T)0)
FLOATS(F32, float, WIDE)
#ifdef FP64
#undef M_PI_F
#define M_PI_F 3.14159265358979323846
FLOATS(F64, double, double)
#endif

// Complex numbers.
#define COMPLEX(t, T, T2)                                                                                      \
  SELECTS2(t, T2)                                                                                              \
  static inline uchar OP_EQ_##t(T2 a, T2 b) { return a.x == b.x && a.y == b.y; }                               \
  static inline uchar OP_NE_##t(T2 a, T2 b) { return a.x != b.x || a.y != b.y; }                               \
  OP2(ADD, t, a + b) OP2(SUB, t, a - b) OP1(NEG, t, -a)                                                        \
  static inline T2 OP_MUL_##t(T2 a, T2 b) { return (T2)(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }       \
  /* Scaled by the divisor's larger part (Smith, "Algorithm 116: Complex division", CACM 1962). */             \
  static inline T2 OP_DIV_##t(T2 a, T2 b) {                                                                    \
    if (fabs(b.x) >= fabs(b.y)) {                                                                              \
      if (b.x == 0 && b.y == 0) return (T2)(a.x / fabs(b.x), a.y / fabs(b.x));                                 \
      T r = b.y / b.x, d = b.x + b.y * r;                                                                      \
      return (T2)((a.x + a.y * r) / d, (a.y - a.x * r) / d);                                                   \
    }                                                                                                          \
    T r = b.x / b.y, d = b.x * r + b.y;                                                                        \
    return (T2)((a.x * r + a.y) / d, (a.y * r - a.x) / d);                                                     \
  }                                                                                                            \
  static inline T2 OP_RECIPROCAL_##t(T2 a) { return OP_DIV_##t((T2)(1, 0), a); }                               \
  static inline T2 OP_ABS_##t(T2 a) { return (T2)(hypot(a.x, a.y), 0); }                                       \
  static inline T2 OP_ANGLE_##t(T2 a) { return (T2)(atan2(a.y, a.x), 0); }                                     \
  static inline T2 OP_SIGN_##t(T2 a) {                                                                         \
    T r = hypot(a.x, a.y);                                                                                     \
    return r == 0 ? (T2)(0, 0) : (T2)(a.x / r, a.y / r);                                                       \
  }                                                                                                            \
  static inline T2 OP_REAL_##t(T2 a) { return (T2)(a.x, 0); }                                                  \
  static inline T2 OP_IMAG_##t(T2 a) { return (T2)(a.y, 0); }                                                  \
  static inline T2 OP_CONJ_##t(T2 a) { return (T2)(a.x, -a.y); }                                               \
  static inline T2 OP_COMPLEX_##t(T2 a, T2 b) { return (T2)(a.x, b.x); }
#define SELECTS2(t, T2) \
  static inline T2 OP_SELECT_##t(uchar a, T2 b, T2 c) { return a ? b : c; }
COMPLEX(C64, float, float2)
#ifdef FP64
COMPLEX(C128, double, double2)
#endif
