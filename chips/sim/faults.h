/* Faults to order from the sim chip: fl_chip.extension("sim.faults", 1).
 * The grammar of a spec is described in fault.cpp. */
#ifndef SIM_FAULTS_H
#define SIM_FAULTS_H

#include "fl/chip.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sim_fault_counters {
  uint64_t allocations; /* device allocations since the spec was set */
  uint64_t launches;    /* operator launches and transfers, all devices */
  uint64_t delivered;   /* ordered faults that have happened */
} sim_fault_counters;

typedef struct sim_faults {
  uint32_t size;
  uint32_t reserved;
  /* Replaces all orders; "" or NULL clears them, and ends every hang.  A bad spec
   * gives FL_INVALID with a sentence, and leaves the orders as they were.
   * Devices that are lost stay lost. */
  fl_status (*set)(const char* spec);
  /* Counts run only while something is ordered. */
  void (*counters)(sim_fault_counters* out);
} sim_faults;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SIM_FAULTS_H */
