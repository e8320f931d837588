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
  bool all_linear = true, in_rows = space.ndim > 0;
  for (int k = 0; k < space.n; ++k) {
    int64_t expected = plan->operand_bytes[k];
    bool linear = true, constant = true;
    for (int d = space.ndim; d-- > 0;) {
      linear = linear && space.stride[d][k] == expected;
      constant = constant && space.stride[d][k] == 0;
      expected *= space.size[d];
    }
    modes_[k] = constant && space.ndim > 0 ? Mode::constant : linear ? Mode::linear : Mode::rows;
    if (!plan->operand_bytes[k]) continue;
    all_linear = all_linear && modes_[k] != Mode::rows;
    if (modes_[k] != Mode::linear) needs_slots_ = true;
    int64_t inner = space.inner_stride(k);
    in_rows = in_rows && (inner == plan->operand_bytes[k] || (inner == 0 && k < plan->n_inputs));
  }
  // A row that is long enough is worth the few hundred instructions around it.
  constexpr int64_t kLeast = 128;
  int64_t row = all_linear ? 0 : space.inner_size();
  for (const Plan::Index& x : plan->indices)
    if (x.dimension != Plan::kNone && sizes) {
      int d = ndim;
      while (d > 1 && sizes[d - 1] == 1) --d;
      row = d ? sizes[d - 1] : 0;
    }
  row_ = in_rows && first == 0 && row >= kLeast ? row : 0;
}

void Points::prepare() {
  // INDEX fixes the order of the points.
  if (plan->indices.empty()) space.sort(plan->n_inputs);
  space.merge();
  classify();
}

// A thread's way through a piece of the points: a stretch of constant strides after another, each in blocks.
struct Points::Block {
  const Points& points;
  const Plan& p;
  uint32_t* faults;
  int64_t block;
  char *base = nullptr, *tiles = nullptr;
  void* values[kMaxValues];
  bool still[kMaxValues];  // the value is one tile, the same for all points of the stretch
  bool nan[FL_MAX_CODE];   // is the constant a NaN?
  char* data[kMaxOperands];
  Mode modes[kMaxOperands];
  // What a slot holds already, so that it is not put there again.
  struct Held {
    const void* from;
    int64_t number, n;
    bool is(const void* f, int64_t i, int64_t points) const {
      return from == f && number == i && n >= points;
    }
  } held[kMaxValues];

  Block(const Points& all, int64_t n, uint32_t* f) : points(all), p(*all.plan), faults(f) {
    const bool slots = points.needs_slots_;
    block = slots ? p.block : kUnbuffered;
    if (block > n) block = (n + 127) & ~int64_t{127};
    const size_t slot_bytes = slots ? p.slot_bytes * static_cast<size_t>(block) : 0;
    const size_t n_tiles = size_t{p.n_constants} + p.n_kept + p.n_spare;
    if (slot_bytes + n_tiles) base = buffer(slot_bytes + n_tiles * kTileBytes);
    tiles = base + slot_bytes;
    for (size_t v = 0; v < p.slots.size(); ++v) values[v] = base + p.slots[v] * block, still[v] = false;
    for (const Plan::Load& l : p.loads) held[l.value] = {nullptr, -1, 0};
    for (const Plan::Index& x : p.indices) held[x.value] = {nullptr, -1, 0};
    std::copy_n(points.data, points.space.n, data);
    std::copy_n(points.modes_, points.space.n, modes);
    const int64_t most = std::min(block, n);
    for (const Plan::Fill& fill : p.fills) {
      const fl_scalar& s = fill.scalar == Plan::kLiteral ? fill.literal : points.scalars[fill.scalar];
      if (fill.in_slot) fill_scalar(values[fill.value], most, fill.type, s);
      if (fill.tile == Plan::kNone) continue;
      fill_scalar(tile(fill.tile), kTileBytes / static_cast<int64_t>(dtype_size(fill.type)), fill.type, s);
      nan[fill.tile] = (fill.type == FL_F32 || fill.type == FL_F64) && s.v.f != s.v.f;
    }
  }
  char* tile(int number) const { return tiles + number * kTileBytes; }

  // From the row's start on, operands are where the strides say.
  void enter_row(int64_t number) {
    const auto& space = points.space;
    const int64_t inner = space.inner_size(), at = number * points.row_;
    Cursor<kMaxOperands> cursor(space, at / inner, 1);
    // As if the row's first point were the first of all: stretch() adds what lies before it.
    for (int k = 0; k < space.n; ++k) {
      const int64_t stride = space.inner_stride(k);
      modes[k] = stride ? Mode::linear : Mode::constant;
      data[k] = points.data[k] + cursor.offset[k] + (at % inner - at) * stride;
    }
  }

