#include "base.h"
static fl_status no_devices(int32_t* out) { return *out = 0, FL_OK; }
CHIP("no_devices", broken_device.count = no_devices)
