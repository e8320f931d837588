/*
 * fl/program.h — the torch-fl chip ABI, version 1: pointwise programs.
 *
 * What POINTWISE and MULTI_TENSOR run, and what REDUCE and GEMM may run before
 * and after.  Eager `add` is a program of one instruction; a fused chain is a
 * longer one.  A chip interprets it, or makes code of it under its hash.
 */
#ifndef FL_PROGRAM_H
#define FL_PROGRAM_H

#include "fl/chip.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FL_MAX_CODE 256

/* A number that travels with a launch.  Which member counts follows from the
 * register type: f for F32 and F64, f and imag for C64 and C128, i for
 * integers and BOOL (0 or 1). */
typedef struct fl_scalar {
  union {
    double f;
    int64_t i;
  } v;
  double imag;
} fl_scalar;
FL_STATIC_ASSERT(scalar_size, sizeof(fl_scalar) == 16);

/* A pointwise program is a list of typed instructions in single-assignment
 * form: instruction i makes value i, operands name earlier values.  Eager
 * `add` is LOAD LOAD ADD STORE.
 *
 * Register types are BOOL, I32, I64, F32, F64, C64 and C128.  Narrow storage
 * (U8, I8, I16, F16, BF16, …) exists in memory only: LOAD widens, STORE
 * narrows.  U8, I8, I16, U16 live in I32 or I64; U32 in I64; U64 in I64 as
 * the same bits; F16, BF16 in F32; C32 in C64.
 *
 *   [PGM-1] Conversions: to BOOL is "not zero" (NaN is true); float to
 *   integer truncates towards zero; integer to narrower integer keeps the low
 *   bits; float to narrower float rounds to nearest even; complex to real
 *   drops the imaginary part.  Float to integer out of range is unspecified.
 *   [PGM-2] Integer ADD, SUB, MUL, NEG, SHL wrap.  Integer division by zero
 *   is a fault (FL_FAILED, "division by zero").
 *   [PGM-3] MAX and MIN give NaN when either operand is NaN; FMAX and FMIN
 *   give the other operand.
 *   [PGM-4] F32 results of + − × ÷ and sqrt are correctly rounded; other F32
 *   functions are within 4 units in the last place (LGAMMA, DIGAMMA and the
 *   special functions: within 1e-5 relative).
 *   [PGM-5] Subnormals may be flushed; infinities and NaN follow IEEE 754.
 *
 * The opcodes.  X(name, value, operands, types, tier, meaning)
 *   types:  N every register type; R real and integer (no BOOL, no complex);
 *           I integer and BOOL; J integers without BOOL; F float and complex;
 *           G float, not complex; C complex.
 *   tier:   M mandatory for the register types a chip claims in mandatory
 *           claims; O optional.
 * Comparisons take operands of `type` and make BOOL. */
