#include "base.h"
CHIP("no_method", {
  broken_stream.synchronize = NULL;
  broken_memory.info = NULL;
})
