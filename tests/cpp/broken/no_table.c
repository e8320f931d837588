#include "base.h"
CHIP("no_table", broken.stream = NULL)