  // How many points a value is needed for: all, or one tile of them.
  int64_t stand(uint16_t value, int64_t n) {
    still[value] = p.chained[value];
    return still[value] ? kTileBytes / p.value_bytes[value] : n;
  }
  void load(const Plan::Load& l, int64_t at, int64_t n) {
    char* from = data[l.input];
    Held& h = held[l.value];
    switch (modes[l.input]) {
      case Mode::linear:
        from += at * l.bytes;
        if (l.alias) values[l.value] = from;
        else l.widen(n, from, l.bytes, values[l.value]);
        return;
      case Mode::constant:
        n = stand(l.value, std::min(block, n));
        if (h.is(from, 0, n)) return;
        l.widen(n, from, 0, values[l.value]);
        h = {from, 0, n};
        return;
      case Mode::rows: {
        auto* to = static_cast<char*>(values[l.value]);
        int64_t stride = points.space.inner_stride(l.input), bytes = p.value_bytes[l.value];
        points.each_row(l.input, at, n, [&](int64_t i, int64_t run, int64_t offset) {
          l.widen(run, from + offset, stride, to + i * bytes);
        });
      }
    }
  }
  void index(const Plan::Index& x, int64_t at, int64_t n) {
    const auto fill = x.type == FL_I32 ? fill_index<int32_t> : fill_index<int64_t>;
    if (!points.row_ || x.dimension == Plan::kNone)
      return fill(values[x.value], n, points.first + at, x.dimension, points.sizes, points.ndim);
    Held& h = held[x.value];
    int64_t inner = 1;
    for (int d = x.dimension + 1; d < points.ndim; ++d) inner *= points.sizes[d];
    if (x.dimension < points.ndim && inner == 1 && points.sizes[x.dimension] != 1) {
      const int64_t number = at % points.row_;
      if (h.is(nullptr, number, n)) return;
      fill(values[x.value], n, at, x.dimension, points.sizes, points.ndim);
      h = {nullptr, number, n};
      return;
    }
    // The same along the row.
    n = stand(x.value, n);
    const int64_t number = at / points.row_;
    if (h.is(nullptr, number, n)) return;
    int64_t value = x.dimension < points.ndim ? at / inner % points.sizes[x.dimension] : 0;
    fl_scalar s{};
    s.v.i = value;
    fill_scalar(values[x.value], n, x.type, s);
    h = {nullptr, number, n};
  }

  void run_chain(const Plan::Chain& chain, int64_t n) const {
    ChainStep steps[kMostChainSteps];
    int count = 0;
    for (const Plan::Link& l : chain.links) {
      ChainStep& step = steps[count++];
      step = {l.run, {}, l.function};
      if (l.with_number && !nan[l.operand[0].number]) step.run = l.with_number;
      for (int k = 0; k < 3; ++k) {
        const Plan::Link::Operand& o = l.operand[k];
        switch (o.at) {
          case Plan::Link::At::nowhere:
            break;
          case Plan::Link::At::value:
            step.operand[k] = {static_cast<char*>(values[o.number]), still[o.number] ? 0 : -1};
            break;
          case Plan::Link::At::constant:
            step.operand[k] = {tile(o.number), 0};
            break;
          case Plan::Link::At::kept:
            step.operand[k] = {tile(p.n_constants + o.number), 0};
            break;
        }
      }
    }
    chain_kernels().run(steps, count, n * chain.bytes, tile(p.n_constants + p.n_kept));
  }

  void stretch(int64_t begin, int64_t end) {
    for (int64_t at = begin, n; at < end; at += n) {
      n = std::min(block, end - at);
      for (const Plan::Load& l : p.loads) load(l, at, n);
      for (const Plan::Index& x : p.indices) index(x, at, n);
      for (const Plan::Store& s : p.stores)
        if (s.direct && modes[p.n_inputs + s.output] == Mode::linear)
          values[s.value] = data[p.n_inputs + s.output] + at * s.bytes;
      // A single step reads as fast as the processor fetches by itself.
      Prefetch next;
      if (points.needs_slots_ && p.steps.size() > 1 && at + n < end)
        for (int k = 0; k < points.space.n; ++k)
          if (modes[k] == Mode::linear && p.operand_bytes[k])
            next.add(data[k] + (at + n) * p.operand_bytes[k],
                     std::min(block, end - at - n) * p.operand_bytes[k]);
      for (const Plan::Step& s : p.steps) {
        next.some(p.steps.size());
        if (s.run) s.run(n, values[s.a], values[s.b], values[s.c], values[s.out], faults);
        else run_chain(p.chains[s.a], n);
      }
      for (const Plan::Store& s : p.stores) store(s, at, n);
    }
  }
  void store(const Plan::Store& s, int64_t at, int64_t n) const {
    int operand = p.n_inputs + s.output;
    char* to = data[operand];
    auto* from = static_cast<const char*>(values[s.value]);
    const int64_t bytes = p.value_bytes[s.value];
    if (modes[operand] == Mode::rows) {
      int64_t stride = points.space.inner_stride(operand);
      points.each_row(operand, at, n, [&](int64_t i, int64_t run, int64_t offset) {
        s.narrow(run, from + i * bytes, to + offset, stride);
      });
    } else if (modes[operand] == Mode::constant) {
      s.narrow(1, from + (n - 1) * bytes, to, 0);
    } else if (!s.direct) {
      s.narrow(n, from, to + at * s.bytes, s.bytes);
    }
  }
};

void Points::run(int64_t begin, int64_t end, uint32_t* faults) const {
  Block block(*this, end - begin, faults);
  if (!row_) return block.stretch(begin, end);
  for (int64_t at = begin; at < end;) {
    const int64_t stop = std::min(end, (at / row_ + 1) * row_);
    block.enter_row(at / row_);
    block.stretch(at, stop);
    at = stop;
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
