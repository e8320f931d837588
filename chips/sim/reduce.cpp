// Reductions over any dimensions of strided inputs.
//
// The outputs' points are cut into tiles: runs along one kept dimension.  A tile
// holds a carrier a point (simd/reduce_kernels.h) and takes its values in one
// of two ways: point by point, along the innermost reduced dimension, or,
// where a kept dimension has the smaller stride, a row of points at a time.
// With few tiles the reduced points are cut too, into pieces whose number does
// not depend on the number of threads: equal inputs give equal bits.
#include <memory>

#include "fl/author/space.h"
#include "program_use.h"
#include "simd/convert.h"
#include "simd/reduce_kernels.h"
#include "sim.h"

namespace sim {
namespace {

constexpr int kOperands = FL_MAX_INPUTS + FL_MAX_OUTPUTS + 3;
constexpr int64_t kTile = 1024;    // most points in a tile
constexpr int64_t kGather = 1024;  // values that a block loaded into a buffer has
constexpr int64_t kPiece = 32768;  // values worth a thread
constexpr int64_t kMostPieces = 64;
constexpr int kValueBytes = 16;

using ReduceSpace = Space<kOperands>;
using ReduceCursor = Cursor<kOperands>;

struct Header {
  const ReduceKernels* kernels = nullptr;
  const Plan* pre = nullptr;
  const Plan* post = nullptr;
  Convert load = nullptr, save[FL_MAX_OUTPUTS] = {};
  const Plan* save_plan[FL_MAX_OUTPUTS] = {};
  uint8_t accumulate;
  uint8_t n_inputs, n_outputs;
  bool indexed = false;
  bool counts_in = false, counts_out = false;  // pre, post have an INDEX
};

class Reduction {
 public:
  Reduction(const Header& h, const Tensor* in, const Tensor* out, const Tensor& index,
            const fl_scalar* pre_scalars, const fl_scalar* post_scalars)
      : h_(h),
        in_(in),
        out_(out),
        index_(index),
        pre_scalars_(pre_scalars),
        post_scalars_(post_scalars),
        k_(*h.kernels),
        kept_(operands()),
        reduced_(operands()) {}

  void run(Context& context);

 private:
  int operands() const { return number_out() + 1; }
  int output(int i) const { return h_.n_inputs + i; }
  int index() const { return h_.n_inputs + h_.n_outputs; }
  int number_in() const { return index() + 1; }  // row-major number in the inputs, for INDEX in pre
  int number_out() const { return index() + 2; }

  void lay_out();
  void compute(int64_t tile, int64_t begin, int64_t end, char* c0, char* c1);
  void fold_direct(const char* values, int64_t begin, int64_t end, char* c0, char* c1);
  void fold_point(const int64_t* base, int64_t begin, int64_t end, char* c0, char* c1);
  void fold_rows(const int64_t* base, int64_t n, int64_t begin, int64_t end, char* c0, char* c1);
  void load(const int64_t* base, const int64_t* more, const int64_t* strides, int64_t n, char* to);
  void finish(int64_t tile, const char* c0, const char* c1);
  int64_t tile_points(int64_t tile) const {
    int64_t begin = tile % tiles_a_run_ * tile_;
    return std::min(tile_, kept_.inner_size() - begin);
  }
  // Where the tile starts.
  void locate(int64_t tile, int64_t* base) const {
    ReduceCursor cursor(kept_, tile / tiles_a_run_, 1);
    int64_t begin = tile % tiles_a_run_ * tile_;
    for (int k = 0; k < kept_.n; ++k) base[k] = cursor.offset[k] + begin * kept_.inner_stride(k);
  }

