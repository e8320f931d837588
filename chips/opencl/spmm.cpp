// Sparse matrices by rows times dense ones.
#include <algorithm>
#include <string>

#include "chip.h"
#include "kernel_sources.h"
#include "launch.h"
#include "slices.h"

namespace ocl {

namespace {

constexpr uint32_t kFloats = FL_BIT(FL_F16) | FL_BIT(FL_BF16) | FL_BIT(FL_F32) | FL_BIT(FL_F64);
constexpr uint32_t kIntegers =
    FL_BIT(FL_U8) | FL_BIT(FL_I8) | FL_BIT(FL_I16) | FL_BIT(FL_I32) | FL_BIT(FL_I64);
constexpr uint32_t kComplexes = FL_BIT(FL_C64) | FL_BIT(FL_C128);
constexpr uint32_t kModes[FL_SPMM_COUNT] = {kFloats | kIntegers | kComplexes, kFloats | kComplexes,
                                            kFloats | kIntegers, kFloats | kIntegers,
                                            kFloats | kIntegers | kComplexes};

std::string definitions(int mode, uint8_t dtype, bool fp64) {
  const uint8_t reg = natural_register(dtype);
  const bool ordered = mode == FL_SPMM_MIN || mode == FL_SPMM_MAX;
  // Sums and products are kept in the wide type.
  const uint8_t wide = ordered || !fp64 ? reg
                       : reg == kF32    ? uint8_t{kF64}
                       : reg == kC64    ? uint8_t{kC128}
                                        : reg;
  const std::string r = register_name(reg), w = register_name(wide), d = dtype_name(dtype), A = "T_" + w;
  const std::string one = wide >= kC64 ? "(" + A + ")(1, 0)" : "(" + A + ")1";
  std::string t = "\n#define A " + A + "\n#define ONE " + one + "\n#define LOAD(p, i) CAST_" + r + "_" + w +
                  "(LOAD_" + d + "(p, i))\n#define STORE(p, i, v) STORE_" + d + "(p, i, CAST_" + w + "_" + r +
                  "(v))\n";
  const char* empty[] = {"",
                         "(int)p.empty[0]",
                         "(long)p.empty[0]",
                         "as_float((uint)p.empty[0])",
                         "as_double(p.empty[0])",
                         "(float2)(as_float((uint)p.empty[0]), as_float((uint)p.empty[1]))",
                         "as_double2((ulong2)(p.empty[0], p.empty[1]))"};
  t += "#define STORE_EMPTY(p_, i_) STORE_" + d + "(p_, i_, " + empty[reg] + ")\n";
  t += "#define REAL " + std::string(fp64 && wide != kF32 ? "double" : "float") + "\n";
  // Narrow integers wrap before they are compared.
  std::string product = "OP_MUL_" + w + "(x, y)";
  if (ordered && dtype_size(dtype) < 4 && reg == kI32)
    product = std::string("(int)(") +
              (dtype == FL_U8   ? "uchar"
               : dtype == FL_I8 ? "char"
                                : "short") +
              ")" + product;
  if (ordered && (dtype == FL_F16 || dtype == FL_BF16)) product = "OP_MUL_F32(x, y)";
  t += "#define MUL(x, y) " + product + "\n";
  if (ordered) {
    std::string better = mode == FL_SPMM_MIN ? "(v) < (a)" : "(v) > (a)";
    if (reg >= kF32) better = "(a) == (a) && (" + better + " || (v) != (v))";
    return t + "#define ORDERED\n#define START 0\n#define BETTER(a, v) " + better + "\n";
  }
  if (mode == FL_SPMM_MEAN) t += "#define MEAN\n";
  return t +
         (mode == FL_SPMM_PROD ? "#define START ONE\n#define STEP(a, v) OP_MUL_"
                               : "#define START 0\n#define STEP(a, v) OP_ADD_") +
         w + "(a, v)\n";
}

bool is_index(uint8_t dtype) { return dtype == FL_I64 || dtype == FL_I32; }

}  // namespace

fl_status spmm(const fl_launch* launch, const fl_spmm_args* a) {
  Device& d = *launch->stream->device;
  const uint8_t dtype = a->out.dtype;
  if (a->mode < 0 || a->mode >= FL_SPMM_COUNT || !(kModes[a->mode] >> dtype & 1) || needs_fp64(d, dtype))
    return FL_UNSUPPORTED;
  if (a->dense.dtype != dtype || (a->values && a->values->dtype != dtype)) return FL_UNSUPPORTED;
  if (a->winner && a->mode != FL_SPMM_MIN && a->mode != FL_SPMM_MAX) return FL_UNSUPPORTED;
  if (!is_index(a->row_begin.dtype) || (a->columns && !is_index(a->columns->dtype)) || a->out.ndim != 3 ||
      a->dense.ndim != 3)
    return refuse(FL_INVALID, "spmm wants matrices of 3 dimensions and indices that are int32 or int64");
  Kernel* kernel = d.library->get(
      Family::other, uint64_t{dtype} | static_cast<uint64_t>(a->mode) << 8 | uint64_t{5} << 32,
      [&] { return Source{definitions(a->mode, dtype, d.info.fp64) + kernel_source_spmm, "", "spmm"}; });
  if (!kernel) return FL_FAILED;
  struct {
    int64_t batches, m, n, k, count, blocks, dense[3], out[3], winner[3], row_begin, columns, values,
        row_wide, column_wide, has_columns, has_values, has_winner;
    uint64_t empty[2];
    int64_t offset[6];
  } p{};
  const int64_t lanes = d.info.processor ? 16 : 1;
  p.batches = a->out.sizes[0], p.m = a->out.sizes[1], p.n = a->out.sizes[2], p.k = a->dense.sizes[1];
  p.count = a->columns ? a->columns->sizes[0] : a->values ? a->values->sizes[0] : p.k;
  p.blocks = (p.n + lanes - 1) / lanes;
  for (int i = 0; i < 3; ++i) {
    p.dense[i] = a->dense.strides[i], p.out[i] = a->out.strides[i];
    p.winner[i] = a->winner ? a->winner->strides[i] : 0;
  }
  p.row_begin = a->row_begin.strides[0], p.row_wide = a->row_begin.dtype == FL_I64;
  if (a->columns) p.columns = a->columns->strides[0], p.column_wide = a->columns->dtype == FL_I64;
  if (a->values) p.values = a->values->strides[0];
  p.has_columns = a->columns != nullptr, p.has_values = a->values != nullptr;
  p.has_winner = a->winner != nullptr;
  pack_scalar(natural_register(dtype), a->empty, p.empty);
  Launch l(launch, kernel);
  l.at(1);
  const void* data[] = {a->dense.data,
                        a->out.data,
                        a->winner ? a->winner->data : a->out.data,
                        a->row_begin.data,
                        a->columns ? a->columns->data : a->dense.data,
                        a->values ? a->values->data : a->dense.data};
  for (int k = 0; k < 6; ++k) p.offset[k] = static_cast<int64_t>(l.buffer(data[k]));
  l.fault();
  l.at(0);
  l.value(p);
  const int64_t each = lanes * (p.count / p.m + 2);
  Shape shape = shape_for(d, p.batches * p.m * p.blocks, std::max<int64_t>(1, 8192 / each));
  return l.run(shape.groups, shape.local);
}

void claim_spmm(Claims& claims) {
  for (uint16_t k = 0; k < FL_SPMM_COUNT; ++k) claims.push_back({FL_ENTRY_SPMM, k, kModes[k]});
}

}  // namespace ocl
