// Softmax and log-softmax, forward and backward.
//
// A slice is one row where the axis has the smallest stride; otherwise
// kColumns neighbouring slices are worked on side by side in a buffer.
#include "fl/author/space.h"
#include "rows.h"
#include "simd/row_kernels.h"

namespace sim {
namespace {

constexpr int64_t kGrain = 16384;  // values worth a thread

// t[0] is written, the others are read; `f` gets a slice of each, as rows or as
// columns side by side.
template <class A, int K, class Row, class Columns>
void each_slice(Context& context, const Tensor* const (&t)[K], int axis, Row&& row, Columns&& columns) {
  Space<K> space(K);
  Runs<A> runs[K];
  int64_t along[K];
  for (int k = 0; k < K; ++k) runs[k] = Runs<A>(*t[k]), along[k] = t[k]->ndim ? byte_stride(*t[k], axis) : 0;
  for (int d = 0; d < t[0]->ndim; ++d) {
    if (d == axis) continue;
    int64_t* s = space.push(t[0]->sizes[d]);
    for (int k = 0; k < K; ++k) s[k] = byte_stride(*t[k], d);
  }
  space.sort(1), space.merge();
  const int64_t n = t[0]->ndim ? t[0]->sizes[axis] : 1, points = space.points(), inner = space.inner_size();

  if (std::llabs(along[1]) <= std::llabs(space.inner_stride(1)) || inner < 4 || n == 1) {
    ThreadScratch scratch(context, size_t(K) * size_t(n) * sizeof(A));
    parallel(points, std::max<int64_t>(1, kGrain / n), [&](int64_t begin, int64_t end) {
      A* buffer = scratch.get<A>();
      Cursor<K> cursor(space, begin);
      for (int64_t p = begin; p < end; ++p, cursor.advance(1)) {
        const A* in[K];
        for (int k = 1; k < K; ++k) in[k] = runs[k].read(cursor.offset[k], along[k], n, buffer + k * n);
        A* out = runs[0].place(cursor.offset[0], along[0], n, buffer);
        row(in, out, n);
        runs[0].write(cursor.offset[0], along[0], n, out);
      }
    });
    return;
  }
  const int64_t strips = (inner + kColumns - 1) / kColumns;
  ThreadScratch scratch(context, size_t(K - 1) * size_t(n) * kColumns * sizeof(A));
  parallel(points / inner * strips, std::max<int64_t>(1, kGrain / (n * kColumns)),
           [&](int64_t begin, int64_t end) {
             A* block = scratch.get<A>();
             for (int64_t i = begin; i < end; ++i) {
               Cursor<K> cursor(space, i / strips, 1);
               int64_t first = i % strips * kColumns, width = std::min<int64_t>(kColumns, inner - first);
               for (int k = 1; k < K; ++k) {
                 A* to = block + (k - 1) * n * kColumns;
                 int64_t stride = space.inner_stride(k);
                 for (int64_t r = 0; r < n; ++r, to += kColumns) {
                   runs[k].read_convert(runs[k].data + cursor.offset[k] + first * stride + r * along[k],
                                        stride, reinterpret_cast<char*>(to), sizeof(A), width);
                   for (int64_t j = width; j < kColumns; ++j) to[j] = 0;
                 }
               }
               columns(block, n);
               int64_t stride = space.inner_stride(0);
               for (int64_t r = 0; r < n; ++r)
                 runs[0].write(cursor.offset[0] + first * stride + r * along[0], stride, width,
                               block + r * kColumns);
             }
           });
}

template <class A>
void forward(Context& context, const Tensor& in, const Tensor& out, int axis, bool log) {
  const RowKernels<A>& k = row_kernels<A>();
  each_slice<A, 2>(
      context, {&out, &in}, axis, [&](const A* const* x, A* y, int64_t n) { k.softmax(x[1], y, n, log); },
      [&](A* x, int64_t n) { k.softmax_columns(x, n, log); });
}

template <class A>
void backward(Context& context, const Tensor& grad_out, const Tensor& out, const Tensor& grad_in, int axis,
              bool log) {
  const RowKernels<A>& k = row_kernels<A>();
  each_slice<A, 3>(
      context, {&grad_in, &grad_out, &out}, axis,
      [&](const A* const* x, A* y, int64_t n) { k.softmax_backward(x[1], x[2], y, n, log); },
      [&](A* x, int64_t n) { k.softmax_backward_columns(x, x + n * kColumns, n, log); });
}

bool valid_axis(const fl_tensor& t, int32_t axis) {
  if (axis >= 0 && (axis < t.ndim || (axis == 0 && t.ndim == 0))) return true;
  set_error("sim: softmax along axis %d of a tensor of %d dimensions", axis, t.ndim);
  return false;
}

}  // namespace

fl_status softmax(const fl_launch* launch, const fl_softmax_args* args) {
  if (!is_float(args->in.dtype) || (args->out.dtype != args->in.dtype && args->out.dtype != FL_F32))
    return FL_UNSUPPORTED;
  if (!valid_axis(args->in, args->axis)) return FL_INVALID;
  return submit(
      launch, "softmax",
      [in = Tensor(args->in), out = Tensor(args->out), axis = args->axis, log = args->log != 0](Context& c) {
        in.dtype == FL_F64 ? forward<double>(c, in, out, axis, log) : forward<float>(c, in, out, axis, log);
      });
}

fl_status softmax_backward(const fl_launch* launch, const fl_softmax_backward_args* args) {
  if (!is_float(args->out.dtype) || !is_float(args->grad_out.dtype) || !is_float(args->grad_in.dtype))
    return FL_UNSUPPORTED;
  if (!valid_axis(args->out, args->axis)) return FL_INVALID;
  return submit(launch, "softmax_backward",
                [grad_out = Tensor(args->grad_out), out = Tensor(args->out), grad_in = Tensor(args->grad_in),
                 axis = args->axis, log = args->log != 0](Context& c) {
                  grad_in.dtype == FL_F64 || out.dtype == FL_F64
                      ? backward<double>(c, grad_out, out, grad_in, axis, log)
                      : backward<float>(c, grad_out, out, grad_in, axis, log);
                });
}

void claim_softmax(Claims& claims) { claims.push_back({FL_ENTRY_SOFTMAX, FL_ANY, kFloats}); }
void claim_softmax_backward(Claims& claims) {
  claims.push_back({FL_ENTRY_SOFTMAX_BACKWARD, FL_ANY, kFloats});
}

}  // namespace sim
