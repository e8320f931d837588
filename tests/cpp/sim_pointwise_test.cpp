// The sim chip's pointwise programs of several instructions, and multi_tensor.
#include <algorithm>
#include <limits>
#include <memory>

#include "sim_numbers.h"

using namespace sim_test;

namespace {

const fl_chip* chip;

void programs(Device& d) {
  constexpr int64_t n = 5000;
  int64_t size = n, one = 1, zero = 0;
  std::vector<float> x(n), y(n);
  for (int64_t i = 0; i < n; ++i) x[size_t(i)] = float(i) * 0.25f - 300, y[size_t(i)] = float(i % 17) + 1;
  auto tensor = [&](Buffer& b, int dtype, bool broadcast = false) {
    return fl_tensor{b.address, &size, broadcast ? &zero : &one, 1, uint8_t(dtype), 0, 0};
  };
  auto launch = [&](const Program& p, std::vector<fl_tensor> in, std::vector<fl_tensor> out,
                    std::vector<fl_scalar> s) {
    fl_launch l = d.launch();
    fl_pointwise_args args{&p.program, in.data(), out.data(), s.data()};
    return chip->op->pointwise(&l, &args);
  };
  {  // Two outputs over their own inputs, exchanged: [PTW-1], [PTW-2].
    Buffer a(d, x.data(), n * 4), b(d, y.data(), n * 4);
    Program swap({load(0, FL_F32, FL_F32), load(1, FL_F32, FL_F32), store(1, 0, FL_F32, FL_F32),
                  store(0, 1, FL_F32, FL_F32)},
                 2, 2, 0);
    CHECK_STATUS(
        launch(swap, {tensor(a, FL_F32), tensor(b, FL_F32)}, {tensor(a, FL_F32), tensor(b, FL_F32)}, {}),
        FL_OK);
    CHECK(a.values<float>(n) == y && b.values<float>(n) == x);
  }
  {  // An output written before the last read of its input.
    Buffer a(d, x.data(), n * 4), b(d, n * 4);
    Program p({load(0, FL_F32, FL_F32), op(FL_OP_NEG, FL_F32, 0), store(1, 0, FL_F32, FL_F32),
               op(FL_OP_ADD, FL_F32, 0, 1), op(FL_OP_ADD, FL_F32, 3, 0), store(4, 1, FL_F32, FL_F32)},
              1, 2, 0);
    CHECK_STATUS(launch(p, {tensor(a, FL_F32)}, {tensor(a, FL_F32), tensor(b, FL_F32)}, {}), FL_OK);
    auto r = a.values<float>(n), s = b.values<float>(n);
    CHECK(s == x);
    for (float& v : r) v = -v;
    CHECK(r == x);
  }
  {  // A chain with mixed storage, a scalar, a broadcast, a select and an index.
    std::vector<uint16_t> half(n);
    for (int64_t i = 0; i < n; ++i) half[size_t(i)] = uint16_t(format_of(FL_BF16).encode(x[size_t(i)]));
    Buffer a(d, half.data(), n * 2), b(d, y.data(), n * 4), c(d, n * 8), e(d, n * 2);
    fl_scalar s{};
    s.v.f = 0.5;
    Program p({load(0, FL_BF16, FL_F32),
               load(1, FL_F32, FL_F32),
               {FL_OP_SCALAR, FL_F32, 0, 0, 0, 0, 0},
               op(FL_OP_MUL, FL_F32, 0, 2),
               op(FL_OP_GT, FL_F32, 3, 1),
               op(FL_OP_SELECT, FL_F32, 4, 3, 1),
               {FL_OP_INDEX, FL_I64, 0, 0xffff, 0, 0, 0},
               {FL_OP_CAST, FL_F64, FL_F32, 5, 0, 0, 0},
               {FL_OP_CAST, FL_F64, FL_I64, 6, 0, 0, 0},
               op(FL_OP_ADD, FL_F64, 7, 8),
               store(9, 0, FL_F64, FL_F64),
               store(5, 1, FL_F16, FL_F32)},
              2, 2, 1);
    CHECK_STATUS(
        launch(p, {tensor(a, FL_BF16), tensor(b, FL_F32, true)}, {tensor(c, FL_F64), tensor(e, FL_F16)}, {s}),
        FL_OK);
    auto r = c.values<double>(n);
    auto h = e.values<uint16_t>(n);
    bool right = true;
    for (int64_t i = 0; i < n; ++i) {
      float v = float(format_of(FL_BF16).decode(half[size_t(i)])) * 0.5f;
      v = v > y[0] ? v : y[0];
      right = right && r[size_t(i)] == double(v) + double(i) && h[size_t(i)] == format_of(FL_F16).encode(v);
    }
    CHECK(right);
  }
  {  // Literals of each type.
    double f = -2.7182818284590452;
    int64_t i = -0x123456789abcdef;
    uint64_t bits;
    std::memcpy(&bits, &f, 8);
    auto literal = [](uint64_t b, uint8_t type) {
      return fl_instr{FL_OP_CONST,      type, 0, uint16_t(b), uint16_t(b >> 16), uint16_t(b >> 32),
                      uint16_t(b >> 48)};
    };
    Buffer a(d, n * 8), b(d, n * 4), c(d, n * 16), e(d, n * 8);
    Program p({literal(bits, FL_F64), literal(bits, FL_F32), literal(bits, FL_C128),
               literal(uint64_t(i), FL_I64), store(0, 0, FL_F64, FL_F64), store(1, 1, FL_F32, FL_F32),
               store(2, 2, FL_C128, FL_C128), store(3, 3, FL_I64, FL_I64)},
              0, 4, 0);
    CHECK_STATUS(
        launch(p, {}, {tensor(a, FL_F64), tensor(b, FL_F32), tensor(c, FL_C128), tensor(e, FL_I64)}, {}),
        FL_OK);
    CHECK(a.values<double>(n)[n - 1] == f && b.values<float>(n)[n - 1] == float(f) &&
          c.values<Cx>(n)[n - 1] == Cx(f));
    CHECK(e.values<int64_t>(n)[n - 1] == i);
  }
  {  // SELECT, for each type's width; the condition is in memory.
    std::vector<uint8_t> yes(n);
    for (auto& v : yes) v = rng() & 1;
    for (int type : {FL_BOOL, FL_I32, FL_I64, FL_F32, FL_F64, FL_C64, FL_C128}) {
      size_t w = bytes_of(type);
      std::vector<char> u(n * w), v(n * w), expected(n * w);
      for (char& x : u) x = char(type == FL_BOOL ? 1 : rng() & 0x3f);
      for (char& x : v) x = char(type == FL_BOOL ? 0 : rng() & 0x3f);
      for (size_t k = 0; k < n; ++k) std::memcpy(&expected[k * w], yes[k] ? &u[k * w] : &v[k * w], w);
      Buffer a(d, yes.data(), n), b(d, u.data(), n * w), c(d, v.data(), n * w), e(d, n * w);
      Program p({load(0, FL_BOOL, FL_BOOL), load(1, uint8_t(type), uint8_t(type)),
                 load(2, uint8_t(type), uint8_t(type)), op(FL_OP_SELECT, uint8_t(type), 0, 1, 2),
                 store(3, 0, uint8_t(type), uint8_t(type))},
                3, 1, 0);
      CHECK_STATUS(launch(p, {tensor(a, FL_BOOL), tensor(b, type), tensor(c, type)}, {tensor(e, type)}, {}),
                   FL_OK);
      CHECK(e.values<char>(n * w) == expected);
    }
  }
  {  // Coordinates, whatever the strides.
    int64_t sizes[3] = {4, 6, 50}, strides[3] = {6, 1, 24};
    for (int dimension : {0, 1, 2, 0xffff}) {
      Buffer a(d, 1200 * 4);
      Program p({{FL_OP_INDEX, FL_I32, 0, uint16_t(dimension), 0, 0, 0}, store(0, 0, FL_I32, FL_I32)}, 0, 1,
                0);
      fl_tensor t{a.address, sizes, strides, 3, FL_I32, 0, 0};
      CHECK_STATUS(launch(p, {}, {t}, {}), FL_OK);
      auto got = a.values<int32_t>(1200);
      bool right = true;
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 6; ++j)
          for (int k = 0; k < 50; ++k) {
            int expected = dimension == 0   ? i
                           : dimension == 1 ? j
                           : dimension == 2 ? k
                                            : (i * 6 + j) * 50 + k;
            right = right && got[size_t(i * 6 + j + k * 24)] == expected;
          }
      CHECK(right);
    }
  }
  {  // Integer division by zero is a fault; the stream goes on.
    std::vector<int32_t> values(n, 5), divisors(n, 2);
    divisors[4321] = 0;
    Buffer a(d, values.data(), n * 4), b(d, divisors.data(), n * 4);
    Program p({load(0, FL_I32, FL_I32), load(1, FL_I32, FL_I32), op(FL_OP_DIV_FLOOR, FL_I32, 0, 1),
               store(2, 0, FL_I32, FL_I32)},
              2, 1, 0);
    CHECK_STATUS(launch(p, {tensor(a, FL_I32), tensor(b, FL_I32)}, {tensor(a, FL_I32)}, {}), FL_OK);
    CHECK_STATUS(chip->stream->synchronize(d.stream, -1), FL_FAILED);
    fl_fault fault{};
    fault.size = sizeof fault;
    CHECK_STATUS(chip->stream->fault(d.stream, &fault), FL_OK);
    CHECK(std::strstr(fault.text, "division by zero"));
    d.sync();
  }
  // [PTW-3]
  for (auto bad :
       {Program({load(0, FL_C64, FL_C64), op(FL_OP_LT, FL_C64, 0, 0), store(1, 0, FL_BOOL, FL_BOOL)}, 1, 1,
                0),
        Program({load(0, FL_F32, FL_F32), op(FL_OP_AND, FL_F32, 0, 0), store(1, 0, FL_F32, FL_F32)}, 1, 1, 0),
        Program({load(0, FL_F32, FL_F32), op(FL_OP_NEG, FL_F64, 0), store(1, 0, FL_F64, FL_F64)}, 1, 1, 0),
        Program({load(0, FL_F32, FL_F32), op(250, FL_F32, 0), store(1, 0, FL_F32, FL_F32)}, 1, 1, 0),
        Program({op(FL_OP_NEG, FL_F32, 5), store(0, 0, FL_F32, FL_F32)}, 0, 1, 0)}) {
    Program again = bad;
    again.program.code = again.code.data();
    Buffer a(d, n * 8), b(d, n * 8);
    CHECK_STATUS(launch(again, {tensor(a, FL_F32)}, {tensor(b, FL_F32)}, {}), FL_UNSUPPORTED);
  }
  {  // A long program with many live values, on threads.
    constexpr int64_t big = 300000;
    std::vector<double> v(big);
    for (int64_t i = 0; i < big; ++i) v[size_t(i)] = double(i % 1000) / 1000;
    Buffer a(d, v.data(), big * 8), b(d, big * 8);
    std::vector<fl_instr> code{load(0, FL_F64, FL_F64)};
    for (int i = 1; i <= 60; ++i) code.push_back(op(i % 2 ? FL_OP_ADD : FL_OP_MUL, FL_F64, i - 1, i / 2));
    for (int i = 61; i <= 119; ++i) code.push_back(op(FL_OP_SUB, FL_F64, i - 1, 119 - i));
    code.push_back(store(119, 0, FL_F64, FL_F64));
    Program p(code, 1, 1, 0);
    int64_t length = big;
    fl_tensor in{a.address, &length, &one, 1, FL_F64, 0, 0}, out{b.address, &length, &one, 1, FL_F64, 0, 0};
    CHECK_STATUS(launch(p, {in}, {out}, {}), FL_OK);
    auto got = b.values<double>(big);
    bool right = true;
    for (int64_t i = 0; i < big; ++i) {
      double t[120] = {v[size_t(i)]};
      for (int k = 1; k <= 60; ++k) t[k] = k % 2 ? t[k - 1] + t[k / 2] : t[k - 1] * t[k / 2];
      for (int k = 61; k <= 119; ++k) t[k] = t[k - 1] - t[119 - k];
      right = right && (got[size_t(i)] == t[119] || (std::isnan(got[size_t(i)]) && std::isnan(t[119])));
    }
    CHECK(right);
  }
}

