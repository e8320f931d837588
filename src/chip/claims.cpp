#include "chip/claims.h"

#include <cstring>

namespace fl {

namespace {

constexpr uint32_t kStorage = FL_BIT(FL_BOOL) | FL_BIT(FL_U8) | FL_BIT(FL_I8) | FL_BIT(FL_I16) |
                              FL_BIT(FL_I32) | FL_BIT(FL_I64) | FL_BIT(FL_F32);
constexpr uint32_t kHalf = FL_BIT(FL_F16) | FL_BIT(FL_BF16);  // one of them

constexpr const char* kEntryNames[] = {
#define FL_ENTRY_NAME(name, value, tier) #name,
    FL_ENTRY_MAP(FL_ENTRY_NAME)
#undef FL_ENTRY_NAME
};

// The tables of fl/ops.h as rows.
struct Kind {
  unsigned entry, kind;
  const char* name;
  uint32_t dtypes;  // mandatory
};

constexpr uint32_t mandatory_types(char types, char tier) {
  constexpr uint32_t kAll = FL_BIT(FL_BOOL) | FL_BIT(FL_I32) | FL_BIT(FL_I64) | FL_BIT(FL_F32);
  constexpr uint32_t kIntegers = FL_BIT(FL_I32) | FL_BIT(FL_I64);
  if (tier != 'M') return 0;
  switch (types) {
    case 'R':
      return kIntegers | FL_BIT(FL_F32);
    case 'I':
      return kIntegers | FL_BIT(FL_BOOL);
    case 'J':
      return kIntegers;
    case 'F':
    case 'G':
      return FL_BIT(FL_F32);
    case 'C':
      return 0;
    default:
      return kAll;
  }
}

constexpr Kind kKinds[] = {{FL_ENTRY_COPY, FL_ANY, "", kStorage},
                           {FL_ENTRY_FILL, FL_ANY, "", kStorage},
                           {FL_ENTRY_GEMM, FL_ANY, "", FL_BIT(FL_F32)},
                           {FL_ENTRY_GATHER, FL_ANY, "", kStorage},
                           {FL_ENTRY_SCATTER, FL_SCATTER_SET, "SET", kStorage},
                           {FL_ENTRY_SCATTER, FL_SCATTER_ADD, "ADD", FL_BIT(FL_I64) | FL_BIT(FL_F32)},
                           {FL_ENTRY_REDUCE, FL_REDUCE_SUM, "SUM", FL_BIT(FL_I64) | FL_BIT(FL_F32)},
                           {FL_ENTRY_REDUCE, FL_REDUCE_PROD, "PROD", FL_BIT(FL_I64) | FL_BIT(FL_F32)},
                           {FL_ENTRY_REDUCE, FL_REDUCE_MIN, "MIN", FL_BIT(FL_I64) | FL_BIT(FL_F32)},
                           {FL_ENTRY_REDUCE, FL_REDUCE_MAX, "MAX", FL_BIT(FL_I64) | FL_BIT(FL_F32)},
                           {FL_ENTRY_REDUCE, FL_REDUCE_ALL, "ALL", FL_BIT(FL_BOOL)},
                           {FL_ENTRY_REDUCE, FL_REDUCE_ANY, "ANY", FL_BIT(FL_BOOL)},
                           {FL_ENTRY_RANDOM, FL_RANDOM_BITS32, "BITS32", FL_BIT(FL_I64)},
                           {FL_ENTRY_RANDOM, FL_RANDOM_RANGE32, "RANGE32", FL_BIT(FL_I64)},
                           {FL_ENTRY_RANDOM, FL_RANDOM_RANGE64, "RANGE64", FL_BIT(FL_I64)},
                           {FL_ENTRY_RANDOM, FL_RANDOM_UNIFORM32, "UNIFORM32", FL_BIT(FL_F32)},
                           {FL_ENTRY_RANDOM, FL_RANDOM_NORMAL32, "NORMAL32", FL_BIT(FL_F32)},
#define FL_OPCODE_KIND(name, value, operands, types, tier, meaning) \
  {FL_ENTRY_POINTWISE, value, #name, mandatory_types(#types[0], #tier[0])},
                           FL_OPCODE_MAP(FL_OPCODE_KIND)
#undef FL_OPCODE_KIND
};

const void* entry_of(const fl_op_api& op, unsigned entry) {
  // The entries follow the claims in the order of FL_ENTRY_MAP.
  const void* p;
  memcpy(static_cast<void*>(&p),
         reinterpret_cast<const char*>(&op) + offsetof(fl_op_api, copy) + entry * sizeof p, sizeof p);
  return p;
}
static_assert(offsetof(fl_op_api, fft) == offsetof(fl_op_api, copy) + FL_ENTRY_FFT * sizeof(void*));

uint32_t claimed(const Chip& chip, unsigned entry, unsigned kind) {
  const auto& rows = chip.claimed[entry];
  return rows[Chip::kKinds] | rows[kind < Chip::kKinds ? kind : Chip::kKinds];
}

std::string dtypes_text(uint32_t dtypes) {
  std::string text;
#define FL_DTYPE_WORD(name, value, bytes, word) \
  if (dtypes & FL_BIT(value)) text += (text.empty() ? "" : " ") + std::string(word);
  FL_DTYPE_MAP(FL_DTYPE_WORD)
#undef FL_DTYPE_WORD
  return text;
}

}  // namespace

std::string take_claims(Chip& chip) {
  if (chip.op.n_claims && !chip.op.claims) return "op.n_claims is not 0 and op.claims is null";
  for (uint32_t i = 0; i < chip.op.n_claims; ++i) {
    const fl_claim& claim = chip.op.claims[i];
    if (claim.entry >= FL_ENTRY_COUNT) continue;
    if (!entry_of(chip.op, claim.entry))
      return std::string("its claims are false: it claims ") + kEntryNames[claim.entry] +
             ", and that entry of its op table is null";
    if (claim.kind == FL_ANY) {
      chip.claimed[claim.entry][Chip::kKinds] |= claim.dtypes;
    } else if (claim.kind < Chip::kKinds) {
      chip.claimed[claim.entry][claim.kind] |= claim.dtypes;
    }
  }
  std::string missing;
  for (const Kind& row : kKinds) {
    uint32_t lacks = row.dtypes & ~claimed(chip, row.entry, row.kind);
    bool half = !(row.dtypes & kStorage & FL_BIT(FL_U8)) || (claimed(chip, row.entry, row.kind) & kHalf);
    if (!lacks && half) continue;
    missing += (missing.empty() ? "" : ", ") + std::string(kEntryNames[row.entry]) + (*row.name ? " " : "") +
               row.name + " for " + (lacks ? dtypes_text(lacks) : "float16 or bfloat16");
  }
  return missing.empty() ? "" : "it does not claim what every chip must do: " + missing;
}

}  // namespace fl
