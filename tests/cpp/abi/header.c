/* Compiled once for each C standard of the ABI. */
#include "fl/ops.h"

#include "sizes.h"
