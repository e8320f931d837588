// From a program to a plan.
#include "program.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace ocl {

namespace {

constexpr uint32_t B = FL_BIT(FL_BOOL), J = FL_BIT(FL_I32) | FL_BIT(FL_I64),
                   G = FL_BIT(FL_F32) | FL_BIT(FL_F64), C = FL_BIT(FL_C64) | FL_BIT(FL_C128),
                   N = B | J | G | C, R = J | G, I = J | B, F = G | C;

// What fl/program.h allows, by opcode.
constexpr uint32_t kAllowed[] = {
#define OCL_TYPES(name, value, operands, types, tier, meaning) types,
    FL_OPCODE_MAP(OCL_TYPES)
#undef OCL_TYPES
};
constexpr uint8_t kOperands[] = {
#define OCL_OPERANDS(name, value, operands, types, tier, meaning) operands,
    FL_OPCODE_MAP(OCL_OPERANDS)
#undef OCL_OPERANDS
};
constexpr const char* kNames[] = {
#define OCL_NAMES(name, value, operands, types, tier, meaning) #name,
    FL_OPCODE_MAP(OCL_NAMES)
#undef OCL_NAMES
};

constexpr bool is_comparison(uint16_t op) { return op >= FL_OP_EQ && op <= FL_OP_GE; }
constexpr bool may_divide_by_zero(uint16_t op, uint8_t reg) {
  return op >= FL_OP_DIV_TRUNC && op <= FL_OP_REM_FLOOR && (reg == kI32 || reg == kI64);
}

// Optional opcodes that ops.cl has, the ones it has for complex numbers, and those that complex.cl adds.
constexpr uint16_t kOptional[] = {FL_OP_NEXTAFTER,      FL_OP_LGAMMA,         FL_OP_GCD,   FL_OP_ANGLE,
                                  FL_OP_FREXP_MANTISSA, FL_OP_FREXP_EXPONENT, FL_OP_LDEXP, FL_OP_FMA};
constexpr uint16_t kComplex[] = {
    FL_OP_LOAD, FL_OP_STORE,      FL_OP_SCALAR, FL_OP_CAST, FL_OP_CONST, FL_OP_SELECT,  FL_OP_ADD,
    FL_OP_SUB,  FL_OP_MUL,        FL_OP_DIV,    FL_OP_EQ,   FL_OP_NE,    FL_OP_NEG,     FL_OP_ABS,
    FL_OP_SIGN, FL_OP_RECIPROCAL, FL_OP_REAL,   FL_OP_IMAG, FL_OP_CONJ,  FL_OP_COMPLEX, FL_OP_ANGLE};
constexpr uint16_t kElementary[] = {
    FL_OP_EXP,   FL_OP_EXP2, FL_OP_EXPM1, FL_OP_LOG,   FL_OP_LOG2,  FL_OP_LOG10, FL_OP_LOG1P,  FL_OP_SQRT,
    FL_OP_RSQRT, FL_OP_POW,  FL_OP_SIN,   FL_OP_COS,   FL_OP_TAN,   FL_OP_SINH,  FL_OP_COSH,   FL_OP_TANH,
    FL_OP_ASIN,  FL_OP_ACOS, FL_OP_ATAN,  FL_OP_ASINH, FL_OP_ACOSH, FL_OP_ATANH, FL_OP_SIGMOID};
constexpr bool is_mandatory[] = {
#define M true
#define O false
#define OCL_TIER(name, value, operands, types, tier, meaning) tier,
    FL_OPCODE_MAP(OCL_TIER)
#undef OCL_TIER
#undef M
#undef O
};

template <size_t K>
bool among(const uint16_t (&list)[K], uint16_t op) {
  return std::find(std::begin(list), std::end(list), op) != std::end(list);
}

int cost_of(uint16_t op) {
  if (op == FL_OP_POW) return 40;
  if (op >= FL_OP_EXP && op <= FL_OP_ERFC) return 12;
  if (op >= FL_OP_DIV_TRUNC && op <= FL_OP_REM_FLOOR) return 8;
  return 1;
}

class Lowering {
 public:
  Lowering(const fl_program& program, Plan& plan) : program_(program), plan_(plan) {}

