// Pinned host memory: PyTorch's caching host allocator over the chips'
// host_alloc.  One for all chips: memory is pinned by the chip of the device
// that is current when it is first allocated, and every chip may use it.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

#include "bridge/bridge.h"

namespace fl::bridge {

at::HostAllocator& host_allocator();

// Is the address inside memory that came from a chip's host_alloc?  Two loads
// when it is not near any; a shared lock else.
bool is_pinned(const void* address);

// The stream reads or writes the memory: it is not reused before that is done.
// `context` is the DataPtr's (a hint, may be null).  Memory that did not come
// from here is left alone.
void record_host_use(const void* address, void* context, Stream& stream);

}  // namespace fl::bridge
