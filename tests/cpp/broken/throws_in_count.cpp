// A C++ exception comes out of device.count.
#include <stdexcept>

#include "throwing.h"
static fl_status throws(int32_t*) { throw std::runtime_error("the driver's socket is gone"); }
static const char* plant() { return device.count = throws, "throws_in_count"; }
