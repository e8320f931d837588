#include "program/lower.h"

#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>
#include <numbers>

#include "chip/error.h"
#include "program/expansions.h"
#include "program/expr.h"

namespace fl {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

bool is_complex(uint8_t type) { return type == FL_C32 || type == FL_C64 || type == FL_C128; }
uint8_t part_type(uint8_t complex) {
  return complex == FL_C32 ? uint8_t{FL_F16} : complex == FL_C64 ? uint8_t{FL_F32} : uint8_t{FL_F64};
}

// How a floating dtype lies in an integer of `dtype`.
struct Format {
  uint8_t floating, dtype;
  int exponent, mantissa;  // bits
};
constexpr Format kFormats[] = {{FL_F16, FL_I16, 5, 10}, {FL_BF16, FL_I16, 8, 7}, {FL_F64, FL_I64, 11, 52}};
const Format* format_of(uint8_t dtype) {
  for (const Format& f : kFormats)
    if (f.floating == dtype) return &f;
  return nullptr;
}
uint8_t signed_like(uint8_t dtype) {
  return dtype == FL_U16   ? uint8_t{FL_I16}
         : dtype == FL_U32 ? uint8_t{FL_I32}
         : dtype == FL_U64 ? uint8_t{FL_I64}
                           : dtype;
}

Expr bits_like(Expr x, uint64_t bits) { return {x.b, x.b->literal(bits, x.type())}; }

// From the bits of a floating number in an integer register to F32, and back; both round once.
Expr decode(Expr bits, const Format& f) {
  double one = std::ldexp(1.0, f.mantissa);
  int most = (1 << f.exponent) - 1, bias = most / 2;
  Expr exponent = apply(FL_OP_SHR, bits, bits.like(f.mantissa)) & double(most), low = bits & (one - 1);
  Expr whole = select(exponent == 0, low, low + one).cast(FL_F32);
  Expr power = max(exponent, 1) - double(bias + f.mantissa);
  Expr value = times_power(whole, max(min(power, 255), -255).cast(FL_I32));
  Expr special = select(low == 0, value.like(kInf), value.like(std::numeric_limits<double>::quiet_NaN()));
  value = select(exponent == most, special, value);
  return select(bits < 0, -value, value);
}
Expr encode(Expr x, const Format& f) {
  int most = (1 << f.exponent) - 1, bias = most / 2, least = 1 - bias;
  uint8_t type = register_type(f.dtype);
  double one = std::ldexp(1.0, f.mantissa);
  Expr size = abs(x), digits, exponent;
  normalise(size, digits, exponent);
  if (f.mantissa >= 23) {
    digits = (digits * 0x1p23).cast(type) * std::ldexp(1.0, f.mantissa - 23);
  } else {  // below `least` the step stays the same
    digits = round(select(exponent < least, size * std::ldexp(one, -least), digits * one)).cast(type);
    exponent = max(exponent, least);
  }
  Expr bits = (exponent.cast(type) + double(bias)) * one + (digits - one),
       infinite = bits_like(bits, uint64_t(most) << f.mantissa);
  bits = select(size == 0, bits.like(0),
                select((exponent > bias) | (size == kInf) | (bits > infinite), infinite, bits));
  bits = select(is_nan(x), infinite + one / 2, bits);
  Expr sign = bits_like(bits, ~uint64_t{0} << (f.exponent + f.mantissa));
  return select(apply(FL_OP_COPYSIGN, x.like(1), x) < 0, bits | sign, bits);
}

// Between I64 and the bits of an F64.
Expr encode_integer(Expr v) {
  Expr m = abs(v), exponent = v.like(1023 + 63);
  for (int shift = 32; shift; shift /= 2) {  // until the top bit is set
    Expr small = apply(FL_OP_SHR, m, m.like(64 - shift)) == 0;
    m = select(small, apply(FL_OP_SHL, m, m.like(shift)), m);
    exponent = select(small, exponent - double(shift), exponent);
  }
  Expr digits = apply(FL_OP_SHR, m, m.like(11)) & (0x1p53 - 1), rest = m & 2047.0;
  Expr up = (rest > 1024) | ((rest == 1024) & ((digits & 1.0) == 1));
  Expr bits = (exponent - 1.0) * 0x1p52 + digits + up.cast(FL_I64);
  return select(v == 0, v, select(v < 0, bits | bits_like(bits, uint64_t{1} << 63), bits));
}
Expr decode_integer(Expr bits) {
  Expr power = (apply(FL_OP_SHR, bits, bits.like(52)) & 2047.0) - 1075.0, m = (bits & (0x1p52 - 1)) | 0x1p52;
  Expr value = select(power < 0, apply(FL_OP_SHR, m, -power), apply(FL_OP_SHL, m, power));
  return select(bits < 0, -value, value);
}

struct Z {
  Expr re, im;
};
Z operator*(Z x, Z y) { return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re}; }
Z operator*(Z x, double y) { return {x.re * y, x.im * y}; }
// Both parts of the divisor are scaled, so that their squares neither overflow nor vanish.
Z operator/(Z x, Z y) {
  Expr scale = max(abs(y.re), abs(y.im)), c = y.re / scale, d = y.im / scale, square = c * c + d * d;
  return {(x.re * c + x.im * d) / square / scale, (x.im * c - x.re * d) / square / scale};
}
Expr size_of(Z z) { return apply(FL_OP_HYPOT, z.re, z.im); }
Expr angle_of(Z z) { return apply(FL_OP_ATAN2, z.im, z.re); }
Z exp(Z z) {
  Expr size = exp(z.re);
  return {size * cos(z.im), select(z.im == 0, z.im, size * sin(z.im))};
}
Z log(Z z) { return {log(size_of(z)), angle_of(z)}; }
Z sqrt(Z z) {
  Expr half = sqrt((size_of(z) + abs(z.re)) * 0.5), other = select(half == 0, z.im, z.im / (half + half));
  Expr left = z.re < 0;
  return {select(left, abs(other), half), select(left, apply(FL_OP_COPYSIGN, half, z.im), other)};
}
Z one_of(Z z) { return {z.re.like(1), z.re.like(0)}; }
Z sinh(Z z) { return {apply(FL_OP_SINH, z.re) * cos(z.im), apply(FL_OP_COSH, z.re) * sin(z.im)}; }
Z cosh(Z z) { return {apply(FL_OP_COSH, z.re) * cos(z.im), apply(FL_OP_SINH, z.re) * sin(z.im)}; }
// sinh 2a + i sin 2b over cosh 2a + cos 2b, without its overflow for a large a.
Z tanh(Z z) {
  Expr t = tanh(z.re), s = sin(z.im), c = cos(z.im), steep = 1.0 - t * t, far = exp(abs(z.re) * -2.0) * 4.0;
  Expr below = c * c + s * s * (t * t), large = abs(z.re) > 9;
  return {select(large, t, t / below), select(large, far, steep / below) * (s * c)};
}
Z turned(Z z) { return {-z.im, z.re}; }    // × i
Z unturned(Z z) { return {z.im, -z.re}; }  // ÷ i

