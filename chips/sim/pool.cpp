// Pooling, forward and backward.  Each spatial dimension becomes a table of
// windows; a row of outputs (or, channels-last, a run of channels) is then
// computed tap by tap, so that the loops over memory are straight.
#include <omp.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "gemm_kernel.h"
#include "sim.h"

namespace sim {
namespace {

constexpr uint32_t kFloats = FL_BIT(FL_F16) | FL_BIT(FL_BF16) | FL_BIT(FL_F32) | FL_BIT(FL_F64);
constexpr uint32_t kIntegers =
    FL_BIT(FL_U8) | FL_BIT(FL_I8) | FL_BIT(FL_I16) | FL_BIT(FL_I32) | FL_BIT(FL_I64);
constexpr int64_t kRun = 128;  // outputs, or channels, computed together

struct Pool {
  Tensor x, y, index;  // index without data: none.  Backward: the gradients
  int32_t kernel[3], stride[3], padding[3], dilation[3];
  int32_t kind, count_padding;
  int64_t divisor;
};

// What an output position sees of one dimension.
struct Window {
  int64_t start, n;  // first position inside, number of positions inside
  int64_t counted;   // positions that an average counts
};

struct Dimension {
  int64_t in = 1, out = 1, step = 1, stride = 1, offset = 0, taps = 1;
  int64_t x_stride = 0, y_stride = 0, index_stride = 0;
  std::vector<Window> windows;
  bool linear = true;  // start of the window is out × stride + offset, before clipping

