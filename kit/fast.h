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

}  // namespace kit
