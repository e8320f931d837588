// Chains of pointwise steps that keep their values in registers: threaded code over a tile of eight vectors,
// the accumulator.  A step combines it with one operand in memory or two, and goes on to the next step
// itself.
#pragma once

#include <cstdint>

#include "simd/isa.h"
#include "simd/point_kernels.h"

namespace sim {

constexpr int64_t kTileBytes = 8 * 64;  // a constant's and a kept value's place; narrower vectors use less
constexpr int kMostChainSteps = 128;

struct ChainStep {
  using Run = void (*)();  // of a type that only the processor level knows
  struct Operand {
    char* data;
    int64_t moves;  // -1: data goes with the points; 0: it is one tile
  };
  Run run;
  Operand operand[3];
  void* function;  // of libmvec, for the steps that call one
};

// How the accumulator takes part in a step: which operand of the opcode it is.
enum class Accumulator : uint8_t { a, b, c };

struct ChainKernels {
  // [as][opcode][type]: null where there is none.  The other operands, in order, are the step's.  Comparisons
  // make bits of the width of their operands; a SELECT takes those as its condition.
  ChainStep::Run op[3][FL_OP_COUNT][FL_DTYPE_COUNT] = {};
  // MAX and MIN with an operand that is known to be no NaN.
  ChainStep::Run with_number[FL_OP_COUNT][FL_DTYPE_COUNT] = {};
  // [as b or c, less 1][comparison][type]: a SELECT by the first two operands; the third is what it chooses
  // from besides the accumulator.
  ChainStep::Run select_by[2][FL_OP_COUNT][FL_DTYPE_COUNT] = {};
  // [comparison][type]: the operand where the accumulator compares so with it, else the accumulator.
  ChainStep::Run extreme[FL_OP_COUNT][FL_DTYPE_COUNT] = {};
  void* function[FL_OP_COUNT][FL_DTYPE_COUNT] = {};
  ChainStep::Run load = nullptr, store = nullptr, end = nullptr;
  // `bytes` of every operand that moves; steps end with `end`.  `spare`: a tile for each such operand.
  void (*run)(const ChainStep* steps, int n_steps, int64_t bytes, char* spare) = nullptr;
};

SIM_DECLARE_LEVELS(void fill_chain_kernels(ChainKernels& out, const VectorMath& math))

const ChainKernels& chain_kernels();  // for this processor (pointwise_plan.cpp)

}  // namespace sim
