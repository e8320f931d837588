// Convolution: forward and both gradients, as the correlations of kernels/conv.cl.
#include <numeric>
#include <string>

#include "block.h"
#include "chip.h"
#include "lanes.h"

namespace ocl {

namespace {

constexpr int64_t kDepth = 256, kMostLanes = 12;  // DEPTH and MOST_LANES of conv.cl

enum Step : uint8_t { kPack, kCorrelate, kWeigh, kJoin, kTiles, kTilesWeigh };

// Operands in three spatial dimensions, the missing ones in front.
struct View {
  const void* data;
  int64_t size[5], stride[5];
  explicit View(const fl_tensor& t) : data(t.data), size{1, 1, 1, 1, 1}, stride{} {
    for (int d = 0; d < t.ndim; ++d) {
      const int to = d < 2 ? d : d + 5 - t.ndim;
      size[to] = t.sizes[d], stride[to] = t.sizes[d] == 1 ? 0 : t.strides[d];
    }
  }
};

// The struct P of conv.cl, in its order.
struct Values {
  int64_t units, groups, splits;
  int64_t m, depth, images, channels;
  int64_t size[3], from[3], taps[3], step[3], base[3], tap_step[3];
  int64_t source_offset, source_image, source_channel, source_stride[3], source_extent;
  int64_t target_offset, target_image, target_channel, target_stride[3];
  int64_t weight_offset, weight_group, weight_row, weight_channel, weight_tap[3];
  int64_t bias_offset, bias_stride, has_bias;
  int64_t packed_offset, group_offset, group_bytes;
  int64_t block, pieces, chunk;
};

struct Convolution {
  const fl_launch* launch;
  Device& device;
  const fl_conv_args& a;
  View x, w, y;
  int64_t stride[3], padding[3], dilation[3];
  const void *source = nullptr, *target = nullptr;
  Values v{};

  Convolution(const fl_launch* l, const fl_conv_args& args)
      : launch(l), device(*l->stream->device), a(args), x(args.x), w(args.w), y(args.y) {
    for (int d = 0; d < 3; ++d) {
      const int from = d - (5 - args.x.ndim);
      stride[d] = from < 0 ? 1 : args.stride[from], padding[d] = from < 0 ? 0 : args.padding[from],
      dilation[d] = from < 0 ? 1 : args.dilation[from];
    }
    v.groups = args.groups, v.splits = v.pieces = v.block = v.chunk = 1;
  }
  int64_t bytes() const { return a.x.dtype == FL_F64 ? 8 : 4; }
  Block block() const { return block_of(device, bytes()); }
  int64_t rows() const { return block().rows; }
  int64_t row_panels() const { return (v.m + rows() - 1) / rows(); }
  int64_t positions() const { return v.images * v.size[0] * v.size[1] * v.size[2]; }

  // What is read through windows, and what lies at their positions.
  void walk(const View& from, const View& to) {
    source = from.data, target = to.data;
    v.images = from.size[0];
    v.source_image = from.stride[0], v.source_channel = from.stride[1];
    v.target_image = to.stride[0], v.target_channel = to.stride[1];
    v.source_extent = 1;
    for (int d = 0; d < 5; ++d) {
      // A negative stride: nothing is read at once.
      if (from.stride[d] < 0) v.source_extent = INT64_MIN / 2;
      v.source_extent += (from.size[d] - 1) * from.stride[d];
    }
    for (int d = 0; d < 3; ++d) {
      v.from[d] = from.size[2 + d], v.source_stride[d] = from.stride[2 + d];
      v.size[d] = to.size[2 + d], v.target_stride[d] = to.stride[2 + d];
    }
  }
  void weights(int64_t group, int64_t row, int64_t channel) {
    v.weight_group = group, v.weight_row = row, v.weight_channel = channel, v.weight_offset = 0;
    for (int d = 0; d < 3; ++d) v.taps[d] = w.size[2 + d], v.weight_tap[d] = w.stride[2 + d];
  }
  // Dimensions that are seen through windows of one element, one after the other, are one.
  void merge() {
    for (int d = 1; d >= 0; --d) {
      auto plain = [&](int k) {
        return v.taps[k] == 1 && v.step[k] == 1 && v.base[k] == 0 && v.size[k] == v.from[k];
      };
      if (v.size[d] == 1 && v.from[d] == 1 && v.taps[d] == 1) continue;
      if (!plain(d) || !plain(2) || v.source_stride[d] != v.from[2] * v.source_stride[2] ||
          v.target_stride[d] != v.size[2] * v.target_stride[2])
        return;
      v.size[2] *= v.size[d], v.from[2] *= v.from[d];
      v.size[d] = v.from[d] = 1;
    }
  }

