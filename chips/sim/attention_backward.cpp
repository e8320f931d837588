// Attention, backward: the probabilities are computed again, block by block,
// from q, k and lse.  One thread does all of a key head, in one order, so that
// the sums over queries give the same bits each time.
#include <omp.h>

#include "attention.h"
#include "simd/attention_kernels.h"

namespace sim {
namespace {

template <class S, class T>
struct Backward {
  const Attention& a;
  const AttentionKernels<T>& kernels = attention_kernels<T>();
  int64_t width, columns, value_columns;  // the last two: features, padded to vectors

  explicit Backward(const Attention& attention)
      : a(attention),
        width(micro_kernel<T>().padded(std::min(a.queries(), kQueries))),
        columns(micro_kernel<T>().padded(a.features())),
        value_columns(micro_kernel<T>().padded(a.value_features())) {}

  int64_t buffer() const {
    return (2 * a.features() + a.value_features() + 2 * kKeys) * width +
           (kQueries + a.keys()) * (columns + value_columns);
  }

  void key_head(int64_t b, int64_t key_head, T* memory) const {
    const int64_t features = a.features(), value_features = a.value_features(), keys = a.keys();
    T *q = memory, *dq = q + features * width, *dout = dq + features * width,
      *p = dout + value_features * width, *ds = p + kKeys * width, *q_rows = ds + kKeys * width,
      *dout_rows = q_rows + kQueries * columns, *dk = dout_rows + kQueries * value_columns,
      *dv = dk + keys * columns;
    std::fill_n(dk, keys * (columns + value_columns), T(0));
    const T *k = head<T>(a.k, b, key_head), *v = head<T>(a.v, b, key_head);
    const int64_t k_row = a.k.strides[2], k_column = a.k.strides[3], v_row = a.v.strides[2],
                  v_column = a.v.strides[3];
    const int64_t group = a.heads() / a.key_heads();
    for (int64_t h = key_head * group; h < (key_head + 1) * group; ++h) {
      for (int64_t l0 = 0; l0 < a.queries(); l0 += kQueries) {
        const int64_t queries = std::min(kQueries, a.queries() - l0);
        T lse[kQueries], delta[kQueries];
        load_queries(q, width, head<S>(a.q, b, h) + l0 * a.q.strides[2], a.q.strides[2], a.q.strides[3],
                     queries, features, static_cast<T>(a.scale));
        load_queries(dout, width, head<S>(a.grad_out, b, h) + l0 * a.grad_out.strides[2],
                     a.grad_out.strides[2], a.grad_out.strides[3], queries, value_features, T(1));
        load_rows(q_rows, columns, q, queries, features);
        load_rows(dout_rows, value_columns, dout, queries, value_features);
        query_constants(b, h, l0, queries, dout_rows, lse, delta);
        const int64_t end = a.causal ? std::min(keys, l0 + queries) : keys;
        for (int64_t s0 = 0; s0 < end; s0 += kKeys) {
          int64_t n = std::min(kKeys, end - s0);
          block_multiply(n, width, features, k + s0 * k_row, k_row, k_column, q, width, p, width, false);
          bias_and_mask<S>(a, b, h, l0, queries, s0, n, p, width);
          kernels.probabilities(p, n, width, lse);
          block_multiply(n, width, value_features, v + s0 * v_row, v_row, v_column, dout, width, ds, width,
                         false);
          kernels.score_gradient(ds, p, n, width, delta);
          block_multiply(n, value_columns, queries, p, width, 1, dout_rows, value_columns,
                         dv + s0 * value_columns, value_columns, true);
          block_multiply(n, columns, queries, ds, width, 1, q_rows, columns, dk + s0 * columns, columns,
                         true);
          block_multiply(features, width, n, k + s0 * k_row, k_column, k_row, ds, width, dq, width, s0 > 0);
        }
        S* to = head<S>(a.grad_q, b, h) + l0 * a.grad_q.strides[2];
        const T scale = static_cast<T>(a.scale);
        for (int64_t l = 0; l < queries; ++l) {
          for (int64_t e = 0; e < features; ++e) {
            to[l * a.grad_q.strides[2] + e * a.grad_q.strides[3]] = static_cast<S>(dq[e * width + l] * scale);
          }
        }
      }
    }
    for (int64_t s = 0; s < keys; ++s) {
      store_row(head<S>(a.grad_k, b, key_head) + s * a.grad_k.strides[2], a.grad_k.strides[3],
                dk + s * columns, features);
      store_row(head<S>(a.grad_v, b, key_head) + s * a.grad_v.strides[2], a.grad_v.strides[3],
                dv + s * value_columns, value_features);
    }
  }

