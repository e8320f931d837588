// Random numbers by counter: element i depends on seed, offset and i alone, so
// any thread may make any part.
#include <cmath>

#include "fl/author/space.h"
#include "rows.h"
#include "simd/random_kernels.h"

namespace sim {
namespace {

constexpr int64_t kPart = 1024;  // elements made at a time; a multiple of what a block holds
constexpr int64_t kGrain = 8;    // parts worth a thread

enum class Class : uint8_t { integer, single, twice };
struct Distribution {
  Class values;     // I64, F32 or F64
  int words;        // an element
  uint32_t dtypes;  // of out
};
constexpr uint32_t kIntegers = FL_BIT(FL_U8) | FL_BIT(FL_I8) | FL_BIT(FL_U16) | FL_BIT(FL_I16) |
                               FL_BIT(FL_U32) | FL_BIT(FL_I32) | FL_BIT(FL_U64) | FL_BIT(FL_I64);
constexpr uint32_t kCounted = kIntegers | kFloats | FL_BIT(FL_BOOL);
constexpr Distribution kDistributions[FL_RANDOM_COUNT] = {
    {Class::integer, 1, kCounted},                         // BITS32
    {Class::integer, 2, FL_BIT(FL_I64) | FL_BIT(FL_U64)},  // BITS64
    {Class::integer, 1, kCounted},                         // RANGE32
    {Class::integer, 2, kCounted},                         // RANGE64
    {Class::single, 1, kFloats},                           // UNIFORM32
    {Class::twice, 2, kFloats},                            // UNIFORM64
    {Class::single, 1, kFloats},                           // NORMAL32
    {Class::twice, 2, kFloats},                            // NORMAL64
};
constexpr uint8_t kDtype[] = {FL_I64, FL_F32, FL_F64};

// The largest number of the floating dtype below x.
double below(double x, uint8_t dtype) {
  if (dtype == FL_F64) return std::nextafter(x, -INFINITY);
  if (dtype == FL_F32) {
    float f = float(x);
    return double(f) >= x ? std::nextafter(f, -INFINITY) : f;
  }
  uint16_t bits;
  double value;
  char* b = reinterpret_cast<char*>(&bits);
  find_convert(FL_F64, dtype)(reinterpret_cast<const char*>(&x), 8, b, 2, 1);
  for (;;) {
    find_convert(dtype, FL_F64)(b, 2, reinterpret_cast<char*>(&value), 8, 1);
    if (value < x) return value;
    bits = value > 0 ? uint16_t(bits - 1) : value == 0 ? uint16_t(0x8001) : uint16_t(bits + 1);
  }
}

struct RandomJob {
  Tensor out;
  uint64_t seed, offset;
  fl_scalar a, b;
  uint16_t distribution;

  void operator()(Context&) {
    const Distribution& d = kDistributions[distribution];
    Space<1> space(1);
    for (int i = 0; i < out.ndim; ++i) space.push(out.sizes[i])[0] = byte_stride(out, i);
    space.merge();
    const int64_t n = space.points(), size = int64_t(dtype_size(out.dtype));
    const Convert save = find_convert(kDtype[int(d.values)], out.dtype);
    const bool in_place =
        kDtype[int(d.values)] == out.dtype && space.ndim <= 1 && (n == 1 || space.inner_stride(0) == size);
    const bool uniform = distribution == FL_RANDOM_UNIFORM32 || distribution == FL_RANDOM_UNIFORM64;
    const double most =
        uniform && b.v.f > a.v.f
            ? below(b.v.f, d.values == Class::single && out.dtype == FL_F64 ? uint8_t(FL_F32) : out.dtype)
            : b.v.f;
    parallel((n + kPart - 1) / kPart, kGrain, [&](int64_t begin, int64_t end) {
      alignas(64) uint32_t words[kPart * 2];
      alignas(64) char values[kPart * 8];
      for (int64_t part = begin; part < end; ++part) {
        const int64_t first = part * kPart, count = std::min(kPart, n - first);
        const int64_t whole = (count + 3) / 4 * 4;  // NORMAL makes pairs, a block holds four words
        random_kernels().words(seed, offset + uint64_t(first * d.words / 4), whole * d.words / 4, words);
        char* to = in_place && whole == count ? out.data + first * size : values;
        make(words, whole, most, to);
        if (to != values) continue;
        const int64_t from_stride = d.values == Class::single ? 4 : 8;
        Cursor<1> cursor(space, first);
        for (int64_t done = 0; done < count;) {
          const int64_t run = std::min(cursor.left(), count - done);
          save(values + done * from_stride, from_stride, out.data + cursor.offset[0], space.inner_stride(0),
               run);
          done += run;
          cursor.advance(run);
        }
      }
    });
  }

  void make(const uint32_t* w, int64_t n, double most, char* to) const {
    const RandomKernels& k = random_kernels();
    int64_t* i = reinterpret_cast<int64_t*>(to);
    float* f = reinterpret_cast<float*>(to);
    double* g = reinterpret_cast<double*>(to);
    switch (distribution) {
      case FL_RANDOM_BITS32:
        return k.bits32(w, n, i);
      case FL_RANDOM_BITS64:
        return k.bits64(w, n, i);
      case FL_RANDOM_RANGE32:
        return k.range32(w, n, a.v.i, uint32_t(b.v.i), i);
      case FL_RANDOM_RANGE64:
        return k.range64(w, n, a.v.i, uint64_t(b.v.i), i);
      case FL_RANDOM_UNIFORM32:
        return k.uniform32(w, n, float(a.v.f), float(b.v.f) - float(a.v.f), float(most), f);
      case FL_RANDOM_UNIFORM64:
        return k.uniform64(w, n, a.v.f, b.v.f - a.v.f, most, g);
      case FL_RANDOM_NORMAL32:
        return k.normal32(w, n, float(a.v.f), float(b.v.f), f);
      case FL_RANDOM_NORMAL64:
        return k.normal64(w, n, a.v.f, b.v.f, g);
    }
  }
};

}  // namespace

fl_status random(const fl_launch* launch, const fl_random_args* a) {
  if (a->distribution >= FL_RANDOM_COUNT || !(kDistributions[a->distribution].dtypes >> a->out.dtype & 1))
    return FL_UNSUPPORTED;
  if (a->distribution == FL_RANDOM_RANGE32 && (a->b.v.i < 1 || a->b.v.i > 0xffffffffll)) {
    set_error("sim: random range of %lld values; RANGE32 has 1 to 2^32 - 1",
              static_cast<long long>(a->b.v.i));
    return FL_INVALID;
  }
  return submit(launch, "random", RandomJob{Tensor(a->out), a->seed, a->offset, a->a, a->b, a->distribution});
}

void claim_random(Claims& claims) {
  for (uint16_t d = 0; d < FL_RANDOM_COUNT; ++d)
    claims.push_back({FL_ENTRY_RANDOM, d, kDistributions[d].dtypes});
}

}  // namespace sim
