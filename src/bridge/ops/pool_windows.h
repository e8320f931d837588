// Pooling on tensors: the chip's entry, and what is composed from gather, reduce
// and scatter: what the entry lacks, and windows that it does not know.
#pragma once

#include "bridge/ops/programs.h"

namespace fl::bridge {

struct Window {
  int32_t kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, padding[3] = {0, 0, 0}, dilation[3] = {1, 1, 1};
  int32_t kind = FL_POOL_MAX, count_padding = 0;
  int64_t divisor = 0;
};

// [N, C, X…]: a tensor without a batch gets one.
Tensor batched(const Tensor& t, int n);

// Over n dimensions, with or without a batch: by the chip's entry, else composed.
// False: the chip cannot, nothing has happened.
bool pool(Call& call, int n, const Window& window, const Tensor& x, const Tensor& y, const Tensor* index);
bool pool_backward(Call& call, int n, const Window& window, const Tensor& grad, const Tensor& grad_x,
                   const Tensor* index);

// Composed: y, and index unless null, from x: [N, C, Y…] from [N, C, X…], as FL_POOL_… says.
bool pool_windows(Call& call, const Window& window, const Tensor& x, const Tensor& y, const Tensor* index);
bool pool_windows_backward(Call& call, const Window& window, const Tensor& grad, const Tensor& grad_x,
                           const Tensor* index);

// Where the windows along dimension d of n reach: the input's position for each
// result and tap, I64 [N or 1, C or 1, Y… or 1, K… or 1].  Taps that lie
// outside, or that a shorter window lacks, repeat one that it has.
Tensor adaptive_taps(Call& call, const Tensor& x, int n, int d, int64_t out);
Tensor fractional_taps(const Tensor& x, int n, int d, int64_t out, int64_t kernel, const Tensor& samples);

// The largest of x over the windows, and its row-major position in X….
bool max_over(Call& call, const Tensor& x, const std::vector<Tensor>& taps, const Tensor& y,
              const Tensor* index);

// grad_x[n, c, index] = the sum of grad there, 0 elsewhere.
void sum_by_index(const Tensor& grad, const Tensor& index, const Tensor& grad_x);

}  // namespace fl::bridge
