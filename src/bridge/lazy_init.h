// The first use of a device, and forks after it.
#pragma once

namespace fl::bridge {

// Runs before the first tensor on a device is made (torch.fl._lazy_init).
// Starts no device.  Throws in a forked child of a process that has used one.
void lazy_init();

// May this process not use devices, because its parent did before the fork?
bool forked_after_use();

}  // namespace fl::bridge
