// Scan, sort and compact: [SCN-n], [SRT-1].
#include <algorithm>
#include <cmath>
#include <numeric>

#include "fast.h"
#include "launches.h"

namespace kit {

namespace {

const char* const kKinds[] = {"SUM", "PROD", "MIN", "MAX", "LOGSUMEXP"};

const std::vector<std::pair<std::vector<int64_t>, int>> kCases = {
    {{}, 0},        {{1}, 0},       {{7, 33}, 1}, {{33, 7}, 0},      {{3, 5, 17}, 1},
    {{2, 2100}, 1}, {{2100, 3}, 0}, {{70001}, 0}, {{2, 3, 4, 5}, 2}, {{1, 600, 2}, 1}};

void skip_unless(unsigned entry) {
  for (unsigned kind = 0; kind < FL_SCAN_COUNT; ++kind)
    if (!claimed(entry, kind).empty()) return;
  not_applicable("the chip does not claim it");
}

// The axis of a tensor that may have no dimensions.
int64_t length_of(const std::vector<int64_t>& sizes, int axis) { return sizes.empty() ? 1 : sizes[axis]; }
template <class F>
void slices(const std::vector<int64_t>& sizes, int axis, F&& f) {
  if (sizes.empty()) f(0, 1);
  else each_slice(sizes, axis, f);
}

// ------------------------------------------------------------------- scan
Number combined(unsigned kind, unsigned dtype, Number a, Number x) {
  if (kind == FL_SCAN_LOGSUMEXP) {
    real high = std::max(a.re, x.re), low = std::min(a.re, x.re);
    if (std::isnan(a.re) || std::isnan(x.re)) return Number::floating(NAN);
    return Number::floating(high == low && std::isinf(high) ? high : high + std::log1p(std::exp(low - high)));
  }
  if (is_complex(dtype)) return Number::complex(kind == FL_SCAN_SUM ? a.c() + x.c() : a.c() * x.c());
  if (is_real(dtype)) return Number::floating(kind == FL_SCAN_SUM ? a.re + x.re : a.re * x.re);
  uint64_t p = static_cast<uint64_t>(a.i), q = static_cast<uint64_t>(x.i);
  return Number::integer(static_cast<int64_t>(kind == FL_SCAN_SUM ? p + q : p * q));
}

// Does x, met later, take the place of the best so far?
bool takes(unsigned kind, unsigned dtype, Number best, Number x) {
  if (is_integer(dtype)) return kind == FL_SCAN_MAX ? x.i >= best.i : x.i <= best.i;
  return std::isnan(x.re) ||
         (!std::isnan(best.re) && (kind == FL_SCAN_MAX ? x.re >= best.re : x.re <= best.re));
}

struct ScanResult {
  Array out, index;
};

ScanResult run_scan(Session& session, const Array& x, unsigned kind, unsigned to, int axis, bool indexed,
                    Arrangement a = {}) {
  Array in = a.in == Layout::broadcast ? constant_along_first(x) : x;
  Tensor from = session.put(in, a.in), out = session.output(to, x.sizes, a.out), index;
  if (indexed) index = session.output(FL_I64, x.sizes, a.out);
  fl_scan_args args{*from, *out, indexed ? index.view() : nullptr, axis, static_cast<int32_t>(kind)};
  ok(KIT_LAUNCH(scan, &session.launch, &args), "scan");
  ScanResult result{session.get(out), {}};
  if (indexed) result.index = session.get(index);
  return result;
}

void check_scan(Session& session, const Array& x, unsigned kind, unsigned to, int axis, Arrangement a = {}) {
  const bool orders = kind == FL_SCAN_MIN || kind == FL_SCAN_MAX;
  Array in = a.in == Layout::broadcast ? constant_along_first(x) : x;
  std::vector<Number> want(x.numel()), where(x.numel());
  real scale = 0;
  slices(x.sizes, axis, [&](int64_t start, int64_t step) {
    Number so_far;
    int64_t at = 0;
    for (int64_t k = 0; k < length_of(x.sizes, axis); ++k) {
      int64_t i = start + k * step;
      Number v = converted(in.at(i), in.dtype, to);
      if (k == 0) so_far = v;
      else if (!orders) so_far = combined(kind, to, so_far, v);
      else if (takes(kind, to, so_far, v)) so_far = v, at = k;
      want[i] = so_far, where[i] = Number::integer(at);
      if (!is_integer(to) && std::isfinite(so_far.re)) scale = std::max(scale, std::abs(so_far.c()));
    }
  });
  ScanResult got = run_scan(session, x, kind, to, axis, orders, a);
  std::string what = text("%s of %s along %d, %s", kKinds[kind], shape_text(x.sizes).c_str(), axis,
                          arrangement_text(a).c_str());
  Tolerance tolerance = near(is_complex(to) ? component(to) : to, scale);
  expect_close(got.out, want, is_integer(to) || orders ? Tolerance{} : tolerance, what);
  if (!orders) return;
  expect_close(got.index, where, {}, what + ", index");
  expect_close(run_scan(session, x, kind, to, axis, false, a).out, want, {}, what + ", no index asked for");
}

// Values whose products stay in range, and of which many are equal.
Array scan_values(Random& random, unsigned kind, unsigned dtype, const std::vector<int64_t>& sizes) {
  if (is_integer(dtype)) return Array::random(random, dtype, sizes, dtype == FL_BOOL ? 0 : -3, 3);
  Array a = Array::random(random, dtype, sizes, -4, 4);
  for (int64_t i = 0; i < a.numel(); ++i) {
    Number v = a.at(i);
    if (kind == FL_SCAN_PROD) {
      complex_real unit = is_complex(dtype) ? std::polar(real(1), v.re) : complex_real(v.re < 0 ? -1 : 1, 0);
      a.set(i, Number::complex(unit));
    } else if (kind != FL_SCAN_LOGSUMEXP) {
      a.set(i, Number::complex({std::round(v.re), std::round(v.im)}));
    }
  }
  return a;
}

KIT_TEST("scan", "every claimed kind, dtype, axis and layout agrees with the reference") {
  skip_unless(FL_ENTRY_SCAN);
  Session session;
  for (unsigned kind = 0; kind < FL_SCAN_COUNT; ++kind)
    for (unsigned d : claimed(FL_ENTRY_SCAN, kind))
      run_case(text("%s %s", kKinds[kind], dtype_name(d)), [&] {
        Random random(d + 100 * kind);
        for (auto& [sizes, axis] : kCases)
          check_scan(session, scan_values(random, kind, d, sizes), kind, d, axis);
        for (Arrangement a : arrangements())
          for (int axis = 0; axis < 3; ++axis)
            check_scan(session, scan_values(random, kind, d, {4, 5, 6}), kind, d, axis, a);
        // `in` is converted to out's dtype first.
        for (unsigned from : {FL_BOOL, FL_I32, FL_F32})
          if (!is_complex(d) && chip().claims(FL_ENTRY_COPY, FL_ANY, from) && d != FL_BOOL)
            check_scan(session, Array::random(random, from, {3, 9}, from == FL_BOOL ? 0 : 1, 1), kind, d, 1);
      });
}

KIT_TEST("SCN-1", "minima and maxima: NaN once met stays; the index is the last of equal values, or of NaN") {
  skip_unless(FL_ENTRY_SCAN);
  Session session;
  for (unsigned kind : {FL_SCAN_MIN, FL_SCAN_MAX})
    for (unsigned d : claimed(FL_ENTRY_SCAN, kind))
      run_case(text("%s %s", kKinds[kind], dtype_name(d)), [&] {
        Array x(d, {3, 8});
        const real values[] = {1,   1, 0, 1,   0,     0, 1, 1, 2, NAN,   2, 3,
                               NAN, 1, 0, NAN, -0.0L, 0, 1, 1, 0, -0.0L, 0, 1};
        for (int64_t i = 0; i < 24; ++i)
          x.set(i, is_integer(d)
                       ? Number::integer(std::isnan(values[i]) ? 1 : static_cast<int64_t>(values[i]))
                       : Number::floating(values[i]));
        for (int axis = 0; axis < 2; ++axis) check_scan(session, x, kind, d, axis);
        Array alike(d, {70000});
        check_scan(session, alike, kind, d, 0);
      });
}

KIT_TEST("SCN-2", "halves are accumulated in F32, integers wrap") {
  skip_unless(FL_ENTRY_SCAN);
  Session session;
  for (unsigned d : claimed(FL_ENTRY_SCAN, FL_SCAN_SUM))
    run_case(dtype_name(d), [&] {
      Random random(d);
      if (is_integer(d)) {
        for (unsigned kind : {FL_SCAN_SUM, FL_SCAN_PROD})
          if (chip().claims(FL_ENTRY_SCAN, kind, d) && d != FL_BOOL)
            check_scan(session, Array::wild(random, d, {2, 500}), kind, d, 1);
        return;
      }
      // Ones, of which a sum in a half dtype forgets the later ones.
      Array ones(d, {5000});
      for (int64_t i = 0; i < 5000; ++i) ones.set(i, Number::floating(1));
      check_scan(session, ones, FL_SCAN_SUM, d, 0);
    });
}

// ------------------------------------------------------------------- sort
bool precedes(unsigned dtype, Number a, Number b, bool descending) {
  if (dtype == FL_U64) return descending ? uint64_t(a.i) > uint64_t(b.i) : uint64_t(a.i) < uint64_t(b.i);
  if (is_integer(dtype)) return descending ? a.i > b.i : a.i < b.i;
  if (std::isnan(a.re) || std::isnan(b.re))
    return descending ? std::isnan(a.re) && !std::isnan(b.re) : !std::isnan(a.re) && std::isnan(b.re);
  return descending ? a.re > b.re : a.re < b.re;
}

// Values and positions, or either alone; bytes are compared.
void check_sort(Session& session, const Array& x, int axis, int64_t k, bool descending, Arrangement a = {},
                bool values = true, bool positions = true) {
  Array in = a.in == Layout::broadcast ? constant_along_first(x) : x;
  std::vector<int64_t> sizes = x.sizes;
  if (!sizes.empty()) sizes[axis] = k;
  Array want(x.dtype, sizes);
  std::vector<Number> where(want.numel());
  const size_t bytes = dtype_size(x.dtype);
  std::vector<int64_t> starts;
  slices(x.sizes, axis, [&](int64_t start, int64_t) { starts.push_back(start); });
  size_t slice = 0;
  const int64_t n = length_of(x.sizes, axis);
  auto one = [&](int64_t to, int64_t step) {
    std::vector<int64_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    int64_t start = starts[slice++];
    std::vector<Number> v(n);
    for (int64_t i = 0; i < n; ++i) v[i] = in.at(start + i * step);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t i, int64_t j) { return precedes(x.dtype, v[i], v[j], descending); });
    for (int64_t i = 0; i < k; ++i) {
      std::copy_n(&in.bytes[(start + order[i] * step) * bytes], bytes, &want.bytes[(to + i * step) * bytes]);
      where[to + i * step] = Number::integer(order[i]);
    }
  };
  slices(sizes, axis, one);
  Tensor from = session.put(in, a.in), out, index;
  if (values) out = session.output(x.dtype, sizes, a.out);
  if (positions) index = session.output(FL_I64, sizes, a.out);
  fl_sort_args args{*from, values ? out.view() : nullptr, positions ? index.view() : nullptr, axis,
                    descending};
  ok(KIT_LAUNCH(sort, &session.launch, &args), "sort");
  std::string what =
      text("%s%s along %d, first %lld, %s", shape_text(x.sizes).c_str(), descending ? " descending" : "",
           axis, static_cast<long long>(k), arrangement_text(a).c_str());
  if (positions) expect_close(session.get(index), where, {}, what + ", index");
  if (values && session.get(out).bytes != want.bytes)
    stop("%s: the values are not those of the order", what.c_str());
}

