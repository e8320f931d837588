// Devices and streams in PyTorch's terms.
#pragma once

#include "bridge/bridge.h"

namespace fl::bridge {

// The number of devices, for PyTorch's C++ side: 0, with one line in the log,
// when the table of devices cannot be made; 0 in a forked child that may not
// use them.  Never throws.
c10::DeviceIndex usable_device_count() noexcept;

inline c10::Stream to_torch(const Stream& s) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDevice, static_cast<c10::DeviceIndex>(s.device)),
                     s.id);
}
// Checked: throws fl::Error for a stream that does not exist.
Stream& to_fl(const c10::Stream& s);

}  // namespace fl::bridge