  void fill(const Pool& p, int d) {
    linear = p.kind != FL_POOL_ADAPTIVE_AVERAGE;
    step = linear ? p.dilation[d] : 1;
    stride = p.stride[d];
    offset = -p.padding[d];
    taps = p.kernel[d];
    windows.resize(out);
    for (int64_t o = 0; o < out; ++o) {
      if (!linear) {
        int64_t start = o * in / out, end = ((o + 1) * in + out - 1) / out;
        windows[o] = {start, end - start, end - start};
        continue;
      }
      Window w = {0, 0, 0};
      for (int64_t k = 0; k < taps; ++k) {
        int64_t at = o * stride + offset + k * step;
        if (at >= 0 && at < in && w.n++ == 0) w.start = at;
        if (p.count_padding ? at < in + p.padding[d] : at >= 0 && at < in) ++w.counted;
      }
      windows[o] = w;
    }
  }
};

// ------------------------------------------------------------- loops over memory

// Positions as wide as the values keep the lanes of both in step; forward()
// takes the wide ones where a plane needs them.
template <class A>
using Position = std::conditional_t<sizeof(A) == 4, int32_t, int64_t>;

template <class S, class A>
SIM_CLONES void max_tap(A* best, Position<A>* where, const S* p, int64_t step, int64_t n, Position<A> at,
                        Position<A> at_step) {
  auto body = [=](int64_t i, A v) __attribute__((always_inline)) {
    bool take = v > best[i] || v != v;
    best[i] = take ? v : best[i];
    where[i] = take ? static_cast<Position<A>>(at + static_cast<Position<A>>(i) * at_step) : where[i];
  };
  if (step == 1) {
    for (int64_t i = 0; i < n; ++i) body(i, static_cast<A>(p[i]));
  } else {
    for (int64_t i = 0; i < n; ++i) body(i, static_cast<A>(p[i * step]));
  }
}

template <class S, class A>
SIM_CLONES void max_tap(A* best, const S* p, int64_t step, int64_t n) {
  auto body = [=](int64_t i, A v)
                  __attribute__((always_inline)) { best[i] = v > best[i] || v != v ? v : best[i]; };
  if (step == 1) {
    for (int64_t i = 0; i < n; ++i) body(i, static_cast<A>(p[i]));
  } else {
    for (int64_t i = 0; i < n; ++i) body(i, static_cast<A>(p[i * step]));
  }
}

template <class S, class A>
SIM_CLONES void sum_tap(A* sum, const S* p, int64_t step, int64_t n) {
  if (step == 1) {
    for (int64_t i = 0; i < n; ++i) sum[i] += static_cast<A>(p[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) sum[i] += static_cast<A>(p[i * step]);
  }
}

template <class S, class A>
SIM_CLONES A sum_run(const S* p, int64_t step, int64_t n) {
  A part[16] = {}, sum = 0;
  int64_t i = 0;
  if (step == 1) {
    for (; i + 16 <= n; i += 16) {
      for (int j = 0; j < 16; ++j) part[j] += static_cast<A>(p[i + j]);
    }
  }
  for (; i + 16 <= n; i += 16) {
    for (int j = 0; j < 16; ++j) part[j] += static_cast<A>(p[(i + j) * step]);
  }
  for (; i < n; ++i) sum += static_cast<A>(p[i * step]);
  for (int j = 0; j < 16; ++j) sum += part[j];
  return sum;
}

template <class A>
SIM_CLONES void add_tap(A* to, int64_t step, const A* from, int64_t n) {
  if (step == 1) {
    for (int64_t i = 0; i < n; ++i) to[i] += from[i];
  } else {
    for (int64_t i = 0; i < n; ++i) to[i * step] += from[i];
  }
}

// Outputs lo…hi of begin…end whose tap `k` lies inside.
void inside(const Dimension& d, int64_t k, int64_t begin, int64_t end, int64_t& lo, int64_t& hi) {
  int64_t shift = d.offset + k * d.step;  // of the tap at output 0
  lo = shift >= 0 ? begin : std::max(begin, (-shift + d.stride - 1) / d.stride);
  hi = shift >= d.in ? begin : std::min(end, (d.in - 1 - shift) / d.stride + 1);
}

// ------------------------------------------------------------------------ kernels

template <class S, class A>
struct Pooling {
  const Pool& p;
  Dimension d[3];
  int64_t batch, channels;
  bool by_channel;  // channels are innermost: runs go along them
  int64_t width;    // channels of a task
  int64_t plane;    // positions of x

  explicit Pooling(const Pool& pool) : p(pool), batch(p.x.sizes[0]), channels(p.x.sizes[1]) {
    int spatial = p.x.ndim - 2, missing = 3 - spatial;
    for (int i = 0; i < spatial; ++i) {
      Dimension& to = d[missing + i];
      to.in = p.x.sizes[2 + i], to.out = p.y.sizes[2 + i];
      to.x_stride = p.x.strides[2 + i], to.y_stride = p.y.strides[2 + i];
      to.index_stride = p.index ? p.index.strides[2 + i] : 0;
      to.fill(p, i);
    }
    for (int i = 0; i < missing; ++i) d[i].windows = {{0, 1, 1}};
    merge(1, 2);
    merge(0, 2);
    by_channel =
        channels > 1 && p.x.strides[1] == 1 && p.y.strides[1] == 1 && (!p.index || p.index.strides[1] == 1);
    width = by_channel ? std::min(channels, kRun) : 1;
    plane = d[0].in * d[1].in * d[2].in;
  }

  // Global averages see dense dimensions as one long one.
  void merge(int outer, int inner) {
    Dimension &a = d[outer], &b = d[inner];
    if (b.linear || a.out != 1 || b.out != 1 || a.in == 1 || a.x_stride != b.in * b.x_stride) return;
    b.in *= a.in;
    b.windows = {{0, b.in, b.in}};
    a = Dimension();
    a.windows = {{0, 1, 1}};
  }

  int64_t channel_blocks() const { return (channels + width - 1) / width; }
  static constexpr A lowest() {
    return std::numeric_limits<A>::has_infinity ? -std::numeric_limits<A>::infinity()
                                                : std::numeric_limits<A>::lowest();
  }
  A divisor(const Window& a, const Window& b, const Window& c) const {
    return static_cast<A>(p.divisor ? p.divisor : a.counted * b.counted * c.counted);
  }
  template <class T>
  static T* at(const Tensor& t, int64_t n, int64_t c) {
    return t.as<T>() + n * t.strides[0] + c * t.strides[1];
  }

  // ---- forward: one row of outputs for `width` channels
  void forward_row(int64_t n, int64_t c, int64_t o0, int64_t o1) const {
    const S* x = at<S>(p.x, n, c);
    S* y = at<S>(p.y, n, c) + o0 * d[0].y_stride + o1 * d[1].y_stride;
    int64_t* index =
        p.index ? at<int64_t>(p.index, n, c) + o0 * d[0].index_stride + o1 * d[1].index_stride : nullptr;
    const Window &w0 = d[0].windows[o0], &w1 = d[1].windows[o1];
    if (by_channel) {
      int64_t count = std::min(width, channels - c);
      for (int64_t o2 = 0; o2 < d[2].out; ++o2) {
        forward_channels(x, y + o2 * d[2].y_stride, index ? index + o2 * d[2].index_stride : nullptr, w0, w1,
                         d[2].windows[o2], count);
      }
    } else if (!d[2].linear) {
      for (int64_t o2 = 0; o2 < d[2].out; ++o2) {
        const Window& w2 = d[2].windows[o2];
        A sum = 0;
        for (int64_t i0 = 0; i0 < w0.n; ++i0) {
          for (int64_t i1 = 0; i1 < w1.n; ++i1) {
            sum += sum_run<S, A>(x + (w0.start + i0) * d[0].x_stride + (w1.start + i1) * d[1].x_stride +
                                     w2.start * d[2].x_stride,
                                 d[2].x_stride, w2.n);
          }
        }
        y[o2 * d[2].y_stride] = static_cast<S>(sum / divisor(w0, w1, w2));
      }
    } else {
      for (int64_t o2 = 0; o2 < d[2].out; o2 += kRun) {
        forward_run(x, y + o2 * d[2].y_stride, index ? index + o2 * d[2].index_stride : nullptr, w0, w1, o2,
                    std::min(o2 + kRun, d[2].out));
      }
    }
  }

  void forward_channels(const S* x, S* y, int64_t* index, const Window& w0, const Window& w1,
                        const Window& w2, int64_t count) const {
    A best[kRun];
    Position<A> where[kRun];
    bool max = p.kind == FL_POOL_MAX;
    std::fill_n(best, count, max ? lowest() : A(0));
    if (index) std::fill_n(where, count, (w0.start * d[1].in + w1.start) * d[2].in + w2.start);
    for (int64_t i0 = 0; i0 < w0.n; ++i0) {
      for (int64_t i1 = 0; i1 < w1.n; ++i1) {
        for (int64_t i2 = 0; i2 < w2.n; ++i2) {
          int64_t p0 = w0.start + i0 * d[0].step, p1 = w1.start + i1 * d[1].step,
                  p2 = w2.start + i2 * d[2].step;
          const S* from = x + p0 * d[0].x_stride + p1 * d[1].x_stride + p2 * d[2].x_stride;
          if (!max) sum_tap(best, from, 1, count);
          else if (index) max_tap(best, where, from, 1, count, (p0 * d[1].in + p1) * d[2].in + p2, 0);
          else max_tap(best, from, 1, count);
        }
      }
    }
    A by = max ? A(1) : divisor(w0, w1, w2);
    bool empty = w0.n * w1.n * w2.n == 0;
    for (int64_t i = 0; i < count; ++i) y[i] = static_cast<S>(max ? best[i] : empty ? A(0) : best[i] / by);
    if (index) std::copy_n(where, count, index);
  }

  void forward_run(const S* x, S* y, int64_t* index, const Window& w0, const Window& w1, int64_t begin,
                   int64_t end) const {
    A best[kRun];
    Position<A> where[kRun];
    bool max = p.kind == FL_POOL_MAX;
    const Dimension& inner = d[2];
    std::fill_n(best, end - begin, max ? lowest() : A(0));
    if (index) {
      int64_t row = (w0.start * d[1].in + w1.start) * inner.in;
      for (int64_t o = begin; o < end; ++o) where[o - begin] = row + inner.windows[o].start;
    }
    for (int64_t i0 = 0; i0 < w0.n; ++i0) {
      for (int64_t i1 = 0; i1 < w1.n; ++i1) {
        int64_t p0 = w0.start + i0 * d[0].step, p1 = w1.start + i1 * d[1].step;
        const S* row = x + p0 * d[0].x_stride + p1 * d[1].x_stride;
        for (int64_t k = 0; k < inner.taps; ++k) {
          int64_t lo, hi;
          inside(inner, k, begin, end, lo, hi);
          if (lo >= hi) continue;
          int64_t first = lo * inner.stride + inner.offset + k * inner.step;
          const S* from = row + first * inner.x_stride;
          int64_t step = inner.stride * inner.x_stride, at = lo - begin;
          if (!max) sum_tap(best + at, from, step, hi - lo);
          else if (index)
            max_tap(best + at, where + at, from, step, hi - lo, (p0 * d[1].in + p1) * inner.in + first,
                    inner.stride);
          else max_tap(best + at, from, step, hi - lo);
        }
      }
    }
    for (int64_t o = begin; o < end; ++o) {
      const Window& w2 = inner.windows[o];
      A value = best[o - begin];
      if (!max) value = w0.n * w1.n * w2.n == 0 ? A(0) : value / divisor(w0, w1, w2);
      y[(o - begin) * inner.y_stride] = static_cast<S>(value);
      if (index) index[(o - begin) * inner.index_stride] = where[o - begin];
    }
  }

  void forward() const {
    int64_t rows = d[0].out * d[1].out, tasks = batch * channel_blocks() * rows;
    int64_t taps = numel(p.x) / std::max<int64_t>(1, numel(p.y)) + d[0].taps * d[1].taps * d[2].taps;
    parallel(tasks, std::max<int64_t>(1, 32768 / (d[2].out * width * taps)), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        int64_t row = t % rows, block = t / rows;
        forward_row(block / channel_blocks(), block % channel_blocks() * width, row / d[1].out,
                    row % d[1].out);
      }
    });
  }

