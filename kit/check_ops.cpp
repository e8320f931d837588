// [OPS-n]: the rules that every entry obeys.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <thread>

#include "actions.h"
#include "launches.h"

namespace kit {

namespace {

// One small launch of each mandatory entry: input(s) of ones in `x`, a result that is a multiple of x.
// The argument structs and their arrays are scribbled over when the launch returns: they were borrowed.
struct Small {
  const char* name;
  real want;  // every element of the output when x is filled with v: want × v (+ 0)
  std::function<fl_status(const fl_launch&, Tensor& x, Tensor& out)> launch;
};

template <class Args>
fl_status scribbled(fl_status (*entry)(const fl_launch*, const Args*), const fl_launch& launch, Args& args) {
  fl_launch l = launch;
  fl_status status;
  {
    LaunchLock lock;
    status = entry(&l, &args);
  }
  memset(static_cast<void*>(&args), 0x77, sizeof args);
  memset(static_cast<void*>(&l), 0x77, sizeof l);
  return status;
}

// A view whose sizes and strides die with it.
struct Passing {
  int64_t sizes[3], strides[3];
  fl_tensor view;
  Passing(Tensor& t, std::vector<int64_t> s, std::vector<int64_t> st) : view(*t) {
    for (size_t d = 0; d < s.size(); ++d) sizes[d] = s[d], strides[d] = st[d];
    view.sizes = sizes, view.strides = strides, view.ndim = static_cast<int32_t>(s.size());
  }
  ~Passing() { memset(static_cast<void*>(this), 0x77, sizeof *this); }
};

std::vector<Small> smalls(Tensor& index) {
  const fl_op_api& op = chip().op;
  std::vector<Small> all;
  all.push_back({"copy", 1, [&](const fl_launch& l, Tensor& x, Tensor& out) {
                   Passing from(x, {64}, {1}), to(out, {64}, {1});
                   fl_copy_args args{from.view, to.view};
                   return scribbled(op.copy, l, args);
                 }});
  all.push_back({"pointwise", 2, [&](const fl_launch& l, Tensor& x, Tensor& out) {
                   Passing from(x, {64}, {1}), to(out, {64}, {1});
                   fl_tensor in[2] = {from.view, from.view};
                   fl_pointwise_args args{program_of(FL_OP_ADD, FL_F32), in, &to.view, nullptr};
                   fl_status status = scribbled(op.pointwise, l, args);
                   memset(static_cast<void*>(in), 0x77, sizeof in);
                   return status;
                 }});
  all.push_back({"reduce", 1, [&](const fl_launch& l, Tensor& x, Tensor& out) {
                   Passing from(x, {1, 64}, {64, 1}), to(out, {1, 64}, {64, 1});
                   fl_reduce_args args{};
                   args.kind = FL_REDUCE_SUM, args.accumulate = FL_F32, args.n_inputs = args.n_outputs = 1;
                   args.inputs = &from.view, args.outputs = &to.view;
                   return scribbled(op.reduce, l, args);
                 }});
  all.push_back({"gemm", 8, [&](const fl_launch& l, Tensor& x, Tensor& out) {
                   // b is x too; the test divides by v.
                   Passing a(x, {1, 8, 8}, {0, 8, 1}), to(out, {1, 8, 8}, {0, 8, 1});
                   fl_gemm_args args{};
                   args.a = a.view, args.b = a.view, args.out = to.view, args.alpha.v.f = 1;
                   return scribbled(op.gemm, l, args);
                 }});
  all.push_back({"gather", 1, [&](const fl_launch& l, Tensor& x, Tensor& out) {
                   Passing from(x, {64}, {0}), to(out, {64}, {1}), where(index, {64}, {1});
                   fl_gather_args args{};
                   args.from = from.view, args.out = to.view, args.indices = &where.view;
                   args.index_size[0] = 64, args.index_stride[0] = 1, args.n_indices = 1;
                   return scribbled(op.gather, l, args);
                 }});
  all.push_back({"scatter", 1, [&](const fl_launch& l, Tensor& x, Tensor& out) {
                   Passing from(x, {64}, {1}), to(out, {64}, {0}), where(index, {64}, {1});
                   fl_scatter_args args{};
                   args.from = from.view, args.to = to.view, args.indices = &where.view,
                   args.mode = FL_SCATTER_SET;
                   args.index_size[0] = 64, args.index_stride[0] = 1, args.n_indices = 1;
                   return scribbled(op.scatter, l, args);
                 }});
  return all;
}

Tensor identity_index(Session& session) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < 64; ++i) order.push_back(i);
  return session.put(indices(FL_I64, {64}, order));
}