// One opcode over complex numbers as pairs.  Comparisons give BOOL in the real part.
bool over_pairs(uint16_t op, Z x, Z y, Z& out) {
  Expr zero = x.re.like(0);
  switch (op) {
    case FL_OP_ADD:
      return out = {x.re + y.re, x.im + y.im}, true;
    case FL_OP_SUB:
      return out = {x.re - y.re, x.im - y.im}, true;
    case FL_OP_MUL:
      return out = x * y, true;
    case FL_OP_DIV:
      return out = x / y, true;
    case FL_OP_POW:
      return out = exp(y * log(x)), true;
    case FL_OP_EQ:
      return out.re = (x.re == y.re) & (x.im == y.im), true;
    case FL_OP_NE:
      return out.re = (x.re != y.re) | (x.im != y.im), true;
    case FL_OP_NEG:
      return out = {-x.re, -x.im}, true;
    case FL_OP_CONJ:
      return out = {x.re, -x.im}, true;
    case FL_OP_REAL:
      return out = {x.re, zero}, true;
    case FL_OP_IMAG:
      return out = {x.im, zero}, true;
    case FL_OP_COMPLEX:
      return out = {x.re, y.re}, true;
    case FL_OP_ABS:
      return out = {size_of(x), zero}, true;
    case FL_OP_ANGLE:
      return out = {angle_of(x), zero}, true;
    case FL_OP_SIGN: {
      Expr size = size_of(x), none = size == 0;
      return out = {select(none, zero, x.re / size), select(none, zero, x.im / size)}, true;
    }
    case FL_OP_RECIPROCAL:
      return out = one_of(x) / x, true;
    case FL_OP_SQRT:
      return out = sqrt(x), true;
    case FL_OP_RSQRT:
      return out = one_of(x) / sqrt(x), true;
    case FL_OP_EXP:
      return out = exp(x), true;
    case FL_OP_EXP2:
      return out = exp(x * std::numbers::ln2), true;
    case FL_OP_LOG:
      return out = log(x), true;
    case FL_OP_LOG2:
      return out = log(x) * std::numbers::log2e, true;
    case FL_OP_LOG10:
      return out = log(x) * std::numbers::log10e, true;
    case FL_OP_SIGMOID: {
      Z e = exp(Z{-x.re, -x.im});
      return out = one_of(x) / Z{e.re + 1.0, e.im}, true;
    }
    case FL_OP_SINH:
      return out = sinh(x), true;
    case FL_OP_COSH:
      return out = cosh(x), true;
    case FL_OP_TANH:
      return out = tanh(x), true;
    case FL_OP_SIN:
      return out = unturned(sinh(turned(x))), true;
    case FL_OP_COS:
      return out = cosh(turned(x)), true;
    case FL_OP_TAN:
      return out = unturned(tanh(turned(x))), true;
    default:
      return false;
  }
}

