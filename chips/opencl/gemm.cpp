// Matrix products.
#include <algorithm>
#include <string>
#include <utility>

#include "block.h"
#include "chip.h"
#include "kernel_sources.h"
#include "points.h"

namespace ocl {

namespace {

constexpr uint32_t kTypes = FL_BIT(FL_U8) | FL_BIT(FL_I8) | FL_BIT(FL_I16) | FL_BIT(FL_I32) | FL_BIT(FL_I64) |
                            FL_BIT(FL_F16) | FL_BIT(FL_BF16) | FL_BIT(FL_F32) | FL_BIT(FL_F64) |
                            FL_BIT(FL_C64) | FL_BIT(FL_C128);

enum Way : uint8_t { blocks, tiled, plain };

constexpr int64_t kDepth = 256;  // DEPTH of gemm.cl

// The text before gemm.cl: types, and what is done with a sum.
std::string definitions(const Device& device, uint8_t dtype, Way way, const Plan* epilogue) {
  const uint8_t reg = natural_register(dtype);
  const std::string r = register_name(reg), d = dtype_name(dtype), T = "T_" + r;
  static constexpr const char* vectors[] = {"", "int16", "long16", "float16", "double16", "", ""};
  std::string t = "\n";
  t += "#define CT " + T + "\n#define VT " + std::string(vectors[reg]) + "\n#define VECTOR VT\n" +
       block_of(device, register_bytes(reg)).macros() + "#define LOAD_X LOAD_" + d +
       "\n#define STORE_X STORE_" + d + "\n#define ZERO " +
       (reg >= kC64 ? "(" + T + ")(0, 0)" : "(" + T + ")0") + "\n";
  if (register_of(dtype) == reg) t += "#define X_IS_CT\n";
  t += reg >= kC64   ? "#define MULTIPLY_ADD(x, y, z) OP_ADD_" + r + "(OP_MUL_" + r + "(x, y), z)\n"
       : reg >= kF32 ? std::string("#define MULTIPLY_ADD(x, y, z) fma(x, y, z)\n")
                     : std::string("#define MULTIPLY_ADD(x, y, z) ((x) * (y) + (z))\n");
  auto scalar = [&](const std::string& bits) {
    return reg == kI32 || reg == kI64 ? "(" + T + ")" + bits + "[0]"
           : reg == kF32              ? "as_float((uint)" + bits + "[0])"
           : reg == kF64              ? "as_double(" + bits + "[0])"
           : reg == kC64 ? "(float2)(as_float((uint)" + bits + "[0]), as_float((uint)" + bits + "[1]))"
                         : "as_double2((ulong2)(" + bits + "[0], " + bits + "[1]))";
  };
  auto at = [](const std::string& stride) {
    return "batch * " + stride + "[0] + row_ * " + stride + "[1] + column_ * " + stride + "[2]";
  };
  const std::string product = "OP_MUL_" + r + "(" + scalar("p.alpha") + ", sum)";
  const std::string sum = "OP_ADD_" + r + "(" + product + ", OP_MUL_" + r + "(" + scalar("p.beta") +
                          ", LOAD_" + d + "(c, " + at("p.c_stride") + ")))";
  t += "#define RESULT(sum) (p.has_c ? " + sum + " : " + product + ")" + "\n";
  std::string finish, arguments;
  if (!epilogue) {
    finish = "STORE_" + d + "(out, " + at("p.out_stride") + ", result);";
  } else {
    Emitter e;
    e.load = [&](int i, uint8_t memory) {
      if (i == 0) return std::string("result");
      std::string k = std::to_string(i - 1);
      return "LOAD_" + std::string(dtype_name(memory)) + "(e" + k + " + p.extra_offset[" + k + "], " +
             at("p.extra_stride[" + k + "]") + ")";
    };
    e.store = [&](int, uint8_t memory, const std::string& v) {
      return "STORE_" + std::string(dtype_name(memory)) + "(out, " + at("p.out_stride") + ", " + v + ");";
    };
    e.scalar = [&](int s) {
      return "(ulong2)(p.scalar[" + std::to_string(2 * s) + "], p.scalar[" + std::to_string(2 * s + 1) + "])";
    };
    e.index = [](int k) -> std::string {
      return k == 0   ? "batch"
             : k == 1 ? "row_"
             : k == 2 ? "column_"
                      : "((batch * p.m + row_) * p.n + column_)";
    };
    finish = emit(*epilogue, e);
    for (int k = 0; k + 1 < epilogue->n_inputs; ++k)
      arguments += ", __global const uchar* e" + std::to_string(k);
  }
  std::replace(finish.begin(), finish.end(), '\n', ' ');
  t += "#define NOT_ZERO(b) ((b) == 0 ? (report(fault, tag, 6, 2, 0, 0), 1) : (b))\n";
  t += "#define FINISH " + finish + "\n#define EXTRA_ARGUMENTS " + arguments + "\n";
  static constexpr const char* names[] = {"MULTIPLY", "TILES", "PLAIN"};
  t += "#define " + std::string(names[way]) + "\n";
  if (way == blocks) t += std::string(kernel_source_vector) + kernel_source_block;
  t += kernel_source_gemm;
  return t;
}

// Into how many blocks the rows and the columns of m × n are cut. A block's sums and both operands take a
// mebibyte of the cache. Every unit has some blocks, all as many as others where that costs no more than it
// brings: packing a number takes the time of some 12 products.
std::pair<int64_t, int64_t> cut(int64_t batch, int64_t m, int64_t n, int64_t units) {
  int64_t across = (m + 191) / 192, along = (n + 383) / 384;
  while (batch * across * along < 4 * units && m * n / (across * along) > 8192) {
    if (m / across > n / along) ++across;
    else ++along;
  }
  const int64_t wanted = std::min(batch * across * along, 4 * units);
  std::pair<int64_t, int64_t> best{across, along};
  double least = 1e30;
  for (int64_t down = across; down < across + 3; ++down)
    for (int64_t right = std::max<int64_t>(1, along - 1); right < along + 3; ++right) {
      const int64_t blocks = batch * down * right, rounds = (blocks + units - 1) / units;
      if (blocks < wanted || (n + right - 1) / right > 384) continue;
      const double waiting = static_cast<double>(rounds * units) / static_cast<double>(blocks);
      const double packed = static_cast<double>(down) / static_cast<double>(m) +
                            static_cast<double>(right) / static_cast<double>(n);
      const double cost = waiting * (1 + 12 * packed);
      if (cost < least) least = cost, best = {down, right};
    }
  return best;
}

// A few groups a unit, whose memory it then finds in its cache; where possible with as many blocks each.
int64_t groups_for(int64_t blocks, int64_t units) {
  const int64_t most = std::min(blocks, 4 * units);
  for (int64_t groups = most; groups >= 2 * units; --groups)
    if (blocks % groups == 0 && groups % units == 0) return groups;
  return most;
}

struct Launcher {
  const fl_launch* launch;
  Device& device;
  const fl_gemm_args& a;
  const Plan* epilogue;
  int64_t batch, m, n, k;
  uint8_t reg;

