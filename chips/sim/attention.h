// What attention's two directions share: how blocks are laid out.
//
// Scores are kept transposed, [keys, queries]: a block's queries are the lanes
// of a vector.  Maximum, sum and rescaling then need no horizontal step, and
// keys and values are read where they lie, whatever their strides.
#pragma once

#include <algorithm>
#include <limits>

#include "gemm_kernel.h"
#include "sim.h"

namespace sim {

constexpr int64_t kQueries = 64, kKeys = 64;  // of a block: its scores fit the L1 cache

struct Attention {
  Tensor q, k, v, out, lse, bias;
  Tensor grad_out, grad_q, grad_k, grad_v;  // backward only
  double scale;
  bool causal;

  int64_t batch() const { return q.sizes[0]; }
  int64_t heads() const { return q.sizes[1]; }
  int64_t key_heads() const { return k.sizes[1]; }
  int64_t queries() const { return q.sizes[2]; }
  int64_t keys() const { return k.sizes[2]; }
  int64_t features() const { return q.sizes[3]; }
  int64_t value_features() const { return v.sizes[3]; }
};

template <class S>
S* head(const Tensor& t, int64_t b, int64_t h) {
  return t.as<S>() + b * t.strides[0] + h * t.strides[1];
}

// Add the bias of keys s0…s0+keys and queries l0…l0+queries to the scores, and
// hide from each query what comes after it.
template <class S, class T>
void bias_and_mask(const Attention& a, int64_t b, int64_t h, int64_t l0, int64_t queries, int64_t s0,
                   int64_t keys, T* scores, int64_t width) {
  if (a.bias) {
    const S* from = head<S>(a.bias, b, h) + l0 * a.bias.strides[2] + s0 * a.bias.strides[3];
    int64_t sl = a.bias.strides[2], ss = a.bias.strides[3];
    for (int64_t s = 0; s < keys; ++s) {
      for (int64_t l = 0; l < queries; ++l) scores[s * width + l] += static_cast<T>(from[l * sl + s * ss]);
    }
  }
  if (a.causal && s0 + keys > l0 + 1) {
    for (int64_t s = 0; s < keys; ++s) {
      int64_t hidden = std::clamp<int64_t>(s0 + s - l0, 0, queries);
      std::fill_n(scores + s * width, hidden, -std::numeric_limits<T>::infinity());
    }
  }
}

// A block of queries, [features, width] and scaled, zeros behind the last.
template <class S, class T>
void load_queries(T* to, int64_t width, const S* from, int64_t row, int64_t column, int64_t queries,
                  int64_t features, T scale) {
  load_transposed(to, width, from, column, row, features, queries);
  for (int64_t e = 0; e < features; ++e) {
    for (int64_t l = 0; l < queries; ++l) to[e * width + l] *= scale;
    std::fill(to + e * width + queries, to + (e + 1) * width, T(0));
  }
}

// Keys or values as T: in place where they are, else a converted copy in scratch
// memory.  False: no memory.
template <class S, class T>
bool as_compute_type(Context& context, Tensor& t) {
  if constexpr (!std::is_same_v<S, T>) {
    int64_t heads = t.sizes[1], rows = t.sizes[2], columns = t.sizes[3];
    T* copy = static_cast<T*>(context.scratch(numel(t) * sizeof(T)));
    if (!copy) return false;
    parallel(t.sizes[0] * heads * rows, std::max<int64_t>(1, 16384 / columns),
             [&](int64_t begin, int64_t end) {
               for (int64_t i = begin; i < end; ++i) {
                 const S* from = head<S>(t, i / rows / heads, i / rows % heads) + i % rows * t.strides[2];
                 load_row(copy + i * columns, from, t.strides[3], columns);
               }
             });
    t.data = reinterpret_cast<char*>(copy);
    t.strides[3] = 1, t.strides[2] = columns, t.strides[1] = rows * columns,
    t.strides[0] = heads * rows * columns;
  }
  return true;
}

constexpr uint32_t kAttentionDtypes = FL_BIT(FL_F16) | FL_BIT(FL_BF16) | FL_BIT(FL_F32) | FL_BIT(FL_F64);

fl_status check_attention(const char* name, const fl_tensor& q, const fl_tensor& k, const fl_tensor& v,
                          const fl_tensor& out, const fl_tensor& lse, const fl_tensor* bias);

}  // namespace sim
