// sim's random numbers against the definition in fl/ops.h, word by word.
#include "sim_harness.h"

using namespace sim_test;

namespace {

struct Block {
  uint32_t w[4];
};
Block philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0, uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = uint64_t(0xd2511f53) * c0, p1 = uint64_t(0xcd9e8d57) * c2;
    uint32_t n0 = uint32_t(p1 >> 32) ^ c1 ^ k0, n2 = uint32_t(p0 >> 32) ^ c3 ^ k1;
    c0 = n0, c1 = uint32_t(p1), c2 = n2, c3 = uint32_t(p0);
    k0 += 0x9e3779b9, k1 += 0xbb67ae85;
  }
  return {{c0, c1, c2, c3}};
}
Block block(uint64_t seed, uint64_t number) {
  return philox(uint32_t(number), uint32_t(number >> 32), 0, 0, uint32_t(seed), uint32_t(seed >> 32));
}
uint32_t word(uint64_t seed, uint64_t offset, int64_t i) {
  return block(seed, offset + uint64_t(i / 4)).w[i % 4];
}
uint64_t pair(uint64_t seed, uint64_t offset, int64_t i) {
  Block b = block(seed, offset + uint64_t(i / 2));
  return b.w[2 * (i % 2)] | uint64_t(b.w[2 * (i % 2) + 1]) << 32;
}

// The published vectors (Random123's kat_vectors) hold the reference to account.
void known_answers() {
  auto same = [](Block a, Block b) { return std::memcmp(&a, &b, sizeof a) == 0; };
  CHECK(same(philox(0, 0, 0, 0, 0, 0), {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}));
  CHECK(same(philox(~0u, ~0u, ~0u, ~0u, ~0u, ~0u), {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}));
  CHECK(same(philox(0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0),
             {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}));
}

double wanted(int distribution, uint64_t seed, uint64_t offset, int64_t i, double a, double b) {
  const double pi = 3.14159265358979323846;
  switch (distribution) {
    case FL_RANDOM_UNIFORM32: {
      float u = float(word(seed, offset, i) >> 8) * 0x1p-24f, width = float(b) - float(a),
            product = u * width;
      return float(a) + product;
    }
    case FL_RANDOM_UNIFORM64:
      return a + double(pair(seed, offset, i) >> 11) * 0x1p-53 * (b - a);
    case FL_RANDOM_NORMAL32: {
      Block w = block(seed, offset + uint64_t(i / 4));
      int64_t j = i % 4 / 2;
      double u = (double(w.w[2 * j] >> 8) + 1) * 0x1p-24, v = double(w.w[2 * j + 1] >> 8) * 0x1p-24,
             r = std::sqrt(-2 * std::log(u));
      return a + b * r * (i % 2 ? std::sin(2 * pi * v) : std::cos(2 * pi * v));
    }
    default: {
      double u = (double(pair(seed, offset, i / 2 * 2) >> 11) + 1) * 0x1p-53,
             v = double(pair(seed, offset, i / 2 * 2 + 1) >> 11) * 0x1p-53;
      double r = std::sqrt(-2 * std::log(u));
      return a + b * r * (i % 2 ? std::sin(2 * pi * v) : std::cos(2 * pi * v));
    }
  }
}

void whole_numbers() {
  const uint64_t seed = 0x0123456789abcdef, offset = 0xfffffffd;  // crosses into the counter's high word
  for (int dtype : {FL_I64, FL_I32, FL_U8, FL_I16, FL_BOOL, FL_F32})
    for (Sizes sizes : {Sizes{1}, Sizes{5}, Sizes{1027}, Sizes{7, 33}, Sizes{100, 331}})
      for (Layout layout : kLayouts)
        for (int distribution : {FL_RANDOM_BITS32, FL_RANDOM_BITS64, FL_RANDOM_RANGE32, FL_RANDOM_RANGE64})
          for (uint64_t span : {uint64_t(1), uint64_t(2), uint64_t(97), uint64_t(0xffffffff),
                                uint64_t(1) << 40, uint64_t(0)}) {
            bool bits = distribution == FL_RANDOM_BITS32 || distribution == FL_RANDOM_BITS64;
            if (bits && span != 1) continue;
            if (distribution == FL_RANDOM_RANGE32 && (span == 0 || span > 0xffffffff)) continue;
            Tensor out(dtype, sizes, layout);
            fl_random_args args{};
            args.out = out.view(), args.seed = seed, args.offset = offset,
            args.distribution = uint16_t(distribution);
            args.a.v.i = bits ? 0 : -20, args.b.v.i = int64_t(span);
            fl_launch l = launch();
            fl_status status = chip->op->random(&l, &args);
            if (distribution == FL_RANDOM_BITS64 && dtype != FL_I64) {
              CHECK(status == FL_UNSUPPORTED);
              continue;
            }
            if (!ran(status)) return;
            for (int64_t i = 0; i < out.numel(); ++i) {
              uint64_t w = distribution == FL_RANDOM_BITS32 || distribution == FL_RANDOM_RANGE32
                               ? word(seed, offset, i)
                               : pair(seed, offset, i);
              int64_t v = bits ? int64_t(w) : int64_t((span ? w % span : w) + uint64_t(-20));
              bool good = dtype == FL_F32    ? out.ref<float>(i) == float(v)
                          : dtype == FL_BOOL ? out.get_int(i) == (v != 0)
                                             : std::memcmp(out.at(i), &v, bytes_of(dtype)) == 0;
              if (!CHECK_THAT(good, "distribution %d in %s %s, layout %d, at %lld", distribution,
                              text_of(dtype), text(sizes).c_str(), int(layout), (long long)i))
                break;
            }
          }
}

