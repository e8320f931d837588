// Matrix products.
#include <algorithm>
#include <string>

#include "chip.h"
#include "kernel_sources.h"
#include "points.h"

namespace ocl {

namespace {

constexpr uint32_t kTypes = FL_BIT(FL_U8) | FL_BIT(FL_I8) | FL_BIT(FL_I16) | FL_BIT(FL_I32) | FL_BIT(FL_I64) |
                            FL_BIT(FL_F16) | FL_BIT(FL_BF16) | FL_BIT(FL_F32) | FL_BIT(FL_F64) |
                            FL_BIT(FL_C64) | FL_BIT(FL_C128);

enum Way : uint8_t { packed, tiled, plain };

int rows_of(uint8_t reg) { return reg == kF64 || reg == kI64 ? 4 : 8; }

// The text before gemm.cl: types, and what is done with a sum.
std::string definitions(uint8_t dtype, Way way, bool has_c, const Plan* epilogue) {
  const uint8_t reg = natural_register(dtype);
  const std::string r = register_name(reg), d = dtype_name(dtype), T = "T_" + r;
  static constexpr const char* vectors[] = {"", "int16", "long16", "float16", "double16", "", ""};
  std::string t = Parameters::declare(true);
  t += "#define CT " + T + "\n#define VT " + std::string(vectors[reg]) + "\n#define ROWS " +
       std::to_string(rows_of(reg)) + "\n#define LOAD_B LOAD_" + d + "\n#define ZERO " +
       (reg >= kC64 ? "(" + T + ")(0, 0)" : "(" + T + ")0") + "\n";
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
  std::string product = "OP_MUL_" + r + "(" + scalar("p.alpha") + ", sum)";
  if (has_c)
    product = "OP_ADD_" + r + "(" + product + ", OP_MUL_" + r + "(" + scalar("p.beta") + ", LOAD_" + d +
              "(c, batch * p.c_stride[0] + row_ * p.c_stride[1] + column_ * p.c_stride[2])))";
  t += "#define RESULT(sum) " + product + "\n";
  auto at = [](const std::string& stride) {
    return "batch * " + stride + "[0] + row_ * " + stride + "[1] + column_ * " + stride + "[2]";
  };
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
  t += way == packed ? "#define MULTIPLY\n" : way == tiled ? "#define TILES\n" : "#define PLAIN\n";
  return t;
}

struct Launcher {
  const fl_launch* launch;
  Device& device;
  const fl_gemm_args& a;
  const Plan* epilogue;
  int64_t batch, m, n, k;
  uint8_t reg;

  // The struct P of gemm.cl. Addresses are resolved by the launches.
  Parameters parameters(int* offsets) const {
    Parameters p;
    p.push(batch), p.push(m), p.push(n), p.push(k);
    auto strides = [&](const fl_tensor* t) {
      for (int i = 0; i < 3; ++i) p.push(t && t->sizes[i] != 1 ? t->strides[i] : 0);
    };
    strides(&a.a), strides(&a.b), strides(a.c), strides(&a.out);
    p.push(shared(a.a) ? 1 : batch), p.push(shared(a.b) ? 1 : batch);
    *offsets = p.reserve(6);
    p.push(a.c != nullptr);
    uint64_t bits[2];
    for (const fl_scalar* s : {&a.alpha, &a.beta}) {
      pack_scalar(reg, *s, bits);
      p.push(static_cast<int64_t>(bits[0])), p.push(static_cast<int64_t>(bits[1]));
    }
    p.reserve(8);
    for (int e = 0; e < 8; ++e) {
      const fl_tensor* t = epilogue && e + 1 < epilogue->n_inputs ? &a.extra[e] : nullptr;
      strides(t);
    }
    const int scalars = p.reserve(32);
    for (int s = 0; epilogue && s < epilogue->n_scalars; ++s) {
      pack_scalar(epilogue->scalar_types[s], a.scalars[s], bits);
      p.set(scalars + 2 * s, bits[0]), p.set(scalars + 2 * s + 1, bits[1]);
    }
    return p;
  }
  bool shared(const fl_tensor& t) const { return batch == 1 || t.strides[0] == 0; }

