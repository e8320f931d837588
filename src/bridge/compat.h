// All that differs between the PyTorch versions that the bridge is built for,
// and nothing else.
#pragma once

#include <torch/version.h>

#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR < 13
#error "torch-fl's bridge needs PyTorch 2.13 or later"
#endif

// What one of them has and the other lacks: torch.cholesky, torch.linalg.matrix_sqrth.
#if TORCH_VERSION_MINOR < 14
#include <ATen/ops/cholesky_native.h>
#define FL_UNTIL_2_13(...) __VA_ARGS__
#define FL_SINCE_2_14(...)
#else
#define FL_UNTIL_2_13(...)
#define FL_SINCE_2_14(...) __VA_ARGS__
#endif

namespace fl::bridge {

// torch.quantize_per_tensor and _per_channel.
constexpr bool kZeroPointBeforeRounding = TORCH_VERSION_MINOR < 14;

}  // namespace fl::bridge
