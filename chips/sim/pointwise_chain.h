// Joining the steps of a plan to chains.
#pragma once

#include "pointwise_plan.h"

namespace sim {

// What a step was made of; op FL_OP_COUNT: a conversion.
struct Origin {
  uint16_t op;
  uint8_t type;
};
// The values that a step reads from memory, and those that it leaves there.
struct Traffic {
  std::vector<uint16_t> reads, writes;
};

constexpr int kOperands[] = {
#define SIM_OPERANDS(name, value, operands, types, tier, meaning) operands,
    FL_OPCODE_MAP(SIM_OPERANDS)
#undef SIM_OPERANDS
};
constexpr bool is_comparison(uint16_t op) { return op >= FL_OP_EQ && op <= FL_OP_GE; }

// Replaces runs of the plan's steps by chains; says where its constants are
// wanted, and what each step that is left does to memory.
std::vector<Traffic> join_steps(Plan& plan, const std::vector<Origin>& origins,
                                const std::vector<uint8_t>& types);

}  // namespace sim
