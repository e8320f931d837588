// Batch norm of [N, C, S], per channel.
//
// Two layouts: where a channel's values are neighbours (NCHW), a thread takes a
// channel, which its second-level cache mostly holds from one pass to the next;
// where the channels are neighbours (channels-last), a thread takes rows of C.
#include <cmath>

#include "fl/author/space.h"
#include "rows.h"
#include "simd/row_kernels.h"

namespace sim {
namespace {

constexpr int64_t kGrain = 32768;    // values worth a thread
constexpr int64_t kRun = 4096;       // values read at a time
constexpr int64_t kMostPieces = 64;  // of the rows; not the number of threads, so that bits repeat
constexpr int64_t kRowsBeforeWide = 16;

// The points of N × S, for up to three tensors of one shape; strides in bytes.
struct Layout {
  Space<3> points{3};
  int64_t channel[3] = {};
  int64_t C, M;
  bool rows;  // channels are neighbours

  explicit Layout(std::initializer_list<const Tensor*> tensors) {
    const Tensor& x = **tensors.begin();
    C = x.sizes[1];
    M = x.sizes[0] * x.sizes[2];
    for (int d : {0, 2}) {
      int64_t* s = points.push(x.sizes[d]);
      int k = 0;
      for (const Tensor* t : tensors) s[k++] = *t ? byte_stride(*t, d) : 0;
      for (; k < 3; ++k) s[k] = 0;
    }
    int k = 0;
    for (const Tensor* t : tensors) channel[k++] = *t ? byte_stride(*t, 1) : 0;
    points.sort(0), points.merge();
    int64_t inner = std::llabs(points.inner_stride(0));
    rows = C > 1 && (points.ndim == 0 || std::llabs(channel[0]) < inner);
  }
  int64_t pieces() const { return std::min({kMostPieces, M, std::max<int64_t>(1, M * C / kGrain)}); }

  // f(offsets, strides, n) for the runs of a channel.
  template <class F>
  void each_run(int64_t c, F&& f) const {
    Cursor<3> cursor(points, 0);
    int64_t strides[3], at[3];
    for (int k = 0; k < 3; ++k) strides[k] = points.inner_stride(k);
    for (int64_t p = 0; p < M;) {
      int64_t n = std::min(cursor.left(), kRun);
      for (int k = 0; k < 3; ++k) at[k] = cursor.offset[k] + c * channel[k];
      f(at, strides, n);
      p += n;
      cursor.advance(n);
    }
  }
  // f(offsets) for the rows of a piece.
  template <class F>
  void each_row(int64_t piece, int64_t of, F&& f) const {
    int64_t begin = M / of * piece + std::min(piece, M % of), end = begin + M / of + (piece < M % of);
    Cursor<3> cursor(points, begin);
    for (int64_t p = begin; p < end; ++p, cursor.advance(1)) f(p - begin, end - begin, cursor.offset);
  }
  int64_t piece_rows(int64_t piece, int64_t of) const { return M / of + (piece < M % of); }
};

// Means and sums of squared differences of all channels.
template <class A>
void statistics(Context& context, const Layout& l, const Runs<A>& x, double* mean, double* m2) {
  const RowKernels<A>& k = row_kernels<A>();
  if (!l.rows) {
    parallel(l.C, std::max<int64_t>(1, kGrain / l.M), [&](int64_t begin, int64_t end) {
      A buffer[kRun];
      for (int64_t c = begin; c < end; ++c) {
        int64_t count = 0;
        mean[c] = m2[c] = 0;
        l.each_run(c, [&](const int64_t* at, const int64_t* strides, int64_t n) {
          k.moments(x.read(at[0], strides[0], n, buffer), n, count, mean + c, m2 + c);
          count += n;
        });
      }
    });
    return;
  }
  const int64_t C = l.C, pieces = l.pieces();
  double* parts = static_cast<double*>(context.scratch(size_t(pieces * C) * 2 * sizeof(double)));
  ThreadScratch scratch(context, size_t(C) * 8 * sizeof(A));
  parallel(pieces, 1, [&](int64_t first, int64_t last) {
    A* buffer = scratch.get<A>();
    for (int64_t piece = first; piece < last; ++piece) {
      double* part = parts + piece * C * 2;
      std::fill(part, part + C * 2, 0.0);
      const A* rows[8];
      int held = 0;
      l.each_row(piece, pieces, [&](int64_t row, int64_t count, const int64_t* at) {
        rows[held] = x.read(at[0], l.channel[0], C, buffer + held * C);
        if (++held < 8 && row + 1 < count) return;
        k.moment_rows(rows, held, C, row + 1 - held, part, part + C);
        held = 0;
      });
    }
  });
  int64_t count = 0;
  std::fill(mean, mean + C, 0.0), std::fill(m2, m2 + C, 0.0);
  for (int64_t piece = 0; piece < pieces; ++piece) {
    const double *m = parts + piece * C * 2, *q = m + C;
    const double n = double(l.piece_rows(piece, pieces)), total = double(count) + n;
    for (int64_t c = 0; c < C; ++c) {
      double delta = m[c] - mean[c];
      mean[c] += delta * (n / total);
      m2[c] += q[c] + delta * delta * (double(count) * n / total);
    }
    count += int64_t(n);
  }
}

struct BatchNormJob {
  Tensor x, y, weight, bias, running_mean, running_var, save_mean, save_rstd;
  double momentum, eps;
  bool training;

