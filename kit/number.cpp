#include "number.h"

#include <cfloat>
#include <cmath>
#include <cstring>

namespace kit {

namespace {

// A binary format of at most 16 bits.
struct SmallFloat {
  int exponent_bits, mantissa_bits, bias;
  bool infinity;       // has infinities; otherwise overflow gives NaN
  bool unsigned_zero;  // "UZ": the pattern of -0 is the only NaN
};

const SmallFloat* small_float(unsigned dtype) {
  static const SmallFloat kF16{5, 10, 15, true, false}, kBf16{8, 7, 127, true, false};
  static const SmallFloat kE4m3fn{4, 3, 7, false, false}, kE5m2{5, 2, 15, true, false};
  static const SmallFloat kE4m3fnuz{4, 3, 8, false, true}, kE5m2fnuz{5, 2, 16, false, true};
  switch (dtype) {
    case FL_F16:
    case FL_C32:
      return &kF16;
    case FL_BF16:
      return &kBf16;
    case FL_F8_E4M3FN:
      return &kE4m3fn;
    case FL_F8_E5M2:
      return &kE5m2;
    case FL_F8_E4M3FNUZ:
      return &kE4m3fnuz;
    case FL_F8_E5M2FNUZ:
      return &kE5m2fnuz;
    default:
      return nullptr;
  }
}

real decode(const SmallFloat& f, unsigned bits) {
  unsigned sign = bits >> (f.exponent_bits + f.mantissa_bits) & 1;
  int exponent = static_cast<int>(bits >> f.mantissa_bits & ((1u << f.exponent_bits) - 1));
  unsigned mantissa = bits & ((1u << f.mantissa_bits) - 1);
  int top = (1 << f.exponent_bits) - 1;
  if (f.unsigned_zero && sign && exponent == 0 && mantissa == 0) return NAN;
  if (f.infinity && exponent == top) return mantissa ? NAN : sign ? -kInfinity : kInfinity;
  if (!f.infinity && !f.unsigned_zero && exponent == top && mantissa == (1u << f.mantissa_bits) - 1)
    return NAN;
  real value = exponent ? std::ldexp(1 + std::ldexp(real(mantissa), -f.mantissa_bits), exponent - f.bias)
                        : std::ldexp(real(mantissa), 1 - f.bias - f.mantissa_bits);
  return sign ? -value : value;
}

real largest_of(const SmallFloat& f) {
  unsigned top = (1u << (f.exponent_bits + f.mantissa_bits)) - 1;
  if (f.infinity) top = (((1u << f.exponent_bits) - 1) << f.mantissa_bits) - 1;
  else if (!f.unsigned_zero) top -= 1;
  return decode(f, top);
}

unsigned encode(const SmallFloat& f, real x) {
  unsigned sign = std::signbit(x) ? 1u << (f.exponent_bits + f.mantissa_bits) : 0;
  unsigned nan = f.unsigned_zero ? 1u << (f.exponent_bits + f.mantissa_bits)
                                 : (1u << (f.exponent_bits + f.mantissa_bits)) -
                                       (f.infinity ? 1u << (f.mantissa_bits - 1) : 1u);
  if (std::isnan(x)) return nan;
  unsigned overflow = f.infinity ? sign | ((1u << f.exponent_bits) - 1) << f.mantissa_bits : nan;
  if (std::isinf(x)) return overflow;
  real a = std::fabs(x);
  if (a == 0) return f.unsigned_zero ? 0 : sign;
  int exponent = std::max(std::ilogb(a), 1 - f.bias);
  real units = std::nearbyint(std::ldexp(a, f.mantissa_bits - exponent));  // ties to even
  real value = std::ldexp(units, exponent - f.mantissa_bits);
  if (value > largest_of(f)) return overflow;
  if (value == 0) return f.unsigned_zero ? 0 : sign;
  exponent = std::max(std::ilogb(value), 1 - f.bias);
  unsigned whole = static_cast<unsigned>(std::ldexp(value, f.mantissa_bits - exponent));
  // The hidden one carries into the exponent field; subnormals have none.
  return sign | (whole + (static_cast<unsigned>(exponent + f.bias - 1) << f.mantissa_bits));
}

template <class T>
T get(const void* p) {
  T v;
  memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
void put(void* p, T v) {
  memcpy(p, &v, sizeof v);
}

real read_real(unsigned dtype, const char* p) {
  switch (dtype) {
    case FL_F32:
      return get<float>(p);
    case FL_F64:
      return get<double>(p);
    default:
      break;
  }
  const SmallFloat* f = small_float(dtype);
  return decode(*f, dtype_size(dtype) == 1 ? get<uint8_t>(p) : get<uint16_t>(p));
}

void write_real(unsigned dtype, real v, char* p) {
  switch (dtype) {
    case FL_F32:
      put(p, static_cast<float>(v));
      return;
    case FL_F64:
      put(p, static_cast<double>(v));
      return;
    default:
      break;
  }
  unsigned bits = encode(*small_float(dtype), v);
  if (dtype_size(dtype) == 1) put(p, static_cast<uint8_t>(bits));
  else put(p, static_cast<uint16_t>(bits));
}

}  // namespace

bool is_integer(unsigned dtype) { return dtype >= FL_BOOL && dtype <= FL_I64; }
bool is_complex(unsigned dtype) { return dtype >= FL_C32 && dtype <= FL_C128; }
bool is_real(unsigned dtype) { return !is_integer(dtype) && !is_complex(dtype); }
unsigned component(unsigned dtype) {
  switch (dtype) {
    case FL_C32:
      return FL_F16;
    case FL_C64:
      return FL_F32;
    case FL_C128:
      return FL_F64;
    default:
      return dtype;
  }
}

Number read(unsigned dtype, const void* from) {
  const char* p = static_cast<const char*>(from);
  switch (dtype) {
    case FL_BOOL:
      return Number::integer(get<uint8_t>(p) != 0);
    case FL_U8:
      return Number::integer(get<uint8_t>(p));
    case FL_I8:
      return Number::integer(get<int8_t>(p));
    case FL_U16:
      return Number::integer(get<uint16_t>(p));
    case FL_I16:
      return Number::integer(get<int16_t>(p));
    case FL_U32:
      return Number::integer(get<uint32_t>(p));
    case FL_I32:
      return Number::integer(get<int32_t>(p));
    case FL_U64:
    case FL_I64:
      return Number::integer(get<int64_t>(p));
    default:
      break;
  }
  if (!is_complex(dtype)) return Number::floating(read_real(dtype, p));
  unsigned part = component(dtype);
  return Number::complex({read_real(part, p), read_real(part, p + dtype_size(part))});
}

void write(unsigned dtype, Number v, void* to) {
  char* p = static_cast<char*>(to);
  if (dtype == FL_BOOL) put(p, static_cast<uint8_t>(v.i != 0));
  else if (is_integer(dtype)) memcpy(p, &v.i, dtype_size(dtype));  // little-endian: the low bits
  else if (!is_complex(dtype)) write_real(dtype, v.re, p);
  else {
    unsigned part = component(dtype);
    write_real(part, v.re, p);
    write_real(part, v.im, p + dtype_size(part));
  }
}

Number rounded(unsigned dtype, Number value) {
  char bytes[16];
  write(dtype, value, bytes);
  return read(dtype, bytes);
}

Number converted(Number v, unsigned from, unsigned to) {
  Number r;
  if (to == FL_BOOL) {
    r.i = is_integer(from) ? v.i != 0 : !(v.re == 0 && v.im == 0);
  } else if (is_integer(to)) {
    r.i = is_integer(from) ? v.i : std::fabs(v.re) < 0x1p63L ? static_cast<int64_t>(v.re) : INT64_MIN;
  } else {
    r.re = is_integer(from) ? real(v.i) : v.re;
    r.im = is_complex(to) ? v.im : 0;
  }
  return rounded(to, r);
}

real smallest_normal(unsigned dtype) {
  switch (component(dtype)) {
    case FL_F32:
      return FLT_MIN;
    case FL_F64:
      return DBL_MIN;
    default:
      return std::ldexp(1.0L, 1 - small_float(component(dtype))->bias);
  }
}

real largest(unsigned dtype) {
  switch (component(dtype)) {
    case FL_F32:
      return FLT_MAX;
    case FL_F64:
      return DBL_MAX;
    default:
      return largest_of(*small_float(component(dtype)));
  }
}

real ulp(unsigned dtype, real x) {
  unsigned part = component(dtype);
  int digits = part == FL_F32 ? 23 : part == FL_F64 ? 52 : small_float(part)->mantissa_bits;
  real a = std::max(std::fabs(x), smallest_normal(part));
  return std::ldexp(1.0L, std::ilogb(a) - digits);
}

std::string to_text(unsigned dtype, Number v) {
  if (is_integer(dtype)) return std::to_string(v.i);
  if (is_complex(dtype)) return text("%.9Lg%+.9Lgi", v.re, v.im);
  return text("%.9Lg", v.re);
}

namespace {

bool close_real(unsigned dtype, real got, real want, Tolerance t, real scale) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  bool exact = t.ulps == 0 && t.relative == 0 && t.absolute == 0;
  if (exact) want = rounded(dtype, Number::floating(want)).re;
  if (got == want) return true;
  if (std::isinf(want)) return std::isinf(got) && got == want;
  real limit = std::max({t.absolute, t.relative * scale, t.ulps * ulp(dtype, scale)});
  if (std::isinf(got))
    return !exact && std::fabs(want) + limit >= largest(dtype) && std::signbit(got) == std::signbit(want);
  if (std::fabs(got - want) <= limit) return true;
  // Subnormals may be flushed.
  return std::fabs(want) < smallest_normal(dtype) && std::fabs(got) <= smallest_normal(dtype);
}

}  // namespace

bool close(unsigned dtype, Number got, Number want, Tolerance t) {
  if (is_integer(dtype)) return got.i == rounded(dtype, want).i;
  if (!is_complex(dtype)) return close_real(dtype, got.re, want.re, t, std::fabs(want.re));
  unsigned part = component(dtype);
  real scale = std::max(std::fabs(want.re), std::fabs(want.im));
  return close_real(part, got.re, want.re, t, scale) && close_real(part, got.im, want.im, t, scale);
}

uint64_t Random::next() {
  uint64_t z = (state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

int64_t Random::between(int64_t low, int64_t high) {
  uint64_t span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;
  return static_cast<int64_t>(static_cast<uint64_t>(low) + (span ? next() % span : next()));
}

real Random::uniform(real low, real high) { return low + (high - low) * std::ldexp(real(next() >> 11), -53); }

int64_t product(const std::vector<int64_t>& sizes) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return n;
}

std::vector<int64_t> coordinates(int64_t i, const std::vector<int64_t>& sizes) {
  std::vector<int64_t> at(sizes.size());
  for (size_t d = sizes.size(); d-- > 0; i /= sizes[d]) at[d] = i % sizes[d];
  return at;
}

int64_t broadcast_index(const std::vector<int64_t>& at, const std::vector<int64_t>& sizes) {
  int64_t i = 0;
  for (size_t d = 0; d < sizes.size(); ++d) i = i * sizes[d] + (sizes[d] == 1 ? 0 : at[d]);
  return i;
}

std::string shape_text(const std::vector<int64_t>& sizes) {
  std::string s = "[";
  for (size_t d = 0; d < sizes.size(); ++d) s += (d ? ", " : "") + std::to_string(sizes[d]);
  return s + "]";
}

Array::Array(unsigned dtype_, std::vector<int64_t> sizes_) : dtype(dtype_), sizes(std::move(sizes_)) {
  bytes.resize(static_cast<size_t>(numel()) * dtype_size(dtype));
}

int64_t Array::numel() const { return product(sizes); }

Array Array::random(Random& random, unsigned dtype, std::vector<int64_t> sizes, real low, real high) {
  Array a(dtype, std::move(sizes));
  bool no_sign = dtype == FL_BOOL || dtype == FL_U8 || dtype == FL_U16 || dtype == FL_U32 || dtype == FL_U64;
  for (int64_t i = 0, n = a.numel(); i < n; ++i) {
    Number v;
    if (is_integer(dtype)) {
      int64_t from = static_cast<int64_t>(std::ceil(low)), to = static_cast<int64_t>(std::floor(high));
      v.i = dtype == FL_BOOL ? random.between(0, 1)
                             : random.between(no_sign ? std::max<int64_t>(0, from) : from, to);
    } else {
      v.re = random.uniform(low, high);
      v.im = is_complex(dtype) ? random.uniform(low, high) : 0;
    }
    a.set(i, v);
  }
  return a;
}

Array Array::wild(Random& random, unsigned dtype, std::vector<int64_t> sizes) {
  static const real kSpecial[] = {0.0L, -0.0L, 1, -1, kInfinity, -kInfinity, NAN, 0.5L, -2};
  Array a(dtype, std::move(sizes));
  auto one = [&]() -> real {
    unsigned kind = random.next() % 4;
    if (kind == 0) return kSpecial[random.next() % 9];
    if (kind == 1) return random.uniform(-10, 10);
    // Any exponent of the format, normal numbers only.
    real high = std::log2(largest(dtype)), low = std::log2(smallest_normal(dtype));
    real v = std::exp2(random.uniform(low + 1, high - 1));
    return random.next() & 1 ? v : -v;
  };
  for (int64_t i = 0, n = a.numel(); i < n; ++i) {
    Number v;
    if (is_integer(dtype)) {
      int bits = static_cast<int>(dtype_size(dtype) * 8);
      unsigned kind = random.next() % 4;
      int64_t top = bits == 64 ? INT64_MAX : (int64_t{1} << (bits - 1)) - 1;
      v.i = dtype == FL_BOOL ? random.between(0, 1)
            : kind == 0      ? random.between(-3, 3)
            : kind == 1      ? top - random.between(0, 2)
            : kind == 2      ? -top - random.between(0, 1)
                             : static_cast<int64_t>(random.next());
    } else {
      v.re = one();
      v.im = is_complex(dtype) ? one() : 0;
    }
    a.set(i, v);
  }
  return a;
}

void expect_close(const Array& got, const std::vector<Number>& want, Tolerance tolerance,
                  const std::string& what) {
  int64_t bad = 0, first = 0;
  for (int64_t i = 0, n = got.numel(); i < n; ++i)
    if (!close(got.dtype, got.at(i), want[i], tolerance) && bad++ == 0) first = i;
  if (!bad) return;
  fail("%s: %lld of %lld elements differ; at %s got %s, want %s", what.c_str(), static_cast<long long>(bad),
       static_cast<long long>(got.numel()), shape_text(coordinates(first, got.sizes)).c_str(),
       to_text(got.dtype, got.at(first)).c_str(), to_text(got.dtype, want[first]).c_str());
}

}  // namespace kit
