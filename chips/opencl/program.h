// Programs (fl/program.h) made ready: checked, with every conversion spelled out, as OpenCL C or as code for
// the interpreter.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "fl/author/plans.h"
#include "opencl.h"

namespace ocl {

constexpr int kMaxOperands = FL_MAX_INPUTS + FL_MAX_OUTPUTS;

// Register types in the order of the kernels' names: T_BOOL, T_I32, …
enum Register : uint8_t { kBool, kI32, kI64, kF32, kF64, kC64, kC128, kRegisters };
const char* register_name(int r);
uint8_t register_bytes(int r);
// Of an fl dtype; kRegisters if it is no register type.
uint8_t register_of(uint8_t dtype);
// The register type that values of a dtype in memory live in; kRegisters for dtypes that are not stored.
uint8_t natural_register(uint8_t dtype);
const char* dtype_name(uint8_t dtype);  // "F32"

// Dtypes that copy, fill and programs take in memory.
constexpr uint32_t kStorage = FL_BIT(FL_BOOL) | FL_BIT(FL_U8) | FL_BIT(FL_I8) | FL_BIT(FL_U16) |
                              FL_BIT(FL_I16) | FL_BIT(FL_U32) | FL_BIT(FL_I32) | FL_BIT(FL_U64) |
                              FL_BIT(FL_I64) | FL_BIT(FL_F16) | FL_BIT(FL_BF16) | FL_BIT(FL_F32) |
                              FL_BIT(FL_F64) | FL_BIT(FL_C32) | FL_BIT(FL_C64) | FL_BIT(FL_C128);
// Register types (as FL_BIT) in which kernels/ops.cl has the opcode.
uint32_t opcode_types(uint16_t op);
// One that the interpreter does not have, which would take long to compile with all of them.
bool is_complex_function(uint16_t op, uint8_t reg);

struct Step {
  enum Kind : uint8_t { load, store, scalar, constant, index, cast, unsigned_cast, op } kind;
  uint8_t type;      // Register of the operands
  uint8_t to;        // Register of the result
  uint8_t dtype;     // load, store: in memory
  uint16_t opcode;   // op
  uint16_t operand;  // load: input; store: output; scalar: which; index: dimension, or 0xffff
  uint16_t a, b, c;  // values
  uint16_t out;      // the value made
  int64_t literal;   // constant
};

struct Plan {
  uint64_t hash = 0;
  bool supported = false;
  uint16_t n_inputs = 0, n_outputs = 0, n_scalars = 0;
  std::vector<Step> steps;
  std::vector<uint8_t> types;                 // Register of each value
  uint8_t dtypes[kMaxOperands] = {};          // of inputs, then outputs, in memory
  uint8_t scalar_types[FL_MAX_SCALARS] = {};  // Register
  uint32_t registers = 0;                     // used, as 1 << Register
  bool uses_index = false, divides = false;   // integer division: may report
  bool complex_functions = false;
  int cost = 0;  // of a point, in additions
  // For the interpreter: steps over slots instead of values.
  std::vector<Step> slotted;
  int n_slots = 0;
  mutable std::atomic<cl_mem> code[32] = {};  // slotted, by device
  mutable std::atomic<uint64_t> points{0};    // that were interpreted
  mutable std::atomic<uint64_t> reduced{0};   // that were reduced step by step (reduce.cpp)
  const Plan* next = nullptr;
};

// By hash; null for a program that breaks a rule of fl/program.h or has an opcode or dtype that is not
// supported.
const Plan* plan_of(const fl_program* program);
// Load as `from`, convert, store as `to`; a scalar stored as `to`.
const Plan* conversion_plan(uint8_t from, uint8_t to);
const Plan* fill_plan(uint8_t to);
// Two inputs of a register type to two outputs.
const Plan* pair_plan(uint8_t dtype);

// OpenCL C for a plan's steps, with the values named v0, v1, …: the callers say how operands are reached.
struct Emitter {
  std::function<std::string(int input, uint8_t dtype)> load;                              // an expression
  std::function<std::string(int output, uint8_t dtype, const std::string& value)> store;  // a statement
  std::function<std::string(int scalar)> scalar;    // an expression of type ulong2
  std::function<std::string(int dimension)> index;  // of type long
};
std::string emit(const Plan& plan, const Emitter& emitter);

// A scalar as kernels read it: the bits of its register type.
void pack_scalar(uint8_t register_type, const fl_scalar& value, uint64_t out[2]);

}  // namespace ocl
