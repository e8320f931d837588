// Layer, group and RMS norm.  A row is what is normalised together: [C, S] of
// one (n, g), read as one array.
#include <cmath>

#include "fl/author/space.h"
#include "rows.h"
#include "simd/row_kernels.h"

namespace sim {
namespace {

constexpr int64_t kGrain = 16384;  // values worth a thread
constexpr int64_t kMostPieces =
    32;  // partial weight gradients; not the number of threads, so that bits repeat
constexpr int64_t kRowsBeforeWide = 16;

// [N, G, C, S] in rows of C × S.
template <class A>
struct RowView {
  Runs<A> runs;
  int64_t n, g, c, s;
  int64_t sn, sg, sc, ss;  // bytes
  bool flat = false;
  int64_t flat_stride = 0;

  RowView() = default;
  explicit RowView(const Tensor& t) : runs(t) {
    if (!t) return;
    n = t.sizes[0], g = t.sizes[1], c = t.sizes[2], s = t.sizes[3];
    sn = byte_stride(t, 0), sg = byte_stride(t, 1), sc = byte_stride(t, 2), ss = byte_stride(t, 3);
    flat = s == 1 || c == 1 || sc == s * ss;
    flat_stride = s == 1 ? sc : ss;
  }
  explicit operator bool() const { return bool(runs); }
  int64_t offset(int64_t row) const { return row / g * sn + row % g * sg; }
  const A* read(int64_t row, A* buffer) const {
    if (flat) return runs.read(offset(row), flat_stride, c * s, buffer);
    const char* from = runs.data + offset(row);
    char* to = reinterpret_cast<char*>(buffer);
    const int64_t size = sizeof(A);
    // Along the smaller stride, to use what a cache line brings.
    if (std::llabs(ss) <= std::llabs(sc))
      for (int64_t i = 0; i < c; ++i) runs.read_convert(from + i * sc, ss, to + i * s * size, size, s);
    else
      for (int64_t i = 0; i < s; ++i) runs.read_convert(from + i * ss, sc, to + i * size, s * size, c);
    return buffer;
  }
  A* place(int64_t row, A* buffer) const {
    return flat ? runs.place(offset(row), flat_stride, c * s, buffer) : buffer;
  }
  void write(int64_t row, const A* values) const {
    if (flat) return runs.write(offset(row), flat_stride, c * s, values);
    const char* from = reinterpret_cast<const char*>(values);
    char* to = runs.data + offset(row);
    const int64_t size = sizeof(A);
    if (std::llabs(ss) <= std::llabs(sc))
      for (int64_t i = 0; i < c; ++i) runs.write_convert(from + i * s * size, size, to + i * sc, ss, s);
    else
      for (int64_t i = 0; i < s; ++i) runs.write_convert(from + i * size, s * size, to + i * ss, sc, c);
  }
};

// A number a row: [N, G].
template <class A>
A& statistic(const Tensor& t, int64_t n, int64_t g) {
  return t.as<A>()[n * t.strides[0] + g * t.strides[1]];
}

struct NormJob {
  Tensor x, y, weight, bias, mean, rstd;
  double eps;
  bool rms;

  void operator()(Context& context) { x.dtype == FL_F64 ? run<double>(context) : run<float>(context); }
  template <class A>
  void run(Context& context) {
    const RowKernels<A>& k = row_kernels<A>();
    const RowView<A> from(x), to(y);
    const A *w = read_all<A>(context, weight), *b = read_all<A>(context, bias);
    const int64_t C = from.c, S = from.s, M = C * S;
    ThreadScratch scratch(context, size_t(M) * 2 * sizeof(A));
    parallel(from.n * from.g, std::max<int64_t>(1, kGrain / M), [&](int64_t begin, int64_t end) {
      A* buffer = scratch.get<A>();
      for (int64_t row = begin; row < end; ++row) {
        const int64_t n = row / from.g, g = row % from.g;
        const A* in = from.read(row, buffer);
        A* out = to.place(row, buffer + M);
        double m = 0, m2 = 0;
        if (rms) m2 = k.squares(in, M);
        else k.moments(in, M, 0, &m, &m2);
        const A center = A(m), scale = A(1 / std::sqrt(m2 / double(M) + eps));
        const A *wg = w ? w + g * C : nullptr, *bg = b ? b + g * C : nullptr;
        if (S == 1) {
          k.normalize(in, out, C, center, scale, wg, bg);
        } else {
          for (int64_t c = 0; c < C; ++c)
            k.affine(in + c * S, out + c * S, S, center, wg ? scale * wg[c] : scale, bg ? bg[c] : A(0));
        }
        to.write(row, out);
        if (mean) statistic<A>(mean, n, g) = center;
        if (rstd) statistic<A>(rstd, n, g) = scale;
      }
    });
  }
};

struct NormBackwardJob {
  Tensor grad_y, x, weight, mean, rstd, grad_x, grad_weight, grad_bias;
  bool rms;

