// The block of sums that kernels/block.cl keeps in registers.
#pragma once

#include <string>

#include "opencl.h"

namespace ocl {

struct Block {
  int64_t rows, vectors;  // of 16
  int64_t columns() const { return 16 * vectors; }
  std::string macros() const {
    return "#define ROWS " + std::to_string(rows) + "\n#define VECTORS " + std::to_string(vectors) + "\n";
  }
};
// For numbers of so many bytes: with vectors of 64 bytes come 32 registers, with shorter ones 16.
inline Block block_of(const Device& d, int64_t bytes) {
  const bool wide = bytes > 4;
  return d.info.float_width >= 16  ? Block{wide ? 4 : 8, 2}
         : d.info.float_width >= 8 ? Block{wide ? 2 : 6, 1}
                                   : Block{2, 1};
}

}  // namespace ocl