std::vector<unsigned> sorted_dtypes() {
  std::vector<unsigned> all = claimed(FL_ENTRY_SORT, FL_ANY);
  if (all.empty()) not_applicable("the chip does not claim it");
  return all;
}

KIT_TEST("sort", "every claimed dtype, axis, layout and k, both ways, agrees with the reference") {
  Session session;
  for (unsigned d : sorted_dtypes())
    for (bool descending : {false, true})
      run_case(text("%s%s", dtype_name(d), descending ? ", descending" : ""), [&] {
        Random random(d);
        for (auto& [sizes, axis] : kCases) {
          Array x = Array::wild(random, d, sizes);
          int64_t n = length_of(sizes, axis);
          for (int64_t k : {n, n < 9999 ? (n + 1) / 2 : n / 9, std::min<int64_t>(n, 3)})
            check_sort(session, x, axis, k, descending);
        }
        for (Arrangement a : arrangements())
          for (int axis = 0; axis < 3; ++axis)
            for (int64_t k : {4, 2})
              check_sort(session, Array::wild(random, d, {4, 5, 6}), axis, k, descending, a);
        check_sort(session, Array::wild(random, d, {3, 90}), 1, 90, descending, {}, true, false);
        check_sort(session, Array::wild(random, d, {3, 90}), 1, 5, descending, {}, false, true);
        Array in_order(d, {66000}), other_order(d, {66000});
        for (int64_t i = 0; i < 66000; ++i) {
          in_order.set(
              i, is_integer(d) ? Number::integer(d == FL_BOOL ? i > 9 : i) : Number::floating(i % 2048));
          other_order.set(65999 - i, in_order.at(i));
        }
        for (int64_t k : {66000, 2000}) {
          check_sort(session, in_order, 0, k, descending);
          check_sort(session, other_order, 0, k, descending);
        }
      });
}