// Rewrites one program; throws Error where it cannot.
class Lowering {
 public:
  Lowering(const Chip& chip, const fl_program& program) : chip_(chip), from_(program) {}
  Lowered run() {
    for (int i = 0; i < from_.n_code; ++i) values_[i] = rewrite(from_.code[i]);
    out_.program = b_.finish();
    if (!runs_on(chip_, *out_.program)) refuse("it needs what the chip does not claim");
    return out_;
  }

 private:
  // A value of the original: its type there, and what stands for it.
  struct Number {
    Value re{}, im{};
    uint8_t type = FL_NONE;
  };

  [[noreturn]] static void refuse(const char* why) { throw Error(FL_UNSUPPORTED, why); }
  bool has(uint8_t type) const { return chip_.claims(FL_ENTRY_POINTWISE, FL_OP_LOAD, type); }
  bool in_memory(uint8_t dtype) const { return chip_.claims(FL_ENTRY_COPY, FL_ANY, dtype); }
  bool paired(uint8_t type) const { return is_complex(type) && !has(type); }
  bool as_bits(uint8_t type) const { return type == FL_F64 && !has(FL_F64); }
  Expr of(Value v) { return {&b_, v}; }

  int operand(Lowered::Part* list, int& count, int limit, Lowered::Part part) {
    for (int i = 0; i < count; ++i)
      if (list[i].from == part.from && list[i].part == part.part) return i;
    if (count == limit) refuse("too many operands");
    list[count] = part;
    return count++;
  }

  // ------------------------------------------------------------ conversions
  Value real_to(Value v, uint8_t from, uint8_t to) {
    if (from == to) return v;
    if (as_bits(to)) {
      if (from == FL_F32) return encode(of(v), *format_of(FL_F64)).v;
      return encode_integer(of(v).cast(FL_I64)).v;
    }
    if (!as_bits(from)) return b_.cast(v, to);
    if (to == FL_F32) return decode(of(v), *format_of(FL_F64)).v;
    if (to == FL_BOOL) return (of(v) + of(v) != 0).v;
    return b_.cast(decode_integer(of(v)).v, to);
  }
  Value zero_of(uint8_t type) { return as_bits(type) ? b_.constant(0, FL_I64) : b_.constant(0, type); }
  Number to(Number v, uint8_t type) {
    if (v.type == type) return v;
    if (!paired(v.type) && !paired(type)) {
      if (is_complex(v.type) || is_complex(type)) return {b_.cast(v.re, type), {}, type};
      return {real_to(v.re, v.type, type), {}, type};
    }
    uint8_t from = is_complex(v.type) ? part_type(v.type) : v.type;
    if (is_complex(type)) {
      uint8_t part = part_type(type);
      return {real_to(v.re, from, part), is_complex(v.type) ? real_to(v.im, from, part) : zero_of(part),
              type};
    }
    Value re = real_to(v.re, from, type);
    if (type == FL_BOOL) re = b_.op(FL_OP_OR, re, real_to(v.im, from, FL_BOOL));
    return {re, {}, type};
  }

