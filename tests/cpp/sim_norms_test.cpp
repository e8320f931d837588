// sim's softmax and normalisations, forward and backward, against plain loops in double.
#include "sim_harness.h"

using namespace sim_test;

namespace {

constexpr int kFloats[] = {FL_F32, FL_F64, FL_F16, FL_BF16};
int wide(int dtype) { return dtype == FL_F64 ? FL_F64 : FL_F32; }
// Of a result whose size is about 1: a rounding to the dtype, and what F32 arithmetic loses.
double tolerance(int dtype) { return dtype == FL_F64 ? 1e-12 : dtype == FL_F32 ? 4e-6 : epsilon(dtype); }

// The numbers of the elements along an axis, one list a slice.
std::vector<std::vector<int64_t>> slices_of(const Sizes& sizes, int axis) {
  int64_t n = 1, inner = 1;
  for (int64_t s : sizes) n *= s;
  for (size_t d = size_t(axis) + 1; d < sizes.size(); ++d) inner *= sizes[d];
  int64_t length = sizes[size_t(axis)];
  std::vector<std::vector<int64_t>> slices;
  for (int64_t o = 0; o < n / length / inner; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      slices.emplace_back();
      for (int64_t k = 0; k < length; ++k) slices.back().push_back((o * length + k) * inner + i);
    }
  return slices;
}

void check_softmax(int dtype, int out_dtype, const Sizes& sizes, int axis, Layout layout, bool log,
                   double scale) {
  Tensor x(dtype, sizes, layout), y(out_dtype, sizes, kLayouts[below(4)]),
      gy(out_dtype, sizes, kLayouts[below(4)]), gx(out_dtype, sizes, layout);
  x.fill([&](int64_t) { return uniform(-scale, scale); });
  auto slices = slices_of(sizes, axis);
  if (slices[0].size() > 1) {
    x.set(slices[0][0], -INFINITY);
    for (int64_t i : slices.back()) x.set(i, -INFINITY);  // NaN throughout
  }
  if (slices.size() > 3) x.set(slices[1][0], NAN), x.set(slices[2][0], INFINITY);
  fl_softmax_args args{x.view(), y.view(), axis, log};
  fl_launch l = launch();
  if (!ran(chip->op->softmax(&l, &args))) return;
  for (const auto& slice : slices) {
    double top = -INFINITY, total = 0;
    for (int64_t i : slice) top = std::isnan(x.get(i)) ? NAN : std::fmax(top, x.get(i));
    for (int64_t i : slice) total += std::exp(x.get(i) - top);
    for (int64_t i : slice) {
      double wanted = log ? x.get(i) - top - std::log(total) : std::exp(x.get(i) - top) / total;
      if (!CHECK_THAT(near(y.get(i), wanted, tolerance(out_dtype), log ? tolerance(out_dtype) * 4 : 1e-7),
                      "softmax of %s %s, axis %d, layout %d, log %d: %g, wanted %g", text_of(dtype),
                      text(sizes).c_str(), axis, int(layout), log, y.get(i), wanted))
        return;
    }
  }
  if (dtype != out_dtype) return;
  // A forward result with no NaN in it.
  for (const auto& slice : slices) {
    double total = 0;
    std::vector<double> e;
    for (size_t k = 0; k < slice.size(); ++k) e.push_back(uniform(0.1, 1)), total += e.back();
    for (size_t k = 0; k < slice.size(); ++k) y.set(slice[k], log ? std::log(e[k] / total) : e[k] / total);
  }
  gy.fill([](int64_t) { return uniform(-1, 1); });
  fl_softmax_backward_args back{gy.view(), y.view(), gx.view(), axis, log};
  if (!ran(chip->op->softmax_backward(&l, &back))) return;
  for (const auto& slice : slices) {
    double sum = 0, size = 0;
    for (int64_t i : slice) sum += log ? gy.get(i) : gy.get(i) * y.get(i), size += std::fabs(gy.get(i));
    for (int64_t i : slice) {
      double wanted = log ? gy.get(i) - std::exp(y.get(i)) * sum : y.get(i) * (gy.get(i) - sum);
      if (!CHECK_THAT(near(gx.get(i), wanted, tolerance(dtype),
                           tolerance(dtype) + (dtype == FL_F64 ? 1e-14 : 1e-6) * size),
                      "softmax_backward of %s %s, axis %d, layout %d, log %d: %g, wanted %g", text_of(dtype),
                      text(sizes).c_str(), axis, int(layout), log, gx.get(i), wanted))
        return;
    }
  }
}

void softmax() {
  for (int dtype : kFloats)
    for (Sizes sizes : {Sizes{1}, Sizes{5}, Sizes{3, 1000}, Sizes{70, 17}, Sizes{4, 33, 50},
                        Sizes{2, 3, 4, 5}, Sizes{64, 2500}})
      for (int axis = 0; axis < int(sizes.size()); ++axis)
        for (Layout layout : kLayouts)
          for (bool log : {false, true}) {
            check_softmax(dtype, dtype, sizes, axis, layout, log, 3);
            if (dtype == FL_F32 || dtype == FL_F64)
              check_softmax(dtype, dtype, sizes, axis, layout, log, 1000);
            if (dtype == FL_F16 || dtype == FL_BF16)
              check_softmax(dtype, FL_F32, sizes, axis, layout, log, 3);
          }
  // 0-d: one element.
  Tensor x(FL_F32, {}), y(FL_F32, {});
  x.set(0, 3);
  fl_softmax_args args{x.view(), y.view(), 0, 0};
  fl_launch l = launch();
  if (ran(chip->op->softmax(&l, &args))) CHECK(y.get(0) == 1);
}

// --------------------------------------------------------------- layer, group, RMS
void check_norm(int dtype, const Sizes& s, Layout layout, int kind, bool affine, double mean_of_x) {
  const int64_t N = s[0], G = s[1], C = s[2], S = s[3], M = C * S;
  const bool rms = kind == FL_NORM_RMS;
  Tensor x(dtype, s, layout), y(dtype, s, kLayouts[below(4)]), gy(dtype, s, kLayouts[below(4)]),
      gx(dtype, s, kLayouts[below(4)]);
  Tensor w(dtype, {G, C}, kLayouts[below(4)]), b(dtype, {G, C}),
      mean(wide(dtype), {N, G}, kLayouts[below(4)]), rstd(wide(dtype), {N, G});
  Tensor gw(dtype, {G, C}, kLayouts[below(4)]), gb(dtype, {G, C});
  x.fill([&](int64_t) { return mean_of_x + uniform(-1, 1); });
  w.fill([](int64_t) { return uniform(0.5, 1.5); }), b.fill([](int64_t) { return uniform(-1, 1); }),
      gy.fill([](int64_t) { return uniform(-1, 1); });
  const double eps = 1e-5;
  fl_norm_args args{
      x.view(), y.view(), affine ? &w : nullptr, affine ? &b : nullptr, rms ? nullptr : &mean, &rstd, eps,
      kind,     0};
  fl_launch l = launch();
  if (!ran(chip->op->norm(&l, &args))) return;
  std::vector<double> m(size_t(N * G)), r(m);
  std::string where = std::string(text_of(dtype)) + " " + text(s) + ", layout " +
                      std::to_string(int(layout)) + (rms ? ", RMS" : ", layer") + (affine ? ", affine" : "");
  const double eps_f = tolerance(dtype), spread = (dtype == FL_F64 ? 1e-14 : 2e-7) * std::fabs(mean_of_x);
  for (int64_t row = 0; row < N * G; ++row) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < M; ++i) sum += x.get(row * M + i);
    m[size_t(row)] = rms ? 0 : sum / double(M);
    for (int64_t i = 0; i < M; ++i) squares += std::pow(x.get(row * M + i) - m[size_t(row)], 2);
    r[size_t(row)] = 1 / std::sqrt(squares / double(M) + eps);
    if (!rms)
      CHECK_THAT(near(mean.get(row), m[size_t(row)], 1e-6, 1e-6), "mean of %s: %.9g, wanted %.9g",
                 where.c_str(), mean.get(row), m[size_t(row)]);
    CHECK_THAT(near(rstd.get(row), r[size_t(row)], 1e-5, 0), "rstd of %s: %.9g, wanted %.9g", where.c_str(),
               rstd.get(row), r[size_t(row)]);
    for (int64_t i = 0; i < M; ++i) {
      int64_t wc = row % G * C + i / S;
      double v = (x.get(row * M + i) - m[size_t(row)]) * r[size_t(row)];
      if (affine) v = v * w.get(wc) + b.get(wc);
      if (!CHECK_THAT(near(y.get(row * M + i), v, eps_f, 4 * eps_f + spread * r[size_t(row)]),
                      "norm of %s: %g, wanted %g", where.c_str(), y.get(row * M + i), v))
        return;
    }
  }
  if (mean_of_x > 10) return;
  fl_norm_backward_args back{gy.view(), x.view(), affine ? &w : nullptr,  rms ? nullptr : &mean,
                             &rstd,     &gx,      affine ? &gw : nullptr, affine ? &gb : nullptr,
                             kind,      0};
  if (!ran(chip->op->norm_backward(&l, &back))) return;
  std::vector<double> dw(size_t(G * C)), db(dw);
  for (int64_t row = 0; row < N * G; ++row) {
    double a = 0, sum = 0, rs = r[size_t(row)];
    auto g = [&](int64_t i) { return gy.get(row * M + i) * (affine ? w.get(row % G * C + i / S) : 1); };
    auto xhat = [&](int64_t i) { return (x.get(row * M + i) - m[size_t(row)]) * rs; };
    for (int64_t i = 0; i < M; ++i) {
      a += g(i) * xhat(i), sum += g(i);
      dw[size_t(row % G * C + i / S)] += gy.get(row * M + i) * xhat(i),
          db[size_t(row % G * C + i / S)] += gy.get(row * M + i);
    }
    for (int64_t i = 0; i < M; ++i) {
      double v = rs * (g(i) - (rms ? 0 : sum / double(M)) - xhat(i) * a / double(M));
      if (!CHECK_THAT(near(gx.get(row * M + i), v, 2 * eps_f, 8 * eps_f * rs),
                      "norm_backward of %s: %g, wanted %g", where.c_str(), gx.get(row * M + i), v))
        return;
    }
  }
  if (affine)
    for (int64_t i = 0; i < G * C; ++i)
      if (!CHECK_THAT(near(gw.get(i), dw[size_t(i)], 2 * eps_f, 1e-5 * std::sqrt(double(N * S)) + eps_f) &&
                          near(gb.get(i), db[size_t(i)], 2 * eps_f, 1e-5 * std::sqrt(double(N * S)) + eps_f),
                      "norm_backward's weight of %s: %g, %g, wanted %g, %g", where.c_str(), gw.get(i),
                      gb.get(i), dw[size_t(i)], db[size_t(i)]))
        return;
}