  // ---- backward: the planes of `width` channels, summed in `sum` [plane, width]
  // False: an index outside the plane, given in `bad`.
  bool backward_max(A* sum, int64_t n, int64_t c, int64_t count, int64_t* bad) const {
    for (int64_t o0 = 0; o0 < d[0].out; ++o0) {
      for (int64_t o1 = 0; o1 < d[1].out; ++o1) {
        const S* grad = at<S>(p.y, n, c) + o0 * d[0].y_stride + o1 * d[1].y_stride;
        const int64_t* index = at<int64_t>(p.index, n, c) + o0 * d[0].index_stride + o1 * d[1].index_stride;
        for (int64_t o2 = 0; o2 < d[2].out; ++o2) {
          const S* g = grad + o2 * d[2].y_stride;
          const int64_t* i = index + o2 * d[2].index_stride;
          for (int64_t j = 0; j < count; ++j) {
            if (static_cast<uint64_t>(i[j]) >= static_cast<uint64_t>(plane)) return *bad = i[j], false;
            sum[i[j] * width + j] += static_cast<A>(g[j]);
          }
        }
      }
    }
    return true;
  }

  void backward_average(A* sum, int64_t n, int64_t c, int64_t count) const {
    std::vector<A> share(by_channel ? count : d[2].out);
    for (int64_t o0 = 0; o0 < d[0].out; ++o0) {
      for (int64_t o1 = 0; o1 < d[1].out; ++o1) {
        const S* grad = at<S>(p.y, n, c) + o0 * d[0].y_stride + o1 * d[1].y_stride;
        const Window &w0 = d[0].windows[o0], &w1 = d[1].windows[o1];
        if (!by_channel) {
          for (int64_t o2 = 0; o2 < d[2].out; ++o2) {
            share[o2] = static_cast<A>(grad[o2 * d[2].y_stride]) / divisor(w0, w1, d[2].windows[o2]);
          }
        }
        for (int64_t o2 = 0; by_channel && o2 < d[2].out; ++o2) {
          const Window& w2 = d[2].windows[o2];
          A by = divisor(w0, w1, w2);
          for (int64_t j = 0; j < count; ++j) share[j] = static_cast<A>(grad[o2 * d[2].y_stride + j]) / by;
          rows(w0, w1, [&](int64_t row) {
            for (int64_t i = 0; i < w2.n; ++i) {
              add_tap(sum + (row + w2.start + i * d[2].step) * width, 1, share.data(), count);
            }
          });
        }
        if (by_channel) continue;
        rows(w0, w1, [&](int64_t row) {
          if (!d[2].linear) {
            for (int64_t o2 = 0; o2 < d[2].out; ++o2) {
              const Window& w2 = d[2].windows[o2];
              for (int64_t i = 0; i < w2.n; ++i) sum[row + w2.start + i] += share[o2];
            }
            return;
          }
          for (int64_t k = 0; k < d[2].taps; ++k) {
            int64_t lo, hi;
            inside(d[2], k, 0, d[2].out, lo, hi);
            if (lo >= hi) continue;
            add_tap(sum + row + lo * d[2].stride + d[2].offset + k * d[2].step, d[2].stride,
                    share.data() + lo, hi - lo);
          }
        });
      }
    }
  }

