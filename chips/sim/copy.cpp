// The entry copy: bytes where the dtypes agree, else a program of one load and one store.
#include <algorithm>
#include <cstring>

#include "pointwise_plan.h"
#include "simd/index_kernels.h"

namespace sim {
namespace {

struct Bytes16 {
  uint64_t a, b;
};

constexpr int64_t kGrainBytes = 64 << 10;

// Both sides' strides in bytes, destination first.
using CopySpace = Space<2>;

// A plane whose source is contiguous along rows and whose destination is along
// columns.  Tiles of some cache lines each way go through a buffer: lines a power of
// two apart fall on one another in the cache, and are touched once so.
template <class T>
void copy_transposed(char* to, const char* from, int64_t rows, int64_t to_row, int64_t columns,
                     int64_t from_column) {
  constexpr int64_t kTile = sizeof(T) > 4 ? 256 / int64_t{sizeof(T)} : 64;
  T tile[kTile][kTile];
  for (int64_t c = 0; c < columns; c += kTile) {
    int64_t width = std::min(kTile, columns - c);
    for (int64_t r = 0; r < rows; r += kTile) {
      int64_t height = std::min(kTile, rows - r);
      const char* f = from + c * from_column + r * int64_t{sizeof(T)};
      char* t = to + r * to_row + c * int64_t{sizeof(T)};
      if (width == kTile && height == kTile) {
        for (int64_t j = 0; j < kTile; ++j) std::memcpy(tile[j], f + j * from_column, sizeof tile[j]);
        for (int64_t i = 0; i < kTile; ++i, t += to_row) {
          T line[kTile];
          for (int64_t j = 0; j < kTile; ++j) line[j] = tile[j][i];
          std::memcpy(t, line, sizeof line);
        }
      } else {
        for (int64_t i = 0; i < height; ++i)
          for (int64_t j = 0; j < width; ++j)
            reinterpret_cast<T*>(t + i * to_row)[j] = reinterpret_cast<const T*>(f + j * from_column)[i];
      }
    }
  }
}

template <class T>
void copy_space(const CopySpace& space, char* to, const char* from) {
  constexpr int64_t size = sizeof(T);
  const MoveRun move = move_run(size);
  int64_t n = space.points();
  if (space.ndim <= 1 && space.inner_stride(0) == space.inner_stride(1) &&
      (n == 1 || space.inner_stride(0) == size)) {
    parallel(n, kGrainBytes * 4 / size, [&](int64_t begin, int64_t end) {
      move(to + begin * size, size, from + begin * size, size, nullptr, nullptr, end - begin);
    });
    return;
  }
  int inner = space.ndim - 1;
  // Where the source runs along another dimension than the destination: the pair of
  // them is copied by tiles, everything else is a loop around.
  if (space.ndim >= 2 && space.stride[inner][0] == size && space.stride[inner][1] != size &&
      space.stride[inner][1] != 0) {
    int along = -1;
    for (int d = 0; d < inner; ++d)
      if (space.stride[d][1] == size) along = d;
    if (along >= 0 && space.size[along] >= 4 && space.size[inner] >= 4) {
      CopySpace outer(2);
      for (int d = 0; d < inner; ++d)
        if (d != along) std::copy_n(space.stride[d], 2, outer.push(space.size[d]));
      // Slabs of rows are the unit of parallel work.
      constexpr int64_t kSlab = 64;
      int64_t slabs = (space.size[along] + kSlab - 1) / kSlab, planes = outer.points();
      int64_t slab_bytes = std::min(kSlab, space.size[along]) * space.size[inner] * size;
      parallel(planes * slabs, std::max<int64_t>(1, kGrainBytes / slab_bytes),
               [&](int64_t begin, int64_t end) {
                 for (int64_t u = begin; u < end; ++u) {
                   Cursor<2> at(outer, u / slabs);
                   int64_t r = u % slabs * kSlab, rows = std::min(kSlab, space.size[along] - r);
                   copy_transposed<T>(to + at.offset[0] + r * space.stride[along][0],
                                      from + at.offset[1] + r * size, rows, space.stride[along][0],
                                      space.size[inner], space.stride[inner][1]);
                 }
               });
      return;
    }
  }
  const int64_t row = space.inner_size(), to_step = space.inner_stride(0), from_step = space.inner_stride(1);
  if (space.ndim < 2 || row * size >= kGrainBytes) {
    parallel(n, kGrainBytes / size, [&](int64_t begin, int64_t end) {
      Cursor<2> at(space, begin);
      for (int64_t i = begin; i < end;) {
        int64_t run = std::min(at.left(), end - i);
        move(to + at.offset[0], to_step, from + at.offset[1], from_step, nullptr, nullptr, run);
        at.advance(run);
        i += run;
      }
    });
    return;
  }
  const MoveRows rows = move_rows(size);
  const int64_t* between = space.stride[inner - 1];
  parallel(n / row, std::max<int64_t>(1, kGrainBytes / (row * size)), [&](int64_t begin, int64_t end) {
    Cursor<2> at(space, begin, 1);
    for (int64_t i = begin; i < end;) {
      int64_t run = std::min(at.left(), end - i);
      rows(to + at.offset[0], between[0], to_step, from + at.offset[1], between[1], from_step, run, row);
      at.advance(run);
      i += run;
    }
  });
}

struct CopyJob {
  char* to;
  const char* from;
  const Plan* plan;  // null: the dtypes agree
  int32_t ndim;
  uint8_t size;
  // then sizes, to's strides, from's strides

