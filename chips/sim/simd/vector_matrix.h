// A vector times a matrix: every element of the matrix is read once, so this is a walk through memory.
#pragma once

#include <cstdint>

#include "fl/ops.h"
#include "simd/isa.h"

namespace sim {

// out[j] = Σp x[p] × b[p, j] for n results of k products each.  x and out are float (double for F64), b has
// the table's dtype, `step` bytes from a row (a column) to the next.
using VectorMatrix = void (*)(int64_t n, int64_t k, const void* x, const char* b, int64_t step, void* out);

struct VectorMatrixKernels {
  VectorMatrix by_rows[FL_DTYPE_COUNT] = {};     // b's rows are contiguous; n is best some hundreds
  VectorMatrix by_columns[FL_DTYPE_COUNT] = {};  // b's columns are
};

SIM_DECLARE_LEVELS(const VectorMatrixKernels& vector_matrix_kernels())
inline const VectorMatrixKernels& vector_matrix_kernels() {
  static const VectorMatrixKernels& kernels = SIM_CHOOSE(vector_matrix_kernels());
  return kernels;
}

}  // namespace sim
