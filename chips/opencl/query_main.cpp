// fl-opencl-query: writes the DeviceInfo of each device to standard output, for a chip library that must not
// start a driver itself. Ends with 1 and a sentence on standard error when there is no driver.
#include <cstdio>

#include "query.h"

int main() {
  std::string why;
  if (!ocl::load_api(&why)) {
    std::fprintf(stderr, "%s\n", why.c_str());
    return 1;
  }
  for (const ocl::FoundDevice& d : ocl::find_devices())
    if (std::fwrite(&d.info, sizeof d.info, 1, stdout) != 1) return 2;
  return std::fflush(stdout) == 0 ? 0 : 2;
}
