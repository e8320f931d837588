// Convolution and pooling.
#include <array>
#include <cmath>

#include "fast.h"

namespace kit {

namespace {

struct Conv {
  int dims = 2;
  int64_t N = 2, C = 4, K = 6, groups = 1;
  std::array<int64_t, 3> X{9, 8, 1}, W{3, 3, 1};
  std::array<int32_t, 3> stride{1, 1, 1}, padding{0, 0, 0}, dilation{1, 1, 1};
  bool bias = true;
  Layout layout = Layout::contiguous;
  std::array<int64_t, 3> Y() const {
    std::array<int64_t, 3> y{1, 1, 1};
    for (int d = 0; d < dims; ++d)
      y[d] = (X[d] + 2 * padding[d] - dilation[d] * (W[d] - 1) - 1) / stride[d] + 1;
    return y;
  }
  std::vector<int64_t> shape(int64_t a, int64_t b, const std::array<int64_t, 3>& s) const {
    std::vector<int64_t> v = {a, b};
    for (int d = 0; d < dims; ++d) v.push_back(s[d]);
    return v;
  }
  std::string name() const {
    return text("%dd, [%lld, %lld] to %lld, window %lld, stride %d, padding %d, dilation %d, groups %lld, %s",
                dims, (long long)N, (long long)C, (long long)K, (long long)W[0], stride[0], padding[0],
                dilation[0], (long long)groups, layout_name(layout));
  }
};

// Calls f(x index, w index, y index, k) for each product of the convolution.
template <class F>
void each_product(const Conv& r, F&& f) {
  std::array<int64_t, 3> Y = r.Y();
  int64_t cg = r.C / r.groups, kg = r.K / r.groups;
  auto number = [](const std::array<int64_t, 3>& at, const std::array<int64_t, 3>& sizes) {
    return (at[0] * sizes[1] + at[1]) * sizes[2] + at[2];
  };
  int64_t xs = r.X[0] * r.X[1] * r.X[2], ws = r.W[0] * r.W[1] * r.W[2], ys = Y[0] * Y[1] * Y[2];
  for (int64_t n = 0; n < r.N; ++n)
    for (int64_t k = 0; k < r.K; ++k)
      for (int64_t y = 0; y < ys; ++y)
        for (int64_t c = 0; c < cg; ++c)
          for (int64_t w = 0; w < ws; ++w) {
            std::array<int64_t, 3> ya{y / (Y[1] * Y[2]), y / Y[2] % Y[1], y % Y[2]},
                wa{w / (r.W[1] * r.W[2]), w / r.W[2] % r.W[1], w % r.W[2]}, xa{0, 0, 0};
            bool inside = true;
            for (int d = 0; d < r.dims; ++d) {
              xa[d] = ya[d] * r.stride[d] - r.padding[d] + wa[d] * r.dilation[d];
              inside = inside && xa[d] >= 0 && xa[d] < r.X[d];
            }
            if (inside)
              f((n * r.C + k / kg * cg + c) * xs + number(xa, r.X), (k * cg + c) * ws + w,
                (n * r.K + k) * ys + y, k);
          }
}

void check(Session& session, unsigned d, unsigned kind, const Conv& r) {
  Random random(d + r.C + r.W[0]);
  Array x = Array::random(random, d, r.shape(r.N, r.C, r.X), -2, 2),
        w = Array::random(random, d, r.shape(r.K, r.C / r.groups, r.W), -2, 2);
  Array y = Array::random(random, d, r.shape(r.N, r.K, r.Y()), -2, 2),
        b = Array::random(random, d, {r.K}, -2, 2);
  std::vector<real> xv = reals(x), wv = reals(w), yv = reals(y), want, bias_want(r.K);
  int64_t ys = product(y.sizes) / r.N / r.K;
  if (kind == FL_CONV_FORWARD) {
    want.assign(y.numel(), 0);
    for (int64_t i = 0; i < y.numel() && r.bias; ++i) want[i] = b.at(i / ys % r.K).re;
    each_product(r, [&](int64_t xi, int64_t wi, int64_t yi, int64_t) { want[yi] += xv[xi] * wv[wi]; });
  } else if (kind == FL_CONV_BACKWARD_DATA) {
    want.assign(x.numel(), 0);
    each_product(r, [&](int64_t xi, int64_t wi, int64_t yi, int64_t) { want[xi] += yv[yi] * wv[wi]; });
  } else {
    want.assign(w.numel(), 0);
    each_product(r, [&](int64_t xi, int64_t wi, int64_t yi, int64_t) { want[wi] += xv[xi] * yv[yi]; });
    for (int64_t i = 0; i < y.numel(); ++i) bias_want[i / ys % r.K] += yv[i];
  }
  auto place = [&](const Array& a, bool output) {
    return output ? session.output(d, a.sizes, r.layout) : session.put(a, r.layout);
  };
  Tensor tx = place(x, kind == FL_CONV_BACKWARD_DATA),
         tw = kind == FL_CONV_BACKWARD_WEIGHT ? session.output(d, w.sizes) : session.put(w);
  Tensor ty = place(y, kind == FL_CONV_FORWARD),
         tb = kind == FL_CONV_BACKWARD_WEIGHT ? session.output(d, b.sizes) : session.put(b);
  fl_conv_args args{};
  args.x = *tx, args.w = *tw, args.y = *ty, args.kind = static_cast<int32_t>(kind),
  args.groups = static_cast<int32_t>(r.groups);
  args.bias = r.bias && kind != FL_CONV_BACKWARD_DATA ? tb.view() : nullptr;
  for (int i = 0; i < 3; ++i)
    args.stride[i] = r.stride[i], args.padding[i] = r.padding[i], args.dilation[i] = r.dilation[i];
  ok(KIT_LAUNCH(conv, &session.launch, &args), "conv");
  expect_near(session,
              kind == FL_CONV_FORWARD         ? ty
              : kind == FL_CONV_BACKWARD_DATA ? tx
                                              : tw,
              want, r.name());
  if (kind == FL_CONV_BACKWARD_WEIGHT && r.bias) expect_near(session, tb, bias_want, "bias, " + r.name());
}

KIT_TEST(
    "conv",
    "forward, data and weight gradients: 1 to 3 dimensions, stride, padding, dilation, groups, layouts") {
  Session session;
  const char* const kKinds[] = {"forward", "backward data", "backward weight"};
  bool any = false;
  for (unsigned kind = 0; kind < 3; ++kind)
    for (unsigned d : claimed(FL_ENTRY_CONV, kind)) {
      if (!is_real(d)) continue;
      any = true;
      run_case(text("%s %s", kKinds[kind], dtype_name(d)), [&] {
        Conv plain, strided, dilated, grouped, depthwise, line, cube, one, last, bare;
        strided.stride = {2, 3, 1}, strided.padding = {1, 2, 0};
        dilated.dilation = {2, 2, 1}, dilated.padding = {2, 1, 0};
        grouped.groups = 2, grouped.padding = {1, 1, 0};
        depthwise.C = depthwise.K = depthwise.groups = 6;
        line.dims = 1, line.X = {40, 1, 1}, line.W = {5, 1, 1}, line.padding = {2, 0, 0};
        cube.dims = 3, cube.X = {5, 6, 4}, cube.W = {3, 2, 2}, cube.padding = {1, 0, 1};
        one.W = {1, 1, 1}, one.C = 16, one.K = 33;
        last.layout = Layout::transposed, last.padding = {1, 1, 0};
        bare.bias = false, bare.layout = Layout::padded;
        for (const Conv& r : {plain, strided, dilated, grouped, depthwise, line, cube, one, last, bare})
          check(session, d, kind, r);
      });
    }
  if (!any) not_applicable("the chip does not claim it");
}

// ------------------------------------------------------------------- pools

struct Pool {
  int kind = FL_POOL_MAX;
  int64_t N = 2, C = 3, X0 = 9, X1 = 10;
  int32_t kernel = 3, stride = 2, padding = 1, dilation = 1;
  int64_t Y0 = 0, Y1 = 0;  // adaptive; 0: computed
  int32_t count_padding = 0;
  int64_t divisor = 0;
  bool ceil = false, index = true;
  Layout layout = Layout::contiguous;
  int64_t out(int64_t X) const {
    int64_t span = X + 2 * padding - dilation * (kernel - 1) - 1,
            y = (span + (ceil ? stride - 1 : 0)) / stride + 1;
    return ceil && (y - 1) * stride >= X + padding ? y - 1 : y;
  }
};

// The window of output o: positions, and the divisor's length along this dimension.
std::vector<int64_t> window(const Pool& r, int64_t X, int64_t Y, int64_t o, int64_t& length) {
  std::vector<int64_t> at;
  if (r.kind == FL_POOL_ADAPTIVE_AVERAGE) {
    for (int64_t i = o * X / Y; i < ((o + 1) * X + Y - 1) / Y; ++i) at.push_back(i);
    length = static_cast<int64_t>(at.size());
    return at;
  }
  int64_t start = o * r.stride - r.padding;
  for (int32_t k = 0; k < r.kernel; ++k)
    if (start + k * r.dilation >= 0 && start + k * r.dilation < X) at.push_back(start + k * r.dilation);
  length =
      r.count_padding ? std::min(start + r.kernel, X + r.padding) - start : static_cast<int64_t>(at.size());
  return at;
}

void check(Session& session, unsigned d, Pool r, bool backward) {
  if (!r.Y0) r.Y0 = r.out(r.X0), r.Y1 = r.out(r.X1);
  Random random(d + r.kind);
  Array x = Array::random(random, d, {r.N, r.C, r.X0, r.X1}),
        g = Array::random(random, d, {r.N, r.C, r.Y0, r.Y1});
  if (r.kind == FL_POOL_MAX && !backward) x.set(17, Number::floating(NAN));
  std::vector<real> xv = reals(x), y(g.numel()), gx(x.numel());
  Array index(FL_I64, g.sizes);
  for (int64_t i = 0; i < g.numel(); ++i) {
    int64_t image = i / (r.Y0 * r.Y1), l0 = 0, l1 = 0, best = -1;
    std::vector<int64_t> rows = window(r, r.X0, r.Y0, i / r.Y1 % r.Y0, l0),
                         columns = window(r, r.X1, r.Y1, i % r.Y1, l1);
    real divisor = r.divisor ? r.divisor : l0 * l1, sum = 0;
    auto value = [&](int64_t p) { return xv[image * r.X0 * r.X1 + p]; };
    for (int64_t a : rows)
      for (int64_t b : columns) {
        int64_t p = a * r.X1 + b;
        sum += value(p);
        if (best < 0 || value(p) > value(best) || (std::isnan(value(p)) && !std::isnan(value(best))))
          best = p;
        if (r.kind != FL_POOL_MAX) gx[image * r.X0 * r.X1 + p] += g.at(i).re / divisor;
      }
    y[i] = r.kind == FL_POOL_MAX ? value(best) : sum / divisor;
    index.set(i, Number::integer(best));
    if (r.kind == FL_POOL_MAX) gx[image * r.X0 * r.X1 + best] += g.at(i).re;
  }
  std::string what = text("[%lld, %lld] to [%lld, %lld], window %d, stride %d, padding %d, dilation %d, %s",
                          (long long)r.X0, (long long)r.X1, (long long)r.Y0, (long long)r.Y1, r.kernel,
                          r.stride, r.padding, r.dilation, layout_name(r.layout));
  auto parameters = [&](auto& args) {
    for (int k = 0; k < 3; ++k)
      args.kernel[k] = r.kernel, args.stride[k] = r.stride, args.padding[k] = r.padding,
      args.dilation[k] = r.dilation;
    args.kind = r.kind, args.count_padding = r.count_padding, args.divisor = r.divisor;
  };
  if (!backward) {
    Tensor tx = session.put(x, r.layout), ty = session.output(d, g.sizes, r.layout),
           ti = session.output(FL_I64, g.sizes);
    fl_pool_args args{};
    parameters(args);
    args.x = *tx, args.y = *ty, args.index = r.kind == FL_POOL_MAX && r.index ? ti.view() : nullptr;
    ok(KIT_LAUNCH(pool, &session.launch, &args), "pool");
    expect_near(session, ty, y, what);
    std::vector<Number> places;
    for (int64_t i = 0; i < index.numel(); ++i) places.push_back(index.at(i));
    if (args.index) expect_close(session.get(ti), places, {}, "index, " + what);
    return;
  }
  Tensor tg = session.put(g, r.layout), tx = session.output(d, x.sizes, r.layout), ti = session.put(index);
  fl_pool_backward_args args{};
  parameters(args);
  args.grad_y = *tg, args.grad_x = *tx, args.index = r.kind == FL_POOL_MAX ? ti.view() : nullptr;
  ok(KIT_LAUNCH(pool_backward, &session.launch, &args), "pool_backward");
  expect_near(session, tx, gx, what);
}

void each_pool(unsigned entry, bool backward) {
  Session session;
  const char* const kKinds[] = {"max", "average", "adaptive average"};
  bool any = false;
  for (int kind = 0; kind < 3; ++kind)
    for (unsigned d : claimed(entry, static_cast<unsigned>(kind))) {
      if (!is_real(d)) continue;
      any = true;
      run_case(text("%s %s", kKinds[kind], dtype_name(d)), [&] {
        Pool plain, large, counted, divided, ceiled, dilated, last;
        counted.count_padding = 1, divided.divisor = 5;
        large.kernel = 2, large.padding = 0, large.X0 = large.X1 = 20;
        ceiled.ceil = true, ceiled.count_padding = 1;
        dilated.dilation = kind == FL_POOL_MAX ? 2 : 1, dilated.index = false;
        last.layout = Layout::transposed;
        for (Pool r : {plain, large, counted, divided, ceiled, dilated, last}) {
          r.kind = kind;
          if (kind == FL_POOL_ADAPTIVE_AVERAGE) r.Y0 = 4, r.Y1 = 3, r.divisor = 0;
          check(session, d, r, backward);
        }
      });
    }
  if (!any) not_applicable("the chip does not claim it");
}

KIT_TEST("pool", "max with index, average, adaptive average") { each_pool(FL_ENTRY_POOL, false); }
KIT_TEST("pool_backward", "the gradients of max, average, adaptive average") {
  each_pool(FL_ENTRY_POOL_BACKWARD, true);
}

}  // namespace

}  // namespace kit
