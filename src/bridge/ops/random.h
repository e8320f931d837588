// Random numbers for operators that build distributions from them.
#pragma once

#include "bridge/generator.h"
#include "bridge/ops/programs.h"

namespace fl::bridge {

using Generator = std::optional<at::Generator>;
enum class Draw { kUniform, kNormal };

// Fills any floating dtype: uniform from a to b, or normal of mean a and deviation b.  A double takes two
// words of the generator and any other dtype one, whether or not the chip has such numbers: what the chip can
// do moves neither the generator nor, but for rounding, the numbers.
void fill_real(Call& call, const Tensor& out, Draw kind, double a, double b, const Generator& generator);

// Refuses numbers that a distribution is not defined for, as the CPU does: any outside low … high, or NaN.
// Waits for the device, so that the error can say which number it is.
void check_values(const Op& op, const Tensor& values, double low, double high, const char* rule);

// What a distribution of out's dtype is computed in: F64 for a double where the chip computes with it, else
// F32.
ScalarType real_dtype(const Call& call, ScalarType out);

// Numbers over out's sizes in the real_dtype() of `dtype`, or of out's: uniform in [0, 1), or standard
// normal.
Tensor draw_like(Call& call, const Tensor& out, Draw kind, const Generator& generator, ScalarType dtype);
Tensor draw_like(Call& call, const Tensor& out, Draw kind, const Generator& generator);

}  // namespace fl::bridge
