// Numbers of every dtype, as the reference kernels compute them: int64 for
// integers and BOOL, long double for floats, a pair of those for complex.
#pragma once

#include <complex>
#include <cstdint>
#include <limits>
#include <vector>

#include "kit.h"

namespace kit {

using real = long double;
using complex_real = std::complex<real>;
constexpr real kInfinity = std::numeric_limits<real>::infinity();

struct Number {
  int64_t i = 0;  // integers, BOOL
  real re = 0, im = 0;
  complex_real c() const { return {re, im}; }
  static Number integer(int64_t v) { return {v, 0, 0}; }
  static Number floating(real v) { return {0, v, 0}; }
  static Number complex(complex_real v) { return {0, v.real(), v.imag()}; }
};

bool is_integer(unsigned dtype);  // BOOL and U64 (as the same bits) included
bool is_real(unsigned dtype);
bool is_complex(unsigned dtype);
unsigned component(unsigned dtype);  // C64 → F32; others themselves

Number read(unsigned dtype, const void* from);
void write(unsigned dtype, Number value, void* to);  // rounded to nearest even; integers keep low bits
Number rounded(unsigned dtype, Number value);        // write and read
Number converted(Number value, unsigned from, unsigned to);  // [PGM-1], between any two dtypes

// One unit in the last place of a float dtype at x; the smallest normal number; the largest.
real ulp(unsigned dtype, real x);
real smallest_normal(unsigned dtype);
real largest(unsigned dtype);

std::string to_text(unsigned dtype, Number value);

// How far a result may be off: exact when all are 0.
struct Tolerance {
  real ulps = 0, relative = 0, absolute = 0;
};
bool close(unsigned dtype, Number got, Number want, Tolerance tolerance);

// splitmix64: the same numbers for the same seed everywhere.
struct Random {
  uint64_t state;
  explicit Random(uint64_t salt) : state(seed() * 0x9e3779b97f4a7c15ull + salt) {}
  uint64_t next();
  int64_t between(int64_t low, int64_t high);  // both included
  real uniform(real low, real high);
};

// A row-major tensor in host memory.
struct Array {
  unsigned dtype = FL_NONE;
  std::vector<int64_t> sizes;
  std::vector<char> bytes;

  Array() = default;
  Array(unsigned dtype, std::vector<int64_t> sizes);
  int64_t numel() const;
  Number at(int64_t i) const { return read(dtype, &bytes[i * dtype_size(dtype)]); }
  void set(int64_t i, Number v) { write(dtype, v, &bytes[i * dtype_size(dtype)]); }

  // Floats and complex from [low, high), integers from [low, high] (clipped to the dtype).
  static Array random(Random& random, unsigned dtype, std::vector<int64_t> sizes, real low = -4,
                      real high = 4);
  // Integers of the dtype's whole range, floats of any magnitude with zeros, infinities and NaN.
  static Array wild(Random& random, unsigned dtype, std::vector<int64_t> sizes);
};

int64_t product(const std::vector<int64_t>& sizes);
// Row-major number → coordinates.
std::vector<int64_t> coordinates(int64_t i, const std::vector<int64_t>& sizes);
// Number of the element of a tensor of `sizes` that broadcasts to the point `at`.
int64_t broadcast_index(const std::vector<int64_t>& at, const std::vector<int64_t>& sizes);
std::string shape_text(const std::vector<int64_t>& sizes);

// Records a failure with the first difference.
void expect_close(const Array& got, const std::vector<Number>& want, Tolerance tolerance,
                  const std::string& what);

}  // namespace kit
