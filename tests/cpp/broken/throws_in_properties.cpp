// Of three devices 1 and 2 throw when they are asked about, and 0 when it is opened.
#include <stdexcept>

#include "throwing.h"
static fl_status three(int32_t* out) { return *out = 3, FL_OK; }
static fl_status throws(int32_t local, fl_device_properties* out) {
  if (local == 1) throw std::runtime_error("board 1 has no power");
  if (local == 2) throw 2;
  return sound->device->properties(0, out);
}
static fl_status open_throws(int32_t) { throw std::runtime_error("no firmware"); }
static const char* plant() {
  device.count = three, device.properties = throws, device.open = open_throws;
  return "throws_in_properties";
}