  bool run() {
    if (program_.n_code == 0 || program_.n_code > FL_MAX_CODE || program_.n_inputs > FL_MAX_INPUTS ||
        program_.n_outputs == 0 || program_.n_outputs > FL_MAX_OUTPUTS || program_.n_scalars > FL_MAX_SCALARS)
      return false;
    plan_.n_inputs = program_.n_inputs, plan_.n_outputs = program_.n_outputs,
    plan_.n_scalars = program_.n_scalars;
    for (uint16_t i = 0; i < program_.n_code; ++i)
      if (!instruction(i)) return false;
    for (int o = 0; o < program_.n_outputs; ++o)
      if (!stored_[o]) return false;
    // Stores last: an output may be an input.
    std::stable_partition(plan_.steps.begin(), plan_.steps.end(),
                          [](const Step& s) { return s.kind != Step::store; });
    assign_slots();
    return true;
  }

 private:
  uint16_t value(uint8_t reg) {
    plan_.types.push_back(reg);
    plan_.registers |= 1u << reg;
    return static_cast<uint16_t>(plan_.types.size() - 1);
  }
  uint16_t cast(uint16_t from, uint8_t to, bool is_unsigned = false) {
    uint8_t type = plan_.types[from];
    if (type == to) return from;
    Step s{};
    s.kind = is_unsigned && to >= kF32 ? Step::unsigned_cast : Step::cast;
    s.type = type, s.to = to, s.a = from, s.out = value(to);
    plan_.steps.push_back(s);
    ++plan_.cost;
    return s.out;
  }

  bool instruction(uint16_t i) {
    const fl_instr& in = program_.code[i];
    if (in.op >= FL_OP_COUNT) return false;
    uint8_t reg = register_of(in.type);
    if (reg == kRegisters || !(opcode_types(in.op) & FL_BIT(in.type))) return false;
    const uint16_t operands[3] = {in.a, in.b, in.c};
    uint16_t v[3] = {};
    for (int k = 0; k < kOperands[in.op]; ++k) {
      if (operands[k] >= i || of_[operands[k]] == kNone) return false;
      v[k] = of_[operands[k]];
    }
    of_[i] = kNone;
    Step s{};
    s.type = s.to = reg;
    switch (in.op) {
      case FL_OP_LOAD: {
        if (in.a >= program_.n_inputs || in.memory >= FL_DTYPE_COUNT ||
            natural_register(in.memory) == kRegisters)
          return false;
        uint8_t& known = plan_.dtypes[in.a];
        if (known && known != in.memory) return false;
        known = in.memory;
        if (loaded_[in.a] == kNone) {
          s.kind = Step::load, s.dtype = in.memory, s.operand = in.a;
          s.type = s.to = natural_register(in.memory);
          loaded_[in.a] = s.out = value(s.to);
          plan_.steps.push_back(s);
        }
        of_[i] = cast(loaded_[in.a], reg, in.memory == FL_U64);
        return true;
      }
      case FL_OP_STORE: {
        if (in.b >= program_.n_outputs || stored_[in.b] || in.memory >= FL_DTYPE_COUNT ||
            natural_register(in.memory) == kRegisters || plan_.types[v[0]] != reg)
          return false;
        stored_[in.b] = true;
        plan_.dtypes[program_.n_inputs + in.b] = in.memory;
        s.kind = Step::store, s.dtype = in.memory, s.operand = in.b;
        s.a = cast(v[0], natural_register(in.memory));
        s.type = s.to = natural_register(in.memory);
        plan_.steps.push_back(s);
        return true;
      }
      case FL_OP_SCALAR:
        if (in.a >= program_.n_scalars) return false;
        // A scalar is read as its register type says: one type for each.
        if (scalar_known_[in.a] && plan_.scalar_types[in.a] != reg) return false;
        scalar_known_[in.a] = true, plan_.scalar_types[in.a] = reg;
        s.kind = Step::scalar, s.operand = in.a;
        break;
      case FL_OP_CONST:
        s.kind = Step::constant;
        s.literal = static_cast<int64_t>(in.a | uint64_t{in.b} << 16 | uint64_t{in.c} << 32 |
                                         uint64_t{in.reserved} << 48);
        break;
      case FL_OP_INDEX:
        if (in.a >= FL_MAX_DIMS && in.a != 0xffff) return false;
        s.kind = Step::index, s.operand = in.a;
        plan_.uses_index = true;
        break;
      case FL_OP_CAST: {
        uint8_t from = register_of(in.memory);
        if (from == kRegisters || plan_.types[v[0]] != from) return false;
        of_[i] = cast(v[0], reg);
        return true;
      }
      default:
        for (int k = 0; k < kOperands[in.op]; ++k)
          if (plan_.types[v[k]] != (in.op == FL_OP_SELECT && k == 0 ? uint8_t{kBool} : reg)) return false;
        s.kind = Step::op, s.opcode = in.op, s.a = v[0], s.b = v[1], s.c = v[2];
        if (is_comparison(in.op)) s.to = kBool;
        if (may_divide_by_zero(in.op, reg)) plan_.divides = true;
        if (is_complex_function(in.op, reg)) plan_.complex_functions = true;
        plan_.cost += cost_of(in.op);
    }
    of_[i] = s.out = value(s.to);
    plan_.steps.push_back(s);
    return true;
  }

