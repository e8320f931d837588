// From a program to a plan, and the table of plans.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

#include "pointwise_chain.h"

namespace sim {

// --------------------------------------------------------------------- kernels

namespace {

// libmvec belongs to glibc, and grew until 2.35: what this machine's has is used.
VectorMath find_vector_math() {
  VectorMath math;
#if defined(SIM_X86_LEVELS)
  void* library = dlopen("libmvec.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return math;
  const char* level = isa() == Isa::avx512 ? "e" : isa() == Isa::avx2 ? "d" : "b";
  int lanes = isa() == Isa::avx512 ? 16 : isa() == Isa::avx2 ? 8 : 4;
  auto find = [&](const char* name, const char* operands, void** f32, void** f64) {
    char symbol[64];
    std::snprintf(symbol, sizeof symbol, "_ZGV%sN%d%s_%sf", level, lanes, operands, name);
    *f32 = dlsym(library, symbol);
    std::snprintf(symbol, sizeof symbol, "_ZGV%sN%d%s_%s", level, lanes / 2, operands, name);
    *f64 = dlsym(library, symbol);
  };
#define SIM_FIND(op, name) find(#name, "v", &math.f32[FL_OP_##op], &math.f64[FL_OP_##op]);
  SIM_MATH_UNARY(SIM_FIND)
#undef SIM_FIND
#define SIM_FIND(op, name) find(#name, "vv", &math.f32[FL_OP_##op], &math.f64[FL_OP_##op]);
  SIM_MATH_BINARY(SIM_FIND)
#undef SIM_FIND
#endif
  return math;
}

}  // namespace

const PointKernels& point_kernels() {
  static const PointKernels& kernels = *[] {
    auto* k = new PointKernels;
    SIM_CHOOSE(fill_point_kernels(*k, find_vector_math()));
    fill_special_kernels(*k);
    fill_complex_kernels(*k);
    return k;
  }();
  return kernels;
}

const ChainKernels& chain_kernels() {
  static const ChainKernels& kernels = *[] {
    auto* k = new ChainKernels;
    SIM_CHOOSE(fill_chain_kernels(*k, find_vector_math()));
    return k;
  }();
  return kernels;
}

// ------------------------------------------------------------------- compiling

namespace {

bool is_register(uint8_t type) {
  constexpr uint32_t registers = FL_BIT(FL_BOOL) | FL_BIT(FL_I32) | FL_BIT(FL_I64) | FL_BIT(FL_F32) |
                                 FL_BIT(FL_F64) | FL_BIT(FL_C64) | FL_BIT(FL_C128);
  return type < FL_DTYPE_COUNT && (registers >> type & 1);
}

// What a point costs, in additions, roughly.
int64_t cost(uint16_t op, uint8_t type) {
  bool slow_type = type == FL_C64 || type == FL_C128;
  if (op >= FL_OP_EXP && op <= FL_OP_SIGMOID) return slow_type ? 100 : 6;
  if (op >= FL_OP_ERF && op <= FL_OP_GCD) return op <= FL_OP_ERFC ? 8 : 100;
  if (op == FL_OP_POW) return slow_type ? 100 : 15;
  if (op >= FL_OP_DIV_TRUNC && op <= FL_OP_REM_FLOOR) return 10;
  return slow_type ? 4 : 1;
}

class Compiler {
 public:
  Compiler(const fl_program& program, Plan& plan)
      : program_(program), plan_(plan), kernels_(point_kernels()) {}

  bool compile() {
    if (program_.n_code == 0 || program_.n_code > FL_MAX_CODE || program_.n_inputs > FL_MAX_INPUTS ||
        program_.n_outputs == 0 || program_.n_outputs > FL_MAX_OUTPUTS || program_.n_scalars > FL_MAX_SCALARS)
      return false;
    plan_.n_inputs = program_.n_inputs, plan_.n_outputs = program_.n_outputs,
    plan_.n_scalars = program_.n_scalars;
    for (int i = 0; i < program_.n_code; ++i)
      if (!instruction(i)) return false;
    for (int o = 0; o < program_.n_outputs; ++o)
      if (!stored_[o]) return false;
    traffic_ = join_steps(plan_, origins_, types_);
    find_shortcuts();
    assign_slots();
    return true;
  }