  fl_status run(Way way) {
    const uint64_t kind = static_cast<uint64_t>(way) << 8 | a.out.dtype | (a.c ? 1u << 16 : 0u);
    const uint64_t key = kind ^ (epilogue ? epilogue->hash * 0x9e3779b97f4a7c15u : 0) ^ uint64_t { 1 } << 40;
    Kernel* kernel = device.library->get(Family::gemm, key, [&] {
      static constexpr const char* names[] = {"multiply", "tiles", "plain"};
      return Source{
          definitions(a.out.dtype, way, a.c != nullptr, epilogue) + kernel_source_block + kernel_source_gemm,
          "", names[way]};
    });
    if (!kernel) return FL_FAILED;
    int offsets;
    Parameters p = parameters(&offsets);
    const void *left = a.a.data, *right = a.b.data;
    if (way == packed) {
      void *pa, *pb;
      const int64_t rows = rows_of(reg), size = register_bytes(reg);
      const int64_t bytes_a = (shared(a.a) ? 1 : batch) * ((m + rows - 1) / rows * rows) * k * size;
      const int64_t bytes_b = (shared(a.b) ? 1 : batch) * ((n + 31) / 32 * 32) * k * size;
      if (fl_status status = host()->scratch(launch, static_cast<size_t>(bytes_a), &pa)) return status;
      if (fl_status status = host()->scratch(launch, static_cast<size_t>(bytes_b), &pb)) return status;
      Kernel* pack = device.library->get(Family::gemm, a.out.dtype | uint64_t{1} << 41, [&] {
        return Source{definitions(a.out.dtype, plain, false, nullptr) + "#undef PLAIN\n#define PACK\n" +
                          kernel_source_block + kernel_source_gemm,
                      "", "pack"};
      });
      if (!pack) return FL_FAILED;
      for (int side = 0; side < 2; ++side) {
        Launch l(launch, pack);
        l.at(3);
        p.set(offsets + side, l.buffer(side ? right : left));
        p.set(offsets + 4 + side, l.buffer(side ? pb : pa));
        l.at(2);
        l.value(static_cast<int32_t>(side));
        if (fl_status status = p.pass(l, launch)) return status;
        int64_t panels = side ? (shared(a.b) ? 1 : batch) * ((n + 31) / 32)
                              : (shared(a.a) ? 1 : batch) * ((m + rows - 1) / rows);
        Shape s = shape_for(device, panels, std::max<int64_t>(1, 16384 / (k * rows)));
        if (fl_status status = l.run(s.groups, s.local)) return status;
      }
      left = pa, right = pb;
    }
    Launch l(launch, kernel);
    l.at(2);
    const uint64_t left_at = l.buffer(left), right_at = l.buffer(right);
    p.set(offsets + (way == packed ? 4 : 0), left_at), p.set(offsets + (way == packed ? 5 : 1), right_at);
    p.set(offsets + 2, l.buffer(a.c ? a.c->data : a.out.data));
    p.set(offsets + 3, l.buffer(a.out.data));
    for (int e = 0; epilogue && e + 1 < epilogue->n_inputs; ++e)
      p.set(offsets + 6 + 5 + e, l.buffer(a.extra[e].data));
    l.fault();
    if (fl_status status = p.pass(l, launch)) return status;
    if (way == packed) {
      const int64_t rows = rows_of(reg), units = batch * ((m + rows - 1) / rows) * ((n + 31) / 32);
      Shape s = shape_for(device, units, std::max<int64_t>(1, (1 << 17) / (rows * 32 * k)));
      return l.run(s.groups, s.local);
    }
    if (way == tiled) return l.run(static_cast<size_t>(batch * ((m + 63) / 64) * ((n + 63) / 64)), 256);
    Shape s = shape_for(device, batch * m * n, std::max<int64_t>(1, 4096 / k));
    return l.run(s.groups, s.local);
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
                  : device.info.processor        ? packed
                  : device.info.max_group >= 256 ? tiled
                                                 : plain;
  return l.run(way);
}

void claim_gemm(Claims& claims) { claims.push_back({FL_ENTRY_GEMM, FL_ANY, kTypes}); }

}  // namespace ocl
