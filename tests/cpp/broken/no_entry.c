#include "base.h"
CHIP("no_entry", broken_op.gemm = NULL)
