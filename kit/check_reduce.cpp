// [RED-n] and every claimed reduction.
#include <cmath>

#include "launches.h"

namespace kit {

namespace {

const char* const kKinds[] = {"SUM", "PROD", "MIN", "MAX", "ALL", "ANY", "MOMENTS"};

struct Request {
  unsigned kind, accumulate;
  std::vector<Array> inputs;
  std::vector<int> axes;
  std::vector<unsigned> outputs;  // dtypes
  bool index = false;
  const fl_program* pre = nullptr;
  const fl_program* post = nullptr;
  std::vector<fl_scalar> pre_scalars, post_scalars;
  Arrangement arrangement = {};
  uint32_t flags = 0;
};

struct Result {
  std::vector<Array> outputs;
  Array index;
};

std::vector<int64_t> reduced_sizes(const Request& r) {
  std::vector<int64_t> sizes = r.inputs[0].sizes;
  for (int axis : r.axes) sizes[axis] = 1;
  return sizes;
}

Result run(Session& session, Request& r) {
  std::vector<int64_t> small = reduced_sizes(r);
  std::vector<Tensor> in, out;
  std::vector<fl_tensor> in_views, out_views;
  for (Array& a : r.inputs) {
    if (r.arrangement.in == Layout::broadcast) a = constant_along_first(a);
    in.push_back(session.put(a, r.arrangement.in));
  }
  for (unsigned d : r.outputs) out.push_back(session.output(d, small, r.arrangement.out));
  Tensor index;
  if (r.index) index = session.output(FL_I64, small, r.arrangement.out);
  for (Tensor& t : in) in_views.push_back(*t);
  for (Tensor& t : out) out_views.push_back(*t);
  fl_reduce_args args{};
  args.kind = static_cast<uint16_t>(r.kind);
  args.accumulate = static_cast<uint8_t>(r.accumulate);
  args.n_inputs = static_cast<uint8_t>(in.size());
  args.n_outputs = static_cast<uint16_t>(out.size());
  args.pre = r.pre;
  args.post = r.post;
  args.inputs = in_views.data();
  args.outputs = out.empty() ? nullptr : out_views.data();
  args.index = r.index ? index.view() : nullptr;
  args.pre_scalars = r.pre_scalars.data();
  args.post_scalars = r.post_scalars.data();
  fl_launch launch = session.tagged(0, r.flags);
  ok(KIT_LAUNCH(reduce, &launch, &args), "reduce");
  Result result;
  for (Tensor& t : out) result.outputs.push_back(session.get(t));
  if (r.index) result.index = session.get(index);
  return result;
}

bool beats(unsigned kind, unsigned type, Number v, Number best) {
  if (is_integer(type)) return kind == FL_REDUCE_MAX ? v.i > best.i : v.i < best.i;
  if (std::isnan(best.re)) return false;
  return std::isnan(v.re) || (kind == FL_REDUCE_MAX ? v.re > best.re : v.re < best.re);
}

// The outputs, then the index; magnitude: Σ |values| of each output (for tolerances).
void reference(const Request& r, std::vector<std::vector<Number>>& outputs, std::vector<Number>& index,
               std::vector<real>& magnitude) {
  std::vector<int64_t> small = reduced_sizes(r), sizes = r.inputs[0].sizes, inner = sizes;
  for (size_t d = 0; d < sizes.size(); ++d) inner[d] = small[d] == sizes[d] ? 1 : sizes[d];
  int64_t n = product(small), count = product(inner);
  std::vector<std::vector<Number>> values(n);
  std::vector<Number> read(r.inputs.size()), made;
  for (auto& v : values) v.reserve(count);
  // Row-major over the reduced dimensions, for each output.
  for (int64_t o = 0; o < n; ++o) {
    std::vector<int64_t> base = coordinates(o, small);
    for (int64_t k = 0; k < count; ++k) {
      std::vector<int64_t> at = coordinates(k, inner);
      int64_t i = 0;
      for (size_t d = 0; d < at.size(); ++d) at[d] += base[d], i = i * sizes[d] + at[d];
      for (size_t t = 0; t < read.size(); ++t) read[t] = r.inputs[t].at(i);
      if (r.pre) reference_program(r.pre, r.pre_scalars.data(), read, at, sizes, made);
      values[o].push_back(r.pre ? made[0] : converted(read[0], r.inputs[0].dtype, r.accumulate));
    }
  }
  outputs.assign(r.outputs.size(), std::vector<Number>(n));
  index.assign(n, {});
  magnitude.assign(n, 0);
  unsigned t = r.accumulate;
  for (int64_t o = 0; o < n; ++o) {
    std::vector<Number>& v = values[o];
    std::vector<Number> result = {v[0]};
    for (const Number& x : v) magnitude[o] += is_integer(t) ? 0 : std::abs(x.c());
    if (r.kind == FL_REDUCE_MOMENTS) {
      complex_real mean = 0, squares = 0;
      for (const Number& x : v) mean += x.c() / real(count);
      for (const Number& x : v) squares += (x.c() - mean) * (x.c() - mean);
      result = {Number::complex(mean), Number::complex(squares)};
    } else {
      for (int64_t k = 1; k < count; ++k) {
        Number& best = result[0];
        switch (r.kind) {
          case FL_REDUCE_SUM:
            best = reference_op(FL_OP_ADD, t, best, v[k], {});
            break;
          case FL_REDUCE_PROD:
            best = reference_op(FL_OP_MUL, t, best, v[k], {});
            break;
          case FL_REDUCE_ALL:
            best.i = best.i && v[k].i;
            break;
          case FL_REDUCE_ANY:
            best.i = best.i || v[k].i;
            break;
          default:
            if (beats(r.kind, t, v[k], best)) best = v[k], index[o].i = k;
        }
      }
    }
    if (r.post) {
      reference_program(r.post, r.post_scalars.data(), result, coordinates(o, small), small, made);
      for (size_t k = 0; k < outputs.size(); ++k) outputs[k][o] = made[k];
    } else if (!outputs.empty()) {
      outputs[0][o] = r.outputs[0] == t ? result[0] : converted(result[0], t, r.outputs[0]);
    }
  }
}

void check(Session& session, Request r, const char* what = "") {
  Result got = run(session, r);
  std::vector<std::vector<Number>> want;
  std::vector<Number> index;
  std::vector<real> magnitude;
  reference(r, want, index, magnitude);
  std::string where = text("%s %s over %zu axes, %s", what, shape_text(r.inputs[0].sizes).c_str(),
                           r.axes.size(), arrangement_text(r.arrangement).c_str());
  real reach = 0;
  for (real m : magnitude) reach = std::max(reach, m);
  bool selects = r.kind == FL_REDUCE_MIN || r.kind == FL_REDUCE_MAX;
  bool wide = component(r.accumulate) == FL_F64;
  for (size_t k = 0; k < got.outputs.size(); ++k) {
    unsigned d = got.outputs[k].dtype;
    Tolerance t;
    if (!is_integer(d) && !(selects && !r.post)) {
      t.absolute = r.kind == FL_REDUCE_SUM ? reach * (wide ? 1e-13L : 1e-6L) : 0;
      t.relative = wide ? 1e-12L : 2e-5L;
      t.ulps = component(d) == FL_F32 || component(d) == FL_F64 ? 0 : 1;
    }
    expect_close(got.outputs[k], want[k], t, where);
  }
  if (r.index) expect_close(got.index, index, {}, "index, " + where);
}

// Values whose product or sum stays in range.
Array values(Random& random, unsigned kind, unsigned dtype, const std::vector<int64_t>& sizes) {
  if (kind == FL_REDUCE_PROD && is_complex(dtype)) return Array::random(random, dtype, sizes, -0.7L, 0.7L);
  if (kind == FL_REDUCE_PROD && !is_integer(dtype)) return Array::random(random, dtype, sizes, 0.6L, 1.6L);
  if (kind == FL_REDUCE_ALL || kind == FL_REDUCE_ANY) {
    Array a(dtype, sizes);
    bool mostly = kind == FL_REDUCE_ALL;
    for (int64_t i = 0; i < a.numel(); ++i) a.set(i, Number::integer(random.next() % 9 ? mostly : !mostly));
    return a;
  }
  return Array::random(random, dtype, sizes, -50, 50);
}

void each_claimed(const std::function<void(unsigned kind, unsigned type)>& f) {
  for (unsigned kind = 0; kind < FL_REDUCE_COUNT; ++kind)
    for (unsigned type : claimed(FL_ENTRY_REDUCE, kind))
      // Complex numbers have no order; the logical kinds accumulate in BOOL.
      if (!(is_complex(type) && (kind == FL_REDUCE_MIN || kind == FL_REDUCE_MAX))) f(kind, type);
}

std::vector<unsigned> outputs_of(unsigned kind, unsigned type) {
  return kind == FL_REDUCE_MOMENTS ? std::vector<unsigned>{type, type} : std::vector<unsigned>{type};
}

const fl_program* post_of(unsigned kind, unsigned type) {
  if (kind != FL_REDUCE_MOMENTS) return nullptr;
  fl::Builder p;
  uint8_t t = static_cast<uint8_t>(type);
  p.store(0, p.load(0, t), t);
  p.store(1, p.load(1, t), t);
  return p.finish();
}

KIT_TEST("reduce", "every claimed reduction agrees with the reference, in every layout, over any axes") {
  Session session;
  each_claimed([&](unsigned kind, unsigned type) {
    run_case(text("%s %s", kKinds[kind], dtype_name(type)), [&] {
      Random random(kind * 32 + type);
      auto request = [&](const std::vector<int64_t>& sizes, std::vector<int> axes, Arrangement a = {}) {
        Request r{kind, type, {values(random, kind, type, sizes)}, std::move(axes), outputs_of(kind, type)};
        r.post = post_of(kind, type);
        r.arrangement = a;
        check(session, r);
      };
      for (Arrangement a : arrangements()) {
        request({5, 6, 7}, {2}, a);
        request({5, 6, 7}, {1}, a);
        request({5, 6, 7}, {0, 2}, a);
      }
      request({1}, {0});
      request({70001}, {0});
      request({33, 2049}, {1});
      request({2049, 33}, {0});
      request({2, 3, 2, 3, 2, 3}, {1, 3, 5});
      request({3, 4}, {});  // nothing is reduced
      request({1, 2, 1, 1, 2, 1, 3, 1, 1, 2, 1, 1, 2, 1, 1, 2}, {4, 6, 15});
      if (kind == FL_REDUCE_MIN || kind == FL_REDUCE_MAX) {
        Request r{kind, type, {values(random, kind, type, {40, 50})}, {1}, {type}, true};
        check(session, r);
        r.outputs.clear();  // only the index is wanted
        check(session, r, "index alone");
      }
    });
  });
  for (unsigned storage : {FL_U8, FL_F16, FL_BF16, FL_I16, FL_BOOL}) {
    unsigned type = storage == FL_F16 || storage == FL_BF16 ? FL_F32 : FL_I64;
    if (!chip().claims(FL_ENTRY_COPY, FL_ANY, storage)) continue;
    run_case(text("SUM of %s in %s", dtype_name(storage), dtype_name(type)), [&] {
      Random random(storage);
      Request r{FL_REDUCE_SUM, type, {Array::random(random, storage, {19, 300}, 0, 9)}, {1}, {type}};
      check(session, r);
    });
  }
}

KIT_TEST("RED-1", "index is the number of the winner: among ties the lowest; NaN wins, the first") {
  Session session;
  for (unsigned kind : {FL_REDUCE_MIN, FL_REDUCE_MAX})
    for (unsigned type : {FL_I64, FL_F32})
      run_case(text("%s %s", kKinds[kind], dtype_name(type)), [&] {
        Random random(kind);
        for (int64_t n : {2, 7, 40, 1000, 5003})
          for (const std::vector<int>& axes :
               {std::vector<int>{1}, std::vector<int>{0}, std::vector<int>{0, 1}}) {
            // Few distinct values: ties everywhere.
            Request r{kind, type, {Array::random(random, type, {6, n}, 0, 3)}, axes, {type}, true};
            for (int64_t i = 0; i < r.inputs[0].numel() && type == FL_F32; ++i)
              r.inputs[0].set(i, Number::floating(std::floor(r.inputs[0].at(i).re)));
            check(session, r, "ties");
            if (type == FL_F32) {
              for (int64_t i : {n - 1, n + n / 2, 2 * n, 4 * n + n / 3})
                r.inputs[0].set(i, Number::floating(NAN));
              check(session, r, "NaN");
            }
          }
      });
}

KIT_TEST("RED-2", "F32 sums are accurate to 1e-6 × sum of |values| for up to 2^24 values") {
  Session session;
  for (int64_t n : {int64_t{1} << 20, int64_t{1} << 24}) {
    run_case(text("%lld values", static_cast<long long>(n)), [&] {
      Array a(FL_F32, {n});
      float* p = reinterpret_cast<float*>(a.bytes.data());
      double sum = 0;
      // A value of 1 added one by one to a float stops at 2^24; these drift well before.
      for (int64_t i = 0; i < n; ++i) sum += p[i] = 1 + static_cast<float>(i % 1000) * 1e-3f;
      // Placed by hand: Session::put is an element at a time.
      Tensor x = session.output(FL_F32, {1}), out = session.output(FL_F32, {1});
      void* device = session.allocate(a.bytes.size());
      session.upload(device, a.bytes.data(), a.bytes.size());
      fl_tensor in = *x, to = *out;
      int64_t stride = 1;
      in.data = device, in.sizes = &n, in.strides = &stride;
      fl_reduce_args args{};
      args.kind = FL_REDUCE_SUM, args.accumulate = FL_F32, args.n_inputs = args.n_outputs = 1;
      args.inputs = &in, args.outputs = &to;
      ok(KIT_LAUNCH(reduce, &session.launch, &args), "reduce");
      Array got = session.get(out);
      session.release(device);
      expect_close(got, {Number::floating(sum)}, {0, 1e-6L, 0}, "the sum");
    });
  }
}

KIT_TEST("RED-3", "INDEX in pre counts over the inputs' sizes; pre and post programs run") {
  Session session;
  Random random(3);
  run_case("INDEX", [&] {
    fl::Builder p;
    fl::Value number = p.index(-1, FL_I64), column = p.index(1, FL_I64);
    p.store(0,
            p.op(FL_OP_ADD, p.op(FL_OP_MUL, number, p.load(0, FL_I64)),
                 p.op(FL_OP_MUL, column, p.scalar(0, FL_I64))),
            FL_I64);
    for (const std::vector<int>& axes : {std::vector<int>{0}, std::vector<int>{1}, std::vector<int>{0, 2}}) {
      Request r{FL_REDUCE_SUM, FL_I64, {Array::random(random, FL_I64, {5, 6, 7})}, axes, {FL_I64}};
      r.pre = p.finish();
      r.pre_scalars = {scalar(FL_I64, Number::integer(1000))};
      check(session, r);
    }
  });
  run_case("two inputs, squares, a root and two outputs", [&] {
    fl::Builder pre, post;
    fl::Value d = pre.op(FL_OP_SUB, pre.load(0, FL_F32), pre.load(1, FL_F32));
    pre.store(0, pre.op(FL_OP_MUL, d, d), FL_F32);
    fl::Value s = post.load(0, FL_F32);
    post.store(0, post.op(FL_OP_SQRT, post.op(FL_OP_MUL, s, post.scalar(0, FL_F32))), FL_F32);
    post.store(1, s, FL_F32);
    auto request = [&](const std::vector<int64_t>& sizes, std::vector<int> axes, Arrangement a = {}) {
      Request r{FL_REDUCE_SUM,
                FL_F32,
                {Array::random(random, FL_F32, sizes), Array::random(random, FL_F32, sizes)},
                std::move(axes),
                {FL_F32, FL_F32}};
      r.pre = pre.finish(), r.post = post.finish();
      r.post_scalars = {scalar(FL_F32, Number::floating(1 / 64.0L))};
      r.arrangement = a;
      check(session, r);
    };
    for (Arrangement a : arrangements()) request({9, 65}, {1}, a);
    // So many points that a chip which compiles for what is worth it does so, and so then for the small.
    request({2100, 2000}, {1});
    for (Arrangement a : arrangements()) request({9, 65}, {0, 1}, a), request({9, 65}, {0}, a);
  });
}

}  // namespace

}  // namespace kit
