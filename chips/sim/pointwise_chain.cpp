// From runs of steps to chains (simd/chain_kernels.h).
#include "pointwise_chain.h"

#include <algorithm>

namespace sim {
namespace {

// A step becomes three links at most: a load, itself, and a store; what is put off, two more.
constexpr size_t kMostSteps = (kMostChainSteps - 8) / 5;

class Joiner {
 public:
  Joiner(Plan& plan, const std::vector<Origin>& origins, const std::vector<uint8_t>& types)
      : plan_(plan), origins_(origins), types_(types), fill_of_(types.size(), -1), is_load_(types.size()) {
    steps_.swap(plan.steps);
    for (size_t f = 0; f < plan.fills.size(); ++f) fill_of_[plan.fills[f].value] = static_cast<int>(f);
    for (const Plan::Load& l : plan.loads) is_load_[l.value] = true;
    for (const Plan::Store& s : plan.stores)
      if (fill_of_[s.value] >= 0) plan.fills[static_cast<size_t>(fill_of_[s.value])].in_slot = true;
  }

  std::vector<Traffic> join() {
    for (size_t begin = 0; begin < steps_.size();) {
      size_t end = chain_end(begin);
      if (end - begin >= 2 || (end - begin == 1 && has_constant(begin))) {
        chain(begin, end);
        begin = end;
      } else {
        keep(begin++);
      }
    }
    plan_.chained.assign(types_.size(), false);
    for (const Traffic& t : traffic_)
      for (uint16_t v : t.reads) plan_.chained[v] = true;
    for (const Plan::Store& s : plan_.stores) plan_.chained[s.value] = false;
    for (const Plan::Step& s : plan_.steps)
      if (s.run) plan_.chained[s.a] = plan_.chained[s.b] = plan_.chained[s.c] = false;
    return std::move(traffic_);
  }

 private:
  using At = Plan::Link::At;
  using Operand = Plan::Link::Operand;

  int operands(size_t s) const { return kOperands[origins_[s].op]; }
  uint16_t operand(size_t s, int k) const {
    return k == 0 ? steps_[s].a : k == 1 ? steps_[s].b : steps_[s].c;
  }
  bool has_constant(size_t s) const {
    for (int k = 0; k < operands(s); ++k)
      if (fill_of_[operand(s, k)] >= 0) return true;
    return false;
  }

  // The steps from `begin` that one chain can be.
  size_t chain_end(size_t begin) const {
    size_t end = begin;
    std::vector<bool> condition(types_.size());
    for (; end < steps_.size() && end - begin < kMostSteps; ++end) {
      const Origin& o = origins_[end];
      if (o.op >= FL_OP_COUNT || !kernels_.op[0][o.op][o.type] ||
          dtype_size(o.type) != dtype_size(origins_[begin].type))
        break;
      if (o.op == FL_OP_SELECT && !condition[steps_[end].a]) break;
      if (is_comparison(o.op)) condition[steps_[end].out] = true;
    }
    // A condition has no booleans that anybody else could read: a chain ends before one that is wanted
    // elsewhere.
    for (size_t s = begin; s < end; ++s)
      if (is_comparison(origins_[s].op) && !stays(steps_[s].out, s + 1, end)) {
        end = s;
        s = begin - 1;
      }
    return end;
  }
  bool stays(uint16_t value, size_t begin, size_t end) const {
    for (const Plan::Store& s : plan_.stores)
      if (s.value == value) return false;
    for (size_t s = begin; s < steps_.size(); ++s) {
      bool read = false;
      for (uint16_t v : {steps_[s].a, steps_[s].b, steps_[s].c}) read |= v == value;
      if (read && (s >= end || origins_[s].op != FL_OP_SELECT)) return false;
    }
    return true;
  }

