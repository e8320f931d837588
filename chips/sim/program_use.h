// What entries that run programs (reduce, gemm) ask about them.
#pragma once

#include "sim.h"

namespace sim {

inline bool uses_index(const fl_program* program) {
  for (int i = 0; i < program->n_code; ++i)
    if (program->code[i].op == FL_OP_INDEX) return true;
  return false;
}

// The program that reads `from`, converts to register type `type`, and stores as
// `to`; null when it has no plan.
inline const Plan* cast_plan(uint8_t from, uint8_t to, uint8_t type) {
  fl_instr code[2] = {};
  code[0].op = FL_OP_LOAD, code[0].type = type, code[0].memory = from;
  code[1].op = FL_OP_STORE, code[1].type = type, code[1].memory = to;
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (size_t i = 0; i < sizeof code; ++i)
    hash = (hash ^ reinterpret_cast<const unsigned char*>(code)[i]) * 0x100000001b3u;
  fl_program program{code, hash, 2, 1, 1, 0};
  return plan_of(&program);
}

}  // namespace sim