void norms() {
  for (int dtype : kFloats)
    for (int kind : {FL_NORM_LAYER, FL_NORM_RMS})
      for (bool affine : {false, true})
        for (Layout layout : kLayouts) {
          for (Sizes s : {Sizes{1, 1, 5, 1}, Sizes{37, 1, 130, 1}, Sizes{300, 1, 64, 1}, Sizes{2, 4, 3, 35},
                          Sizes{3, 2, 8, 1}, Sizes{5, 3, 1, 77}})
            check_norm(dtype, s, layout, kind, affine, 0.5);
          // [NRM-1]
          if (kind == FL_NORM_LAYER && wide(dtype) == dtype)
            check_norm(dtype, {9, 1, 300, 1}, layout, kind, affine, 1000);
        }
}

// ------------------------------------------------------------------- batch norm
void check_batch_norm(int dtype, int channel_dtype, const Sizes& s, Layout layout, bool training, bool affine,
                      double mean_of_x) {
  const int64_t N = s[0], C = s[1], S = s[2], M = N * S;
  Tensor x(dtype, s, layout), y(dtype, s, kLayouts[below(4)]), gy(dtype, s, layout),
      gx(dtype, s, kLayouts[below(4)]);
  Tensor w(channel_dtype, {C}, kLayouts[below(4)]), b(channel_dtype, {C}),
      rm(channel_dtype, {C}, kLayouts[below(4)]), rv(channel_dtype, {C});
  Tensor sm(channel_dtype, {C}), sr(channel_dtype, {C}, kLayouts[below(4)]), gw(channel_dtype, {C}),
      gb(channel_dtype, {C});
  x.fill([&](int64_t) { return mean_of_x + uniform(-1, 1); }),
      gy.fill([](int64_t) { return uniform(-1, 1); });
  w.fill([](int64_t) { return uniform(0.5, 1.5); }), b.fill([](int64_t) { return uniform(-1, 1); });
  rm.fill([&](int64_t) { return mean_of_x + uniform(-0.1, 0.1); }),
      rv.fill([](int64_t) { return uniform(0.2, 1); });
  std::vector<double> old_m, old_v, m(static_cast<size_t>(C)), r(m);
  for (int64_t c = 0; c < C; ++c) old_m.push_back(rm.get(c)), old_v.push_back(rv.get(c));
  const double eps = 1e-5, momentum = 0.25;
  fl_batch_norm_args args{x.view(),
                          y.view(),
                          affine ? &w : nullptr,
                          affine ? &b : nullptr,
                          &rm,
                          &rv,
                          training ? &sm : nullptr,
                          training ? &sr : nullptr,
                          momentum,
                          eps,
                          training,
                          0};
  fl_launch l = launch();
  if (!ran(chip->op->batch_norm(&l, &args))) return;
  std::string where = std::string(text_of(dtype)) + " " + text(s) + ", layout " +
                      std::to_string(int(layout)) + (training ? ", training" : "");
  auto number = [&](int64_t c, int64_t i) { return (i / S * C + c) * S + i % S; };
  const double t = tolerance(dtype), tc = std::fmax(tolerance(channel_dtype), 1e-12),
               spread = (wide(dtype) == FL_F64 ? 1e-14 : 2e-7) * mean_of_x;
  for (int64_t c = 0; c < C; ++c) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < M; ++i) sum += x.get(number(c, i));
    double mean = sum / double(M);
    for (int64_t i = 0; i < M; ++i) squares += std::pow(x.get(number(c, i)) - mean, 2);
    double var = squares / double(M);
    m[size_t(c)] = training ? mean : old_m[size_t(c)];
    r[size_t(c)] = 1 / std::sqrt((training ? var : old_v[size_t(c)]) + eps);
    if (training) {
      double unbiased = squares / double(M - 1);
      CHECK_THAT(near(sm.get(c), mean, tc, tc) && near(sr.get(c), r[size_t(c)], tc + 1e-5, 0),
                 "saved statistics of %s: %g, %g, wanted %g, %g", where.c_str(), sm.get(c), sr.get(c), mean,
                 r[size_t(c)]);
      CHECK_THAT(near(rm.get(c), 0.75 * old_m[size_t(c)] + 0.25 * mean, tc, tc) &&
                     near(rv.get(c), 0.75 * old_v[size_t(c)] + 0.25 * unbiased, tc + 1e-6, tc),
                 "running statistics of %s: %g, %g, wanted %g, %g", where.c_str(), rm.get(c), rv.get(c),
                 0.75 * old_m[size_t(c)] + 0.25 * mean, 0.75 * old_v[size_t(c)] + 0.25 * unbiased);
    } else {
      CHECK(rm.get(c) == old_m[size_t(c)] && rv.get(c) == old_v[size_t(c)]);
    }
    for (int64_t i = 0; i < M; ++i) {
      double v = (x.get(number(c, i)) - m[size_t(c)]) * r[size_t(c)];
      if (affine) v = v * w.get(c) + b.get(c);
      if (!CHECK_THAT(near(y.get(number(c, i)), v, t, 4 * t + spread), "batch_norm of %s: %g, wanted %g",
                      where.c_str(), y.get(number(c, i)), v))
        return;
    }
  }
  if (mean_of_x > 10) return;
  // The statistics as the backward gets them.
  for (int64_t c = 0; c < C; ++c) {
    sm.set(c, m[size_t(c)]), sr.set(c, r[size_t(c)]);
    m[size_t(c)] = sm.get(c), r[size_t(c)] = sr.get(c);
  }
  fl_batch_norm_backward_args back{gy.view(), x.view(), affine ? &w : nullptr,  &sm,
                                   &sr,       &gx,      affine ? &gw : nullptr, affine ? &gb : nullptr,
                                   training,  0};
  if (!ran(chip->op->batch_norm_backward(&l, &back))) return;
  for (int64_t c = 0; c < C; ++c) {
    double sum = 0, dot = 0, rs = r[size_t(c)], k = affine ? w.get(c) : 1;
    for (int64_t i = 0; i < M; ++i)
      sum += gy.get(number(c, i)), dot += gy.get(number(c, i)) * (x.get(number(c, i)) - m[size_t(c)]);
    for (int64_t i = 0; i < M; ++i) {
      double g = gy.get(number(c, i));
      if (training) g -= sum / double(M) + (x.get(number(c, i)) - m[size_t(c)]) * rs * rs * dot / double(M);
      if (!CHECK_THAT(near(gx.get(number(c, i)), g * k * rs, 2 * t, 8 * t * rs),
                      "batch_norm_backward of %s: %g, wanted %g", where.c_str(), gx.get(number(c, i)),
                      g * k * rs))
        return;
    }
    if (affine)
      CHECK_THAT(near(gw.get(c), dot * rs, tc, tc + 1e-5 * std::sqrt(double(M))) &&
                     near(gb.get(c), sum, tc, tc + 1e-5 * std::sqrt(double(M))),
                 "batch_norm_backward's weight of %s: %g, %g, wanted %g, %g", where.c_str(), gw.get(c),
                 gb.get(c), dot * rs, sum);
  }
}

