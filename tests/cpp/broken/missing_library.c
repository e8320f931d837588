/* Good, but linked against a driver that this machine does not have. */
#include "base.h"
int vendor_driver_version(void);
CHIP("missing_library", broken.reserved = (uint32_t)vendor_driver_version())