  // The struct P of gemm.cl. Addresses are resolved by the launches.
  struct Values {
    int64_t batch, m, n, k;
    int64_t a_stride[3], b_stride[3], c_stride[3], out_stride[3];
    int64_t a_offset, b_offset, c_offset, out_offset;
    int64_t own_offset, own_bytes;
    int64_t block_m, block_n;
    int64_t has_c;
    uint64_t alpha[2], beta[2];
    int64_t extra_offset[8], extra_stride[8][3];
    uint64_t scalar[32];
  };
  Values values() const {
    Values p{};
    p.batch = batch, p.m = m, p.n = n, p.k = k;
    auto strides = [](int64_t (&to)[3], const fl_tensor* t) {
      for (int i = 0; t && i < 3; ++i) to[i] = t->sizes[i] != 1 ? t->strides[i] : 0;
    };
    strides(p.a_stride, &a.a), strides(p.b_stride, &a.b), strides(p.c_stride, a.c),
        strides(p.out_stride, &a.out);
    p.has_c = a.c != nullptr;
    pack_scalar(reg, a.alpha, p.alpha), pack_scalar(reg, a.beta, p.beta);
    for (int e = 0; epilogue && e + 1 < epilogue->n_inputs; ++e) strides(p.extra_stride[e], &a.extra[e]);
    for (int s = 0; epilogue && s < epilogue->n_scalars; ++s) {
      uint64_t bits[2];
      pack_scalar(epilogue->scalar_types[s], a.scalars[s], bits);
      p.scalar[2 * s] = bits[0], p.scalar[2 * s + 1] = bits[1];
    }
    return p;
  }