  template <class F>
  void rows(const Window& w0, const Window& w1, F&& f) const {
    for (int64_t i0 = 0; i0 < w0.n; ++i0) {
      for (int64_t i1 = 0; i1 < w1.n; ++i1) {
        f(((w0.start + i0 * d[0].step) * d[1].in + w1.start + i1 * d[1].step) * d[2].in);
      }
    }
  }

  void store(const A* sum, int64_t n, int64_t c, int64_t count) const {
    for (int64_t i0 = 0; i0 < d[0].in; ++i0) {
      for (int64_t i1 = 0; i1 < d[1].in; ++i1) {
        S* to = at<S>(p.x, n, c) + i0 * d[0].x_stride + i1 * d[1].x_stride;
        const A* row = sum + (i0 * d[1].in + i1) * d[2].in * width;
        if (!by_channel) {
          store_row(to, d[2].x_stride, row, d[2].in);
        } else {
          for (int64_t i2 = 0; i2 < d[2].in; ++i2)
            store_row(to + i2 * d[2].x_stride, 1, row + i2 * width, count);
        }
      }
    }
  }

  void backward(Context& context) const {
    int64_t blocks = channel_blocks(), tasks = batch * blocks;
    int64_t grain = std::max<int64_t>(1, 16384 / (plane * width));
    A* memory = static_cast<A*>(context.scratch(omp_get_max_threads() * plane * width * sizeof(A)));
    if (!memory) return;
    parallel(tasks, grain, [&](int64_t begin, int64_t end) {
      A* sum = memory + omp_get_thread_num() * plane * width;
      for (int64_t t = begin; t < end; ++t) {
        int64_t n = t / blocks, c = t % blocks * width, count = std::min(width, channels - c), bad = 0;
        std::fill_n(sum, plane * width, A(0));
        if (p.kind != FL_POOL_MAX) {
          backward_average(sum, n, c, count);
        } else if (!backward_max(sum, n, c, count, &bad)) {
          context.fail(FL_INDEX_OUT_OF_RANGE,
                       "pool_backward: index %lld is outside a plane of %lld positions",
                       static_cast<long long>(bad), static_cast<long long>(plane));
          return;
        }
        store(sum, n, c, count);
      }
    });
  }
};

template <class F>
void with_types(uint8_t dtype, F&& f) {
  switch (dtype) {
    case FL_U8:
      return f(uint8_t(), uint8_t());
    case FL_I8:
      return f(int8_t(), int8_t());
    case FL_I16:
      return f(int16_t(), int16_t());
    case FL_I32:
      return f(int32_t(), int32_t());
    case FL_I64:
      return f(int64_t(), int64_t());
    default:
      return with_float_types(dtype, f);
  }
}

template <class Args>
Pool pool_of(const Args& args, const fl_tensor& x, const fl_tensor& y) {
  Pool p{Tensor(x), Tensor(y), Tensor(), {}, {}, {}, {}, args.kind, args.count_padding, args.divisor};
  if (args.kind == FL_POOL_MAX) p.index = optional(args.index);
  std::copy_n(args.kernel, 3, p.kernel);
  std::copy_n(args.stride, 3, p.stride);
  std::copy_n(args.padding, 3, p.padding);
  std::copy_n(args.dilation, 3, p.dilation);
  return p;
}

fl_status check(const char* name, const fl_tensor& x, const fl_tensor& y, const fl_tensor* index, int kind,
                uint32_t integers) {
  uint32_t dtypes = kFloats | (kind == FL_POOL_MAX ? integers : 0);
  if (kind < 0 || kind > FL_POOL_ADAPTIVE_AVERAGE || !(dtypes & FL_BIT(x.dtype))) return FL_UNSUPPORTED;
  bool same = x.dtype == y.dtype && x.ndim == y.ndim && x.ndim >= 3 && x.ndim <= 5 &&
              x.sizes[0] == y.sizes[0] && x.sizes[1] == y.sizes[1];
  if (same && (!index || (index->dtype == FL_I64 && index->ndim == x.ndim))) return FL_OK;
  set_error(
      "%s: x and y must agree in dtype, rank, batch and channels, and the index be int64 of the same rank",
      name);
  return FL_INVALID;
}

void claim(Claims& claims, uint16_t entry, uint32_t integers) {
  claims.push_back({entry, FL_POOL_MAX, kFloats | integers});
  claims.push_back({entry, FL_POOL_AVERAGE, kFloats});
  claims.push_back({entry, FL_POOL_ADAPTIVE_AVERAGE, kFloats});
}

}  // namespace