  static void run(void* place, Context& context);
};

void CopyJob::run(void* place, Context& context) {
  if (context.discard) return;
  auto* job = static_cast<CopyJob*>(place);
  auto* sizes = reinterpret_cast<const int64_t*>(job + 1);
  const int64_t *to_strides = sizes + job->ndim, *from_strides = to_strides + job->ndim;
  if (job->plan) {
    Points points(job->plan);
    points.data[0] = const_cast<char*>(job->from);
    points.data[1] = job->to;
    for (int d = 0; d < job->ndim; ++d) {
      int64_t* strides = points.space.push(sizes[d]);
      strides[0] = from_strides[d] * job->plan->operand_bytes[0];
      strides[1] = to_strides[d] * job->plan->operand_bytes[1];
    }
    points.prepare();
    uint32_t faults = 0;
    points.run(&faults);
    return;
  }
  CopySpace space(2);
  for (int d = 0; d < job->ndim; ++d) {
    int64_t* strides = space.push(sizes[d]);
    strides[0] = to_strides[d] * job->size;
    strides[1] = from_strides[d] * job->size;
  }
  space.merge();
  space.sort(0);
  space.merge();
  switch (job->size) {
    case 1:
      return copy_space<uint8_t>(space, job->to, job->from);
    case 2:
      return copy_space<uint16_t>(space, job->to, job->from);
    case 4:
      return copy_space<uint32_t>(space, job->to, job->from);
    case 8:
      return copy_space<uint64_t>(space, job->to, job->from);
    default:
      return copy_space<Bytes16>(space, job->to, job->from);
  }
}

}  // namespace

fl_status copy(const fl_launch* launch, const fl_copy_args* args) {
  const fl_tensor &from = args->from, &to = args->to;
  const Plan* plan = from.dtype == to.dtype ? nullptr : conversion(from.dtype, to.dtype);
  if (plan && !plan->supported) return FL_UNSUPPORTED;
  auto ndim = static_cast<size_t>(to.ndim);
  fl_status status;
  void* place = ring_begin(launch, "copy", sizeof(CopyJob) + 3 * ndim * 8, CopyJob::run, &status);
  if (!place) return status;
  auto* job = new (place) CopyJob{static_cast<char*>(to.data) + worker_offset,
                                  static_cast<const char*>(from.data) + worker_offset, plan, to.ndim,
                                  static_cast<uint8_t>(dtype_size(to.dtype))};
  auto* words = reinterpret_cast<int64_t*>(job + 1);
  if (ndim) {
    std::memcpy(words, to.sizes, ndim * 8);
    std::memcpy(words + ndim, to.strides, ndim * 8);
    std::memcpy(words + 2 * ndim, from.strides, ndim * 8);
  }
  ring_commit(launch);
  return FL_OK;
}

void claim_copy(Claims& claims) { claims.push_back({FL_ENTRY_COPY, FL_ANY, kAllDtypes}); }

}  // namespace sim