  const Header& h_;
  const Tensor* in_;
  const Tensor* out_;
  const Tensor& index_;
  const fl_scalar *pre_scalars_, *post_scalars_;
  const ReduceKernels& k_;
  ReduceSpace kept_, reduced_;
  bool by_rows_ = false, direct_ = false;
  int64_t tile_ = 1, tiles_a_run_ = 1, tiles_ = 1, values_ = 1;
  std::atomic<fl_status> fault_{FL_OK};
};

void Reduction::lay_out() {
  const Tensor& first = in_[0];
  const Tensor& shape = h_.n_outputs ? out_[0] : index_;
  int64_t in_number = 1, out_number = 1;
  int64_t numbers_in[FL_MAX_DIMS], numbers_out[FL_MAX_DIMS];
  for (int d = first.ndim; d-- > 0;) {
    numbers_in[d] = in_number, numbers_out[d] = out_number;
    in_number *= first.sizes[d], out_number *= shape.sizes[d];
  }
  for (int d = 0; d < first.ndim; ++d) {
    if (first.sizes[d] == 1) continue;
    bool reduces = shape.sizes[d] == 1;
    ReduceSpace& space = reduces ? reduced_ : kept_;
    int64_t* s = space.push(first.sizes[d]);
    for (int i = 0; i < h_.n_inputs; ++i) s[i] = in_[i].strides[d] * int64_t(dtype_size(in_[i].dtype));
    for (int i = 0; i < h_.n_outputs; ++i)
      s[output(i)] = reduces ? 0 : out_[i].strides[d] * int64_t(dtype_size(out_[i].dtype));
    s[index()] = reduces || !index_ ? 0 : index_.strides[d] * 8;
    s[number_in()] = h_.counts_in ? numbers_in[d] : 0;
    s[number_out()] = h_.counts_out && !reduces ? numbers_out[d] : 0;
  }
  // INDEX wants neighbours in number to be neighbours in a block, and a winner's
  // number counts the reduced points in their order.
  if (!h_.counts_in && !h_.counts_out) kept_.sort(0);
  if (!h_.counts_in && !h_.indexed) reduced_.sort(0);
  kept_.merge(), reduced_.merge();
  values_ = reduced_.points();

  const int64_t value = k_.value_bytes;
  int64_t kept_stride = std::llabs(kept_.inner_stride(0)),
          reduced_stride = std::llabs(reduced_.inner_stride(0));
  if (h_.counts_in) {
    // The last dimension of the inputs is the block's.
    by_rows_ = kept_.inner_stride(number_in()) == 1;
  } else {
    // Very short rows cost more to start than they save; very few values a point, the other way round.
    by_rows_ = kept_.ndim && kept_.inner_size() >= 8 &&
               (kept_stride < reduced_stride || values_ < 16 || reduced_.ndim == 0);
  }
  const ReduceSpace& inner = by_rows_ ? kept_ : reduced_;
  direct_ = !h_.pre && in_[0].dtype == h_.accumulate && h_.accumulate != FL_BOOL &&
            (inner.inner_stride(0) == value || inner.ndim == 0);

  int64_t run = kept_.inner_size();
  int64_t wanted = by_rows_ ? kTile : std::max<int64_t>(1, kPiece / std::max<int64_t>(values_, 1));
  tile_ = std::min({run, wanted, kTile});
  tiles_a_run_ = (run + tile_ - 1) / tile_;
  tiles_ = kept_.points() / run * tiles_a_run_;
}

// n values of the accumulate type from base + more along `strides`.
void Reduction::load(const int64_t* base, const int64_t* more, const int64_t* strides, int64_t n, char* to) {
  if (!h_.pre) {
    h_.load(in_[0].data + base[0] + more[0], strides[0], to, k_.value_bytes, n);
    return;
  }
  const char* from[FL_MAX_INPUTS];
  for (int i = 0; i < h_.n_inputs; ++i) from[i] = in_[i].data + base[i] + more[i];
  const int64_t to_stride = k_.value_bytes, number = base[number_in()] + more[number_in()];
  const int64_t number_stride = strides[number_in()];
  fl_status fault = FL_OK;
  if (!h_.counts_in || number_stride == 1 || n == 1) {
    run_plan(h_.pre, n, from, strides, &to, &to_stride, pre_scalars_, number, in_[0].sizes, in_[0].ndim,
             &fault);
  } else {
    for (int64_t j = 0; j < n; ++j, to += to_stride) {
      run_plan(h_.pre, 1, from, strides, &to, &to_stride, pre_scalars_, number + j * number_stride,
               in_[0].sizes, in_[0].ndim, &fault);
      for (int i = 0; i < h_.n_inputs; ++i) from[i] += strides[i];
    }
  }
  if (fault != FL_OK) fault_.store(fault, std::memory_order_relaxed);
}

// Contiguous values of the accumulate type.
void Reduction::fold_direct(const char* values, int64_t begin, int64_t end, char* c0, char* c1) {
  for (int64_t p = begin; p < end; p += kReduceBlock)
    k_.fold(values + p * k_.value_bytes, std::min(kReduceBlock, end - p), p, p - begin, c0, c1);
}

void Reduction::fold_point(const int64_t* base, int64_t begin, int64_t end, char* c0, char* c1) {
  alignas(64) char buffer[kGather * kValueBytes];
  static constexpr int64_t kNoStrides[kOperands] = {};
  ReduceCursor cursor(reduced_, begin);
  const int64_t* strides = reduced_.ndim ? reduced_.stride[reduced_.ndim - 1] : kNoStrides;
  const int64_t limit = direct_ ? kReduceBlock : kGather;
  // Short runs are collected until they make a block worth a call.
  const bool collects = reduced_.ndim > 1 && reduced_.inner_size() < 256;
  int64_t held = 0, p = begin;
  while (p < end) {
    int64_t n = std::min({cursor.left(), end - p, limit});
    if (direct_ && !collects) {
      k_.fold(in_[0].data + base[0] + cursor.offset[0], n, p, p - begin, c0, c1);
    } else {
      n = std::min(n, kGather - held);
      load(base, cursor.offset, strides, n, buffer + held * k_.value_bytes);
      held += n;
      if (!collects || held == kGather || p + n == end) {
        int64_t first = p + n - held;
        k_.fold(buffer, held, first, first - begin, c0, c1);
        held = 0;
      }
    }
    p += n;
    cursor.advance(n);
  }
}

void Reduction::fold_rows(const int64_t* base, int64_t n, int64_t begin, int64_t end, char* c0, char* c1) {
  alignas(64) char buffer[kReduceRows * 256 * kValueBytes];
  const int64_t* strides = kept_.stride[kept_.ndim - 1];
  ReduceCursor cursor(reduced_, begin);
  // Rows that are converted first pass through the buffer 256 values at a time.
  const int64_t width = direct_ ? n : 256;
  const void* rows[kReduceRows];
  if (direct_ && reduced_.ndim <= 1) {
    const char* row = in_[0].data + base[0] + begin * reduced_.inner_stride(0);
    for (int64_t p = begin; p < end;) {
      int count = int(std::min<int64_t>(kReduceRows, end - p));
      for (int r = 0; r < count; ++r, row += reduced_.inner_stride(0)) rows[r] = row;
      k_.rows(rows, count, n, p, p - begin, c0, c1);
      p += count;
    }
    return;
  }
  int64_t offsets[kReduceRows][kOperands];
  for (int64_t p = begin; p < end;) {
    int count = int(std::min<int64_t>(kReduceRows, end - p));
    for (int r = 0; r < count; ++r) {
      std::copy(cursor.offset, cursor.offset + kept_.n, offsets[r]);
      cursor.advance(1);
    }
    for (int64_t j = 0; j < n; j += width) {
      int64_t m = std::min(width, n - j);
      for (int r = 0; r < count; ++r) {
        if (direct_) {
          rows[r] = in_[0].data + base[0] + offsets[r][0];
        } else {
          int64_t more[kOperands];
          for (int k = 0; k < kept_.n; ++k) more[k] = offsets[r][k] + j * strides[k];
          char* row = buffer + r * 256 * k_.value_bytes;
          load(base, more, strides, m, row);
          rows[r] = row;
        }
      }
      k_.rows(rows, count, m, p, p - begin, c0 + j * k_.carrier_bytes[0], c1 + j * k_.carrier_bytes[1]);
    }
    p += count;
  }
}

// The reduced points begin…end of a tile.
void Reduction::compute(int64_t tile, int64_t begin, int64_t end, char* c0, char* c1) {
  int64_t base[kOperands], n = tile_points(tile);
  locate(tile, base);
  k_.init(c0, c1, n, begin);
  if (by_rows_) {
    fold_rows(base, n, begin, end, c0, c1);
    return;
  }
  if (direct_ && reduced_.ndim <= 1) {
    // A cursor a point would cost more than a short row's values.
    const char* values = in_[0].data + base[0];
    for (int64_t j = 0; j < n; ++j, values += kept_.inner_stride(0))
      fold_direct(values, begin, end, c0 + j * k_.carrier_bytes[0], c1 + j * k_.carrier_bytes[1]);
    return;
  }
  for (int64_t j = 0; j < n; ++j) {
    fold_point(base, begin, end, c0 + j * k_.carrier_bytes[0], c1 + j * k_.carrier_bytes[1]);
    for (int k = 0; k < kept_.n; ++k) base[k] += kept_.inner_stride(k);
  }
}

void Reduction::finish(int64_t tile, const char* c0, const char* c1) {
  alignas(64) char values[2][256 * kValueBytes];
  int64_t base[kOperands], n = tile_points(tile);
  const int64_t value = k_.value_bytes;
  locate(tile, base);
  for (int64_t j = 0; j < n; j += 256) {
    int64_t m = std::min<int64_t>(256, n - j);
    if (h_.n_outputs)
      k_.finish(c0 + j * k_.carrier_bytes[0], c1 + j * k_.carrier_bytes[1], m, values[0], values[1]);
    char* to[FL_MAX_OUTPUTS];
    int64_t strides[FL_MAX_OUTPUTS];
    for (int i = 0; i < h_.n_outputs; ++i) {
      strides[i] = kept_.inner_stride(output(i));
      to[i] = out_[i].data + base[output(i)] + j * strides[i];
    }
    fl_status fault = FL_OK;
    if (h_.post) {
      const char* from[2] = {values[0], values[1]};
      int64_t from_strides[2] = {value, value};
      int64_t number = base[number_out()] + j * kept_.inner_stride(number_out());
      const Tensor& shape = out_[0];
      if (!h_.counts_out || kept_.inner_stride(number_out()) == 1 || m == 1) {
        run_plan(h_.post, m, from, from_strides, to, strides, post_scalars_, number, shape.sizes, shape.ndim,
                 &fault);
      } else {
        for (int64_t p = 0; p < m; ++p) {
          run_plan(h_.post, 1, from, from_strides, to, strides, post_scalars_,
                   number + p * kept_.inner_stride(number_out()), shape.sizes, shape.ndim, &fault);
          from[0] += value, from[1] += value;
          for (int i = 0; i < h_.n_outputs; ++i) to[i] += strides[i];
        }
      }
    } else {
      for (int i = 0; i < h_.n_outputs; ++i) {
        const char* from = values[i];
        if (h_.save[i]) h_.save[i](from, value, to[i], strides[i], m);
        else run_plan(h_.save_plan[i], m, &from, &value, to + i, strides + i, nullptr, 0, nullptr, 0, &fault);
      }
    }
    if (fault != FL_OK) fault_.store(fault, std::memory_order_relaxed);
    if (index_) {
      const int64_t* at = reinterpret_cast<const int64_t*>(c1) + j;
      char* p = index_.data + base[index()] + j * kept_.inner_stride(index());
      for (int64_t i = 0; i < m; ++i, p += kept_.inner_stride(index()))
        *reinterpret_cast<int64_t*>(p) = at[i];
    }
  }
}

void Reduction::run(Context& context) {
  lay_out();
  const int64_t work = tile_ * values_;
  int64_t pieces = std::min((kMostPieces + tiles_ - 1) / tiles_, work / kPiece);
  if (pieces > values_) pieces = values_;
  const int64_t bytes0 = k_.carrier_bytes[0] * tile_, bytes1 = k_.carrier_bytes[1] * tile_;
  if (pieces <= 1) {
    parallel(tiles_, std::max<int64_t>(1, kPiece / std::max<int64_t>(work, 1)),
             [&](int64_t begin, int64_t end) {
               alignas(64) char carriers[2][kTile * kValueBytes];
               for (int64_t t = begin; t < end; ++t) {
                 compute(t, 0, values_, carriers[0], carriers[1]);
                 finish(t, carriers[0], carriers[1]);
               }
             });
  } else {
    // Piece p of tile t at (t × pieces + p).  Whole blocks a piece.
    int64_t length = (values_ + pieces - 1) / pieces;
    int64_t unit = by_rows_ ? kReduceRows : std::min<int64_t>(1024, length);
    length = (length + unit - 1) / unit * unit;
    pieces = (values_ + length - 1) / length;
    char* carriers = static_cast<char*>(context.scratch(size_t(tiles_ * pieces * (bytes0 + bytes1))));
    parallel(tiles_ * pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        char* c = carriers + i * (bytes0 + bytes1);
        int64_t from = i % pieces * length;
        compute(i / pieces, from, std::min(from + length, values_), c, c + bytes0);
      }
    });
    parallel(tiles_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        char* c = carriers + t * pieces * (bytes0 + bytes1);
        for (int64_t p = 1; p < pieces; ++p) {
          char* d = c + p * (bytes0 + bytes1);
          int64_t from = p * length;
          k_.combine(c, c + bytes0, from, d, d + bytes0, std::min(length, values_ - from), tile_points(t));
        }
        finish(t, c, c + bytes0);
      }
    });
  }
  if (fault_.load(std::memory_order_relaxed) != FL_OK) context.fail(FL_FAILED, "division by zero");
}

