/* malloc's addresses are multiples of 4 where the device promises 64. */
#include "planted.h"
static fl_status faulty(int32_t device, size_t bytes, void** out) {
  fl_status status = device_malloc(device, bytes ? bytes + 4 : 0, out);
  if (status == FL_OK) *out = (char*)*out + 4;
  return status;
}
static fl_status faulty_free(int32_t device, void* address) {
  return device_free(device, address ? (char*)address - 4 : NULL);
}
static void plant(void) { memory.malloc = faulty, memory.free = faulty_free; }
