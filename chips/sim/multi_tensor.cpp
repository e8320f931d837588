// The entry multi_tensor: one program over many lists of tensors.
#include <algorithm>
#include <cstring>

#include "device.h"
#include "pointwise_plan.h"

namespace sim {
namespace {

// In the ring: this, then of each item: ndim, sizes, of each operand address and
// strides, the item's scalars; the shared scalars come first.
struct MultiJob {
  const Plan* plan;
  int32_t n_items, n_item_scalars;

  static void run(void* place, Context& context);
};

size_t item_words(const Plan& plan, int ndim, int n_item_scalars) {
  return static_cast<size_t>(1 + ndim + (plan.n_inputs + plan.n_outputs) * (1 + ndim) + 2 * n_item_scalars);
}

struct Item {
  Points points;
  fl_scalar scalars[FL_MAX_SCALARS];
};

void MultiJob::run(void* place, Context& context) {
  if (context.discard) return;
  auto* job = static_cast<MultiJob*>(place);
  const Plan& plan = *job->plan;
  int operands = plan.n_inputs + plan.n_outputs, shared = plan.n_scalars - job->n_item_scalars;
  auto* word = reinterpret_cast<const int64_t*>(job + 1);
  fl_scalar common[FL_MAX_SCALARS];
  std::memcpy(common, word, static_cast<size_t>(shared) * sizeof(fl_scalar));
  word += 2 * shared;

  // Points are numbered over all items, in units: a piece of work may span several.
  constexpr int64_t kUnit = 1024;
  auto n_items = static_cast<size_t>(job->n_items);
  auto* items = static_cast<Item*>(context.scratch(n_items * sizeof(Item)));
  auto* first_unit = static_cast<int64_t*>(context.scratch((n_items + 1) * sizeof(int64_t)));
  first_unit[0] = 0;
  for (size_t i = 0; i < n_items; ++i) {
    auto& item = *new (items + i) Item{Points(&plan), {}};
    auto ndim = static_cast<int>(*word++);
    const int64_t* sizes = word;
    word += ndim;
    const int64_t* strides[kMaxOperands];
    for (int k = 0; k < operands; ++k) {
      item.points.data[k] = reinterpret_cast<char*>(*word);
      strides[k] = word + 1;
      word += 1 + ndim;
    }
    for (int d = 0; d < ndim; ++d) {
      if (sizes[d] == 1) continue;
      int64_t* to = item.points.space.push(sizes[d]);
      for (int k = 0; k < operands; ++k) to[k] = strides[k][d] * plan.operand_bytes[k];
    }
    std::copy(common, common + shared, item.scalars);
    std::memcpy(item.scalars + shared, word, static_cast<size_t>(job->n_item_scalars) * sizeof(fl_scalar));
    word += 2 * job->n_item_scalars;
    item.points.scalars = item.scalars;
    item.points.sizes = sizes, item.points.ndim = ndim;
    item.points.prepare();
    first_unit[i + 1] = first_unit[i] + (item.points.space.points() + kUnit - 1) / kUnit;
  }

  std::atomic<uint32_t> all{0};
  parallel(first_unit[n_items], std::max<int64_t>(1, plan.grain / kUnit), [&](int64_t begin, int64_t end) {
    uint32_t mine = 0;
    auto i = static_cast<size_t>(std::upper_bound(first_unit, first_unit + n_items, begin) - first_unit - 1);
    for (; begin < end; ++i) {
      int64_t stop = std::min(end, first_unit[i + 1]), base = first_unit[i];
      const Points& points = items[i].points;
      points.run((begin - base) * kUnit, std::min((stop - base) * kUnit, points.space.points()), &mine);
      begin = stop;
    }
    if (mine) all.fetch_or(mine, std::memory_order_relaxed);
  });
  if (all.load()) context.fail(FL_FAILED, "division by zero");
}

}  // namespace

fl_status multi_tensor(const fl_launch* launch, const fl_multi_tensor_args* args) {
  const Plan* plan = plan_of(args->program);
  if (!plan) return FL_UNSUPPORTED;
  if (args->n_item_scalars < 0 || args->n_item_scalars > plan->n_scalars) {
    set_error("sim: multi_tensor with %d scalars an item, of a program with %d", args->n_item_scalars,
              plan->n_scalars);
    return FL_INVALID;
  }
  // Long lists go in several jobs: each fits the ring well.
  constexpr size_t kMostBytes = 256 << 10;
  int operands = plan->n_inputs + plan->n_outputs, shared = plan->n_scalars - args->n_item_scalars;
  for (int begin = 0; begin < args->n_items;) {
    size_t bytes = sizeof(MultiJob) + static_cast<size_t>(shared) * sizeof(fl_scalar);
    int end = begin;
    for (; end < args->n_items; ++end) {
      size_t more = 8 * item_words(*plan, args->outputs[end * plan->n_outputs].ndim, args->n_item_scalars);
      if (end > begin && bytes + more > kMostBytes) break;
      bytes += more;
    }
    fl_status status;
    void* place = ring_begin(launch, "multi_tensor", bytes, MultiJob::run, &status);
    if (!place) return status;
    auto* job = new (place) MultiJob{plan, end - begin, args->n_item_scalars};
    auto* word = reinterpret_cast<int64_t*>(job + 1);
    if (shared) std::memcpy(word, args->scalars, static_cast<size_t>(shared) * sizeof(fl_scalar));
    word += 2 * shared;
    for (int i = begin; i < end; ++i) {
      const fl_tensor* inputs = args->inputs + i * plan->n_inputs;
      const fl_tensor* outputs = args->outputs + i * plan->n_outputs;
      int ndim = outputs[0].ndim;
      *word++ = ndim;
      for (int d = 0; d < ndim; ++d) *word++ = outputs[0].sizes[d];
      for (int k = 0; k < operands; ++k) {
        const fl_tensor& t = k < plan->n_inputs ? inputs[k] : outputs[k - plan->n_inputs];
        *word++ = reinterpret_cast<int64_t>(static_cast<char*>(t.data) + worker_offset);
        for (int d = 0; d < ndim; ++d) *word++ = t.strides[d];
      }
      if (args->n_item_scalars)
        std::memcpy(word, args->item_scalars + i * args->n_item_scalars,
                    static_cast<size_t>(args->n_item_scalars) * sizeof(fl_scalar));
      word += 2 * args->n_item_scalars;
    }
    ring_commit(launch);
    begin = end;
  }
  return FL_OK;
}

}  // namespace sim