  fl_status run(Step step, void* packed, void* own, Shape shape) {
    Kernel* kernel = device.library->get(Family::conv, a.x.dtype * 8u + step, [&] {
      static constexpr const char* names[] = {"PACK", "CORRELATE", "WEIGH", "JOIN", "TILES", "TILES_WEIGH"};
      const bool wide = a.x.dtype == FL_F64;
      const std::string name = dtype_name(a.x.dtype), scalar = wide ? "double" : "float",
                        mask = wide ? "long16" : "int16";
      return Source{"\n#define CT " + scalar + "\n#define VT " + scalar + "16\n" + block().macros() +
                        "#define LOAD_X LOAD_" + name + "\n#define STORE_X STORE_" + name +
                        (wide || a.x.dtype == FL_F32 ? "\n#define X_IS_CT" : "") +
                        "\n#define VECTOR VT\n#define MASK " + mask + "\n#define TO_MASK(m) convert_" + mask +
                        "(m)\n#define MULTIPLY_ADD(x, y, z) fma(x, y, z)\n#define " + names[step] + "\n" +
                        kernel_source_vector + kernel_source_block + kernel_source_conv,
                    "", "conv"};
    });
    if (!kernel) return FL_FAILED;
    Launch l(launch, kernel);
    l.at(1);
    const void* bias = v.has_bias ? a.bias->data : w.data;
    const int64_t tap_offset = v.weight_offset * static_cast<int64_t>(dtype_size(a.x.dtype));
    v.source_offset = static_cast<int64_t>(l.buffer(source));
    v.target_offset = static_cast<int64_t>(l.buffer(target));
    Values passed = v;
    passed.weight_offset = static_cast<int64_t>(l.buffer(w.data)) + tap_offset;
    passed.bias_offset = static_cast<int64_t>(l.buffer(bias));
    passed.packed_offset = static_cast<int64_t>(l.buffer(packed ? packed : source));
    passed.group_offset = static_cast<int64_t>(l.buffer(own ? own : source));
    l.at(0);
    l.value(passed);
    return l.run(shape.groups, shape.local);
  }
  fl_status scratch(int64_t n, void** out) const {
    return host()->scratch(launch, static_cast<size_t>(n * bytes()), out);
  }
  // Work-groups of a processor that have memory of their own: few, so that it stays in the cache.
  int64_t workers(int64_t units) const { return std::min<int64_t>(units, int64_t{2} * device.info.units); }

  // The result at every position of the lattice.
  fl_status correlate() {
    v.depth = v.channels * v.taps[0] * v.taps[1] * v.taps[2];
    if (!device.info.processor) {
      const int64_t tiles = v.groups * ((v.m + 63) / 64) * ((positions() + 63) / 64);
      return run(kTiles, nullptr, nullptr, {static_cast<size_t>(tiles), 256});
    }
    void *packed = nullptr, *own = nullptr;
    const int64_t panels = v.groups * row_panels(), columns = block().columns();
    if (fl_status status = scratch(std::max<int64_t>(1, panels * rows() * v.depth), &packed)) return status;
    if (fl_status status = run(kPack, packed, nullptr,
                               shape_for(device, panels, std::max<int64_t>(1, 8192 / (v.depth + 1)))))
      return status;
    // Positions packed together: as many as the sums of half a mebibyte allow, where there are enough for all
    // units.
    const bool kept = v.depth > kDepth;
    int64_t lanes = kMostLanes * 16;
    if (kept) lanes = std::min(lanes, (int64_t{1} << 19) / bytes() / (row_panels() * rows()));
    lanes = std::min(lanes, (positions() + 2 * device.info.units - 1) / (2 * device.info.units));
    v.block = std::max(columns, (lanes + columns / 2) / columns * columns);
    const int64_t blocks = (positions() + v.block - 1) / v.block;
    v.splits = std::clamp<int64_t>((2 * device.info.units + blocks - 1) / blocks, 1, panels);
    v.units = blocks * v.splits;
    v.chunk = kept ? std::min(row_panels(), (panels + v.splits - 1) / v.splits) * rows() : 0;
    const int64_t each = (v.chunk + std::min(v.depth + 1, kDepth)) * v.block, groups = workers(v.units);
    v.group_bytes = each * bytes();
    if (fl_status status = scratch(each * groups, &own)) return status;
    return run(kCorrelate, packed, own, {static_cast<size_t>(groups), 1});
  }