KIT_TEST("SRT-1", "equal values keep their order, both ways; -0 equals 0, NaN is larger than all") {
  Session session;
  for (unsigned d : sorted_dtypes())
    run_case(dtype_name(d), [&] {
      Random random(d + 7);
      const real few[] = {0.0L, -0.0L, 1, -1, NAN, kInfinity, -kInfinity};
      for (int64_t n : {9, 300, 1000, 70000}) {
        Array x(d, {n});
        for (int64_t i = 0; i < n; ++i)
          x.set(i, is_integer(d) ? Number::integer(random.between(0, 1))
                                 : Number::floating(few[random.next() % 7]));
        for (bool descending : {false, true})
          for (int64_t k : {n, std::min<int64_t>(n, 8)}) check_sort(session, x, 0, k, descending);
      }
    });
}

// ---------------------------------------------------------------- compact
void check_compact(Session& session, const Array& mask, Layout layout) {
  Array in = layout == Layout::broadcast ? constant_along_first(mask) : mask;
  const int64_t n = in.numel();
  Tensor from = session.put(in, layout), index = session.output(FL_I64, {n}),
         count = session.output(FL_I64, {1});
  fl_compact_args args{*from, *index, *count};
  ok(KIT_LAUNCH(compact, &session.launch, &args), "compact");
  int64_t found = session.get(count).at(0).i, k = 0;
  std::string what = text("%s, %s", shape_text(mask.sizes).c_str(), layout_name(layout));
  Array got = session.get(index);
  for (int64_t i = 0; i < n; ++i) {
    if (!in.at(i).i) continue;
    if (k >= found || got.at(k).i != i)
      stop("%s: place %lld should hold %lld (count %lld)", what.c_str(), static_cast<long long>(k),
           static_cast<long long>(i), static_cast<long long>(found));
    ++k;
  }
  if (k != found)
    stop("%s: the count is %lld, not %lld", what.c_str(), static_cast<long long>(found),
         static_cast<long long>(k));
}

KIT_TEST("compact", "the numbers of the true elements, and how many, for every layout") {
  if (!chip().claims(FL_ENTRY_COMPACT, FL_ANY, FL_BOOL)) not_applicable("the chip does not claim it");
  Session session;
  for (int64_t of : {1, 2, 9})  // one in so many is true
    run_case(text("one in %lld", static_cast<long long>(of)), [&] {
      Random random(of);
      auto make = [&](const std::vector<int64_t>& sizes) {
        Array mask(FL_BOOL, sizes);
        for (int64_t i = 0; i < mask.numel(); ++i) mask.set(i, Number::integer(random.between(1, of) == of));
        return mask;
      };
      for (const std::vector<int64_t>& sizes : kShapes)
        check_compact(session, make(sizes), Layout::contiguous);
      check_compact(session, make({300, 701}), Layout::contiguous);
      check_compact(session, Array(FL_BOOL, {70001}), Layout::contiguous);
      for (Layout layout : kInputLayouts) check_compact(session, make({5, 40, 7}), layout);
    });
}

}  // namespace

}  // namespace kit
