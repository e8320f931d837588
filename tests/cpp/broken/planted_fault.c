/* A fault that was taken stays on its stream. */
#include "planted.h"
static fl_status faulty(fl_stream stream, fl_fault* out) {
  fl_status status = take_fault(stream, out);
  if (status == FL_OK) stream->fault.status = out->status;
  return status;
}
static void plant(void) { streams.fault = faulty; }
