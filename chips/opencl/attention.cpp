// Attention, forward and backward.
#include <algorithm>
#include <cstring>
#include <string>

#include "block.h"
#include "chip.h"
#include "kernel_sources.h"
#include "launch.h"
#include "slices.h"

namespace ocl {

namespace {

constexpr uint32_t kDtypes = FL_BIT(FL_F16) | FL_BIT(FL_BF16) | FL_BIT(FL_F32) | FL_BIT(FL_F64);

// As in attention.cl.
enum { kQ, kK, kV, kOut, kLse, kGrad, kBias, kGradQ, kGradK, kGradV, kTensors };
constexpr int64_t kMost = 256, kKeys = 64, kGroupRows = 16, kGroupSize = 256;

struct AttentionParameters {
  int64_t batch, heads, kv_heads, l, s, e, ev, l_pad, s_pad, causal, has_bias;
  double scale;
  float narrow_scale, reserved;
  int64_t stride[kTensors][4], offset[kTensors], panels[kTensors], rows[kTensors], statistics;
};

std::string definitions(uint8_t dtype, bool processor, const Block& block, bool backward) {
  const bool wide = dtype == FL_F64;
  const std::string d = dtype_name(dtype), l = wide ? "F64" : "F32", ct = wide ? "double" : "float";
  std::string t = "\n#define CT " + ct + "\n#define V(n) " + ct + "##n\n#define LOAD LOAD_" + d +
                  "\n#define STORE STORE_" + d + "\n#define LOAD_L LOAD_" + l + "\n#define STORE_L STORE_" +
                  l + "\n#define SCALE " + (wide ? "as_double(p.scale)" : "p.narrow_scale") + "\n";
  t += processor ? block.macros()
                 : "#define ROWS " + std::to_string(kGroupRows) + "\n#define SIZE " +
                       std::to_string(kGroupSize) + "\n";
  return t + (backward ? "#define BACKWARD\n" : "");
}

int64_t padded(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

fl_status run(const fl_launch* launch, const fl_tensor* const (&tensors)[kTensors], double scale, bool causal,
              bool backward) {
  Device& d = *launch->stream->device;
  const fl_tensor &q = *tensors[kQ], &k = *tensors[kK], &v = *tensors[kV];
  if (!(kDtypes >> q.dtype & 1) || needs_fp64(d, q.dtype)) return FL_UNSUPPORTED;
  AttentionParameters p{};
  p.batch = q.sizes[0], p.heads = q.sizes[1], p.kv_heads = k.sizes[1];
  p.l = q.sizes[2], p.s = k.sizes[2], p.e = q.sizes[3], p.ev = v.sizes[3];
  if (p.heads % p.kv_heads)
    return refuse(FL_INVALID, "attention of %lld heads over %lld of keys", static_cast<long long>(p.heads),
                  static_cast<long long>(p.kv_heads));
  if (p.e > kMost || p.ev > kMost) return FL_UNSUPPORTED;
  const bool processor = d.info.processor, wide = q.dtype == FL_F64;
  const int64_t size = wide ? 8 : 4;
  const Block block = block_of(d, size);
  const int64_t columns = block.columns(), e_pad = padded(p.e, columns), ev_pad = padded(p.ev, columns);
  // Blocks in local memory: what is multiplied, the results, and the scores.
  const int64_t blocks[] = {p.e, backward ? p.e : std::max(p.e, p.ev), p.ev, p.ev, p.e, p.ev};
  const int n_blocks = backward ? 6 : 3;
  int64_t local = 3 * kGroupRows * (kGroupRows + 1) * size;
  for (int b = 0; b < n_blocks; ++b) local += blocks[b] * kGroupRows * size;
  if (!processor && (d.info.max_group < kGroupSize || local > static_cast<int64_t>(d.info.local_memory)))
    return FL_UNSUPPORTED;
  p.l_pad = padded(p.l, kKeys), p.s_pad = padded(p.s, kKeys);
  p.causal = causal, p.has_bias = tensors[kBias] != nullptr;
  p.scale = scale, p.narrow_scale = static_cast<float>(scale);
  for (int t = 0; t < kTensors; ++t) {
    p.panels[t] = p.rows[t] = -1;
    for (int i = 0; tensors[t] && i < tensors[t]->ndim; ++i) p.stride[t][i] = tensors[t]->strides[i];
  }
  // What is packed, and where.
  int64_t bytes = 0;
  auto place = [&](int64_t& at, int64_t elements) { at = bytes, bytes += padded(elements * size, 64); };
  const int64_t keys = p.batch * p.kv_heads * p.s_pad, queries = p.batch * p.heads * p.l_pad;
  if (processor) {
    place(p.panels[kK], keys * p.e);
    if (!backward) place(p.rows[kV], keys * ev_pad);
    else {
      place(p.rows[kK], keys * e_pad), place(p.panels[kV], keys * p.ev);
      place(p.panels[kQ], queries * p.e), place(p.rows[kQ], queries * e_pad);
      place(p.panels[kGrad], queries * p.ev), place(p.rows[kGrad], queries * ev_pad);
    }
  }
  if (backward) place(p.statistics, 2 * queries);
  void* work = q.data;
  if (bytes)
    if (fl_status status = host()->scratch(launch, static_cast<size_t>(bytes), &work)) return status;

  Kernel* kernel =
      d.library->get(Family::other, uint64_t{q.dtype} | uint64_t{backward} << 8 | uint64_t{4} << 32, [&] {
        return Source{definitions(q.dtype, processor, block, backward) + kernel_source_attention, "",
                      "attention"};
      });
  if (!kernel) return FL_FAILED;
  for (int stage = processor || backward ? 0 : 1; stage < (backward ? 3 : 2); ++stage) {
    Launch l(launch, kernel);
    l.at(2);
    AttentionParameters r = p;
    for (int t = 0; t < kTensors; ++t)
      r.offset[t] = static_cast<int64_t>(l.buffer(tensors[t] ? tensors[t]->data : q.data));
    const auto base = static_cast<int64_t>(l.buffer(work));
    for (int t = 0; t < kTensors; ++t) {
      if (r.panels[t] >= 0) r.panels[t] += base;
      if (r.rows[t] >= 0) r.rows[t] += base;
    }
    r.statistics += base;
    for (int b = 0; !processor && b < n_blocks; ++b)
      l.bytes(static_cast<size_t>(blocks[b] * kGroupRows * size), nullptr);
    l.at(0);
    l.value(r);
    l.value(int32_t{stage});
    const int64_t rows = processor ? block.rows : kGroupRows;
    const int64_t units = stage == 0   ? std::max(keys, queries) / columns
                          : stage == 1 ? p.batch * p.heads * ((p.l + rows - 1) / rows)
                                       : p.batch * p.kv_heads * ((p.s + rows - 1) / rows);
    const int64_t work_of = stage == 0 ? columns * p.e : rows * (stage == 1 ? p.s : p.l) * (p.e + p.ev);
    Shape shape = shape_for(d, units, std::max<int64_t>(1, (1 << 16) / work_of));
    if (!processor)
      shape = {static_cast<size_t>(std::min<int64_t>(units, int64_t{64} * d.info.units)),
               static_cast<size_t>(kGroupSize)};
    if (fl_status status = l.run(shape.groups, shape.local)) return status;
  }
  return FL_OK;
}

}  // namespace

fl_status attention(const fl_launch* launch, const fl_attention_args* a) {
  return run(launch, {&a->q, &a->k, &a->v, &a->out, &a->lse, nullptr, a->bias, nullptr, nullptr, nullptr},
             a->scale, a->causal, false);
}

fl_status attention_backward(const fl_launch* launch, const fl_attention_backward_args* a) {
  return run(
      launch,
      {&a->q, &a->k, &a->v, &a->out, &a->lse, &a->grad_out, a->bias, &a->grad_q, &a->grad_k, &a->grad_v},
      a->scale, a->causal, true);
}

void claim_attention(Claims& claims) { claims.push_back({FL_ENTRY_ATTENTION, FL_ANY, kDtypes}); }
void claim_attention_backward(Claims& claims) {
  claims.push_back({FL_ENTRY_ATTENTION_BACKWARD, FL_ANY, kDtypes});
}

}  // namespace ocl