// Programs at random, of values of one width, against each of their instructions in a program of its own:
// what is joined, kept in registers and reordered gives the same bits.
template <class Float, class Int>
void joined_steps(Device& d, uint8_t real, uint8_t integer) {
  static_assert(sizeof(Float) == sizeof(Int));
  for (int round = 0; round < 200; ++round) {
    // Rows short and long, a whole number of vectors and not, in one piece or with a broadcast row or column.
    int64_t rows = 1 + int64_t(rng() % 6), columns = 1 + int64_t(rng() % (round % 2 ? 40 : 1500)),
            n = rows * columns;
    const int64_t sizes[2] = {rows, columns}, layouts[4][2] = {{columns, 1}, {0, 1}, {1, 0}, {1, rows}};
    const int64_t* whole = layouts[0];
    const uint8_t types[2] = {round % 3 ? real : integer, round % 3 ? integer : real};
    std::vector<std::unique_ptr<Buffer>> buffers;
    auto tensor = [&](Buffer& b, uint8_t dtype, const int64_t* strides) {
      return fl_tensor{b.address, sizes, strides, 2, dtype, 0, 0};
    };
    auto fresh = [&](size_t bytes) -> Buffer& {
      buffers.push_back(std::make_unique<Buffer>(d, bytes));
      return *buffers.back();
    };
    auto run = [&](const Program& p, const std::vector<fl_tensor>& in, const std::vector<fl_tensor>& out) {
      fl_scalar s{};
      if (types[0] == real) s.v.f = 0.75;
      else s.v.i = 3;
      fl_launch l = d.launch();
      fl_pointwise_args args{&p.program, in.data(), out.data(), &s};
      CHECK_STATUS(chip->op->pointwise(&l, &args), FL_OK);
    };
    struct Value {
      uint8_t type;
      int number;        // in the program
      fl_tensor tensor;  // the same, made step by step
    };
    std::vector<Value> values;
    std::vector<fl_instr> code;
    std::vector<fl_tensor> inputs;
    for (int i = 0; i < 3; ++i) {
      const uint8_t type = types[i == 2];
      Buffer& b = fresh(size_t(n) * sizeof(Float));
      std::vector<Float> reals(static_cast<size_t>(n));
      std::vector<Int> integers(static_cast<size_t>(n));
      for (size_t k = 0; k < size_t(n); ++k) {
        reals[k] =
            rng() % 40 ? Float(int64_t(rng() % 2000) - 1000) / 64 : std::numeric_limits<Float>::quiet_NaN();
        integers[k] = Int(rng() % 100) - 50;
      }
      if (type == real) b.write(reals.data(), size_t(n) * sizeof(Float));
      else b.write(integers.data(), size_t(n) * sizeof(Int));
      inputs.push_back(tensor(b, type, i == 0 ? whole : layouts[rng() % 4]));
      values.push_back({type, i, inputs.back()});
      code.push_back(load(i, type, type));
    }
    auto pick = [&](uint8_t type) -> const Value* {
      for (int tries = 0; tries < 20; ++tries) {
        const Value& v = values[values.size() - 1 - rng() % std::min<size_t>(values.size(), 6)];
        if (v.type == type) return &v;
      }
      for (const Value& v : values)
        if (v.type == type) return &v;
      return nullptr;
    };
    // Appends an instruction, and runs it alone.
    auto append = [&](int opcode, uint8_t type, uint8_t result, std::vector<const Value*> operands) {
      std::vector<fl_instr> alone;
      std::vector<fl_tensor> in;
      int number[3] = {};
      for (size_t k = 0; k < operands.size(); ++k) {
        alone.push_back(load(int(k), operands[k]->type, operands[k]->type));
        in.push_back(operands[k]->tensor);
        number[k] = operands[k]->number;
      }
      const int made = int(operands.size());
      if (opcode == FL_OP_INDEX) alone.push_back({FL_OP_INDEX, type, 0, uint16_t(rng() % 2), 0, 0, 0});
      else alone.push_back(op(opcode, type, 0, 1 % std::max(made, 1), 2 % std::max(made, 1)));
      code.push_back(alone.back());
      if (made) code.back() = op(opcode, type, number[0], number[1], number[2]);
      alone.push_back(store(made, 0, result, result));
      Buffer& b = fresh(size_t(n) * sizeof(Float));
      fl_tensor out = tensor(b, result, whole);
      run(Program(alone, made, 1, opcode == FL_OP_SCALAR), in, {out});
      values.push_back({result, int(code.size()) - 1, out});
    };
    append(FL_OP_SCALAR, types[0], types[0], {});
    if (round % 4 == 0) append(FL_OP_INDEX, integer, integer, {});
    for (int k = 0; k < 3 + int(rng() % 14); ++k) {
      const uint8_t type = types[rng() % 4 == 0];
      const Value *a = pick(type), *b = pick(type), *c = pick(FL_BOOL);
      constexpr int arithmetic[] = {FL_OP_ADD, FL_OP_SUB, FL_OP_MUL, FL_OP_MAX, FL_OP_MIN};
      constexpr int comparisons[] = {FL_OP_EQ, FL_OP_NE, FL_OP_LT, FL_OP_LE, FL_OP_GT, FL_OP_GE};
      constexpr int reals[] = {FL_OP_NEG,  FL_OP_ABS,     FL_OP_RECIPROCAL,
                               FL_OP_SQRT, FL_OP_SIGMOID, FL_OP_FLOOR};
      constexpr int integers[] = {FL_OP_NEG, FL_OP_NOT};
      switch (rng() % 6) {
        case 0:
          append(comparisons[rng() % 6], type, FL_BOOL, {a, b});
          break;
        case 1:
          append(type == real ? reals[rng() % 6] : integers[rng() % 2], type, type, {a});
          break;
        case 2:
          if (c) append(FL_OP_SELECT, type, type, {c, a, b});
          else if (type == real) append(FL_OP_DIV, type, type, {a, b});
          break;
        default:
          append(arithmetic[rng() % 5], type, type, {a, b});
      }
    }
    // Two results: the last value, and another; one of them over the first input, now and then.
    const Value &last = values.back(), &other = values[3 + rng() % (values.size() - 3)];
    code.push_back(store(last.number, 0, last.type, last.type));
    code.push_back(store(other.number, 1, other.type, other.type));
    fl_tensor out[2] = {tensor(fresh(size_t(n) * sizeof(Float)), last.type, whole),
                        tensor(fresh(size_t(n) * sizeof(Float)), other.type, whole)};
    if (last.type == inputs[0].dtype && rng() % 2) out[0] = inputs[0];
    // Expected values are read before an input is overwritten.
    const size_t bytes[2] = {size_t(n) * bytes_of(last.type), size_t(n) * bytes_of(other.type)};
    auto read = [&](const fl_tensor& t, size_t length) {
      std::vector<char> to(length);
      fl_launch l = d.launch();
      CHECK_STATUS(chip->memory->copy(&l, FL_DEVICE_TO_HOST, to.data(), t.data, length), FL_OK);
      d.sync();
      return to;
    };
    const auto expected0 = read(last.tensor, bytes[0]), expected1 = read(other.tensor, bytes[1]);
    Program p(code, 3, 2, 1);
    run(p, inputs, {out[0], out[1]});
    auto same = [&](const std::vector<char>& x, const std::vector<char>& y, uint8_t type) {
      if (type != real) return x == y;
      for (size_t i = 0; i < x.size(); i += sizeof(Float)) {
        Float u, v;
        std::memcpy(&u, &x[i], sizeof u), std::memcpy(&v, &y[i], sizeof v);
        if (!(u == v || (u != u && v != v))) return false;
      }
      return true;
    };
    CHECK(same(read(out[0], bytes[0]), expected0, last.type));
    CHECK(same(read(out[1], bytes[1]), expected1, other.type));
  }
}

