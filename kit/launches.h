// Launching entries on arrays and comparing with the reference.
#pragma once

#include "program/program.h"
#include "reference.h"
#include "session.h"

namespace kit {

struct Arrangement {
  Layout in = Layout::contiguous, out = Layout::contiguous;
};
// Every layout on the inputs, then every one on the output.
std::vector<Arrangement> arrangements();
std::string arrangement_text(Arrangement a);

// 1 element, odd sizes, more than 64K elements, ranks 0 to 6 and FL_MAX_DIMS.
extern const std::vector<std::vector<int64_t>> kShapes;

fl_scalar scalar(unsigned type, Number value);

// All inputs have one shape.  `want` gets the reference's outputs unless null.
std::vector<Array> run_pointwise(Session& session, const fl_program* program,
                                 const std::vector<Array>& inputs, const std::vector<int64_t>& sizes,
                                 const std::vector<unsigned>& outputs, Arrangement arrangement = {},
                                 const std::vector<fl_scalar>& scalars = {},
                                 std::vector<std::vector<Number>>* want = nullptr);

// Runs and compares all outputs.
void check_pointwise(Session& session, const fl_program* program, const std::vector<Array>& inputs,
                     const std::vector<int64_t>& sizes, const std::vector<unsigned>& outputs,
                     Tolerance tolerance, Arrangement arrangement = {},
                     const std::vector<fl_scalar>& scalars = {});

// op on inputs of `type`, stored as it comes.
const fl_program* program_of(unsigned op, unsigned type);
unsigned result_type(unsigned op, unsigned type);

Array indices(unsigned dtype, const std::vector<int64_t>& sizes, const std::vector<int64_t>& values);

}  // namespace kit
