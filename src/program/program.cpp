#include "program/program.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "chip/error.h"

namespace fl {

namespace {

struct Opcode {
  const char* name;
  uint8_t operands;
  char types;
};

constexpr Opcode kOpcodes[] = {
#define FL_OPCODE_ROW(name, value, operands, types, tier, meaning) {#name, operands, #types[0]},
    FL_OPCODE_MAP(FL_OPCODE_ROW)
#undef FL_OPCODE_ROW
};

constexpr uint32_t kIntegers = FL_BIT(FL_I32) | FL_BIT(FL_I64);
constexpr uint32_t kReals = FL_BIT(FL_F32) | FL_BIT(FL_F64);
constexpr uint32_t kComplex = FL_BIT(FL_C64) | FL_BIT(FL_C128);
constexpr uint32_t kRegisters = FL_BIT(FL_BOOL) | kIntegers | kReals | kComplex;

// The register types of a class letter of FL_OPCODE_MAP.
uint32_t register_types(char types) {
  switch (types) {
    case 'R':
      return kIntegers | kReals;
    case 'I':
      return kIntegers | FL_BIT(FL_BOOL);
    case 'J':
      return kIntegers;
    case 'F':
      return kReals | kComplex;
    case 'G':
      return kReals;
    case 'C':
      return kComplex;
    default:
      return kRegisters;
  }
}

const char* dtype_text(uint8_t dtype) {
  switch (dtype) {
#define FL_DTYPE_TEXT(name, value, bytes, text) \
  case value:                                   \
    return text;
    FL_DTYPE_MAP(FL_DTYPE_TEXT)
#undef FL_DTYPE_TEXT
    default:
      return "no dtype";
  }
}

[[noreturn]] void refuse(const std::string& text) { throw Error(FL_INVALID, "pointwise program: " + text); }

void check_register(uint8_t type, const char* what) {
  if (type >= FL_DTYPE_COUNT || !(kRegisters >> type & 1u))
    refuse(std::string(what) + " needs a register type, not " + dtype_text(type));
}

void check_memory(uint8_t memory, const char* what) {
  if (register_type(memory) == FL_NONE)
    refuse(std::string(what) + ": programs do not take " + dtype_text(memory));
}

bool is_comparison(uint16_t op) { return op >= FL_OP_EQ && op <= FL_OP_GE; }

bool same(const fl_instr& x, const fl_instr& y) { return memcmp(&x, &y, sizeof x) == 0; }

// The same in every process and on every machine: chips may key files by it.
uint64_t hash_of(const std::vector<fl_instr>& code, const fl_program& counts, uint64_t seed) {
  uint64_t h = 0x9e3779b97f4a7c15ull ^ seed;
  auto mix = [&h](uint64_t word) {
    h = (h ^ word) * 0xff51afd7ed558ccdull;
    h ^= h >> 32;
  };
  mix(counts.n_code | uint64_t{counts.n_inputs} << 16 | uint64_t{counts.n_outputs} << 32 |
      uint64_t{counts.n_scalars} << 48);
  for (const fl_instr& i : code) {
    mix(i.op | uint64_t{i.type} << 16 | uint64_t{i.memory} << 24 | uint64_t{i.a} << 32 | uint64_t{i.b} << 48);
    mix(i.c | uint64_t{i.reserved} << 16);
  }
  return h;
}

bool equal(const fl_program& p, const fl_program& q) {
  return p.n_code == q.n_code && p.n_inputs == q.n_inputs && p.n_outputs == q.n_outputs &&
         p.n_scalars == q.n_scalars && memcmp(p.code, q.code, p.n_code * sizeof(fl_instr)) == 0;
}

// Programs live for ever: chips and plans hold pointers to them.
const fl_program* intern(const std::vector<fl_instr>& code, fl_program program) {
  static std::mutex mutex;
  static auto& programs = *new std::unordered_map<uint64_t, const fl_program*>();
  program.code = code.data();
  std::lock_guard<std::mutex> lock(mutex);
  // Another seed after a collision: equal hashes must mean equal programs.
  for (uint64_t seed = 0;; ++seed) {
    program.hash = hash_of(code, program, seed);
    auto found = programs.find(program.hash);
    if (found == programs.end()) break;
    if (equal(*found->second, program)) return found->second;
  }
  fl_instr* kept = new fl_instr[code.size()];
  std::copy(code.begin(), code.end(), kept);
  program.code = kept;
  return programs[program.hash] = new fl_program(program);
}

}  // namespace

uint8_t register_type(uint8_t dtype) noexcept {
  switch (dtype) {
    case FL_BOOL:
      return FL_BOOL;
    case FL_U8:
    case FL_I8:
    case FL_U16:
    case FL_I16:
    case FL_I32:
      return FL_I32;
    case FL_U32:
    case FL_I64:
    case FL_U64:
      return FL_I64;
    case FL_F16:
    case FL_BF16:
    case FL_F32:
      return FL_F32;
    case FL_F64:
      return FL_F64;
    case FL_C32:
    case FL_C64:
      return FL_C64;
    case FL_C128:
      return FL_C128;
    default:
      return FL_NONE;
  }
}

int operands_of(uint16_t opcode) noexcept { return kOpcodes[opcode].operands; }

// Equal instructions are made once: shorter programs, and the same program
// however often its maker asked for the same input.
Value Builder::append(uint16_t op, uint8_t type, uint8_t memory, uint16_t a, uint16_t b, uint16_t c,
                      uint8_t result, uint16_t d) {
  fl_instr instr{op, type, memory, a, b, c, d};
  if (op != FL_OP_STORE)
    for (size_t i = 0; i < code_.size(); ++i)
      if (same(code_[i], instr)) return {static_cast<uint16_t>(i), types_[i]};
  if (code_.size() == FL_MAX_CODE)
    refuse("more than " + std::to_string(FL_MAX_CODE) + " instructions; split the chain");
  code_.push_back(instr);
  types_.push_back(result);
  return {static_cast<uint16_t>(code_.size() - 1), result};
}

Value Builder::load(int input, uint8_t memory) { return load(input, memory, register_type(memory)); }

Value Builder::load(int input, uint8_t memory, uint8_t type) {
  check_memory(memory, "LOAD");
  check_register(type, "LOAD");
  if (input < 0 || input >= FL_MAX_INPUTS)
    refuse("input " + std::to_string(input) + " of at most " + std::to_string(FL_MAX_INPUTS));
  for (const fl_instr& i : code_)
    if (i.op == FL_OP_LOAD && i.a == input && i.memory != memory)
      refuse("input " + std::to_string(input) + " is loaded as " + dtype_text(i.memory) + " and as " +
             dtype_text(memory));
  inputs_ = std::max<uint16_t>(inputs_, input + 1);
  return append(FL_OP_LOAD, type, memory, input, 0, 0, type);
}

Value Builder::scalar(int number, uint8_t type) {
  check_register(type, "SCALAR");
  if (number < 0 || number >= FL_MAX_SCALARS)
    refuse("scalar " + std::to_string(number) + " of at most " + std::to_string(FL_MAX_SCALARS));
  scalars_ = std::max<uint16_t>(scalars_, number + 1);
  return append(FL_OP_SCALAR, type, 0, number, 0, 0, type);
}

Value Builder::constant(double value, uint8_t type) {
  check_register(type, "CONST");
  uint64_t bits;
  if ((kReals | kComplex) >> type & 1u) {
    memcpy(&bits, &value, sizeof bits);
  } else if (type == FL_BOOL) {
    bits = value != 0;
  } else {
    if (!(std::fabs(value) <= 0x1p53) || value != std::floor(value))
      refuse(std::string("CONST of ") + dtype_text(type) + " is " + std::to_string(value));
    bits = static_cast<uint64_t>(static_cast<int64_t>(value));
  }
  return literal(bits, type);
}

Value Builder::literal(uint64_t bits, uint8_t type) {
  return append(FL_OP_CONST, type, 0, bits & 0xffff, bits >> 16 & 0xffff, bits >> 32 & 0xffff, type,
                bits >> 48);
}

Value Builder::index(int dimension, uint8_t type) {
  if (type != FL_I32 && type != FL_I64) refuse("INDEX is int32 or int64");
  if (dimension < -1 || dimension >= FL_MAX_DIMS)
    refuse("INDEX along dimension " + std::to_string(dimension));
  return append(FL_OP_INDEX, type, 0, static_cast<uint16_t>(dimension), 0, 0, type);
}

Value Builder::cast(Value a, uint8_t type) {
  check_register(type, "CAST");
  if (a.type == type) return a;
  return append(FL_OP_CAST, type, a.type, a.id, 0, 0, type);
}

// As storing and loading the value would: keep the low bits, extend the sign.
Value Builder::narrow(Value a, uint8_t dtype) {
  struct Width {
    uint8_t dtype, bits;
    bool is_signed;
  };
  static constexpr Width kWidths[] = {{FL_U8, 8, false},   {FL_I8, 8, true},    {FL_U16, 16, false},
                                      {FL_I16, 16, true},  {FL_U32, 32, false}, {FL_I32, 32, true},
                                      {FL_U64, 64, false}, {FL_I64, 64, true}};
  const Width* width = std::find_if(std::begin(kWidths), std::end(kWidths),
                                    [dtype](const Width& w) { return w.dtype == dtype; });
  if (width == std::end(kWidths)) refuse(std::string("narrow() to ") + dtype_text(dtype));
  if (a.type != FL_I32 && a.type != FL_I64) refuse(std::string("narrow() of ") + dtype_text(a.type));
  int register_bits = a.type == FL_I32 ? 32 : 64;
  if (width->bits >= register_bits) return a;
  double power = std::ldexp(1.0, width->bits);
  Value low = op(FL_OP_AND, a, constant(power - 1, a.type));
  if (!width->is_signed) return low;
  Value half = constant(power / 2, a.type);
  return op(FL_OP_SUB, op(FL_OP_XOR, low, half), half);
}

namespace {

// The result's type.
uint8_t check_op(uint16_t opcode, const Value* operands, int n) {
  if (opcode >= FL_OP_COUNT) refuse("opcode " + std::to_string(opcode) + " does not exist");
  const Opcode& row = kOpcodes[opcode];
  bool special = opcode <= FL_OP_SELECT || opcode == FL_OP_CONST;  // they have builders of their own
  if (special || row.operands != n)
    refuse(std::string(row.name) + " cannot be made from " + std::to_string(n) + " operands");
  for (int i = 0; i < n; ++i) {
    if (operands[i].type != operands[0].type)
      refuse(std::string(row.name) + " of " + dtype_text(operands[0].type) + " and " +
             dtype_text(operands[i].type) + "; cast one of them");
    if (!(register_types(row.types) >> operands[i].type & 1u))
      refuse(std::string(row.name) + " does not take " + dtype_text(operands[i].type));
  }
  return is_comparison(opcode) ? uint8_t{FL_BOOL} : operands[0].type;
}

}  // namespace

Value Builder::op(uint16_t opcode, Value a) {
  uint8_t result = check_op(opcode, &a, 1);
  return append(opcode, a.type, 0, a.id, 0, 0, result);
}

Value Builder::op(uint16_t opcode, Value a, Value b) {
  Value operands[] = {a, b};
  uint8_t result = check_op(opcode, operands, 2);
  return append(opcode, a.type, 0, a.id, b.id, 0, result);
}

Value Builder::op(uint16_t opcode, Value a, Value b, Value c) {
  Value operands[] = {a, b, c};
  uint8_t result = check_op(opcode, operands, 3);
  return append(opcode, a.type, 0, a.id, b.id, c.id, result);
}

Value Builder::select(Value condition, Value yes, Value no) {
  if (condition.type != FL_BOOL) refuse(std::string("SELECT by ") + dtype_text(condition.type));
  if (yes.type != no.type)
    refuse(std::string("SELECT of ") + dtype_text(yes.type) + " and " + dtype_text(no.type));
  return append(FL_OP_SELECT, yes.type, 0, condition.id, yes.id, no.id, yes.type);
}

void Builder::store(int output, Value a, uint8_t memory) {
  check_memory(memory, "STORE");
  if (output < 0 || output >= FL_MAX_OUTPUTS)
    refuse("output " + std::to_string(output) + " of at most " + std::to_string(FL_MAX_OUTPUTS));
  for (const fl_instr& i : code_)
    if (i.op == FL_OP_STORE && i.b == output) refuse("output " + std::to_string(output) + " is stored twice");
  outputs_ = std::max<uint16_t>(outputs_, output + 1);
  append(FL_OP_STORE, a.type, memory, a.id, output, 0, FL_NONE);
}

const fl_program* Builder::finish() {
  auto stores =
      std::count_if(code_.begin(), code_.end(), [](const fl_instr& i) { return i.op == FL_OP_STORE; });
  if (stores == 0) refuse("nothing is stored");
  if (stores != outputs_) refuse("an output below " + std::to_string(outputs_) + " is not stored");
  for (size_t i = 0; i < code_.size(); ++i) {
    const fl_instr& instr = code_[i];
    const uint16_t operands[] = {instr.a, instr.b, instr.c};
    for (int k = 0; k < kOpcodes[instr.op].operands; ++k)
      if (operands[k] >= i || types_[operands[k]] == FL_NONE)
        refuse(std::string(kOpcodes[instr.op].name) + " uses a value of another program");
  }
  fl_program counts{};
  counts.n_code = static_cast<uint16_t>(code_.size());
  counts.n_inputs = inputs_;
  counts.n_outputs = outputs_;
  counts.n_scalars = scalars_;
  return intern(code_, counts);
}

}  // namespace fl