  void keep(size_t s) {
    const Plan::Step& step = steps_[s];
    for (uint16_t v : {step.a, step.b, step.c})
      if (fill_of_[v] >= 0) plan_.fills[static_cast<size_t>(fill_of_[v])].in_slot = true;
    traffic_.push_back({{step.a, step.b, step.c}, {step.out}});
    plan_.steps.push_back(step);
  }

  struct Fate {
    bool made = false;     // within the chain
    bool outside = false;  // and wanted after it
    size_t last = 0;       // the last step that wants it from memory, + 1; 0: none
    uint16_t tile = Plan::kNone;
  };

  void chain(size_t begin, size_t end) {
    std::vector<Fate> fate(types_.size());
    for (size_t s = begin; s < end; ++s) fate[steps_[s].out].made = true;
    for (const Plan::Store& s : plan_.stores) fate[s.value].outside = true;
    for (size_t s = end; s < steps_.size(); ++s)
      for (uint16_t v : {steps_[s].a, steps_[s].b, steps_[s].c}) fate[v].outside = true;
    fold_conditions(begin, end, fate);
    // An output may be an input, so nothing is stored before the last read of a load.
    size_t last_load = begin;
    walk(begin, end, [&](size_t s, uint16_t v) {
      fate[v].last = s + 1;
      if (is_load_[v]) last_load = s;
    });

    Plan::Chain c{{}, static_cast<uint8_t>(dtype_size(origins_[begin].type))};
    Traffic t;
    auto at = [&](uint16_t v) -> Operand {
      if (fill_of_[v] >= 0) {
        uint16_t& tile = plan_.fills[static_cast<size_t>(fill_of_[v])].tile;
        if (tile == Plan::kNone) tile = plan_.n_constants++;
        return {At::constant, tile};
      }
      if (fate[v].tile != Plan::kNone) return {At::kept, fate[v].tile};
      if (!fate[v].made && std::find(t.reads.begin(), t.reads.end(), v) == t.reads.end())
        t.reads.push_back(v);
      return {At::value, v};
    };
    auto link = [&](ChainStep::Run run, Operand first = {}) {
      c.links.push_back({run, nullptr, {first}, nullptr});
    };
    uint16_t tiles = 0, accumulator = Plan::kNone;
    std::vector<uint16_t> free, put_off;
    for (size_t s = begin; s < end; ++s) {
      if (folded_[s]) continue;
      const Origin& o = origins_[s];
      int as = position(s, accumulator);
      if (as < 0) link(kernels_.load, at(operand(s, as = first_loaded(s))));
      Plan::Link l{kernels_.op[as][o.op][o.type], nullptr, {}, kernels_.function[o.op][o.type]};
      int n = 0;
      if (int by = condition_[s]; by >= 0) {
        const auto c_step = static_cast<size_t>(by);
        const uint8_t comparison = origins_[c_step].op;
        if (extreme_[s]) {
          l.run = kernels_.extreme[comparison][o.type];
        } else {
          l.run = kernels_.select_by[as - 1][comparison][o.type];
          l.operand[n++] = at(steps_[c_step].a), l.operand[n++] = at(steps_[c_step].b);
        }
      }
      for (int k = condition_[s] >= 0 ? 1 : 0; k < operands(s); ++k)
        if (k != as) l.operand[n++] = at(operand(s, k));
      if (l.operand[0].at == At::constant) l.with_number = kernels_.with_number[o.op][o.type];
      c.links.push_back(l);
      uint16_t v = accumulator = steps_[s].out;
      Fate& f = fate[v];
      if (f.outside) t.writes.push_back(v);
      if (f.outside && s >= last_load) {
        link(kernels_.store, {At::value, v});
      } else if (f.outside || f.last) {
        for (size_t r = begin; r < s; ++r) {
          Fate& old = fate[steps_[r].out];
          if (old.tile == Plan::kNone || old.outside || old.last == 0 || old.last > s + 1) continue;
          free.push_back(old.tile);
          old.last = 0;
        }
        if (free.empty()) free.push_back(tiles++);
        f.tile = free.back();
        free.pop_back();
        link(kernels_.store, {At::kept, f.tile});
        if (f.outside) put_off.push_back(v);
      }
    }
    for (uint16_t v : put_off) {
      if (v != accumulator) link(kernels_.load, {At::kept, fate[v].tile});
      link(kernels_.store, {At::value, v});
      accumulator = v;
    }
    link(kernels_.end);
    plan_.n_kept = std::max(plan_.n_kept, tiles);
    plan_.n_spare = std::max(plan_.n_spare, static_cast<uint16_t>(t.reads.size() + t.writes.size()));
    plan_.steps.push_back({nullptr, static_cast<uint16_t>(plan_.chains.size()), 0, 0, 0});
    plan_.chains.push_back(std::move(c));
    traffic_.push_back(std::move(t));
  }