void batch_norms() {
  for (int dtype : kFloats)
    for (bool training : {true, false})
      for (bool affine : {true, false})
        for (Layout layout : kLayouts)
          for (Sizes s : {Sizes{2, 3, 5}, Sizes{8, 5, 1}, Sizes{4, 16, 900}, Sizes{1, 40, 70},
                          Sizes{600, 19, 1}, Sizes{3, 1, 4500}}) {
            check_batch_norm(dtype, wide(dtype), s, layout, training, affine, 0.5);
            if (dtype == FL_BF16) check_batch_norm(dtype, dtype, s, layout, training, affine, 0.5);
            if (wide(dtype) == dtype && affine)
              check_batch_norm(dtype, dtype, s, layout, training, affine, 1000);
          }
}

// Channels-last: [N, C, S] with strides [C·S, 1, C], many rows, against the contiguous result.
void channels_last() {
  const int64_t N = 6, C = 70, S = 2000;
  Tensor plain(FL_F32, {N, C, S}), last(FL_F32, {N, S, C}), y0(FL_F32, {N, C, S}), y1(FL_F32, {N, S, C}),
      mean0(FL_F32, {C}), mean1(FL_F32, {C}), r0(FL_F32, {C}), r1(FL_F32, {C});
  for (int64_t i = 0; i < plain.numel(); ++i) {
    int64_t n = i / (C * S), c = i / S % C, s = i % S;
    plain.set(i, uniform(-1, 3)), last.set((n * S + s) * C + c, plain.get(i));
  }
  Sizes sizes{N, C, S}, strides{C * S, 1, C};
  auto as_last = [&](const Tensor& t) {
    fl_tensor v = t.view();
    v.sizes = sizes.data(), v.strides = strides.data();
    return v;
  };
  fl_batch_norm_args a{plain.view(), y0.view(), nullptr, nullptr, nullptr, nullptr,
                       &mean0,       &r0,       0.1,     1e-5,    1,       0};
  fl_batch_norm_args b{as_last(last), as_last(y1), nullptr, nullptr, nullptr, nullptr,
                       &mean1,        &r1,         0.1,     1e-5,    1,       0};
  fl_launch l = launch();
  if (!ran(chip->op->batch_norm(&l, &a)) || !ran(chip->op->batch_norm(&l, &b))) return;
  for (int64_t c = 0; c < C; ++c)
    CHECK(near(mean1.get(c), mean0.get(c), 1e-6, 1e-7) && near(r1.get(c), r0.get(c), 1e-6, 0));
  for (int64_t i = 0; i < plain.numel(); ++i) {
    int64_t n = i / (C * S), c = i / S % C, s = i % S;
    if (!CHECK(near(y1.get((n * S + s) * C + c), y0.get(i), 1e-5, 1e-6))) return;
  }
}

// In place, and what is refused.
void rules() {
  Tensor x(FL_F32, {50, 100}), y(FL_F32, {50, 100}), i32(FL_I32, {50, 100});
  x.fill([](int64_t) { return uniform(-1, 1); });
  fl_softmax_args args{x.view(), y.view(), 1, 0}, onto{x.view(), x.view(), 1, 0},
      wrong{i32.view(), i32.view(), 1, 0};
  fl_launch l = launch();
  if (ran(chip->op->softmax(&l, &args)) && ran(chip->op->softmax(&l, &onto)))
    for (int64_t i = 0; i < x.numel(); ++i) CHECK(x.get(i) == y.get(i));
  CHECK(chip->op->softmax(&l, &wrong) == FL_UNSUPPORTED);
  wrong = {x.view(), y.view(), 2, 0};
  CHECK(chip->op->softmax(&l, &wrong) == FL_INVALID);
}

}  // namespace

int main(int argc, char** argv) {
  load_chip(argc > 1 ? argv[1] : FL_TEST_SIM);
  softmax();
  norms();
  batch_norms();
  channels_last();
  rules();
  return check::result();
}
