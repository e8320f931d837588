// pointwise, copy and fill: programs over points.
#include "chip.h"
#include "points.h"

namespace ocl {

fl_status pointwise(const fl_launch* launch, const fl_pointwise_args* args) {
  const Plan* plan = plan_of(args->program);
  if (!plan) return FL_UNSUPPORTED;
  return run_points(launch, Points(plan, args->inputs, args->outputs, args->scalars));
}

fl_status copy(const fl_launch* launch, const fl_copy_args* args) {
  if (!(kStorage >> args->from.dtype & kStorage >> args->to.dtype & 1)) return FL_UNSUPPORTED;
  fl_tensor from = args->from, to = args->to;
  if (from.dtype == to.dtype) {
    // As bytes: NaNs keep their bits.
    if (contiguous(from) && contiguous(to)) {
      Stream& stream = *launch->stream;
      Place source = stream.device->memory.find(from.data), place = stream.device->memory.find(to.data);
      if (!source.buffer || !place.buffer)
        return refuse(FL_INVALID, "copy: an address is none of the device's");
      const Queueing queueing(stream);
      return failed(
          cl.clEnqueueCopyBuffer(stream.queue, source.buffer, place.buffer, source.offset, place.offset,
                                 static_cast<size_t>(numel(to)) * dtype_size(to.dtype), 0, nullptr, nullptr),
          "clEnqueueCopyBuffer");
    }
    static constexpr uint8_t bits[] = {0, FL_U8, FL_I16, 0, FL_I32, 0, 0, 0, FL_I64};
    size_t size = dtype_size(from.dtype);
    if (size <= 8) from.dtype = to.dtype = bits[size];
  }
  const Plan* plan = conversion_plan(from.dtype, to.dtype);
  if (!plan->supported) return FL_UNSUPPORTED;
  return run_points(launch, Points(plan, &from, &to, nullptr));
}

fl_status fill(const fl_launch* launch, const fl_fill_args* args) {
  if (!(kStorage >> args->to.dtype & 1)) return FL_UNSUPPORTED;
  const Plan* plan = fill_plan(args->to.dtype);
  if (!plan->supported) return FL_UNSUPPORTED;
  return run_points(launch, Points(plan, nullptr, &args->to, &args->value));
}

void claim_pointwise(Claims& claims) {
  for (uint16_t op = 0; op < FL_OP_COUNT; ++op)
    if (uint32_t types = opcode_types(op)) claims.push_back({FL_ENTRY_POINTWISE, op, types});
}
void claim_copy(Claims& claims) { claims.push_back({FL_ENTRY_COPY, FL_ANY, kStorage}); }
void claim_fill(Claims& claims) { claims.push_back({FL_ENTRY_FILL, FL_ANY, kStorage}); }

}  // namespace ocl
