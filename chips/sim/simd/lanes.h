// Vectors of the width that this compilation has.  Every file in simd/ is
// compiled once a processor level, with SIM_ISA naming it; all its code lives
// in that namespace, so that nothing compiled for a newer processor is linked
// into the code that an older one runs.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__AVX512F__)
#define SIM_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define SIM_VECTOR_BYTES 32
#else
#define SIM_VECTOR_BYTES 16
#endif
#define SIM_INLINE inline __attribute__((always_inline))

namespace sim::SIM_ISA {

// f(std::integral_constant<int, value>()) for the value among `values`; `otherwise` where it is none of them.
template <int... values, class Result, class F>
SIM_INLINE Result with_constant(int value, Result otherwise, F&& f) {
  ((value == values && (otherwise = f(std::integral_constant<int, values>()), true)) || ...);
  return otherwise;
}

// A value at any address.
template <class T>
SIM_INLINE T take(const char* p) {
  T x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
template <class T>
SIM_INLINE void put(char* p, T x) {
  std::memcpy(p, &x, sizeof x);
}

template <class T>
struct VecOf {
  typedef T type __attribute__((vector_size(SIM_VECTOR_BYTES)));
};
template <class T>
using Vec = typename VecOf<T>::type;
template <class T>
constexpr int lanes = SIM_VECTOR_BYTES / int(sizeof(T));

typedef float HalfVec __attribute__((vector_size(SIM_VECTOR_BYTES / 2)));

template <class T>
SIM_INLINE Vec<T> load(const T* p) {
  Vec<T> v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
SIM_INLINE void store(T* p, Vec<T> v) {
  std::memcpy(p, &v, sizeof v);
}
template <class T>
SIM_INLINE Vec<T> splat(T x) {
  return x - Vec<T>{};
}
// a × b + c, rounded once where the processor can.
SIM_INLINE float fused(float a, float b, float c) {
#if defined(__FMA__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}
SIM_INLINE double fused(double a, double b, double c) {
#if defined(__FMA__)
  return __builtin_fma(a, b, c);
#else
  return a * b + c;
#endif
}

SIM_INLINE Vec<double> low_half(Vec<float> v) {
  HalfVec h;
  std::memcpy(&h, &v, sizeof h);
  return __builtin_convertvector(h, Vec<double>);
}
SIM_INLINE Vec<double> high_half(Vec<float> v) {
  HalfVec h;
  std::memcpy(&h, reinterpret_cast<const char*>(&v) + sizeof h, sizeof h);
  return __builtin_convertvector(h, Vec<double>);
}
template <class T>
SIM_INLINE T add_lanes(Vec<T> v) {
  T sum = 0;
  for (int i = 0; i < lanes<T>; ++i) sum += v[i];
  return sum;
}

// A sum of floats kept in double: a few additions in F32, then widened, so that
// the error does not grow with the number of values.
struct WideSum {
  Vec<double> low{}, high{};
  double rest = 0;
  SIM_INLINE void add(Vec<float> v) { low += low_half(v), high += high_half(v); }
  SIM_INLINE double value() const { return rest + add_lanes<double>(low + high); }
};

}  // namespace sim::SIM_ISA
