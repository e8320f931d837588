// Gather and scatter.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "fl/author/space.h"
#include "chip.h"
#include "kernel_sources.h"
#include "launch.h"
#include "program.h"

namespace ocl {

namespace {

constexpr int kOperands = FL_MAX_INDICES + 2;  // dense, sparse, indices

struct Walk {
  Space<kOperands> space;
  int n_indices;
  int cells = 0;  // leading dimensions whose points are apart

  Walk(const fl_tensor& dense, const fl_tensor& sparse, const fl_tensor* indices, int n)
      : space(2 + n), n_indices(n) {
    for (int d = 0; d < dense.ndim; ++d) {
      int64_t* s = space.push(dense.sizes[d]);
      s[0] = dense.strides[d], s[1] = sparse.strides[d];
      for (int k = 0; k < n; ++k) s[2 + k] = indices[k].strides[d];
    }
    space.merge();
    if (space.ndim == 0) std::fill(space.push(1), space.stride[0] + space.n, 0);
  }

  // Dimensions for which `first` holds come first, each part in its order; they are the cells.
  template <class First>
  void choose_cells(First&& first) {
    Space<kOperands> s(space.n);
    for (bool wanted : {true, false})
      for (int d = 0; d < space.ndim; ++d)
        if (first(d) == wanted) {
          std::copy(space.stride[d], space.stride[d] + space.n, s.push(space.size[d]));
          cells += wanted;
        }
    space = s;
  }
};

fl_status run(const fl_launch* launch, const Walk& walk, const fl_tensor& dense, const fl_tensor& sparse,
              const fl_tensor* indices, const int64_t* index_size, const int64_t* index_step, bool wrap,
              int mode) {
  Device& d = *launch->stream->device;
  const int R = walk.space.ndim, N = walk.n_indices;
  const size_t bytes = dtype_size(dense.dtype);
  int64_t cells = 1, walked = 1;
  for (int i = 0; i < R; ++i) (i < walk.cells ? cells : walked) *= walk.space.size[i];
  Parameters p;
  p.push(cells), p.push(walked), p.push(wrap);
  for (int i = 0; i < R; ++i) p.push(walk.space.size[i]);
  for (int k = 0; k < 2 + N; ++k)
    for (int i = 0; i < R; ++i) p.push(walk.space.stride[i][k]);
  for (int k = 0; k < N; ++k) p.push(index_size[k]);
  for (int k = 0; k < N; ++k) p.push(index_step[k]);
  for (int k = 0; k < N; ++k) p.push(indices[k].dtype == FL_I64);
  const int offsets = p.reserve(N + 2);
  const bool by_value = Parameters::by_value(static_cast<size_t>(offsets + N + 2));
  uint64_t key = ((((static_cast<uint64_t>(walk.cells) * 32 + static_cast<uint64_t>(R)) * 16 +
                    static_cast<uint64_t>(N)) *
                       32 +
                   bytes) *
                      2 +
                  by_value) *
                     8 +
                 static_cast<uint64_t>(mode + 1);
  if (mode > FL_SCATTER_SET) key = key * 32 + dense.dtype;
  Kernel* kernel = d.library->get(Family::gather, key, [&] {
    static constexpr const char* operations[] = {"", "ADD", "MUL", "MIN", "MAX"};
    std::string options = " -DCELLS=" + std::to_string(walk.cells) +
                          " -DWALKED=" + std::to_string(R - walk.cells) + " -DINDICES=" + std::to_string(N) +
                          " -DBYTES=" + std::to_string(bytes);
    if (mode >= 0) options += " -DSCATTER";
    std::string text = Parameters::declare(by_value);
    if (mode > FL_SCATTER_SET) {
      std::string name = dtype_name(dense.dtype);
      text += "#define LOAD LOAD_" + name + "\n#define STORE STORE_" + name + "\n#define COMBINE OP_" +
              operations[mode] + "_" + register_name(natural_register(dense.dtype)) + "\n";
    }
    return Source{text + kernel_source_index, options, "index"};
  });
  if (!kernel) return FL_FAILED;
  Launch l(launch, kernel);
  l.at(p.first());
  p.set(offsets + N, l.buffer(dense.data)), p.set(offsets + N + 1, l.buffer(sparse.data));
  for (int k = 0; k < N; ++k) p.set(offsets + k, l.buffer(indices[k].data));
  l.fault();
  if (fl_status status = p.pass(l, launch)) return status;
  Shape shape = shape_for(d, cells, std::max<int64_t>(1, 4096 / walked));
  return l.run(shape.groups, shape.local);
}

template <class Args>
fl_status check(const Args* a, const char* entry) {
  if (a->n_indices < 1 || a->n_indices > FL_MAX_INDICES)
    return refuse(FL_INVALID, "%s with %d indices; 1 to %d are possible", entry, a->n_indices,
                  FL_MAX_INDICES);
  for (int k = 0; k < a->n_indices; ++k)
    if (a->indices[k].dtype != FL_I64 && a->indices[k].dtype != FL_I32)
      return refuse(FL_INVALID, "%s with an index that is neither int32 nor int64", entry);
  return FL_OK;
}

}  // namespace

fl_status gather(const fl_launch* launch, const fl_gather_args* a) {
  if (a->from.dtype != a->out.dtype || !(kStorage >> a->out.dtype & 1)) return FL_UNSUPPORTED;
  if (fl_status status = check(a, "gather")) return status;
  Walk walk(a->out, a->from, a->indices, a->n_indices);
  walk.choose_cells([](int) { return true; });
  return run(launch, walk, a->out, a->from, a->indices, a->index_size, a->index_stride,
             a->flags & FL_INDEX_WRAP, -1);
}

fl_status scatter(const fl_launch* launch, const fl_scatter_args* a) {
  if (a->from.dtype != a->to.dtype || !(kStorage >> a->to.dtype & 1)) return FL_UNSUPPORTED;
  const uint8_t reg = natural_register(a->to.dtype);
  if (a->mode >= FL_SCATTER_COUNT || (a->mode >= FL_SCATTER_MIN && reg >= kC64)) return FL_UNSUPPORTED;
  if (a->mode != FL_SCATTER_SET && !launch->stream->device->info.fp64 && (reg == kF64 || reg == kC128))
    return FL_UNSUPPORTED;
  if (fl_status status = check(a, "scatter")) return status;
  Walk walk(a->from, a->to, a->indices, a->n_indices);
  bool once = apart(walk.space, 1, walk.n_indices, a->index_size, a->index_stride);
  // Which of several values stays is open, and up to 8 bytes are stored whole.
  bool any =
      a->mode == FL_SCATTER_SET && !(launch->flags & FL_LAUNCH_DETERMINISTIC) && dtype_size(a->to.dtype) <= 8;
  Walk before = walk;
  walk.choose_cells([&](int d) { return any || (once && before.space.stride[d][1] != 0); });
  return run(launch, walk, a->from, a->to, a->indices, a->index_size, a->index_stride,
             a->flags & FL_INDEX_WRAP, a->mode);
}

void claim_gather(Claims& claims) { claims.push_back({FL_ENTRY_GATHER, FL_ANY, kStorage}); }
void claim_scatter(Claims& claims) {
  claims.push_back({FL_ENTRY_SCATTER, FL_SCATTER_SET, kStorage});
  uint32_t dtypes = 0, ordered = 0;
  for (uint8_t d = 1; d < FL_DTYPE_COUNT; ++d) {
    if (!(kStorage >> d & 1)) continue;
    dtypes |= FL_BIT(d);
    if (natural_register(d) < kC64) ordered |= FL_BIT(d);
  }
  for (uint16_t mode : {FL_SCATTER_ADD, FL_SCATTER_MUL}) claims.push_back({FL_ENTRY_SCATTER, mode, dtypes});
  for (uint16_t mode : {FL_SCATTER_MIN, FL_SCATTER_MAX}) claims.push_back({FL_ENTRY_SCATTER, mode, ordered});
}

}  // namespace ocl