  void operator()(Context& context) { x.dtype == FL_F64 ? run<double>(context) : run<float>(context); }
  template <class A>
  void run(Context& context) {
    const RowKernels<A>& k = row_kernels<A>();
    const RowView<A> grad(grad_y), in(x), out(grad_x);
    const A* w = read_all<A>(context, weight);
    const int64_t G = in.g, C = in.c, S = in.s, M = C * S, rows = in.n * G, columns = G * C;
    const bool sums = grad_weight || grad_bias;
    const int64_t pieces = std::min({kMostPieces, rows, std::max<int64_t>(1, rows * M / kGrain)});
    // A piece's own sums over its rows: Σ g and Σ g·x̂ a (g, c), narrow and wide.
    double* wide =
        sums ? static_cast<double*>(context.scratch(size_t(pieces * columns) * 2 * sizeof(double))) : nullptr;
    A* narrow =
        sums && S == 1 ? static_cast<A*>(context.scratch(size_t(pieces * columns) * 2 * sizeof(A))) : nullptr;
    ThreadScratch scratch(context, size_t(M) * 3 * sizeof(A));

    parallel(pieces, 1, [&](int64_t first, int64_t last) {
      A* buffer = scratch.get<A>();
      for (int64_t piece = first; piece < last; ++piece) {
        double* total = wide + piece * columns * 2;
        A* some = narrow + piece * columns * 2;
        if (sums) std::fill(total, total + columns * 2, 0.0);
        if (narrow) std::fill(some, some + columns * 2, A(0));
        int64_t begin = rows * piece / pieces, end = rows * (piece + 1) / pieces, held = 0;
        for (int64_t row = begin; row < end; ++row) {
          const int64_t n = row / G, g = row % G;
          const A *gy = grad.read(row, buffer), *xv = in.read(row, buffer + M);
          const A center = rms ? A(0) : statistic<A>(mean, n, g), scale = statistic<A>(rstd, n, g);
          const A* wg = w ? w + g * C : nullptr;
          double sum = 0, dot = 0;
          if (S == 1) {
            if (narrow) {
              k.add_dots(gy, xv, C, center, scale, some + g * C, some + columns + g * C);
              if (++held == kRowsBeforeWide * G || row + 1 == end) {
                k.widen_add(some, total, columns * 2);
                std::fill(some, some + columns * 2, A(0));
                held = 0;
              }
            }
            if (out) k.dots(gy, xv, wg, C, center, &sum, &dot);
          } else {
            for (int64_t c = 0; c < C; ++c) {
              double s, d;
              k.dots(gy + c * S, xv + c * S, nullptr, S, center, &s, &d);
              sum += wg ? s * double(wg[c]) : s;
              dot += wg ? d * double(wg[c]) : d;
              if (sums) total[g * C + c] += s, total[columns + g * C + c] += d * double(scale);
            }
          }
          if (!out) continue;
          const double r = double(scale);
          const A slope = A(-r * r * r * dot / double(M)), offset = rms ? A(0) : A(-r * sum / double(M));
          A* gx = out.place(row, buffer + 2 * M);
          if (S == 1) {
            k.gradient(gy, xv, wg, gx, C, center, scale, slope, offset);
          } else {
            for (int64_t c = 0; c < C; ++c)
              k.gradient(gy + c * S, xv + c * S, nullptr, gx + c * S, S, center, wg ? scale * wg[c] : scale,
                         slope, offset);
          }
          out.write(row, gx);
        }
      }
    });
    if (!sums) return;
    for (int64_t piece = 1; piece < pieces; ++piece)
      for (int64_t i = 0; i < columns * 2; ++i) wide[i] += wide[piece * columns * 2 + i];
    A* result = static_cast<A*>(context.scratch(size_t(columns) * 2 * sizeof(A)));
    for (int64_t i = 0; i < columns * 2; ++i) result[i] = A(wide[i]);
    write_all(grad_bias, result);
    write_all(grad_weight, result + columns);
  }
};

// Statistics are F32, or F64 with F64.
bool fits(const fl_tensor& x, std::initializer_list<const fl_tensor*> statistics,
          std::initializer_list<const fl_tensor*> others) {
  if (!is_float(x.dtype)) return false;
  const uint8_t wide = x.dtype == FL_F64 ? FL_F64 : FL_F32;
  for (const fl_tensor* t : statistics)
    if (t && t->dtype != wide) return false;
  for (const fl_tensor* t : others)
    if (t && !is_float(t->dtype)) return false;
  return true;
}

}  // namespace

fl_status norm(const fl_launch* launch, const fl_norm_args* a) {
  if (!fits(a->x, {a->mean, a->rstd}, {&a->y, a->weight, a->bias})) return FL_UNSUPPORTED;
  if (a->kind != FL_NORM_LAYER && a->kind != FL_NORM_RMS) return FL_UNSUPPORTED;
  return submit(launch, "norm",
                NormJob{Tensor(a->x), Tensor(a->y), optional(a->weight), optional(a->bias), optional(a->mean),
                        optional(a->rstd), a->eps, a->kind == FL_NORM_RMS});
}

fl_status norm_backward(const fl_launch* launch, const fl_norm_backward_args* a) {
  if (!fits(a->x, {a->mean, a->rstd}, {&a->grad_y, a->weight, a->grad_x, a->grad_weight, a->grad_bias}))
    return FL_UNSUPPORTED;
  if (a->kind != FL_NORM_LAYER && a->kind != FL_NORM_RMS) return FL_UNSUPPORTED;
  if (!a->rstd || (a->kind == FL_NORM_LAYER && !a->mean)) {
    set_error("sim: norm_backward needs rstd, and mean unless it is RMS norm");
    return FL_INVALID;
  }
  return submit(launch, "norm_backward",
                NormBackwardJob{Tensor(a->grad_y), Tensor(a->x), optional(a->weight), optional(a->mean),
                                optional(a->rstd), optional(a->grad_x), optional(a->grad_weight),
                                optional(a->grad_bias), a->kind == FL_NORM_RMS});
}

void claim_norm(Claims& claims) {
  claims.push_back({FL_ENTRY_NORM, FL_NORM_LAYER, kFloats});
  claims.push_back({FL_ENTRY_NORM, FL_NORM_RMS, kFloats});
}
void claim_norm_backward(Claims& claims) {
  claims.push_back({FL_ENTRY_NORM_BACKWARD, FL_NORM_LAYER, kFloats});
  claims.push_back({FL_ENTRY_NORM_BACKWARD, FL_NORM_RMS, kFloats});
}

}  // namespace sim