/* clang-format off */
#define FL_OPCODE_MAP(X)                                                             \
  X(LOAD, 0, 0, N, M, "input a, stored as `memory`, converted to `type`")            \
  X(STORE, 1, 1, N, M, "value a, of `type`, to output b, stored as `memory`")        \
  X(SCALAR, 2, 0, N, M, "scalar a of the launch")                                    \
  X(INDEX, 3, 0, J, M, "position along dimension a; a == 0xffff: row-major number")  \
  X(CAST, 4, 1, N, M, "value a, of register type `memory`, converted to `type`")     \
  X(SELECT, 5, 3, N, M, "a (BOOL) ? b : c")                                          \
  X(ADD, 6, 2, N, M, "a + b (BOOL: or)")                                             \
  X(SUB, 7, 2, N, M, "a - b (BOOL: xor)")                                            \
  X(MUL, 8, 2, N, M, "a * b (BOOL: and)")                                            \
  X(DIV, 9, 2, F, M, "a / b")                                                        \
  X(DIV_TRUNC, 10, 2, R, M, "a / b rounded towards zero")                            \
  X(DIV_FLOOR, 11, 2, R, M, "a / b rounded down, as Python's //")                    \
  X(REM_TRUNC, 12, 2, R, M, "remainder with the sign of a, C's fmod")                \
  X(REM_FLOOR, 13, 2, R, M, "remainder with the sign of b, Python's %")              \
  X(POW, 14, 2, N, M, "a to the power b; integers: wrapped, negative b as 1/a**-b truncated") \
  X(MAX, 15, 2, N, M, "the larger, NaN if either is")                                \
  X(MIN, 16, 2, N, M, "the smaller, NaN if either is")                               \
  X(FMAX, 17, 2, G, M, "the larger; NaN only if both are")                           \
  X(FMIN, 18, 2, G, M, "the smaller; NaN only if both are")                          \
  X(EQ, 19, 2, N, M, "a == b")                                                       \
  X(NE, 20, 2, N, M, "a != b")                                                       \
  X(LT, 21, 2, N, M, "a < b")                                                        \
  X(LE, 22, 2, N, M, "a <= b")                                                       \
  X(GT, 23, 2, N, M, "a > b")                                                        \
  X(GE, 24, 2, N, M, "a >= b")                                                       \
  X(AND, 25, 2, I, M, "bitwise; BOOL: logical")                                      \
  X(OR, 26, 2, I, M, "bitwise; BOOL: logical")                                       \
  X(XOR, 27, 2, I, M, "bitwise; BOOL: logical")                                      \
  X(NOT, 28, 1, I, M, "bitwise; BOOL: logical")                                      \
  X(SHL, 29, 2, J, M, "a << b; b < 0 or >= the width gives 0")                       \
  X(SHR, 30, 2, J, M, "arithmetic a >> b; b out of range gives the sign")            \
  X(NEG, 31, 1, N, M, "-a")                                                          \
  X(ABS, 32, 1, N, M, "|a|; of a complex value, in the real part")                   \
  X(SIGN, 33, 1, N, M, "-1, 0 or 1, NaN gives 0; complex: a/|a|")                    \
  X(FLOOR, 34, 1, G, M, "")                                                          \
  X(CEIL, 35, 1, G, M, "")                                                           \
  X(TRUNC, 36, 1, G, M, "")                                                          \
  X(ROUND, 37, 1, G, M, "to nearest, ties to even")                                  \
  X(SQRT, 38, 1, F, M, "")                                                           \
  X(RSQRT, 39, 1, F, M, "1 / sqrt(a)")                                               \
  X(RECIPROCAL, 40, 1, F, M, "1 / a")                                                \
  X(EXP, 41, 1, F, M, "")                                                            \
  X(EXP2, 42, 1, F, M, "")                                                           \
  X(EXPM1, 43, 1, F, M, "")                                                          \
  X(LOG, 44, 1, F, M, "")                                                            \
  X(LOG2, 45, 1, F, M, "")                                                           \
  X(LOG10, 46, 1, F, M, "")                                                          \
  X(LOG1P, 47, 1, F, M, "")                                                          \
  X(SIN, 48, 1, F, M, "")                                                            \
  X(COS, 49, 1, F, M, "")                                                            \
  X(TAN, 50, 1, F, M, "")                                                            \
  X(ASIN, 51, 1, F, M, "")                                                           \
  X(ACOS, 52, 1, F, M, "")                                                           \
  X(ATAN, 53, 1, F, M, "")                                                           \
  X(SINH, 54, 1, F, M, "")                                                           \
  X(COSH, 55, 1, F, M, "")                                                           \
  X(TANH, 56, 1, F, M, "")                                                           \
  X(ASINH, 57, 1, F, M, "")                                                          \
  X(ACOSH, 58, 1, F, M, "")                                                          \
  X(ATANH, 59, 1, F, M, "")                                                          \
  X(ATAN2, 60, 2, G, M, "")                                                          \
  X(HYPOT, 61, 2, G, M, "")                                                          \
  X(COPYSIGN, 62, 2, G, M, "")                                                       \
  X(NEXTAFTER, 63, 2, G, O, "the neighbour of a towards b, in `type`")               \
  X(SIGMOID, 64, 1, F, M, "1 / (1 + exp(-a))")                                       \
  X(ERF, 65, 1, G, M, "")                                                            \
  X(ERFC, 66, 1, G, M, "")                                                           \
  X(ERFINV, 67, 1, G, O, "")                                                         \
  X(LGAMMA, 68, 1, G, O, "log |gamma(a)|")                                           \
  X(DIGAMMA, 69, 1, G, O, "")                                                        \
  X(TRIGAMMA, 70, 1, G, O, "")                                                       \
  X(I0, 71, 1, G, O, "modified Bessel functions of the first kind; E: times exp(-|a|)") \
  X(I0E, 72, 1, G, O, "")                                                            \
  X(I1, 73, 1, G, O, "")                                                             \
  X(I1E, 74, 1, G, O, "")                                                            \
  X(NDTRI, 75, 1, G, O, "inverse of the normal distribution function")               \
  X(LOG_NDTR, 76, 1, G, O, "log of the normal distribution function")                \
  X(ERFCX, 77, 1, G, O, "exp(a*a) * erfc(a)")                                        \
  X(ZETA, 78, 2, G, O, "Hurwitz zeta(a, b)")                                         \
  X(GCD, 79, 2, J, O, "greatest common divisor, not negative")                       \
  X(REAL, 80, 1, C, M, "the real part, as complex")                                  \
  X(IMAG, 81, 1, C, M, "the imaginary part, as the real part of a complex")          \
  X(CONJ, 82, 1, C, M, "")                                                           \
  X(COMPLEX, 83, 2, C, M, "real part of a + i × real part of b")                     \
  X(ANGLE, 84, 1, F, O, "atan2(imag, real), in the real part; NaN stays")            \
  X(FREXP_MANTISSA, 85, 1, G, O, "frexp's mantissa")                                 \
  X(FREXP_EXPONENT, 86, 1, G, O, "frexp's exponent, as `type`")                      \
  X(LDEXP, 87, 2, G, O, "a × 2**b")                                                  \
  X(FMA, 88, 3, G, O, "a * b + c, rounded once or twice")                            \
  X(CONST, 89, 0, N, M, "the literal a | b << 16 | c << 32 | reserved << 48: the bits of a double, or an int64") \
  X(IGAMMA, 90, 2, G, O, "regularised lower incomplete gamma function P(a, b)")      \
  X(IGAMMAC, 91, 2, G, O, "regularised upper incomplete gamma function Q(a, b)")
/* clang-format on */

enum {
#define FL_OPCODE_ENUM(name, value, operands, types, tier, meaning) FL_OP_##name = (value),
  FL_OPCODE_MAP(FL_OPCODE_ENUM)
#undef FL_OPCODE_ENUM
      FL_OP_COUNT
};

typedef struct fl_instr {
  uint16_t op;
  uint8_t type;      /* register type of the operands, and of the result unless BOOL */
  uint8_t memory;    /* LOAD, STORE: the dtype in memory; CAST: the type it comes from */
  uint16_t a, b, c;  /* what the opcode does not use is 0 */
  uint16_t reserved; /* 0, but for CONST */
} fl_instr;
FL_STATIC_ASSERT(instr_size, sizeof(fl_instr) == 12);

/* hash covers the code and the four counts: equal hashes mean the same program, so a
 * chip may keep what it made of a program under its hash.  Scalars and
 * shapes are not part of it. */
typedef struct fl_program {
  const fl_instr* code;
  uint64_t hash;
  uint16_t n_code, n_inputs, n_outputs, n_scalars;
} fl_program;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FL_PROGRAM_H */
