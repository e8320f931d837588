/* Loads: built against an older header, whose tables end sooner.  It is real
 * hardware, by its flags, so that it comes before software chips. */
#include "base.h"

static fl_status older_properties(int32_t device, fl_device_properties* out) {
  out->size = offsetof(fl_device_properties, arithmetic) < out->size
                  ? offsetof(fl_device_properties, arithmetic)
                  : out->size;
  fl_status status = template_chip_entry(FL_ABI_VERSION, host)->device->properties(device, out);
  if (status == FL_OK) out->flags &= ~FL_DEVICE_SOFTWARE;
  return status;
}

CHIP("older", {
  broken.size = offsetof(fl_chip, extension);
  broken.extension = (const void* (*)(const char*, uint32_t))1; /* beyond its size: nobody may look */
  broken_device.properties = older_properties;
  broken_memory.size = offsetof(fl_memory_api, map);
  broken_memory.map = (fl_status (*)(int32_t, void*, size_t, void**))1;
  broken_op.size = offsetof(fl_op_api, softmax);
  broken_op.softmax = (fl_status (*)(const fl_launch*, const fl_softmax_args*))1;
})
