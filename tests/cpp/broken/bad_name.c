#include "base.h"
CHIP("Bad-Name", (void)0)