std::vector<Number> want_of(const Small& s, real v) {
  bool gemm = !strcmp(s.name, "gemm");
  return std::vector<Number>(64, Number::floating(s.want * v * (gemm ? v : 1)));
}

KIT_TEST("OPS-1", "work is queued on its stream and reads its operands when it runs, not when it is queued") {
  Session session, other;
  Tensor index = identity_index(session);
  Tensor x = session.output(FL_F32, {64}), out = session.output(FL_F32, {64});
  for (const Small& s : smalls(index)) {
    run_case(text("%s, behind its producer", s.name), [&] {
      fill(session.launch, x, Number::floating(0));
      fill(session.launch, out, Number::floating(NAN));
      session.synchronize();
      busy(session, 5);
      fill(session.launch, x, Number::floating(3));
      ok(s.launch(session.launch, x, out), s.name);
      fill(session.launch, x, Number::floating(9));  // later on the stream: not seen
      expect_close(session.get(out), want_of(s, 3), {}, "the result");
    });
    run_case(text("%s, ordered by an event", s.name), [&] {
      fill(session.launch, x, Number::floating(0));
      fill(session.launch, out, Number::floating(NAN));
      session.synchronize();
      Event ready;
      busy(other, 10);
      fill(other.launch, x, Number::floating(5));
      ok(chip().stream.event_record(ready, other.stream), "event record");
      ok(chip().stream.wait_event(session.stream, ready), "wait_event");
      ok(s.launch(session.launch, x, out), s.name);
      expect_close(session.get(out), want_of(s, 5), {}, "the result");
    });
  }
  run_case("launches from several threads on one stream", [&] {
    // Each thread adds 1 to its own tensor, and all of them to a shared one, in turns of the stream.
    constexpr int kThreads = 4, kRounds = 200;
    fl::Builder p;
    p.store(0, p.op(FL_OP_ADD, p.load(0, FL_F32), p.constant(1, FL_F32)), FL_F32);
    const fl_program* program = p.finish();
    Tensor shared = session.put(Array(FL_F32, {64}));
    std::vector<Tensor> own;
    for (int t = 0; t < kThreads; ++t) own.push_back(session.put(Array(FL_F32, {64})));
    session.synchronize();
    std::vector<std::thread> threads;
    std::vector<fl_status> statuses(kThreads, FL_OK);
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        fl_tensor views[2] = {*own[t], *own[t]};
        static std::mutex building;  // Tensor::view() writes its view
        {
          std::lock_guard<std::mutex> lock(building);
          views[1] = *shared;
        }
        for (int i = 0; i < kRounds; ++i)
          for (fl_tensor& v : views) {
            fl_pointwise_args args{program, &v, &v, nullptr};
            LaunchLock lock;
            fl_status status = chip().op.pointwise(&session.launch, &args);
            if (status != FL_OK) statuses[t] = status;
          }
      });
    for (std::thread& t : threads) t.join();
    for (fl_status status : statuses) ok(status, "pointwise from a thread");
    expect_close(session.get(shared), std::vector<Number>(64, Number::floating(kThreads * kRounds)), {},
                 "the shared tensor");
    for (Tensor& t : own)
      expect_close(session.get(t), std::vector<Number>(64, Number::floating(kRounds)), {},
                   "a thread's tensor");
  });
}

using Launch = std::function<fl_status()>;

