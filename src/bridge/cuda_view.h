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

bool cuda_view_is_on() noexcept;

// What compares with the device type CUDA in C (cuda_view_objects.cpp): from the first call on,
// Tensor.is_cuda, Tensor.cuda and Tensor.type, and x.cuda() in TorchScript, ask cuda_view_is_on() as well.
void hook_cuda_objects();

// torch.cuda.FloatTensor and its like are types of fl tensors (or CUDA's again).
void show_cuda_types(bool as_ours);

// ProfilerActivity.CUDA measures fl's streams (profiler_events.cpp), or what it measured before.
void profile_as_cuda(bool on);

}  // namespace fl::bridge
