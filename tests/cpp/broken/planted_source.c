/* A large copy from host memory is done when its stream is synchronized: the source may be gone by then. */
#include "planted.h"
static struct {
  fl_stream stream;
  void* to;
  const void* from;
  size_t bytes;
} late;
static void settle_late(fl_stream stream) {
  if (late.to && (!stream || late.stream == stream)) memcpy(late.to, late.from, late.bytes), late.to = NULL;
}
static fl_status faulty(const fl_launch* l, int kind, void* to, const void* from, size_t bytes) {
  settle_late(NULL);
  if (kind != FL_HOST_TO_DEVICE || bytes < 65536) return memory_copy(l, kind, to, from, bytes);
  late.stream = l->stream, late.to = to, late.from = from, late.bytes = bytes;
  return FL_OK;
}
static fl_status faulty_synchronize(fl_stream stream, int64_t timeout_ns) {
  return settle_late(stream), synchronize(stream, timeout_ns);
}
static void plant(void) { memory.copy = faulty, streams.synchronize = faulty_synchronize; }
