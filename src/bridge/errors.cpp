// fl::Error as what PyTorch's users catch.
#include "bridge/bridge.h"

namespace fl::bridge {

void rethrow_as_torch(const Error& error) {
  const c10::SourceLocation here = {__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  switch (error.status()) {
    case FL_OUT_OF_MEMORY:
      throw c10::OutOfMemoryError(here, error.what());
    case FL_INDEX_OUT_OF_RANGE:
      throw c10::IndexError(here, error.what());
    case FL_DEVICE_LOST:
      throw c10::AcceleratorError(here, error.status(), error.what());
    default:
      throw c10::Error(here, error.what());
  }
}

}  // namespace fl::bridge
