// Elementary functions of complex numbers: OP_<opcode>_C64 and _C128. Added to programs that name a complex type. Where
// there are doubles, C64 is computed in them.
//
// Inverse functions: Kahan, "Branch cuts for complex elementary functions", 1987.

// A product in which 0 wins over all, so that exp(inf + 0i) is inf + 0i.
#define TIMES(T) \
  static inline T times_##T(T a, T b) { return a == 0 || b == 0 ? copysign((T)1, a) * copysign((T)0, b) : a * b; }
#define ELEMENTARY(t, T, T2, SQRT2, PI, LN2, LOG2E, LOG10E)                                                          \
  TIMES(T)                                                                                                    \
  static inline T2 OP_EXP_##t(T2 a) {                                                                         \
    const T e = exp(a.x);                                                                                     \
    if (!isfinite(a.y) && (e == 0 || isinf(e))) return e == 0 ? (T2)(0, 0) : (T2)(e, NAN);                    \
    return (T2)(a.y == 0 ? e : times_##T(e, cos(a.y)), a.y == 0 ? a.y : times_##T(e, sin(a.y)));              \
  }                                                                                                           \
  static inline T2 OP_EXP2_##t(T2 a) { return OP_EXP_##t(a * LN2); }                                          \
  static inline T2 OP_EXPM1_##t(T2 a) {                                                                       \
    const T s = sin(a.y / 2), c = cos(a.y);                                                                   \
    return (T2)(times_##T(expm1(a.x), c) - 2 * s * s, times_##T(exp(a.x), sin(a.y)));                         \
  }                                                                                                           \
  static inline T2 OP_LOG_##t(T2 a) {                                                                         \
    const T r = hypot(a.x, a.y), u = fmax(fabs(a.x), fabs(a.y)), v = fmin(fabs(a.x), fabs(a.y));              \
    /* Near the unit circle the logarithm of the length loses digits. */                                      \
    const T x = r > (T)0.5 && r < 2 ? log1p((u - 1) * (u + 1) + v * v) / 2 : log(r);                          \
    return (T2)(x, atan2(a.y, a.x));                                                                          \
  }                                                                                                           \
  static inline T2 OP_LOG2_##t(T2 a) { return OP_LOG_##t(a) * LOG2E; }                                        \
  static inline T2 OP_LOG10_##t(T2 a) { return OP_LOG_##t(a) * LOG10E; }                                      \
  static inline T2 OP_LOG1P_##t(T2 a) {                                                                       \
    if (fabs(a.x) > (T)0.5 || fabs(a.y) > (T)0.5) return OP_LOG_##t((T2)(1 + a.x, a.y));                      \
    return (T2)(log1p(a.x * (2 + a.x) + a.y * a.y) / 2, atan2(a.y, 1 + a.x));                                 \
  }                                                                                                           \
  static inline T2 OP_SQRT_##t(T2 a) {                                                                        \
    if (isinf(a.y)) return (T2)(INFINITY, a.y);                                                               \
    if (isinf(a.x))                                                                                           \
      return a.x > 0 ? (T2)(a.x, a.y == a.y ? copysign((T)0, a.y) : a.y)                                      \
                     : (T2)(a.y == a.y ? (T)0 : a.y, copysign((T)INFINITY, a.y));                             \
    const T s = sqrt(hypot(a.x / 4, a.y / 4) + fabs(a.x) / 4) * SQRT2;                                 \
    if (s == 0) return (T2)(0, a.y);                                                                          \
    return a.x >= 0 ? (T2)(s, a.y / (2 * s)) : (T2)(fabs(a.y) / (2 * s), copysign(s, a.y));                   \
  }                                                                                                           \
  static inline T2 OP_RSQRT_##t(T2 a) { return OP_RECIPROCAL_##t(OP_SQRT_##t(a)); }                           \
  static inline T2 OP_POW_##t(T2 a, T2 b) {                                                                   \
    if (b.x == 0 && b.y == 0) return (T2)(1, 0);                                                              \
    return OP_EXP_##t(OP_MUL_##t(b, OP_LOG_##t(a)));                                                          \
  }                                                                                                           \
  static inline T2 OP_SINH_##t(T2 a) {                                                                        \
    if (isinf(a.x) && !isfinite(a.y)) return (T2)(a.x, NAN);                                                  \
    return (T2)(times_##T(sinh(a.x), cos(a.y)), times_##T(cosh(a.x), sin(a.y)));                              \
  }                                                                                                           \
  static inline T2 OP_COSH_##t(T2 a) {                                                                        \
    if (isinf(a.x) && !isfinite(a.y)) return (T2)(INFINITY, NAN);                                             \
    return (T2)(times_##T(cosh(a.x), cos(a.y)), times_##T(sinh(a.x), sin(a.y)));                              \
  }                                                                                                           \
  static inline T2 OP_TANH_##t(T2 a) {                                                                        \
    if (fabs(a.x) > 20) {                                                                                     \
      const T e = 4 * exp(-2 * fabs(a.x));                                                                    \
      return (T2)(copysign((T)1, a.x), e == 0 ? copysign((T)0, sin(2 * a.y)) : sin(a.y) * cos(a.y) * e);      \
    }                                                                                                         \
    if (a.x == 0) return (T2)(a.x, tan(a.y));                                                                 \
    if (a.y == 0) return (T2)(tanh(a.x), a.y);                                                                \
    const T u = tan(a.y), v = 1 + u * u, s = sinh(a.x), r = sqrt(1 + s * s), d = 1 + v * s * s;               \
    return (T2)(v * r * s / d, u / d);                                                                        \
  }                                                                                                           \
  /* f(z) = -i g(iz) */                                                                                       \
  static inline T2 OP_SIN_##t(T2 a) {                                                                         \
    const T2 w = OP_SINH_##t((T2)(-a.y, a.x));                                                                \
    return (T2)(w.y, -w.x);                                                                                   \
  }                                                                                                           \
  static inline T2 OP_COS_##t(T2 a) { return OP_COSH_##t((T2)(-a.y, a.x)); }                                  \
  static inline T2 OP_TAN_##t(T2 a) {                                                                         \
    const T2 w = OP_TANH_##t((T2)(-a.y, a.x));                                                                \
    return (T2)(w.y, -w.x);                                                                                   \
  }                                                                                                           \
  static inline T2 far_##t(T2 a) { /* asin where a part is infinite */                                        \
    const T u = isinf(a.x) ? (T)1 : (T)0, v = isinf(a.y) ? (T)1 : (T)0;                                       \
    return (T2)(a.x != a.x || a.y != a.y ? (T)NAN : atan2(copysign(u, a.x), v), copysign((T)INFINITY, a.y));  \
  }                                                                                                           \
  static inline T2 OP_ASIN_##t(T2 a) {                                                                        \
    if (isinf(a.x) || isinf(a.y)) return far_##t(a);                                                          \
    const T2 p = OP_SQRT_##t((T2)(1 + a.x, a.y)), m = OP_SQRT_##t((T2)(1 - a.x, -a.y));                       \
    return (T2)(a.x == 0 ? a.x : atan2(a.x, p.x * m.x - p.y * m.y), asinh(m.x * p.y - m.y * p.x));            \
  }                                                                                                           \
  static inline T2 OP_ACOS_##t(T2 a) {                                                                        \
    const T2 p = OP_SQRT_##t((T2)(1 + a.x, a.y)), m = OP_SQRT_##t((T2)(1 - a.x, -a.y)), w = far_##t(a);       \
    if (isinf(a.x) || isinf(a.y)) return (T2)(PI / 2 - w.x, -w.y);                                            \
    return (T2)(a.x == 0 ? PI / 2 : 2 * atan2(m.x, p.x), asinh(p.x * m.y - p.y * m.x));                       \
  }                                                                                                           \
  static inline T2 OP_ACOSH_##t(T2 a) {                                                                       \
    const T2 p = OP_SQRT_##t((T2)(a.x + 1, a.y)), m = OP_SQRT_##t((T2)(a.x - 1, a.y));                        \
    if (isinf(a.x) || isinf(a.y)) return (T2)(INFINITY, copysign(PI / 2 - far_##t(a).x, a.y));                \
    return (T2)(asinh(m.x * p.x + m.y * p.y), a.x == 0 ? copysign(PI / 2, a.y) : 2 * atan2(m.y, p.x));        \
  }                                                                                                           \
  static inline T2 OP_ASINH_##t(T2 a) {                                                                       \
    const T2 w = OP_ASIN_##t((T2)(-a.y, a.x));                                                                \
    return (T2)(w.y, -w.x);                                                                                   \
  }                                                                                                           \
  static inline T2 OP_ATANH_##t(T2 a) {                                                                       \
    const T r = hypot(a.x, a.y), d = 1 - a.x;                                                                 \
    if (r > (T)1e15)                                                                                          \
      return (T2)(isinf(r) ? copysign((T)0, a.x) : a.x / r / r, a.y == a.y ? copysign(PI / 2, a.y) : a.y);    \
    return (T2)(a.x == 0 ? a.x : log1p(4 * a.x / (d * d + a.y * a.y)) / 4,                                    \
                atan2(2 * a.y, d * (1 + a.x) - a.y * a.y) / 2);                                               \
  }                                                                                                           \
  static inline T2 OP_ATAN_##t(T2 a) {                                                                        \
    const T2 w = OP_ATANH_##t((T2)(-a.y, a.x));                                                               \
    return (T2)(w.y, -w.x);                                                                                   \
  }                                                                                                           \
  static inline T2 OP_SIGMOID_##t(T2 a) {                                                                     \
    const T2 e = OP_EXP_##t(a.x < 0 ? a : -a), d = e + (T2)(1, 0);                                            \
    return OP_DIV_##t(a.x < 0 ? e : (T2)(1, 0), d);                                                           \
  }