void real_numbers() {
  const uint64_t seed = 42, offset = 7;
  for (int dtype : {FL_F32, FL_F64, FL_F16, FL_BF16})
    for (Sizes sizes : {Sizes{1}, Sizes{6}, Sizes{1027}, Sizes{7, 33}, Sizes{300, 201}})
      for (Layout layout : kLayouts)
        for (int distribution :
             {FL_RANDOM_UNIFORM32, FL_RANDOM_UNIFORM64, FL_RANDOM_NORMAL32, FL_RANDOM_NORMAL64})
          for (double a : {0.0, 2.5}) {
            double b = 3.5;
            bool uniform = distribution == FL_RANDOM_UNIFORM32 || distribution == FL_RANDOM_UNIFORM64;
            bool twice = distribution == FL_RANDOM_UNIFORM64 || distribution == FL_RANDOM_NORMAL64;
            Tensor out(dtype, sizes, layout);
            fl_random_args args{};
            args.out = out.view(), args.seed = seed, args.offset = offset,
            args.distribution = uint16_t(distribution);
            args.a.v.f = a, args.b.v.f = b;
            fl_launch l = launch();
            if (!ran(chip->op->random(&l, &args))) return;
            for (int64_t i = 0; i < out.numel(); ++i) {
              double v = out.get(i), w = wanted(distribution, seed, offset, i, a, b);
              double relative = dtype == FL_F64   ? (twice     ? 1e-12
                                                     : uniform ? 0
                                                               : 1e-5)
                                : dtype == FL_F32 ? (twice     ? 1e-7
                                                     : uniform ? 0
                                                               : 1e-5)
                                                  : epsilon(dtype);
              double absolute = uniform                    ? (dtype == FL_F16 ? 6e-8 : 0)
                                : dtype == FL_F64 && twice ? 1e-12
                                                           : 4e-6;
              bool good = near(v, w, relative, absolute) && (!uniform || (v >= a && v < b));
              if (!CHECK_THAT(good, "distribution %d in %s %s, layout %d, at %lld: %.9g, wanted %.9g",
                              distribution, text_of(dtype), text(sizes).c_str(), int(layout), (long long)i, v,
                              w))
                break;
            }
          }
  // [RND-2]: in these ranges rounding reaches high in every dtype.
  for (int dtype : {FL_F32, FL_F16, FL_BF16})
    for (auto [low, high] : {std::pair(0.0, 1.0), std::pair(1.0, 1.0000001192092896), std::pair(-1.0, 0.0),
                             std::pair(-3.0, -2.0)}) {
      if (dtype != FL_F32 && low == 1.0) continue;
      Tensor out(dtype, {100000});
      fl_random_args args{};
      args.out = out.view(), args.seed = 3, args.distribution = FL_RANDOM_UNIFORM32, args.a.v.f = low,
      args.b.v.f = high;
      fl_launch l = launch();
      if (!ran(chip->op->random(&l, &args))) return;
      double most = -INFINITY, least = INFINITY;
      for (int64_t i = 0; i < out.numel(); ++i)
        most = std::fmax(most, out.get(i)), least = std::fmin(least, out.get(i));
      CHECK_THAT(most < high && least >= low, "uniform in %s from %g to %g gives %.9g to %.9g",
                 text_of(dtype), low, high, least, most);
    }
  // Equal ends are no range, and no clamp applies.
  Tensor out(FL_F32, {10});
  fl_random_args args{};
  args.out = out.view(), args.distribution = FL_RANDOM_UNIFORM32, args.a.v.f = 2, args.b.v.f = 2;
  fl_launch l = launch();
  if (ran(chip->op->random(&l, &args))) CHECK(out.get(9) == 2);
  args.distribution = FL_RANDOM_RANGE32, args.b.v.i = 0;
  CHECK(chip->op->random(&l, &args) == FL_INVALID);
  args.distribution = FL_RANDOM_COUNT;
  CHECK(chip->op->random(&l, &args) == FL_UNSUPPORTED);
}

// The mean and deviation of many: the definition itself, not only its execution.
void moments() {
  Tensor out(FL_F32, {1 << 20});
  fl_random_args args{};
  args.out = out.view(), args.seed = 99, args.distribution = FL_RANDOM_NORMAL32, args.a.v.f = 0,
  args.b.v.f = 1;
  fl_launch l = launch();
  if (!ran(chip->op->random(&l, &args))) return;
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < out.numel(); ++i) sum += out.get(i), squares += out.get(i) * out.get(i);
  CHECK(std::fabs(sum / double(out.numel())) < 0.005 && std::fabs(squares / double(out.numel()) - 1) < 0.01);
}

}  // namespace

int main(int argc, char** argv) {
  load_chip(argc > 1 ? argv[1] : FL_TEST_SIM);
  known_answers();
  whole_numbers();
  real_numbers();
  moments();
  return check::result();
}
