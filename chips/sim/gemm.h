// Matrix products as jobs carry them, for gemm and for what is built on it.
#pragma once

#include "gemm_kernel.h"
#include "sim.h"

namespace sim {

// A batch of matrices: strides in elements over batch, row and column.
struct Matrix {
  char* data = nullptr;
  int64_t strides[3] = {};

  Matrix() = default;
  explicit Matrix(const Tensor& t) : data(t.data), strides{t.strides[0], t.strides[1], t.strides[2]} {}
  Matrix(void* p, int64_t batch, int64_t row, int64_t column)
      : data(static_cast<char*>(p)), strides{batch, row, column} {}
};

// out = alpha × a·b + beta × c
struct Gemm {
  uint8_t dtype = FL_NONE;
  int64_t batch = 1, m = 1, n = 1, k = 1;
  Matrix a, b, out, c;  // c.data null: none
  fl_scalar alpha = {{1.0}, 0.0}, beta = {{0.0}, 0.0};
};

// The program that runs over the result before it is rounded and stored.
struct Epilogue {
  const Plan* plan = nullptr;
  bool indexed = false;  // it reads positions
  int32_t n_extra = 0;
  Matrix extra[FL_MAX_INPUTS - 1];  // strides in bytes
  Scalars scalars;
};

// Any strides, any supported dtype, all of Gemm and Epilogue.  Chooses between
// oneDNN and multiply_blocked.
void run_gemm(Context& context, const Gemm& gemm, const Epilogue* epilogue = nullptr);

// Our own kernels.
void multiply_blocked(Context& context, const Gemm& gemm, const Epilogue* epilogue);

// Register type of the result before rounding: what the epilogue's input 0 has.
constexpr int kRowSegment = 512;

// Finish `n` <= kRowSegment results of row m of batch z, from column n0 on:
// alpha, c, epilogue, rounding, store.  `row` is overwritten.
// R: float, double, uint64_t, and pairs of float and double for complex, given
// as 2n numbers.
template <class R, bool Complex>
void finish_row(Context& context, const Gemm& gemm, const Epilogue* epilogue, int64_t z, int64_t m,
                int64_t n0, int64_t n, R* row);

inline bool is_one(uint8_t dtype, const fl_scalar& s) {
  bool complex = dtype == FL_C64 || dtype == FL_C128;
  bool real = complex || dtype == FL_F16 || dtype == FL_BF16 || dtype == FL_F32 || dtype == FL_F64;
  return real ? s.v.f == 1.0 && (!complex || s.imag == 0.0) : s.v.i == 1;
}

}  // namespace sim
