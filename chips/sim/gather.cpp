// Gather, index_select, embedding: elements from where indices say.
#include "index_common.h"

namespace sim {
namespace {

template <int N>
struct GatherJob {
  Indexed<N> args;
  MoveRun move;
  void operator()(Context& context) {
    IndexWalk walk(args, true, move);
    walk.space().sort(1);
    walk.space().merge();
    walk.run(context, walk.choose_cut([](int) { return true; }), int64_t(dtype_size(args.to.dtype)));
  }
};

}  // namespace

fl_status gather(const fl_launch* launch, const fl_gather_args* a) {
  MoveRun move = move_run(int(dtype_size(a->out.dtype)));
  if (!move || a->from.dtype != a->out.dtype) return FL_UNSUPPORTED;
  if (!indices_valid(a, "gather")) return FL_INVALID;
  if (a->n_indices == 1) return submit(launch, "gather", GatherJob<1>{{a, a->from, a->out, a->from}, move});
  return submit(launch, "gather", GatherJob<FL_MAX_INDICES>{{a, a->from, a->out, a->from}, move});
}

void claim_gather(Claims& claims) { claims.push_back({FL_ENTRY_GATHER, FL_ANY, kAllDtypes}); }

}  // namespace sim