  Kernel* kernel(Way way) const {
    const uint64_t kind = uint64_t{1} << 40 | static_cast<uint64_t>(way) << 8 | a.out.dtype;
    const uint64_t key = kind ^ (epilogue ? epilogue->hash * 0x9e3779b97f4a7c15u : 0);
    return device.library->get(Family::gemm, key, [&] {
      static constexpr const char* names[] = {"multiply", "tiles", "plain"};
      return Source{definitions(device, a.out.dtype, way, epilogue), "", names[way]};
    });
  }

  fl_status run(Way way) {
    Kernel* k_ = kernel(way);
    if (!k_) return FL_FAILED;
    Values p = values();
    void* own = nullptr;
    Shape shape{};
    if (way == blocks) {
      const Block block = block_of(device, register_bytes(reg));
      const int64_t row_panels = (m + block.rows - 1) / block.rows,
                    column_panels = (n + block.columns() - 1) / block.columns();
      auto [across, along] = cut(batch, m, n, device.info.units);
      p.block_m = (row_panels + across - 1) / across * block.rows;
      p.block_n = (column_panels + along - 1) / along * block.columns();
      across = (m + p.block_m - 1) / p.block_m, along = (n + p.block_n - 1) / p.block_n;
      shape = {static_cast<size_t>(groups_for(batch * across * along, device.info.units)), 1};
      const int64_t depth = std::min(k, kDepth);
      p.own_bytes = (p.block_m * p.block_n + depth * (p.block_m + p.block_n)) * register_bytes(reg);
      if (fl_status status = host()->scratch(launch, static_cast<size_t>(p.own_bytes) * shape.groups, &own))
        return status;
    } else if (way == tiled) {
      shape = {static_cast<size_t>(batch * ((m + 63) / 64) * ((n + 63) / 64)), 256};
    } else {
      shape = shape_for(device, batch * m * n, std::max<int64_t>(1, 4096 / std::max<int64_t>(1, k)));
    }
    Launch l(launch, k_);
    l.at(1);
    p.a_offset = static_cast<int64_t>(l.buffer(a.a.data));
    p.b_offset = static_cast<int64_t>(l.buffer(a.b.data));
    if (way == blocks) p.own_offset = static_cast<int64_t>(l.buffer(own));
    p.c_offset = static_cast<int64_t>(l.buffer(a.c ? a.c->data : a.out.data));
    p.out_offset = static_cast<int64_t>(l.buffer(a.out.data));
    for (int e = 0; epilogue && e + 1 < epilogue->n_inputs; ++e)
      p.extra_offset[e] = static_cast<int64_t>(l.buffer(a.extra[e].data));
    l.fault();
    l.at(0);
    l.value(p);
    return l.run(shape.groups, shape.local);
  }
};

}  // namespace

fl_status gemm(const fl_launch* launch, const fl_gemm_args* a) {
  Device& device = *launch->stream->device;
  if (!(kTypes >> a->out.dtype & 1)) return FL_UNSUPPORTED;
  const Plan* epilogue = a->epilogue ? plan_of(a->epilogue) : nullptr;
  if (a->epilogue && (!epilogue || epilogue->n_outputs != 1 || epilogue->n_inputs < 1)) return FL_UNSUPPORTED;
  const uint8_t reg = natural_register(a->out.dtype);
  uint32_t used = 1u << reg | (epilogue ? epilogue->registers : 0);
  if (!device.info.fp64 && used & (1u << kF64 | 1u << kC128)) return FL_UNSUPPORTED;
  Launcher l{launch,          device,        *a, epilogue, a->out.sizes[0], a->out.sizes[1],
             a->out.sizes[2], a->a.sizes[2], reg};
  const bool small = l.m * l.n * l.k < 4096;
  const Way way = reg >= kC64 || small           ? plain
                  : device.info.processor        ? blocks
                  : device.info.max_group >= 256 ? tiled
                                                 : plain;
  return l.run(way);
}

void claim_gemm(Claims& claims) { claims.push_back({FL_ENTRY_GEMM, FL_ANY, kTypes}); }

}  // namespace ocl
