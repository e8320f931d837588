// Entries not written yet: weak, so that the real ones replace them.
#include "sim.h"
namespace sim {
#define PENDING(name)                                                                                        \
  __attribute__((weak)) fl_status name(const fl_launch*, const fl_##name##_args*) { return FL_UNSUPPORTED; } \
  __attribute__((weak)) void claim_##name(Claims&) {}
SIM_ENTRIES(PENDING)
__attribute__((weak)) const Plan* plan_of(const fl_program*) { return nullptr; }
__attribute__((weak)) void run_plan(const Plan*, int64_t, const char* const*, const int64_t*, char* const*,
                                    const int64_t*, const fl_scalar*, int64_t, const int64_t*, int,
                                    fl_status*) {}
}  // namespace sim
