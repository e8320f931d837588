// The entry pointwise.
#include <cstring>

#include "device.h"
#include "pointwise_plan.h"

namespace sim {
namespace {

// In the ring: this, then words: the sizes; of each operand its address and
// strides; then the scalars.
struct PointwiseJob {
  const Plan* plan;
  int32_t ndim;

  static void run(void* place, Context& context);
};

void PointwiseJob::run(void* place, Context& context) {
  if (context.discard) return;
  auto* job = static_cast<PointwiseJob*>(place);
  auto* sizes = reinterpret_cast<const int64_t*>(job + 1);
  const Plan& plan = *job->plan;
  int ndim = job->ndim, operands = plan.n_inputs + plan.n_outputs;
  const int64_t* word = sizes + ndim;
  Points points(&plan);
  const int64_t* strides[kMaxOperands];
  for (int k = 0; k < operands; ++k) {
    points.data[k] = reinterpret_cast<char*>(*word);
    strides[k] = word + 1;
    word += 1 + ndim;
  }
  for (int d = 0; d < ndim; ++d) {
    if (sizes[d] == 1) continue;
    int64_t* to = points.space.push(sizes[d]);
    for (int k = 0; k < operands; ++k) to[k] = strides[k][d] * plan.operand_bytes[k];
  }
  points.scalars = reinterpret_cast<const fl_scalar*>(word);
  points.sizes = sizes, points.ndim = ndim;
  points.prepare();
  uint32_t faults = 0;
  points.run(&faults);
  if (faults) context.fail(FL_FAILED, "division by zero");
}

}  // namespace

fl_status pointwise(const fl_launch* launch, const fl_pointwise_args* args) {
  const Plan* plan = plan_of(args->program);
  if (!plan) return FL_UNSUPPORTED;
  int operands = plan->n_inputs + plan->n_outputs, ndim = args->outputs[0].ndim;
  size_t words = static_cast<size_t>(ndim + operands * (1 + ndim));
  size_t scalar_bytes = plan->n_scalars * sizeof(fl_scalar);
  fl_status status;
  void* place = ring_begin(launch, "pointwise", sizeof(PointwiseJob) + words * 8 + scalar_bytes,
                           PointwiseJob::run, &status);
  if (!place) return status;
  auto* job = new (place) PointwiseJob{plan, ndim};
  auto* word = reinterpret_cast<int64_t*>(job + 1);
  for (int d = 0; d < ndim; ++d) *word++ = args->outputs[0].sizes[d];
  for (int k = 0; k < operands; ++k) {
    const fl_tensor& t = k < plan->n_inputs ? args->inputs[k] : args->outputs[k - plan->n_inputs];
    *word++ = reinterpret_cast<int64_t>(static_cast<char*>(t.data) + worker_offset);
    for (int d = 0; d < ndim; ++d) *word++ = t.strides[d];
  }
  if (scalar_bytes) std::memcpy(word, args->scalars, scalar_bytes);
  ring_commit(launch);
  return FL_OK;
}

static void claim_programs(Claims& claims, uint16_t entry) {
  const PointKernels& kernels = point_kernels();
  constexpr uint32_t registers = FL_BIT(FL_BOOL) | FL_BIT(FL_I32) | FL_BIT(FL_I64) | FL_BIT(FL_F32) |
                                 FL_BIT(FL_F64) | FL_BIT(FL_C64) | FL_BIT(FL_C128);
  for (uint16_t op = 0; op < FL_OP_COUNT; ++op) {
    uint32_t dtypes = 0;
    if (op == FL_OP_LOAD || op == FL_OP_STORE || op == FL_OP_SCALAR || op == FL_OP_CONST || op == FL_OP_CAST)
      dtypes = registers;
    if (op == FL_OP_INDEX) dtypes = FL_BIT(FL_I32) | FL_BIT(FL_I64);
    for (int type = 0; type < FL_DTYPE_COUNT; ++type)
      if (kernels.op[op][type]) dtypes |= FL_BIT(type);
    if (dtypes) claims.push_back({entry, op, dtypes});
  }
}
void claim_pointwise(Claims& claims) { claim_programs(claims, FL_ENTRY_POINTWISE); }
void claim_multi_tensor(Claims& claims) { claim_programs(claims, FL_ENTRY_MULTI_TENSOR); }

}  // namespace sim