  // The transposed block the other way round: [queries, features].
  void load_rows(T* to, int64_t to_row, const T* from, int64_t queries, int64_t features) const {
    load_transposed(to, to_row, from, 1, width, queries, features);
    for (int64_t l = 0; l < queries; ++l) std::fill(to + l * to_row + features, to + (l + 1) * to_row, T(0));
  }

  // lse, and delta = Σ grad_out × out.  An infinite lse makes probabilities 0: of
  // rows whose keys are all masked, and of the lanes behind the last query.
  void query_constants(int64_t b, int64_t h, int64_t l0, int64_t queries, const T* dout_rows, T* lse,
                       T* delta) const {
    std::fill_n(lse, width, std::numeric_limits<T>::infinity());
    std::fill_n(delta, width, T(0));
    const T* from = head<T>(a.lse, b, h) + l0 * a.lse.strides[2];
    const S* out = head<S>(a.out, b, h) + l0 * a.out.strides[2];
    for (int64_t l = 0; l < queries; ++l) {
      T value = from[l * a.lse.strides[2]], sum = 0;
      if (value != -std::numeric_limits<T>::infinity()) lse[l] = value;
      for (int64_t e = 0; e < a.value_features(); ++e) {
        sum += dout_rows[l * value_columns + e] *
               static_cast<T>(out[l * a.out.strides[2] + e * a.out.strides[3]]);
      }
      delta[l] = sum;
    }
  }
};

template <class S, class T>
void run(Context& context, Attention a) {
  if (!as_compute_type<S, T>(context, a.k) || !as_compute_type<S, T>(context, a.v)) return;
  Backward<S, T> backward(a);
  int64_t each = (backward.buffer() + 15) / 16 * 16;
  T* memory = static_cast<T*>(context.scratch(omp_get_max_threads() * each * sizeof(T)));
  if (!memory) return;
  int64_t work = a.queries() * a.keys() * (a.features() + a.value_features());
  parallel(a.batch() * a.key_heads(), std::max<int64_t>(1, (1 << 16) / work),
           [&](int64_t begin, int64_t end) {
             for (int64_t i = begin; i < end; ++i) {
               backward.key_head(i / a.key_heads(), i % a.key_heads(), memory + omp_get_thread_num() * each);
             }
           });
}

}  // namespace

void claim_attention_backward(Claims& claims) {
  claims.push_back({FL_ENTRY_ATTENTION_BACKWARD, FL_ANY, kAttentionDtypes});
}

fl_status attention_backward(const fl_launch* launch, const fl_attention_backward_args* args) {
  fl_status status =
      check_attention("attention_backward", args->q, args->k, args->v, args->out, args->lse, args->bias);
  if (status != FL_OK) return status;
  for (const fl_tensor* t : {&args->grad_out, &args->grad_q, &args->grad_k, &args->grad_v}) {
    if (t->ndim != 4 || t->dtype != args->q.dtype) {
      set_error("attention_backward: gradients must have 4 dimensions and the dtype of q");
      return FL_INVALID;
    }
  }
  Attention a;
  a.q = Tensor(args->q), a.k = Tensor(args->k), a.v = Tensor(args->v), a.out = Tensor(args->out);
  a.lse = Tensor(args->lse), a.bias = optional(args->bias);
  a.grad_out = Tensor(args->grad_out), a.grad_q = Tensor(args->grad_q), a.grad_k = Tensor(args->grad_k);
  a.grad_v = Tensor(args->grad_v);
  a.scale = args->scale, a.causal = args->causal != 0;
  return submit(launch, "attention_backward", [a](Context& context) {
    with_float_types(a.q.dtype, [&](auto s, auto t) { run<decltype(s), decltype(t)>(context, a); });
  });
}

}  // namespace sim
