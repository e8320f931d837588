// [SPM-n] and every claim of spmm.
#include <algorithm>
#include <array>
#include <cmath>

#include "actions.h"
#include "fast.h"
#include "launches.h"

namespace kit {
namespace {

const char* const kModes[] = {"SUM", "MEAN", "MIN", "MAX", "PROD"};

struct Case {
  unsigned dtype = FL_F32, index = FL_I64;
  int mode = FL_SPMM_SUM;
  int64_t batches = 2, rows = 9, k = 7, n = 5;
  Layout dense = Layout::contiguous, out = Layout::contiguous, values_layout = Layout::contiguous;
  bool columns = true, values = true, winner = false, extremes = false;
};

// Lengths of rows: none, one, a few, many.
std::vector<int64_t> row_begins(const Case& c, Random& random) {
  std::vector<int64_t> begin = {0};
  for (int64_t m = 0; m < c.rows; ++m)
    begin.push_back(begin.back() + (m % 3 == 1 ? 0 : m % 4 == 0 ? 1 : random.between(2, 9)));
  if (!c.columns)  // then values are rows of dense
    for (int64_t& b : begin) b = std::min(b, c.k);
  return begin;
}

bool wins(int mode, unsigned dtype, Number x, Number best) {
  if (is_integer(dtype)) return mode == FL_SPMM_MIN ? x.i < best.i : x.i > best.i;
  if (std::isnan(best.re)) return false;
  return std::isnan(x.re) || (mode == FL_SPMM_MIN ? x.re < best.re : x.re > best.re);
}

void check(Session& session, const Case& c) {
  Random random(c.dtype * 16 + static_cast<unsigned>(c.mode));
  const std::vector<int64_t> begin = row_begins(c, random);
  const int64_t count = c.columns ? std::max<int64_t>(1, begin.back()) : c.k;
  const bool products = c.mode == FL_SPMM_PROD;
  Array dense = Array::random(random, c.dtype, {c.batches, c.k, c.n}, products ? -2 : -4, products ? 2 : 4);
  Array values = Array::random(random, c.dtype, {count}, products ? -2 : -4, products ? 2 : 4);
  if (c.extremes)
    for (int64_t i = 0; i < dense.numel(); i += 3)
      dense.set(i, Number::floating(i % 2 ? std::nanl("") : i % 4 ? kInfinity : -kInfinity));
  std::vector<int64_t> column(static_cast<size_t>(count));
  for (int64_t j = 0; j < count; ++j) column[j] = c.columns ? random.between(0, c.k - 1) : j;
  const Number empty =
      is_integer(c.dtype) ? Number::integer(7) : Number{0, -1.5L, is_complex(c.dtype) ? 2.L : 0};

  Tensor tb = session.put(indices(c.index, {c.rows + 1}, begin)), td = session.put(dense, c.dense),
         tc = session.put(indices(c.index, {count}, column)), tv = session.put(values, c.values_layout),
         out = session.output(c.dtype, {c.batches, c.rows, c.n}, c.out),
         winner = session.output(FL_I64, {c.batches, c.rows, c.n}, c.out);
  fl_spmm_args args{};
  args.row_begin = *tb, args.dense = *td, args.out = *out;
  if (c.columns) args.columns = tc.view();
  if (c.values) args.values = tv.view();
  if (c.winner) args.winner = winner.view();
  if (is_integer(c.dtype)) args.empty.v.i = empty.i;
  else args.empty.v.f = static_cast<double>(empty.re), args.empty.imag = static_cast<double>(empty.im);
  args.mode = c.mode;
  ok(KIT_LAUNCH(spmm, &session.launch, &args), "spmm");

  std::vector<Number> want, won;
  real scale = 0;  // the largest sum of magnitudes
  for (int64_t b = 0; b < c.batches; ++b)
    for (int64_t m = 0; m < c.rows; ++m)
      for (int64_t n = 0; n < c.n; ++n) {
        Number acc = empty;
        complex_real total = products ? 1 : 0;
        uint64_t whole = products ? 1 : 0;
        int64_t best = -1;
        real magnitude = 0;
        for (int64_t j = begin[m]; j < begin[m + 1]; ++j) {
          Number x = dense.at((b * c.k + column[j]) * c.n + n), v = values.at(j), y = x;
          if (c.values) {
            y.i = static_cast<int64_t>(static_cast<uint64_t>(x.i) * static_cast<uint64_t>(v.i));
            complex_real p = is_complex(c.dtype) ? x.c() * v.c() : complex_real(x.re * v.re);
            y.re = p.real(), y.im = p.imag();
            if (is_integer(c.dtype)) y = rounded(c.dtype, y);
          }
          whole = products ? whole * static_cast<uint64_t>(y.i) : whole + static_cast<uint64_t>(y.i);
          total = products ? total * y.c() : total + y.c();
          magnitude += std::abs(y.c());
          if (best < 0 || wins(c.mode, c.dtype, y, acc)) best = j, acc = y;
        }
        if (begin[m] < begin[m + 1] && c.mode != FL_SPMM_MIN && c.mode != FL_SPMM_MAX) {
          if (c.mode == FL_SPMM_MEAN) total /= static_cast<real>(begin[m + 1] - begin[m]);
          acc = {static_cast<int64_t>(whole), total.real(), total.imag()};
        }
        scale = std::max(scale, products ? std::abs(total) : magnitude);
        want.push_back(rounded(c.dtype, acc)), won.push_back(Number::integer(best));
      }
  unsigned part = component(c.dtype);
  Tolerance t;
  if (!is_integer(c.dtype)) {
    real epsilon = part == FL_F64 ? 1e-14L : 1e-6L;
    t = {part == FL_F64 || part == FL_F32 ? 0.L : 1.01L, epsilon, c.extremes ? 0 : scale * epsilon};
  }
  std::string what = text("%s %s, dense %s, out %s", kModes[c.mode], dtype_name(c.dtype),
                          layout_name(c.dense), layout_name(c.out));
  expect_close(session.get(out), want, t, what);
  if (c.winner) expect_close(session.get(winner), won, {}, what + ", winner");
}

template <class F>
void each_claim(F&& f) {
  bool any = false;
  for (int mode = 0; mode < FL_SPMM_COUNT; ++mode)
    for (unsigned d : claimed(FL_ENTRY_SPMM, static_cast<unsigned>(mode))) {
      any = true;
      run_case(text("%s %s", kModes[mode], dtype_name(d)), [&] { f(mode, d); });
    }
  if (!any) not_applicable("spmm is not claimed");
}

KIT_TEST("spmm", "every claimed mode and dtype: layouts, index dtypes, no columns, no values, winners, NaN") {
  Session session;
  each_claim([&](int mode, unsigned d) {
    const bool picks = mode == FL_SPMM_MIN || mode == FL_SPMM_MAX;
    Case c;
    c.dtype = d, c.mode = mode;
    for (Layout layout : {Layout::contiguous, Layout::transposed, Layout::negative, Layout::padded}) {
      c.dense = layout, c.winner = picks;
      check(session, c);
    }
    c.dense = Layout::contiguous;
    for (Layout layout : kOutputLayouts) c.out = layout, check(session, c);
    c.out = Layout::contiguous, c.winner = false;
    c.values_layout = Layout::stepped, c.index = FL_I32;
    check(session, c);
    for (bool values : {false, true})
      for (auto [batches, rows, k, n] : {std::array<int64_t, 4>{1, 1, 1, 1},
                                         {1, 40, 300, 133},
                                         {3, 50, 60, 1},
                                         {70, 6, 9, 1},
                                         {1, 2, 5, 1030},
                                         {2, 300, 11, 17}}) {
        Case s;
        s.dtype = d, s.mode = mode, s.values = values;
        s.batches = batches, s.rows = rows, s.k = k, s.n = n;
        check(session, s);
        s.columns = false, s.winner = picks;
        check(session, s);
      }
    if (picks && !is_integer(d)) {
      Case wild;
      wild.dtype = d, wild.mode = mode, wild.values = false, wild.extremes = true;
      check(session, wild);
      wild.winner = true;
      check(session, wild);
    }
  });
}

KIT_TEST("SPM-1", "a column out of range is a fault with the column and the size; nothing outside is read") {
  if (claimed(FL_ENTRY_SPMM, FL_SPMM_SUM).empty()) not_applicable("spmm is not claimed");
  const unsigned d = claimed(FL_ENTRY_SPMM, FL_SPMM_SUM).front();
  for (int64_t bad : {int64_t{4}, int64_t{-1}, int64_t{1} << 40, INT64_MIN, (int64_t{1} << 32) + 1})
    run_case(text("column %lld", static_cast<long long>(bad)), [&] {
      Session session;
      Tensor begin = session.put(indices(FL_I64, {3}, {0, 1, 3})),
             column = session.put(indices(FL_I64, {3}, {0, bad, 1})),
             dense = session.put(Array(d, {1, 4, 2})), out = session.output(d, {1, 2, 2});
      fl_spmm_args args{};
      args.row_begin = *begin, args.columns = column.view(), args.dense = *dense, args.out = *out;
      args.mode = FL_SPMM_SUM;
      fl_launch launch = session.tagged(56);
      ok(KIT_LAUNCH(spmm, &launch, &args), "spmm");
      fl_status status = chip().stream.synchronize(session.stream, -1);
      REQUIRE(status == FL_INDEX_OUT_OF_RANGE, "column %lld of 4: synchronize gave %s",
              static_cast<long long>(bad), status_name(status));
      fl_fault fault;
      ok(take_fault(session.stream, fault), "fault");
      std::string said = fault.text;
      REQUIRE(said.find(std::to_string(bad)) != std::string::npos && said.find('4') != std::string::npos,
              "the fault's text has not the column %lld and the size 4: \"%s\"", static_cast<long long>(bad),
              said.c_str());
      drain_faults(session.stream);
      session.get(out);
    });
}

KIT_TEST("SPM-2", "F16 and BF16 accumulate in F32") {
  bool any = false;
  Session session;
  for (unsigned d : {FL_F16, FL_BF16})
    for (int mode : {FL_SPMM_SUM, FL_SPMM_MEAN}) {
      if (!chip().claims(FL_ENTRY_SPMM, static_cast<unsigned>(mode), d)) continue;
      any = true;
      run_case(text("%s %s", kModes[mode], dtype_name(d)), [&] {
        Array ones(d, {1, 4096, 3});  // a 16-bit sum stops at 256 or 2048
        for (int64_t i = 0; i < ones.numel(); ++i) ones.set(i, Number::floating(1));
        Tensor begin = session.put(indices(FL_I64, {2}, {0, 4096})), dense = session.put(ones),
               out = session.output(d, {1, 1, 3});
        fl_spmm_args args{};
        args.row_begin = *begin, args.dense = *dense, args.out = *out, args.mode = mode;
        ok(KIT_LAUNCH(spmm, &session.launch, &args), "spmm");
        Number want = Number::floating(mode == FL_SPMM_SUM ? 4096 : 1);
        expect_close(session.get(out), {want, want, want}, {}, "the sum");
      });
    }
  if (!any) not_applicable("spmm of 16-bit floats is not claimed");
}

}  // namespace
}  // namespace kit
