#include "base.h"
CHIP("wrong_major", broken.version = (FL_ABI_MAJOR + 1) << 16 | 3)