void claim_pool(Claims& claims) { claim(claims, FL_ENTRY_POOL, kIntegers); }
void claim_pool_backward(Claims& claims) { claim(claims, FL_ENTRY_POOL_BACKWARD, 0); }

fl_status pool(const fl_launch* launch, const fl_pool_args* args) {
  if (fl_status s = check("pool", args->x, args->y, args->index, args->kind, kIntegers); s != FL_OK) return s;
  return submit(launch, "pool", [p = pool_of(*args, args->x, args->y)](Context&) {
    with_types(p.x.dtype, [&](auto s, auto a) {
      using S = decltype(s);
      using A = decltype(a);
      int64_t plane = numel(p.x) / (p.x.sizes[0] * p.x.sizes[1]);
      if (sizeof(A) == 4 && plane > INT32_MAX)
        Pooling<S, std::conditional_t<std::is_integral_v<A>, int64_t, double>>(p).forward();
      else Pooling<S, A>(p).forward();
    });
  });
}

fl_status pool_backward(const fl_launch* launch, const fl_pool_backward_args* args) {
  if (fl_status s = check("pool_backward", args->grad_x, args->grad_y, args->index, args->kind, 0);
      s != FL_OK)
    return s;
  if (args->kind == FL_POOL_MAX && !args->index) {
    set_error("pool_backward: the gradient of max pooling needs the index");
    return FL_INVALID;
  }
  return submit(launch, "pool_backward", [p = pool_of(*args, args->grad_x, args->grad_y)](Context& context) {
    with_types(p.x.dtype, [&](auto s, auto a) {
      if constexpr (std::is_floating_point_v<decltype(a)>)
        Pooling<decltype(s), decltype(a)>(p).backward(context);
    });
  });
}

}  // namespace sim
