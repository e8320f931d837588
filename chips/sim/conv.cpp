// The conv entry.  oneDNN chooses the layouts that its kernels like best; the
// reorders around them are part of the job, and cached with it.
#include "conv.h"

#include <algorithm>
#include <numeric>

#include "gemm.h"
#include "onednn.h"

namespace sim {
namespace {

using dnnl::memory;

constexpr uint32_t kConvDtypes = FL_BIT(FL_F16) | FL_BIT(FL_BF16) | FL_BIT(FL_F32) | FL_BIT(FL_F64);

// Below it the weights of a 1×1 convolution are larger than an image, and summing
// over images in memory costs more than a reorder.
constexpr int64_t kManyPositions = 128;

// One operand: as the host has it, and as the kernel wants it.
struct Operand {
  Primitive reorder;  // not usable: the two are the same
  size_t bytes = 0;   // of the kernel's copy
};

struct Prepared {
  Primitive kernel;
  Operand x, w, y;
};

// oneDNN takes no broadcast, negative or overlapping strides.
bool plain(const Tensor& t) {
  int order[FL_MAX_DIMS];
  std::iota(order, order + t.ndim, 0);
  std::sort(order, order + t.ndim, [&](int a, int b) { return t.strides[a] < t.strides[b]; });
  int64_t extent = 1;
  for (int i = 0; i < t.ndim; ++i) {
    int d = order[i];
    if (t.sizes[d] == 1) continue;
    if (t.strides[d] < extent) return false;
    extent = (t.sizes[d] - 1) * t.strides[d] + extent;
  }
  return true;
}

void clear(const Tensor& t);

bool channels_last(const Tensor& t) { return t.sizes[1] > 1 && t.strides[1] == 1; }

memory::dims kernel_dims(const Conv& c) {
  memory::dims d(c.w.sizes, c.w.sizes + c.w.ndim);
  if (c.groups > 1) {
    d[0] /= c.groups;
    d.insert(d.begin(), c.groups);
  }
  return d;
}

// The layout of a tensor with the strides of dimensions of size 1, which mean
// nothing, made what a dense tensor would have.
memory::dims strides_of(const Tensor& t) {
  memory::dims s(t.strides, t.strides + t.ndim);
  bool last = channels_last(t);
  for (int d = t.ndim; d-- > 0;) {
    if (t.sizes[d] != 1) continue;
    int next = d + 1;  // the dimension inside this one
    if (last) next = d == 1 ? t.ndim : d == t.ndim - 1 ? 1 : d == 0 ? 2 : d + 1;
    s[d] = next >= t.ndim ? 1 : s[next] * t.sizes[next];
  }
  return s;
}

memory::desc user_desc(const Tensor& t) {
  return memory::desc(memory::dims(t.sizes, t.sizes + t.ndim), dnnl_type(t.dtype), strides_of(t));
}

memory::desc user_weight_desc(const Conv& c) {
  memory::dims s = strides_of(c.w);
  if (c.groups > 1) s.insert(s.begin(), s[0] * (c.w.sizes[0] / c.groups));
  return memory::desc(kernel_dims(c), dnnl_type(c.w.dtype), s);
}

dnnl::primitive_attr scratch_from_us() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

void prepare_operand(Operand& o, const memory::desc& user, const memory::desc& kernel, bool output) {
  if (user == kernel) return;
  o.bytes = kernel.get_size();
  const memory::desc &from = output ? kernel : user, &to = output ? user : kernel;
  dnnl::reorder::primitive_desc desc(dnnl_engine(), from, dnnl_engine(), to, scratch_from_us());
  o.reorder.make(desc);
  o.reorder.bind(DNNL_ARG_FROM, from);
  o.reorder.bind(DNNL_ARG_TO, to);
}

// oneDNN's batch-reduce kernels take channels-last halves in pairs.  Of an odd number of channels the last is
// paired with what lies after it, times 0: NaN if that is not finite.
bool reads_beyond(const char* kernel, const Conv& c) {
  int64_t channels = (c.kind == FL_CONV_BACKWARD_DATA ? c.y : c.x).sizes[1] / c.groups;
  return c.kind != FL_CONV_BACKWARD_WEIGHT && c.x.dtype != FL_F32 && channels % 2 &&
         std::strstr(kernel, "brg");
}

template <class Desc>
bool suits(const Desc& desc, const Conv& c) {
  return desc && !std::strstr(desc.impl_info_str(), "ref") && !reads_beyond(desc.impl_info_str(), c);
}

bool depthwise(const Conv& c) {
  return c.groups > 1 && c.x.sizes[1] == c.groups && c.y.sizes[1] == c.groups && c.x.ndim == 4;
}

// Leaves p.kernel unusable when oneDNN has nothing optimised, or what it has reads beyond.  `middle`: the
// layout that it works in when x and y lie in none that it likes; `last`: channels-last is one.
void prepare(Prepared& p, const Conv& c, memory::format_tag middle, bool last) {
  memory::desc x = user_desc(c.x), w = user_weight_desc(c), y = user_desc(c.y), bias;
  if (c.bias) bias = memory::desc({c.w.sizes[0]}, dnnl_type(c.bias.dtype), memory::format_tag::a);
  // Channels-last is as fast as oneDNN's own layouts; plain NCHW is not, even
  // after paying for the reorders.
  auto in = [](const memory::desc& d, memory::format_tag tag) {
    return memory::desc(d.get_dims(), d.get_data_type(), tag);
  };
  last = last && channels_last(c.x) && channels_last(c.y);
  memory::desc any_x = last ? x : in(x, middle), any_y = last ? y : in(y, middle),
               any_w = in(w, memory::format_tag::any);
  int n = c.spatial();
  memory::dims stride(c.stride, c.stride + n), padding(c.padding, c.padding + n), dilation, right;
  for (int i = 0; i < n; ++i) {
    dilation.push_back(c.dilation[i] - 1);
    // What the windows do not reach at the far end is negative padding there.
    int64_t reach = (c.y.sizes[2 + i] - 1) * c.stride[i] + (c.w.sizes[2 + i] - 1) * c.dilation[i] + 1;
    right.push_back(reach - c.x.sizes[2 + i] - c.padding[i]);
  }
  const auto algorithm = dnnl::algorithm::convolution_direct;
  dnnl::primitive_attr attr = scratch_from_us();
  auto bind = [&](auto& desc, int x_arg, const memory::desc& dx, int w_arg, const memory::desc& dw, int y_arg,
                  const memory::desc& dy, int bias_arg) {
    p.kernel.make(desc);
    p.kernel.bind(x_arg, dx), p.kernel.bind(w_arg, dw), p.kernel.bind(y_arg, dy);
    if (c.bias) p.kernel.bind(bias_arg, bias);
    prepare_operand(p.x, x, dx, c.kind == FL_CONV_BACKWARD_DATA);
    prepare_operand(p.w, w, dw, c.kind == FL_CONV_BACKWARD_WEIGHT);
    prepare_operand(p.y, y, dy, c.kind == FL_CONV_FORWARD);
  };
  dnnl::convolution_forward::primitive_desc forward(
      dnnl_engine(),
      c.kind == FL_CONV_FORWARD ? dnnl::prop_kind::forward_inference : dnnl::prop_kind::forward_training,
      algorithm, any_x, any_w, c.kind == FL_CONV_FORWARD ? bias : memory::desc(), any_y, stride, dilation,
      padding, right, attr, true);
  if (c.kind == FL_CONV_FORWARD) {
    if (!suits(forward, c)) return;
    bind(forward, DNNL_ARG_SRC, forward.src_desc(), DNNL_ARG_WEIGHTS, forward.weights_desc(), DNNL_ARG_DST,
         forward.dst_desc(), DNNL_ARG_BIAS);
    return;
  }
  if (!forward) return;
  if (c.kind == FL_CONV_BACKWARD_DATA) {
    dnnl::convolution_backward_data::primitive_desc desc(
        dnnl_engine(), algorithm, any_x, any_w, any_y, stride, dilation, padding, right, forward, attr, true);
    if (!suits(desc, c)) return;
    bind(desc, DNNL_ARG_DIFF_SRC, desc.diff_src_desc(), DNNL_ARG_WEIGHTS, desc.weights_desc(),
         DNNL_ARG_DIFF_DST, desc.diff_dst_desc(), 0);
  } else {
    dnnl::convolution_backward_weights::primitive_desc desc(dnnl_engine(), algorithm, any_x, any_w, bias,
                                                            any_y, stride, dilation, padding, right, forward,
                                                            attr, true);
    if (!suits(desc, c)) return;
    bind(desc, DNNL_ARG_SRC, desc.src_desc(), DNNL_ARG_DIFF_WEIGHTS, desc.diff_weights_desc(),
         DNNL_ARG_DIFF_DST, desc.diff_dst_desc(), DNNL_ARG_DIFF_BIAS);
  }
}

// An input in the kernel's layout; an output's place there.
void* enter(Context& context, Operand& o, const Tensor& t, bool output) {
  if (!o.reorder.usable()) return t.data;
  void* memory = context.scratch(o.bytes);
  if (!memory || output) return memory;
  o.reorder.set(DNNL_ARG_FROM, t.data);
  o.reorder.set(DNNL_ARG_TO, memory);
  return o.reorder.run(context, "conv") ? memory : nullptr;
}

void leave(Context& context, Operand& o, const Tensor& t, void* memory) {
  if (!o.reorder.usable()) return;
  o.reorder.set(DNNL_ARG_FROM, memory);
  o.reorder.set(DNNL_ARG_TO, t.data);
  o.reorder.run(context, "conv");
}

// Of several channels a group oneDNN chooses the layout well.  Of one it takes channels-last, which costs
// more to reorder than all the rest, before blocks of a vector's channels.
void prepare(Prepared& p, const Conv& c) {
  using tag = memory::format_tag;
  if (depthwise(c)) {
    const bool wide = dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core;
    prepare(p, c, wide ? tag::nChw16c : tag::nChw8c, true);
    if (p.kernel.usable()) return;
    p = Prepared();
  }
  prepare(p, c, tag::any, true);
  if (p.kernel.usable() || c.x.dtype == FL_F32) return;
  constexpr tag kBlocked[] = {tag::nCw16c, tag::nChw16c, tag::nCdhw16c};  // filled up with zeros
  p = Prepared();
  prepare(p, c, kBlocked[c.spatial() - 1], false);
}

// False: oneDNN does not take it, and nothing happened.
bool convolve_onednn(Context& context, const Conv& c) {
  thread_local PrimitiveCache<Prepared> cache;
  if (!plain(c.x) || !plain(c.w) || !plain(c.y) || (c.bias && c.bias.strides[0] != 1 && c.bias.sizes[0] != 1))
    return false;
  PrimitiveKey key;
  key.add(c.x.dtype | c.kind << 8 | (c.bias ? 1 << 16 : 0) | static_cast<int64_t>(c.groups) << 32);
  for (const Tensor* t : {&c.x, &c.w, &c.y}) {
    key.add(t->sizes, t->ndim);
    key.add(t->strides, t->ndim);
  }
  for (int i = 0; i < c.spatial(); ++i) {
    key.add(c.stride[i] | static_cast<int64_t>(c.padding[i]) << 32);
    key.add(c.dilation[i]);
  }
  SmallTeam team(numel(c.y) * (numel(c.w) / c.w.sizes[0]) <= kSmallTeamWork);
  Prepared& p = cache.get(key, [&](Prepared& fresh) {
    try {
      prepare(fresh, c);
    } catch (const dnnl::error&) {  // stays unusable: another path takes it, each time
      fresh = Prepared();
    }
  });
  if (!p.kernel.usable()) return false;
  bool data = c.kind == FL_CONV_BACKWARD_DATA, weight = c.kind == FL_CONV_BACKWARD_WEIGHT,
       forward = !data && !weight;
  void *x = enter(context, p.x, c.x, data), *w = enter(context, p.w, c.w, weight),
       *y = enter(context, p.y, c.y, forward);
  if (!x || !w || !y) return true;
  p.kernel.set(data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, x);
  p.kernel.set(weight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, w);
  p.kernel.set(forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, y);
  if (c.bias) p.kernel.set(forward ? DNNL_ARG_BIAS : DNNL_ARG_DIFF_BIAS, c.bias.data);
  if (!p.kernel.run(context, "conv")) return true;
  if (data) leave(context, p.x, c.x, x);
  else if (weight) leave(context, p.w, c.w, w);
  else leave(context, p.y, c.y, y);
  return true;
}

// With F32 copies of what oneDNN does not take as it is: odd strides, and half
// precision on processors without it.
void convolve_copies(Context& context, const Conv& c) {
  Conv copy = c;
  const Tensor* from[4] = {&c.x, &c.w, &c.y, &c.bias};
  Tensor* to[4] = {&copy.x, &copy.w, &copy.y, &copy.bias};
  const int out = c.kind == FL_CONV_FORWARD ? 2 : c.kind == FL_CONV_BACKWARD_DATA ? 0 : 1;
  auto is_output = [&](int i) { return i == out || (i == 3 && c.kind == FL_CONV_BACKWARD_WEIGHT); };
  for (int i = 0; i < 4; ++i) {
    if (!*from[i]) continue;
    *to[i] = contiguous_like(context, *from[i], FL_F32);
    if (!*to[i]) return;
    if (!is_output(i)) convert(*from[i], *to[i]);
  }
  if (!convolve_onednn(context, copy)) convolve_blocked(context, copy);
  for (int i = 0; i < 4; ++i) {
    if (*from[i] && is_output(i)) convert(*to[i], *from[i]);
  }
}

// The windows of one element, NCHW: a product of matrices per image, with nothing
// to reorder.  A stride only thins x out first.
bool convolve_one_by_one(Context& context, const Conv& c) {
  const int n = c.spatial();
  if (c.groups != 1) return false;
  bool thin = false;
  for (int i = 0; i < n; ++i) {
    if (c.w.sizes[2 + i] != 1 || c.padding[i] != 0) return false;
    thin |= c.stride[i] != 1;
  }
  int64_t positions = 1;
  for (int i = 0; i < n; ++i) positions *= c.y.sizes[2 + i];
  bool weight = c.kind == FL_CONV_BACKWARD_WEIGHT, data = c.kind == FL_CONV_BACKWARD_DATA;
  // The sum over images would be rounded after each, and costs a pass over w each.
  bool half = c.x.dtype == FL_F16 || c.x.dtype == FL_BF16;
  if (weight && (half || c.bias || positions < kManyPositions)) return false;
  Tensor x = c.x;
  if (thin) {
    for (int i = 0; i < n; ++i) x.sizes[2 + i] = c.y.sizes[2 + i], x.strides[2 + i] *= c.stride[i];
  }
  auto dense_planes = [n](const Tensor& t) {
    int64_t expected = 1;
    for (int d = n + 1; d >= 2; --d) {
      if (t.sizes[d] != 1 && t.strides[d] != expected) return false;
      expected *= t.sizes[d];
    }
    return true;
  };
  if (!dense_planes(c.y) || !dense_planes(c.x)) return false;
  Tensor thinned;
  if (thin) {
    thinned = contiguous_like(context, x, x.dtype);
    if (!thinned) return true;
    if (!data) convert(x, thinned);
    std::swap(x, thinned);
  }
  Gemm g;
  g.dtype = x.dtype;
  g.batch = x.sizes[0], g.m = c.y.sizes[1], g.n = positions, g.k = x.sizes[1];
  Matrix w(c.w.data, 0, c.w.strides[0], c.w.strides[1]), mx(x.data, x.strides[0], x.strides[1], 1),
      my(c.y.data, c.y.strides[0], c.y.strides[1], 1);
  if (weight) {
    const int64_t element = static_cast<int64_t>(dtype_size(g.dtype));
    std::swap(g.n, g.k);
    g.out = w, g.beta.v.f = 1;
    g.a = my, g.b = mx;
    std::swap(g.b.strides[1], g.b.strides[2]);
    for (g.batch = 1; g.a.data < my.data + x.sizes[0] * my.strides[0] * element;) {
      run_gemm(context, g);
      g.c = g.out;
      g.a.data += my.strides[0] * element, g.b.data += mx.strides[0] * element;
    }
  } else if (data) {
    std::swap(w.strides[1], w.strides[2]);
    std::swap(g.m, g.k);
    g.a = w, g.b = my, g.out = mx;
    run_gemm(context, g);
    if (thin) {
      clear(c.x);
      convert(x, thinned);
    }
  } else {
    g.a = w, g.b = mx, g.out = my;
    if (c.bias) g.c = Matrix(c.bias.data, 0, c.bias.strides[0], 0), g.beta.v.f = 1;
    run_gemm(context, g);
  }
  return true;
}

// oneDNN 3.2 (AMX, brgconv_bwd_w) reads scratch memory that it never wrote when
// a row of x is shorter than the stride.
bool known_wrong(const Conv& c) {
  int last = c.x.ndim - 1;
  return c.kind == FL_CONV_BACKWARD_WEIGHT && c.x.dtype != FL_F32 &&
         c.x.sizes[last] < c.stride[c.spatial() - 1];
}

void run_conv(Context& context, const Conv& c) {
  if (convolve_one_by_one(context, c)) return;
  if (c.x.dtype == FL_F64) return convolve_blocked(context, c);
  if (known_wrong(c) || !convolve_onednn(context, c)) convolve_copies(context, c);
}

}  // namespace

Tensor contiguous_like(Context& context, const Tensor& from, uint8_t dtype) {
  Tensor t = from;
  t.dtype = dtype;
  t.data = static_cast<char*>(context.scratch(numel(from) * dtype_size(dtype)));
  int64_t stride = 1;
  for (int d = t.ndim; d-- > 0;) t.strides[d] = stride, stride *= t.sizes[d];
  return t;
}

namespace {

void clear(const Tensor& t) {
  if (contiguous(t)) {
    std::memset(t.data, 0, numel(t) * dtype_size(t.dtype));
    return;
  }
  // A source of one zero, seen with stride 0 everywhere.
  static double zero = 0;
  Tensor from = t;
  from.data = reinterpret_cast<char*>(&zero);
  std::fill_n(from.strides, from.ndim, 0);
  convert(from, t);
}

}  // namespace

void convert(const Tensor& from, const Tensor& to) {
  int last = from.ndim - 1;
  int64_t inner = from.sizes[last], rows = numel(from) / inner;
  auto offset = [last](const Tensor& t, int64_t row) {
    int64_t at = 0;
    for (int d = last; d-- > 0; row /= t.sizes[d]) at += row % t.sizes[d] * t.strides[d];
    return at;
  };
  auto run = [&](auto f, auto t) {
    using F = decltype(f);
    using T = decltype(t);
    parallel(rows, std::max<int64_t>(1, 16384 / inner), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const F* p = from.as<F>() + offset(from, r);
        T* q = to.as<T>() + offset(to, r);
        int64_t sp = from.strides[last], sq = to.strides[last];
        for (int64_t i = 0; i < inner; ++i) q[i * sq] = static_cast<T>(p[i * sp]);
      }
    });
  };
  if (from.dtype == FL_F64) return run(double(), double());
  switch (from.dtype << 8 | to.dtype) {
    case FL_F32 << 8 | FL_F32:
      return run(float(), float());
    case FL_F16 << 8 | FL_F16:
    case FL_BF16 << 8 | FL_BF16:
      return run(uint16_t(), uint16_t());
    case FL_F16 << 8 | FL_F32:
      return run(f16(), float());
    case FL_BF16 << 8 | FL_F32:
      return run(bf16(), float());
    case FL_F32 << 8 | FL_F16:
      return run(float(), f16());
    case FL_F32 << 8 | FL_BF16:
      return run(float(), bf16());
  }
}

