#include "simd/convert.h"

#include <array>
#include <type_traits>

#include "fl/ops.h"
#include "simd/half.h"

namespace sim::SIM_ISA {
namespace {

struct Bool {
  uint8_t bits;
};
struct Pair64 {
  uint64_t a, b;
};

template <class To, class From>
SIM_INLINE To convert_one(From x) {
  if constexpr (std::is_same_v<To, From>) return x;
  else if constexpr (std::is_same_v<From, Half> || std::is_same_v<From, BFloat>)
    return convert_one<To>(to_float(x));
  else if constexpr (std::is_same_v<From, Bool>) return convert_one<To>(uint8_t(x.bits != 0));
  else if constexpr (std::is_same_v<To, Bool>) return {uint8_t(x != From(0))};
  else if constexpr (std::is_same_v<To, Half>) return to_half(float(x));
  else if constexpr (std::is_same_v<To, BFloat>) return to_bfloat(float(x));
  else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To> && sizeof(To) < 8)
    return static_cast<To>(static_cast<int64_t>(x));
  else return static_cast<To>(x);
}

template <class T>
T take(const char* p) {
  T x;
  std::memcpy(&x, p, sizeof x);
  return x;
}

template <class From, class To>
void convert(const char* from, int64_t from_stride, char* to, int64_t to_stride, int64_t n) {
  constexpr bool widens =
      (std::is_same_v<From, Half> || std::is_same_v<From, BFloat>) && std::is_same_v<To, float>;
  constexpr bool narrows =
      (std::is_same_v<To, Half> || std::is_same_v<To, BFloat>) && std::is_same_v<From, float>;
  if (from_stride == sizeof(From) && to_stride == sizeof(To)) {
    const From* f = reinterpret_cast<const From*>(from);
    To* t = reinterpret_cast<To*>(to);
    // The run may be converted onto itself (an output that is its input).
    if constexpr (std::is_same_v<From, To> && !std::is_same_v<From, Bool>)
      std::memmove(to, from, size_t(n) * sizeof(To));
    else if constexpr (widens) to_floats(f, t, n);
    else if constexpr (narrows) from_floats(f, t, n);
    else
      for (int64_t i = 0; i < n; ++i) t[i] = convert_one<To>(f[i]);
    return;
  }
  for (int64_t i = 0; i < n; ++i, from += from_stride, to += to_stride) {
    To y = convert_one<To>(take<From>(from));
    std::memcpy(to, &y, sizeof y);
  }
}

template <class T>
struct Tag {
  using type = T;
  int dtype;
};
template <class F>
constexpr void each_storage(F&& f) {
  f(Tag<Bool>{FL_BOOL}), f(Tag<uint8_t>{FL_U8}), f(Tag<int8_t>{FL_I8}), f(Tag<uint16_t>{FL_U16});
  f(Tag<int16_t>{FL_I16}), f(Tag<uint32_t>{FL_U32}), f(Tag<int32_t>{FL_I32}), f(Tag<int64_t>{FL_U64});
  f(Tag<int64_t>{FL_I64}), f(Tag<Half>{FL_F16}), f(Tag<BFloat>{FL_BF16}), f(Tag<float>{FL_F32});
  f(Tag<double>{FL_F64});
}
template <class F>
constexpr void each_register(F&& f) {
  f(Tag<Bool>{FL_BOOL}), f(Tag<int32_t>{FL_I32}), f(Tag<int64_t>{FL_I64}), f(Tag<float>{FL_F32});
  f(Tag<double>{FL_F64});
}

using Table = std::array<std::array<Convert, FL_DTYPE_COUNT>, FL_DTYPE_COUNT>;
constexpr Table make_table() {
  Table table{};
  each_register([&](auto r) {
    each_storage([&](auto s) {
      using R = typename decltype(r)::type;
      using S = typename decltype(s)::type;
      table[s.dtype][r.dtype] = &convert<S, R>;
      table[r.dtype][s.dtype] = &convert<R, S>;
    });
  });
  table[FL_C32][FL_C32] = &convert<uint32_t, uint32_t>;
  table[FL_C64][FL_C64] = &convert<uint64_t, uint64_t>;
  table[FL_C128][FL_C128] = &convert<Pair64, Pair64>;
  return table;
}
constexpr Table kTable = make_table();

}  // namespace

Convert find_convert(int from, int to) { return kTable[size_t(from)][size_t(to)]; }

}  // namespace sim::SIM_ISA
