// Building pointwise programs (fl/ops.h) and keeping each one once.
#pragma once

#include <cstdint>
#include <vector>

#include "fl/ops.h"

namespace fl {

// A value of a program under construction: its number and register type.
struct Value {
  uint16_t id;
  uint8_t type;
};

// The register type in which a dtype is computed: F16 → F32, I8 → I32, U32 → I64.
// FL_NONE for dtypes that programs do not take (float8).
uint8_t register_type(uint8_t dtype) noexcept;
// How many values an opcode takes.
int operands_of(uint16_t opcode) noexcept;

class Builder {
 public:
  Value load(int input, uint8_t memory);                // into its register type
  Value load(int input, uint8_t memory, uint8_t type);  // converted to `type`
  Value scalar(int number, uint8_t type);
  Value constant(double value, uint8_t type);  // a literal, exact for |integers| < 2^53
  Value literal(uint64_t bits, uint8_t type);  // of a double, of an int64
  Value index(int dimension, uint8_t type);    // -1: row-major number
  Value cast(Value a, uint8_t type);           // a itself when it has the type
  // Wraps an I32 or I64 value to a narrower integer dtype, as storing and loading it would.
  Value narrow(Value a, uint8_t dtype);
  Value op(uint16_t opcode, Value a);
  Value op(uint16_t opcode, Value a, Value b);
  Value op(uint16_t opcode, Value a, Value b, Value c);
  Value select(Value condition, Value yes, Value no);
  void store(int output, Value a, uint8_t memory);

  // The finished program, interned: equal code gives the same pointer, which
  // lives for ever.  Checks types and counts; throws Error FL_INVALID.
  const fl_program* finish();

 private:
  Value append(uint16_t op, uint8_t type, uint8_t memory, uint16_t a, uint16_t b, uint16_t c, uint8_t result,
               uint16_t d = 0);
  std::vector<fl_instr> code_;
  std::vector<uint8_t> types_;
  uint16_t inputs_ = 0, outputs_ = 0, scalars_ = 0;
};

}  // namespace fl
