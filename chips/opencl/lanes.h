// Kernels over slices and rows of floats: what goes before kernels/lanes.cl, and how many teams run.
#pragma once

#include <algorithm>
#include <string>

#include "kernel_sources.h"
#include "launch.h"
#include "program.h"

namespace ocl {

constexpr uint32_t kFloats = FL_BIT(FL_F16) | FL_BIT(FL_BF16) | FL_BIT(FL_F32) | FL_BIT(FL_F64);
constexpr int64_t kLanes = 16, kTeam = 256;

inline bool computes(const Device& d, uint8_t dtype) {
  return (kFloats >> dtype & 1) && (dtype != FL_F64 || d.info.fp64);
}
// Work-items of a group that works as one: a power of two.
inline size_t team_size(const Device& d) {
  size_t n = kTeam;
  while (n > d.info.max_group) n /= 2;
  return n;
}

inline std::string lanes_source(uint8_t dtype, bool across) {
  const std::string name = dtype_name(dtype), scalar = dtype == FL_F64 ? "double" : "float";
  return "\n#define CT " + scalar + "\n#define VECTOR " + scalar + "16\n#define TO_VECTOR(v) convert_" +
         scalar + "16(v)\n#define LOAD_X LOAD_" + name + "\n#define STORE_X STORE_" + name +
         (dtype == FL_F32 ? "\n#define X_IS_F32" : "") +
         (dtype == FL_F32 || dtype == FL_F64 ? "\n#define X_IS_CT" : "") +
         (across ? "\n#define ACROSS\n" : "\n") + kernel_source_vector + kernel_source_lanes;
}

// The last argument of kernels whose work-groups are teams.
inline void team_memory(Launch& l, const Device& d, bool across) {
  if (!d.info.processor && !across) l.local(team_size(d) * (d.info.fp64 ? 8 : 4));
}

// For `units` slices of n points each.
inline Shape teams(const Device& d, int64_t units, int64_t n, bool across) {
  if (d.info.processor) return shape_for(d, units, std::max<int64_t>(1, 16384 / (n * (across ? kLanes : 1))));
  if (across) return shape_for(d, units, 1);
  return {static_cast<size_t>(std::min<int64_t>(units, int64_t{32} * d.info.units)), team_size(d)};
}

}  // namespace ocl
