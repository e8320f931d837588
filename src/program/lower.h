// Rewriting a program for a chip that lacks some of its instructions.
//
// Three things are rewritten: complex registers become pairs of real ones; F16 and F64 memory is read
// and written as integers of its bits; an optional opcode becomes mandatory ones (expansions.h).  F64
// registers cannot be: they hold bits, which only move and convert.
#pragma once

#include "chip/registry.h"
#include "program/program.h"

namespace fl {

struct Lowered {
  // Where an operand or a scalar comes from: an operand of the original, seen as elements of `dtype`.
  // part 0: the whole element; 1, 2: its real and imaginary half.
  struct Part {
    uint8_t from, part, dtype;
  };
  const fl_program* program;
  Part inputs[FL_MAX_INPUTS], outputs[FL_MAX_OUTPUTS], scalars[FL_MAX_SCALARS];
};

// Does every instruction of the program, with its dtypes in memory, run on the chip?
bool runs_on(const Chip& chip, const fl_program& program) noexcept;

// The program in the chip's own instructions, made once and kept for ever; null where that cannot be.
const Lowered* lower(const Chip& chip, const fl_program& program);

}  // namespace fl