  // A comparison for one SELECT alone is made by that: of what lies in memory, or of the two that it chooses
  // from (x < low ? low : x).
  void fold_conditions(size_t begin, size_t end, const std::vector<Fate>& fate) {
    condition_.assign(steps_.size(), -1);
    folded_.assign(steps_.size(), false);
    extreme_.assign(steps_.size(), false);
    for (size_t s = begin; s < end; ++s) {
      if (!is_comparison(origins_[s].op)) continue;
      size_t users = 0, user = s;
      for (size_t t = s + 1; t < end; ++t)
        if (operands(t) == 3 && origins_[t].op == FL_OP_SELECT && steps_[t].a == steps_[s].out)
          user = t, ++users;
      if (users != 1 || origins_[user].type != origins_[s].type) continue;
      extreme_[user] = steps_[s].a == steps_[user].c && steps_[s].b == steps_[user].b;
      if (!extreme_[user] && (fate[steps_[s].a].made || fate[steps_[s].b].made)) continue;
      condition_[user] = static_cast<int>(s);
      folded_[s] = true;
    }
  }
  int first_loaded(size_t s) const { return condition_[s] >= 0 ? 2 : 0; }
  // Which operand of the step the accumulator is; -1: none.
  int position(size_t s, uint16_t accumulator) const {
    for (int k = extreme_[s] ? 2 : condition_[s] >= 0 ? 1 : 0; k < operands(s); ++k)
      if (operand(s, k) == accumulator) return k;
    return -1;
  }
  // visit(step, value) for what the chain reads from memory.
  template <class F>
  void walk(size_t begin, size_t end, F&& visit) const {
    uint16_t accumulator = Plan::kNone;
    for (size_t s = begin; s < end; ++s) {
      if (folded_[s]) continue;
      int as = position(s, accumulator), by = condition_[s];
      if (as < 0) visit(s, operand(s, as = first_loaded(s)));
      if (by >= 0 && !extreme_[s]) {
        visit(s, steps_[static_cast<size_t>(by)].a);
        visit(s, steps_[static_cast<size_t>(by)].b);
      }
      for (int k = by >= 0 ? 1 : 0; k < operands(s); ++k)
        if (k != as) visit(s, operand(s, k));
      accumulator = steps_[s].out;
    }
  }

  Plan& plan_;
  const std::vector<Origin>& origins_;
  const std::vector<uint8_t>& types_;
  const ChainKernels& kernels_ = chain_kernels();
  std::vector<Plan::Step> steps_;
  std::vector<int> fill_of_;  // the value's fill; -1: none
  std::vector<bool> is_load_;
  std::vector<int> condition_;  // of the chain's SELECTs: the comparison that is made with it; -1: none
  std::vector<bool> folded_;    // that comparison
  std::vector<bool>
      extreme_;  // of the chain's SELECTs: condition_ compares the third operand with the second
  std::vector<Traffic> traffic_;
};

}  // namespace

std::vector<Traffic> join_steps(Plan& plan, const std::vector<Origin>& origins,
                                const std::vector<uint8_t>& types) {
  return Joiner(plan, origins, types).join();
}

}  // namespace sim