  // A value's slot is free again after the last step that reads it.
  void assign_slots() {
    std::vector<int> last(plan_.types.size(), -1), slot(plan_.types.size(), -1);
    auto each_read = [](const Step& s, auto&& f) {
      int n = s.kind == Step::op                              ? kOperands[s.opcode]
              : s.kind >= Step::cast || s.kind == Step::store ? 1
                                                              : 0;
      const uint16_t read[] = {s.a, s.b, s.c};
      for (int k = 0; k < n; ++k) f(read[k]);
    };
    for (size_t i = 0; i < plan_.steps.size(); ++i)
      each_read(plan_.steps[i], [&](uint16_t v) { last[v] = static_cast<int>(i); });
    std::vector<int> vacant;
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      Step s = plan_.steps[i];
      const uint16_t a = s.a, b = s.b, c = s.c;
      if (s.kind == Step::op || s.kind >= Step::cast || s.kind == Step::store) {
        s.a = static_cast<uint16_t>(slot[a]);
        if (s.kind == Step::op && kOperands[s.opcode] > 1) s.b = static_cast<uint16_t>(slot[b]);
        if (s.kind == Step::op && kOperands[s.opcode] > 2) s.c = static_cast<uint16_t>(slot[c]);
      }
      // The result does not take an operand's slot: the interpreter works on blocks.
      if (s.kind != Step::store) {
        if (vacant.empty()) slot[s.out] = plan_.n_slots++;
        else slot[s.out] = vacant.back(), vacant.pop_back();
        if (last[s.out] < 0) vacant.push_back(slot[s.out]);
        s.out = static_cast<uint16_t>(slot[s.out]);
      }
      plan_.slotted.push_back(s);
      std::vector<int> freed;
      each_read(plan_.steps[i], [&](uint16_t v) {
        if (last[v] == static_cast<int>(i) && std::find(freed.begin(), freed.end(), slot[v]) == freed.end())
          freed.push_back(slot[v]);
      });
      vacant.insert(vacant.end(), freed.begin(), freed.end());
    }
  }

  static constexpr uint16_t kNone = 0xffff;
  const fl_program& program_;
  Plan& plan_;
  uint16_t of_[FL_MAX_CODE];  // the plan's value for the program's
  uint16_t loaded_[FL_MAX_INPUTS] = {kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone};
  bool stored_[FL_MAX_OUTPUTS] = {}, scalar_known_[FL_MAX_SCALARS] = {};
};

Plans<Plan> plans;
PlanTable<Plan, size_t{FL_DTYPE_COUNT} * FL_DTYPE_COUNT> conversions;
PlanTable<Plan, FL_DTYPE_COUNT> fills;

Plan* make_plan(const fl_program& program) {
  auto* plan = new Plan;
  plan->hash = program.hash;
  plan->supported = Lowering(program, *plan).run();
  return plan;
}

