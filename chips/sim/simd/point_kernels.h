// The innermost loops of pointwise programs: contiguous runs of one register type.
#pragma once

#include <cstdint>

#include "fl/ops.h"
#include "simd/isa.h"

namespace sim {

// n points; out may be any of the operands.  Bits of *faults are set, never cleared.
using PointOp = void (*)(int64_t n, const void* a, const void* b, const void* c, void* out, uint32_t* faults);
// n values between memory (stride in bytes) and a contiguous run of its natural register type.
using Widen = void (*)(int64_t n, const char* from, int64_t stride, void* to);
using Narrow = void (*)(int64_t n, const void* from, char* to, int64_t stride);

constexpr uint32_t kDivisionByZero = 1;

// Register types index by their dtype.  FL_U64 is one more inside the chip: the
// type that U64 has in memory, so that its conversions are right beyond 2^63.
struct PointKernels {
  PointOp op[FL_OP_COUNT][FL_DTYPE_COUNT] = {};
  PointOp cast[FL_DTYPE_COUNT][FL_DTYPE_COUNT] = {};  // [from][to]
  Widen widen[FL_DTYPE_COUNT] = {};
  Narrow narrow[FL_DTYPE_COUNT] = {};
};

// The register type in which a dtype lies closest: what widen makes of it.
constexpr uint8_t natural_type(uint8_t memory) {
  switch (memory) {
    case FL_U8:
    case FL_I8:
    case FL_U16:
    case FL_I16:
      return FL_I32;
    case FL_U32:
      return FL_I64;
    case FL_F16:
    case FL_BF16:
    case FL_F8_E4M3FN:
    case FL_F8_E5M2:
    case FL_F8_E4M3FNUZ:
    case FL_F8_E5M2FNUZ:
      return FL_F32;
    case FL_C32:
      return FL_C64;
    default:
      return memory;
  }
}

// Functions of the C library on whole vectors (libmvec), where it has them.
// clang-format off
#define SIM_MATH_UNARY(X)                                                                        \
  X(EXP, exp) X(EXP2, exp2) X(EXPM1, expm1) X(LOG, log) X(LOG2, log2) X(LOG10, log10)            \
  X(LOG1P, log1p) X(SIN, sin) X(COS, cos) X(TAN, tan) X(ASIN, asin) X(ACOS, acos) X(ATAN, atan)  \
  X(SINH, sinh) X(COSH, cosh) X(TANH, tanh) X(ASINH, asinh) X(ACOSH, acosh) X(ATANH, atanh)      \
  X(ERF, erf) X(ERFC, erfc)
// clang-format on
#define SIM_MATH_BINARY(X) X(POW, pow) X(ATAN2, atan2) X(HYPOT, hypot)

struct VectorMath {
  void* f32[FL_OP_COUNT] = {};
  void* f64[FL_OP_COUNT] = {};
};

SIM_DECLARE_LEVELS(void fill_point_kernels(PointKernels& out, const VectorMath& math))

// Complex numbers and the rarer functions: one compilation for all processors.
void fill_complex_kernels(PointKernels& out);
void fill_special_kernels(PointKernels& out);

// All of it, for this processor.
const PointKernels& point_kernels();

}  // namespace sim
