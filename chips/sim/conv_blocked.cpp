// Convolution on our own kernels, for F64 and whatever oneDNN has no kernel for:
// windows are gathered in chunks that stay in the cache, and multiplied there.
// Every sum has one order, so results are the same each time.
#include <omp.h>

#include <algorithm>
#include <vector>

#include "conv.h"
#include "gemm_kernel.h"

namespace sim {
namespace {

constexpr int64_t kPositions = 64;  // of a chunk
constexpr int64_t kColumns = 512;   // weights of one filter that a chunk gathers at a time

template <class T>
struct Windows {
  // Row-major operands, spatial dimensions padded to three at the front.
  T *x, *w, *y, *bias;
  int64_t bias_stride;
  int64_t batch, groups, channels, filters;  // the last two per group
  int64_t in[3], window[3], out[3], stride[3], padding[3], dilation[3];
  int64_t in_size = 1, out_size = 1, taps = 1;

  Windows(const Conv& c, const Tensor& tx, const Tensor& tw, const Tensor& ty)
      : x(tx.as<T>()),
        w(tw.as<T>()),
        y(ty.as<T>()),
        bias(c.bias.as<T>()),
        bias_stride(c.bias ? c.bias.strides[0] : 0),
        batch(tx.sizes[0]),
        groups(c.groups),
        channels(tw.sizes[1]),
        filters(tw.sizes[0] / c.groups) {
    int missing = 3 - c.spatial();
    for (int i = 0; i < 3; ++i) {
      int d = i - missing;
      in[i] = d < 0 ? 1 : tx.sizes[2 + d], window[i] = d < 0 ? 1 : tw.sizes[2 + d],
      out[i] = d < 0 ? 1 : ty.sizes[2 + d];
      stride[i] = d < 0 ? 1 : c.stride[d], padding[i] = d < 0 ? 0 : c.padding[d],
      dilation[i] = d < 0 ? 1 : c.dilation[d];
      in_size *= in[i], out_size *= out[i], taps *= window[i];
    }
  }
  int64_t columns() const { return channels * taps; }
  T* image(int64_t n, int64_t g) const { return x + (n * groups + g) * channels * in_size; }
  T* result(int64_t n, int64_t g) const { return y + (n * groups + g) * filters * out_size; }
  T* weights(int64_t g) const { return w + g * filters * columns(); }

  // f(column, position within the chunk, address in the image or null where the
  // window hangs over) for columns c0…c1 of positions p0…p1.
  template <class F>
  void visit(T* image, int64_t c0, int64_t c1, int64_t p0, int64_t p1, F&& f) const {
    for (int64_t c = c0; c < c1; ++c) {
      int64_t channel = c / taps, tap = c % taps;
      int64_t k2 = tap % window[2], k1 = tap / window[2] % window[1], k0 = tap / window[2] / window[1];
      int64_t z = p0 / out[2] / out[1], r = p0 / out[2] % out[1], q = p0 % out[2];
      T* plane = image + channel * in_size;
      for (int64_t p = p0; p < p1; ++p) {
        int64_t i0 = z * stride[0] - padding[0] + k0 * dilation[0],
                i1 = r * stride[1] - padding[1] + k1 * dilation[1],
                i2 = q * stride[2] - padding[2] + k2 * dilation[2];
        bool inside = i0 >= 0 && i0 < in[0] && i1 >= 0 && i1 < in[1] && i2 >= 0 && i2 < in[2];
        f(c - c0, p - p0, inside ? plane + (i0 * in[1] + i1) * in[2] + i2 : nullptr);
        if (++q == out[2]) {
          q = 0;
          if (++r == out[1]) r = 0, ++z;
        }
      }
    }
  }

  void forward(int64_t n, int64_t g, int64_t p0, T* gathered, T* tile) const {
    int64_t p1 = std::min(p0 + kPositions, out_size), count = p1 - p0;
    for (int64_t c0 = 0; c0 < columns(); c0 += kColumns) {
      int64_t c1 = std::min(c0 + kColumns, columns());
      visit(image(n, g), c0, c1, p0, p1,
            [&](int64_t c, int64_t p, T* at) { gathered[c * kPositions + p] = at ? *at : T(0); });
      block_multiply(filters, count, c1 - c0, weights(g) + c0, columns(), 1, gathered, kPositions, tile,
                     kPositions, c0 > 0);
    }
    T* to = result(n, g);
    for (int64_t f = 0; f < filters; ++f) {
      T add = bias ? bias[(g * filters + f) * bias_stride] : T(0);
      for (int64_t p = 0; p < count; ++p) to[f * out_size + p0 + p] = tile[f * kPositions + p] + add;
    }
  }

