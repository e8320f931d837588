// What a chip says that it can do.
#pragma once

#include <string>

#include "chip/registry.h"

namespace fl {

// Fills chip.claimed from chip.op.claims.  Returns why the claims are refused,
// or nothing: an entry that is claimed and null, or mandatory claims that are
// not made.  Entries and kinds of a newer ABI are skipped.
std::string take_claims(Chip& chip);

}  // namespace fl
