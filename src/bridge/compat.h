// All that differs between the PyTorch versions that the bridge is built for,
// and nothing else.
#pragma once

#include <torch/version.h>

#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR < 13
#error "torch-fl's bridge needs PyTorch 2.13 or later"
#endif

// Of operators that 2.14 has no longer: torch.cholesky.
#if TORCH_VERSION_MINOR < 14
#include <ATen/ops/cholesky_native.h>
#define FL_UNTIL_2_13(...) __VA_ARGS__
#else
#define FL_UNTIL_2_13(...)
#endif
