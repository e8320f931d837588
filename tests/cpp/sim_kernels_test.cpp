// sim's reductions and indexing against plain loops.
#include "sim_harness.h"

using namespace sim_test;

namespace {

// ---------------------------------------------------------------------- reduce
struct Case {
  int kind, storage, accumulate, output;
};

// The reduced numbers of each output element, in order.
std::vector<std::vector<int64_t>> groups_of(const Sizes& sizes, unsigned mask) {
  int64_t n = 1, outputs = 1;
  for (size_t d = 0; d < sizes.size(); ++d) n *= sizes[d], outputs *= mask >> d & 1 ? 1 : sizes[d];
  std::vector<std::vector<int64_t>> groups(static_cast<size_t>(outputs));
  for (int64_t i = 0; i < n; ++i) {
    int64_t rest = i, place = 0, factor = 1;
    for (size_t d = sizes.size(); d-- > 0;) {
      int64_t c = rest % sizes[d];
      rest /= sizes[d];
      if (!(mask >> d & 1)) place += c * factor, factor *= sizes[d];
    }
    groups[size_t(place)].push_back(i);
  }
  return groups;
}
Sizes reduced(Sizes sizes, unsigned mask) {
  for (size_t d = 0; d < sizes.size(); ++d)
    if (mask >> d & 1) sizes[d] = 1;
  return sizes;
}

void check_reduce(const Case& c, const Sizes& sizes, unsigned mask, Layout layout, Layout out_layout,
                  bool indexed, bool nan) {
  Tensor in(c.storage, sizes, layout), out(c.output, reduced(sizes, mask), out_layout);
  Tensor index(FL_I64, reduced(sizes, mask), out_layout);
  const bool product = c.kind == FL_REDUCE_PROD, real = floats(c.storage);
  in.fill([&](int64_t) {
    if (nan && below(40) == 0) return double(NAN);
    if (c.storage == FL_BOOL) return double(c.kind == FL_REDUCE_ALL ? below(50) != 0 : below(50) == 0);
    if (product) return real ? uniform(0.9, 1.1) : double(below(3) + 1);
    // Few different values: ties.
    return indexed ? double(below(20)) : real ? uniform(-1, 2) : double(below(100));
  });
  fl_reduce_args args{};
  args.kind = uint16_t(c.kind), args.accumulate = uint8_t(c.accumulate);
  args.n_inputs = 1, args.n_outputs = 1;
  args.inputs = &in, args.outputs = &out, args.index = indexed ? &index : nullptr;
  fl_launch l = launch();
  if (!ran(chip->op->reduce(&l, &args))) return;

  auto groups = groups_of(sizes, mask);
  for (size_t g = 0; g < groups.size(); ++g) {
    long double value = c.kind == FL_REDUCE_PROD || c.kind == FL_REDUCE_ALL ? 1 : 0, size = 0;
    uint64_t whole = uint64_t(value);
    int64_t winner = 0;
    for (size_t k = 0; k < groups[g].size(); ++k) {
      double x = in.get(groups[g][k]);
      uint64_t i = uint64_t(in.get_int(groups[g][k]));
      size += std::fabs(x);
      switch (c.kind) {
        case FL_REDUCE_SUM:
          value += x, whole += i;
          break;
        case FL_REDUCE_PROD:
          value *= x, whole *= i;
          break;
        case FL_REDUCE_ALL:
          value = value != 0 && x != 0;
          break;
        case FL_REDUCE_ANY:
          value = value != 0 || x != 0;
          break;
        default: {
          bool wins = k == 0 || (std::isnan(x)             ? !std::isnan(double(value))
                                 : c.kind == FL_REDUCE_MIN ? x < value
                                                           : x > value);
          if (wins) value = x, winner = int64_t(k);
        }
      }
    }
    // What the output's dtype cannot hold is infinite.
    auto stored = [](int dtype, double v) {
      double most = dtype == FL_F16 ? 65520 : dtype == FL_F32 ? 3.4028235677973366e38 : INFINITY;
      return std::fabs(v) >= most ? std::copysign(INFINITY, v) : v;
    };
    bool exact = !real && (c.kind == FL_REDUCE_SUM || c.kind == FL_REDUCE_PROD);
    double relative = c.kind == FL_REDUCE_SUM || product ? epsilon(c.output) : 0;
    double absolute = c.kind == FL_REDUCE_SUM ? (c.accumulate == FL_F64 ? 1e-14 : 1e-6) * double(size)
                      : product               ? 1e-5 * std::fabs(double(value)) + 1e-44
                                              : 0;
    bool good = exact ? out.get_int(int64_t(g)) ==
                            int64_t(c.output == FL_I32 ? uint64_t(int64_t(int32_t(whole))) : whole)
                      : near(out.get(int64_t(g)), stored(c.output, double(value)), relative, absolute);
    if (indexed) good = good && index.get_int(int64_t(g)) == winner;
    if (!CHECK_THAT(
            good,
            "reduce %d of %s %s, mask %u, layout %d, index %d: %g at %zu, wanted %g; index %lld, wanted %lld",
            c.kind, text_of(c.storage), text(sizes).c_str(), mask, int(layout), indexed, out.get(int64_t(g)),
            g, double(value), indexed ? (long long)index.get_int(int64_t(g)) : -1LL, (long long)winner))
      return;
  }
}

void reduce_values() {
  const Case cases[] = {
      {FL_REDUCE_SUM, FL_F32, FL_F32, FL_F32},    {FL_REDUCE_SUM, FL_F64, FL_F64, FL_F64},
      {FL_REDUCE_SUM, FL_F16, FL_F32, FL_F16},    {FL_REDUCE_SUM, FL_BF16, FL_F32, FL_F32},
      {FL_REDUCE_SUM, FL_I64, FL_I64, FL_I64},    {FL_REDUCE_SUM, FL_U8, FL_I64, FL_I64},
      {FL_REDUCE_SUM, FL_BOOL, FL_I64, FL_I64},   {FL_REDUCE_SUM, FL_I32, FL_I32, FL_I32},
      {FL_REDUCE_PROD, FL_F32, FL_F32, FL_F32},   {FL_REDUCE_PROD, FL_I64, FL_I64, FL_I64},
      {FL_REDUCE_MIN, FL_F32, FL_F32, FL_F32},    {FL_REDUCE_MAX, FL_BF16, FL_F32, FL_BF16},
      {FL_REDUCE_MAX, FL_I64, FL_I64, FL_I64},    {FL_REDUCE_MIN, FL_I8, FL_I32, FL_I8},
      {FL_REDUCE_ALL, FL_BOOL, FL_BOOL, FL_BOOL}, {FL_REDUCE_ANY, FL_BOOL, FL_BOOL, FL_BOOL},
      {FL_REDUCE_MAX, FL_BOOL, FL_BOOL, FL_BOOL}, {FL_REDUCE_MAX, FL_F64, FL_F64, FL_F64}};
  const Sizes shapes[] = {{1},          {7},       {4099},    {17, 33},        {5, 1, 9}, {3, 4, 5},
                          {2, 130, 70}, {1100, 3}, {3, 1100}, {2, 3, 4, 5, 6}, {}};
  for (const Case& c : cases)
    for (const Sizes& sizes : shapes)
      for (unsigned mask = 0; mask < 1u << sizes.size(); ++mask) {
        Layout layout = kLayouts[below(4)];
        bool searches = c.kind == FL_REDUCE_MIN || c.kind == FL_REDUCE_MAX, real = floats(c.storage);
        check_reduce(c, sizes, mask, Layout::contiguous, Layout::contiguous, false, false);
        check_reduce(c, sizes, mask, layout, kLayouts[below(4)], searches, false);
        if (searches && real) check_reduce(c, sizes, mask, layout, Layout::transposed, true, true);
        if (!sizes.empty())
          check_reduce(c, sizes, mask, Layout::broadcast, Layout::contiguous, searches, false);
      }
  // Large enough for pieces and threads.
  for (const Case& c : {cases[0], cases[2], cases[4], cases[10]})
    for (unsigned mask : {1u, 2u, 3u}) {
      check_reduce(c, {1500, 701}, mask, Layout::contiguous, Layout::contiguous, c.kind == FL_REDUCE_MIN,
                   false);
      check_reduce(c, {40000, 3}, mask, Layout::transposed, Layout::contiguous, c.kind == FL_REDUCE_MIN,
                   false);
      check_reduce(c, {100000, 2}, mask, Layout::contiguous, Layout::contiguous, c.kind == FL_REDUCE_MIN,
                   c.kind == FL_REDUCE_MIN);
    }
}

void reduce_accuracy() {
  const int64_t n = 1 << 24;
  Tensor in(FL_F32, {n}), out(FL_F32, {1});
  double exact = 0;
  for (int64_t i = 0; i < n; ++i) in.ref<float>(i) = 0.1f, exact += double(0.1f);
  fl_reduce_args args{};
  args.kind = FL_REDUCE_SUM, args.accumulate = FL_F32, args.n_inputs = 1, args.n_outputs = 1,
  args.inputs = &in, args.outputs = &out;
  fl_launch l = launch();
  if (ran(chip->op->reduce(&l, &args)))
    CHECK_THAT(near(out.get(0), exact, 1e-6, 0), "sum of 2^24 × 0.1: %.9g", out.get(0));
  // Down the columns, too: [2^20, 16].
  Sizes sizes{n / 16, 16}, strides{16, 1}, one{1, 16};
  fl_tensor matrix = in.view();
  matrix.ndim = 2, matrix.sizes = sizes.data(), matrix.strides = strides.data();
  Tensor columns(FL_F32, one);
  args.inputs = &matrix, args.outputs = &columns;
  if (ran(chip->op->reduce(&l, &args)))
    for (int64_t j = 0; j < 16; ++j)
      CHECK_THAT(near(columns.get(j), exact / 16, 1e-6, 0), "column sum %.9g", columns.get(j));
}

void reduce_moments() {
  for (int dtype : {FL_F32, FL_F64, FL_F16})
    for (Sizes sizes : {Sizes{37, 300}, Sizes{3000, 5}, Sizes{4, 9, 50}, Sizes{700, 900}})
      for (unsigned mask = 1; mask < 1u << sizes.size(); ++mask)
        for (double mean : {0.0, dtype == FL_F16 ? 30.0 : 10000.0}) {
          Layout layout = kLayouts[below(4)];
          int acc = dtype == FL_F64 ? FL_F64 : FL_F32;
          Tensor in(dtype, sizes, layout), m(acc, reduced(sizes, mask)), m2(acc, reduced(sizes, mask));
          in.fill([&](int64_t) { return mean + uniform(-1, 1); });
          // post: both values stored, the second divided by a scalar.
          Program post({instr(FL_OP_LOAD, acc, acc, 0), instr(FL_OP_LOAD, acc, acc, 1),
                        instr(FL_OP_SCALAR, acc, 0, 0), instr(FL_OP_DIV, acc, 0, 1, 2),
                        instr(FL_OP_STORE, acc, acc, 0, 0), instr(FL_OP_STORE, acc, acc, 3, 1)},
                       2, 2, 1);
          auto groups = groups_of(sizes, mask);
          fl_scalar scalar{};
          scalar.v.f = double(groups[0].size());
          fl_tensor outs[2] = {m.view(), m2.view()};
          fl_reduce_args args{};
          args.kind = FL_REDUCE_MOMENTS, args.accumulate = uint8_t(acc), args.n_inputs = 1,
          args.n_outputs = 2;
          args.inputs = &in, args.outputs = outs, args.post = &post, args.post_scalars = &scalar;
          fl_launch l = launch();
          if (!ran(chip->op->reduce(&l, &args))) return;
          for (size_t g = 0; g < groups.size(); ++g) {
            double average = 0, variance = 0;
            for (int64_t i : groups[g]) average += in.get(i);
            average /= double(groups[g].size());
            for (int64_t i : groups[g]) variance += (in.get(i) - average) * (in.get(i) - average);
            variance /= double(groups[g].size());
            bool good = near(m.get(int64_t(g)), average, 1e-6, 1e-6) &&
                        near(m2.get(int64_t(g)), variance, 2e-5, 1e-9);
            if (!CHECK_THAT(good, "moments of %s %s, mask %u, layout %d: %.9g, %.9g, wanted %.9g, %.9g",
                            text_of(dtype), text(sizes).c_str(), mask, int(layout), m.get(int64_t(g)),
                            m2.get(int64_t(g)), average, variance))
              return;
          }
        }
}

void reduce_programs() {
  const int F = FL_F32, I = FL_I64;
  // sum of a × b × s, twice the result stored as F64
  Program pre({instr(FL_OP_LOAD, F, FL_F32, 0), instr(FL_OP_LOAD, F, FL_F16, 1), instr(FL_OP_SCALAR, F, 0, 0),
               instr(FL_OP_MUL, F, 0, 0, 1), instr(FL_OP_MUL, F, 0, 3, 2), instr(FL_OP_STORE, F, F, 4, 0)},
              2, 1, 1);
  Program post(
      {instr(FL_OP_LOAD, F, F, 0), instr(FL_OP_ADD, F, 0, 0, 0), instr(FL_OP_STORE, F, FL_F64, 1, 0)}, 1, 1);
  // index × value, in I64; and the number of the output added afterwards
  Program counting(
      {instr(FL_OP_LOAD, I, FL_I32, 0), instr(FL_OP_INDEX, I, 0, 1), instr(FL_OP_INDEX, I, 0, 0xffff),
       instr(FL_OP_MUL, I, 0, 0, 1), instr(FL_OP_ADD, I, 0, 3, 2), instr(FL_OP_STORE, I, I, 4, 0)},
      1, 1);
  Program numbered({instr(FL_OP_LOAD, I, I, 0), instr(FL_OP_INDEX, I, 0, 0xffff),
                    instr(FL_OP_ADD, I, 0, 0, 1), instr(FL_OP_STORE, I, I, 2, 0)},
                   1, 1);
  for (Sizes sizes : {Sizes{5, 7, 11}, Sizes{3, 300, 40}, Sizes{200, 2, 300}})
    for (unsigned mask = 0; mask < 8; ++mask)
      for (Layout layout : kLayouts) {
        auto groups = groups_of(sizes, mask);
        Tensor a(FL_F32, sizes, layout), b(FL_F16, sizes, kLayouts[below(4)]),
            out(FL_F64, reduced(sizes, mask), kLayouts[below(4)]);
        a.fill([](int64_t) { return uniform(-1, 1); }), b.fill([](int64_t) { return uniform(-1, 1); });
        fl_scalar s{};
        s.v.f = 0.5;
        fl_tensor ins[2] = {a.view(), b.view()};
        fl_reduce_args args{};
        args.kind = FL_REDUCE_SUM, args.accumulate = FL_F32, args.n_inputs = 2, args.n_outputs = 1,
        args.inputs = ins, args.outputs = &out;
        args.pre = &pre, args.post = &post, args.pre_scalars = &s;
        fl_launch l = launch();
        if (!ran(chip->op->reduce(&l, &args))) return;
        for (size_t g = 0; g < groups.size(); ++g) {
          double value = 0;
          for (int64_t i : groups[g]) value += a.get(i) * b.get(i) * 0.5;
          if (!CHECK_THAT(near(out.get(int64_t(g)), 2 * value, 1e-5, 1e-5 + 1e-6 * double(groups[g].size())),
                          "programs over %s, mask %u, layout %d: %g, wanted %g", text(sizes).c_str(), mask,
                          int(layout), out.get(int64_t(g)), 2 * value))
            break;
        }
        Tensor k(FL_I32, sizes, layout), sum(FL_I64, reduced(sizes, mask), kLayouts[below(4)]);
        k.fill([](int64_t) { return double(below(1000)); });
        args = {};
        args.kind = FL_REDUCE_SUM, args.accumulate = FL_I64, args.n_inputs = 1, args.n_outputs = 1,
        args.inputs = &k, args.outputs = &sum;
        args.pre = &counting, args.post = &numbered;
        if (!ran(chip->op->reduce(&l, &args))) return;
        for (size_t g = 0; g < groups.size(); ++g) {
          int64_t value = int64_t(g);
          for (int64_t i : groups[g]) value += k.get_int(i) * (i / sizes[2] % sizes[1]) + i;
          if (!CHECK_THAT(sum.get_int(int64_t(g)) == value,
                          "INDEX over %s, mask %u, layout %d: %lld, wanted %lld", text(sizes).c_str(), mask,
                          int(layout), (long long)sum.get_int(int64_t(g)), (long long)value))
            break;
        }
      }
}

void reduce_complex() {
  for (int dtype : {FL_C64, FL_C128})
    for (int kind : {FL_REDUCE_SUM, FL_REDUCE_PROD})
      for (unsigned mask = 0; mask < 4; ++mask)
        for (Layout layout : kLayouts) {
          Sizes sizes{9, 21};
          Tensor in(dtype, sizes, layout), out(dtype, reduced(sizes, mask));
          for (int64_t i = 0; i < in.numel(); ++i) in.set(i, uniform(-1, 1), uniform(-1, 1));
          fl_reduce_args args{};
          args.kind = uint16_t(kind), args.accumulate = uint8_t(dtype), args.n_inputs = 1, args.n_outputs = 1,
          args.inputs = &in, args.outputs = &out;
          fl_launch l = launch();
          if (!ran(chip->op->reduce(&l, &args))) return;
          auto groups = groups_of(sizes, mask);
          for (size_t g = 0; g < groups.size(); ++g) {
            double re = kind == FL_REDUCE_PROD, im = 0;
            for (int64_t i : groups[g]) {
              double a = in.get(i), b = in.get_imag(i), r = re;
              if (kind == FL_REDUCE_SUM) re += a, im += b;
              else re = r * a - im * b, im = r * b + im * a;
            }
            CHECK_THAT(
                near(out.get(int64_t(g)), re, 1e-5, 1e-6) && near(out.get_imag(int64_t(g)), im, 1e-5, 1e-6),
                "complex reduce %d: %g%+gi, wanted %g%+gi", kind, out.get(int64_t(g)),
                out.get_imag(int64_t(g)), re, im);
          }
        }
}

// Bits repeat, and what nobody claims is refused.
void reduce_rules() {
  Tensor in(FL_F32, {333333}), a(FL_F32, {1}), b(FL_F32, {1});
  in.fill([](int64_t) { return uniform(-1, 1); });
  fl_reduce_args args{};
  args.kind = FL_REDUCE_SUM, args.accumulate = FL_F32, args.n_inputs = 1, args.n_outputs = 1,
  args.inputs = &in, args.outputs = &a;
  fl_launch l = launch(FL_LAUNCH_DETERMINISTIC);
  if (ran(chip->op->reduce(&l, &args))) {
    args.outputs = &b;
    if (ran(chip->op->reduce(&l, &args))) CHECK(a.ref<float>(0) == b.ref<float>(0));
  }
  args.accumulate = FL_BOOL;
  CHECK(chip->op->reduce(&l, &args) == FL_UNSUPPORTED);
  args.kind = FL_REDUCE_ANY, args.accumulate = FL_F32;
  CHECK(chip->op->reduce(&l, &args) == FL_UNSUPPORTED);
  args.kind = FL_REDUCE_COUNT;
  CHECK(chip->op->reduce(&l, &args) == FL_UNSUPPORTED);
  // Only the index.
  Tensor index(FL_I64, {1});
  args.kind = FL_REDUCE_MAX, args.n_outputs = 0, args.outputs = nullptr, args.index = &index;
  in.set(777, 5), in.set(4000, 5);
  if (ran(chip->op->reduce(&l, &args))) CHECK(index.get_int(0) == 777);
  in.set(300000, NAN), in.set(300001, NAN);
  if (ran(chip->op->reduce(&l, &args))) CHECK(index.get_int(0) == 300000);
}

// -------------------------------------------------------------- gather, scatter
// from[…, index, …] along one or two dimensions; what is not indexed is taken as it is.
void gather_values() {
  for (int dtype : {FL_U8, FL_F16, FL_F32, FL_I64, FL_C128, FL_BOOL})
    for (int index_dtype : {FL_I64, FL_I32})
      for (int64_t inner : {1, 3, 64, 700})
        for (Layout layout : kLayouts)
          for (bool wrap : {false, true}) {
            // out[i, j] = from[index[i], j]
            Tensor from(dtype, {50, inner}, layout), out(dtype, {130, inner}, kLayouts[below(4)]),
                index(index_dtype, {130});
            for (int64_t i = 0; i < from.numel(); ++i)
              for (size_t k = 0; k < bytes_of(dtype); ++k) from.at(i)[k] = char(below(256));
            index.fill([&](int64_t) { return double(wrap ? below(100) - 50 : below(50)); });
            int64_t from_strides[] = {0, from.strides()[1]}, index_strides[] = {1, 0};
            fl_tensor indices = index.view();
            indices.ndim = 2, indices.sizes = out.view().sizes, indices.strides = index_strides;
            fl_gather_args args{};
            args.from = from.view(), args.from.sizes = out.view().sizes, args.from.strides = from_strides;
            args.out = out.view(), args.indices = &indices, args.n_indices = 1,
            args.flags = wrap ? FL_INDEX_WRAP : 0;
            args.index_size[0] = 50, args.index_stride[0] = from.strides()[0];
            fl_launch l = launch();
            if (!ran(chip->op->gather(&l, &args))) return;
            for (int64_t p = 0; p < out.numel(); ++p) {
              int64_t i = index.get_int(p / inner);
              const char* wanted = from.at((i < 0 ? i + 50 : i) * inner + p % inner);
              if (!CHECK_THAT(std::memcmp(out.at(p), wanted, bytes_of(dtype)) == 0,
                              "gather of %s, inner %lld, layout %d, at %lld", text_of(dtype),
                              (long long)inner, int(layout), (long long)p))
                break;
            }
          }
  // Two indices that vary along both dimensions, and torch.gather's form.
  Tensor from(FL_F32, {7, 5, 9}), out(FL_F32, {40, 9}), i0(FL_I64, {40, 9}),
      i1(FL_I32, {40, 9}, Layout::transposed);
  from.fill([](int64_t i) { return double(i); });
  i0.fill([](int64_t) { return double(below(7)); }), i1.fill([](int64_t) { return double(below(5)); });
  int64_t from_strides[] = {0, 1};
  fl_tensor indices[2] = {i0.view(), i1.view()};
  fl_gather_args args{};
  args.from = from.view(), args.from.ndim = 2, args.from.sizes = out.view().sizes,
  args.from.strides = from_strides, args.out = out.view();
  args.indices = indices, args.n_indices = 2;
  args.index_size[0] = 7, args.index_size[1] = 5, args.index_stride[0] = 45, args.index_stride[1] = 9;
  fl_launch l = launch();
  if (ran(chip->op->gather(&l, &args)))
    for (int64_t p = 0; p < out.numel(); ++p)
      CHECK(out.get(p) == double(i0.get_int(p) * 45 + i1.get_int(p) * 9 + p % 9));
}

void index_faults() {
  for (int dtype : {FL_I64, FL_I32})
    for (int64_t bad : {12, 10, -1, -11})
      for (uint32_t flags : {0u, FL_INDEX_WRAP}) {
        bool faulty = flags ? bad < -10 || bad >= 10 : bad < 0 || bad >= 10;
        Tensor from(FL_F32, {10}), out(FL_F32, {3000}), index(dtype, {3000});
        from.fill([](int64_t i) { return double(i); }), out.fill([](int64_t) { return -1.0; });
        index.fill([&](int64_t i) { return double(i == 2777 ? bad : i % 10); });
        int64_t none[] = {0};
        fl_gather_args g{};
        g.from = from.view(), g.from.sizes = out.view().sizes, g.from.strides = none, g.out = out.view();
        g.indices = &index, g.n_indices = 1, g.flags = flags, g.index_size[0] = 10, g.index_stride[0] = 1;
        fl_scatter_args s{};
        s.from = out.view(), s.to = from.view(), s.to.sizes = out.view().sizes, s.to.strides = none;
        s.indices = &index, s.n_indices = 1, s.flags = flags, s.index_size[0] = 10, s.index_stride[0] = 1,
        s.mode = FL_SCATTER_ADD;
        for (bool scatters : {false, true}) {
          fl_launch l = launch();
          l.tag = 99;
          CHECK((scatters ? chip->op->scatter(&l, &s) : chip->op->gather(&l, &g)) == FL_OK);
          CHECK(wait() == (faulty ? FL_INDEX_OUT_OF_RANGE : FL_OK));
          fl_fault fault{};
          fault.size = sizeof fault;
          fl_status taken = chip->stream->fault(stream, &fault);
          CHECK(taken == (faulty ? FL_OK : FL_NOT_READY));
          if (!faulty || taken != FL_OK) continue;
          std::string wanted = "index " + std::to_string(bad) + " is out of bounds for dimension size 10";
          CHECK_THAT(fault.status == FL_INDEX_OUT_OF_RANGE && fault.tag == 99 &&
                         std::string(fault.text).find(wanted) != std::string::npos,
                     "fault %d, tag %llu: %s", fault.status, (unsigned long long)fault.tag, fault.text);
        }
      }
}

template <class T>
T combined(int mode, T a, T b) {
  switch (mode) {
    case FL_SCATTER_ADD:
      return T(a + b);
    case FL_SCATTER_MUL:
      return T(a * b);
    case FL_SCATTER_MIN:
      return b != b || b < a ? b : a;
    case FL_SCATTER_MAX:
      return b != b || b > a ? b : a;
  }
  return b;
}

// to[index[i], j] (mode)= from[i, j], with many equal indices; rows that are long, short, and of one element.
void scatter_values() {
  for (int dtype : {FL_F32, FL_I64, FL_F16, FL_I16, FL_F64, FL_U8})
    for (int mode = 0; mode < FL_SCATTER_COUNT; ++mode)
      for (int64_t inner : {1, 5, 600})
        for (bool spread : {false, true})
          for (Layout layout : kLayouts) {
            const int64_t n = inner == 600 ? 300 : 2000, rows = 40;
            Tensor to(dtype, {rows, inner}, layout), from(dtype, {n, inner}, kLayouts[below(4)]),
                index(FL_I64, {n, inner});
            to.fill([&](int64_t) { return double(1 + below(3)); });
            from.fill(
                [&](int64_t) { return double(mode == FL_SCATTER_MUL ? 1 + (below(50) == 0) : below(4)); });
            if (mode == FL_SCATTER_MIN && floats(dtype)) from.set(3, NAN);
            // spread: an index for each element (torch.scatter along 0), else one for each row.
            for (int64_t i = 0; i < n; ++i)
              for (int64_t j = 0; j < inner; ++j)
                index.ref<int64_t>(i * inner + j) =
                    j == 0 || spread ? below(rows) : index.ref<int64_t>(i * inner);
            std::vector<double> wanted(size_t(to.numel()));
            for (int64_t i = 0; i < to.numel(); ++i) wanted[size_t(i)] = to.get(i);
            for (int64_t p = 0; p < from.numel(); ++p) {
              double& w = wanted[size_t(index.get_int(p) * inner + p % inner)];
              double v = combined(mode, w, from.get(p));
              if (dtype == FL_I16) v = double(int16_t(int64_t(v)));
              if (dtype == FL_U8) v = double(uint8_t(int64_t(v)));
              w = v;
            }
            int64_t to_strides[] = {0, to.strides()[1]}, row_index[] = {inner, 0};
            fl_tensor indices = index.view();
            if (!spread) indices.strides = row_index;
            fl_scatter_args args{};
            args.to = to.view(), args.to.sizes = from.view().sizes, args.to.strides = to_strides,
            args.from = from.view();
            args.indices = &indices, args.n_indices = 1, args.index_size[0] = rows,
            args.index_stride[0] = to.strides()[0], args.mode = uint16_t(mode);
            fl_launch l = launch(FL_LAUNCH_DETERMINISTIC);
            if (!ran(chip->op->scatter(&l, &args))) return;
            double relative = dtype == FL_F16 ? 0x1p-8 : 0;
            for (int64_t p = 0; p < to.numel(); ++p)
              if (!CHECK_THAT(
                      near(to.get(p), wanted[size_t(p)],
                           mode == FL_SCATTER_ADD || mode == FL_SCATTER_MUL ? relative : 0, 0),
                      "scatter mode %d of %s, inner %lld, spread %d, layout %d: %g at %lld, wanted %g", mode,
                      text_of(dtype), (long long)inner, spread, int(layout), to.get(p), (long long)p,
                      wanted[size_t(p)]))
                break;
          }
  // Places that overlap on purpose (stride 1 both for the point and the index): all must arrive.
  Tensor to(FL_I64, {1200}), from(FL_I64, {1000, 100}), index(FL_I64, {1000, 100});
  to.fill([](int64_t) { return 0.0; }), from.fill([](int64_t) { return 1.0; });
  index.fill([](int64_t) { return double(below(200)); });
  std::vector<int64_t> wanted(1200);
  for (int64_t p = 0; p < from.numel(); ++p) ++wanted[size_t(p / 100 + index.get_int(p))];
  int64_t strides[] = {1, 0};
  fl_scatter_args args{};
  args.to = to.view(), args.to.ndim = 2, args.to.sizes = from.view().sizes, args.to.strides = strides,
  args.from = from.view();
  args.indices = &index, args.n_indices = 1, args.index_size[0] = 200, args.index_stride[0] = 1,
  args.mode = FL_SCATTER_ADD;
  fl_launch l = launch();
  if (ran(chip->op->scatter(&l, &args)))
    for (int64_t p = 0; p < 1200; ++p) CHECK(to.get_int(p) == wanted[size_t(p)]);
}

}  // namespace

int main(int argc, char** argv) {
  load_chip(argc > 1 ? argv[1] : FL_TEST_SIM);
  reduce_values();
  reduce_accuracy();
  reduce_moments();
  reduce_programs();
  reduce_complex();
  reduce_rules();
  gather_values();
  index_faults();
  scatter_values();
  return check::result();
}
