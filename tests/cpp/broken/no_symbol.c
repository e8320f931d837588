/* A library, and no chip. */
#include "fl/chip.h"
FL_EXPORT int not_a_chip(void) { return 1; }
