/* The chip claims float64 matrix products and refuses them. */
#include "planted.h"
static void plant(void) {
  static fl_claim false_claims[sizeof claims / sizeof *claims];
  memcpy(false_claims, claims, sizeof claims);
  for (uint32_t i = 0; i < op.n_claims; ++i)
    if (false_claims[i].entry == FL_ENTRY_GEMM) false_claims[i].dtypes |= FL_BIT(FL_F64);
  op.claims = false_claims;
}