  fl_status forward() {
    v.m = w.size[0] / v.groups, v.channels = w.size[1];
    walk(x, y);
    weights(v.m * w.stride[0], w.stride[0], w.stride[1]);
    v.has_bias = a.bias != nullptr;
    if (a.bias) v.bias_stride = a.bias->strides[0];
    for (int d = 0; d < 3; ++d) v.step[d] = stride[d], v.base[d] = -padding[d], v.tap_step[d] = dilation[d];
    merge();
    return correlate();
  }

  // Positions of x that agree in their remainder by the stride see the same taps: a correlation for each
  // remainder.
  fl_status backward_data() {
    const Values before = v;
    int64_t phase[3];
    for (phase[0] = 0; phase[0] < stride[0]; ++phase[0])
      for (phase[1] = 0; phase[1] < stride[1]; ++phase[1])
        for (phase[2] = 0; phase[2] < stride[2]; ++phase[2]) {
          v = before;
          // In the group, w is [K, C]: its rows are C here.
          v.m = w.size[1], v.channels = w.size[0] / v.groups;
          walk(y, x);
          weights(v.channels * w.stride[0], w.stride[1], w.stride[0]);
          bool any = true;
          int64_t offset = 0;
          for (int d = 0; d < 3; ++d) {
            const int64_t s = stride[d], common = std::gcd(s, dilation[d]), every = s / common;
            int64_t first = 0;  // tap
            while (first < every && (phase[d] + padding[d] - first * dilation[d]) % s) ++first;
            v.taps[d] =
                first < every && first < w.size[2 + d] ? (w.size[2 + d] - first + every - 1) / every : 0;
            v.weight_offset += v.taps[d] ? first * w.stride[2 + d] : 0;
            v.weight_tap[d] *= every;
            v.step[d] = 1, v.tap_step[d] = -dilation[d] / common;
            v.base[d] = v.taps[d] ? (phase[d] + padding[d] - first * dilation[d]) / s : 0;
            v.size[d] = (x.size[2 + d] - phase[d] + s - 1) / s;
            any = any && v.size[d] > 0;
            offset += phase[d] * x.stride[2 + d], v.target_stride[d] *= s;
          }
          if (!any) continue;
          target = static_cast<const char*>(x.data) + offset * static_cast<int64_t>(dtype_size(a.x.dtype));
          if (stride[0] * stride[1] * stride[2] == 1) merge();
          if (fl_status status = correlate()) return status;
        }
    return FL_OK;
  }
  fl_status backward_weight() {
    v.m = w.size[0] / v.groups, v.channels = w.size[1];
    walk(x, y);
    weights(v.m * w.stride[0], w.stride[0], w.stride[1]);
    for (int d = 0; d < 3; ++d) v.step[d] = stride[d], v.base[d] = -padding[d], v.tap_step[d] = dilation[d];
    merge();
    const int64_t width = v.channels * v.taps[0] * v.taps[1] * v.taps[2];
    const int64_t columns = block().columns(), column_panels = (width + columns - 1) / columns;
    void *sums = nullptr, *own = nullptr;
    // Parts of the positions, each with sums of its own, where there is not enough to do otherwise.
    const int64_t result = v.groups * column_panels * columns * row_panels() * rows();
    auto split = [&](int64_t units, int64_t wanted, int64_t most) {
      most = std::min(most, std::max<int64_t>(1, (int64_t{1} << 26) / (result * bytes())));
      return std::clamp<int64_t>((wanted + units - 1) / units, 1, std::max<int64_t>(1, most));
    };
    if (device.info.processor) {
      // What a block of both operands takes of a cache of the usual size.
      constexpr int64_t kBlockBytes = 3 << 18;
      v.chunk = std::min<int64_t>(column_panels * columns, 512);
      v.block = kBlockBytes / bytes() / (row_panels() * rows() + v.chunk) / 16 * 16;
      v.block = std::clamp<int64_t>(v.block, 32, 512);
      v.block = std::min(v.block, (positions() + 15) / 16 * 16);
      const int64_t chunks = (width + v.chunk - 1) / v.chunk;
      v.pieces = split(v.groups * chunks, 2 * device.info.units, (positions() + v.block - 1) / v.block);
      v.units = v.groups * chunks * v.pieces;
      const int64_t each = (row_panels() * rows() + v.chunk) * v.block, groups = workers(v.units);
      v.group_bytes = each * bytes();
      if (fl_status status = scratch(result * v.pieces, &sums)) return status;
      if (fl_status status = scratch(each * groups, &own)) return status;
      if (fl_status status = run(kWeigh, sums, own, {static_cast<size_t>(groups), 1})) return status;
    } else {
      const int64_t tiles = v.groups * ((v.m + 63) / 64) * ((width + 63) / 64);
      v.pieces = split(tiles, int64_t{4} * device.info.units, positions() / 256);
      if (fl_status status = scratch(result * v.pieces, &sums)) return status;
      if (fl_status status = run(kTilesWeigh, sums, nullptr, {static_cast<size_t>(tiles * v.pieces), 256}))
        return status;
    }
    v.units = v.groups * v.m * v.channels;
    if (fl_status status =
            run(kJoin, sums, nullptr, shape_for(device, v.units, std::max<int64_t>(1, 4096 / v.pieces))))
      return status;
    return a.bias ? sum_bias() : FL_OK;
  }

