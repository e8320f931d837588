/* Dies of SIGSEGV when it is asked about its second device. */
#include "base.h"
static fl_status two(int32_t* out) { return *out = 2, FL_OK; }
static fl_status dies(int32_t device, fl_device_properties* out) {
  if (device == 1) *(volatile int*)8 = 1;
  return template_chip_entry(FL_ABI_VERSION, host)->device->properties(0, out);
}
CHIP("crashes_in_properties", {
  broken_device.count = two;
  broken_device.properties = dies;
})
