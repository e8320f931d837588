// Running programs: by the interpreter at first, by a kernel of their own when they turn out to be worth one.
//
// A kernel of a program's own takes the driver some tenths of a second to compile, as much as interpreting it
// a thousand times on small tensors. So a program is interpreted until it has gone over kWorthCompiling
// points; then its kernel is compiled behind the scenes and used once it is there.
#include "points.h"

#include <algorithm>
#include <cstring>

#include "kernel_sources.h"

namespace ocl {

namespace {

constexpr uint64_t kWorthCompiling = 1 << 19;  // points × (1 + cost/8)
constexpr uint64_t kLaunchCost = 1 << 13;      // points that a launch counts for besides its own
constexpr int kInterpretedDims = 4, kInterpretedSlots = 24;

// ------------------------------------------------------------------- layouts
// What a kernel is generated for: the rank, and of each operand how it goes along the innermost dimension.
struct Layout {
  int rank = 1, operands = 0;
  enum Inner : uint8_t { broadcast, contiguous, strided };
  uint8_t inner[kMaxOperands] = {};
  bool by_value = true;

  // Along the innermost dimension only what is strided has a stride to be passed, and its size is n if it is
  // the only one: drivers copy what is passed at each launch.
  bool has_stride(int dimension, int operand) const {
    return dimension + 1 < rank || inner[operand] == strided;
  }
  int strides() const {
    return (rank - 1) * operands + static_cast<int>(std::count(inner, inner + operands, strided));
  }
  int sizes() const { return rank > 1 ? rank : 0; }
  // Of the struct P.
  size_t longs(int scalars) const {
    return static_cast<size_t>(1 + sizes() + strides() + operands + 2 * scalars);
  }