// x -= rate × (g + decay × x) over tensors of many sizes; the rate is the item's own.
void multi_tensor(Device& d) {
  Program p({load(0, FL_F32, FL_F32),
             load(1, FL_F32, FL_F32),
             {FL_OP_SCALAR, FL_F32, 0, 0, 0, 0, 0},
             {FL_OP_SCALAR, FL_F32, 0, 1, 0, 0, 0},
             op(FL_OP_MUL, FL_F32, 0, 2),
             op(FL_OP_ADD, FL_F32, 1, 4),
             op(FL_OP_MUL, FL_F32, 5, 3),
             op(FL_OP_SUB, FL_F32, 0, 6),
             store(7, 0, FL_F32, FL_F32)},
            2, 1, 2);
  constexpr int kItems = 3000;
  std::vector<std::vector<int64_t>> sizes(kItems), x_strides(kItems), g_strides(kItems);
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<fl_tensor> inputs, outputs;
  std::vector<fl_scalar> item_scalars(kItems);
  std::vector<std::vector<float>> expected(kItems);
  fl_scalar decay{};
  decay.v.f = 0.25;
  for (size_t i = 0; i < kItems; ++i) {
    int64_t a = 1 + int64_t(rng() % 5), b = i % 500 == 7 ? 30011 : 1 + int64_t(rng() % 60), n = a * b;
    sizes[i] = {a, b}, x_strides[i] = {b, 1},
    g_strides[i] = i % 2 ? std::vector<int64_t>{b, 1} : std::vector<int64_t>{1, a};
    item_scalars[i].v.f = double(i % 8) / 8;
    std::vector<float> x(static_cast<size_t>(n)), g(static_cast<size_t>(n));
    for (float& v : x) v = float(rng() % 1000) / 8;
    for (float& v : g) v = float(rng() % 1000) / 8;
    for (int64_t r = 0; r < a; ++r)
      for (int64_t c = 0; c < b; ++c) {
        float v = x[size_t(r * b + c)];
        expected[i].push_back(v - (g[size_t(r * g_strides[i][0] + c * g_strides[i][1])] + v * 0.25f) *
                                      float(item_scalars[i].v.f));
      }
    buffers.push_back(std::make_unique<Buffer>(d, x.data(), x.size() * 4));
    outputs.push_back({buffers.back()->address, sizes[i].data(), x_strides[i].data(), 2, FL_F32, 0, 0});
    inputs.push_back(outputs.back());
    buffers.push_back(std::make_unique<Buffer>(d, g.data(), g.size() * 4));
    inputs.push_back({buffers.back()->address, sizes[i].data(), g_strides[i].data(), 2, FL_F32, 0, 0});
  }
  fl_multi_tensor_args args{&p.program, inputs.data(), outputs.data(), &decay, item_scalars.data(), kItems,
                            1};
  fl_launch l = d.launch();
  CHECK_STATUS(chip->op->multi_tensor(&l, &args), FL_OK);
  for (size_t i = 0; i < kItems; ++i) CHECK(buffers[2 * i]->values<float>(expected[i].size()) == expected[i]);
}

}  // namespace

int main(int argc, char** argv) {
  setenv("FL_SIM_MEMORY", "512M", 1);
  chip = load_chip(argc, argv);
  Device device(chip, 0);
  programs(device);
  joined_steps<float, int32_t>(device, FL_F32, FL_I32);
  joined_steps<double, int64_t>(device, FL_F64, FL_I64);
  multi_tensor(device);
  return report("sim_pointwise_test");
}