// Launches that a claim covers, or that none does, one a claimable row; f(name, launch, output).
void each_row(Session& session, bool covered,
              const std::function<void(const std::string&, const Launch&, Tensor&)>& f) {
  Tensor index = session.put(indices(FL_I64, {4}, {0, 1, 2, 3}));
  int64_t zero = 0;
  for (unsigned d = 1; d < FL_DTYPE_COUNT; ++d) {
    Tensor x = session.output(d, {4}), y = session.output(d, {4}), f32 = session.output(FL_F32, {4});
    auto one = [&](unsigned entry, unsigned kind, const char* name, const Launch& launch) {
      if (chip().claims(entry, kind, d) == covered) f(text("%s %s", name, dtype_name(d)), launch, y);
    };
    one(FL_ENTRY_COPY, FL_ANY, "copy", [&] {
      fl_copy_args a{*x, *y};
      return KIT_LAUNCH(copy, &session.launch, &a);
    });
    if (!covered)
      one(FL_ENTRY_COPY, FL_ANY, "copy from float32 to", [&] {
        fl_copy_args a{*f32, *y};
        return KIT_LAUNCH(copy, &session.launch, &a);
      });
    one(FL_ENTRY_FILL, FL_ANY, "fill", [&] {
      fl_fill_args a{*y, {}};
      return KIT_LAUNCH(fill, &session.launch, &a);
    });
    one(FL_ENTRY_GEMM, FL_ANY, "gemm", [&] {
      int64_t sizes[3] = {1, 2, 2}, strides[3] = {4, 2, 1};
      fl_gemm_args a{};
      a.a = a.b = *x, a.out = *y;
      for (fl_tensor* t : {&a.a, &a.b, &a.out}) t->ndim = 3, t->sizes = sizes, t->strides = strides;
      a.alpha.v.f = 1;
      return KIT_LAUNCH(gemm, &session.launch, &a);
    });
    one(FL_ENTRY_GATHER, FL_ANY, "gather", [&] {
      fl_gather_args a{};
      a.from = *x, a.out = *y, a.indices = index.view(), a.from.strides = &zero;
      a.index_size[0] = 4, a.index_stride[0] = 1, a.n_indices = 1;
      return KIT_LAUNCH(gather, &session.launch, &a);
    });
    for (unsigned mode = 0; mode < FL_SCATTER_COUNT; ++mode)
      one(FL_ENTRY_SCATTER, mode, text("scatter mode %u", mode).c_str(), [&] {
        fl_scatter_args a{};
        a.from = *x, a.to = *y, a.indices = index.view(), a.to.strides = &zero,
        a.mode = static_cast<uint16_t>(mode);
        a.index_size[0] = 4, a.index_stride[0] = 1, a.n_indices = 1;
        return KIT_LAUNCH(scatter, &session.launch, &a);
      });
    for (unsigned kind = 0; kind < FL_RANDOM_COUNT; ++kind)
      one(FL_ENTRY_RANDOM, kind, text("random kind %u", kind).c_str(), [&] {
        fl_random_args a{};
        a.out = *y, a.b.v.i = 1, a.distribution = static_cast<uint16_t>(kind);
        return KIT_LAUNCH(random, &session.launch, &a);
      });
    bool is_register = register_type(d) == d;
    for (unsigned kind = 0; kind < FL_REDUCE_COUNT && is_register; ++kind)
      one(FL_ENTRY_REDUCE, kind, text("reduce kind %u", kind).c_str(), [&] {
        int64_t one_size = 1;
        fl_tensor outputs[2] = {*y, *y}, in = *x;
        for (fl_tensor& t : outputs) t.sizes = &one_size;
        fl_reduce_args a{};
        a.kind = static_cast<uint16_t>(kind), a.accumulate = static_cast<uint8_t>(d),
        a.n_inputs = a.n_outputs = 1;
        a.inputs = &in, a.outputs = outputs;
        return KIT_LAUNCH(reduce, &session.launch, &a);
      });
  }
}

KIT_TEST("OPS-2", "FL_UNSUPPORTED means that nothing happened") {
  Session session;
  int checked = 0;
  each_row(session, false, [&](const std::string& name, const Launch& launch, Tensor& output) {
    if (launch() != FL_UNSUPPORTED) return;  // OPS-5's to judge
    ++checked;
    Array after = session.get(output);  // stops on a fault
    for (char c : after.bytes)
      if (c != static_cast<char>(0xA5)) return fail("%s wrote its output", name.c_str());
  });
  if (!checked) not_applicable("the chip refuses nothing");
}

