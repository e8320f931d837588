// Programs rewritten for a chip that claims no more than it must.  That the formulas are right is tested on
// the template chip (tests/test_template.py).
#include "program/lower.h"

#include "check.h"

namespace {

using fl::Builder;
using fl::Lowered;
using fl::Value;

// Mandatory opcodes over BOOL, I32, I64 and F32, and the dtypes in memory that a chip must have.
const fl::Chip& small_chip() {
  static fl::Chip& chip = *[] {
    auto* made = new fl::Chip();
    [[maybe_unused]] constexpr uint32_t M = FL_BIT(FL_BOOL) | FL_BIT(FL_I32) | FL_BIT(FL_I64) |
                                            FL_BIT(FL_F32),
                                        O = 0;
    [[maybe_unused]] constexpr uint32_t J = FL_BIT(FL_I32) | FL_BIT(FL_I64), I = J | FL_BIT(FL_BOOL),
                                        G = FL_BIT(FL_F32), F = G, R = J | F, N = M, C = 0;
    auto& opcodes = made->claimed[FL_ENTRY_POINTWISE];
#define FL_CLAIM(name, value, operands, types, tier, meaning) opcodes[value] = (types) & (tier);
    FL_OPCODE_MAP(FL_CLAIM)
#undef FL_CLAIM
    made->claimed[FL_ENTRY_COPY][fl::Chip::kKinds] =
        M | FL_BIT(FL_U8) | FL_BIT(FL_I8) | FL_BIT(FL_I16) | FL_BIT(FL_BF16);
    return made;
  }();
  return chip;
}

const fl_program* binary(uint16_t op, uint8_t dtype) {
  Builder b;
  Value x = b.load(0, dtype), y = b.load(1, dtype);
  b.store(0, b.op(op, x, y), dtype);
  return b.finish();
}
const fl_program* conversion(uint8_t from, uint8_t to) {
  Builder b;
  b.store(0, b.load(0, from), to);
  return b.finish();
}
int count(const fl_program& p, uint16_t op) {
  int n = 0;
  for (int i = 0; i < p.n_code; ++i) n += p.code[i].op == op;
  return n;
}

void what_runs_is_left_alone() {
  CHECK(fl::runs_on(small_chip(), *binary(FL_OP_ADD, FL_F32)));
  CHECK(!fl::lower(small_chip(), *binary(FL_OP_ADD, FL_F32)));
  CHECK(!fl::runs_on(small_chip(), *binary(FL_OP_ADD, FL_F16)));  // its memory
  CHECK(!fl::runs_on(small_chip(), *binary(FL_OP_ADD, FL_F64)));  // its registers
}

void complex_registers_are_pairs() {
  const fl_program* original = binary(FL_OP_MUL, FL_C64);
  const Lowered* made = fl::lower(small_chip(), *original);
  CHECK(made && made == fl::lower(small_chip(), *original));
  const fl_program& p = *made->program;
  CHECK(fl::runs_on(small_chip(), p) && p.n_inputs == 4 && p.n_outputs == 2);
  for (int i = 0; i < 4; ++i) {
    const Lowered::Part& part = made->inputs[i];
    CHECK(part.dtype == FL_F32 && part.from == i / 2 && part.part == i % 2 + 1);
  }
  CHECK(made->outputs[0].part == 1 && made->outputs[1].part == 2 && made->outputs[1].from == 0);
  CHECK(count(p, FL_OP_MUL) == 4 && count(p, FL_OP_ADD) == 1 && count(p, FL_OP_SUB) == 1);
}

void a_complex_scalar_is_two() {
  Builder b;
  b.store(0, b.op(FL_OP_ADD, b.load(0, FL_C64), b.scalar(3, FL_C64)), FL_C64);
  const Lowered* made = fl::lower(small_chip(), *b.finish());
  CHECK(made && made->program->n_scalars == 2);
  CHECK(made->scalars[0].from == 3 && made->scalars[0].part == 1 && made->scalars[1].part == 2);
}

void memory_is_read_as_its_bits() {
  const Lowered* half = fl::lower(small_chip(), *binary(FL_OP_ADD, FL_F16));
  CHECK(half && half->inputs[0].dtype == FL_I16 && half->outputs[0].dtype == FL_I16);
  const Lowered* wide = fl::lower(small_chip(), *conversion(FL_F32, FL_F64));
  CHECK(wide && wide->inputs[0].dtype == FL_F32 && wide->outputs[0].dtype == FL_I64);
  CHECK(fl::lower(small_chip(), *conversion(FL_C128, FL_F32)));
  // Rounded to F32 and then to BF16 would be rounded twice.
  CHECK(!fl::lower(small_chip(), *conversion(FL_F64, FL_BF16)));
  CHECK(!fl::lower(small_chip(), *conversion(FL_C128, FL_F16)));
}

void an_optional_opcode_becomes_mandatory_ones() {
  Builder b;
  Value x = b.load(0, FL_F32);
  b.store(0, b.op(FL_OP_FMA, x, x, x), FL_F32);
  const Lowered* made = fl::lower(small_chip(), *b.finish());
  CHECK(made && count(*made->program, FL_OP_MUL) == 1 && count(*made->program, FL_OP_ADD) == 1);
}

void what_has_no_formula_is_refused() {
  CHECK(!fl::lower(small_chip(), *binary(FL_OP_ADD, FL_F64)));
  CHECK(!fl::lower(small_chip(), *binary(FL_OP_MUL, FL_C128)));
  CHECK(!fl::lower(small_chip(), *binary(FL_OP_GCD, FL_I64)));
}

}  // namespace

int main() {
  what_runs_is_left_alone();
  complex_registers_are_pairs();
  a_complex_scalar_is_two();
  memory_is_read_as_its_bits();
  an_optional_opcode_becomes_mandatory_ones();
  what_has_no_formula_is_refused();
  return check::result();
}
