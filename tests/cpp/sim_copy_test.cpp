// The sim chip's copies and fills: every pair of dtypes and all kinds of layouts.
#include "sim_numbers.h"

using namespace sim_test;

namespace {

const fl_chip* chip;

void copies(Device& d) {
  for (int from = 1; from < FL_DTYPE_COUNT; ++from)
    for (int to = 1; to < FL_DTYPE_COUNT; ++to) {
      size_t fb = bytes_of(from), tb = bytes_of(to);
      auto sources = layouts(3, 5, 71);
      for (Layout& l : broadcasts(3, 5, 71)) sources.push_back(l);
      auto targets = layouts(3, 5, 71);
      for (size_t pair = 0; pair < sources.size(); ++pair) {
        const Layout& s = sources[pair];
        const Layout& t = targets[(pair + size_t(from)) % targets.size()];
        std::vector<char> data(size_t(s.extent) * fb), expected(size_t(t.extent) * tb, 0x55),
            start = expected;
        for (int64_t i = 0; i < s.extent; ++i) {
          Number n = sample(from, to, int(i));
          if (from == FL_BOOL) n.i &= 1;
          put(from, n, data.data() + size_t(i) * fb);
        }
        for (int64_t p = 0; p < s.points(); ++p) {
          const char* source = data.data() + size_t(s.at(p)) * fb;
          char* target = expected.data() + size_t(t.at(p)) * tb;
          if (from == to) std::memcpy(target, source, fb);
          else put(to, get(from, source), target);
        }
        Buffer a(d, data.data(), data.size()), b(d, start.data(), start.size());
        fl_copy_args args{s.tensor(a.address, from), t.tensor(b.address, to)};
        fl_launch launch = d.launch();
        CHECK_STATUS(chip->op->copy(&launch, &args), FL_OK);
        std::vector<char> got = b.values<char>(expected.size());
        for (size_t i = 0; i < size_t(t.extent); ++i)
          if (!same(to, got.data() + i * tb, expected.data() + i * tb)) {
            Number x = get(to, got.data() + i * tb), y = get(to, expected.data() + i * tb);
            std::printf("copy dtype %d (%s) to %d (%s): %g+%gi for %g+%gi\n", from, s.name, to, t.name,
                        x.c.real(), x.c.imag(), y.c.real(), y.c.imag());
            ++failures;
            break;
          }
      }
    }
  // Large enough for threads and tiles.
  for (int dtype : {FL_U8, FL_F16, FL_F32, FL_F64, FL_C128}) {
    int64_t sizes[2] = {517, 1031}, from_strides[2] = {1, 517}, to_strides[2] = {1031, 1};
    size_t bytes = bytes_of(dtype) * 517 * 1031;
    std::vector<char> data(bytes);
    for (char& c : data) c = char(rng());
    Buffer a(d, data.data(), bytes), b(d, bytes);
    fl_copy_args args{{a.address, sizes, from_strides, 2, uint8_t(dtype), 0, 0},
                      {b.address, sizes, to_strides, 2, uint8_t(dtype), 0, 0}};
    fl_launch launch = d.launch();
    CHECK_STATUS(chip->op->copy(&launch, &args), FL_OK);
    auto got = b.values<char>(bytes);
    bool right = true;
    size_t e = bytes_of(dtype);
    for (size_t i = 0; i < 517; ++i)
      for (size_t j = 0; j < 1031; ++j)
        right = right && std::memcmp(&got[(i * 1031 + j) * e], &data[(j * 517 + i) * e], e) == 0;
    CHECK(right);
  }
}

void fills(Device& d) {
  for (int dtype = 1; dtype < FL_DTYPE_COUNT; ++dtype)
    for (const Layout& l : layouts(3, 7, 131)) {
      size_t e = bytes_of(dtype);
      std::vector<char> expected(size_t(l.extent) * e, 0x33);
      Buffer b(d, expected.data(), expected.size());
      fl_fill_args args{l.tensor(b.address, dtype), {}};
      Number n;
      n.integer = is_integer(dtype);
      if (n.integer) args.value.v.i = dtype == FL_BOOL ? 1 : -5, n.i = uint64_t(args.value.v.i);
      else args.value.v.f = -1.375, n.c = -1.375;
      if (is_complex(dtype)) args.value.imag = 0.25, n.c = Cx(-1.375, 0.25);
      for (int64_t p = 0; p < l.points(); ++p) put(dtype, n, expected.data() + size_t(l.at(p)) * e);
      fl_launch launch = d.launch();
      CHECK_STATUS(chip->op->fill(&launch, &args), FL_OK);
      CHECK(b.values<char>(expected.size()) == expected);
    }
}

}  // namespace

int main(int argc, char** argv) {
  setenv("FL_SIM_MEMORY", "512M", 1);
  chip = load_chip(argc, argv);
  Device device(chip, 0);
  copies(device);
  fills(device);
  return report("sim_copy_test");
}