KIT_TEST("OPS-3", "all strides are honoured: 0, negative, not contiguous, of each operand by itself") {
  Session session;
  std::vector<int64_t> sizes = {13, 17};
  for (unsigned which = 0; which < 4; ++which)
    for (Layout layout : kInputLayouts) {
      if (which == 3 && layout == Layout::broadcast) continue;
      run_case(
          text("pointwise, %s of %s", layout_name(layout),
               which == 3 ? "the output" : text("input %u", which).c_str()),
          [&] {
            Random random(which);
            fl::Builder p;
            p.store(0,
                    p.op(FL_OP_ADD, p.op(FL_OP_MUL, p.load(0, FL_I64), p.load(1, FL_I64)), p.load(2, FL_I64)),
                    FL_I64);
            std::vector<Array> in;
            std::vector<Tensor> tensors;
            for (unsigned k = 0; k < 3; ++k) {
              Array a = Array::random(random, FL_I64, sizes, -1000, 1000);
              bool mine = k == which;
              in.push_back(mine && layout == Layout::broadcast ? constant_along_first(a) : a);
              tensors.push_back(session.put(in.back(), mine ? layout : Layout::contiguous));
            }
            Tensor out = session.output(FL_I64, sizes, which == 3 ? layout : Layout::contiguous);
            fl_tensor views[3] = {*tensors[0], *tensors[1], *tensors[2]}, to = *out;
            fl_pointwise_args args{p.finish(), views, &to, nullptr};
            ok(KIT_LAUNCH(pointwise, &session.launch, &args), "pointwise");
            std::vector<Number> want;
            for (int64_t i = 0; i < in[0].numel(); ++i)
              want.push_back(Number::integer(in[0].at(i).i * in[1].at(i).i + in[2].at(i).i));
            expect_close(session.get(out), want, {}, "the result");
          });
    }
  run_case("reduce: the index has strides of its own", [&] {
    Random random(9);
    Array a = Array::random(random, FL_F32, {6, 7, 8});
    Tensor x = session.put(a, Layout::negative), out = session.output(FL_F32, {6, 1, 8}, Layout::transposed);
    Tensor index = session.output(FL_I64, {6, 1, 8}, Layout::stepped);
    fl_tensor in = *x, to = *out;
    fl_reduce_args args{};
    args.kind = FL_REDUCE_MAX, args.accumulate = FL_F32, args.n_inputs = args.n_outputs = 1;
    args.inputs = &in, args.outputs = &to, args.index = index.view();
    ok(KIT_LAUNCH(reduce, &session.launch, &args), "reduce");
    Array got = session.get(out), where = session.get(index);
    for (int64_t i = 0; i < 6; ++i)
      for (int64_t k = 0; k < 8; ++k) {
        int64_t best = 0;
        for (int64_t j = 1; j < 7; ++j)
          if (a.at((i * 7 + j) * 8 + k).re > a.at((i * 7 + best) * 8 + k).re) best = j;
        REQUIRE(where.at(i * 8 + k).i == best && got.at(i * 8 + k).re == a.at((i * 7 + best) * 8 + k).re,
                "at [%lld, 0, %lld]", (long long)i, (long long)k);
      }
  });
}

