// [PGM-n], [PTW-n], [CPY-1], [FIL-1] and every claimed opcode × register type.
#include <cmath>

#include "launches.h"

namespace kit {

namespace {

constexpr unsigned kRegisters[] = {FL_BOOL, FL_I32, FL_I64, FL_F32, FL_F64, FL_C64, FL_C128};
const std::vector<int64_t> kPlain = {37, 29};

// Where an opcode's operands come from, and how exact its F32 result is.
struct Domain {
  real low, high, low2, high2;
  bool exact;         // correctly rounded
  bool special;       // 1e-5 relative
  bool wild = false;  // takes all numbers there are
};

Domain domain(unsigned op, unsigned type) {
  bool exact = op <= FL_OP_DIV || (op >= FL_OP_DIV_TRUNC && op <= FL_OP_REM_FLOOR) ||
               (op >= FL_OP_MAX && op <= FL_OP_SQRT) || op == FL_OP_COPYSIGN || op == FL_OP_NEXTAFTER ||
               op == FL_OP_RECIPROCAL || (op >= FL_OP_FREXP_MANTISSA && op <= FL_OP_LDEXP);
  bool simple = op <= FL_OP_DIV || (op >= FL_OP_MAX && op <= FL_OP_SIGN) || op == FL_OP_COPYSIGN;
  bool power = is_integer(type);
  switch (op) {
    case FL_OP_POW:
      return power ? Domain{-9, 9, -3, 12, true, false} : Domain{0.01L, 30, -6, 6, false, false};
    case FL_OP_SHL:
    case FL_OP_SHR:
      return {-1000, 1000, -5, 70, true, false};
    case FL_OP_SQRT:
      return {0, 1e6L, 0, 1, true, false};
    case FL_OP_RSQRT:
    case FL_OP_LOG:
    case FL_OP_LOG2:
    case FL_OP_LOG10:
      return {1e-3L, 1e3L, 0, 1, false, false};
    case FL_OP_LOG1P:
      return {-0.9L, 100, 0, 1, false, false};
    case FL_OP_ASIN:
    case FL_OP_ACOS:
    case FL_OP_ATANH:
      return {-0.95L, 0.95L, 0, 1, false, false};
    case FL_OP_ACOSH:
      return {1.05L, 50, 0, 1, false, false};
    case FL_OP_ERFINV:
      return {-0.99L, 0.99L, 0, 1, false, true};
    case FL_OP_LGAMMA:
    case FL_OP_DIGAMMA:
      return {2.5L, 40, 0, 1, false, true};
    case FL_OP_TRIGAMMA:
      return {0.3L, 40, 0, 1, false, true};
    case FL_OP_NDTRI:
      return {0.01L, 0.45L, 0, 1, false, true};
    case FL_OP_LOG_NDTR:
      return {-20, 3, 0, 1, false, true};
    case FL_OP_ERFCX:
      return {-3, 20, 0, 1, false, true};
    case FL_OP_ZETA:
      return {1.5L, 9, 0.3L, 9, false, true};
    case FL_OP_IGAMMA:
    case FL_OP_IGAMMAC:
      return {0.3L, 12, 0.1L, 12, false, true};
    case FL_OP_I0:
    case FL_OP_I0E:
    case FL_OP_I1:
    case FL_OP_I1E:
      return {-12, 12, 0, 1, false, true};
    case FL_OP_LDEXP:
      return {-4, 4, -6, 6, true, false};
    case FL_OP_TAN:
    case FL_OP_SINH:
    case FL_OP_COSH:
      return {-1.4L, 1.4L, 0, 1, false, false};
    default:
      return {-20, 20, -20, 20, exact, false, simple};
  }
}

Tolerance tolerance_of(unsigned op, unsigned type) {
  Domain d = domain(op, type);
  if (is_complex(type))
    return {0, component(type) == FL_F32 ? 2e-5L : 1e-11L, component(type) == FL_F32 ? 1e-6L : 1e-12L};
  if (op == FL_OP_FMA) return {1, 0, type == FL_F64 ? 1e-13L : 1e-4L};  // a * b may be rounded first
  if (type == FL_F64) return {d.exact ? 1.0L : 16.0L, d.special ? 1e-9L : 0, d.special ? 1e-12L : 0};
  if (d.exact) return {};
  if (d.special) return {0, 1e-5L, 1e-6L};
  return {4.5L, 0, 0};
}

// Operands that keep integer division away from zero, and LDEXP's exponents whole.
std::vector<Array> operands(Random& random, unsigned op, unsigned type, const std::vector<int64_t>& sizes,
                            bool wild) {
  Domain d = domain(op, type);
  std::vector<Array> all;
  for (unsigned k = 0; k < operand_count(op); ++k) {
    unsigned t = op == FL_OP_SELECT && k == 0 ? static_cast<unsigned>(FL_BOOL) : type;
    all.push_back(wild ? Array::wild(random, t, sizes)
                  : k  ? Array::random(random, t, sizes, d.low2, d.high2)
                       : Array::random(random, t, sizes, d.low, d.high));
    for (int64_t i = 0; i < all.back().numel(); ++i) {
      Number v = all.back().at(i);
      bool divides = op >= FL_OP_DIV_TRUNC && op <= FL_OP_REM_FLOOR && k == 1;
      if (divides && is_integer(t) && v.i == 0) all.back().set(i, Number::integer(3));
      if (divides && is_real(t) && v.re == 0) all.back().set(i, Number::floating(3));
      if (op == FL_OP_LDEXP && k == 1) all.back().set(i, Number::floating(std::floor(v.re)));
    }
  }
  return all;
}

// A claimed opcode over a claimed type, with loads and stores claimed too.
template <class F>
void each_claimed(F&& f) {
  for (unsigned op = 0; op < FL_OP_COUNT; ++op) {
    if (!is_computed(op)) continue;
    for (unsigned type : kRegisters)
      if (reference_has(op, type) && chip().claims(FL_ENTRY_POINTWISE, op, type)) f(op, type);
  }
}

KIT_TEST("pointwise", "every claimed opcode and register type agrees with the reference") {
  Session session;
  each_claimed([&](unsigned op, unsigned type) {
    run_case(text("%s %s", op_name(op), dtype_name(type)), [&] {
      Random random(op * 32 + type);
      for (const std::vector<int64_t>& sizes : {kPlain, std::vector<int64_t>{1}, std::vector<int64_t>{4099}})
        check_pointwise(session, program_of(op, type),
                        operands(random, op, type, sizes, is_integer(type) && domain(op, type).wild), sizes,
                        {result_type(op, type)}, tolerance_of(op, type));
    });
  });
}

KIT_TEST("PGM-1",
         "conversions: to BOOL is \"not zero\", float to integer truncates, integers keep the low bits, "
         "floats round to even") {
  Session session;
  auto cast = [&](const char* what, unsigned from, unsigned memory, unsigned to, std::vector<Number> values,
                  std::vector<Number> want) {
    if (!chip().claims(FL_ENTRY_COPY, FL_ANY, from) || !chip().claims(FL_ENTRY_COPY, FL_ANY, to)) return;
    run_case(what, [&] {
      Array in(from, {static_cast<int64_t>(values.size())});
      for (size_t i = 0; i < values.size(); ++i) in.set(static_cast<int64_t>(i), values[i]);
      fl::Builder b;
      b.store(0, b.load(0, static_cast<uint8_t>(from), static_cast<uint8_t>(memory)),
              static_cast<uint8_t>(to));
      std::vector<Array> got = run_pointwise(session, b.finish(), {in}, in.sizes, {to});
      expect_close(got[0], want, {}, what);
    });
  };
  auto f = [](real v) { return Number::floating(v); };
  auto i = [](int64_t v) { return Number::integer(v); };
  cast("float32 to bool", FL_F32, FL_F32, FL_BOOL, {f(0), f(-0.0L), f(0.25L), f(NAN), f(-kInfinity)},
       {i(0), i(0), i(1), i(1), i(1)});
  cast("int64 to bool", FL_I64, FL_I64, FL_BOOL, {i(0), i(int64_t{1} << 40), i(-1), i(256)},
       {i(0), i(1), i(1), i(1)});
  cast("float32 to int32", FL_F32, FL_F32, FL_I32, {f(1.9L), f(-1.9L), f(-0.5L), f(2147483000)},
       {i(1), i(-1), i(0), i(2147483008)});
  cast("float32 to int64", FL_F32, FL_F32, FL_I64, {f(2.5L), f(-2.5L), f(0x1p62L)},
       {i(2), i(-2), i(int64_t{1} << 62)});
  cast("int64 to int32", FL_I64, FL_I64, FL_I32, {i(0x100000005), i(-1), i(0x80000000)},
       {i(5), i(-1), i(INT32_MIN)});
  cast("int64 to uint8", FL_I64, FL_I64, FL_U8, {i(0x1ff), i(-1), i(256)}, {i(255), i(255), i(0)});
  cast("int32 to int8", FL_I32, FL_I32, FL_I8, {i(200), i(-129), i(5)}, {i(-56), i(127), i(5)});
  cast("int64 to float32", FL_I64, FL_F32, FL_F32, {i(16777217), i(16777219), i((int64_t{1} << 62) + 1)},
       {f(16777216), f(16777220), f(0x1p62L)});
  cast("float32 to bfloat16", FL_F32, FL_F32, FL_BF16,
       {f(1 + 0x1p-8L), f(1 + 3 * 0x1p-8L), f(-1 - 0x1p-8L), f(NAN), f(3.4e38L)},
       {f(1), f(1 + 0x1p-6L), f(-1), f(NAN), f(kInfinity)});
  cast("float32 to float16", FL_F32, FL_F32, FL_F16,
       {f(1 + 0x1p-11L), f(1 + 3 * 0x1p-11L), f(65520), f(-7e4L), f(65504)},
       {f(1), f(1 + 0x1p-9L), f(kInfinity), f(-kInfinity), f(65504)});
  cast("uint8 to float32", FL_U8, FL_F32, FL_F32, {i(255), i(0)}, {f(255), f(0)});
  cast("bool to int64", FL_BOOL, FL_I64, FL_I64, {i(1), i(0)}, {i(1), i(0)});
  // Between registers.
  for (unsigned from : kRegisters)
    for (unsigned to : kRegisters) {
      if (from == to || !chip().claims(FL_ENTRY_POINTWISE, FL_OP_CAST, from) ||
          !chip().claims(FL_ENTRY_POINTWISE, FL_OP_CAST, to))
        continue;
      run_case(text("CAST %s to %s", dtype_name(from), dtype_name(to)), [&] {
        Random random(from * 100 + to);
        fl::Builder b;
        b.store(0, b.cast(b.load(0, static_cast<uint8_t>(from)), static_cast<uint8_t>(to)),
                static_cast<uint8_t>(to));
        check_pointwise(session, b.finish(), {Array::random(random, from, kPlain, -100, 100)}, kPlain, {to},
                        {});
      });
    }
}

KIT_TEST("PGM-2", "integer ADD, SUB, MUL, NEG and SHL wrap; integer division by zero is a fault") {
  Session session;
  for (unsigned type : {FL_I32, FL_I64})
    for (unsigned op : {FL_OP_ADD, FL_OP_SUB, FL_OP_MUL, FL_OP_NEG, FL_OP_SHL, FL_OP_ABS})
      run_case(text("%s %s", op_name(op), dtype_name(type)), [&] {
        Random random(op);
        check_pointwise(session, program_of(op, type), operands(random, op, type, kPlain, op != FL_OP_SHL),
                        kPlain, {type}, {});
      });
  for (unsigned type : {FL_I32, FL_I64})
    for (unsigned op : {FL_OP_DIV_TRUNC, FL_OP_DIV_FLOOR, FL_OP_REM_TRUNC, FL_OP_REM_FLOOR}) {
      run_case(text("%s %s by zero", op_name(op), dtype_name(type)), [&] {
        Session own;
        Tensor a = own.put(indices(type, {3}, {1, 2, 3})), z = own.put(indices(type, {3}, {1, 0, 1})),
               out = own.output(type, {3});
        fl_tensor in[2] = {*a, *z}, to = *out;
        fl_pointwise_args args{program_of(op, type), in, &to, nullptr};
        fl_launch launch = own.tagged(31);
        ok(KIT_LAUNCH(pointwise, &launch, &args), "pointwise");
        expect_status(chip().stream.synchronize(own.stream, -1), FL_FAILED,
                      "synchronize after a division by zero");
        fl_fault fault{};
        fault.size = sizeof fault;
        ok(chip().stream.fault(own.stream, &fault), "fault");
        REQUIRE(std::string(fault.text).find("division by zero") != std::string::npos,
                "the fault says \"%s\"", fault.text);
      });
      run_case(text("%s %s of the smallest number by -1", op_name(op), dtype_name(type)), [&] {
        int64_t low = type == FL_I32 ? INT32_MIN : INT64_MIN;
        check_pointwise(session, program_of(op, type),
                        {indices(type, {2}, {low, -7}), indices(type, {2}, {-1, 2})}, {2}, {type}, {});
      });
    }
}

KIT_TEST("PGM-3", "MAX and MIN give NaN when either operand is NaN; FMAX and FMIN give the other operand") {
  Session session;
  for (unsigned type : {FL_F32, FL_F64})
    for (unsigned op : {FL_OP_MAX, FL_OP_MIN, FL_OP_FMAX, FL_OP_FMIN}) {
      if (!chip().claims(FL_ENTRY_POINTWISE, op, type)) continue;
      run_case(text("%s %s", op_name(op), dtype_name(type)), [&] {
        // Each pair of special values, often enough for vector code and its rest.
        const real kValues[] = {NAN, kInfinity, -kInfinity, 0, 1, -1, 3.5L};
        Array a(type, {49 * 11}), b(type, {49 * 11});
        for (int64_t i = 0; i < a.numel(); ++i) {
          a.set(i, Number::floating(kValues[i % 7]));
          b.set(i, Number::floating(kValues[i / 7 % 7]));
        }
        check_pointwise(session, program_of(op, type), {a, b}, a.sizes, {type}, {});
      });
    }
}

KIT_TEST("PGM-4",
         "F32 results of + - × ÷ and sqrt are correctly rounded, other functions are within 4 ulp, special "
         "ones within 1e-5") {
  Session session;
  each_claimed([&](unsigned op, unsigned type) {
    if (type != FL_F32) return;
    run_case(op_name(op), [&] {
      Random random(op + 7);
      std::vector<int64_t> sizes = {20011};
      check_pointwise(session, program_of(op, type), operands(random, op, type, sizes, false), sizes,
                      {result_type(op, type)}, tolerance_of(op, type));
    });
  });
}

KIT_TEST("PGM-5", "infinities and NaN follow IEEE 754") {
  Session session;
  for (unsigned type : {FL_F32, FL_F64})
    for (unsigned op = 0; op < FL_OP_COUNT; ++op) {
      if (!is_computed(op) || !reference_has(op, type) || !domain(op, type).wild ||
          !chip().claims(FL_ENTRY_POINTWISE, op, type))
        continue;
      run_case(text("%s %s", op_name(op), dtype_name(type)), [&] {
        Random random(op + 13);
        check_pointwise(session, program_of(op, type), operands(random, op, type, kPlain, true), kPlain,
                        {result_type(op, type)}, tolerance_of(op, type));
      });
    }
  const std::pair<unsigned, std::vector<std::pair<real, real>>> kLimits[] = {
      {FL_OP_EXP, {{-kInfinity, 0}, {kInfinity, kInfinity}, {NAN, NAN}, {1000, kInfinity}}},
      {FL_OP_LOG, {{0, -kInfinity}, {-1, NAN}, {kInfinity, kInfinity}, {NAN, NAN}}},
      {FL_OP_SQRT, {{-1, NAN}, {kInfinity, kInfinity}, {0, 0}}},
      {FL_OP_RSQRT, {{0, kInfinity}, {-1, NAN}, {kInfinity, 0}}},
      {FL_OP_TANH, {{kInfinity, 1}, {-kInfinity, -1}, {NAN, NAN}, {50, 1}}},
      {FL_OP_SIGMOID, {{kInfinity, 1}, {-kInfinity, 0}, {NAN, NAN}, {-1000, 0}}},
      {FL_OP_ERF, {{kInfinity, 1}, {-kInfinity, -1}, {NAN, NAN}}},
      {FL_OP_SIN, {{kInfinity, NAN}, {NAN, NAN}, {0, 0}}},
      {FL_OP_ATAN, {{kInfinity, std::atan(kInfinity)}, {-kInfinity, -std::atan(kInfinity)}}}};
  for (auto& [op, points] : kLimits)
    run_case(text("%s at its limits", op_name(op)), [&, op = op, &points = points] {
      Array in(FL_F32, {static_cast<int64_t>(points.size())});
      std::vector<Number> want;
      for (size_t i = 0; i < points.size(); ++i) {
        in.set(static_cast<int64_t>(i), Number::floating(points[i].first));
        want.push_back(Number::floating(points[i].second));
      }
      expect_close(run_pointwise(session, program_of(op, FL_F32), {in}, in.sizes, {FL_F32})[0], want,
                   {4, 0, 0}, "the results");
    });
}

KIT_TEST("CPY-1", "copy converts between every pair of claimed dtypes, in every layout and shape") {
  Session session;
  auto check = [&](unsigned from, unsigned to, const std::vector<int64_t>& sizes, Arrangement a) {
    Random random(from * 64 + to);
    bool no_sign = to == FL_U8 || to == FL_U16 || to == FL_U32 || to == FL_U64 || from == FL_U64;
    real reach =
        std::min({100.0L, is_integer(from) ? 100.0L : largest(from), is_integer(to) ? 100.0L : largest(to)});
    Array in = from == to ? Array::wild(random, from, sizes)
                          : Array::random(random, from, sizes, no_sign ? 0 : -reach, reach);
    if (a.in == Layout::broadcast) in = constant_along_first(in);
    Tensor x = session.put(in, a.in), y = session.output(to, sizes, a.out);
    fl_copy_args args{*x, *y};
    ok(KIT_LAUNCH(copy, &session.launch, &args), "copy");
    std::vector<Number> want;
    for (int64_t i = 0; i < in.numel(); ++i) want.push_back(converted(in.at(i), from, to));
    expect_close(session.get(y), want, {},
                 text("%s, %s", shape_text(sizes).c_str(), arrangement_text(a).c_str()));
  };
  std::vector<unsigned> dtypes = claimed(FL_ENTRY_COPY, FL_ANY);
  for (unsigned from : dtypes)
    for (unsigned to : dtypes)
      run_case(text("%s to %s", dtype_name(from), dtype_name(to)), [&] {
        check(from, to, {31, 17}, {});
        check(from, to, {1}, {});
        check(from, to, {9, 6}, {Layout::transposed, Layout::contiguous});
      });
  for (unsigned d : dtypes) {
    run_case(text("layouts of %s", dtype_name(d)), [&] {
      for (Arrangement a : arrangements())
        for (const std::vector<int64_t>& sizes :
             {std::vector<int64_t>{7, 5, 6}, std::vector<int64_t>{130, 67}})
          check(d, d, sizes, a);
    });
    run_case(text("shapes of %s", dtype_name(d)), [&] {
      for (const std::vector<int64_t>& sizes : kShapes) check(d, d, sizes, {});
    });
  }
}

KIT_TEST("FIL-1", "fill writes the value, converted, to every claimed dtype in every layout and shape") {
  Session session;
  for (unsigned d : claimed(FL_ENTRY_FILL, FL_ANY))
    run_case(dtype_name(d), [&] {
      auto check = [&](const std::vector<int64_t>& sizes, Layout layout, Number value) {
        Tensor t = session.output(d, sizes, layout);
        fl_fill_args args{*t, scalar(d, value)};
        ok(KIT_LAUNCH(fill, &session.launch, &args), "fill");
        expect_close(session.get(t), std::vector<Number>(product(sizes), value), {},
                     text("%s, %s", shape_text(sizes).c_str(), layout_name(layout)));
      };
      Number value{d == FL_BOOL ? 1 : 77, 1.25L, is_complex(d) ? -2.5L : 0};
      for (Layout layout : kOutputLayouts) check({6, 5, 7}, layout, value);
      for (const std::vector<int64_t>& sizes : kShapes) check(sizes, Layout::contiguous, value);
      check({100}, Layout::contiguous, Number{});
      if (is_real(d) && dtype_size(d) > 1) check({100}, Layout::contiguous, Number::floating(-kInfinity));
      if (d == FL_I64) check({100}, Layout::contiguous, Number::integer(INT64_MAX - 1));
    });
}

KIT_TEST("PTW-1", "an output that is exactly an input is read before it is written") {
  Session session;
  for (Layout layout : kOutputLayouts)
    run_case(layout_name(layout), [&] {
      Random random(5);
      std::vector<int64_t> sizes = {37, 41};
      Array a = Array::random(random, FL_F32, sizes), b = Array::random(random, FL_F32, sizes);
      // a, b = a + b, a - b, both in place: each output needs both inputs.
      fl::Builder p;
      fl::Value x = p.load(0, FL_F32), y = p.load(1, FL_F32);
      p.store(0, p.op(FL_OP_ADD, x, y), FL_F32);
      p.store(1, p.op(FL_OP_SUB, x, y), FL_F32);
      Tensor ta = session.put(a, layout), tb = session.put(b, layout);
      fl_tensor both[2] = {*ta, *tb};
      fl_pointwise_args args{p.finish(), both, both, nullptr};
      ok(KIT_LAUNCH(pointwise, &session.launch, &args), "pointwise");
      std::vector<Number> sum, difference;
      for (int64_t i = 0; i < a.numel(); ++i) {
        sum.push_back(Number::floating(a.at(i).re + b.at(i).re));
        difference.push_back(Number::floating(a.at(i).re - b.at(i).re));
      }
      expect_close(session.get(ta), sum, {}, "a + b");
      expect_close(session.get(tb), difference, {}, "a - b");
    });
}

KIT_TEST("PTW-2",
         "several outputs are all written; chains, scalars, literals, INDEX and narrow storage work") {
  Session session;
  Random random(6);
  for (const std::vector<int64_t>& sizes : kShapes)
    run_case(text("four outputs, %s", shape_text(sizes).c_str()), [&] {
      fl::Builder p;
      fl::Value x = p.load(0, FL_F32), n = p.load(1, FL_I64);
      p.store(0, p.op(FL_OP_MUL, x, p.scalar(0, FL_F32)), FL_F32);
      p.store(1, p.op(FL_OP_ADD, n, p.index(-1, FL_I64)), FL_I64);
      p.store(2, p.op(FL_OP_LT, x, p.constant(0.5, FL_F32)), FL_BOOL);
      p.store(3, p.op(FL_OP_ADD, p.op(FL_OP_MUL, n, p.scalar(1, FL_I64)), p.constant(-3, FL_I64)), FL_U8);
      check_pointwise(
          session, p.finish(),
          {Array::random(random, FL_F32, sizes), Array::random(random, FL_I64, sizes, -50, 50)}, sizes,
          {FL_F32, FL_I64, FL_BOOL, FL_U8}, {}, {},
          {scalar(FL_F32, Number::floating(-1.5L)), scalar(FL_I64, Number::integer((int64_t{1} << 40) + 7))});
    });
  run_case("INDEX along each dimension", [&] {
    std::vector<int64_t> sizes = {4, 5, 6};
    fl::Builder p;
    fl::Value sum = p.index(0, FL_I64);
    for (int d = 1; d < 3; ++d)
      sum = p.op(FL_OP_ADD, p.op(FL_OP_MUL, sum, p.constant(10, FL_I64)), p.index(d, FL_I64));
    p.store(0, sum, FL_I64);
    p.store(1, p.index(1, FL_I32), FL_I32);
    check_pointwise(session, p.finish(), {}, sizes, {FL_I64, FL_I32}, {},
                    {Layout::contiguous, Layout::transposed});
  });
  for (unsigned narrow : {FL_U8, FL_I8, FL_I16, FL_F16, FL_BF16}) {
    if (!chip().claims(FL_ENTRY_COPY, FL_ANY, narrow)) continue;
    run_case(text("%s in memory", dtype_name(narrow)), [&] {
      fl::Builder p;
      uint8_t memory = static_cast<uint8_t>(narrow);
      fl::Value x = p.load(0, memory), y = p.load(1, memory);
      p.store(0, p.op(FL_OP_ADD, p.op(FL_OP_MUL, x, y), x), memory);
      check_pointwise(
          session, p.finish(),
          {Array::random(random, narrow, kPlain, -20, 20), Array::random(random, narrow, kPlain, -20, 20)},
          kPlain, {narrow}, {is_real(narrow) ? 1.01L : 0, 0, 0});
    });
  }
  run_case("a long chain", [&] {
    fl::Builder p;
    fl::Value x = p.load(0, FL_F32), r = x;
    for (int i = 0; i < 40; ++i) r = p.op(i % 2 ? FL_OP_MUL : FL_OP_ADD, r, p.scalar(i % 16, FL_F32));
    p.store(0, r, FL_F32);
    std::vector<fl_scalar> scalars;
    for (int i = 0; i < 16; ++i) scalars.push_back(scalar(FL_F32, Number::floating(0.5L + i / 32.0L)));
    check_pointwise(session, p.finish(), {Array::random(random, FL_F32, {5000}, 0, 1)}, {5000}, {FL_F32},
                    {64, 0, 0}, {}, scalars);
  });
}

KIT_TEST("PTW-3", "a program with unclaimed opcodes or types gives FL_UNSUPPORTED") {
  Session session;
  int checked = 0;
  for (unsigned op = 0; op < FL_OP_COUNT; ++op)
    for (unsigned type : kRegisters) {
      if (!is_computed(op) || !reference_has(op, type) || chip().claims(FL_ENTRY_POINTWISE, op, type))
        continue;
      ++checked;
      Tensor a = session.output(type, {4}), b = session.output(type, {4}), c = session.output(type, {4}),
             out = session.output(type, {4});
      fl_tensor in[3] = {*a, *b, *c}, to = *out;
      fl_pointwise_args args{program_of(op, type), in, &to, nullptr};
      fl_status status = KIT_LAUNCH(pointwise, &session.launch, &args);
      if (status != FL_UNSUPPORTED)
        fail("%s %s is not claimed and gave %s", op_name(op), dtype_name(type), status_name(status));
      session.get(out);
    }
  if (!checked) not_applicable("the chip claims all opcodes and types");
}

}  // namespace

}  // namespace kit