  fl_status sum_bias() {
    int64_t sizes[5] = {1, a.bias->sizes[0], 1, 1, 1}, strides[5] = {0, a.bias->strides[0], 0, 0, 0};
    fl_tensor out = *a.bias;
    out.sizes = sizes, out.strides = strides, out.ndim = a.y.ndim;
    fl_reduce_args r{};
    r.inputs = &a.y, r.outputs = &out, r.n_inputs = r.n_outputs = 1;
    r.kind = FL_REDUCE_SUM, r.accumulate = a.x.dtype == FL_F64 ? FL_F64 : FL_F32;
    return reduce(launch, &r);
  }
};

}  // namespace

fl_status conv(const fl_launch* launch, const fl_conv_args* a) {
  Device& d = *launch->stream->device;
  if (!computes(d, a->x.dtype) || a->kind < 0 || a->kind > FL_CONV_BACKWARD_WEIGHT) return FL_UNSUPPORTED;
  if (!d.info.processor && d.info.max_group < kTeam) return FL_UNSUPPORTED;
  const fl_tensor *x = &a->x, *w = &a->w, *y = &a->y;
  if (x->dtype != w->dtype || x->dtype != y->dtype || (a->bias && a->bias->dtype != x->dtype))
    return refuse(FL_INVALID, "conv: x, w, y and bias must have one dtype");
  if (x->ndim < 3 || x->ndim > 5 || w->ndim != x->ndim || y->ndim != x->ndim || a->groups < 1 ||
      x->sizes[0] != y->sizes[0] || w->sizes[0] != y->sizes[1] || x->sizes[1] != w->sizes[1] * a->groups ||
      w->sizes[0] % a->groups)
    return refuse(FL_INVALID, "conv: the sizes of x, w and y do not agree with %d groups", a->groups);
  Convolution c(launch, *a);
  return a->kind == FL_CONV_FORWARD         ? c.forward()
         : a->kind == FL_CONV_BACKWARD_DATA ? c.backward_data()
                                            : c.backward_weight();
}

void claim_conv(Claims& claims) { claims.push_back({FL_ENTRY_CONV, FL_ANY, kFloats}); }

}  // namespace ocl