  // The whole image: chunks overlap in it.
  void backward_data(int64_t n, int64_t g, T* grad, T* gathered) const {
    T* to = image(n, g);
    std::fill(to, to + channels * in_size, T(0));
    for (int64_t p0 = 0; p0 < out_size; p0 += kPositions) {
      int64_t p1 = std::min(p0 + kPositions, out_size);
      for (int64_t f = 0; f < filters; ++f) {
        std::copy(result(n, g) + f * out_size + p0, result(n, g) + f * out_size + p1, grad + f * kPositions);
      }
      for (int64_t c0 = 0; c0 < columns(); c0 += kColumns) {
        int64_t c1 = std::min(c0 + kColumns, columns());
        block_multiply(c1 - c0, p1 - p0, filters, weights(g) + c0, 1, columns(), grad, kPositions, gathered,
                       kPositions, false);
        visit(to, c0, c1, p0, p1, [&](int64_t c, int64_t p, T* at) {
          if (at) *at += gathered[c * kPositions + p];
        });
      }
    }
  }

  // Columns c0…c1 of the weights of one group, over all images.
  void backward_weight(int64_t g, int64_t c0, int64_t c1, T* gathered, T* tile) const {
    const int64_t width = kColumns;
    for (int64_t n = 0; n < batch; ++n) {
      for (int64_t p0 = 0; p0 < out_size; p0 += kPositions) {
        int64_t p1 = std::min(p0 + kPositions, out_size);
        visit(image(n, g), c0, c1, p0, p1,
              [&](int64_t c, int64_t p, T* at) { gathered[p * width + c] = at ? *at : T(0); });
        block_multiply(filters, c1 - c0, p1 - p0, result(n, g) + p0, out_size, 1, gathered, width, tile,
                       width, n + p0 > 0);
      }
    }
    for (int64_t f = 0; f < filters; ++f)
      std::copy(tile + f * width, tile + f * width + c1 - c0, weights(g) + f * columns() + c0);
  }

  void backward_bias(int64_t k) const {
    T sum = 0;
    for (int64_t n = 0; n < batch; ++n) {
      const T* from = y + (n * groups * filters + k) * out_size;
      for (int64_t p = 0; p < out_size; ++p) sum += from[p];
    }
    bias[k * bias_stride] = sum;
  }
};

template <class T>
void convolve(Context& context, const Conv& c) {
  const int out = c.kind == FL_CONV_FORWARD ? 2 : c.kind == FL_CONV_BACKWARD_DATA ? 0 : 1;
  const Tensor* given[3] = {&c.x, &c.w, &c.y};
  Tensor dense[3];
  for (int i = 0; i < 3; ++i) {
    dense[i] = *given[i];
    if (contiguous(dense[i])) continue;
    dense[i] = contiguous_like(context, *given[i], given[i]->dtype);
    if (!dense[i]) return;
    if (i != out) convert(*given[i], dense[i]);
  }
  Windows<T> w(c, dense[0], dense[1], dense[2]);
  const int64_t gathered_size = kColumns * kPositions, tile_size = w.filters * std::max(kPositions, kColumns);
  T* memory =
      static_cast<T*>(context.scratch(omp_get_max_threads() * (gathered_size + tile_size) * sizeof(T)));
  if (!memory) return;
  auto mine = [&] { return memory + omp_get_thread_num() * (gathered_size + tile_size); };
  if (c.kind == FL_CONV_FORWARD) {
    int64_t chunks = (w.out_size + kPositions - 1) / kPositions;
    parallel(w.batch * w.groups * chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t image = i / chunks;
        w.forward(image / w.groups, image % w.groups, i % chunks * kPositions, mine(),
                  mine() + gathered_size);
      }
    });
  } else if (c.kind == FL_CONV_BACKWARD_DATA) {
    parallel(w.batch * w.groups, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        w.backward_data(i / w.groups, i % w.groups, mine() + gathered_size, mine());
    });
  } else {
    // Narrower columns where wide ones would leave threads without work.
    int64_t width =
        std::clamp<int64_t>(w.columns() * w.groups / (2 * omp_get_max_threads()) / 64 * 64, 64, kColumns);
    int64_t blocks = (w.columns() + width - 1) / width;
    parallel(w.groups * blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t c0 = i % blocks * width;
        w.backward_weight(i / blocks, c0, std::min(c0 + width, w.columns()), mine(), mine() + gathered_size);
      }
    });
    if (c.bias) {
      parallel(w.groups * w.filters, 1, [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k) w.backward_bias(k);
      });
    }
  }
  if (dense[out].data != given[out]->data) convert(dense[out], *given[out]);
}

}  // namespace

void convolve_blocked(Context& context, const Conv& c) {
  c.x.dtype == FL_F64 ? convolve<double>(context, c) : convolve<float>(context, c);
}

}  // namespace sim
