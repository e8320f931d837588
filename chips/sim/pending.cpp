// Entries not written yet: weak, so that the real ones replace them.
#include "sim.h"
namespace sim {
#define PENDING(name)                                                                                       \
  __attribute__((weak)) fl_status name(const fl_launch*, const fl_##name##_args*) { return FL_UNSUPPORTED; } \
  __attribute__((weak)) void claim_##name(Claims&) {}
SIM_ENTRIES(PENDING)
}  // namespace sim