 private:
  uint16_t add_value(uint8_t type) {
    types_.push_back(type);
    return static_cast<uint16_t>(types_.size() - 1);
  }
  // The value in another type; 0xffff when there is no such conversion.
  uint16_t converted(uint16_t value, uint8_t type) {
    uint8_t from = types_[value];
    if (from == type) return value;
    PointOp run = kernels_.cast[from][type];
    if (!run) return 0xffff;
    uint16_t out = add_value(type);
    plan_.steps.push_back({run, value, value, value, out});
    origins_.push_back({FL_OP_COUNT, FL_NONE});
    total_cost_ += 1;
    return out;
  }

  bool instruction(int i) {
    const fl_instr& in = program_.code[i];
    if (in.op >= FL_OP_COUNT || !is_register(in.type)) return false;
    const uint16_t operands[3] = {in.a, in.b, in.c};
    uint16_t values[3] = {};
    for (int k = 0; k < kOperands[in.op]; ++k) {
      if (operands[k] >= i || of_[operands[k]] == 0xffff) return false;
      values[k] = of_[operands[k]];
    }
    uint16_t& made = of_[i] = 0xffff;
    switch (in.op) {
      case FL_OP_LOAD:
        return load(in, made);
      case FL_OP_STORE:
        return store(in, values[0]);
      case FL_OP_SCALAR:
        if (in.a >= program_.n_scalars) return false;
        made = add_value(in.type);
        plan_.fills.push_back({made, in.a, in.type, {}, false, Plan::kNone});
        return true;
      case FL_OP_CONST: {
        int64_t bits = static_cast<int64_t>(in.a | uint64_t{in.b} << 16 | uint64_t{in.c} << 32 |
                                            uint64_t{in.reserved} << 48);
        fl_scalar literal{};
        std::memcpy(&literal.v, &bits, sizeof bits);
        made = add_value(in.type);
        plan_.fills.push_back({made, Plan::kLiteral, in.type, literal, false, Plan::kNone});
        return true;
      }
      case FL_OP_INDEX:
        if ((in.a >= FL_MAX_DIMS && in.a != 0xffff) || (in.type != FL_I32 && in.type != FL_I64)) return false;
        made = add_value(in.type);
        plan_.indices.push_back({made, in.a, in.type});
        total_cost_ += 2;
        return true;
      case FL_OP_CAST:
        if (types_[values[0]] != in.memory) return false;
        made = converted(values[0], in.type);
        return made != 0xffff;
      default:
        break;
    }
    PointOp run = kernels_.op[in.op][in.type];
    if (!run) return false;
    for (int k = 0; k < kOperands[in.op]; ++k)
      if (types_[values[k]] != (in.op == FL_OP_SELECT && k == 0 ? uint8_t{FL_BOOL} : in.type)) return false;
    made = add_value(is_comparison(in.op) ? uint8_t{FL_BOOL} : in.type);
    int last = kOperands[in.op] - 1;
    plan_.steps.push_back({run, values[0], values[last < 1 ? last : 1], values[last], made});
    origins_.push_back({in.op, in.type});
    total_cost_ += cost(in.op, in.type);
    return true;
  }

  bool load(const fl_instr& in, uint16_t& made) {
    if (in.a >= program_.n_inputs || in.memory == FL_NONE || in.memory >= FL_DTYPE_COUNT) return false;
    // U64 is I64's bits when that is asked for, and its own type in conversions.
    uint8_t natural = in.memory == FL_U64 && in.type == FL_I64 ? uint8_t{FL_I64} : natural_type(in.memory);
    auto bytes = static_cast<uint8_t>(dtype_size(in.memory));
    uint8_t& known = plan_.operand_bytes[in.a];
    if (known && (known != bytes || memory_[in.a] != in.memory)) return false;
    known = bytes;
    memory_[in.a] = in.memory;
    uint16_t value = 0xffff;
    for (const Plan::Load& l : plan_.loads)
      if (l.input == in.a && types_[l.value] == natural) value = l.value;
    if (value == 0xffff) {
      value = add_value(natural);
      bool alias = natural == in.memory || (in.memory == FL_U64 && natural == FL_I64);
      plan_.loads.push_back({value, static_cast<uint8_t>(in.a), bytes, alias, kernels_.widen[in.memory]});
    }
    made = converted(value, in.type);
    return made != 0xffff;
  }

