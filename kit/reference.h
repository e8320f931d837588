// Plain reference kernels: simple loops over Numbers, no speed.
#pragma once

#include "number.h"

namespace kit {

// Result of one instruction, not rounded.  Division of an integer by zero is the caller's to avoid.
Number reference_op(unsigned op, unsigned type, Number a, Number b, Number c);
bool reference_has(unsigned op, unsigned type);  // type is among the opcode's types
unsigned operand_count(unsigned op);
const char* op_name(unsigned op);
bool op_mandatory(unsigned op);
bool is_comparison(unsigned op);
bool is_computed(unsigned op);  // from operands alone: no LOAD, STORE, SCALAR, INDEX, CAST, CONST

// One point of a program: inputs as read from memory, outputs in their memory dtype.
void reference_program(const fl_program* program, const fl_scalar* scalars, const std::vector<Number>& inputs,
                       const std::vector<int64_t>& at, const std::vector<int64_t>& sizes,
                       std::vector<Number>& outputs);

// The word(s) of element i, [RND].
struct RandomWords {
  uint32_t word, pair[2];  // word i, and the two words of its pair
  uint64_t wide[2];        // the block's two 64-bit numbers (offset + i/2)
};
RandomWords reference_random(uint64_t seed, uint64_t offset, uint64_t i);

}  // namespace kit