  // ----------------------------------------------------------------- memory
  // Input `from`, or a part of it, which is `memory`, in its register type.
  Number load_real(uint8_t from, uint8_t part, uint8_t memory) {
    const Format* format = in_memory(memory) ? nullptr : format_of(memory);
    uint8_t dtype = format ? format->dtype : in_memory(memory) ? memory : signed_like(memory);
    uint8_t type = register_type(memory);
    int input = operand(out_.inputs, n_inputs_, FL_MAX_INPUTS, {from, part, dtype});
    Value v = b_.load(input, dtype, as_bits(type) ? uint8_t{FL_I64} : format ? register_type(dtype) : type);
    if (format && type == FL_F32) v = decode(of(v), *format).v;
    if (dtype == FL_I16 && memory == FL_U16) v = (of(v) & 65535.0).v;
    if (dtype == FL_I32 && memory == FL_U32) v = (of(v) & 4294967295.0).v;
    return {v, {}, type};
  }
  Number load(const fl_instr& i) {
    auto from = static_cast<uint8_t>(i.a);
    if (in_memory(i.memory) && has(i.type) && has(register_type(i.memory))) {
      int input = operand(out_.inputs, n_inputs_, FL_MAX_INPUTS, {from, 0, i.memory});
      return {b_.load(input, i.memory, i.type), {}, i.type};
    }
    if (!is_complex(i.memory)) return to(load_real(from, 0, i.memory), i.type);
    uint8_t part = part_type(i.memory);
    Number re = load_real(from, 1, part), im = load_real(from, 2, part);
    if (has(register_type(i.memory))) refuse("a complex register of parts");
    return to({re.re, im.re, register_type(i.memory)}, i.type);
  }
  void store_real(uint8_t to_output, uint8_t part, Number v, uint8_t memory) {
    const Format* format = in_memory(memory) ? nullptr : format_of(memory);
    uint8_t dtype = format ? format->dtype : in_memory(memory) ? memory : signed_like(memory);
    uint8_t type = register_type(memory);
    uint8_t from = paired(v.type) ? part_type(v.type) : v.type;
    if (as_bits(from) && memory != FL_F32 && type == FL_F32) refuse("it would be rounded twice");
    Value value = to(v, type).re;
    if (format && type == FL_F32) value = encode(of(value), *format).v;
    b_.store(operand(out_.outputs, n_outputs_, FL_MAX_OUTPUTS, {to_output, part, dtype}), value, dtype);
  }
  void store(const fl_instr& i) {
    auto output = static_cast<uint8_t>(i.b);
    Number v = values_[i.a];
    if (in_memory(i.memory) && has(v.type) && has(register_type(i.memory))) {
      b_.store(operand(out_.outputs, n_outputs_, FL_MAX_OUTPUTS, {output, 0, i.memory}), v.re, i.memory);
    } else if (!is_complex(i.memory)) {
      store_real(output, 0, v, i.memory);
    } else {
      uint8_t type = register_type(i.memory), part = part_type(i.memory);
      if (has(type)) refuse("a complex register of parts");
      v = to(v, type);
      store_real(output, 1, {v.re, {}, part_type(type)}, part);
      store_real(output, 2, {v.im, {}, part_type(type)}, part);
    }
  }

