// The Python extension, by subject.  torch_fl/ is the only caller.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace fl::bridge {

void bind_devices(pybind11::module& m);
void bind_streams(pybind11::module& m);
void bind_memory(pybind11::module& m);
void bind_snapshots(pybind11::module& m);
void bind_settings(pybind11::module& m);

}  // namespace fl::bridge
