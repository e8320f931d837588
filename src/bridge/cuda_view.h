// Names of devices: "sim:1" as a device string in every API, and the CUDA view,
// in which fl's name is "cuda", parsed and printed.
#pragma once

#include <string>

namespace pybind11 {
class module_;
using module = module_;
}  // namespace pybind11

namespace fl::bridge {

// Adds device_names_enable, cuda_view_enable, cuda_view_disable, cuda_view_is_enabled
// and cuda_view_missing to the module.
void bind_cuda_view(pybind11::module& module);

}  // namespace fl::bridge
