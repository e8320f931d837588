/* The template chip, copied so that one thing in it can be broken. */
#define fl_chip_entry template_chip_entry
#include "template.c"
#undef fl_chip_entry

static fl_chip broken;
static fl_device_api broken_device;
static fl_memory_api broken_memory;
static fl_stream_api broken_stream;
static fl_op_api broken_op;

static fl_chip* copy_template(uint32_t host_version, const fl_host* table, const char* name) {
  broken = *template_chip_entry(host_version, table);
  broken_device = *broken.device;
  broken_memory = *broken.memory;
  broken_stream = *broken.stream;
  broken_op = *broken.op;
  broken.name = name;
  broken.device = &broken_device;
  broken.memory = &broken_memory;
  broken.stream = &broken_stream;
  broken.op = &broken_op;
  return &broken;
}

/* CHIP("name", statements): the chip's entry, after the statements have broken it. */
#define CHIP(name, ...)                                                            \
  FL_EXPORT const fl_chip* fl_chip_entry(uint32_t version, const fl_host* table) { \
    copy_template(version, table, name);                                           \
    __VA_ARGS__;                                                                   \
    return &broken;                                                                \
  }
