#include "fl/chip.h"
FL_EXPORT const fl_chip* fl_chip_entry(uint32_t version, const fl_host* host) {
  (void)version;
  host->set_error("the driver is version 3, this chip needs 5 or newer");
  return NULL;
}