  void operator()(Context& context) { x.dtype == FL_F64 ? run<double>(context) : run<float>(context); }

  template <class A>
  void run(Context& context) {
    const RowKernels<A>& k = row_kernels<A>();
    const Layout l({&x, &y});
    const Runs<A> from(x), to(y);
    const int64_t C = l.C;
    // The statistics are kept in double until they are stored.
    double* mean = static_cast<double*>(context.scratch(size_t(C) * 2 * sizeof(double)));
    double* rstd = mean + C;
    const double *old_mean = read_all<double>(context, running_mean),
                 *old_var = read_all<double>(context, running_var);
    if (training) {
      statistics(context, l, from, mean, rstd);
      double* update = static_cast<double*>(context.scratch(size_t(C) * 2 * sizeof(double)));
      const double M = double(l.M);
      for (int64_t c = 0; c < C; ++c) {
        if (old_mean) update[c] = (1 - momentum) * old_mean[c] + momentum * mean[c];
        if (old_var) update[C + c] = (1 - momentum) * old_var[c] + momentum * (rstd[c] / (M - 1));
        rstd[c] = 1 / std::sqrt(rstd[c] / M + eps);
      }
      write_all(running_mean, update);
      write_all(running_var, update + C);
      write_all(save_mean, mean);
      write_all(save_rstd, rstd);
    } else {
      for (int64_t c = 0; c < C; ++c) mean[c] = old_mean[c], rstd[c] = 1 / std::sqrt(old_var[c] + eps);
    }
    const A *w = read_all<A>(context, weight), *b = read_all<A>(context, bias);
    A* center = static_cast<A*>(context.scratch(size_t(C) * 3 * sizeof(A)));
    A *scale = center + C, *shift = scale + C;
    for (int64_t c = 0; c < C; ++c) {
      center[c] = A(mean[c]);
      scale[c] = w ? A(rstd[c] * double(w[c])) : A(rstd[c]);
      // What rounding the mean to A has left over.
      shift[c] = A((b ? double(b[c]) : 0.0) + (double(center[c]) - mean[c]) * double(scale[c]));
    }
    if (l.rows) {
      const int64_t pieces = l.pieces();
      ThreadScratch scratch(context, size_t(C) * 2 * sizeof(A));
      parallel(pieces, 1, [&](int64_t first, int64_t last) {
        A* buffer = scratch.get<A>();
        for (int64_t piece = first; piece < last; ++piece)
          l.each_row(piece, pieces, [&](int64_t, int64_t, const int64_t* at) {
            const A* in = from.read(at[0], l.channel[0], C, buffer);
            A* out = to.place(at[1], l.channel[1], C, buffer + C);
            k.affine_columns(in, out, C, center, scale, shift);
            to.write(at[1], l.channel[1], C, out);
          });
      });
      return;
    }
    parallel(C, std::max<int64_t>(1, kGrain / l.M), [&](int64_t begin, int64_t end) {
      A in_buffer[kRun], out_buffer[kRun];
      for (int64_t c = begin; c < end; ++c)
        l.each_run(c, [&](const int64_t* at, const int64_t* strides, int64_t n) {
          const A* in = from.read(at[0], strides[0], n, in_buffer);
          A* out = to.place(at[1], strides[1], n, out_buffer);
          k.affine(in, out, n, center[c], scale[c], shift[c]);
          to.write(at[1], strides[1], n, out);
        });
    });
  }
};

struct BatchNormBackwardJob {
  Tensor grad_y, x, weight, mean, rstd, grad_x, grad_weight, grad_bias;
  bool training;