#ifdef FP64
ELEMENTARY(C128, double, double2, 1.41421356237309504880, 3.14159265358979323846, 0.69314718055994530942,
           1.44269504088896340736, 0.43429448190325182765)
#define BY_DOUBLE(name) \
  static inline float2 OP_##name##_C64(float2 a) { return convert_float2(OP_##name##_C128(convert_double2(a))); }
BY_DOUBLE(EXP) BY_DOUBLE(EXP2) BY_DOUBLE(EXPM1) BY_DOUBLE(LOG) BY_DOUBLE(LOG2) BY_DOUBLE(LOG10) BY_DOUBLE(LOG1P)
BY_DOUBLE(SQRT) BY_DOUBLE(RSQRT) BY_DOUBLE(SINH) BY_DOUBLE(COSH) BY_DOUBLE(TANH) BY_DOUBLE(SIN) BY_DOUBLE(COS)
BY_DOUBLE(TAN) BY_DOUBLE(ASIN) BY_DOUBLE(ACOS) BY_DOUBLE(ATAN) BY_DOUBLE(ASINH) BY_DOUBLE(ACOSH) BY_DOUBLE(ATANH)
BY_DOUBLE(SIGMOID)
static inline float2 OP_POW_C64(float2 a, float2 b) {
  return convert_float2(OP_POW_C128(convert_double2(a), convert_double2(b)));
}
#else
ELEMENTARY(C64, float, float2, 1.41421356f, 3.14159265f, 0.69314718f, 1.44269504f, 0.43429448f)
#endif
