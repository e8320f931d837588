// The same for C++17.
#include "fl/ops.h"

#include "sizes.h"
