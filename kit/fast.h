// What the tests of the optional entries share.
#pragma once

#include "session.h"

namespace kit {

// Close enough for a float dtype when values of size `scale` were summed.
Tolerance near(unsigned dtype, real scale);

// An array's values, read once: the loops over them are long.
std::vector<real> reals(const Array& array);

// Compares an output tensor with reference values of its shape.
void expect_near(Session& session, Tensor& got, const std::vector<real>& want, const std::string& what);

// F32, or F64 for F64: statistics and log-sums.
unsigned statistic_type(unsigned dtype);

// The float dtypes that a chip claims for an entry × kind; not applicable when none.
std::vector<unsigned> claimed_or_skip(unsigned entry, unsigned kind);

// Slices along an axis of a row-major array: f(start, step).
template <class F>
void each_slice(const std::vector<int64_t>& sizes, int axis, F&& f) {
  int64_t inner = 1, outer = 1;
  for (int d = 0; d < axis; ++d) outer *= sizes[d];
  for (size_t d = axis + 1; d < sizes.size(); ++d) inner *= sizes[d];
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) f(o * sizes[axis] * inner + i, inner);
}

}  // namespace kit