  bool store(const fl_instr& in, uint16_t value) {
    if (in.b >= program_.n_outputs || stored_[in.b] || in.memory == FL_NONE || in.memory >= FL_DTYPE_COUNT ||
        types_[value] != in.type)
      return false;
    stored_[in.b] = true;
    uint8_t natural = in.memory == FL_U64 && in.type == FL_I64 ? uint8_t{FL_I64} : natural_type(in.memory);
    value = converted(value, natural);
    if (value == 0xffff) return false;
    auto bytes = static_cast<uint8_t>(dtype_size(in.memory));
    plan_.operand_bytes[program_.n_inputs + in.b] = bytes;
    bool same = natural == in.memory || (in.memory == FL_U64 && natural == FL_I64);
    plan_.stores.push_back({value, static_cast<uint8_t>(in.b), bytes, same, kernels_.narrow[in.memory]});
    return true;
  }

  // An output may be an input: it must not be written while that is still to be
  // read.  Stores come last anyway; a step writes to an output only after the last
  // read of any load, and several outputs do not store loads in place.
  void find_shortcuts() {
    std::vector<bool> is_load(types_.size());
    for (const Plan::Load& l : plan_.loads) is_load[l.value] = true;
    int last_read = -1;
    std::vector<int> made_by(types_.size(), -1);
    for (size_t s = 0; s < traffic_.size(); ++s) {
      for (uint16_t v : traffic_[s].reads)
        if (is_load[v]) last_read = static_cast<int>(s);
      for (uint16_t v : traffic_[s].writes) made_by[v] = static_cast<int>(s);
    }
    if (plan_.stores.size() > 1)
      for (const Plan::Store& s : plan_.stores)
        for (Plan::Load& l : plan_.loads)
          if (l.value == s.value) l.alias = false;
    std::vector<bool> taken(types_.size());
    bool all_direct = true;
    std::vector<bool> direct(types_.size());
    for (Plan::Store& s : plan_.stores) {
      s.direct = s.direct && made_by[s.value] >= 0 && made_by[s.value] >= last_read && !taken[s.value];
      if (s.direct) taken[s.value] = direct[s.value] = true;
    }
    for (const Traffic& t : traffic_)
      for (uint16_t v : t.writes) all_direct = all_direct && direct[v];
    for (const Plan::Load& l : plan_.loads) all_direct = all_direct && l.alias;
    for (const Plan::Fill& f : plan_.fills) all_direct = all_direct && !f.in_slot;
    plan_.needs_slots = !all_direct || !plan_.indices.empty();
  }

