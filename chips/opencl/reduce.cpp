// Reductions: one kernel for each program, kind and layout.
//
// A work-item takes a cell, or on a processor LANES neighbouring ones, or, where there are few cells, a part
// of one; parts are joined by a second kernel. Lanes are separate accumulators that the compiler turns into
// vectors: along the reduced dimension, or across cells where those are what lies side by side in memory.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "chip.h"
#include "points.h"

namespace ocl {

namespace {

constexpr int kOperands = kMaxOperands + 1;  // inputs, outputs, index
constexpr int kLanes = 16;

std::string number(int64_t n) { return std::to_string(n); }

// What a kernel is generated for.
struct Form {
  uint16_t kind;
  uint8_t acc;  // Register
  const Plan *pre, *post;
  int n_inputs, n_outputs;
  bool has_index, deep;         // INDEX in pre or post: dimensions stay as they are
  bool across;                  // lanes across cells
  bool split;                   // stage one of two
  int outer, inner;             // ranks
  uint8_t unit[FL_MAX_INPUTS];  // 0, 1, or 2 (by the parameters)
  bool by_value = true;
  int operands() const { return n_inputs + n_outputs + has_index; }
  uint64_t key() const {
    uint64_t k = pre->hash;
    auto mix = [&](uint64_t v) { k = (k ^ v) * 0x9e3779b97f4a7c15u, k ^= k >> 31; };
    mix(post ? post->hash : 1);
    mix(kind | uint64_t{acc} << 8 | uint64_t{has_index} << 16 | uint64_t{deep} << 17 |
        uint64_t{across} << 18 | uint64_t{split} << 19 | uint64_t{by_value} << 20 |
        static_cast<uint64_t>(outer) << 24 | static_cast<uint64_t>(inner) << 32);
    for (int i = 0; i < n_inputs; ++i) mix(unit[i]);
    return k;
  }
};

// Type and operations of the accumulator: name, start, step (a value joins), join (two accumulators).
struct Arithmetic {
  std::string type, start, step;
};
Arithmetic arithmetic(const Form& f, bool fp64) {
  const std::string t = std::string("T_") + register_name(f.acc);
  const std::string wide = f.acc == kF32           ? (fp64 ? "double" : "float")
                           : f.acc == kC64 && fp64 ? "double2"
                                                   : t;
  const std::string r = register_name(f.acc);
  switch (f.kind) {
    case FL_REDUCE_SUM:
      return {f.acc == kBool ? "uchar" : wide, f.acc >= kC64 ? "(" + wide + ")(0, 0)" : "0",
              f.acc == kBool  ? "a | v"
              : f.acc == kI32 ? "(int)((uint)a + (uint)v)"
                              : "a + v"};
    case FL_REDUCE_PROD:
      if (f.acc == kC64 || f.acc == kC128) return {t, "(" + t + ")(1, 0)", "OP_MUL_" + r + "(a, v)"};
      return {f.acc == kBool ? "uchar" : wide, "1",
              f.acc == kBool  ? "a & v"
              : f.acc == kI32 ? "(int)((uint)a * (uint)v)"
                              : "a * v"};
    case FL_REDUCE_MIN:
      return {t,
              f.acc == kBool  ? "1"
              : f.acc == kI32 ? "INT_MAX"
              : f.acc == kI64 ? "LONG_MAX"
                              : "INFINITY",
              "OP_MIN_" + r + "(a, v)"};
    case FL_REDUCE_MAX:
      return {t,
              f.acc == kBool  ? "0"
              : f.acc == kI32 ? "INT_MIN"
              : f.acc == kI64 ? "LONG_MIN"
                              : "-INFINITY",
              "OP_MAX_" + r + "(a, v)"};
    case FL_REDUCE_ALL:
      return {"uchar", "1", "a & v"};
    case FL_REDUCE_ANY:
      return {"uchar", "0", "a | v"};
    default:
      return {wide, "0", ""};
  }
}

std::string widened(const std::string& type) {
  if (type == "double2") return "convert_double2(value)";
  return "(" + type + ")value";
}

Source generate(const Form& f, bool fp64) {
  const Arithmetic a = arithmetic(f, fp64);
  const int K = f.operands(), N = f.n_inputs, RO = f.outer, RI = f.inner;
  const bool moments = f.kind == FL_REDUCE_MOMENTS;
  const bool where = f.has_index;
  const int S = 2 * f.pre->n_scalars + (f.post ? 2 * f.post->n_scalars : 0);
  std::string t = Parameters::declare(f.by_value);
  t += "#define LANES " + number(kLanes) +
       "\n#define NOT_ZERO(b) ((b) == 0 ? (report(fault, tag, 6, 2, 0, 0), 1) : (b))\n";
  t += "typedef " + a.type + " A;\n";
  t += "typedef struct { A value; " + std::string(moments ? "A squares; long count; " : "") +
       (where ? "long where; " : "") + "} Acc;\n";
  t += "static inline Acc start() { Acc r; r.value = " + a.start + ";" +
       (moments ? " r.squares = 0; r.count = 0;" : "") + (where ? " r.where = -1;" : "") + " return r; }\n";
  // Two accumulators joined; of equal values the lower position, of NaNs the first.
  if (moments)
    t += "static inline Acc join(Acc x, Acc y) { if (y.count == 0) return x; if (x.count == 0) return y; Acc "
         "r; r.count = x.count + y.count;"
         " A d = y.value - x.value, n = (A)r.count; r.value = x.value + d * ((A)y.count / n);"
         " r.squares = x.squares + y.squares + d * d * ((A)x.count * (A)y.count / n); return r; }\n";
  else if (where) {
    std::string less = f.kind == FL_REDUCE_MIN ? "y.value < x.value" : "y.value > x.value";
    bool floating = f.acc == kF32 || f.acc == kF64;
    t += "static inline Acc join(Acc x, Acc y) { if (y.where < 0) return x; if (x.where < 0) return y;\n";
    if (floating)
      t += "  const int xn = x.value != x.value, yn = y.value != y.value;\n"
           "  if (xn || yn) return xn && yn ? (y.where < x.where ? y : x) : yn ? y : x;\n";
    t += "  return " + less + " || (y.value == x.value && y.where < x.where) ? y : x; }\n";
  } else {
    t += "static inline Acc join(Acc x, Acc y) { const A a = x.value, v = y.value; Acc r; r.value = (A)(" +
         a.step + "); return r; }\n";
  }
  t += "typedef struct { long cells, parts, n, row; long outer[" + number(RO) + "]; long inner[" +
       number(RI) + "]; long ostride[" + number(RO) + "][" + number(K) + "]; long istride[" + number(RI) +
       "][" + number(N) + "]; long offset[" + number(K + 1) + "];" +
       (S ? " ulong scalar[" + number(S) + "];" : "") + " } P;\n";

  std::string arguments = "PARAMETERS";
  for (int k = 0; k < K; ++k) arguments += ", __global uchar* b" + number(k);
  arguments += ", __global uchar* partials, __global Fault* fault, ulong tag";
  std::string prologue;
  if (!f.by_value)
    prologue +=
        "  const P p = *(__global const P*)((__global const uchar*)parameters + parameters_offset);\n";
  for (int k = 0; k < K; ++k)
    prologue += "  __global uchar* q" + number(k) + " = b" + number(k) + " + p.offset[" + number(k) + "];\n";
  prologue += "  __global Acc* part = (__global Acc*)(partials + p.offset[" + number(K) + "]);\n";

  // The value of one point, joined to acc[l].
  Emitter e;
  e.load = [&](int i, uint8_t dtype) {
    std::string at = "o" + number(i) + " + i" + number(i);
    std::string by = f.unit[i] == 0   ? ""
                     : f.unit[i] == 1 ? " + (j + l)"
                     : f.across       ? " + l * p.ostride[" + number(RO - 1) + "][" + number(i) + "]"
                                      : " + (j + l) * p.istride[" + number(RI - 1) + "][" + number(i) + "]";
    if (f.across && f.unit[i] == 1) by = " + l";
    if (f.across) by += " + j * p.istride[" + number(RI - 1) + "][" + number(i) + "]";
    return "LOAD_" + std::string(dtype_name(dtype)) + "(q" + number(i) + ", " + at + by + ")";
  };
  e.store = [](int, uint8_t, const std::string& value) { return "value = " + value + ";"; };
  e.scalar = [&](int s) {
    return "(ulong2)(p.scalar[" + number(2 * s) + "], p.scalar[" + number(2 * s + 1) + "])";
  };
  // With INDEX every dimension is there twice: size 1 in one of the two spaces.
  e.index = [&](int d) -> std::string {
    auto one = [&](int k) {
      std::string c = "(c" + number(k) + " + d" + number(k);
      if (k == RI - 1 && !f.across) c += " + j + l";
      if (k == RI - 1 && f.across) c += " + j";
      if (k == RO - 1 && f.across) c += " + l";
      return c + ")";
    };
    if (d >= 0) return d < RO ? one(d) : "0";
    std::string row = "0L";
    for (int k = 0; k < RO; ++k)
      row = "(" + row + " * max(p.outer[" + number(k) + "], p.inner[" + number(k) + "]) + " + one(k) + ")";
    return row;
  };
  std::string body = "    { T_" + std::string(register_name(f.acc)) + " value;\n" + emit(*f.pre, e);
  if (moments)
    body +=
        "      const A x = (A)value, d = x - mean[l], next = mean[l] + d * reciprocal; mean[l] = next; "
        "squares[l] += d * (x - next);\n";
  else if (where) {
    bool floating = f.acc == kF32 || f.acc == kF64;
    std::string better = f.kind == FL_REDUCE_MIN ? "value < acc[l]" : "value > acc[l]";
    if (floating) better = "acc[l] == acc[l] && (" + better + " || value != value)";
    body += "      const int better = at[l] < 0 || (" + better +
            "); acc[l] = better ? value : acc[l]; at[l] = better ? " +
            std::string(f.across ? "i + j" : "i + j + l") + " : at[l];\n";
  } else {
    body += "      const A a = acc[l], v = " + widened(a.type) + "; acc[l] = (A)(" + a.step + ");\n";
  }
  body += "    }\n";

  // Results of a cell: from r (an Acc) to the outputs at lane l.
  auto place = [&](int k) {
    return "o" + number(k) + " + l * " +
           (f.across ? "p.ostride[" + number(RO - 1) + "][" + number(k) + "]" : "0");
  };
  std::string result = "      { const Acc r = done;\n";
  const std::string acc_t = std::string("T_") + register_name(f.acc);
  if (f.n_outputs) {
    result += "      const " + acc_t + " r0 = " +
              (a.type == "double2" && f.acc == kC64 ? "convert_float2(r.value)" : "(" + acc_t + ")r.value") +
              ";\n";
    if (moments) result += "      const " + acc_t + " r1 = (" + acc_t + ")r.squares;\n";
    Emitter out;
    out.load = [](int i, uint8_t) { return "r" + number(i); };
    out.store = [&](int o, uint8_t dtype, const std::string& value) {
      int k = N + o;
      return "STORE_" + std::string(dtype_name(dtype)) + "(q" + number(k) + ", " + place(k) + ", " + value +
             ");";
    };
    out.scalar = [&](int s) {
      int at = 2 * f.pre->n_scalars + 2 * s;
      return "(ulong2)(p.scalar[" + number(at) + "], p.scalar[" + number(at + 1) + "])";
    };
    out.index = [&](int d) -> std::string {
      auto one = [&](int k) { return "(c" + number(k) + (k == RO - 1 && f.across ? " + l)" : ")"); };
      if (d >= 0) return d < RO ? one(d) : "0";
      std::string row = "0L";
      for (int k = 0; k < RO; ++k) row = "(" + row + " * p.outer[" + number(k) + "] + " + one(k) + ")";
      return row;
    };
    result += emit(*f.post, out);
  }
  if (where)
    result += "      STORE_I64(q" + number(N + f.n_outputs) + ", " + place(N + f.n_outputs) + ", r.where);\n";
  result += "      }\n";

  auto decode_outer = [&] {
    // A row of cells (the innermost outer dimension) is cut into blocks of LANES when lanes go across.
    std::string d = "    long rest = cell;\n";
    if (f.across) {
      d += "    const long first = rest % p.row * LANES; rest /= p.row;\n    const long lanes = "
           "min((long)LANES, p.outer[" +
           number(RO - 1) + "] - first);\n    const long c" + number(RO - 1) + " = first;\n";
    } else {
      d += "    const long c" + number(RO - 1) + " = rest % p.outer[" + number(RO - 1) +
           "]; rest /= p.outer[" + number(RO - 1) + "];\n";
    }
    for (int r = RO - 2; r >= 0; --r)
      d += "    const long c" + number(r) + " = rest % p.outer[" + number(r) + "]; rest /= p.outer[" +
           number(r) + "];\n";
    for (int k = 0; k < K; ++k) {
      d += "    const long o" + number(k) + " = 0";
      for (int r = 0; r < RO; ++r)
        d += " + c" + number(r) + " * p.ostride[" + number(r) + "][" + number(k) + "]";
      d += ";\n";
    }
    return d;
  };
  const std::string lanes_loop =
      f.across ? "for (long l = 0; l < lanes; ++l)" : "for (long l = 0; l < LANES; ++l)";
  const std::string start_lanes =
      moments ? "    A mean[LANES], squares[LANES]; long count[LANES]; for (int l = 0; l < LANES; ++l) "
                "mean[l] = squares[l] = 0, count[l] = 0;\n"
      : where ? "    " + acc_t +
                    " acc[LANES]; long at[LANES]; for (int l = 0; l < LANES; ++l) acc[l] = 0, at[l] = -1;\n"
              : "    A acc[LANES]; for (int l = 0; l < LANES; ++l) acc[l] = " + a.start + ";\n";
  auto get_lane = [&](const std::string& name) {
    std::string g = "Acc " + name + "; ";
    if (moments)
      return g + name + ".value = mean[l]; " + name + ".squares = squares[l]; " + name + ".count = count[l];";
    if (where) return g + name + ".value = acc[l]; " + name + ".where = at[l];";
    return g + name + ".value = acc[l];";
  };

  t += "__kernel void reduce(" + arguments + ") {\n" + prologue +
       "  UNITS(unit, p.cells * p.parts) {\n    const long cell = unit / p.parts, piece = unit % p.parts;\n" +
       decode_outer();
  t += "    const long size = (p.n + p.parts - 1) / p.parts, until = min(p.n, (piece + 1) * size);\n" +
       start_lanes;
  t += "    long i = piece * size;\n    while (i < until) {\n      long left = i;\n";
  for (int r = RI - 1; r > 0; --r)
    t += "      const long d" + number(r) + " = left % p.inner[" + number(r) + "]; left /= p.inner[" +
         number(r) + "];\n";
  t += "      const long d0 = left;\n";
  for (int k = 0; k < N; ++k) {
    t += "      const long i" + number(k) + " = 0";
    for (int r = 0; r < RI; ++r)
      t += " + d" + number(r) + " * p.istride[" + number(r) + "][" + number(k) + "]";
    t += ";\n";
  }
  t += "      const long m = min(p.inner[" + number(RI - 1) + "] - d" + number(RI - 1) +
       ", until - i);\n      long j = 0;\n";
  if (f.across) {
    auto loop = [&](const char* lanes) {
      std::string s;
      if (moments)
        s += "        const A reciprocal = (A)1 / (A)(count[0] + 1); for (int l = 0; l < LANES; ++l) "
             "++count[l];\n";
      return s + "        for (long l = 0; l < " + lanes + "; ++l)\n" + body;
    };
    t += "      if (lanes == LANES) { for (; j < m; ++j) {\n" + loop("LANES") +
         "      } } else { for (; j < m; ++j) {\n" + loop("lanes") + "      } }\n";
  } else {
    std::string count = moments ? "        const A reciprocal = (A)1 / (A)(count[LANES - 1] + 1); for (int l "
                                  "= 0; l < LANES; ++l) ++count[l];\n"
                                : "";
    // With moments the lanes advance alike; the rest goes one by one to lane 0, with a count of its own.
    if (moments) {
      t += "      for (; j + LANES <= m && count[0] == count[LANES - 1]; j += LANES) {\n" + count +
           "        for (long l = 0; l < LANES; ++l)\n" + body + "      }\n";
      t += "      for (; j < m; ++j) { const long l = 0; const A reciprocal = (A)1 / (A)(++count[0]);\n" +
           body + "      }\n";
    } else {
      t += "      for (; j + LANES <= m; j += LANES) {\n        for (long l = 0; l < LANES; ++l)\n" + body +
           "      }\n";
      t += "      for (; j < m; ++j) { const long l = 0;\n" + body + "      }\n";
    }
  }
  t += "      i += m;\n    }\n";
  if (f.across) {
    t += "    " + lanes_loop + " { " + get_lane("done") + "\n";
    t += f.split ? "      part[(cell * LANES + l) * p.parts + piece] = done;\n" : result;
    t += "    }\n";
  } else {
    t += "    Acc done = start(); for (long l = 0; l < LANES; ++l) { " + get_lane("r") +
         " done = join(done, r); }\n    const long l = 0;\n";
    t += f.split ? "    part[cell * p.parts + piece] = done;\n" : result;
  }
  t += "  }\n}\n";
  if (f.split) {
    t += "__kernel void join_parts(" + arguments + ") {\n" + prologue +
         "  UNITS(unit, p.cells) {\n    const long cell = unit;\n" + decode_outer();
    t += std::string("    ") + (f.across ? lanes_loop : "const long l = 0;") +
         " {\n      Acc done = start(); for (long k = 0; k < p.parts; ++k) done = join(done, part[(" +
         (f.across ? "cell * LANES + l" : "cell") + ") * p.parts + k]);\n" + result + "    }\n  }\n}\n";
  }
  return {t, "", "reduce"};
}

size_t acc_bytes(const Form& f) {
  size_t value = f.acc == kF32 || f.acc == kI64 || f.acc == kF64 ? 8
                 : f.acc == kI32                                 ? 4
                 : f.acc == kBool                                ? 1
                                                                 : 16;
  if (f.kind == FL_REDUCE_MOMENTS) return 24;
  return f.has_index ? 16 : value;
}

constexpr uint32_t kReals = FL_BIT(FL_I32) | FL_BIT(FL_I64) | FL_BIT(FL_F32) | FL_BIT(FL_F64);
constexpr uint32_t kComplexes = FL_BIT(FL_C64) | FL_BIT(FL_C128);
constexpr uint32_t kTypes[FL_REDUCE_COUNT] = {kReals | kComplexes | FL_BIT(FL_BOOL),
                                              kReals | kComplexes | FL_BIT(FL_BOOL),
                                              kReals | FL_BIT(FL_BOOL),
                                              kReals | FL_BIT(FL_BOOL),
                                              FL_BIT(FL_BOOL),
                                              FL_BIT(FL_BOOL),
                                              FL_BIT(FL_F32) | FL_BIT(FL_F64)};

fl_status reduce_direct(const fl_launch* launch, const fl_reduce_args* a, const Plan* pre, const Plan* post,
                        Compile compile) {
  Device& device = *launch->stream->device;
  const fl_tensor& in = a->inputs[0];
  const fl_tensor& shape = a->n_outputs ? a->outputs[0] : *a->index;
  Form f{};
  f.kind = a->kind, f.acc = register_of(a->accumulate);
  f.pre = pre, f.post = post;
  f.n_inputs = a->n_inputs, f.n_outputs = a->n_outputs, f.has_index = a->index != nullptr;
  f.deep = f.pre->uses_index || (f.post && f.post->uses_index);
  const int N = f.n_inputs, K = f.operands();

  auto tensor = [&](int k) -> const fl_tensor& {
    return k < N ? a->inputs[k] : k < N + f.n_outputs ? a->outputs[k - N] : *a->index;
  };
  Space<kOperands> outer(K), inner(N);
  for (int d = 0; d < in.ndim; ++d) {
    bool reduced = shape.sizes[d] == 1 && in.sizes[d] != 1;
    if (!reduced || f.deep) {
      int64_t* s = outer.push(reduced ? 1 : in.sizes[d]);
      for (int k = 0; k < K; ++k) s[k] = reduced ? 0 : tensor(k).strides[d];
    }
    if (reduced || f.deep) {
      int64_t* s = inner.push(reduced ? in.sizes[d] : 1);
      for (int k = 0; k < N; ++k) s[k] = reduced ? tensor(k).strides[d] : 0;
    }
  }
  if (!f.deep) {
    outer.merge();
    inner.merge();
    // The order of the reduced points matters to the index alone.
    if (!f.has_index) inner.sort(0), inner.merge();
    outer.sort(0), outer.merge();
  }
  if (outer.ndim == 0) std::fill_n(outer.push(1), K, 0);
  if (inner.ndim == 0) std::fill_n(inner.push(1), N, 0);
  f.outer = outer.ndim, f.inner = inner.ndim;
  const int64_t cells = outer.points(), n = inner.points();

  // Across where the cells are side by side in memory and the reduced points are not; never on threads, which
  // are lanes.
  auto unit_of = [&](int64_t stride) { return static_cast<uint8_t>(stride == 0 ? 0 : stride == 1 ? 1 : 2); };
  const int64_t last = outer.inner_size();
  if (device.info.processor && last >= 4) {
    const bool beside = std::llabs(outer.inner_stride(0)) == 1,
               along = std::llabs(inner.inner_stride(0)) <= 1;
    f.across =
        n > 1 && (beside ? !along || inner.inner_size() < kLanes
                         : !along && std::llabs(outer.inner_stride(0)) < std::llabs(inner.inner_stride(0)) &&
                               outer.inner_stride(0) != 0);
    if (n <= 4) f.across = true;
  }
  for (int k = 0; k < N; ++k) f.unit[k] = unit_of(f.across ? outer.inner_stride(k) : inner.inner_stride(k));
  const int64_t row = (last + kLanes - 1) / kLanes;  // blocks in a row of cells
  const int64_t units = f.across ? cells / last * row : cells;
  const int64_t wanted =
      device.info.processor ? 2 * int64_t{device.info.units} : 512 * int64_t{device.info.units};
  const int64_t least = device.info.processor ? 1 << 14 : 64;  // points of a cell that are worth a part
  int64_t parts = 1;
  if (units < wanted && n * (f.across ? kLanes : 1) > 2 * least)
    parts = std::min((wanted + units - 1) / units, std::max<int64_t>(1, n * (f.across ? kLanes : 1) / least));
  f.split = parts > 1;

  Parameters p;
  p.push(units), p.push(parts), p.push(n), p.push(row);
  for (int d = 0; d < f.outer; ++d) p.push(outer.size[d]);
  for (int d = 0; d < f.inner; ++d) p.push(inner.size[d]);
  for (int d = 0; d < f.outer; ++d)
    for (int k = 0; k < K; ++k) p.push(outer.stride[d][k]);
  for (int d = 0; d < f.inner; ++d)
    for (int k = 0; k < N; ++k) p.push(inner.stride[d][k]);
  const int offsets = p.reserve(K + 1);
  push_scalars(p, *f.pre, a->pre_scalars);
  if (f.post) push_scalars(p, *f.post, a->post_scalars);
  const int S = f.pre->n_scalars + (f.post ? f.post->n_scalars : 0);
  f.by_value = Parameters::by_value(static_cast<size_t>(offsets + K + 1 + 2 * S));
  const uint64_t key = f.key();
  auto make = [&] { return generate(f, device.info.fp64); };
  auto make_second = [&] {
    Source s = generate(f, device.info.fp64);
    s.kernel = "join_parts";
    return s;
  };
  const uint64_t second_key = key ^ 0x5bd1e995u;
  Kernel* first = device.library->get(Family::reduce, key, make, compile);
  Kernel* second = f.split ? device.library->get(Family::reduce, second_key, make_second, compile) : nullptr;
  if (!first || (f.split && !second)) return compile == Compile::now ? FL_FAILED : FL_NOT_READY;
  void* partials = const_cast<void*>(tensor(0).data);
  if (f.split) {
    size_t bytes = acc_bytes(f) * static_cast<size_t>(units * (f.across ? kLanes : 1) * parts);
    if (fl_status status = host()->scratch(launch, bytes, &partials)) return status;
  }
  auto run = [&](Kernel* kernel, int64_t pieces, int64_t work) {
    Launch l(launch, kernel);
    l.at(p.first());
    for (int k = 0; k < K; ++k) p.set(offsets + k, l.buffer(tensor(k).data));
    p.set(offsets + K, l.buffer(partials));
    l.fault();
    if (fl_status status = p.pass(l, launch)) return status;
    Shape s = shape_for(device, pieces, std::max<int64_t>(1, 16384 / std::max<int64_t>(1, work)));
    return l.run(s.groups, s.local);
  };
  if (fl_status status = run(first, units * parts, n / parts * (f.across ? kLanes : 1))) return status;
  return f.split ? run(second, units, parts * (f.across ? kLanes : 1)) : FL_OK;
}

// A contiguous tensor in scratch memory of the launch.
struct Temporary {
  fl_tensor tensor{};
  int64_t sizes[FL_MAX_DIMS], strides[FL_MAX_DIMS];
  fl_status make(const fl_launch* launch, uint8_t dtype, int64_t n) {
    tensor = {nullptr, sizes, strides, 1, dtype, 0, 0};
    sizes[0] = n, strides[0] = 1;
    return host()->scratch(launch, static_cast<size_t>(n) * dtype_size(dtype), &tensor.data);
  }
};

// The same in three steps, with kernels that serve every program: pre's values to memory, reduced there, post
// over the results. For programs that are too rare to compile.
fl_status reduce_in_steps(const fl_launch* launch, const fl_reduce_args* a, const Plan* pre,
                          const Plan* post) {
  const fl_tensor& in = a->inputs[0];
  const fl_tensor& shape = a->n_outputs ? a->outputs[0] : *a->index;
  int64_t cells = 1, n = 1;
  for (int d = 0; d < in.ndim; ++d) {
    cells *= shape.sizes[d];
    if (shape.sizes[d] == 1) n *= in.sizes[d];
  }
  Temporary values, results[2], winners;
  if (fl_status status = values.make(launch, a->accumulate, cells * n)) return status;
  // In in's shape, the reduced dimensions innermost in memory.
  int64_t strides[FL_MAX_DIMS], next = 1;
  for (bool reduced : {true, false})
    for (int d = in.ndim; d-- > 0;)
      if ((shape.sizes[d] == 1 && in.sizes[d] != 1) == reduced) strides[d] = next, next *= in.sizes[d];
  fl_tensor made = in;
  made.data = values.tensor.data, made.strides = strides, made.dtype = a->accumulate;
  if (fl_status status = run_points(launch, Points(pre, a->inputs, &made, a->pre_scalars))) return status;

  const bool moments = a->kind == FL_REDUCE_MOMENTS;
  fl_reduce_args plain = *a;
  int64_t from_sizes[2] = {cells, n}, from_strides[2] = {n, 1}, to_sizes[2] = {cells, 1},
          to_strides[2] = {1, 0};
  fl_tensor from{values.tensor.data, from_sizes, from_strides, 2, a->accumulate, 0, 0}, to[2], where{};
  plain.pre = plain.post = nullptr, plain.inputs = &from, plain.n_inputs = 1, plain.index = nullptr;
  plain.n_outputs = static_cast<uint16_t>(!a->n_outputs ? 0 : moments ? 2 : 1), plain.outputs = to;
  for (int r = 0; r < plain.n_outputs; ++r) {
    if (fl_status status = results[r].make(launch, a->accumulate, cells)) return status;
    to[r] = {results[r].tensor.data, to_sizes, to_strides, 2, a->accumulate, 0, 0};
  }
  if (a->index) {
    if (fl_status status = winners.make(launch, FL_I64, cells)) return status;
    where = {winners.tensor.data, to_sizes, to_strides, 2, FL_I64, 0, 0};
    plain.index = &where;
  }
  const Plan* same = conversion_plan(a->accumulate, a->accumulate);
  fl_status status = reduce_direct(launch, &plain, same,
                                   !a->n_outputs ? nullptr
                                   : moments     ? pair_plan(a->accumulate)
                                                 : same,
                                   Compile::now);
  if (status) return status;
  int64_t dense[FL_MAX_DIMS];
  next = 1;
  for (int d = in.ndim; d-- > 0;) dense[d] = next, next *= shape.sizes[d];
  auto shaped = [&](const fl_tensor& t) {
    fl_tensor s = shape;
    s.data = t.data, s.strides = dense, s.dtype = t.dtype;
    return s;
  };
  if (a->n_outputs) {
    fl_tensor reduced[2] = {shaped(results[0].tensor), shaped(results[moments ? 1 : 0].tensor)};
    if ((status = run_points(launch, Points(post, reduced, a->outputs, a->post_scalars)))) return status;
  }
  if (!a->index) return FL_OK;
  fl_tensor found = shaped(winners.tensor);
  return run_points(launch, Points(conversion_plan(FL_I64, FL_I64), &found, a->index, nullptr));
}

}  // namespace

fl_status reduce(const fl_launch* launch, const fl_reduce_args* a) {
  Device& device = *launch->stream->device;
  if (a->kind >= FL_REDUCE_COUNT || !(kTypes[a->kind] >> a->accumulate & 1)) return FL_UNSUPPORTED;
  if (a->index && a->kind != FL_REDUCE_MIN && a->kind != FL_REDUCE_MAX) return FL_UNSUPPORTED;
  const fl_tensor& in = a->inputs[0];
  const fl_tensor& shape = a->n_outputs ? a->outputs[0] : *a->index;
  if (a->n_inputs > FL_MAX_INPUTS || a->n_outputs > FL_MAX_OUTPUTS) return FL_INVALID;
  if (!a->pre && !(kStorage >> in.dtype & 1)) return FL_UNSUPPORTED;
  if (a->n_outputs && !a->post && !(kStorage >> shape.dtype & 1)) return FL_UNSUPPORTED;
  const Plan* pre = a->pre ? plan_of(a->pre) : conversion_plan(in.dtype, a->accumulate);
  const Plan* post = !a->n_outputs ? nullptr
                     : a->post     ? plan_of(a->post)
                                   : conversion_plan(a->accumulate, shape.dtype);
  if (!pre || !pre->supported || (a->n_outputs && (!post || !post->supported))) return FL_UNSUPPORTED;
  uint32_t used = pre->registers | (post ? post->registers : 0) | 1u << register_of(a->accumulate);
  if (!device.info.fp64 && used & (1u << kF64 | 1u << kC128)) return FL_UNSUPPORTED;

  uint64_t points = 1;
  for (int d = 0; d < in.ndim; ++d) points *= static_cast<uint64_t>(in.sizes[d]);
  constexpr uint64_t kWorthCompiling = 1 << 19, kLaunchCost = 1 << 13, kMostInSteps = 1 << 22;
  const uint64_t before = pre->reduced.fetch_add(points + kLaunchCost, std::memory_order_relaxed);
  if (points > kMostInSteps) return reduce_direct(launch, a, pre, post, Compile::now);
  const bool worth_it = before + points + kLaunchCost >= kWorthCompiling;
  fl_status status = reduce_direct(launch, a, pre, post, worth_it ? Compile::later : Compile::never);
  return status == FL_NOT_READY ? reduce_in_steps(launch, a, pre, post) : status;
}

void claim_reduce(Claims& claims) {
  for (uint16_t k = 0; k < FL_REDUCE_COUNT; ++k) claims.push_back({FL_ENTRY_REDUCE, k, kTypes[k]});
}

}  // namespace ocl
