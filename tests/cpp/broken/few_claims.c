/* Claims no GEMM and no integer sums. */
#include "base.h"
static fl_claim fewer_claims[256];
CHIP("few_claims", {
  uint32_t n = 0;
  for (uint32_t i = 0; i < broken_op.n_claims; ++i) {
    fl_claim claim = broken_op.claims[i];
    if (claim.entry == FL_ENTRY_GEMM) continue;
    if (claim.entry == FL_ENTRY_REDUCE && claim.kind == FL_REDUCE_SUM) claim.dtypes &= ~FL_BIT(FL_I64);
    fewer_claims[n++] = claim;
  }
  broken_op.claims = fewer_claims;
  broken_op.n_claims = n;
})
