// Runs of values from one dtype to another, as [PGM-1] says.
#pragma once

#include <cstdint>

#include "simd/isa.h"

namespace sim {

// n values; strides in bytes.
using Convert = void (*)(const char* from, int64_t from_stride, char* to, int64_t to_stride, int64_t n);

SIM_DECLARE_LEVELS(Convert find_convert(int from, int to))

// Null where neither dtype is a register type or either is not covered (float8,
// complex to anything else): a program does those.
inline Convert find_convert(int from, int to) { return SIM_CHOOSE(find_convert(from, to)); }

}  // namespace sim
