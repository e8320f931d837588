// A sparse matrix by rows times dense ones: sums, means, extremes and products of rows.
//
// Columns become addresses, and values what they are computed in, once for all
// batches; then rows are handed out to threads, whole or in strips.
#include <algorithm>

#include "rows.h"
#include "simd/index_kernels.h"
#include "simd/spmm_kernels.h"

namespace sim {
namespace {

constexpr int64_t kGrain = 16384;  // values worth a thread

struct SpmmJob {
  Tensor row_begin, dense, out, columns, values, winner;
  fl_scalar empty;
  bool mean;
  SpmmRun run;

  void operator()(Context& context) {
    const int64_t batches = out.sizes[0], m = out.sizes[1], n = out.sizes[2];
    const int64_t count = columns ? columns.sizes[0] : values ? values.sizes[0] : dense.sizes[1];
    SpmmRows rows{};
    rows.begin = row_numbers(context, m, count);
    if (columns && !(rows.offsets = resolve(context, count))) return;
    if (values) rows.values = computed_values(context, count);
    rows.empty = empty, rows.mean = mean;
    // Batches and columns are alike: what lies side by side is the inner one.
    int outer = 0, inner = 2;
    if (n == 1 || (std::abs(dense.strides[2]) != 1 && std::abs(dense.strides[0]) == 1))
      std::swap(outer, inner);
    if (out.sizes[inner] == 1) std::swap(outer, inner);
    rows.dense_row = byte_stride(dense, 1), rows.out_row = byte_stride(out, 1);
    rows.dense_step = byte_stride(dense, inner), rows.out_step = byte_stride(out, inner);
    if (winner) rows.winner_row = byte_stride(winner, 1), rows.winner_step = byte_stride(winner, inner);

    const int64_t outers = outer == 0 ? batches : n, inners = outer == 0 ? n : batches;
    const int64_t lines = outers * m, wanted = int64_t{4} * omp_get_max_threads();
    int64_t strips = 1;
    // Elements that do not lie side by side share lines of memory with other rows: in strips that stay near.
    if (const int64_t size = int64_t(dtype_size(out.dtype)); rows.dense_step != size || rows.out_step != size)
      strips = (inners + 63) / 64;
    else if (lines < wanted) strips = std::min((inners + 255) / 256, (wanted + lines - 1) / lines);
    const int64_t strip = ((inners + strips - 1) / strips + 63) / 64 * 64;
    const int64_t cost = (count / m + 2) * std::min(strip, inners) + 8;
    parallel(lines * strips, std::max<int64_t>(1, kGrain / cost), [&](int64_t begin, int64_t end) {
      while (begin < end) {
        // Rows of one strip of one batch, as far as this piece goes.
        const int64_t group = begin / m, first = begin % m, last = std::min(m, first + end - begin);
        const int64_t o = group / strips, at = group % strips * strip;
        begin += last - first;
        if (at >= inners) continue;
        SpmmRows r = rows;
        r.n = std::min(strip, inners - at);
        r.dense = dense.data + o * byte_stride(dense, outer) + at * rows.dense_step;
        r.out = out.data + o * byte_stride(out, outer) + at * rows.out_step;
        if (winner) r.winner = winner.data + o * byte_stride(winner, outer) + at * rows.winner_step;
        run(r, first, last);
      }
    });
  }

 private:
  static int64_t read_index(const Tensor& t, int64_t i) {
    return t.dtype == FL_I64 ? t.as<int64_t>()[i * t.strides[0]] : t.as<int32_t>()[i * t.strides[0]];
  }
  // Within the values even where the host did not look.
  const int64_t* row_numbers(Context& context, int64_t m, int64_t count) const {
    auto* to = static_cast<int64_t*>(context.scratch(size_t(m + 1) * sizeof(int64_t)));
    for (int64_t i = 0; i <= m; ++i) to[i] = std::clamp<int64_t>(read_index(row_begin, i), 0, count);
    return to;
  }
  // Null after a fault.
  const int64_t* resolve(Context& context, int64_t count) const {
    auto* to = static_cast<int64_t*>(context.scratch(size_t(count) * sizeof(int64_t)));
    const auto resolve_run = index_kernels().resolve[columns.dtype == FL_I64];
    const int64_t stride = byte_stride(columns, 0), row = byte_stride(dense, 1), size = dense.sizes[1];
    std::atomic<int64_t> bad{-1};
    parallel(count, kGrain, [&](int64_t begin, int64_t end) {
      std::fill(to + begin, to + end, 0);
      int64_t good =
          resolve_run(columns.data + begin * stride, stride, end - begin, size, row, false, to + begin);
      if (good != end - begin) bad.store(begin + good, std::memory_order_relaxed);
    });
    const int64_t where = bad.load(std::memory_order_relaxed);
    if (where < 0) return to;
    context.fail(FL_INDEX_OUT_OF_RANGE, "index %lld is out of bounds for dimension size %lld",
                 static_cast<long long>(read_index(columns, where)), static_cast<long long>(size));
    return nullptr;
  }
  const char* computed_values(Context& context, int64_t count) const {
    const bool half = values.dtype == FL_F16 || values.dtype == FL_BF16;
    const int64_t size = half ? 4 : int64_t(dtype_size(values.dtype)), stride = byte_stride(values, 0);
    if (!half && stride == size) return values.data;
    char* to = static_cast<char*>(context.scratch(size_t(count * size)));
    if (half) find_convert(values.dtype, FL_F32)(values.data, stride, to, size, count);
    else move_run(int(size))(to, size, values.data, stride, nullptr, nullptr, count);
    return to;
  }
};

bool is_index(uint8_t dtype) { return dtype == FL_I64 || dtype == FL_I32; }

}  // namespace

fl_status spmm(const fl_launch* launch, const fl_spmm_args* a) {
  const uint8_t dtype = a->out.dtype;
  SpmmRun run = spmm_run(a->mode, dtype);
  if (!run || a->dense.dtype != dtype || (a->values && a->values->dtype != dtype)) return FL_UNSUPPORTED;
  if (a->winner && a->mode != FL_SPMM_MIN && a->mode != FL_SPMM_MAX) return FL_UNSUPPORTED;
  if (!is_index(a->row_begin.dtype) || (a->columns && !is_index(a->columns->dtype)) || a->out.ndim != 3 ||
      a->dense.ndim != 3) {
    set_error("sim: spmm wants matrices of 3 dimensions and indices that are int32 or int64");
    return FL_INVALID;
  }
  return submit(launch, "spmm",
                SpmmJob{Tensor(a->row_begin), Tensor(a->dense), Tensor(a->out), optional(a->columns),
                        optional(a->values), optional(a->winner), a->empty, a->mode == FL_SPMM_MEAN, run});
}

void claim_spmm(Claims& claims) {
  for (uint16_t mode = 0; mode < FL_SPMM_COUNT; ++mode) {
    uint32_t dtypes = 0;
    for (int dtype = 1; dtype < FL_DTYPE_COUNT; ++dtype)
      if (spmm_run(mode, dtype)) dtypes |= FL_BIT(dtype);
    claims.push_back({FL_ENTRY_SPMM, mode, dtypes});
  }
}

}  // namespace sim