  uint64_t key(uint64_t hash) const {
    uint64_t k = 0;
    for (int i = 0; i < operands; ++i) k |= uint64_t{inner[i]} << 2 * i;
    k = k << 8 | static_cast<uint64_t>(rank) << 1 | by_value;
    return hash ^ (k + 1) * 0x9e3779b97f4a7c15u;
  }
};

Layout layout_of(const Points& p) {
  Layout l;
  l.rank = p.space.ndim < 1 ? 1 : p.space.ndim;
  l.operands = p.space.n;
  for (int k = 0; k < p.space.n; ++k) {
    int64_t stride = p.space.inner_stride(k);
    l.inner[k] = stride == 0 ? Layout::broadcast : stride == 1 ? Layout::contiguous : Layout::strided;
  }
  l.by_value = Parameters::by_value(l.longs(p.plan->n_scalars));
  return l;
}

// ------------------------------------------------------------------ generated
std::string number(int64_t n) { return std::to_string(n); }

Source generate(const Plan& plan, const Layout& layout) {
  const int K = plan.n_inputs + plan.n_outputs, R = layout.rank, S = plan.n_scalars;
  auto array = [](const char* type, const char* name, int n) {
    return n ? std::string(" ") + type + " " + name + "[" + number(n) + "];" : std::string();
  };
  std::string t = std::string(Parameters::declare(layout.by_value)) + "typedef struct { long n;" +
                  array("long", "size", layout.sizes()) + array("long", "stride", layout.strides()) +
                  array("long", "offset", K) + array("ulong", "scalar", 2 * S) + " } P;\n";
  std::string size[FL_MAX_DIMS], stride[FL_MAX_DIMS][kMaxOperands];
  for (int r = 0, at = 0; r < R; ++r) {
    size[r] = layout.sizes() ? "p.size[" + number(r) + "]" : "p.n";
    for (int k = 0; k < K; ++k)
      stride[r][k] = layout.has_stride(r, k)                 ? "p.stride[" + number(at++) + "]"
                     : layout.inner[k] == Layout::contiguous ? "1"
                                                             : "0";
  }
  t += "#define NOT_ZERO(b) ((b) == 0 ? (report(fault, tag, 6, 2, 0, 0), 1) : (b))\n";
  t += "__kernel void points(PARAMETERS";
  for (int k = 0; k < K; ++k) t += ", __global uchar* b" + number(k);
  if (plan.divides) t += ", __global Fault* fault, ulong tag";
  t += ") {\n";
  if (!layout.by_value)
    t += "  const P p = *(__global const P*)((__global const uchar*)parameters + parameters_offset);\n";
  for (int k = 0; k < K; ++k)
    t += "  __global uchar* q" + number(k) + " = b" + number(k) + " + p.offset[" + number(k) + "];\n";

  auto inner = [&](int k, const char* j) -> std::string {
    std::string base = "o" + number(k);
    if (layout.inner[k] == Layout::broadcast) return base;
    if (layout.inner[k] == Layout::contiguous) return base + " + " + j;
    return base + " + " + j + " * " + stride[R - 1][k];
  };
  Emitter e;
  e.load = [&](int input, uint8_t dtype) {
    return "LOAD_" + std::string(dtype_name(dtype)) + "(q" + number(input) + ", " + inner(input, "j") + ")";
  };
  e.store = [&](int output, uint8_t dtype, const std::string& value) {
    int k = plan.n_inputs + output;
    return "STORE_" + std::string(dtype_name(dtype)) + "(q" + number(k) + ", " + inner(k, "j") + ", " +
           value + ");";
  };
  e.scalar = [&](int s) {
    return "(ulong2)(p.scalar[" + number(2 * s) + "], p.scalar[" + number(2 * s + 1) + "])";
  };
  e.index = [&](int d) -> std::string {
    if (d < 0) return "(row + j)";
    if (d == R - 1) return "(c" + number(d) + " + j)";
    return d < R ? "c" + number(d) : "0";
  };
  std::string body = emit(plan, e);
  // From a point's number to its coordinates c, and to where each operand's row begins.
  auto decode = [&](const char* i) {
    std::string d = std::string("    long rest = ") + i + ";\n";
    for (int r = R - 1; r > 0; --r)
      d += "    const long c" + number(r) + " = rest % " + size[r] + "; rest /= " + size[r] + ";\n";
    d += "    const long c0 = rest;\n";
    for (int k = 0; k < K; ++k) {
      d += "    const long o" + number(k) + " = c0 * " + stride[0][k];
      for (int r = 1; r < R; ++r) d += " + c" + number(r) + " * " + stride[r][k];
      d += ";\n";
    }
    return d;
  };
  t += "#ifdef PROCESSOR\n"
       "  long row = FIRST_UNIT(p.n);\n"
       "  const long end = END_UNIT(p.n);\n"
       "  while (row < end) {\n" +
       decode("row") + "    const long m = min(" + size[R - 1] + " - c" + number(R - 1) + ", end - row);\n";
  // No point reads what another writes: an output is exactly an input, or apart from all.
  t += "#pragma clang loop vectorize(assume_safety)\n    for (long j = 0; j < m; ++j) {\n" + body +
       "    }\n    row += m;\n  }\n#else\n"
       "  UNITS(row, p.n) {\n" +
       decode("row") + "    const long j = 0;\n" + body + "  }\n#endif\n}\n";
  return {t, "", "points"};
}

fl_status run_generated(const fl_launch* launch, const Points& p, const Layout& layout, Kernel* kernel) {
  const int K = p.space.n;
  const int64_t n = p.space.points();
  Parameters q;
  q.push(n);
  for (int d = 0; d < layout.sizes(); ++d) q.push(p.space.size[d]);
  for (int d = 0; d < layout.rank; ++d)
    for (int k = 0; k < K; ++k)
      if (layout.has_stride(d, k)) q.push(p.space.stride[d][k]);
  const int offsets = q.reserve(K);
  push_scalars(q, *p.plan, p.scalars);
  Launch l(launch, kernel);
  l.at(q.first());
  for (int k = 0; k < K; ++k) q.set(offsets + k, l.buffer(p.data[k]));
  if (p.plan->divides) l.fault();
  if (fl_status status = q.pass(l, launch)) return status;
  Shape shape = shape_for(*launch->stream->device, n, 32768 / (1 + p.plan->cost / 4));
  return l.run(shape.groups, shape.local);
}

// ---------------------------------------------------------------- interpreted
struct Instruction {
  uint16_t what, out, a, b, c, operand;
  uint32_t reserved;
  int64_t literal;
};
// `what` in kernels/interpret.cl: the kind, then what it is of.
enum : uint16_t {
  kLoad = 0,
  kStore = 32,
  kScalar = 64,
  kConstant = 72,
  kIndex = 80,
  kCast = 96,
  kUnsigned = 160,
  kOp = 256
};

uint16_t what(const Step& s) {
  switch (s.kind) {
    case Step::load:
      return kLoad + s.dtype;
    case Step::store:
      return kStore + s.dtype;
    case Step::scalar:
      return kScalar + s.type;
    case Step::constant:
      return kConstant + s.type;
    case Step::index:
      return kIndex + s.type;
    case Step::cast:
      return static_cast<uint16_t>(kCast + s.type * 8 + s.to);
    case Step::unsigned_cast:
      return kUnsigned + s.to;
    default:
      return static_cast<uint16_t>(kOp + s.opcode * 8 + s.type);
  }
}

// The cases of the interpreter's switch, for the register types in use.
std::string cases(uint32_t registers) {
  std::string t;
  auto in_use = [&](int r) { return registers >> r & 1; };
  auto add = [&](int number_, const std::string& body) {
    t += "case " + number(number_) + ": " + body + "; break;\n";
  };
  auto reg = [](int r, const char* slot) {
    return "REG(" + std::string(register_name(r)) + ", " + slot + ")";
  };
  for (uint8_t d = 1; d < FL_DTYPE_COUNT; ++d) {
    uint8_t r = natural_register(d);
    if (r == kRegisters || !(kStorage >> d & 1) || !in_use(r)) continue;
    std::string name = dtype_name(d);
    add(kLoad + d, "EACH " + reg(r, "out") + " = LOAD_" + name + "(q, o + j * s)");
    add(kStore + d, "EACH STORE_" + name + "(q, o + j * s, " + reg(r, "a") + ")");
  }
  static constexpr const char* from_bits[] = {
      "(uchar)(bits.x != 0)", "(int)bits.x",
      "(long)bits.x",         "as_float((uint)bits.x)",
      "as_double(bits.x)",    "(float2)(as_float((uint)bits.x), as_float((uint)bits.y))",
      "as_double2(bits)"};
  for (int r = 0; r < kRegisters; ++r) {
    if (!in_use(r)) continue;
    add(kScalar + r, "EACH " + reg(r, "out") + " = " + from_bits[r]);
    add(kConstant + r, "EACH " + reg(r, "out") + " = " + from_bits[r]);
    if (r == kI32 || r == kI64)
      add(kIndex + r, "EACH " + reg(r, "out") + " = (T_" + register_name(r) + ")(o + j * s)");
    for (int to = 0; to < kRegisters; ++to)
      if (to != r && in_use(to))
        add(kCast + r * 8 + to, "EACH " + reg(to, "out") + " = CAST_" + register_name(r) + "_" +
                                    register_name(to) + "(" + reg(r, "a") + ")");
    if (r >= kF32 && in_use(kI64))
      add(kUnsigned + r,
          "EACH " + reg(r, "out") + " = CAST_U64_" + register_name(r) + "(" + reg(kI64, "a") + ")");
  }
  static constexpr struct {
    const char* name;
    uint8_t operands;
  } ops[] = {
#define OCL_OP(name, value, operands, types, tier, meaning) {#name, operands},
      FL_OPCODE_MAP(OCL_OP)
#undef OCL_OP
  };
  static constexpr uint8_t dtypes[] = {FL_BOOL, FL_I32, FL_I64, FL_F32, FL_F64, FL_C64, FL_C128};
  for (uint16_t op = 0; op < FL_OP_COUNT; ++op) {
    if (ops[op].operands == 0 || op == FL_OP_STORE || op == FL_OP_CAST) continue;
    for (uint8_t r = 0; r < kRegisters; ++r) {
      if (!in_use(r) || !(opcode_types(op) & FL_BIT(dtypes[r])) || is_complex_function(op, r)) continue;
      bool comparison = op >= FL_OP_EQ && op <= FL_OP_GE;
      bool checked = op >= FL_OP_DIV_TRUNC && op <= FL_OP_REM_FLOOR && (r == kI32 || r == kI64);
      std::string call = "EACH " + reg(comparison ? int{kBool} : r, "out") + " = OP_" + ops[op].name + "_" +
                         register_name(r) + "(" + reg(op == FL_OP_SELECT ? int{kBool} : r, "a");
      if (ops[op].operands > 1) call += checked ? ", NOT_ZERO(" + reg(r, "b") + ")" : ", " + reg(r, "b");
      if (ops[op].operands > 2) call += ", " + reg(r, "c");
      add(kOp + op * 8 + r, call + ")");
    }
  }
  return t;
}

Source interpreter(uint32_t registers) {
  return {std::string("\n#define WIDTH ") + (registers >> kC128 & 1 ? "16" : "8") + "\n#define SLOTS " +
              number(kInterpretedSlots) + "\n#define DIMS " + number(kInterpretedDims) +
              "\n#define CASES \\\n" +
              [&] {
                std::string text = cases(registers), joined;
                for (char c : text) joined += c == '\n' ? " \\\n" : std::string(1, c);
                return joined;
              }() +
              "\n" + kernel_source_interpret,
          "", "interpret"};
}

// Which interpreter: one without wide types compiles faster and runs with smaller slots.
uint32_t interpreter_registers(uint32_t used) {
  uint32_t base = 1u << kBool | 1u << kI32 | 1u << kI64 | 1u << kF32;
  if (used & ~base) base |= 1u << kF64;
  if (used & ~base) base |= 1u << kC64 | 1u << kC128;
  return base;
}

// The plan's code in the device's memory; made once.
cl_mem code_of(Device& d, const Plan& plan) {
  auto& known = plan.code[d.index];
  if (cl_mem buffer = known.load(std::memory_order_acquire)) return buffer;
  std::vector<Instruction> code;
  for (const Step& s : plan.slotted) {
    Instruction in{what(s), s.out, s.a, s.b, s.c, s.operand, 0, s.literal};
    if (s.kind == Step::store) in.operand = static_cast<uint16_t>(in.operand + plan.n_inputs);
    if (s.kind == Step::constant) {
      fl_scalar value{};
      std::memcpy(&value.v, &s.literal, sizeof s.literal);
      uint64_t bits[2];
      pack_scalar(s.type, value, bits);
      in.literal = static_cast<int64_t>(bits[0]);
    }
    code.push_back(in);
  }
  cl_int error;
  cl_mem buffer =
      cl.clCreateBuffer(d.context, CL_MEM_READ_WRITE, code.size() * sizeof(Instruction), nullptr, &error);
  if (!buffer) return nullptr;
  error = cl.clEnqueueWriteBuffer(d.service, buffer, 1, 0, code.size() * sizeof(Instruction), code.data(), 0,
                                  nullptr, nullptr);
  if (error != CL_SUCCESS) return cl.clReleaseMemObject(buffer), nullptr;
  known.store(buffer, std::memory_order_release);
  return buffer;
}

struct InterpretedParameters {
  int64_t n, n_code, n_operands;
  int64_t size[kInterpretedDims];
  int64_t stride[kInterpretedDims][kMaxOperands];
  int64_t offset[kMaxOperands];
};

fl_status run_interpreted(const fl_launch* launch, const Points& p) {
  Device& d = *launch->stream->device;
  uint32_t registers = interpreter_registers(p.plan->registers);
  Kernel* kernel = d.library->get(Family::interpret, registers, [&] { return interpreter(registers); });
  if (!kernel) return FL_FAILED;
  cl_mem code = code_of(d, *p.plan);
  if (!code) return refuse(FL_OUT_OF_MEMORY, "no memory on the device for a program's code");
  InterpretedParameters q{};
  q.n = p.space.points(), q.n_code = std::ssize(p.plan->slotted), q.n_operands = p.space.n;
  // Innermost dimensions last.
  for (int i = 0; i < kInterpretedDims; ++i) {
    int from = i - (kInterpretedDims - p.space.ndim);
    q.size[i] = from >= 0 ? p.space.size[from] : 1;
    for (int k = 0; k < p.space.n; ++k) q.stride[i][k] = from >= 0 ? p.space.stride[from][k] : 0;
  }
  struct {
    uint64_t bits[FL_MAX_SCALARS][2];
  } scalars{};
  for (int s = 0; s < p.plan->n_scalars; ++s)
    pack_scalar(p.plan->scalar_types[s], p.scalars[s], scalars.bits[s]);
  Launch l(launch, kernel);
  l.at(2);
  l.value(static_cast<int32_t>(kInterpretedDims - p.space.ndim));  // dimension 0 of INDEX is this one here
  l.handle(code);
  for (int k = 0; k < kMaxOperands; ++k) {
    if (k < p.space.n) q.offset[k] = static_cast<int64_t>(l.buffer(p.data[k]));
    else l.handle(code);
  }
  l.fault();
  l.at(0);
  l.value(q);
  l.value(scalars);
  Shape shape = shape_for(d, q.n, 2048);
  return l.run(shape.groups, shape.local);
}

}  // namespace

void push_scalars(Parameters& q, const Plan& plan, const fl_scalar* scalars) {
  for (int s = 0; s < plan.n_scalars; ++s) {
    uint64_t bits[2];
    pack_scalar(plan.scalar_types[s], scalars[s], bits);
    q.push(static_cast<int64_t>(bits[0])), q.push(static_cast<int64_t>(bits[1]));
  }
}

Points::Points(const Plan* p, const fl_tensor* inputs, const fl_tensor* outputs, const fl_scalar* s)
    : Points(p) {
  scalars = s;
  const fl_tensor& shape = outputs[0];
  for (int k = 0; k < space.n; ++k) data[k] = (k < p->n_inputs ? inputs[k] : outputs[k - p->n_inputs]).data;
  for (int d = 0; d < shape.ndim; ++d) {
    int64_t* strides = space.push(shape.sizes[d]);
    for (int k = 0; k < space.n; ++k)
      strides[k] = (k < p->n_inputs ? inputs[k] : outputs[k - p->n_inputs]).strides[d];
  }
  if (!p->uses_index) {
    space.sort(p->n_inputs);
    space.merge();
  }
}

Compile count_points(const Plan& plan, uint64_t points, uint64_t launches) {
  uint64_t weight = points * (1 + static_cast<uint64_t>(plan.cost) / 8) + launches * kLaunchCost;
  uint64_t before = plan.points.fetch_add(weight, std::memory_order_relaxed);
  return before + weight < kWorthCompiling  ? Compile::never
         : points >= (kWorthCompiling << 5) ? Compile::now
                                            : Compile::later;
}

fl_status run_points(const fl_launch* launch, const Points& p, bool may_compile) {
  Device& d = *launch->stream->device;
  const Plan& plan = *p.plan;
  if (!d.info.fp64 && plan.registers & (1u << kF64 | 1u << kC128)) return FL_UNSUPPORTED;
  Layout layout = layout_of(p);
  uint64_t key = layout.key(plan.hash);
  const bool interpretable =
      plan.n_slots <= kInterpretedSlots && p.space.ndim <= kInterpretedDims && !plan.complex_functions;
  auto kernel_or_null = [&](Compile compile) {
    return d.library->get(Family::program, key, [&] { return generate(plan, layout); }, compile);
  };
  Kernel* kernel = kernel_or_null(Compile::never);
  if (!kernel && interpretable && !may_compile) return run_interpreted(launch, p);
  if (!kernel)
    kernel = kernel_or_null(interpretable ? count_points(plan, static_cast<uint64_t>(p.space.points()))
                                          : Compile::now);
  if (kernel) return run_generated(launch, p, layout, kernel);
  return interpretable ? run_interpreted(launch, p) : FL_FAILED;
}

}  // namespace ocl
