/* Loads: built against a newer header of the same major version. */
#include "base.h"

static struct {
  fl_op_api op;
  void* later[8];
} newer_op;
static struct {
  fl_chip chip;
  const void* later[4];
} newer_chip;
static fl_claim newer_claims[256];

FL_EXPORT const fl_chip* fl_chip_entry(uint32_t version, const fl_host* table) {
  copy_template(version, table, "newer");
  uint32_t n = broken_op.n_claims;
  memcpy(newer_claims, broken_op.claims, n * sizeof *newer_claims);
  newer_claims[n++] = (fl_claim){FL_ENTRY_COUNT + 3, FL_ANY, ~0u};
  newer_claims[n++] = (fl_claim){FL_ENTRY_POINTWISE, 5000, ~0u};
  newer_claims[n++] = (fl_claim){FL_ENTRY_POINTWISE, FL_OP_ADD, FL_BIT(31)};
  newer_op.op = broken_op;
  newer_op.op.size = sizeof newer_op;
  newer_op.op.n_claims = n;
  newer_op.op.claims = newer_claims;
  newer_op.later[0] = newer_op.later;
  newer_chip.chip = broken;
  newer_chip.chip.size = sizeof newer_chip;
  newer_chip.chip.version = FL_ABI_VERSION + 7;
  newer_chip.chip.op = &newer_op.op;
  return &newer_chip.chip;
}