  // Loads, scalars and indices keep their slots; a step's is free after its last read.
  void assign_slots() {
    size_t n = types_.size();
    plan_.slots.assign(n, 0);
    for (uint8_t type : types_) plan_.value_bytes.push_back(static_cast<uint8_t>(dtype_size(type)));
    uint32_t end = 0;
    auto fresh = [&](uint16_t value) {
      plan_.slots[value] = end;
      end += static_cast<uint32_t>(dtype_size(types_[value]));
    };
    for (const Plan::Load& l : plan_.loads) fresh(l.value);
    for (const Plan::Fill& f : plan_.fills)
      if (f.in_slot) fresh(f.value);
    for (const Plan::Index& x : plan_.indices) fresh(x.value);
    std::vector<int> last(n, -1);
    std::vector<bool> by_step(n);
    for (size_t s = 0; s < traffic_.size(); ++s) {
      for (uint16_t v : traffic_[s].writes) by_step[v] = true;
      for (uint16_t v : traffic_[s].reads) last[v] = static_cast<int>(s);
    }
    for (const Plan::Store& s : plan_.stores) last[s.value] = static_cast<int>(traffic_.size());
    std::vector<std::pair<size_t, uint32_t>> vacant;  // bytes, slot
    std::vector<bool> given_back(n);
    for (size_t s = 0; s < traffic_.size(); ++s) {
      // A chain reads and writes tile by tile: what it reads last is free only for those after it.
      bool chain = !plan_.steps[s].run;
      auto give_back = [&](uint16_t v) {
        given_back[v] = true;
        vacant.push_back({dtype_size(types_[v]), plan_.slots[v]});
      };
      auto free_what_was_read = [&] {
        for (uint16_t v : traffic_[s].reads)
          if (by_step[v] && last[v] == static_cast<int>(s) && !given_back[v]) give_back(v);
      };
      if (!chain) free_what_was_read();
      for (uint16_t v : traffic_[s].writes) {
        size_t bytes = dtype_size(types_[v]), found = vacant.size();
        for (size_t k = 0; k < vacant.size(); ++k)
          if (vacant[k].first == bytes) found = k;
        if (found < vacant.size()) {
          plan_.slots[v] = vacant[found].second;
          vacant.erase(vacant.begin() + static_cast<ptrdiff_t>(found));
        } else {
          fresh(v);
        }
        if (last[v] < 0 && !given_back[v]) give_back(v);  // made and never read
      }
      if (chain) free_what_was_read();
    }
    plan_.slot_bytes = end;
    constexpr int64_t kCacheBytes = 24 << 10, kMost = 1024, kLeast = 128;
    int64_t block = end ? kCacheBytes / end & ~int64_t{127} : kMost;
    plan_.block = block < kLeast ? kLeast : block > kMost ? kMost : block;
    constexpr int64_t kAdditions = 32 << 10;
    plan_.grain = kAdditions / (total_cost_ < 1 ? 1 : 1 + total_cost_ / 2);
    if (plan_.grain < 256) plan_.grain = 256;
  }

  const fl_program& program_;
  Plan& plan_;
  const PointKernels& kernels_;
  std::vector<uint8_t> types_;    // of the plan's values
  std::vector<Origin> origins_;   // of the plan's steps, before they are joined
  std::vector<Traffic> traffic_;  // of the plan's steps, when they are
  uint16_t of_[FL_MAX_CODE];      // the plan's value for the program's
  bool stored_[FL_MAX_OUTPUTS] = {};
  uint8_t memory_[FL_MAX_INPUTS] = {};
  int64_t total_cost_ = 0;
};

Plans<Plan> plans;
PlanTable<Plan, size_t{FL_DTYPE_COUNT} * FL_DTYPE_COUNT> conversions;

}  // namespace

Plan* make_plan(const fl_program& program) {
  auto* plan = new Plan;
  plan->supported = Compiler(program, *plan).compile();
  return plan;
}

const Plan* plan_of(const fl_program* program) {
  const Plan* plan = plans.get(*program, make_plan);
  return plan->supported ? plan : nullptr;
}

const Plan* conversion(uint8_t from, uint8_t to) {
  return conversions.get(size_t{from} * FL_DTYPE_COUNT + to, [&] {
    // Between the two, the type of the destination; U64 is none, and takes integers as
    // I64's bits and other numbers in their own type.
    uint8_t type = natural_type(to), source = natural_type(from);
    if (type == FL_U64)
      type = source == FL_BOOL || source == FL_I32 || source == FL_U64 ? uint8_t{FL_I64} : source;
    fl_instr code[2] = {};
    code[0].op = FL_OP_LOAD, code[0].type = type, code[0].memory = from;
    code[1].op = FL_OP_STORE, code[1].type = type, code[1].memory = to;
    return make_plan({code, 0, 2, 1, 1, 0});
  });
}

}  // namespace sim
