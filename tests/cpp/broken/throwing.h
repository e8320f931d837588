// The template chip (template.c, compiled as C), and a plant() in C++ that breaks its device functions.
#pragma once

#include "fl/chip.h"

extern "C" const fl_chip* template_chip_entry(uint32_t version, const fl_host* host);

static const fl_chip* sound;
static fl_device_api device;
static const char* plant();  // the chip's name

extern "C" FL_EXPORT const fl_chip* fl_chip_entry(uint32_t version, const fl_host* host) {
  static fl_chip chip;
  sound = template_chip_entry(version, host);
  chip = *sound, device = *sound->device;
  chip.device = &device, chip.name = plant();
  return &chip;
}