// Most reductions have one input, at most one output and no scalars: their jobs are kept small.
struct SmallJob {
  Header h;
  Tensor in, out, index;
  void operator()(Context& context) { Reduction(h, &in, &out, index, nullptr, nullptr).run(context); }
};
struct LargeJob {
  Header h;
  Tensor in[FL_MAX_INPUTS], out[FL_MAX_OUTPUTS], index;
  Scalars pre, post;
  void operator()(Context& context) { Reduction(h, in, out, index, pre.values, post.values).run(context); }
};

// The squares of one operand, as norms have them: its kernels square what they read.
bool squares(const fl_program* p, uint8_t type) {
  if (!p || p->n_code != 3 || p->n_inputs != 1) return false;
  const fl_instr &load = p->code[0], &mul = p->code[1], &store = p->code[2];
  return load.op == FL_OP_LOAD && load.type == type && mul.op == FL_OP_MUL && mul.type == type &&
         mul.a == mul.b && store.op == FL_OP_STORE && store.memory == type && store.a != mul.a;
}

}  // namespace

fl_status reduce(const fl_launch* launch, const fl_reduce_args* args) {
  if (args->kind >= FL_REDUCE_COUNT) return FL_UNSUPPORTED;  // the kernels' own kinds begin there
  Header h;
  h.accumulate = args->accumulate;
  h.n_inputs = args->n_inputs, h.n_outputs = args->outputs ? uint8_t(args->n_outputs) : 0;
  h.indexed = args->index != nullptr;
  const fl_program* pre = args->pre;
  if (args->kind == FL_REDUCE_SUM && squares(pre, args->accumulate)) {
    h.kernels = find_reduce_kernels(kSumOfSquares, args->accumulate, h.indexed);
    if (h.kernels) pre = nullptr;
  }
  if (!h.kernels) h.kernels = find_reduce_kernels(args->kind, args->accumulate, h.indexed);
  if (!h.kernels) return FL_UNSUPPORTED;
  if (args->n_inputs < 1 || args->n_inputs > FL_MAX_INPUTS || h.n_outputs > FL_MAX_OUTPUTS ||
      (!h.n_outputs && !h.indexed) || (!pre && args->n_inputs != 1) ||
      (!args->post && h.n_outputs > h.kernels->n_values)) {
    set_error("sim: reduce with %d inputs and %d outputs does not fit its kind and programs", args->n_inputs,
              h.n_outputs);
    return FL_INVALID;
  }
  if (pre) {
    if (!(h.pre = plan_of(pre))) return FL_UNSUPPORTED;
    h.counts_in = uses_index(pre);
  } else if (!(h.load = find_convert(args->inputs[0].dtype, h.accumulate))) {
    if (!(h.pre = cast_plan(args->inputs[0].dtype, h.accumulate, h.accumulate))) return FL_UNSUPPORTED;
  }
  if (args->post && h.n_outputs) {
    if (!(h.post = plan_of(args->post))) return FL_UNSUPPORTED;
    h.counts_out = uses_index(args->post);
  } else {
    for (int i = 0; i < h.n_outputs; ++i) {
      if ((h.save[i] = find_convert(h.accumulate, args->outputs[i].dtype))) continue;
      if (!(h.save_plan[i] = cast_plan(h.accumulate, args->outputs[i].dtype, h.accumulate)))
        return FL_UNSUPPORTED;
    }
  }
  int pre_scalars = pre ? pre->n_scalars : 0, post_scalars = h.post ? args->post->n_scalars : 0;
  if (h.n_inputs == 1 && h.n_outputs <= 1 && !pre_scalars && !post_scalars)
    return submit(launch, "reduce",
                  SmallJob{h, Tensor(args->inputs[0]), h.n_outputs ? Tensor(args->outputs[0]) : Tensor(),
                           optional(args->index)});
  LargeJob job;
  job.h = h;
  for (int i = 0; i < h.n_inputs; ++i) job.in[i] = Tensor(args->inputs[i]);
  for (int i = 0; i < h.n_outputs; ++i) job.out[i] = Tensor(args->outputs[i]);
  job.index = optional(args->index);
  job.pre = Scalars(args->pre_scalars, pre_scalars);
  job.post = Scalars(args->post_scalars, post_scalars);
  return submit(launch, "reduce", std::move(job));
}

void claim_reduce(Claims& claims) {
  for (uint16_t kind = 0; kind < FL_REDUCE_COUNT; ++kind) {
    uint32_t dtypes = 0;
    for (int dtype = 1; dtype < FL_DTYPE_COUNT; ++dtype)
      if (find_reduce_kernels(kind, dtype, false)) dtypes |= FL_BIT(dtype);
    claims.push_back({FL_ENTRY_REDUCE, kind, dtypes});
  }
}

}  // namespace sim