KIT_TEST("OPS-4", "integers are exact and wrap; nothing is narrowed") {
  Session session;
  const int64_t big = (int64_t{1} << 62) + 12345678901, odd = (int64_t{1} << 53) + 1;
  Array values = indices(FL_I64, {8}, {big, odd, -odd, INT64_MAX, INT64_MIN, odd + 2, -big, 3});
  auto want = [&](auto&& f) {
    std::vector<Number> w;
    for (int64_t i = 0; i < 8; ++i)
      w.push_back(Number::integer(static_cast<int64_t>(f(static_cast<uint64_t>(values.at(i).i)))));
    return w;
  };
  run_case("copy", [&] {
    Tensor x = session.put(values), y = session.output(FL_I64, {8}, Layout::stepped);
    copy(session.launch, y, x);
    expect_close(session.get(y), want([](uint64_t v) { return v; }), {}, "copy");
  });
  run_case("fill", [&] {
    Tensor y = session.output(FL_I64, {8});
    fill(session.launch, y, Number::integer(odd));
    expect_close(session.get(y), std::vector<Number>(8, Number::integer(odd)), {}, "fill");
  });
  for (unsigned op :
       {FL_OP_ADD, FL_OP_SUB, FL_OP_MUL, FL_OP_MAX, FL_OP_DIV_FLOOR, FL_OP_REM_TRUNC, FL_OP_XOR})
    run_case(text("pointwise %s", op_name(op)), [&] {
      Array other = indices(FL_I64, {8}, {odd, big, 7, 2, -1, odd, -3, big});
      check_pointwise(session, program_of(op, FL_I64), {values, other}, {8}, {FL_I64}, {});
      check_pointwise(session, program_of(op, FL_I64), {other, values}, {8}, {FL_I64}, {});
    });
  run_case("scalars", [&] {
    fl::Builder p;
    p.store(0, p.op(FL_OP_ADD, p.load(0, FL_I64), p.scalar(0, FL_I64)), FL_I64);
    check_pointwise(session, p.finish(), {values}, {8}, {FL_I64}, {}, {},
                    {scalar(FL_I64, Number::integer(odd))});
  });
  auto reduce = [&](unsigned kind, int64_t expected) {
    run_case(text("reduce kind %u", kind), [&] {
      int64_t one = 1;
      Tensor x = session.put(values), y = session.output(FL_I64, {1});
      fl_tensor in = *x, to = *y;
      to.sizes = &one;
      fl_reduce_args args{};
      args.kind = static_cast<uint16_t>(kind), args.accumulate = FL_I64, args.n_inputs = args.n_outputs = 1;
      args.inputs = &in, args.outputs = &to;
      ok(KIT_LAUNCH(reduce, &session.launch, &args), "reduce");
      expect_close(session.get(y), {Number::integer(expected)}, {}, "the result");
    });
  };
  uint64_t sum = 0, product_ = 1;
  for (int64_t i = 0; i < 8; ++i)
    sum += static_cast<uint64_t>(values.at(i).i), product_ *= static_cast<uint64_t>(values.at(i).i);
  reduce(FL_REDUCE_SUM, static_cast<int64_t>(sum));
  reduce(FL_REDUCE_PROD, static_cast<int64_t>(product_));
  reduce(FL_REDUCE_MAX, INT64_MAX);
  reduce(FL_REDUCE_MIN, INT64_MIN);
  run_case("scatter ADD", [&] {
    Tensor to = session.put(indices(FL_I64, {1}, {odd})), from = session.put(values),
           where = session.put(indices(FL_I64, {8}, std::vector<int64_t>(8, 0)));
    int64_t zero = 0, n = 8;
    fl_scatter_args args{};
    args.to = *to, args.from = *from, args.indices = where.view(), args.mode = FL_SCATTER_ADD;
    args.to.strides = &zero, args.to.sizes = &n;
    args.index_size[0] = 1, args.index_stride[0] = 1, args.n_indices = 1;
    ok(KIT_LAUNCH(scatter, &session.launch, &args), "scatter");
    expect_close(session.get(to), {Number::integer(static_cast<int64_t>(sum + static_cast<uint64_t>(odd)))},
                 {}, "the sum");
  });
}

