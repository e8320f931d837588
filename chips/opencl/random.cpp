// Random numbers: Philox, the same on every chip.
#include <cmath>
#include <cstring>
#include <string>

#include "fl/author/space.h"
#include "chip.h"
#include "kernel_sources.h"
#include "launch.h"
#include "program.h"

namespace ocl {

namespace {

constexpr uint32_t kFloats = FL_BIT(FL_F16) | FL_BIT(FL_BF16) | FL_BIT(FL_F32) | FL_BIT(FL_F64);
constexpr uint32_t kCounted = kFloats | FL_BIT(FL_BOOL) | FL_BIT(FL_U8) | FL_BIT(FL_I8) | FL_BIT(FL_U16) |
                              FL_BIT(FL_I16) | FL_BIT(FL_U32) | FL_BIT(FL_I32) | FL_BIT(FL_U64) |
                              FL_BIT(FL_I64);
constexpr struct {
  uint32_t dtypes;
  bool fp64;  // computed in double
  int per_block;
} kDistributions[FL_RANDOM_COUNT] = {
    {kCounted, false, 4}, {FL_BIT(FL_I64) | FL_BIT(FL_U64), false, 2},
    {kCounted, false, 4}, {kCounted, false, 2},
    {kFloats, false, 4},  {kFloats, true, 2},
    {kFloats, false, 4},  {kFloats, true, 2},
};

// The largest number of the dtype, or of F32 where that is computed in, below x.
double below(double x, uint8_t dtype, bool wide) {
  if (dtype == FL_F64 && wide) return std::nextafter(x, -INFINITY);
  auto f = static_cast<float>(x);
  if (static_cast<double>(f) >= x) f = std::nextafter(f, -INFINITY);
  if (dtype == FL_F32 || dtype == FL_F64) return f;
  const int digits = dtype == FL_F16 ? 11 : 8, least = dtype == FL_F16 ? -13 : -125;
  int exponent;
  std::frexp(f, &exponent);
  if (exponent < least) exponent = least;
  return std::ldexp(std::floor(std::ldexp(static_cast<double>(f), digits - exponent)), exponent - digits);
}

uint64_t bits_of(double d) {
  uint64_t bits;
  std::memcpy(&bits, &d, sizeof bits);
  return bits;
}

struct RandomParameters {
  int64_t n, rank;
  int64_t size[4], stride[4];
  int64_t out_offset;
  uint64_t seed, offset, a, b, most;
  float fa, fb, fmost, pad;
};

}  // namespace

fl_status random(const fl_launch* launch, const fl_random_args* a) {
  Device& d = *launch->stream->device;
  if (a->distribution >= FL_RANDOM_COUNT) return FL_UNSUPPORTED;
  const auto& kind = kDistributions[a->distribution];
  if (!(kind.dtypes >> a->out.dtype & 1)) return FL_UNSUPPORTED;
  if (!d.info.fp64 && (kind.fp64 || a->out.dtype == FL_F64)) return FL_UNSUPPORTED;
  if (a->distribution == FL_RANDOM_RANGE32 && (a->b.v.i < 1 || a->b.v.i > 0xffffffffll))
    return refuse(FL_INVALID, "random range of %lld values; RANGE32 has 1 to 2^32 - 1",
                  static_cast<long long>(a->b.v.i));
  Space<1> space(1);
  for (int i = 0; i < a->out.ndim; ++i) space.push(a->out.sizes[i])[0] = a->out.strides[i];
  space.merge();
  if (space.ndim > 4) return FL_UNSUPPORTED;
  RandomParameters p{};
  p.n = space.points(), p.rank = space.ndim;
  for (int i = 0; i < 4; ++i) {
    int from = i - (4 - space.ndim);
    p.size[i] = from >= 0 ? space.size[from] : 1, p.stride[i] = from >= 0 ? space.stride[from][0] : 0;
  }
  p.seed = a->seed, p.offset = a->offset;
  const bool uniform = a->distribution == FL_RANDOM_UNIFORM32 || a->distribution == FL_RANDOM_UNIFORM64;
  if (uniform || a->distribution >= FL_RANDOM_NORMAL32) {
    double low = a->a.v.f, high = a->b.v.f;
    double most = uniform && high > low ? below(high, a->out.dtype, kind.fp64) : INFINITY;
    p.a = bits_of(low), p.b = bits_of(uniform ? high - low : high), p.most = bits_of(most);
    p.fa = static_cast<float>(low);
    p.fb = uniform ? static_cast<float>(high) - static_cast<float>(low) : static_cast<float>(high);
    p.fmost = static_cast<float>(most);
  } else {
    p.a = static_cast<uint64_t>(a->a.v.i), p.b = static_cast<uint64_t>(a->b.v.i);
  }
  uint64_t key = a->distribution * 64u + a->out.dtype;
  Kernel* kernel = d.library->get(Family::random, key, [&] {
    std::string name = dtype_name(a->out.dtype), value = a->out.dtype == FL_BOOL ? "(v) != 0" : "v";
    return Source{"\n#define STORE(p, i, v) STORE_" + name + "(p, i, " + value + ")\n" + kernel_source_random,
                  " -DKIND=" + std::to_string(a->distribution), "random_numbers"};
  });
  if (!kernel) return FL_FAILED;
  Launch l(launch, kernel);
  l.at(1);
  p.out_offset = static_cast<int64_t>(l.buffer(a->out.data));
  l.at(0);
  l.value(p);
  Shape shape = shape_for(d, (p.n + kind.per_block - 1) / kind.per_block, 2048);
  return l.run(shape.groups, shape.local);
}

void claim_random(Claims& claims) {
  for (uint16_t k = 0; k < FL_RANDOM_COUNT; ++k)
    claims.push_back({FL_ENTRY_RANDOM, k, kDistributions[k].dtypes});
}

}  // namespace ocl
