// Attention, forward: blocks of queries against blocks of keys with a running
// softmax.  The matrix of scores never exists.
#include "attention.h"

#include <omp.h>

#include <cmath>

#include "simd/attention_kernels.h"

namespace sim {
namespace {

template <class S, class T>
struct Forward {
  const Attention& a;
  const AttentionKernels<T>& kernels = attention_kernels<T>();
  int64_t width, blocks;

  explicit Forward(const Attention& attention)
      : a(attention),
        width(micro_kernel<T>().padded(std::min(a.queries(), kQueries))),
        blocks((a.queries() + kQueries - 1) / kQueries) {}

  int64_t buffer() const { return (a.features() + a.value_features() + kKeys) * width; }

  void block(int64_t b, int64_t h, int64_t l0, T* memory) const {
    const int64_t features = a.features(), value_features = a.value_features();
    const int64_t queries = std::min(kQueries, a.queries() - l0), key_head = h / (a.heads() / a.key_heads());
    T *q = memory, *result = q + features * width, *scores = result + value_features * width;
    T maximum[kQueries], sum[kQueries], factor[kQueries];
    std::fill_n(maximum, width, -std::numeric_limits<T>::infinity());
    std::fill_n(sum, width, T(0));
    load_queries(q, width, head<S>(a.q, b, h) + l0 * a.q.strides[2], a.q.strides[2], a.q.strides[3], queries,
                 features, static_cast<T>(a.scale));
    const T *k = head<T>(a.k, b, key_head), *v = head<T>(a.v, b, key_head);
    const int64_t end = a.causal ? std::min(a.keys(), l0 + queries) : a.keys();
    for (int64_t s0 = 0; s0 < end; s0 += kKeys) {
      int64_t keys = std::min(kKeys, end - s0);
      block_multiply(keys, width, features, k + s0 * a.k.strides[2], a.k.strides[2], a.k.strides[3], q, width,
                     scores, width, false);
      bias_and_mask<S>(a, b, h, l0, queries, s0, keys, scores, width);
      kernels.running_softmax(scores, keys, width, maximum, sum, factor);
      if (s0 > 0) kernels.scale_columns(result, value_features, width, factor);
      block_multiply(value_features, width, keys, v + s0 * a.v.strides[2], a.v.strides[3], a.v.strides[2],
                     scores, width, result, width, s0 > 0);
    }
    T* lse = head<T>(a.lse, b, h) + l0 * a.lse.strides[2];
    for (int64_t l = 0; l < queries; ++l) {
      bool none = sum[l] == 0;  // every key masked
      lse[l * a.lse.strides[2]] = none ? -std::numeric_limits<T>::infinity() : maximum[l] + std::log(sum[l]);
      factor[l] = none ? T(0) : T(1) / sum[l];
    }
    std::fill(factor + queries, factor + width, T(0));
    kernels.scale_columns(result, value_features, width, factor);
    S* out = head<S>(a.out, b, h) + l0 * a.out.strides[2];
    for (int64_t l = 0; l < queries; ++l) {
      for (int64_t e = 0; e < value_features; ++e) {
        out[l * a.out.strides[2] + e * a.out.strides[3]] = static_cast<S>(result[e * width + l]);
      }
    }
  }
};

template <class S, class T>
void run(Context& context, Attention a) {
  if (!as_compute_type<S, T>(context, a.k) || !as_compute_type<S, T>(context, a.v)) return;
  Forward<S, T> forward(a);
  T* memory = static_cast<T*>(context.scratch(omp_get_max_threads() * forward.buffer() * sizeof(T)));
  if (!memory) return;
  int64_t work = forward.width * a.keys() * (a.features() + a.value_features());
  parallel(a.batch() * a.heads() * forward.blocks, std::max<int64_t>(1, (1 << 17) / work),
           [&](int64_t begin, int64_t end) {
             for (int64_t i = begin; i < end; ++i) {
               int64_t bh = i / forward.blocks;
               forward.block(bh / a.heads(), bh % a.heads(), i % forward.blocks * kQueries,
                             memory + omp_get_thread_num() * forward.buffer());
             }
           });
}

}  // namespace

fl_status check_attention(const char* name, const fl_tensor& q, const fl_tensor& k, const fl_tensor& v,
                          const fl_tensor& out, const fl_tensor& lse, const fl_tensor* bias) {
  if (!(kAttentionDtypes & FL_BIT(q.dtype))) return FL_UNSUPPORTED;
  for (const fl_tensor* t : {&q, &k, &v, &out, bias}) {
    if (t && (t->ndim != 4 || t->dtype != q.dtype)) {
      set_error("%s: q, k, v, out and bias must have 4 dimensions and one dtype", name);
      return FL_INVALID;
    }
  }
  if (k.sizes[1] < 1 || q.sizes[1] % k.sizes[1] || k.sizes[3] != q.sizes[3] || v.sizes[2] != k.sizes[2] ||
      v.sizes[1] != k.sizes[1] || out.sizes[3] != v.sizes[3] || lse.ndim != 3 ||
      lse.dtype != (q.dtype == FL_F64 ? FL_F64 : FL_F32)) {
    set_error("%s: the sizes of q, k, v and out do not agree, or lse is not [B, H, L] in float32 (float64)",
              name);
    return FL_INVALID;
  }
  return FL_OK;
}

void claim_attention(Claims& claims) { claims.push_back({FL_ENTRY_ATTENTION, FL_ANY, kAttentionDtypes}); }

fl_status attention(const fl_launch* launch, const fl_attention_args* args) {
  fl_status status =
      check_attention("attention", args->q, args->k, args->v, args->out, args->lse, args->bias);
  if (status != FL_OK) return status;
  Attention a;
  a.q = Tensor(args->q), a.k = Tensor(args->k), a.v = Tensor(args->v), a.out = Tensor(args->out);
  a.lse = Tensor(args->lse), a.bias = optional(args->bias);
  a.scale = args->scale, a.causal = args->causal != 0;
  return submit(launch, "attention", [a](Context& context) {
    with_float_types(a.q.dtype, [&](auto s, auto t) { run<decltype(s), decltype(t)>(context, a); });
  });
}

}  // namespace sim