KIT_TEST(
    "OPS-5",
    "what is claimed works, what is not claimed gives FL_UNSUPPORTED, and the mandatory claims are there") {
  run_case("mandatory claims", [] {
    auto must = [](unsigned entry, unsigned kind, std::initializer_list<int> dtypes, const char* what) {
      for (int d : dtypes)
        if (!chip().claims(entry, kind, static_cast<unsigned>(d)))
          fail("%s %s is not claimed", what, dtype_name(static_cast<unsigned>(d)));
    };
    for (auto [entry, what] :
         {std::pair{FL_ENTRY_COPY, "copy"}, {FL_ENTRY_FILL, "fill"}, {FL_ENTRY_GATHER, "gather"}}) {
      must(entry, FL_ANY, {FL_BOOL, FL_U8, FL_I8, FL_I16, FL_I32, FL_I64, FL_F32}, what);
      if (!chip().claims(entry, FL_ANY, FL_F16) && !chip().claims(entry, FL_ANY, FL_BF16))
        fail("%s: neither float16 nor bfloat16 is claimed", what);
    }
    for (unsigned op = 0; op < FL_OP_COUNT; ++op)
      for (int type : {FL_BOOL, FL_I32, FL_I64, FL_F32})
        if (op_mandatory(op) && reference_has(op, static_cast<unsigned>(type)))
          must(FL_ENTRY_POINTWISE, op, {type}, op_name(op));
    for (unsigned kind : {FL_REDUCE_SUM, FL_REDUCE_PROD, FL_REDUCE_MIN, FL_REDUCE_MAX})
      must(FL_ENTRY_REDUCE, kind, {FL_I64, FL_F32}, "reduce");
    for (unsigned kind : {FL_REDUCE_ALL, FL_REDUCE_ANY}) must(FL_ENTRY_REDUCE, kind, {FL_BOOL}, "reduce");
    must(FL_ENTRY_GEMM, FL_ANY, {FL_F32}, "gemm");
    must(FL_ENTRY_SCATTER, FL_SCATTER_SET, {FL_BOOL, FL_U8, FL_I8, FL_I16, FL_I32, FL_I64, FL_F32},
         "scatter SET");
    must(FL_ENTRY_SCATTER, FL_SCATTER_ADD, {FL_I64, FL_F32}, "scatter ADD");
    for (unsigned kind : {FL_RANDOM_BITS32, FL_RANDOM_RANGE32, FL_RANDOM_RANGE64})
      must(FL_ENTRY_RANDOM, kind, {FL_I64}, "random");
    for (unsigned kind : {FL_RANDOM_UNIFORM32, FL_RANDOM_NORMAL32})
      must(FL_ENTRY_RANDOM, kind, {FL_F32}, "random");
    const fl_op_api& op = chip().op;
    REQUIRE(
        op.copy && op.fill && op.pointwise && op.reduce && op.gemm && op.gather && op.scatter && op.random,
        "a mandatory entry is missing");
  });
  Session session;
  // Each claim is honoured somewhere: here that it is not refused; the entries' own tests compare numbers.
  run_case("opcodes claimed and refused", [&] {
    for (unsigned type : {FL_BOOL, FL_I32, FL_I64, FL_F32, FL_F64, FL_C64, FL_C128})
      for (unsigned op = 0; op < FL_OP_COUNT; ++op) {
        if (!is_computed(op) || !reference_has(op, type) || !chip().claims(FL_ENTRY_POINTWISE, op, type))
          continue;
        Array ones(type, {4});
        for (int64_t i = 0; i < 4; ++i) ones.set(i, {1, 1, 0});
        Array first = op == FL_OP_SELECT ? Array(FL_BOOL, {4}) : ones;
        Tensor a = session.put(first), b = session.put(ones), c = session.put(ones),
               out = session.output(result_type(op, type), {4});
        fl_tensor in[3] = {*a, *b, *c}, to = *out;
        fl_pointwise_args args{program_of(op, type), in, &to, nullptr};
        fl_status status = KIT_LAUNCH(pointwise, &session.launch, &args);
        if (status != FL_OK)
          fail("%s %s is claimed and gave %s", op_name(op), dtype_name(type), status_name(status));
        session.synchronize();
      }
  });
  // A case each: a chip may compile in every one of them.
  each_row(session, true, [&](const std::string& name, const Launch& launch, Tensor&) {
    run_case(name, [&] {
      fl_status status = launch();
      bool order_of_complex = status == FL_UNSUPPORTED && name.find("complex") != std::string::npos;
      if (status != FL_OK && !order_of_complex) fail("is claimed and gave %s", status_name(status));
      session.synchronize();
    });
  });
  each_row(session, false, [&](const std::string& name, const Launch& launch, Tensor&) {
    run_case(name, [&] {
      expect_status(launch(), FL_UNSUPPORTED, "what is not claimed");
      drain_faults(session.stream);
    });
  });
}

KIT_TEST("OPS-6", "sums of F16 and BF16 are accumulated in F32 or wider") {
  Session session;
  for (unsigned d : {FL_F16, FL_BF16}) {
    if (!chip().claims(FL_ENTRY_COPY, FL_ANY, d)) continue;
    run_case(text("reduce SUM of %s", dtype_name(d)), [&] {
      // 5000 ones: a 16-bit sum stops at 256 or 2048.
      Array ones(d, {5000});
      for (int64_t i = 0; i < 5000; ++i) ones.set(i, Number::floating(1));
      Tensor x = session.put(ones), y = session.output(FL_F32, {1});
      fl_tensor in = *x, to = *y;
      fl_reduce_args args{};
      args.kind = FL_REDUCE_SUM, args.accumulate = FL_F32, args.n_inputs = args.n_outputs = 1;
      args.inputs = &in, args.outputs = &to;
      ok(KIT_LAUNCH(reduce, &session.launch, &args), "reduce");
      expect_close(session.get(y), {Number::floating(5000)}, {}, "the sum");
    });
    if (!chip().claims(FL_ENTRY_GEMM, FL_ANY, d)) continue;
    run_case(text("gemm of %s", dtype_name(d)), [&] {
      Array ones(d, {1, 4, 4096});
      for (int64_t i = 0; i < ones.numel(); ++i) ones.set(i, Number::floating(1));
      Tensor a = session.put(ones), b = session.put(ones), out = session.output(d, {1, 4, 4});
      std::swap(b.sizes[1], b.sizes[2]);
      std::swap(b.strides[1], b.strides[2]);
      fl_gemm_args args{};
      args.a = *a, args.b = *b, args.out = *out, args.alpha.v.f = 1;
      ok(KIT_LAUNCH(gemm, &session.launch, &args), "gemm");
      expect_close(session.get(out), std::vector<Number>(16, Number::floating(4096)), {}, "the products");
    });
  }
}

