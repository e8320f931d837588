/* Devices 0 and 2 are good; 1 has no alignment, 3 cannot be asked, 4 is 0 again. */
#include "base.h"
static fl_status five(int32_t* out) { return *out = 5, FL_OK; }
static fl_status of_five(int32_t device, fl_device_properties* out) {
  if (device == 3) return host->set_error("the board does not answer"), FL_FAILED;
  fl_status status = template_chip_entry(FL_ABI_VERSION, host)->device->properties(0, out);
  snprintf(out->identity, sizeof out->identity, "board-%d", device == 4 ? 12 : 12 - 5 * device);
  if (device == 1) out->alignment = 3;
  return status;
}
CHIP("bad_devices", {
  broken_device.count = five;
  broken_device.properties = of_five;
})
