/* A good chip, with the name of another. */
#include "base.h"
CHIP("template", (void)0)