KIT_TEST("OPS-7", "with FL_LAUNCH_DETERMINISTIC two runs give the same bits") {
  Session session;
  Random random(8);
  Array values = Array::random(random, FL_F32, {30000}, -100, 100);
  std::vector<int64_t> where;
  for (int64_t i = 0; i < 30000; ++i) where.push_back(random.between(0, 3));
  Tensor x = session.put(values), index = session.put(indices(FL_I64, {30000}, where));
  fl_launch launch = session.tagged(0, FL_LAUNCH_DETERMINISTIC);
  auto twice = [&](const char* name, const std::function<Array()>& run) {
    run_case(name, [&] {
      Array first = run();
      for (int i = 0; i < 4; ++i) REQUIRE(run().bytes == first.bytes, "two runs differ");
    });
  };
  twice("scatter ADD", [&] {
    Tensor to = session.put(Array(FL_F32, {4}));
    int64_t zero = 0, n = 30000;
    fl_scatter_args args{};
    args.to = *to, args.from = *x, args.indices = index.view(), args.mode = FL_SCATTER_ADD;
    args.to.strides = &zero, args.to.sizes = &n;
    args.index_size[0] = 4, args.index_stride[0] = 1, args.n_indices = 1;
    ok(KIT_LAUNCH(scatter, &launch, &args), "scatter");
    return session.get(to);
  });
  twice("reduce SUM", [&] {
    Tensor y = session.output(FL_F32, {1});
    fl_tensor in = *x, to = *y;
    fl_reduce_args args{};
    args.kind = FL_REDUCE_SUM, args.accumulate = FL_F32, args.n_inputs = args.n_outputs = 1;
    args.inputs = &in, args.outputs = &to;
    ok(KIT_LAUNCH(reduce, &launch, &args), "reduce");
    return session.get(y);
  });
  twice("gemm", [&] {
    int64_t a_sizes[3] = {1, 10, 3000}, a_strides[3] = {0, 3000, 1}, b_sizes[3] = {1, 3000, 10},
            b_strides[3] = {0, 1, 3000};
    Tensor out = session.output(FL_F32, {1, 10, 10});
    fl_gemm_args args{};
    args.a = args.b = *x, args.out = *out, args.alpha.v.f = 1;
    args.a.ndim = args.b.ndim = 3;
    args.a.sizes = a_sizes, args.a.strides = a_strides, args.b.sizes = b_sizes, args.b.strides = b_strides;
    ok(KIT_LAUNCH(gemm, &launch, &args), "gemm");
    return session.get(out);
  });
}

KIT_TEST("OPS-8", "with FL_LAUNCH_TF32 products of F32 lose no more than TF32 does, and without it nothing") {
  Session session;
  Random random(10);
  const int64_t m = 7, k = 40, n = 9;
  Array left = Array::random(random, FL_F32, {1, m, k}, -3, 3),
        right = Array::random(random, FL_F32, {1, k, n}, -3, 3);
  std::vector<Number> products(static_cast<size_t>(m * n));
  real reach = 0;
  for (int64_t i = 0; i < m * n; ++i) {
    real sum = 0, size = 0;
    for (int64_t j = 0; j < k; ++j) {
      const real product = left.at(i / n * k + j).re * right.at(j * n + i % n).re;
      sum += product, size += std::abs(product);
    }
    products[static_cast<size_t>(i)] = Number::floating(sum), reach = std::max(reach, size);
  }
  for (uint32_t flags : {0u, FL_LAUNCH_TF32})
    run_case(flags ? "allowed" : "not allowed", [&] {
      Tensor a = session.put(left), b = session.put(right), out = session.output(FL_F32, {1, m, n});
      fl_gemm_args args{};
      args.a = *a, args.b = *b, args.out = *out, args.alpha.v.f = 1;
      fl_launch launch = session.tagged(0, flags);
      ok(KIT_LAUNCH(gemm, &launch, &args), "gemm");
      // Each operand is off by 2^-11 of itself.
      expect_close(session.get(out), products, {0, 0, reach * (flags ? 0x1p-10L : 1e-6L)}, "the products");
    });
}

}  // namespace

}  // namespace kit
