#include "base.h"
static fl_claim claims_of_more[256];
CHIP("false_claims", {
  memcpy(claims_of_more, broken_op.claims, broken_op.n_claims * sizeof *claims_of_more);
  claims_of_more[broken_op.n_claims++] = (fl_claim){FL_ENTRY_SOFTMAX, FL_ANY, FL_BIT(FL_F32)};
  broken_op.claims = claims_of_more;
})