  void operator()(Context& context) { x.dtype == FL_F64 ? run<double>(context) : run<float>(context); }

  template <class A>
  void run(Context& context) {
    const Layout l({&x, &grad_y, &grad_x});
    const Runs<A> in(x), grad(grad_y), out(grad_x);
    const int64_t C = l.C;
    const A *w = read_all<A>(context, weight), *m = read_all<A>(context, mean),
            *r = read_all<A>(context, rstd);
    double* sums = static_cast<double*>(context.scratch(size_t(C) * 2 * sizeof(double)));
    std::fill(sums, sums + C * 2, 0.0);
    A* results = static_cast<A*>(context.scratch(size_t(C) * 5 * sizeof(A)));
    Coefficients<A> k{results, results + C, results + 2 * C, m};

    // A channel's sums and gradients by one thread while the cache holds it, or all rows twice.
    if (!l.rows) {
      parallel(C, std::max<int64_t>(1, kGrain / l.M), [&](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c) {
          if (training || grad_weight || grad_bias) channel_sums(l, in, grad, m, c, sums);
          coefficients(k, l.M, w, r, sums, C, c);
          if (out) channel_gradient(l, in, grad, out, k, c);
        }
      });
    } else {
      if (training || grad_weight || grad_bias) row_sums(context, l, in, grad, m, sums);
      for (int64_t c = 0; c < C; ++c) coefficients(k, l.M, w, r, sums, C, c);
      if (out) row_gradient(context, l, in, grad, out, k);
    }
    A *gb = results + 3 * C, *gw = results + 4 * C;
    for (int64_t c = 0; c < C; ++c) gb[c] = A(sums[c]), gw[c] = A(sums[C + c] * double(r[c]));
    write_all(grad_bias, gb);
    write_all(grad_weight, gw);
  }

 private:
  // grad_x = scale × grad_y + (x - mean) × slope + offset
  template <class A>
  struct Coefficients {
    A *scale, *slope, *offset;
    const A* mean;
  };

  template <class A>
  void coefficients(const Coefficients<A>& k, int64_t M, const A* w, const A* r, const double* sums,
                    int64_t C, int64_t c) const {
    const double rstd = double(r[c]), scale = w ? rstd * double(w[c]) : rstd;
    k.scale[c] = A(scale);
    k.slope[c] = training ? A(-scale * rstd * rstd * sums[C + c] / double(M)) : A(0);
    k.offset[c] = training ? A(-scale * sums[c] / double(M)) : A(0);
  }

  template <class A>
  static void channel_sums(const Layout& l, const Runs<A>& in, const Runs<A>& grad, const A* m, int64_t c,
                           double* sums) {
    A in_buffer[kRun], grad_buffer[kRun];
    double sum = 0, dot = 0;
    l.each_run(c, [&](const int64_t* at, const int64_t* strides, int64_t n) {
      double s, d;
      row_kernels<A>().dots(grad.read(at[1], strides[1], n, grad_buffer),
                            in.read(at[0], strides[0], n, in_buffer), nullptr, n, m[c], &s, &d);
      sum += s, dot += d;
    });
    sums[c] = sum, sums[l.C + c] = dot;
  }

  template <class A>
  static void channel_gradient(const Layout& l, const Runs<A>& in, const Runs<A>& grad, const Runs<A>& out,
                               const Coefficients<A>& k, int64_t c) {
    A in_buffer[kRun], grad_buffer[kRun], out_buffer[kRun];
    l.each_run(c, [&](const int64_t* at, const int64_t* strides, int64_t n) {
      A* gx = out.place(at[2], strides[2], n, out_buffer);
      row_kernels<A>().gradient(grad.read(at[1], strides[1], n, grad_buffer),
                                in.read(at[0], strides[0], n, in_buffer), nullptr, gx, n, k.mean[c],
                                k.scale[c], k.slope[c], k.offset[c]);
      out.write(at[2], strides[2], n, gx);
    });
  }