std::string literal(uint8_t reg, int64_t bits) {
  char text[96];
  double number;
  std::memcpy(&number, &bits, sizeof number);
  auto narrow = static_cast<float>(number);
  uint32_t bits32;
  std::memcpy(&bits32, &narrow, sizeof bits32);
  auto bits64 = static_cast<unsigned long long>(bits);
  switch (reg) {
    case kBool:
      return bits ? "(uchar)1" : "(uchar)0";
    case kI32:
      std::snprintf(text, sizeof text, "(int)0x%xu", static_cast<uint32_t>(bits));
      break;
    case kI64:
      std::snprintf(text, sizeof text, "(long)0x%llxul", bits64);
      break;
    case kF32:
      std::snprintf(text, sizeof text, "as_float(0x%xu)", bits32);
      break;
    case kF64:
      std::snprintf(text, sizeof text, "as_double(0x%llxul)", bits64);
      break;
    case kC64:
      std::snprintf(text, sizeof text, "(float2)(as_float(0x%xu), 0)", bits32);
      break;
    default:
      std::snprintf(text, sizeof text, "(double2)(as_double(0x%llxul), 0)", bits64);
      break;
  }
  return text;
}

}  // namespace

// ------------------------------------------------------------------------- names
const char* register_name(int r) {
  static constexpr const char* names[] = {"BOOL", "I32", "I64", "F32", "F64", "C64", "C128"};
  return names[r];
}
uint8_t register_bytes(int r) {
  static constexpr uint8_t bytes[] = {1, 4, 8, 4, 8, 8, 16};
  return bytes[r];
}
bool is_complex_function(uint16_t op, uint8_t reg) { return reg >= kC64 && among(kElementary, op); }
const char* dtype_name(uint8_t dtype) {
  static constexpr const char* names[] = {"",
#define OCL_DTYPE(name, value, bytes, text) #name,
                                          FL_DTYPE_MAP(OCL_DTYPE)
#undef OCL_DTYPE
  };
  return names[dtype];
}
uint8_t register_of(uint8_t dtype) {
  switch (dtype) {
    case FL_BOOL:
      return kBool;
    case FL_I32:
      return kI32;
    case FL_I64:
      return kI64;
    case FL_F32:
      return kF32;
    case FL_F64:
      return kF64;
    case FL_C64:
      return kC64;
    case FL_C128:
      return kC128;
    default:
      return kRegisters;
  }
}
uint8_t natural_register(uint8_t dtype) {
  switch (dtype) {
    case FL_U8:
    case FL_I8:
    case FL_U16:
    case FL_I16:
      return kI32;
    case FL_U32:
    case FL_U64:
      return kI64;
    case FL_F16:
    case FL_BF16:
      return kF32;
    case FL_C32:
      return kC64;
    default:
      return register_of(dtype);
  }
}

uint32_t opcode_types(uint16_t op) {
  uint32_t types = kAllowed[op];
  if (!is_mandatory[op] && !among(kOptional, op)) return 0;
  if (op == FL_OP_GCD) return J;
  if (!among(kComplex, op) && !among(kElementary, op)) types &= ~C;
  return types;
}

// ------------------------------------------------------------------------- plans
const Plan* plan_of(const fl_program* program) {
  const Plan* plan = plans.get(*program, make_plan);
  return plan->supported ? plan : nullptr;
}

namespace {
constexpr uint8_t kRegisterDtypes[] = {FL_BOOL, FL_I32, FL_I64, FL_F32, FL_F64, FL_C64, FL_C128};
}

const Plan* conversion_plan(uint8_t from, uint8_t to) {
  return conversions.get(size_t{from} * FL_DTYPE_COUNT + to, [&] {
    // Between the two, the type that the destination's values live in; U64 takes other numbers in their own
    // type.
    uint8_t reg = natural_register(to);
    if (to == FL_U64 && natural_register(from) >= kF32) reg = natural_register(from);
    uint8_t type = kRegisterDtypes[reg];
    fl_instr code[2] = {};
    code[0].op = FL_OP_LOAD, code[0].type = type, code[0].memory = from;
    code[1].op = FL_OP_STORE, code[1].type = type, code[1].memory = to;
    return make_plan({code, 0x6f636c0000000000u | uint64_t{from} << 8 | to, 2, 1, 1, 0});
  });
}

