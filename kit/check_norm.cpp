// Softmax and the norms, forward and backward: [SMX-1], [NRM-1].
#include <cmath>

#include "fast.h"

namespace kit {

Tolerance near(unsigned dtype, real scale) {
  real unit = dtype == FL_F64 ? 1e-12L : dtype == FL_F32 ? 1e-5L : dtype == FL_F16 ? 1.5e-3L : 1.2e-2L;
  return {0, unit, unit * scale};
}

std::vector<real> reals(const Array& array) {
  std::vector<real> all(array.numel());
  for (int64_t i = 0; i < array.numel(); ++i) all[i] = array.at(i).re;
  return all;
}

unsigned statistic_type(unsigned dtype) {
  return dtype == FL_F64 ? static_cast<unsigned>(FL_F64) : static_cast<unsigned>(FL_F32);
}

void expect_near(Session& session, Tensor& got, const std::vector<real>& want, const std::string& what) {
  std::vector<Number> numbers;
  real scale = 0;
  for (real v : want) {
    numbers.push_back(Number::floating(v));
    if (std::isfinite(v)) scale = std::max(scale, std::fabs(v));
  }
  expect_close(session.get(got), numbers, near(got.dtype, scale), what);
}

std::vector<unsigned> claimed_or_skip(unsigned entry, unsigned kind) {
  std::vector<unsigned> all;
  for (unsigned d : claimed(entry, kind))
    if (is_real(d)) all.push_back(d);
  if (all.empty()) not_applicable("the chip does not claim it");
  return all;
}

namespace {

std::vector<real> softmax(const Array& x, int axis, bool log) {
  std::vector<real> y(x.numel());
  each_slice(x.sizes, axis, [&](int64_t start, int64_t step) {
    real top = -kInfinity, sum = 0;
    for (int64_t k = 0; k < x.sizes[axis]; ++k) top = std::max(top, x.at(start + k * step).re);
    for (int64_t k = 0; k < x.sizes[axis]; ++k) sum += std::exp(x.at(start + k * step).re - top);
    for (int64_t k = 0; k < x.sizes[axis]; ++k) {
      real v = x.at(start + k * step).re - top;
      y[start + k * step] = log ? v - std::log(sum) : std::exp(v) / sum;
    }
  });
  return y;
}

const std::vector<std::pair<std::vector<int64_t>, int>> kSoftmaxShapes = {
    {{1, 1}, 1}, {{7, 33}, 1}, {{33, 7}, 0}, {{3, 5, 17}, 1}, {{2, 1000}, 1}, {{5}, 0}, {{2, 3, 4, 5}, 3}};

void check_softmax(Session& session, const Array& x, int axis, bool log, Layout in, Layout out) {
  Tensor tx = session.put(x, in), ty = session.output(x.dtype, x.sizes, out);
  fl_softmax_args args{*tx, *ty, axis, log};
  ok(KIT_LAUNCH(softmax, &session.launch, &args), "softmax");
  expect_near(
      session, ty, softmax(x, axis, log),
      text("%s, axis %d, %s to %s", shape_text(x.sizes).c_str(), axis, layout_name(in), layout_name(out)));
}

KIT_TEST("softmax", "every claimed dtype, axis and layout, plain and log") {
  Session session;
  for (unsigned d : claimed_or_skip(FL_ENTRY_SOFTMAX, FL_ANY))
    for (bool log : {false, true})
      run_case(text("%s%s", dtype_name(d), log ? ", log" : ""), [&] {
        Random random(d);
        for (auto& [sizes, axis] : kSoftmaxShapes)
          check_softmax(session, Array::random(random, d, sizes), axis, log, Layout::contiguous,
                        Layout::contiguous);
        for (Layout layout : kOutputLayouts)
          for (int axis = 0; axis < 3; ++axis) {
            check_softmax(session, Array::random(random, d, {4, 5, 6}), axis, log, layout,
                          Layout::contiguous);
            check_softmax(session, Array::random(random, d, {4, 5, 6}), axis, log, Layout::contiguous,
                          layout);
          }
      });
}

KIT_TEST("softmax_backward", "the gradient, every claimed dtype, axis and layout, plain and log") {
  Session session;
  for (unsigned d : claimed_or_skip(FL_ENTRY_SOFTMAX_BACKWARD, FL_ANY))
    for (bool log : {false, true})
      run_case(text("%s%s", dtype_name(d), log ? ", log" : ""), [&] {
        Random random(d);
        auto check = [&](const std::vector<int64_t>& sizes, int axis, Layout layout) {
          Array y(d, sizes), g = Array::random(random, d, sizes);
          std::vector<real> exact = softmax(Array::random(random, d, sizes), axis, log), want(exact.size());
          for (int64_t i = 0; i < y.numel(); ++i) y.set(i, Number::floating(exact[i]));
          each_slice(sizes, axis, [&](int64_t start, int64_t step) {
            real sum = 0;
            for (int64_t k = 0; k < sizes[axis]; ++k)
              sum += g.at(start + k * step).re * (log ? 1 : y.at(start + k * step).re);
            for (int64_t k = 0; k < sizes[axis]; ++k) {
              int64_t i = start + k * step;
              want[i] = log ? g.at(i).re - std::exp(y.at(i).re) * sum : y.at(i).re * (g.at(i).re - sum);
            }
          });
          Tensor tg = session.put(g, layout), ty = session.put(y), tx = session.output(d, sizes, layout);
          fl_softmax_backward_args args{*tg, *ty, *tx, axis, log};
          ok(KIT_LAUNCH(softmax_backward, &session.launch, &args), "softmax_backward");
          expect_near(session, tx, want,
                      text("%s, axis %d, %s", shape_text(sizes).c_str(), axis, layout_name(layout)));
        };
        for (auto& [sizes, axis] : kSoftmaxShapes) check(sizes, axis, Layout::contiguous);
        for (Layout layout : kOutputLayouts) check({4, 5, 6}, 1, layout), check({4, 5, 6}, 2, layout);
      });
}

KIT_TEST("SMX-1", "softmax is stable for large inputs; a slice that is -inf throughout gives NaN") {
  Session session;
  for (unsigned d : claimed_or_skip(FL_ENTRY_SOFTMAX, FL_ANY))
    for (bool log : {false, true})
      run_case(text("%s%s", dtype_name(d), log ? ", log" : ""), [&] {
        Array x(d, {5, 19});
        for (int64_t i = 0; i < x.numel(); ++i) {
          int64_t row = i / 19, k = i % 19;
          real v = row == 0   ? 30000 + k
                   : row == 1 ? -30000 - k
                   : row == 2 ? -kInfinity
                   : row == 3 ? (k == 4 ? 5 : -kInfinity)
                   : k % 2    ? 1000
                              : -1000;
          x.set(i, Number::floating(v));
        }
        check_softmax(session, x, 1, log, Layout::contiguous, Layout::contiguous);
      });
}

// ------------------------------------------------------------------- norms

struct Norm {
  int kind = FL_NORM_LAYER;
  int64_t N = 5, G = 1, C = 37, S = 1;
  bool affine = true;
  Layout layout = Layout::contiguous;
  real mean = 0;
  double eps = 1e-5;
};

void check_norm(Session& session, unsigned d, const Norm& r, bool backward, real looser = 1) {
  Random random(d + r.C);
  std::vector<int64_t> sizes = {r.N, r.G, r.C, r.S}, rows = {r.N, r.G}, channels = {r.G, r.C};
  unsigned s = statistic_type(d);
  Array x = Array::random(random, d, sizes, r.mean - 2, r.mean + 2),
        w = Array::random(random, d, channels, 0.5L, 2), b = Array::random(random, d, channels);
  int64_t n = r.C * r.S;
  Array mean(s, rows), rstd(s, rows);
  std::vector<real> y(x.numel()), exact_mean(r.N * r.G), exact_rstd(r.N * r.G), xhat(x.numel());
  for (int64_t row = 0; row < r.N * r.G; ++row) {
    real m = 0, v = 0;
    for (int64_t i = 0; i < n; ++i) m += x.at(row * n + i).re / n;
    if (r.kind == FL_NORM_RMS) m = 0;
    for (int64_t i = 0; i < n; ++i) v += (x.at(row * n + i).re - m) * (x.at(row * n + i).re - m) / n;
    exact_mean[row] = m, exact_rstd[row] = 1 / std::sqrt(v + r.eps);
    mean.set(row, Number::floating(m)), rstd.set(row, Number::floating(exact_rstd[row]));
    for (int64_t i = 0; i < n; ++i) {
      int64_t c = row % r.G * r.C + i / r.S;
      xhat[row * n + i] = (x.at(row * n + i).re - m) * exact_rstd[row];
      y[row * n + i] = xhat[row * n + i] * (r.affine ? w.at(c).re : 1) + (r.affine ? b.at(c).re : 0);
    }
  }
  std::string what = text("[%lld, %lld, %lld, %lld], %s", (long long)r.N, (long long)r.G, (long long)r.C,
                          (long long)r.S, layout_name(r.layout));
  Tensor tx = session.put(x, r.layout), tw = session.put(w), tb = session.put(b);
  if (!backward) {
    Tensor ty = session.output(d, sizes, r.layout), tm = session.output(s, rows),
           tr = session.output(s, rows);
    fl_norm_args args{};
    args.x = *tx, args.y = *ty, args.eps = r.eps, args.kind = r.kind;
    args.weight = r.affine ? tw.view() : nullptr, args.bias = r.affine ? tb.view() : nullptr;
    args.mean = r.kind == FL_NORM_RMS ? nullptr : tm.view(), args.rstd = tr.view();
    ok(KIT_LAUNCH(norm, &session.launch, &args), "norm");
    std::vector<Number> want;
    real scale = 0;
    for (real v : y) want.push_back(Number::floating(v)), scale = std::max(scale, std::fabs(v));
    Tolerance t = near(d, scale);
    expect_close(session.get(ty), want, {0, t.relative * looser, t.absolute * looser}, what);
    if (r.kind != FL_NORM_RMS) expect_near(session, tm, exact_mean, "mean, " + what);
    if (looser == 1) expect_near(session, tr, exact_rstd, "rstd, " + what);
    return;
  }
  Array g = Array::random(random, d, sizes);
  std::vector<real> gx(x.numel()), gw(r.G * r.C), gb(r.G * r.C);
  for (int64_t row = 0; row < r.N * r.G; ++row) {
    real sum = 0, dot = 0;
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t i = 0; i < n; ++i) {
        int64_t c = row % r.G * r.C + i / r.S, k = row * n + i;
        real h = g.at(k).re * (r.affine ? w.at(c).re : 1);
        if (pass == 0)
          sum += h / n, dot += h * xhat[k] / n, gw[c] += g.at(k).re * xhat[k], gb[c] += g.at(k).re;
        else gx[k] = exact_rstd[row] * (h - (r.kind == FL_NORM_RMS ? 0 : sum) - xhat[k] * dot);
      }
  }
  Tensor tg = session.put(g, r.layout), tm = session.put(mean), tr = session.put(rstd);
  Tensor tgx = session.output(d, sizes, r.layout), tgw = session.output(d, channels),
         tgb = session.output(d, channels);
  fl_norm_backward_args args{};
  args.grad_y = *tg, args.x = *tx, args.kind = r.kind;
  args.weight = r.affine ? tw.view() : nullptr, args.mean = r.kind == FL_NORM_RMS ? nullptr : tm.view(),
  args.rstd = tr.view();
  args.grad_x = tgx.view(), args.grad_weight = r.affine ? tgw.view() : nullptr;
  args.grad_bias = r.affine && r.kind != FL_NORM_RMS ? tgb.view() : nullptr;
  ok(KIT_LAUNCH(norm_backward, &session.launch, &args), "norm_backward");
  expect_near(session, tgx, gx, "grad_x, " + what);
  if (args.grad_weight) expect_near(session, tgw, gw, "grad_weight, " + what);
  if (args.grad_bias) expect_near(session, tgb, gb, "grad_bias, " + what);
}

void each_norm(unsigned entry, bool backward) {
  Session session;
  bool any = false;
  for (int kind : {FL_NORM_LAYER, FL_NORM_RMS})
    for (unsigned d : claimed(entry, static_cast<unsigned>(kind))) {
      any = true;
      run_case(text("%s %s", kind == FL_NORM_RMS ? "RMS" : "layer and group", dtype_name(d)), [&] {
        for (bool affine : {true, false})
          for (Layout layout : {Layout::contiguous, Layout::transposed, Layout::padded, Layout::stepped}) {
            Norm r;
            r.kind = kind, r.affine = affine, r.layout = layout;
            check_norm(session, d, r, backward);
            if (kind == FL_NORM_RMS) continue;
            r.N = 2, r.G = 3, r.C = 4, r.S = 10;
            check_norm(session, d, r, backward);
          }
        Norm wide;
        wide.kind = kind, wide.N = 3, wide.C = 4099;
        check_norm(session, d, wide, backward);
      });
    }
  if (!any) not_applicable("the chip does not claim it");
}

KIT_TEST("norm", "layer, group and RMS norm of every claimed dtype; mean and rstd") {
  each_norm(FL_ENTRY_NORM, false);
}
KIT_TEST("norm_backward", "the gradients of layer, group and RMS norm") {
  each_norm(FL_ENTRY_NORM_BACKWARD, true);
}

KIT_TEST("NRM-1", "the variance is the biased one, and does not cancel for a large mean") {
  Session session;
  for (unsigned d : claimed_or_skip(FL_ENTRY_NORM, FL_NORM_LAYER)) {
    if (d != FL_F32 && d != FL_F64) continue;
    run_case(dtype_name(d), [&] {
      Norm r;
      r.mean = 10000, r.C = 1000;  // E[x²] - E[x]² in F32 has no digit left here
      check_norm(session, d, r, false, 200);
      r.mean = 0, r.C = 3;  // biased and unbiased differ by 3/2
      check_norm(session, d, r, false);
    });
  }
}

// -------------------------------------------------------------- batch norm

void check_batch_norm(Session& session, unsigned d, const std::vector<int64_t>& sizes, bool training,
                      Layout layout, bool backward) {
  Random random(d + sizes[0]);
  int64_t N = sizes[0], C = sizes[1], S = sizes[2], count = N * S;
  unsigned s = statistic_type(d);
  Array x = Array::random(random, d, sizes, -1, 3), w = Array::random(random, s, {C}, 0.5L, 2),
        b = Array::random(random, s, {C});
  Array running_mean = Array::random(random, s, {C}), running_var = Array::random(random, s, {C}, 0.5L, 2),
        g = Array::random(random, d, sizes);
  const double eps = 1e-5, momentum = 0.1;
  std::vector<real> mean(C), variance(C), rstd(C), y(x.numel()), new_mean(C), new_var(C), gx(x.numel()),
      gw(C), gb(C);
  auto at = [&](int64_t n, int64_t c, int64_t k) { return (n * C + c) * S + k; };
  for (int64_t c = 0; c < C; ++c) {
    for (int64_t i = 0; i < count; ++i) mean[c] += x.at(at(i / S, c, i % S)).re / count;
    for (int64_t i = 0; i < count; ++i)
      variance[c] += std::pow(x.at(at(i / S, c, i % S)).re - mean[c], 2.0L) / count;
    new_mean[c] = (1 - momentum) * running_mean.at(c).re + momentum * mean[c];
    new_var[c] = (1 - momentum) * running_var.at(c).re +
                 momentum * variance[c] * count / std::max<int64_t>(count - 1, 1);
    if (!training) mean[c] = running_mean.at(c).re, variance[c] = running_var.at(c).re;
    rstd[c] = 1 / std::sqrt(variance[c] + eps);
    real sum = 0, dot = 0;
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t i = 0; i < count; ++i) {
        int64_t k = at(i / S, c, i % S);
        real xhat = (x.at(k).re - mean[c]) * rstd[c], h = g.at(k).re;
        if (pass == 0) y[k] = xhat * w.at(c).re + b.at(c).re, sum += h, dot += h * xhat;
        else gx[k] = w.at(c).re * rstd[c] * (training ? h - sum / count - xhat * dot / count : h);
      }
    gw[c] = dot, gb[c] = sum;
  }
  std::string what =
      text("%s, %s, %s", shape_text(sizes).c_str(), layout_name(layout), training ? "training" : "inference");
  Tensor tx = session.put(x, layout), tw = session.put(w), tb = session.put(b),
         trm = session.put(running_mean), trv = session.put(running_var);
  if (!backward) {
    Tensor ty = session.output(d, sizes, layout), sm = session.output(s, {C}), sr = session.output(s, {C});
    fl_batch_norm_args args{*tx,
                            *ty,
                            tw.view(),
                            tb.view(),
                            trm.view(),
                            trv.view(),
                            training ? sm.view() : nullptr,
                            training ? sr.view() : nullptr,
                            momentum,
                            eps,
                            training,
                            0};
    ok(KIT_LAUNCH(batch_norm, &session.launch, &args), "batch_norm");
    expect_near(session, ty, y, what);
    if (!training) return;
    expect_near(session, sm, mean, "save_mean, " + what);
    expect_near(session, sr, rstd, "save_rstd, " + what);
    expect_near(session, trm, new_mean, "running_mean, " + what);
    expect_near(session, trv, new_var, "running_var, " + what);
    return;
  }
  Array m(s, {C}), r(s, {C});
  for (int64_t c = 0; c < C; ++c) m.set(c, Number::floating(mean[c])), r.set(c, Number::floating(rstd[c]));
  Tensor tg = session.put(g, layout), tm = session.put(m), tr = session.put(r);
  Tensor tgx = session.output(d, sizes, layout), tgw = session.output(s, {C}), tgb = session.output(s, {C});
  fl_batch_norm_backward_args args{*tg,        *tx,        tw.view(),  tm.view(), tr.view(),
                                   tgx.view(), tgw.view(), tgb.view(), training,  0};
  ok(KIT_LAUNCH(batch_norm_backward, &session.launch, &args), "batch_norm_backward");
  expect_near(session, tgx, gx, "grad_x, " + what);
  expect_near(session, tgw, gw, "grad_weight, " + what);
  expect_near(session, tgb, gb, "grad_bias, " + what);
}

void each_batch_norm(unsigned entry, bool backward) {
  Session session;
  for (unsigned d : claimed_or_skip(entry, FL_ANY))
    for (bool training : {true, false})
      run_case(text("%s, %s", dtype_name(d), training ? "training" : "inference"), [&] {
        for (Layout layout : {Layout::contiguous, Layout::transposed, Layout::padded})
          for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{4, 5, 30}, {8, 17, 1}, {2, 3, 700}})
            check_batch_norm(session, d, sizes, training, layout, backward);
      });
}

KIT_TEST("batch_norm", "training and inference, running statistics") {
  each_batch_norm(FL_ENTRY_BATCH_NORM, false);
}
KIT_TEST("batch_norm_backward", "the gradients, training and inference") {
  each_batch_norm(FL_ENTRY_BATCH_NORM_BACKWARD, true);
}

}  // namespace

}  // namespace kit
