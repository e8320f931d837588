// What gather and scatter share: the walk over points whose addresses hold
// indices, with each index checked before it is used.
#pragma once

#include "fl/author/space.h"
#include "simd/index_kernels.h"
#include "sim.h"

namespace sim {

constexpr int kIndexOperands = FL_MAX_INDICES + 2;
constexpr int64_t kIndexGrain = 1 << 16;  // bytes worth a thread

// Jobs come in two sizes: one index is the common case.
template <int N>
struct Indexed {
  Tensor from, to;  // to: what is written
  Tensor indices[N];
  int64_t size[N], step[N];  // step in bytes
  int n;
  bool wrap;

  template <class Args>
  Indexed(const Args* a, const fl_tensor& source, const fl_tensor& target, const fl_tensor& indexed)
      : from(source), to(target), n(a->n_indices), wrap(a->flags & FL_INDEX_WRAP) {
    for (int k = 0; k < n; ++k) {
      indices[k] = Tensor(a->indices[k]);
      size[k] = a->index_size[k];
      step[k] = a->index_stride[k] * int64_t(dtype_size(indexed.dtype));
    }
  }
};

// The tensors need one shape; indices I32 or I64.
template <class Args>
bool indices_valid(const Args* a, const char* entry) {
  if (a->n_indices < 1 || a->n_indices > FL_MAX_INDICES) {
    set_error("sim: %s with %d indices; 1 to %d are possible", entry, a->n_indices, FL_MAX_INDICES);
    return false;
  }
  for (int k = 0; k < a->n_indices; ++k)
    if (a->indices[k].dtype != FL_I64 && a->indices[k].dtype != FL_I32) {
      set_error("sim: %s with an index that is neither int32 nor int64", entry);
      return false;
    }
  return true;
}

class IndexWalk {
 public:
  template <int N>
  IndexWalk(const Indexed<N>& job, bool gathers, MoveRun move)
      : from_(job.from.data),
        to_(job.to.data),
        gathers_(gathers),
        move_(move),
        n_(job.n),
        wrap_(job.wrap),
        space_(2 + job.n) {
    for (int k = 0; k < n_; ++k) {
      index_[k] = job.indices[k].data, size_[k] = job.size[k], step_[k] = job.step[k];
      resolve_[k] = index_kernels().resolve[job.indices[k].dtype == FL_I64];
    }
    for (int d = 0; d < job.to.ndim; ++d) {
      int64_t* s = space_.push(job.to.sizes[d]);
      s[0] = job.from.strides[d] * int64_t(dtype_size(job.from.dtype));
      s[1] = job.to.strides[d] * int64_t(dtype_size(job.to.dtype));
      for (int k = 0; k < n_; ++k)
        s[2 + k] = job.indices[k].strides[d] * int64_t(dtype_size(job.indices[k].dtype));
    }
  }
  Space<kIndexOperands>& space() { return space_; }
  const int64_t* sizes() const { return size_; }  // what the indices choose from
  const int64_t* steps() const { return step_; }  // and how far one is from the next, in bytes
  int indices() const { return n_; }

  // All points in order, dimension `cut` cut into pieces (-1: not at all).
  void run(Context& context, int cut, int64_t element_bytes) {
    if (cut < 0) {
      part(space_, 0, 0);
    } else {
      const int64_t slice = space_.points() / space_.size[cut] * element_bytes;
      parallel(space_.size[cut], std::max<int64_t>(1, kIndexGrain / slice), [&](int64_t begin, int64_t end) {
        Space<kIndexOperands> s = space_;
        s.size[cut] = end - begin;
        part(s, cut, begin);
      });
    }
    if (bad_.load(std::memory_order_acquire) == 2)
      context.fail(FL_INDEX_OUT_OF_RANGE, "index %lld is out of bounds for dimension size %lld",
                   static_cast<long long>(bad_index_), static_cast<long long>(bad_size_));
  }

  // The dimension to cut among those that `may` allows: the outermost that is long enough, else the longest.
  template <class May>
  int choose_cut(May&& may) const {
    int best = -1;
    for (int d = 0; d < space_.ndim; ++d) {
      if (!may(d) || space_.size[d] < 2) continue;
      if (space_.size[d] >= 64) return d;
      if (best < 0 || space_.size[d] > space_.size[best]) best = d;
    }
    return best;
  }

