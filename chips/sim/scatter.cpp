// Scatter and its combining modes: elements to where indices say.
//
// Elements that meet at one place are combined in row-major order: only a
// dimension along which the places of two points cannot be the same is cut
// among threads, so the result is the same each time.
#include "index_common.h"

namespace sim {
namespace {

template <int N>
struct ScatterJob {
  Indexed<N> args;
  MoveRun move;
  bool sets;
  void operator()(Context& context) {
    IndexWalk walk(args, false, move);
    auto& space = walk.space();
    space.merge();
    const int64_t bytes = int64_t(dtype_size(args.to.dtype));
    int cut = -1;
    if (apart(space, 1, walk.indices(), walk.sizes(), walk.steps()))
      cut = walk.choose_cut([&](int d) { return space.stride[d][1] != 0; });
    // Which of several values stays is open, and a processor stores up to 8 bytes whole.
    if (cut < 0 && sets && !context.deterministic() && bytes <= 8)
      cut = walk.choose_cut([](int) { return true; });
    walk.run(context, cut, bytes);
  }
};

}  // namespace

fl_status scatter(const fl_launch* launch, const fl_scatter_args* a) {
  if (a->from.dtype != a->to.dtype) return FL_UNSUPPORTED;
  bool sets = a->mode == FL_SCATTER_SET;
  MoveRun move = sets ? move_run(int(dtype_size(a->to.dtype))) : combine_run(a->mode, a->to.dtype);
  if (!move) return FL_UNSUPPORTED;
  if (!indices_valid(a, "scatter")) return FL_INVALID;
  // The points are from's.
  fl_tensor to = a->to;
  to.sizes = a->from.sizes;
  if (a->n_indices == 1) return submit(launch, "scatter", ScatterJob<1>{{a, a->from, to, a->to}, move, sets});
  return submit(launch, "scatter", ScatterJob<FL_MAX_INDICES>{{a, a->from, to, a->to}, move, sets});
}

void claim_scatter(Claims& claims) {
  claims.push_back({FL_ENTRY_SCATTER, FL_SCATTER_SET, kAllDtypes});
  for (uint16_t mode = FL_SCATTER_ADD; mode < FL_SCATTER_COUNT; ++mode) {
    uint32_t dtypes = 0;
    for (int dtype = 1; dtype < FL_DTYPE_COUNT; ++dtype)
      if (combine_run(mode, dtype)) dtypes |= FL_BIT(dtype);
    claims.push_back({FL_ENTRY_SCATTER, mode, dtypes});
  }
}

}  // namespace sim
