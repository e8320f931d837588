// Running a plan over points: blocks, rows, threads.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "pointwise_plan.h"

namespace sim {
namespace {

// Work is cut at multiples of this many points, so that vectors stay aligned.
constexpr int64_t kUnit = 1024;
// Points in a block when no value needs a slot: the block is only a loop bound then.
constexpr int64_t kUnbuffered = 64 << 10;

// A buffer a thread, for its blocks; grows to the largest need.
struct Buffer {
  std::unique_ptr<char, decltype(&std::free)> data{nullptr, &std::free};
  size_t bytes = 0;
};
char* buffer(size_t bytes) {
  thread_local Buffer b;
  if (b.bytes < bytes) {
    b.bytes = std::max<size_t>(bytes + 4095, 32 << 10) & ~size_t{4095};
    b.data.reset(static_cast<char*>(std::aligned_alloc(4096, b.bytes)));
    if (!b.data) {
      b.bytes = 0;
      throw std::bad_alloc();
    }
  }
  return b.data.get();
}

// While a block is computed nothing is fetched for the next one: it is asked for
// ahead, a part before each step.
struct Prefetch {
  const char* from[kMaxOperands];
  int64_t lines[kMaxOperands], done[kMaxOperands];
  int n = 0;
  void add(const char* p, int64_t bytes) {
    from[n] = p, lines[n] = (bytes + 63) / 64, done[n] = 0;
    ++n;
  }
  void some(size_t parts) {
    for (int k = 0; k < n; ++k) {
      int64_t stop = std::min(lines[k], done[k] + lines[k] / static_cast<int64_t>(parts) + 1);
      for (int64_t i = done[k]; i < stop; ++i) __builtin_prefetch(from[k] + 64 * i, 0, 2);
      done[k] = stop;
    }
  }
};

template <class T>
void fill_n(void* to, int64_t n, T value) {
  std::fill_n(static_cast<T*>(to), n, value);
}

void fill_scalar(void* to, int64_t n, uint8_t type, const fl_scalar& s) {
  struct Pair {
    double re, im;
  };
  struct PairF {
    float re, im;
  };
  switch (type) {
    case FL_BOOL:
      return fill_n(to, n, static_cast<uint8_t>(s.v.i != 0));
    case FL_I32:
      return fill_n(to, n, static_cast<int32_t>(s.v.i));
    case FL_I64:
      return fill_n(to, n, s.v.i);
    case FL_F32:
      return fill_n(to, n, static_cast<float>(s.v.f));
    case FL_F64:
      return fill_n(to, n, s.v.f);
    case FL_C64:
      return fill_n(to, n, PairF{static_cast<float>(s.v.f), static_cast<float>(s.imag)});
    default:
      return fill_n(to, n, Pair{s.v.f, s.imag});
  }
}

template <class T>
void fill_index(void* to_, int64_t n, int64_t number, uint16_t dimension, const int64_t* sizes, int ndim) {
  T* to = static_cast<T*>(to_);
  if (dimension == 0xffff) {
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(number + i);
    return;
  }
  if (!sizes || dimension >= ndim) return fill_n<T>(to, n, 0);
  int64_t inner = 1, size = sizes[dimension];
  for (int d = dimension + 1; d < ndim; ++d) inner *= sizes[d];
  int64_t at = number / inner % size, left = inner - number % inner;
  for (int64_t i = 0; i < n;) {
    int64_t run = std::min(left, n - i);
    fill_n<T>(to + i, run, static_cast<T>(at));
    i += run;
    left = inner;
    if (++at == size) at = 0;
  }
}

}  // namespace

// f(position in the block, points, offset): the stretches of constant stride.
template <class F>
void Points::each_row(int operand, int64_t at, int64_t n, F&& f) const {
  int inner = space.ndim - 1;
  int64_t where[FL_MAX_DIMS], offset = 0;
  for (int d = inner; d > 0; --d) {
    where[d] = at % space.size[d];
    at /= space.size[d];
    offset += where[d] * space.stride[d][operand];
  }
  where[0] = at;
  offset += at * space.stride[0][operand];
  for (int64_t i = 0; i < n;) {
    int64_t run = std::min(space.size[inner] - where[inner], n - i);
    f(i, run, offset);
    i += run;
    where[inner] += run;
    offset += run * space.stride[inner][operand];
    for (int d = inner; d > 0 && where[d] == space.size[d]; --d) {
      offset += space.stride[d - 1][operand] - where[d] * space.stride[d][operand];
      where[d] = 0;
      ++where[d - 1];
    }
  }
}

void Points::classify() {
  needs_slots_ = plan->needs_slots;
  for (int k = 0; k < space.n; ++k) {
    int64_t expected = plan->operand_bytes[k];
    bool linear = true, constant = true;
    for (int d = space.ndim; d-- > 0;) {
      linear = linear && space.stride[d][k] == expected;
      constant = constant && space.stride[d][k] == 0;
      expected *= space.size[d];
    }
    modes_[k] = constant && space.ndim > 0 ? Mode::constant : linear ? Mode::linear : Mode::rows;
    if (modes_[k] != Mode::linear && plan->operand_bytes[k]) needs_slots_ = true;
  }
}

void Points::prepare() {
  // INDEX fixes the order of the points.
  if (plan->indices.empty()) space.sort(plan->n_inputs);
  space.merge();
  classify();
}

void Points::run(int64_t begin, int64_t end, uint32_t* faults) const {
  const Plan& p = *plan;
  int64_t block = needs_slots_ ? p.block : kUnbuffered;
  if (block > end - begin) block = (end - begin + 63) & ~int64_t{63};
  char* base = needs_slots_ ? buffer(p.slot_bytes * static_cast<size_t>(block)) : nullptr;
  void* values[kMaxValues];
  for (size_t v = 0; v < p.slots.size(); ++v) values[v] = base + p.slots[v] * block;

  int64_t most = std::min(block, end - begin);
  for (const Plan::Fill& f : p.fills)
    fill_scalar(values[f.value], most, f.type, f.scalar == Plan::kLiteral ? f.literal : scalars[f.scalar]);
  for (const Plan::Load& l : p.loads)
    if (modes_[l.input] == Mode::constant) l.widen(most, data[l.input], 0, values[l.value]);

  for (int64_t at = begin, n; at < end; at += n) {
    n = std::min(block, end - at);
    for (const Plan::Load& l : p.loads) {
      char* from = data[l.input];
      if (modes_[l.input] == Mode::linear) {
        from += at * l.bytes;
        if (l.alias) values[l.value] = from;
        else l.widen(n, from, l.bytes, values[l.value]);
      } else if (modes_[l.input] == Mode::rows) {
        auto* to = static_cast<char*>(values[l.value]);
        int64_t stride = space.stride[space.ndim - 1][l.input], bytes = p.value_bytes[l.value];
        each_row(l.input, at, n, [&](int64_t i, int64_t run, int64_t offset) {
          l.widen(run, from + offset, stride, to + i * bytes);
        });
      }
    }
    for (const Plan::Index& x : p.indices)
      (x.type == FL_I32 ? fill_index<int32_t> : fill_index<int64_t>)(values[x.value], n, first + at,
                                                                     x.dimension, sizes, ndim);
    for (const Plan::Store& s : p.stores)
      if (s.direct && modes_[p.n_inputs + s.output] == Mode::linear)
        values[s.value] = data[p.n_inputs + s.output] + at * s.bytes;
    Prefetch next;
    if (needs_slots_ && at + n < end)
      for (int k = 0; k < space.n; ++k)
        if (modes_[k] == Mode::linear && p.operand_bytes[k])
          next.add(data[k] + (at + n) * p.operand_bytes[k],
                   std::min(block, end - at - n) * p.operand_bytes[k]);
    for (const Plan::Step& s : p.steps) {
      next.some(p.steps.size());
      s.run(n, values[s.a], values[s.b], values[s.c], values[s.out], faults);
    }
    for (const Plan::Store& s : p.stores) {
      int operand = p.n_inputs + s.output;
      char* to = data[operand];
      if (modes_[operand] == Mode::rows) {
        auto* from = static_cast<const char*>(values[s.value]);
        int64_t stride = space.stride[space.ndim - 1][operand], bytes = p.value_bytes[s.value];
        each_row(operand, at, n, [&](int64_t i, int64_t run, int64_t offset) {
          s.narrow(run, from + i * bytes, to + offset, stride);
        });
      } else if (modes_[operand] == Mode::constant) {
        s.narrow(1, static_cast<const char*>(values[s.value]) + (n - 1) * p.value_bytes[s.value], to, 0);
      } else if (!s.direct) {
        s.narrow(n, values[s.value], to + at * s.bytes, s.bytes);
      }
    }
  }
}

void Points::run(uint32_t* faults) const {
  int64_t n = space.points();
  if (n <= plan->grain) return run(0, n, faults);
  std::atomic<uint32_t> all{0};
  parallel((n + kUnit - 1) / kUnit, std::max<int64_t>(1, plan->grain / kUnit),
           [&](int64_t begin, int64_t end) {
             uint32_t mine = 0;
             run(begin * kUnit, std::min(n, end * kUnit), &mine);
             if (mine) all.fetch_or(mine, std::memory_order_relaxed);
           });
  *faults |= all.load();
}

void run_plan(const Plan* plan, int64_t n, const char* const* inputs, const int64_t* input_strides,
              char* const* outputs, const int64_t* output_strides, const fl_scalar* scalars, int64_t first,
              const int64_t* sizes, int ndim, fl_status* fault) {
  Points points(plan);
  int64_t* strides = points.space.push(n);
  for (int i = 0; i < plan->n_inputs; ++i) {
    strides[i] = input_strides[i];
    points.data[i] = const_cast<char*>(inputs[i]);
  }
  for (int o = 0; o < plan->n_outputs; ++o) {
    strides[plan->n_inputs + o] = output_strides[o];
    points.data[plan->n_inputs + o] = outputs[o];
  }
  points.scalars = scalars;
  points.first = first, points.sizes = sizes, points.ndim = ndim;
  points.prepare();
  uint32_t faults = 0;
  points.run(0, n, &faults);
  if (faults && fault) *fault = FL_FAILED;
}

}  // namespace sim
