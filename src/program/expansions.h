// Optional opcodes as formulas of mandatory ones.
#pragma once

#include "program/expr.h"

namespace fl {

// The opcode over F32 operands, within the 1e-5 of [PGM-4]; an empty Expr where there is no formula.
Expr expand(uint16_t op, Expr x, Expr y, Expr z);

// I of order 0 or 1, near 0 by its power series; scaled: times exp(-|x|).  For F64, too.
Expr modified_bessel(Expr x, int order, bool scaled);

// x >= 0 as digits × 2**exponent (I32), 1 <= digits < 2; 0 and infinity stay in digits.
void normalise(Expr x, Expr& digits, Expr& exponent);
// x × 2**power for an I32 power within ±255, rounded once unless the result is subnormal.
Expr times_power(Expr x, Expr power);

}  // namespace fl