void claim_conv(Claims& claims) { claims.push_back({FL_ENTRY_CONV, FL_ANY, kConvDtypes}); }

fl_status conv(const fl_launch* launch, const fl_conv_args* args) {
  if (!(kConvDtypes & FL_BIT(args->x.dtype)) || args->kind < 0 || args->kind > FL_CONV_BACKWARD_WEIGHT)
    return FL_UNSUPPORTED;
  const fl_tensor *x = &args->x, *w = &args->w, *y = &args->y;
  if (x->dtype != w->dtype || x->dtype != y->dtype || (args->bias && args->bias->dtype != x->dtype)) {
    set_error("conv: x, w, y and bias must have one dtype");
    return FL_INVALID;
  }
  if (x->ndim < 3 || x->ndim > 5 || w->ndim != x->ndim || y->ndim != x->ndim || args->groups < 1 ||
      x->sizes[0] != y->sizes[0] || w->sizes[0] != y->sizes[1] || x->sizes[1] != w->sizes[1] * args->groups ||
      w->sizes[0] % args->groups) {
    set_error("conv: the sizes of x, w and y do not agree with %d groups", args->groups);
    return FL_INVALID;
  }
  Conv c{Tensor(*x), Tensor(*w), Tensor(*y), optional(args->bias), {}, {}, {}, args->groups, args->kind};
  std::copy_n(args->stride, 3, c.stride);
  std::copy_n(args->padding, 3, c.padding);
  std::copy_n(args->dilation, 3, c.dilation);
  return submit(launch, "conv", [c](Context& context) { run_conv(context, c); });
}

}  // namespace sim