 private:
  static constexpr int64_t kBlock = 512;

  void part(const Space<kIndexOperands>& s, int cut, int64_t begin) {
    int64_t base[kIndexOperands] = {};
    if (begin)
      for (int k = 0; k < s.n; ++k) base[k] = begin * s.stride[cut][k];
    bool one_offset = true;  // no index varies along the innermost dimension
    for (int k = 0; k < n_; ++k) one_offset &= s.inner_stride(2 + k) == 0;
    const int64_t inner = s.inner_size();
    // Rows that share their indices have them resolved once; the order of a scatter's values stays.
    const int outer = s.ndim - 2;
    int64_t shared = 1, from_row = 0, to_row = 0;
    if (!one_offset && outer >= 0 && (gathers_ || inner <= kBlock)) {
      bool same = true;
      for (int k = 0; k < n_; ++k) same &= s.stride[outer][2 + k] == 0;
      if (same) shared = s.size[outer], from_row = s.stride[outer][0], to_row = s.stride[outer][1];
    }
    Cursor<kIndexOperands> cursor(s, 0, shared > 1 ? 2 : 1);
    const int64_t groups = s.points() / (shared * inner);
    for (int64_t g = 0; g < groups; ++g, cursor.advance(1)) {
      const char* from = from_ + base[0] + cursor.offset[0];
      char* to = to_ + base[1] + cursor.offset[1];
      if (one_offset) {
        int64_t offset = 0;
        if (!resolve(s, base, cursor, 0, 1, &offset)) return;
        move_(gathers_ ? to : to + offset, s.inner_stride(1), gathers_ ? from + offset : from,
              s.inner_stride(0), nullptr, nullptr, inner);
        continue;
      }
      int64_t offsets[kBlock];
      for (int64_t j = 0; j < inner; j += kBlock) {
        const int64_t m = std::min(kBlock, inner - j);
        std::fill(offsets, offsets + m, 0);
        if (!resolve(s, base, cursor, j, m, offsets)) return;
        for (int64_t r = 0; r < shared; ++r)
          move_(to + r * to_row + j * s.inner_stride(1), s.inner_stride(1),
                from + r * from_row + j * s.inner_stride(0), s.inner_stride(0), gathers_ ? nullptr : offsets,
                gathers_ ? offsets : nullptr, m);
      }
    }
  }
  bool resolve(const Space<kIndexOperands>& s, const int64_t* base, const Cursor<kIndexOperands>& cursor,
               int64_t j, int64_t m, int64_t* offsets) {
    for (int k = 0; k < n_; ++k) {
      const int64_t stride = s.inner_stride(2 + k);
      const char* index = index_[k] + base[2 + k] + cursor.offset[2 + k] + j * stride;
      int64_t good = resolve_[k](index, stride, m, size_[k], step_[k], wrap_, offsets);
      if (good == m) continue;
      int expected = 0;
      if (bad_.compare_exchange_strong(expected, 1)) {
        const char* p = index + good * stride;
        bad_index_ = resolve_[k] == index_kernels().resolve[1] ? *reinterpret_cast<const int64_t*>(p)
                                                               : *reinterpret_cast<const int32_t*>(p);
        bad_size_ = size_[k];
        bad_.store(2, std::memory_order_release);
      }
      return false;
    }
    return true;
  }

  const char* from_;
  char* to_;
  bool gathers_;
  MoveRun move_;
  int n_;
  bool wrap_;
  const char* index_[FL_MAX_INDICES];
  int64_t size_[FL_MAX_INDICES], step_[FL_MAX_INDICES];
  int64_t (*resolve_[FL_MAX_INDICES])(const char*, int64_t, int64_t, int64_t, int64_t, bool, int64_t*);
  Space<kIndexOperands> space_;
  std::atomic<int> bad_{0};  // 1: being written, 2: bad_index_ and bad_size_ are there
  int64_t bad_index_ = 0, bad_size_ = 0;
};

}  // namespace sim
