#include "bridge/ops/spmm.h"

#include "bridge/ops/indexing.h"

namespace fl::bridge {
namespace {

void require(const Call& call, bool done, const char* what, ScalarType dtype) {
  if (!done) throw_refused(call, what, dtype);
}

// out[p] = from[index[p]], both one-dimensional.
Tensor pick(Call& call, const Tensor& from, const Tensor& index) {
  Tensor out = empty_like(from, index.sizes(), from.scalar_type());
  Slice slice(from, 0);
  require(call, gather_into(call, out, slice.rest, {&index}, {slice.axis}), "gather", from.scalar_type());
  return out;
}

// Whether dense's dtype can be computed on this chip at all.
bool computes(const Call& call, ScalarType wide) {
  uint8_t type = to_dtype(wide);
  return type && call.claims(FL_ENTRY_POINTWISE, FL_OP_MUL, type) &&
         call.claims(FL_ENTRY_POINTWISE, FL_OP_ADD, type);
}

// dense[b, columns[j], n] × values[j] as [B, J, N], in the type that dense is computed in.
Tensor terms_of(Call& call, const Spmm& s, const Tensor& dense, int64_t count, ScalarType wide) {
  static Programs programs;
  Tensor picked = dense;
  if (s.columns) {
    picked = empty_like(dense, {dense.size(0), count, dense.size(2)}, dense.scalar_type());
    Tensor index = s.columns->unsqueeze(1), from = dense.select(1, 0).unsqueeze(1);
    require(call, gather_into(call, picked, from, {&index}, {{dense.size(1), dense.stride(1)}}), "gather",
            dense.scalar_type());
  }
  Tensor terms = empty_like(dense, picked.sizes(), wide), factor = s.values ? s.values->unsqueeze(1) : picked;
  const uint8_t memory = dtype_of(dense), type = to_dtype(wide);
  const fl_program* program = programs.get(key_of(memory, s.values != nullptr), [&](Builder& b) {
    Value x = b.load(0, memory, type);
    if (s.values) x = b.op(FL_OP_MUL, x, b.load(1, memory, type));
    // A product of small integers wraps as its dtype does.
    b.store(0, type == FL_I32 || type == FL_I64 ? b.narrow(x, memory) : x, type);
  });
  bool done = s.values ? run_program(call, program, {&terms}, {&picked, &factor})
                       : run_program(call, program, {&terms}, {&picked});
  require(call, done, "pointwise", wide);
  return terms;
}

// One step of combining every place with the one `step` behind it, where both are of one row:
// after log2 of the longest row's length, a row's first place has all of it.
const fl_program* doubling(int mode, uint8_t type, bool winner) {
  static Programs programs;
  return programs.get(key_of(mode, type, winner), [&](Builder& b) {
    Value x = b.load(0, type), y = b.load(1, type);
    Value same = b.op(FL_OP_EQ, b.load(2, FL_I64), b.load(3, FL_I64));
    if (mode == FL_SPMM_MIN || mode == FL_SPMM_MAX) {
      // NaN wins, and the first of equal ones stays.
      Value wins = b.op(mode == FL_SPMM_MIN ? FL_OP_LT : FL_OP_GT, y, x);
      if (type == FL_F32 || type == FL_F64) {
        wins = b.op(FL_OP_OR, wins, b.op(FL_OP_NE, y, y));
        wins = b.op(FL_OP_AND, wins, b.op(FL_OP_EQ, x, x));
      }
      Value takes = b.op(FL_OP_AND, wins, same);
      b.store(0, b.select(takes, y, x), type);
      if (winner) b.store(1, b.select(takes, b.load(5, FL_I64), b.load(4, FL_I64)), FL_I64);
      return;
    }
    b.store(0, b.select(same, b.op(mode == FL_SPMM_PROD ? FL_OP_MUL : FL_OP_ADD, x, y), x), type);
  });
}

void double_up(Call& call, int mode, Tensor& x, const Tensor& rows, Tensor* winner) {
  const int64_t count = x.size(1);
  const fl_program* program = doubling(mode, dtype_of(x), winner != nullptr);
  Tensor row = rows.unsqueeze(1), y = at::empty_like(x), next = winner ? at::empty_like(*winner) : Tensor();
  for (int64_t step = 1; step < count; step *= 2) {
    auto head = [&](const Tensor& t, int64_t dim) { return t.narrow(dim, 0, count - step); };
    auto tail = [&](const Tensor& t, int64_t dim) { return t.narrow(dim, step, count - step); };
    Tensor a = head(x, 1), b = tail(x, 1), ra = head(row, 0), rb = tail(row, 0), to = head(y, 1);
    bool done;
    if (winner) {
      Tensor wa = head(*winner, 1), wb = tail(*winner, 1), wto = head(next, 1);
      done = run_program(call, program, {&to, &wto}, {&a, &b, &ra, &rb, &wa, &wb});
      copy_step(next.narrow(1, count - step, step), winner->narrow(1, count - step, step));
      std::swap(*winner, next);
    } else {
      done = run_program(call, program, {&to}, {&a, &b, &ra, &rb});
    }
    require(call, done, "pointwise", x.scalar_type());
    copy_step(y.narrow(1, count - step, step), x.narrow(1, count - step, step));
    std::swap(x, y);
  }
}

// What stands at each row's first place; the last place for rows that begin behind it.
Tensor first_places(Call& call, const Tensor& x, const Tensor& begin) {
  static Programs programs;
  const int64_t last = x.size(1) - 1;
  Tensor at = empty_like(begin, begin.sizes(), at::kLong);
  const uint8_t memory = dtype_of(begin);
  const fl_program* clamp = programs.get(memory, [&](Builder& b) {
    b.store(0, b.op(FL_OP_MIN, b.load(0, memory, FL_I64), b.scalar(0, FL_I64)), FL_I64);
  });
  require(call, run_program(call, clamp, {&at}, {&begin}, {scalar_i(last)}), "pointwise", at::kLong);
  Tensor out = empty_like(x, {x.size(0), begin.size(0), x.size(2)}, x.scalar_type()), index = at.unsqueeze(1),
         from = x.select(1, 0).unsqueeze(1);
  require(call, gather_into(call, out, from, {&index}, {{x.size(1), x.stride(1)}}), "gather",
          x.scalar_type());
  return out;
}

// Rows without values get `empty`; means are divided.
void finish(Call& call, int mode, const Tensor& sums, const Tensor& begin, const Tensor& end,
            const Tensor& out, const at::Scalar& empty) {
  static Programs programs;
  const uint8_t type = dtype_of(sums), memory = dtype_of(out), index = dtype_of(begin);
  const fl_program* program =
      programs.get(key_of(type, memory, index, mode == FL_SPMM_MEAN), [&](Builder& b) {
        Value x = b.load(0, type), first = b.load(1, index, FL_I64), last = b.load(2, index, FL_I64);
        Value e = b.scalar(0, type), none = b.op(FL_OP_GE, first, last);
        if (mode == FL_SPMM_MEAN) x = b.op(FL_OP_DIV, x, b.cast(b.op(FL_OP_SUB, last, first), type));
        b.store(0, b.select(none, e, x), memory);
      });
  Tensor b = begin.unsqueeze(1), e = end.unsqueeze(1);
  require(call, run_program(call, program, {&out}, {&sums, &b, &e}, {to_scalar(empty, type)}), "pointwise",
          out.scalar_type());
}

bool composed(Call& call, const Spmm& s, const Tensor& dense, const Tensor& out, const Tensor* winner,
              const at::Scalar& empty, int64_t count) {
  const ScalarType wide = to_scalar_type(to_register(dense.scalar_type()));
  if (wide == ScalarType::Undefined || wide == at::kBool || !computes(call, wide)) return false;
  call.composed();
  const int64_t m = out.size(1);
  Tensor rows = rows_of(call, s.row_begin, count), begin = s.row_begin.narrow(0, 0, m),
         end = s.row_begin.narrow(0, 1, m), terms = terms_of(call, s, dense, count, wide);
  const bool sums = s.mode == FL_SPMM_SUM || s.mode == FL_SPMM_MEAN;
  Tensor result;
  if (sums && call.claims(FL_ENTRY_SCATTER, FL_SCATTER_ADD, dtype_of(terms))) {
    result = empty_like(dense, {out.size(0), m + 1, out.size(2)}, wide);  // the last: values of no row
    fill_step(result, 0);
    Tensor to = result.select(1, 0).unsqueeze(1), index = rows.unsqueeze(1);
    require(call, scatter_into(call, FL_SCATTER_ADD, to, terms, {&index}, {{m + 1, result.stride(1)}}),
            "scatter", wide);
    result = result.narrow(1, 0, m);
  } else {
    Tensor numbers;
    if (winner) {
      numbers = empty_like(dense, terms.sizes(), at::kLong);
      copy_step(numbers, at::arange(count, numbers.options()).unsqueeze(1).expand_as(numbers));
    }
    double_up(call, s.mode, terms, rows, winner ? &numbers : nullptr);
    result = first_places(call, terms, begin);
    if (winner) finish(call, s.mode, first_places(call, numbers, begin), begin, end, *winner, -1);
  }
  finish(call, s.mode, result, begin, end, out, empty);
  return true;
}

}  // namespace

Tensor rows_of(Call& call, const Tensor& row_begin, int64_t count) {
  static Programs nexts, steps, lasts;
  const int64_t m = row_begin.size(-1) - 1;
  const uint8_t memory = dtype_of(row_begin);
  if (call.claims(FL_ENTRY_SCAN, FL_SCAN_SUM, FL_I64)) {
    // M until the first row begins, 0 from there on, and one more with each row that ends.
    at::DimVector sizes(row_begin.sizes());
    sizes.back() = count + 1;
    Tensor places = row_begin.to(at::kLong).clamp(0, count), rises = at::zeros(sizes, places.options()),
           rise = at::ones({m + 1}, places.options());
    rises.select(-1, 0).fill_(m), rise.select(0, 0).fill_(-m);
    return rises.scatter_add_(-1, places, rise.expand_as(places)).narrow(-1, 0, count).cumsum(-1);
  }
  if (row_begin.dim() > 1) {
    at::DimVector sizes(row_begin.sizes());
    sizes.back() = count;
    std::vector<Tensor> rows;
    for (const Tensor& one : row_begin.reshape({-1, m + 1}).unbind(0))
      rows.push_back(rows_of(call, one, count));
    return rows.empty() ? at::empty(sizes, row_begin.options().dtype(at::kLong))
                        : at::stack(rows).view(sizes);
  }
  // Bisection of all values at once: `row` is the largest known to begin at or before j.
  Tensor row = at::zeros({count}, row_begin.options().dtype(at::kLong)), next = at::empty_like(row);
  const fl_program* ahead = nexts.get(0, [](Builder& b) {
    Value to = b.op(FL_OP_ADD, b.load(0, FL_I64), b.scalar(0, FL_I64));
    b.store(0, b.op(FL_OP_MIN, to, b.scalar(1, FL_I64)), FL_I64);
  });
  const fl_program* take = steps.get(memory, [&](Builder& b) {
    Value now = b.load(0, FL_I64), to = b.load(1, FL_I64), begins = b.load(2, memory, FL_I64);
    b.store(0, b.select(b.op(FL_OP_LE, begins, b.index(0, FL_I64)), to, now), FL_I64);
  });
  int64_t step = 1;
  while (step < m) step *= 2;
  for (; step; step /= 2) {
    bool done = run_program(call, ahead, {&next}, {&row}, {scalar_i(step), scalar_i(m)});
    Tensor begins = pick(call, row_begin, next);
    if (!done || !run_program(call, take, {&row}, {&row, &next, &begins}, {}, Order::kKeep))
      throw_refused(call, "pointwise", at::kLong);
  }
  const fl_program* outside = lasts.get(memory, [&](Builder& b) {
    Value begins = b.load(1, memory, FL_I64);
    b.store(0, b.select(b.op(FL_OP_LE, begins, b.index(0, FL_I64)), b.load(0, FL_I64), b.scalar(0, FL_I64)),
            FL_I64);
  });
  Tensor begins = pick(call, row_begin, row);
  if (!run_program(call, outside, {&row}, {&row, &begins}, {scalar_i(m)}, Order::kKeep))
    throw_refused(call, "pointwise", at::kLong);
  return row;
}

bool spmm_into(Call& call, const Spmm& s, const Tensor& out_in, const at::Scalar& empty) {
  if (out_in.numel() == 0) return true;
  auto batched = [](const Tensor& t) { return t.dim() == 2 ? t.unsqueeze(0) : t; };
  const Tensor out = batched(out_in), dense = batched(s.dense),
               winner = s.winner ? batched(*s.winner) : Tensor();
  const int64_t count = s.columns ? s.columns->size(0) : dense.size(1);
  if (count == 0 || dense.numel() == 0) {
    call.composed();
    fill_step(out, empty);
    if (s.winner) fill_step(winner, -1);
    return true;
  }
  fl_spmm_args args{};
  fl_tensor columns, values, winners;
  args.row_begin = call.view(s.row_begin), args.dense = call.view(dense), args.out = call.view(out);
  if (s.columns) columns = call.view(*s.columns), args.columns = &columns;
  if (s.values) values = call.view(*s.values), args.values = &values;
  if (s.winner) winners = call.view(winner), args.winner = &winners;
  args.empty = to_scalar(empty, to_register(out.scalar_type()));
  args.mode = s.mode;
  if (call.native(call.chip().op.spmm, args, {&args.out, &args.dense, &args.row_begin})) return true;
  return composed(call, s, dense, out, s.winner ? &winner : nullptr, empty, count);
}

}  // namespace fl::bridge