  // ----------------------------------------------------------- instructions
  Value scalar(const fl_instr& i, uint8_t part, uint8_t type) {
    auto from = static_cast<uint8_t>(i.a);
    int n = operand(out_.scalars, n_scalars_, FL_MAX_SCALARS, {from, part, FL_NONE});
    return b_.scalar(n, as_bits(type) ? uint8_t{FL_I64} : type);  // the same bits
  }
  Value literal(const fl_instr& i, uint8_t type) {
    uint64_t bits = i.a | uint64_t{i.b} << 16 | uint64_t{i.c} << 32 | static_cast<uint64_t>(i.reserved) << 48;
    return b_.literal(bits, as_bits(type) ? uint8_t{FL_I64} : type);
  }
  Number rewrite(const fl_instr& i) {
    uint8_t part = is_complex(i.type) ? part_type(i.type) : i.type;
    switch (i.op) {
      case FL_OP_LOAD:
        return load(i);
      case FL_OP_STORE:
        return store(i), Number{};
      case FL_OP_SCALAR:
        if (!paired(i.type)) return {scalar(i, 0, i.type), {}, i.type};
        return {scalar(i, 1, part), scalar(i, 2, part), i.type};
      case FL_OP_CONST:
        if (!paired(i.type)) return {literal(i, i.type), {}, i.type};
        return {literal(i, part), zero_of(part), i.type};
      case FL_OP_INDEX:
        return {b_.index(i.a == 0xffff ? -1 : i.a, i.type), {}, i.type};
      case FL_OP_CAST:
        return to(values_[i.a], i.type);
      case FL_OP_SELECT: {
        Number yes = values_[i.b], no = values_[i.c], v{{}, {}, i.type};
        v.re = b_.select(values_[i.a].re, yes.re, no.re);
        if (paired(i.type)) v.im = b_.select(values_[i.a].re, yes.im, no.im);
        return v;
      }
      default:
        return compute(i);
    }
  }
  Number compute(const fl_instr& i) {
    bool comparison = i.op >= FL_OP_EQ && i.op <= FL_OP_GE;
    uint8_t type = comparison ? uint8_t{FL_BOOL} : i.type;
    int n = operands_of(i.op);
    Number x = values_[i.a], y = n > 1 ? values_[i.b] : x, z = n > 2 ? values_[i.c] : x;
    if (paired(i.type)) {
      if (as_bits(part_type(i.type))) refuse("arithmetic in float64");
      Z result{};
      if (!over_pairs(i.op, {of(x.re), of(x.im)}, {of(y.re), of(y.im)}, result))
        refuse("no formula over pairs");
      return {result.re.v, comparison ? Value{} : result.im.v, type};
    }
    if (as_bits(i.type)) refuse("arithmetic in float64");
    if (chip_.claims(FL_ENTRY_POINTWISE, i.op, i.type)) {
      Value v = n == 1 ? b_.op(i.op, x.re) : n == 2 ? b_.op(i.op, x.re, y.re) : b_.op(i.op, x.re, y.re, z.re);
      return {v, {}, type};
    }
    Expr result = expand(i.op, of(x.re), of(y.re), of(z.re));
    if (!result.b) refuse("no expansion");
    return {result.v, {}, type};
  }

  const Chip& chip_;
  const fl_program& from_;
  Builder b_;
  Lowered out_{};
  int n_inputs_ = 0, n_outputs_ = 0, n_scalars_ = 0;
  Number values_[FL_MAX_CODE];
};

// What was made of a program for a chip: a list a bucket, which only grows.
struct Entry {
  const Chip* chip;
  const fl_program* program;
  const Lowered* lowered;
  Entry* next;
};
constexpr size_t kBuckets = 256;
std::atomic<Entry*> buckets[kBuckets];

}  // namespace

bool runs_on(const Chip& chip, const fl_program& program) noexcept {
  for (unsigned i = 0; i < program.n_code; ++i) {
    const fl_instr& o = program.code[i];
    if (!chip.claims(FL_ENTRY_POINTWISE, o.op, o.type)) return false;
    if (o.op <= FL_OP_STORE && !chip.claims(FL_ENTRY_COPY, FL_ANY, o.memory)) return false;
  }
  return true;
}

const Lowered* lower(const Chip& chip, const fl_program& program) {
  std::atomic<Entry*>& bucket = buckets[program.hash % kBuckets];
  for (Entry* e = bucket.load(std::memory_order_acquire); e; e = e->next)
    if (e->chip == &chip && e->program == &program) return e->lowered;
  const Lowered* made = nullptr;
  try {
    if (!runs_on(chip, program)) made = new Lowered(Lowering(chip, program).run());
  } catch (const Error&) {
    made = nullptr;  // not in these terms, or too long for one program: that is kept, too
  }
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  bucket.store(new Entry{&chip, &program, made, bucket.load(std::memory_order_relaxed)},
               std::memory_order_release);
  return made;
}

}  // namespace fl
