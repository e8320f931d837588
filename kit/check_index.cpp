// [GAT-n], [SCA-n], [RND-n] and every claim of gather, scatter and random.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "actions.h"
#include "launches.h"

namespace kit {

namespace {

// ------------------------------------------------------- gather and scatter
// Rows of a [size, columns] matrix by an index over the points [points, columns].

struct Indexed {
  unsigned dtype = FL_F32, index_dtype = FL_I64;
  int64_t size = 11, points = 23, columns = 5;
  Layout dense = Layout::contiguous, sparse = Layout::contiguous;
  uint32_t index_flags = 0, launch_flags = 0;
  int mode = FL_SCATTER_SET;
  bool distinct = false;
};

std::vector<int64_t> draw(Random& random, const Indexed& r) {
  std::vector<int64_t> index(r.points);
  for (int64_t i = 0; i < r.points; ++i) {
    index[i] = r.distinct ? (i * 7 + 3) % r.size : random.between(0, r.size - 1);
    if (r.index_flags & FL_INDEX_WRAP && random.next() % 2) index[i] -= r.size;
  }
  return index;
}

struct Views {
  int64_t sizes[2], sparse_strides[2], index_strides[2];
  fl_tensor sparse, index;
};

// The views that the iteration space [points, columns] sees.
void make_views(Views& v, Tensor& sparse, Tensor& index, const Indexed& r) {
  v.sizes[0] = r.points, v.sizes[1] = r.columns;
  v.sparse_strides[0] = 0, v.sparse_strides[1] = sparse.strides[1];
  v.index_strides[0] = index.strides[0], v.index_strides[1] = 0;
  v.sparse = *sparse, v.index = *index;
  v.sparse.sizes = v.index.sizes = v.sizes;
  v.sparse.strides = v.sparse_strides;
  v.index.strides = v.index_strides;
  v.sparse.ndim = v.index.ndim = 2;
}

void check_gather(Session& session, const Indexed& r) {
  Random random(r.dtype + r.points);
  Array from = Array::wild(random, r.dtype, {r.size, r.columns});
  std::vector<int64_t> index = draw(random, r);
  Tensor source = session.put(from, r.sparse), where = session.put(indices(r.index_dtype, {r.points}, index));
  Tensor out = session.output(r.dtype, {r.points, r.columns}, r.dense);
  Views v;
  make_views(v, source, where, r);
  fl_gather_args args{};
  args.from = v.sparse, args.out = *out, args.indices = &v.index;
  args.index_size[0] = r.size, args.index_stride[0] = source.strides[0];
  args.n_indices = 1, args.flags = r.index_flags;
  ok(KIT_LAUNCH(gather, &session.launch, &args), "gather");
  Array got = session.get(out);
  size_t row = dtype_size(r.dtype) * static_cast<size_t>(r.columns);
  for (int64_t i = 0; i < r.points; ++i) {
    int64_t k = index[i] < 0 ? index[i] + r.size : index[i];
    if (memcmp(&got.bytes[i * row], &from.bytes[k * row], row) != 0)
      stop("row %lld of %s, index %lld: the bytes are not those of the source (%s, %s)",
           static_cast<long long>(i), dtype_name(r.dtype), static_cast<long long>(index[i]),
           layout_name(r.sparse), layout_name(r.dense));
  }
}

void check_scatter(Session& session, const Indexed& r) {
  Random random(r.dtype + r.points + 5);
  auto values = [&](std::vector<int64_t> sizes) {
    Array a = Array::random(random, r.dtype, std::move(sizes), -5, 5);
    for (int64_t i = 0; i < a.numel() && is_real(r.dtype); ++i)  // sums and products without rounding
      a.set(i, Number::floating(r.mode == FL_SCATTER_MUL ? std::exp2(std::floor(a.at(i).re / 3))
                                                         : std::floor(a.at(i).re)));
    return a;
  };
  Array before = values({r.size, r.columns}), from = values({r.points, r.columns});
  std::vector<int64_t> index = draw(random, r);
  Tensor to = session.put(before, r.sparse), source = session.put(from, r.dense),
         where = session.put(indices(r.index_dtype, {r.points}, index));
  Views v;
  make_views(v, to, where, r);
  fl_scatter_args args{};
  args.to = v.sparse, args.from = *source, args.indices = &v.index;
  args.index_size[0] = r.size, args.index_stride[0] = to.strides[0];
  args.n_indices = 1, args.flags = r.index_flags, args.mode = static_cast<uint16_t>(r.mode);
  fl_launch launch = session.tagged(0, r.launch_flags);
  ok(KIT_LAUNCH(scatter, &launch, &args), "scatter");
  Array got = session.get(to);
  std::vector<Number> want;
  for (int64_t i = 0; i < before.numel(); ++i) want.push_back(before.at(i));
  for (int64_t i = 0; i < from.numel(); ++i) {
    int64_t k = index[i / r.columns];
    Number& x = want[(k < 0 ? k + r.size : k) * r.columns + i % r.columns];
    static const unsigned kOps[] = {FL_OP_COUNT, FL_OP_ADD, FL_OP_MUL, FL_OP_MIN, FL_OP_MAX};
    unsigned type = register_type(r.dtype);
    x = r.mode == FL_SCATTER_SET ? from.at(i)
                                 : rounded(r.dtype, reference_op(kOps[r.mode], type, x, from.at(i), {}));
  }
  bool rounds = is_complex(r.dtype) && r.mode == FL_SCATTER_MUL;
  Tolerance t{0, rounds ? (component(r.dtype) == FL_F64 ? 1e-12L : 1e-4L) : 0, 0};
  expect_close(got, want, t, text("%s, %s", dtype_name(r.dtype), layout_name(r.sparse)));
}

const char* const kModes[] = {"SET", "ADD", "MUL", "MIN", "MAX"};

KIT_TEST("gather", "every claimed dtype, layout and index dtype agrees with the reference; up to 3 indices") {
  Session session;
  for (unsigned d : claimed(FL_ENTRY_GATHER, FL_ANY))
    run_case(dtype_name(d), [&] {
      for (unsigned index : {FL_I64, FL_I32})
        for (Layout dense : kOutputLayouts)
          for (Layout sparse : {Layout::contiguous, Layout::transposed, Layout::negative, Layout::padded}) {
            Indexed r;
            r.dtype = d, r.index_dtype = index, r.dense = dense, r.sparse = sparse;
            check_gather(session, r);
          }
      Indexed large;
      large.dtype = d, large.size = 700, large.points = 3001, large.columns = 33;
      check_gather(session, large);
      Indexed wrapped;
      wrapped.dtype = d, wrapped.index_flags = FL_INDEX_WRAP;
      check_gather(session, wrapped);
    });
  run_case("x[i, :, j]", [&] {
    Random random(4);
    Array x = Array::random(random, FL_F32, {4, 3, 5});
    std::vector<int64_t> i = {0, 3, 2, 1, 3, 0}, j = {4, 0, 1, 3, 2, 2};
    Tensor source = session.put(x), ti = session.put(indices(FL_I64, {6}, i)),
           tj = session.put(indices(FL_I64, {6}, j));
    Tensor out = session.output(FL_F32, {6, 3});
    int64_t sizes[2] = {6, 3}, from_strides[2] = {0, 5}, index_strides[2] = {1, 0};
    fl_tensor both[2] = {*ti, *tj};
    for (fl_tensor& t : both) t.sizes = sizes, t.strides = index_strides, t.ndim = 2;
    fl_gather_args args{};
    args.from = *source, args.out = *out, args.indices = both, args.n_indices = 2;
    args.from.sizes = sizes, args.from.strides = from_strides, args.from.ndim = 2;
    args.index_size[0] = 4, args.index_stride[0] = 15, args.index_size[1] = 5, args.index_stride[1] = 1;
    ok(KIT_LAUNCH(gather, &session.launch, &args), "gather");
    std::vector<Number> want;
    for (int64_t p = 0; p < 6; ++p)
      for (int64_t c = 0; c < 3; ++c) want.push_back(x.at((i[p] * 3 + c) * 5 + j[p]));
    expect_close(session.get(out), want, {}, "two indices");
  });
}

// One index out of range among good ones: the fault, and what was written.
void check_bounds(unsigned entry, int64_t bad, uint32_t flags) {
  Session session;
  Indexed r;
  r.size = 4, r.points = 3, r.columns = 2;
  Array base = Array(FL_F32, {4, 2});
  Tensor sparse = session.put(base), dense = session.output(FL_F32, {3, 2}),
         where = session.put(indices(FL_I64, {3}, {0, bad, 1}));
  Views v;
  make_views(v, sparse, where, r);
  fl_launch launch = session.tagged(55);
  if (entry == FL_ENTRY_GATHER) {
    fl_gather_args args{};
    args.from = v.sparse, args.out = *dense, args.indices = &v.index;
    args.index_size[0] = 4, args.index_stride[0] = 2, args.n_indices = 1, args.flags = flags;
    ok(KIT_LAUNCH(gather, &launch, &args), "gather");
  } else {
    fl_scatter_args args{};
    args.to = v.sparse, args.from = *dense, args.indices = &v.index;
    args.index_size[0] = 4, args.index_stride[0] = 2, args.n_indices = 1, args.flags = flags,
    args.mode = FL_SCATTER_SET;
    ok(KIT_LAUNCH(scatter, &launch, &args), "scatter");
  }
  fl_status status = chip().stream.synchronize(session.stream, -1);
  REQUIRE(status == FL_INDEX_OUT_OF_RANGE, "index %lld of size 4: synchronize gave %s",
          static_cast<long long>(bad), status_name(status));
  fl_fault fault;
  ok(take_fault(session.stream, fault), "fault");
  expect_status(fault.status, FL_INDEX_OUT_OF_RANGE, "the fault");
  std::string said = fault.text;
  REQUIRE(said.find(std::to_string(bad)) != std::string::npos && said.find('4') != std::string::npos,
          "the fault's text has not the index %lld and the size 4: \"%s\"", static_cast<long long>(bad),
          said.c_str());
  drain_faults(session.stream);
  session.get(sparse);  // nothing around it was written
  session.get(dense);
}

KIT_TEST("GAT-1", "an index out of range is a fault with the index and the size; nothing outside is read") {
  for (int64_t bad : {int64_t{4}, int64_t{-1}, int64_t{1} << 40, -(int64_t{1} << 40), INT64_MAX, INT64_MIN,
                      (int64_t{1} << 32) + 1})
    run_case(text("index %lld", static_cast<long long>(bad)), [&] { check_bounds(FL_ENTRY_GATHER, bad, 0); });
  run_case("index -5 with FL_INDEX_WRAP", [&] { check_bounds(FL_ENTRY_GATHER, -5, FL_INDEX_WRAP); });
}

KIT_TEST("GAT-2", "elements move as bytes: every claimed dtype, NaN payloads included") {
  Session session;
  for (unsigned d : claimed(FL_ENTRY_GATHER, FL_ANY)) {
    if (d == FL_BOOL) continue;
    run_case(dtype_name(d), [&] {
      Random random(d);
      Array from(d, {64});
      for (char& c : from.bytes) c = static_cast<char>(random.next());
      if (d == FL_F32)
        for (int i = 0; i < 16; ++i) {
          uint32_t nan =
              (i % 2 ? 0xff800001u : 0x7fa00000u) + static_cast<uint32_t>(i);  // signalling ones too
          memcpy(&from.bytes[i * 4], &nan, 4);
        }
      std::vector<int64_t> order;
      for (int64_t i = 0; i < 64; ++i) order.push_back(63 - i);
      Tensor source = session.put(from), where = session.put(indices(FL_I64, {64}, order)),
             out = session.output(d, {64});
      int64_t zero = 0;
      fl_gather_args args{};
      args.from = *source, args.out = *out, args.indices = where.view();
      args.from.strides = &zero;
      args.index_size[0] = 64, args.index_stride[0] = 1, args.n_indices = 1;
      ok(KIT_LAUNCH(gather, &session.launch, &args), "gather");
      Array got = session.get(out);
      size_t size = dtype_size(d);
      for (int64_t i = 0; i < 64; ++i)
        REQUIRE(memcmp(&got.bytes[i * size], &from.bytes[(63 - i) * size], size) == 0,
                "element %lld has other bits", static_cast<long long>(i));
    });
  }
}

KIT_TEST("scatter", "every claimed mode and dtype agrees with the reference") {
  Session session;
  for (int mode = 0; mode < FL_SCATTER_COUNT; ++mode)
    for (unsigned d : claimed(FL_ENTRY_SCATTER, mode)) {
      if (is_complex(d) && mode > FL_SCATTER_MUL) continue;
      run_case(text("%s %s", kModes[mode], dtype_name(d)), [&] {
        for (unsigned index : {FL_I64, FL_I32})
          for (Layout sparse : {Layout::contiguous, Layout::transposed, Layout::negative, Layout::padded})
            for (Layout dense : {Layout::contiguous, Layout::stepped}) {
              Indexed r;
              r.dtype = d, r.index_dtype = index, r.sparse = sparse, r.dense = dense, r.mode = mode;
              r.size = 37, r.points = 37, r.distinct = true;
              r.index_flags = index == FL_I32 ? FL_INDEX_WRAP : 0;
              check_scatter(session, r);
            }
      });
    }
}

KIT_TEST("SCA-1", "an index out of range is a fault; nothing outside is written") {
  for (int64_t bad : {int64_t{4}, int64_t{-1}, int64_t{1} << 40, INT64_MIN, (int64_t{1} << 32) + 1})
    run_case(text("index %lld", static_cast<long long>(bad)),
             [&] { check_bounds(FL_ENTRY_SCATTER, bad, 0); });
  run_case("index -5 with FL_INDEX_WRAP", [&] { check_bounds(FL_ENTRY_SCATTER, -5, FL_INDEX_WRAP); });
}

KIT_TEST("SCA-2", "ADD, MUL, MIN and MAX with equal indices combine all of them") {
  Session session;
  for (int mode = FL_SCATTER_ADD; mode < FL_SCATTER_COUNT; ++mode)
    for (unsigned d : claimed(FL_ENTRY_SCATTER, mode)) {
      if (is_complex(d) && mode > FL_SCATTER_MUL) continue;
      run_case(text("%s %s", kModes[mode], dtype_name(d)), [&] {
        for (int64_t points : {60, 4001}) {
          Indexed r;
          r.dtype = d, r.mode = mode, r.size = 3, r.points = points, r.columns = 4;
          if (mode == FL_SCATTER_MUL || d == FL_F16 || d == FL_BF16)
            r.points = 9;  // stay in range, and exact
          check_scatter(session, r);
        }
      });
    }
}

KIT_TEST(
    "SCA-3",
    "SET with equal indices gives one of the values, whole; deterministic: the last, and ADD adds in order") {
  Session session;
  for (unsigned d : claimed(FL_ENTRY_SCATTER, FL_SCATTER_SET))
    run_case(text("SET %s, deterministic", dtype_name(d)), [&] {
      Indexed r;
      r.dtype = d, r.size = 5, r.points = 6007, r.columns = 3, r.launch_flags = FL_LAUNCH_DETERMINISTIC;
      check_scatter(session, r);
    });
  for (unsigned d : claimed(FL_ENTRY_SCATTER, FL_SCATTER_SET))
    run_case(text("SET %s", dtype_name(d)), [&] {
      // Each point's value is its index's: whichever wins is right, and mixed halves are not.
      Indexed r;
      r.dtype = d;
      Array from(d, {3000}), before(d, {7});
      std::vector<int64_t> index;
      for (int64_t i = 0; i < 3000; ++i)
        index.push_back(i * i % 7), from.set(i, {index.back() % 2, static_cast<real>(index.back()), 0});
      Tensor to = session.put(before), source = session.put(from),
             where = session.put(indices(FL_I64, {3000}, index));
      int64_t zero = 0, n = 3000;
      fl_scatter_args args{};
      args.to = *to, args.from = *source, args.indices = where.view();
      args.to.strides = &zero, args.to.sizes = &n;
      args.index_size[0] = 7, args.index_stride[0] = 1, args.n_indices = 1, args.mode = FL_SCATTER_SET;
      ok(KIT_LAUNCH(scatter, &session.launch, &args), "scatter");
      std::vector<Number> want;
      for (int64_t i = 0; i < 7; ++i) {
        bool hit = std::find(index.begin(), index.end(), i) != index.end();
        want.push_back(hit ? rounded(d, {i % 2, static_cast<real>(i), 0}) : before.at(i));
      }
      expect_close(session.get(to), want, {}, "equal values at equal indices");
    });
  run_case("ADD float32 in row-major order", [&] {
    // 1e8 + 1 - 1e8 …: every order but the right one gives another sum.
    Array from(FL_F32, {999}), before(FL_F32, {1});
    float sum = 0;
    for (int64_t i = 0; i < 999; ++i) {
      float v = i % 3 == 0 ? 1e8f : i % 3 == 1 ? 3.25f : -1e8f;
      from.set(i, Number::floating(v));
      sum += v;
    }
    Tensor to = session.put(before), source = session.put(from),
           where = session.put(indices(FL_I64, {999}, std::vector<int64_t>(999, 0)));
    int64_t zero = 0, n = 999;
    fl_scatter_args args{};
    args.to = *to, args.from = *source, args.indices = where.view();
    args.to.strides = &zero, args.to.sizes = &n;
    args.index_size[0] = 1, args.index_stride[0] = 1, args.n_indices = 1, args.mode = FL_SCATTER_ADD;
    fl_launch launch = session.tagged(0, FL_LAUNCH_DETERMINISTIC);
    ok(KIT_LAUNCH(scatter, &launch, &args), "scatter");
    expect_close(session.get(to), {Number::floating(sum)}, {}, "the sum");
  });
}

KIT_TEST("SCA-4", "F16 and BF16 ADD round after each addition or once") {
  Session session;
  int checked = 0;
  for (unsigned d : {FL_F16, FL_BF16}) {
    if (!chip().claims(FL_ENTRY_SCATTER, FL_SCATTER_ADD, d)) continue;
    ++checked;
    run_case(dtype_name(d), [&] {
      Indexed r;
      r.dtype = d, r.mode = FL_SCATTER_ADD, r.size = 40, r.points = 40, r.distinct = true;
      check_scatter(session, r);
    });
  }
  if (!checked) not_applicable("no 16-bit float is claimed for ADD");
}

// ------------------------------------------------------------------ random

const char* const kDistributions[] = {"BITS32",    "BITS64",    "RANGE32",  "RANGE64",
                                      "UNIFORM32", "UNIFORM64", "NORMAL32", "NORMAL64"};

struct Draw {
  unsigned kind, dtype;
  std::vector<int64_t> sizes = {5, 7, 9};
  Layout layout = Layout::contiguous;
  uint64_t seed = 0x123456789abcdef0ull, offset = 77;
  fl_scalar a{}, b{};
};

fl_scalar real_scalar(double v) { return scalar(FL_F64, Number::floating(v)); }

void set_parameters(Draw& d, int64_t low, uint64_t span) {
  bool range = d.kind == FL_RANDOM_RANGE32 || d.kind == FL_RANDOM_RANGE64;
  d.a = range ? scalar(FL_I64, Number::integer(low)) : real_scalar(0);
  d.b = range ? scalar(FL_I64, Number::integer(static_cast<int64_t>(span))) : real_scalar(1);
}

Array launch(Session& session, const Draw& d) {
  Tensor out = session.output(d.dtype, d.sizes, d.layout);
  fl_random_args args{};
  args.out = *out, args.seed = d.seed, args.offset = d.offset, args.a = d.a, args.b = d.b;
  args.distribution = static_cast<uint16_t>(d.kind);
  ok(KIT_LAUNCH(random, &session.launch, &args), "random");
  return session.get(out);
}

// The largest number of a dtype below x.
real below(unsigned dtype, real x) {
  real near = rounded(dtype, Number::floating(x - ulp(dtype, x) / 2)).re;
  return near < x ? near : rounded(dtype, Number::floating(x - ulp(dtype, x))).re;
}

void check(Session& session, const Draw& d, const char* what) {
  std::vector<Number> want;
  constexpr real kTau = 6.283185307179586476925286766559L;
  for (uint64_t i = 0; i < static_cast<uint64_t>(product(d.sizes)); ++i) {
    RandomWords w = reference_random(d.seed, d.offset, i);
    uint64_t span = static_cast<uint64_t>(d.b.v.i), wide = w.wide[i % 2];
    auto normal = [&](real u, real v, bool odd) {
      real r = std::sqrt(-2 * std::log(u)), angle = kTau * v;
      return Number::floating(d.a.v.f + d.b.v.f * (odd ? r * std::sin(angle) : r * std::cos(angle)));
    };
    auto uniform = [&](real u) {
      real v = rounded(d.dtype, Number::floating(d.a.v.f + u * (real(d.b.v.f) - d.a.v.f))).re;
      return Number::floating(d.b.v.f > d.a.v.f && v >= d.b.v.f ? below(d.dtype, d.b.v.f) : v);
    };
    auto bits = [&](uint64_t b) {
      return converted(Number::integer(static_cast<int64_t>(b)), FL_I64, d.dtype);
    };
    auto range = [&](uint64_t b) { return bits(static_cast<uint64_t>(d.a.v.i) + (span ? b % span : b)); };
    switch (d.kind) {
      case FL_RANDOM_BITS32:
        want.push_back(bits(w.word));
        break;
      case FL_RANDOM_BITS64:
        want.push_back(bits(wide));
        break;
      case FL_RANDOM_RANGE32:
        want.push_back(range(w.word));
        break;
      case FL_RANDOM_RANGE64:
        want.push_back(range(wide));
        break;
      case FL_RANDOM_UNIFORM32:
        want.push_back(uniform((w.word >> 8) * 0x1p-24L));
        break;
      case FL_RANDOM_UNIFORM64:
        want.push_back(uniform((wide >> 11) * 0x1p-53L));
        break;
      case FL_RANDOM_NORMAL32:
        want.push_back(normal(((w.pair[0] >> 8) + 1) * 0x1p-24L, (w.pair[1] >> 8) * 0x1p-24L, i % 2));
        break;
      default:
        want.push_back(normal(((w.wide[0] >> 11) + 1) * 0x1p-53L, (w.wide[1] >> 11) * 0x1p-53L, i % 2));
    }
  }
  bool normal = d.kind >= FL_RANDOM_NORMAL32, wide = d.kind == FL_RANDOM_NORMAL64 && d.dtype == FL_F64;
  bool unit = d.a.v.f == 0 && d.b.v.f == 1;
  real scale = normal ? std::max<real>(1, std::fabs(d.b.v.f)) : std::fabs(d.a.v.f) + std::fabs(d.b.v.f);
  Tolerance t;
  if (normal) t = {0.51L, wide ? 1e-12L : 1e-5L, scale * (wide ? 1e-12L : 1e-6L)};
  else if (!is_integer(d.dtype) && !unit)
    t = {1, 0, 2 * ulp(d.kind == FL_RANDOM_UNIFORM32 ? FL_F32 : FL_F64, scale)};
  else if (is_real(d.dtype) && dtype_size(d.dtype) == 2) t = {1, 0, 0};
  expect_close(launch(session, d), want, t,
               text("%s %s, %s", what, shape_text(d.sizes).c_str(), layout_name(d.layout)));
}

template <class F>
void each_distribution(F&& f) {
  for (unsigned kind = 0; kind < FL_RANDOM_COUNT; ++kind)
    for (unsigned d : claimed(FL_ENTRY_RANDOM, kind)) f(kind, d);
}

KIT_TEST("random", "every claimed distribution and dtype, in every layout and shape") {
  Session session;
  each_distribution([&](unsigned kind, unsigned dtype) {
    run_case(text("%s %s", kDistributions[kind], dtype_name(dtype)), [&] {
      Draw d{kind, dtype};
      set_parameters(d, -3, 100);
      for (Layout layout : kOutputLayouts) d.layout = layout, check(session, d, "layout");
      d.layout = Layout::contiguous;
      for (const std::vector<int64_t>& sizes : kShapes) {
        if (product(sizes) > 10000 && dtype != FL_F32 && dtype != FL_I64) continue;  // the reference is slow
        d.sizes = sizes, check(session, d, "shape");
      }
    });
  });
}

KIT_TEST("RND-1",
         "RANGE and BITS are exact, UNIFORM before low and high are applied; NORMAL is within 1e-5: the "
         "numbers of Philox") {
  Session session;
  run_case("the published vectors", [&] {
    // Random123's known answers for Philox4x32-10: counter and key 0.
    RandomWords first = reference_random(0, 0, 0), last = reference_random(0, 0, 3);
    REQUIRE(first.word == 0x6627e8d5 && last.word == 0x9b00dbd8, "the kit's own generator is wrong");
    Draw d{FL_RANDOM_BITS32, FL_I64, {4}};
    d.seed = d.offset = 0;
    expect_close(launch(session, d),
                 {Number::integer(0x6627e8d5), Number::integer(0xe169c58d), Number::integer(0xbc57ac4c),
                  Number::integer(0x9b00dbd8)},
                 {}, "BITS32 of seed 0, offset 0");
  });
  each_distribution([&](unsigned kind, unsigned dtype) {
    run_case(text("%s %s", kDistributions[kind], dtype_name(dtype)), [&] {
      for (uint64_t seed : {uint64_t{0}, uint64_t{42}, ~uint64_t{0}})
        for (uint64_t offset : {uint64_t{0}, uint64_t{1}, (uint64_t{1} << 32) - 3, uint64_t{1} << 40}) {
          Draw d{kind, dtype, {1003}};
          d.seed = seed, d.offset = offset;
          set_parameters(d, 0, 10);
          check(session, d, "seeds");
        }
      Draw d{kind, dtype, {1003}};
      bool range = kind == FL_RANDOM_RANGE32 || kind == FL_RANDOM_RANGE64;
      if (range && dtype == FL_I64) {
        set_parameters(d, -(int64_t{1} << 40), 0xfffffffful), check(session, d, "a wide range");
        if (kind == FL_RANDOM_RANGE64) set_parameters(d, INT64_MIN, 0), check(session, d, "all of int64");
      } else if (kind >= FL_RANDOM_UNIFORM32) {
        d.a = real_scalar(-2.5), d.b = real_scalar(3.75), check(session, d, "low and high, mean and std");
      }
    });
  });
}

KIT_TEST("RND-2", "UNIFORM with high > low never gives high") {
  Session session;
  each_distribution([&](unsigned kind, unsigned dtype) {
    if (kind != FL_RANDOM_UNIFORM32 && kind != FL_RANDOM_UNIFORM64) return;
    run_case(text("%s %s", kDistributions[kind], dtype_name(dtype)), [&] {
      for (auto [low, high] : {std::pair<double, double>{0, 1}, {1, 1 + 0x1p-7}, {1000, 1001}, {-1, 0}}) {
        Draw d{kind, dtype, {100000}};
        d.a = real_scalar(low), d.b = real_scalar(high);
        real top = rounded(dtype, Number::floating(high)).re,
             bottom = rounded(dtype, Number::floating(low)).re;
        if (top <= bottom) continue;
        Array got = launch(session, d);
        for (int64_t i = 0; i < got.numel(); ++i)
          REQUIRE(got.at(i).re < top && got.at(i).re >= bottom, "element %lld of [%g, %g) is %.9Lg",
                  static_cast<long long>(i), low, high, got.at(i).re);
      }
    });
  });
}

}  // namespace

}  // namespace kit
