/* Fills wait in the stream until it is synchronized, but events are done at once. */
#include "planted.h"
static struct {
  fl_stream stream;
  char* to;
  float value;
} late;
static void settle_late(void) {
  if (late.to) *(float*)late.to = late.value, late.to = NULL;
}
static fl_status faulty(const fl_launch* l, const fl_fill_args* a) {
  settle_late();
  if (a->to.dtype != FL_F32 || a->to.ndim != 1 || a->to.sizes[0] != 1) return fill(l, a);
  late.stream = l->stream, late.to = a->to.data, late.value = (float)a->value.v.f;
  return FL_OK;
}
static fl_status faulty_synchronize(fl_stream stream, int64_t timeout_ns) {
  if (late.stream == stream) settle_late();
  return synchronize(stream, timeout_ns);
}
static void plant(void) { op.fill = faulty, streams.synchronize = faulty_synchronize; }
