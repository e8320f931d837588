// Questions about streams, which start no device.
#pragma once

#include "runtime/stream.h"

namespace fl {

// The id of this thread's current stream of the device: 0, the default one, where nothing was chosen.
int64_t current_stream_id(int32_t device) noexcept;

// The stream with the chip's handle, as Stream.native_handle gives it.  The ABI has no way to take over a
// stream that another library made: throws for any other handle.
Stream& stream_with_handle(int32_t device, fl_stream handle);

}  // namespace fl
