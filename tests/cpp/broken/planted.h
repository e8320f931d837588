/* The template chip with one fault: a file includes this, and its plant() changes one function.
 * tests/test_kit.py says by which requirement the kit must catch it. */
#define _POSIX_C_SOURCE 200112L
#include "fl/ops.h"
#undef FL_EXPORT
#define FL_EXPORT static
#define fl_chip_entry sound_entry
#include "template.c"
#undef fl_chip_entry

static fl_memory_api memory;
static fl_stream_api streams;
static fl_op_api op;
static void plant(void);

__attribute__((visibility("default"))) const fl_chip* fl_chip_entry(uint32_t version, const fl_host* table) {
  static fl_chip planted;
  if (!sound_entry(version, table)) return NULL;
  planted = chip, memory = memory_api, streams = stream_api, op = op_api;
  planted.memory = &memory, planted.stream = &streams, planted.op = &op;
  plant();
  return &planted;
}
