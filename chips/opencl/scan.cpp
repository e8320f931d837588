// Scans along an axis.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "chip.h"
#include "kernel_sources.h"
#include "launch.h"
#include "slices.h"

namespace ocl {

namespace {

constexpr uint32_t kFloats = FL_BIT(FL_F16) | FL_BIT(FL_BF16) | FL_BIT(FL_F32) | FL_BIT(FL_F64);
constexpr uint32_t kComplexes = FL_BIT(FL_C64) | FL_BIT(FL_C128);
// U64 is held as I64: its sums and products are right, its order is not.
constexpr uint32_t kOrdered = kStorage & ~(FL_BIT(FL_U64) | FL_BIT(FL_C32) | kComplexes);
constexpr uint32_t kSummed = kStorage & ~FL_BIT(FL_C32);
constexpr uint32_t kKinds[FL_SCAN_COUNT] = {kSummed, kSummed, kOrdered, kOrdered, kFloats};

constexpr int64_t kLanes = 16;  // as in scan.cl

// An element of `from` as a value of `to`, in to's register type.
std::string value_of(uint8_t from, uint8_t to) {
  const uint8_t a = natural_register(from), b = natural_register(to);
  std::string v = "LOAD_" + std::string(dtype_name(from)) + "(p_, i_)";
  if (a != b)
    v = "CAST_" + std::string(from == FL_U64 && b >= kF32 ? "U64" : register_name(a)) + "_" +
        register_name(b) + "(" + v + ")";
  if (from == to) return v;
  switch (to) {
    case FL_U8:
      return "(int)(uchar)(" + v + ")";
    case FL_I8:
      return "(int)(char)(" + v + ")";
    case FL_U16:
      return "(int)(ushort)(" + v + ")";
    case FL_I16:
      return "(int)(short)(" + v + ")";
    case FL_U32:
      return "(long)(uint)(" + v + ")";
    case FL_F16:
      return "from_half(to_half(" + v + "))";
    case FL_BF16:
      return "as_float(to_bfloat(" + v + ") << 16)";
    default:
      return v;
  }
}

std::string definitions(int kind, uint8_t from, uint8_t to, bool across, bool fp64) {
  const uint8_t reg = natural_register(to);
  const bool ordered = kind == FL_SCAN_MIN || kind == FL_SCAN_MAX;
  // Sums and products are kept in the wide type.
  const uint8_t wide = ordered || !fp64 ? reg
                       : reg == kF32    ? uint8_t{kF64}
                       : reg == kC64    ? uint8_t{kC128}
                                        : reg;
  const std::string r = register_name(reg), w = register_name(wide), A = "T_" + w;
  std::string v = value_of(from, to), t = "\n#define A " + A + "\n";
  if (wide != reg) v = "CAST_" + r + "_" + w + "(" + v + ")";
  t += "#define VALUE(p_, i_) (" + v + ")\n";
  std::string result = wide == reg ? "a_" : "CAST_" + w + "_" + r + "(a_)";
  t += "#define RESULT(p_, i_, a_) STORE_" + std::string(dtype_name(to)) + "(p_, i_, " + result + ")\n";
  if (across) t += "#define ACROSS\n";
  const std::string one = wide >= kC64 ? "(" + A + ")(1, 0)" : "1";
  switch (kind) {
    case FL_SCAN_SUM:
      t += "#define START 0\n#define STEP(a, v) OP_ADD_" + w + "(a, v)\n";
      break;
    case FL_SCAN_PROD:
      t += "#define START " + one + "\n#define STEP(a, v) OP_MUL_" + w + "(a, v)\n";
      break;
    case FL_SCAN_LOGSUMEXP:
      t += "#define START -INFINITY\n#define STEP(a, v) log_sum(a, v)\n"
           "static inline A log_sum(A a, A b) {\n  const A high = fmax(a, b), low = fmin(a, b);\n"
           "  if (a != a || b != b) return NAN;\n"
           "  return high == low && isinf(high) ? high : high + log1p(exp(low - high));\n}\n";
      break;
    default: {
      std::string takes = kind == FL_SCAN_MAX ? "(v) >= (a)" : "(v) <= (a)";
      if (reg >= kF32) takes = "(v) != (v) || " + takes;
      t += "#define ORDERED\n#define START 0\n#define TAKES(a, v) (" + takes + ")\n";
    }
  }
  return t;
}

}  // namespace

fl_status scan(const fl_launch* launch, const fl_scan_args* a) {
  Device& d = *launch->stream->device;
  const uint8_t from = a->in.dtype, to = a->out.dtype;
  if (a->kind < 0 || a->kind >= FL_SCAN_COUNT || !(kKinds[a->kind] >> to & 1)) return FL_UNSUPPORTED;
  if (!(kStorage >> from & 1) || needs_fp64(d, from) || needs_fp64(d, to)) return FL_UNSUPPORTED;
  const bool ordered = a->kind == FL_SCAN_MIN || a->kind == FL_SCAN_MAX;
  if (ordered && a->index && a->index->dtype != FL_I64)
    return refuse(FL_INVALID, "scan: the index must be int64");
  if (fl_status status = check_axis("scan", a->in, a->axis)) return status;
  const fl_tensor* tensors[] = {&a->in, &a->out, ordered && a->index ? a->index : &a->out};
  Slices<3> s(tensors, a->axis);
  // Side by side in memory: lanes across.
  // Not for BOOL, whose products came out wrong in lanes on PoCL 3.1; why is not known.
  bool across = d.info.processor && to != FL_BOOL && s.space.inner_size() >= 4 && s.n > 1;
  for (int k = 0; k < 3; ++k) across = across && s.space.inner_stride(k) == 1;

  const int64_t row = across ? (s.space.inner_size() + kLanes - 1) / kLanes : 1;
  const int64_t cells = across ? s.space.points() / s.space.inner_size() * row : s.space.points();
  const int64_t lanes = across ? kLanes : 1;
  const int64_t wanted = (d.info.processor ? 2 : 256) * int64_t{d.info.units};
  const int64_t least = d.info.processor ? 1 << 13 : 64, most = 1024;
  int64_t parts = 1;
  if (cells * 2 <= wanted && s.n * lanes >= 2 * least)
    parts = std::min({(wanted + cells - 1) / cells, s.n * lanes / least, s.n, most});
  const int64_t part = (s.n + parts - 1) / parts;

  const uint64_t key = static_cast<uint64_t>(a->kind) | uint64_t{from} << 8 | uint64_t{to} << 16 |
                       uint64_t{across} << 24 | uint64_t{1} << 32;
  Kernel* kernel = d.library->get(Family::other, key, [&] {
    return Source{definitions(a->kind, from, to, across, d.info.fp64) + kernel_source_scan, "", "scan"};
  });
  if (!kernel) return FL_FAILED;
  void* totals = a->out.data;
  if (parts > 1)
    if (fl_status status = host()->scratch(launch, static_cast<size_t>(cells * lanes * parts) * 32, &totals))
      return status;
  for (int stage = parts > 1 ? 0 : 1; stage < 2; ++stage) {
    struct {
      int64_t units, parts, part, n, row, rank, size[FL_MAX_DIMS], stride[3][FL_MAX_DIMS], step[3], offset[3],
          totals, has_index;
    } p{cells * parts, parts, part, s.n, row, s.space.ndim, {}, {}, {}, {}, 0, a->index != nullptr};
    s.fill(p.size, p.stride, p.step);
    Launch l(launch, kernel);
    l.at(2);
    for (int k = 0; k < 3; ++k) p.offset[k] = static_cast<int64_t>(l.buffer(tensors[k]->data));
    p.totals = static_cast<int64_t>(l.buffer(totals));
    l.at(0);
    l.value(p);
    l.value(int32_t{stage});
    Shape shape = shape_for(d, p.units, std::max<int64_t>(1, 8192 / (part * lanes)));
    if (fl_status status = l.run(shape.groups, shape.local)) return status;
  }
  return FL_OK;
}

void claim_scan(Claims& claims) {
  for (uint16_t k = 0; k < FL_SCAN_COUNT; ++k) claims.push_back({FL_ENTRY_SCAN, k, kKinds[k]});
}

}  // namespace ocl