  template <class A>
  static void row_sums(Context& context, const Layout& l, const Runs<A>& in, const Runs<A>& grad, const A* m,
                       double* sums) {
    const RowKernels<A>& k = row_kernels<A>();
    const int64_t C = l.C, pieces = l.pieces();
    double* parts = static_cast<double*>(context.scratch(size_t(pieces * C) * 2 * sizeof(double)));
    ThreadScratch scratch(context, size_t(C) * 4 * sizeof(A));
    parallel(pieces, 1, [&](int64_t first, int64_t last) {
      A* buffer = scratch.get<A>();
      A* some = buffer + 2 * C;
      for (int64_t piece = first; piece < last; ++piece) {
        double* part = parts + piece * C * 2;
        std::fill(part, part + C * 2, 0.0);
        std::fill(some, some + C * 2, A(0));
        l.each_row(piece, pieces, [&](int64_t row, int64_t count, const int64_t* at) {
          k.add_dots_columns(grad.read(at[1], l.channel[1], C, buffer),
                             in.read(at[0], l.channel[0], C, buffer + C), C, m, some, some + C);
          if ((row + 1) % kRowsBeforeWide && row + 1 < count) return;
          k.widen_add(some, part, C * 2);
          std::fill(some, some + C * 2, A(0));
        });
      }
    });
    for (int64_t piece = 0; piece < pieces; ++piece)
      for (int64_t i = 0; i < C * 2; ++i) sums[i] += parts[piece * C * 2 + i];
  }

  template <class A>
  static void row_gradient(Context& context, const Layout& l, const Runs<A>& in, const Runs<A>& grad,
                           const Runs<A>& out, const Coefficients<A>& k) {
    const int64_t C = l.C, pieces = l.pieces();
    ThreadScratch scratch(context, size_t(C) * 3 * sizeof(A));
    parallel(pieces, 1, [&](int64_t first, int64_t last) {
      A* buffer = scratch.get<A>();
      for (int64_t piece = first; piece < last; ++piece)
        l.each_row(piece, pieces, [&](int64_t, int64_t, const int64_t* at) {
          A* gx = out.place(at[2], l.channel[2], C, buffer + 2 * C);
          row_kernels<A>().gradient_columns(grad.read(at[1], l.channel[1], C, buffer),
                                            in.read(at[0], l.channel[0], C, buffer + C), gx, C, k.mean,
                                            k.scale, k.slope, k.offset);
          out.write(at[2], l.channel[2], C, gx);
        });
    });
  }
};

// Per-channel tensors are F32 or x's dtype.
bool fits(const fl_tensor& x, std::initializer_list<const fl_tensor*> channels,
          std::initializer_list<const fl_tensor*> others) {
  if (!is_float(x.dtype)) return false;
  for (const fl_tensor* t : channels)
    if (t && t->dtype != FL_F32 && t->dtype != x.dtype) return false;
  for (const fl_tensor* t : others)
    if (t && t->dtype != x.dtype) return false;
  return true;
}

}  // namespace

fl_status batch_norm(const fl_launch* launch, const fl_batch_norm_args* a) {
  if (!fits(a->x, {a->weight, a->bias, a->running_mean, a->running_var, a->save_mean, a->save_rstd}, {&a->y}))
    return FL_UNSUPPORTED;
  if (!a->training && (!a->running_mean || !a->running_var)) {
    set_error("sim: batch_norm without training needs running_mean and running_var");
    return FL_INVALID;
  }
  return submit(launch, "batch_norm",
                BatchNormJob{Tensor(a->x), Tensor(a->y), optional(a->weight), optional(a->bias),
                             optional(a->running_mean), optional(a->running_var), optional(a->save_mean),
                             optional(a->save_rstd), a->momentum, a->eps, a->training != 0});
}

fl_status batch_norm_backward(const fl_launch* launch, const fl_batch_norm_backward_args* a) {
  if (!fits(a->x, {a->weight, a->mean, a->rstd, a->grad_weight, a->grad_bias}, {&a->grad_y, a->grad_x}))
    return FL_UNSUPPORTED;
  if (!a->mean || !a->rstd) {
    set_error("sim: batch_norm_backward needs mean and rstd");
    return FL_INVALID;
  }
  return submit(launch, "batch_norm_backward",
                BatchNormBackwardJob{Tensor(a->grad_y), Tensor(a->x), optional(a->weight), optional(a->mean),
                                     optional(a->rstd), optional(a->grad_x), optional(a->grad_weight),
                                     optional(a->grad_bias), a->training != 0});
}

void claim_batch_norm(Claims& claims) { claims.push_back({FL_ENTRY_BATCH_NORM, FL_ANY, kFloats}); }
void claim_batch_norm_backward(Claims& claims) {
  claims.push_back({FL_ENTRY_BATCH_NORM_BACKWARD, FL_ANY, kFloats});
}

}  // namespace sim
