// Building programs: what is interned, what is refused, and what narrow() makes.
#include "program/program.h"

#include <set>
#include <thread>

#include "errors.h"

namespace {

using fl::Builder;
using fl::Value;

const fl_program* add(uint8_t dtype) {
  Builder b;
  Value x = b.load(0, dtype), y = b.load(1, dtype);
  b.store(0, b.op(FL_OP_ADD, x, y), dtype);
  return b.finish();
}

void equal_programs_are_one() {
  const fl_program* p = add(FL_F32);
  CHECK(p == add(FL_F32));
  CHECK(p != add(FL_F64) && p->hash != add(FL_F64)->hash);
  CHECK(add(FL_F16) != add(FL_BF16));
  CHECK(p->n_code == 4 && p->n_inputs == 2 && p->n_outputs == 1 && p->n_scalars == 0);
  CHECK(p->code[2].op == FL_OP_ADD && p->code[2].a == 0 && p->code[2].b == 1);
  CHECK(p->code[3].op == FL_OP_STORE && p->code[3].a == 2 && p->code[3].memory == FL_F32);
  // Chips key what they keep on disk by it: it may not change between releases.
  CHECK_THAT(p->hash == 0xcf0aaeec9b6868daull, "hash is %#llx", static_cast<unsigned long long>(p->hash));
}

void counts_are_part_of_the_hash() {
  auto store_one = [](int input) {
    Builder b;
    b.store(0, b.load(input, FL_F32), FL_F32);
    return b.finish();
  };
  CHECK(store_one(0)->hash != store_one(1)->hash && store_one(1)->n_inputs == 2);
}

void repeated_instructions_are_made_once() {
  Builder b;
  Value x = b.load(0, FL_F32), again = b.load(0, FL_F32);
  CHECK(x.id == again.id);
  CHECK(b.scalar(0, FL_F32).id == b.scalar(0, FL_F32).id);
  CHECK(b.constant(2, FL_F32).id == b.constant(2, FL_F32).id &&
        b.constant(2, FL_F32).id != b.constant(-2, FL_F32).id);
  CHECK(b.constant(0.0, FL_F32).id != b.constant(-0.0, FL_F32).id);
  CHECK(b.cast(x, FL_F32).id == x.id && b.cast(x, FL_I64).type == FL_I64);
}

void register_types() {
  struct {
    int dtype, reg;
  } rows[] = {{FL_BOOL, FL_BOOL}, {FL_U8, FL_I32},    {FL_I16, FL_I32},        {FL_U32, FL_I64},
              {FL_U64, FL_I64},   {FL_F16, FL_F32},   {FL_BF16, FL_F32},       {FL_F64, FL_F64},
              {FL_C32, FL_C64},   {FL_C128, FL_C128}, {FL_F8_E4M3FN, FL_NONE}, {FL_NONE, FL_NONE}};
  for (auto& row : rows) CHECK_THAT(fl::register_type(row.dtype) == row.reg, "dtype %d", row.dtype);
}

void types_are_checked() {
  Builder b;
  Value f = b.load(0, FL_F32), d = b.load(1, FL_F64), i = b.load(2, FL_I32), z = b.load(3, FL_C64);
  CHECK_ERROR(b.op(FL_OP_ADD, f, d), FL_INVALID, "ADD of float32 and float64", "cast");
  CHECK_ERROR(b.op(FL_OP_SQRT, i), FL_INVALID, "SQRT does not take int32");
  CHECK_ERROR(b.op(FL_OP_FLOOR, z), FL_INVALID, "FLOOR does not take complex64");
  CHECK_ERROR(b.op(FL_OP_AND, f, f), FL_INVALID, "AND does not take float32");
  CHECK_ERROR(b.op(FL_OP_REAL, f), FL_INVALID, "REAL does not take float32");
  CHECK_ERROR(b.op(FL_OP_ADD, f), FL_INVALID, "ADD cannot be made from 1 operands");
  CHECK_ERROR(b.op(FL_OP_LOAD, f), FL_INVALID, "LOAD");
  CHECK_ERROR(b.op(FL_OP_COUNT, f), FL_INVALID, "does not exist");
  CHECK_ERROR(b.select(f, f, f), FL_INVALID, "SELECT by float32");
  CHECK_ERROR(b.select(b.op(FL_OP_LT, f, f), f, d), FL_INVALID, "SELECT of float32 and float64");
  CHECK_ERROR(b.load(4, FL_F8_E5M2), FL_INVALID, "float8_e5m2");
  CHECK_ERROR(b.load(4, FL_F32, FL_F16), FL_INVALID, "register type, not float16");
  CHECK_ERROR(b.load(0, FL_F16), FL_INVALID, "input 0 is loaded as float32 and as float16");
  CHECK_ERROR(b.load(FL_MAX_INPUTS, FL_F32), FL_INVALID, "input 8");
  CHECK_ERROR(b.scalar(FL_MAX_SCALARS, FL_F32), FL_INVALID, "scalar 16");
  CHECK_ERROR(b.index(0, FL_F32), FL_INVALID, "INDEX");
  CHECK_ERROR(b.constant(0.5, FL_I32), FL_INVALID, "CONST of int32");
  CHECK_ERROR(b.constant(1e300, FL_I64), FL_INVALID, "CONST of int64");
  CHECK_ERROR(b.narrow(f, FL_I8), FL_INVALID, "narrow() of float32");
  CHECK(b.op(FL_OP_LT, f, f).type == FL_BOOL && b.index(-1, FL_I64).type == FL_I64);
}

void finish_checks_the_whole() {
  CHECK_ERROR(Builder().finish(), FL_INVALID, "nothing is stored");
  Builder b;
  Value x = b.load(0, FL_F32);
  b.store(1, x, FL_F32);
  CHECK_ERROR(b.finish(), FL_INVALID, "an output below 2");
  CHECK_ERROR(b.store(1, x, FL_F32), FL_INVALID, "output 1 is stored twice");
  CHECK_ERROR(b.store(FL_MAX_OUTPUTS, x, FL_F32), FL_INVALID, "output 4");
  b.store(0, x, FL_F16);
  CHECK(b.finish()->n_outputs == 2);

  Builder other;
  other.store(0, Value{7, FL_F32}, FL_F32);
  CHECK_ERROR(other.finish(), FL_INVALID, "another program");

  Builder longest;
  Value v = longest.load(0, FL_F32);
  CHECK_ERROR(for (int i = 0; i < 300; ++i) v = longest.op(FL_OP_ADD, v, v), FL_INVALID, "256 instructions");
}

// Runs the integer instructions that narrow() is made of.
int64_t run(const fl_program* p, int64_t input, int bits) {
  auto wrap = [bits](int64_t v) { return bits == 32 ? static_cast<int32_t>(v) : v; };
  std::vector<int64_t> v(p->n_code);
  int64_t stored = 0;
  for (int i = 0; i < p->n_code; ++i) {
    const fl_instr& c = p->code[i];
    auto u = [&](uint16_t id) { return static_cast<uint64_t>(v[id]); };
    switch (c.op) {
      case FL_OP_LOAD:
        v[i] = wrap(input);
        break;
      case FL_OP_CONST:
        v[i] = wrap(static_cast<int64_t>(c.a | uint64_t{c.b} << 16 | uint64_t{c.c} << 32 |
                                         uint64_t{c.reserved} << 48));
        break;
      case FL_OP_AND:
        v[i] = v[c.a] & v[c.b];
        break;
      case FL_OP_XOR:
        v[i] = v[c.a] ^ v[c.b];
        break;
      case FL_OP_SUB:
        v[i] = wrap(static_cast<int64_t>(u(c.a) - u(c.b)));
        break;
      case FL_OP_STORE:
        stored = v[c.a];
        break;
      default:
        CHECK_THAT(false, "opcode %d", c.op);
    }
  }
  return stored;
}

template <class Narrow>
void narrow_is_storing_and_loading(uint8_t dtype, uint8_t reg, int bits) {
  Builder b;
  b.store(0, b.narrow(b.load(0, reg), dtype), reg);
  const fl_program* p = b.finish();
  for (int64_t x :
       {int64_t{0}, int64_t{1}, int64_t{-1}, int64_t{127}, int64_t{128}, int64_t{255}, int64_t{256},
        int64_t{-128}, int64_t{-129}, int64_t{32768}, int64_t{65535}, int64_t{-32769}, int64_t{2147483647},
        int64_t{2147483648}, int64_t{4294967295}, int64_t{-2147483648}, INT64_MAX, INT64_MIN}) {
    int64_t given = bits == 32 ? static_cast<int32_t>(x) : x;
    int64_t got = run(p, given, bits);
    CHECK_THAT(got == static_cast<int64_t>(static_cast<Narrow>(given)), "dtype %d of %lld is %lld", dtype,
               static_cast<long long>(given), static_cast<long long>(got));
  }
}

void many_threads_get_one_program() {
  std::vector<std::thread> threads;
  std::vector<const fl_program*> got(8);
  for (size_t t = 0; t < got.size(); ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        Builder b;
        b.store(0, b.op(FL_OP_MUL, b.load(0, FL_F32), b.constant(i, FL_F32)), FL_F32);
        got[t] = b.finish();
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(std::set<const fl_program*>(got.begin(), got.end()).size() == 1);
}

}  // namespace

int main() {
  equal_programs_are_one();
  counts_are_part_of_the_hash();
  repeated_instructions_are_made_once();
  register_types();
  types_are_checked();
  finish_checks_the_whole();
  narrow_is_storing_and_loading<uint8_t>(FL_U8, FL_I32, 32);
  narrow_is_storing_and_loading<int8_t>(FL_I8, FL_I32, 32);
  narrow_is_storing_and_loading<uint16_t>(FL_U16, FL_I32, 32);
  narrow_is_storing_and_loading<int16_t>(FL_I16, FL_I32, 32);
  narrow_is_storing_and_loading<int32_t>(FL_I32, FL_I32, 32);
  narrow_is_storing_and_loading<uint8_t>(FL_U8, FL_I64, 64);
  narrow_is_storing_and_loading<int8_t>(FL_I8, FL_I64, 64);
  narrow_is_storing_and_loading<uint32_t>(FL_U32, FL_I64, 64);
  narrow_is_storing_and_loading<int32_t>(FL_I32, FL_I64, 64);
  narrow_is_storing_and_loading<int64_t>(FL_U64, FL_I64, 64);
  many_threads_get_one_program();
  return check::result();
}
