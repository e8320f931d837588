#include "bridge/ops/resample.h"

#include <bit>
#include <map>
#include <tuple>

#include "bridge/copy.h"
#include "bridge/ops/axis_weights.h"
#include "bridge/ops/spmm.h"
#include "runtime/capture.h"

namespace fl::bridge {
namespace {

bool is_nearest(Filter filter) { return filter == Filter::kNearest || filter == Filter::kNearestExact; }
bool is_antialiased(Filter filter) { return filter >= Filter::kLinearAntialias; }

// An axis's matrix on the device.
struct AxisMap {
  bool identity = false;
  int precision = 0;
  Tensor begin, columns, values;  // values undefined: ones
};

// ---------------------------------------------------------------- kept matrices
// Training asks for the same few at each step, and a copy from the host waits
// for the stream: they are kept, for each stream, until there are many.
using Key =
    std::tuple<const Stream*, Filter, Arithmetic, int64_t, int64_t, bool, uint64_t, bool, bool, ScalarType>;
constexpr size_t kKept = 256;

AxisMap upload(const AxisWeights& w, int64_t in, c10::Device device, ScalarType dtype, bool weighted) {
  AxisMap map;
  map.identity = w.is_identity(in);
  map.precision = w.precision;
  if (map.identity) return map;
  auto moved = [&](const std::vector<int64_t>& v) { return constant_on(at::tensor(v, at::kLong), device); };
  map.begin = moved(w.begin);
  map.columns = moved(w.columns);
  if (weighted) map.values = constant_on(at::tensor(w.values, at::kDouble).to(dtype), device);
  return map;
}

AxisMap axis_map(const Call& call, const Resampling& how, size_t axis, Arithmetic arithmetic, int64_t in,
                 int64_t out, bool plain, bool transposed, ScalarType dtype) {
  static std::mutex mutex;
  static auto& kept = *new std::map<Key, AxisMap>;  // outlives the devices' end
  std::optional<double> scale = how.scales[axis];
  // NaN: no scale given, which no caller gives.
  uint64_t bits = std::bit_cast<uint64_t>(scale.value_or(std::nan("")));
  c10::Device device(kDevice, static_cast<c10::DeviceIndex>(call.stream().device));
  auto make = [&] {
    AxisWeights w = axis_weights(how.filter, arithmetic, in, out, how.align_corners, scale, plain);
    return upload(transposed ? w.transposed(in) : w, transposed ? out : in, device, dtype,
                  !is_nearest(how.filter));
  };
  if (capture_of(call.stream())) return make();  // a graph owns what it reads
  Key key{&call.stream(), how.filter, arithmetic, in, out, how.align_corners, bits, plain, transposed, dtype};
  std::lock_guard lock(mutex);
  auto found = kept.find(key);
  if (found != kept.end()) return found->second;
  AxisMap map = make();
  if (kept.size() >= kKept) kept.clear();
  kept.emplace(key, map);
  return map;
}

// ---------------------------------------------------------------------- layouts
// A dense tensor with the axes in front of or behind the channels, as it lies
// in memory.
struct Layout {
  bool channels_last;
  int64_t spatial;
  int64_t axis(int64_t d) const { return (channels_last ? 1 : 2) + d; }
  at::MemoryFormat format() const {
    if (!channels_last) return at::MemoryFormat::Contiguous;
    return spatial == 3 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast;
  }
  Tensor as_stored(const Tensor& t) const {  // of a tensor in this format
    return channels_last ? t.movedim(1, -1) : t;
  }
};
Layout layout_of(const Tensor& t) {
  Layout layout{false, t.dim() - 2};
  if (t.dim() >= 4 && !t.is_contiguous()) {
    layout.channels_last = true;
    layout.channels_last = t.is_contiguous(layout.format());
  }
  return layout;
}

// out = in along dimension `dim` of contiguous tensors.
bool apply(Call& call, const AxisMap& map, const Tensor& in, int64_t dim, const Tensor& out) {
  int64_t before = 1, behind = 1;
  for (int64_t d = 0; d < dim; ++d) before *= in.size(d);
  for (int64_t d = dim + 1; d < in.dim(); ++d) behind *= in.size(d);
  Tensor dense = in.view({before, in.size(dim), behind}), result = out.view({before, out.size(dim), behind});
  Spmm spmm{FL_SPMM_SUM, map.begin, dense, &map.columns, map.values.defined() ? &map.values : nullptr};
  return spmm_into(call, spmm, result, 0);
}

// Fixed point to bytes, rounded.
bool round_bytes(Call& call, const Tensor& sums, int precision, const Tensor& out) {
  static Programs programs;
  uint8_t memory = dtype_of(out);
  const fl_program* program = programs.get(key_of(memory), [&](Builder& b) {
    Value v = b.op(FL_OP_SHR, b.op(FL_OP_ADD, b.load(0, FL_I32), b.scalar(0, FL_I32)), b.scalar(1, FL_I32));
    v = b.op(FL_OP_MIN, b.op(FL_OP_MAX, v, b.constant(0, FL_I32)), b.constant(255, FL_I32));
    b.store(0, v, memory);
  });
  return run_program(call, program, {&out}, {&sums},
                     {scalar_i(int64_t{1} << (precision - 1)), scalar_i(precision)});
}

struct Pass {
  int64_t axis, size;
  AxisMap map;
};

// The passes over `in`, in order, into `out`.
bool run(Call& call, const Tensor& in, const std::vector<Pass>& passes, ScalarType computed, bool bytes,
         const Tensor& out) {
  Layout layout = layout_of(in);
  Tensor from = layout.as_stored(in.to(computed).contiguous(layout.format()));
  bool direct = out.scalar_type() == computed && out.is_contiguous(layout.format());
  for (size_t i = 0; i < passes.size(); ++i) {
    const Pass& pass = passes[i];
    int64_t dim = layout.axis(pass.axis);
    at::DimVector sizes(from.sizes());
    sizes[dim] = pass.size;
    bool last = i + 1 == passes.size();
    Tensor to = last && direct ? layout.as_stored(out) : empty_like(from, sizes, computed);
    if (!apply(call, pass.map, from, dim, to)) return false;
    call.composed();
    if (bytes) {
      Tensor rounded = last ? (layout.channels_last ? out.movedim(1, -1) : out) : to;
      if (!round_bytes(call, to, pass.map.precision, rounded)) throw_refused(call, "pointwise", at::kInt);
      if (last) return true;
    }
    from = to;
  }
  if (passes.empty() || !direct) copy_step(out, layout.channels_last ? from.movedim(-1, 1) : from);
  return true;
}

ScalarType computed_in(ScalarType dtype, Filter filter) {
  if (at::isReducedFloatingType(dtype) && !is_nearest(filter)) return at::kFloat;
  return dtype == at::kByte && !is_nearest(filter) ? at::kInt : dtype;
}
// Floats, and bytes where PyTorch's CPU takes them.
bool computable(const Tensor& in, Filter filter) {
  if (at::isFloatingType(in.scalar_type())) return true;
  return in.scalar_type() == at::kByte && filter != Filter::kMean && (is_nearest(filter) || in.dim() == 4);
}
Arithmetic arithmetic_of(ScalarType dtype) {
  if (dtype == at::kDouble) return Arithmetic::kDouble;
  return dtype == at::kByte ? Arithmetic::kBytes : Arithmetic::kFloat;
}

// Whether PyTorch's CPU takes its general kernel for nearest, forwards.
bool plain_nearest(const Tensor& in, const Tensor& out) {
  if (in.dim() == 3) return true;
  Layout layout{true, in.dim() - 2};
  if (in.is_contiguous(layout.format()) && in.size(1) > 3) return false;
  return in.dim() == 5 || out.size(2) + out.size(3) > 128;
}

}  // namespace

bool resample(Call& call, const Resampling& how, const Tensor& in, const Tensor& out) {
  if (out.numel() == 0) return true;
  if (!computable(in, how.filter)) return false;
  ScalarType dtype = in.scalar_type(), computed = computed_in(dtype, how.filter);
  bool plain = is_nearest(how.filter) && plain_nearest(in, out),
       bytes = computed == at::kInt && dtype == at::kByte;
  std::vector<Pass> passes;
  // The innermost first, as PyTorch does where it rounds in between.
  for (int64_t d = in.dim() - 3; d >= 0; --d) {
    int64_t from = in.size(d + 2), to = out.size(d + 2);
    if (from == to && (bytes || is_antialiased(how.filter))) continue;
    AxisMap map =
        axis_map(call, how, static_cast<size_t>(d), arithmetic_of(dtype), from, to, plain, false, computed);
    if (!map.identity) passes.push_back({d, to, map});
  }
  return run(call, in, passes, computed, bytes, out);
}

bool resample_backward(Call& call, const Resampling& how, const Tensor& grad, const Tensor& grad_in) {
  if (grad_in.numel() == 0) return true;
  if (!at::isFloatingType(grad.scalar_type())) return false;
  ScalarType dtype = grad.scalar_type();
  // Sums of many: in F32 for the half types, whatever the filter.
  ScalarType computed = at::isReducedFloatingType(dtype) ? at::kFloat : dtype;
  std::vector<Pass> passes;
  // PyTorch's CPU takes equal sizes for a copy here, whatever the scale.
  bool copies = how.filter == Filter::kCubic && grad.sizes() == grad_in.sizes();
  for (int64_t d = 0; d < grad.dim() - 2 && !copies; ++d) {
    int64_t in = grad_in.size(d + 2), out = grad.size(d + 2);
    AxisMap map =
        axis_map(call, how, static_cast<size_t>(d), arithmetic_of(dtype), in, out, false, true, computed);
    if (!map.identity) passes.push_back({d, in, map});
  }
  return run(call, grad, passes, computed, false, grad_in);
}

}  // namespace fl::bridge