const Plan* fill_plan(uint8_t to) {
  return fills.get(to, [&] {
    // fill reads its value as F64, I64, BOOL or C128 by class; the register type here reads the same member
    // of it.
    uint8_t type = kRegisterDtypes[natural_register(to)];
    fl_instr code[2] = {};
    code[0].op = FL_OP_SCALAR, code[0].type = type;
    code[1].op = FL_OP_STORE, code[1].type = type, code[1].memory = to;
    return make_plan({code, 0x6f636cff00000000u | to, 2, 0, 1, 1});
  });
}

const Plan* pair_plan(uint8_t dtype) {
  fl_instr code[4] = {};
  for (uint16_t i = 0; i < 2; ++i) {
    code[i].op = FL_OP_LOAD, code[i].type = code[i].memory = dtype, code[i].a = i;
    code[2 + i].op = FL_OP_STORE, code[2 + i].type = code[2 + i].memory = dtype,
             code[2 + i].a = code[2 + i].b = i;
  }
  fl_program program{code, 0x6f636cfe00000000u | dtype, 4, 2, 2, 0};
  return plan_of(&program);
}

// -------------------------------------------------------------------------- text
std::string emit(const Plan& plan, const Emitter& emitter) {
  std::string text;
  auto name = [](uint16_t v) { return "v" + std::to_string(v); };
  for (const Step& s : plan.steps) {
    if (s.kind == Step::store) {
      text += "  " + emitter.store(s.operand, s.dtype, name(s.a)) + "\n";
      continue;
    }
    std::string made, t = register_name(s.type), to = register_name(s.to);
    switch (s.kind) {
      case Step::load:
        made = emitter.load(s.operand, s.dtype);
        break;
      case Step::scalar: {
        std::string bits = emitter.scalar(s.operand);
        made = s.type == kBool  ? "(uchar)(" + bits + ".x != 0)"
               : s.type == kI32 ? "(int)" + bits + ".x"
               : s.type == kI64 ? "(long)" + bits + ".x"
               : s.type == kF32 ? "as_float((uint)" + bits + ".x)"
               : s.type == kF64 ? "as_double(" + bits + ".x)"
               : s.type == kC64 ? "(float2)(as_float((uint)" + bits + ".x), as_float((uint)" + bits + ".y))"
                                : "as_double2(" + bits + ")";
        break;
      }
      case Step::constant:
        made = literal(s.type, s.literal);
        break;
      case Step::index:
        made = "(T_" + t + ")" + emitter.index(s.operand == 0xffff ? -1 : s.operand);
        break;
      case Step::cast:
        made = "CAST_" + t + "_" + to + "(" + name(s.a) + ")";
        break;
      case Step::unsigned_cast:
        made = "CAST_U64_" + to + "(" + name(s.a) + ")";
        break;
      default: {
        bool checked = may_divide_by_zero(s.opcode, s.type);
        made = "OP_" + std::string(kNames[s.opcode]) + "_" + t + "(" + name(s.a);
        if (kOperands[s.opcode] > 1) made += checked ? ", NOT_ZERO(" + name(s.b) + ")" : ", " + name(s.b);
        if (kOperands[s.opcode] > 2) made += ", " + name(s.c);
        made += ")";
      }
    }
    text += "  const T_" + to + " " + name(s.out) + " = " + made + ";\n";
  }
  return text;
}

void pack_scalar(uint8_t reg, const fl_scalar& value, uint64_t out[2]) {
  auto bits32 = [](double d) {
    auto f = static_cast<float>(d);
    uint32_t bits;
    std::memcpy(&bits, &f, sizeof bits);
    return uint64_t{bits};
  };
  auto bits64 = [](double d) {
    uint64_t bits;
    std::memcpy(&bits, &d, sizeof bits);
    return bits;
  };
  out[0] = out[1] = 0;
  switch (reg) {
    case kF32:
      out[0] = bits32(value.v.f);
      break;
    case kF64:
      out[0] = bits64(value.v.f);
      break;
    case kC64:
      out[0] = bits32(value.v.f), out[1] = bits32(value.imag);
      break;
    case kC128:
      out[0] = bits64(value.v.f), out[1] = bits64(value.imag);
      break;
    default:
      out[0] = static_cast<uint64_t>(value.v.i);
      break;
  }
}

}  // namespace ocl
