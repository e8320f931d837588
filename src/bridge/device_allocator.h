// Device memory as PyTorch holds it: a DataPtr whose context is the block.
#pragma once

#include "bridge/bridge.h"

namespace fl::bridge {

// Uninitialised, for work on the device's current stream; freed with the
// DataPtr.  bytes may be 0.
c10::DataPtr allocate_data(c10::Device device, size_t bytes);
c10::intrusive_ptr<c10::StorageImpl> make_storage(c10::Device device, size_t bytes);

// The block of memory that came from here, or null (borrowed memory).
Block* block_of(const c10::DataPtr& data) noexcept;

// The memory must not be reused before the work queued on the stream is done.
void record_use(const c10::DataPtr& data, Stream& stream);

}  // namespace fl::bridge
