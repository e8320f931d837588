// sim's convolutions, pooling and attention against plain loops in double.
#include "sim_operand.h"

using namespace sim_test;

namespace {

// -------------------------------------------------------------------------- conv
// Spatial operands: as they are, channels-last, or odd.
Operand image(int dtype, const Sizes& s, int form) {
  std::vector<int> last{0};
  for (size_t d = 2; d < s.size(); ++d) last.push_back(int(d));
  last.push_back(1);
  if (form == 1) return Operand(dtype, s, last);
  if (form == 2) return Operand(dtype, s, {}, 2);
  if (form == 3) return Operand(dtype, s, {}, 0, 0, Layout::stepped);
  if (form == 4) return Operand(dtype, s, {}, 0, 0, Layout::reversed);
  return Operand(dtype, s);
}

struct Space {  // up to three dimensions, the missing ones in front
  int64_t in[3] = {1, 1, 1}, window[3] = {1, 1, 1}, out[3] = {1, 1, 1}, stride[3] = {1, 1, 1},
          padding[3] = {}, dilation[3] = {1, 1, 1};
};

void convolution(int dtype, int spatial) {
  auto any = [](int64_t low, int64_t high) { return low + below(high - low + 1); };
  int64_t groups = any(1, 3), channels = below(3) ? any(1, 5) : 16, filters = below(3) ? any(1, 5) : 16,
          batch = any(1, 2);
  bool single = below(4) == 0;
  if (single) groups = any(1, 2);
  fl_conv_args args{};
  args.groups = int32_t(groups);
  Space s;
  Sizes xs{batch, groups * channels}, ws{groups * filters, channels}, ys{batch, groups * filters};
  for (int i = 0; i < spatial; ++i) {
    int d = 3 - spatial + i;
    s.window[d] = single ? 1 : any(1, 4), s.stride[d] = any(1, 3), s.dilation[d] = any(1, 2),
    s.padding[d] = single ? 0 : any(0, 2);
    int64_t reach = (s.window[d] - 1) * s.dilation[d] + 1;
    s.in[d] = std::max<int64_t>(1, reach - 2 * s.padding[d]) + any(0, 7);
    s.out[d] = (s.in[d] + 2 * s.padding[d] - reach) / s.stride[d] + 1;
    args.stride[i] = int32_t(s.stride[d]), args.padding[i] = int32_t(s.padding[d]),
    args.dilation[i] = int32_t(s.dilation[d]);
    xs.push_back(s.in[d]), ws.push_back(s.window[d]), ys.push_back(s.out[d]);
  }
  int form = int(below(5)), other = below(2) ? form : int(below(5));
  bool biased = below(2);
  Operand x = image(dtype, xs, form), w = image(dtype, ws, other), y = image(dtype, ys, other),
          bias(dtype, {ws[0]});
  Operand gx = image(dtype, xs, other), gw = image(dtype, ws, form), gy = image(dtype, ys, form),
          gb(dtype, {ws[0]});
  x.randomise(), w.randomise(), gy.randomise(), bias.randomise();

  std::vector<double> ry(size_t(y.numel())), rx(size_t(x.numel())), rw(size_t(w.numel())),
      rb(static_cast<size_t>(ws[0])), ny = ry, nx = rx, nw = rw,
                                      nb = rb;  // the last: how many products a sum has
  for (int64_t n = 0; n < batch; ++n)
    for (int64_t f = 0; f < ws[0]; ++f)
      for (int64_t o = 0; o < s.out[0] * s.out[1] * s.out[2]; ++o) {
        int64_t oi[3] = {o / s.out[2] / s.out[1], o / s.out[2] % s.out[1], o % s.out[2]};
        size_t at = size_t((n * ws[0] + f) * s.out[0] * s.out[1] * s.out[2] + o);
        double g = gy.get(int64_t(at));
        if (biased) ry[at] += bias.get(f), ny[at] += 1;
        rb[size_t(f)] += g, nb[size_t(f)] += 1;
        for (int64_t c = 0; c < channels; ++c)
          for (int64_t k = 0; k < s.window[0] * s.window[1] * s.window[2]; ++k) {
            int64_t ki[3] = {k / s.window[2] / s.window[1], k / s.window[2] % s.window[1], k % s.window[2]},
                    at_x = n * xs[1] + f / filters * channels + c;
            bool inside = true;
            for (int d = 0; d < 3; ++d) {
              int64_t i = oi[d] * s.stride[d] - s.padding[d] + ki[d] * s.dilation[d];
              inside = inside && i >= 0 && i < s.in[d];
              at_x = at_x * s.in[d] + i;
            }
            if (!inside) continue;
            int64_t at_w = (f * channels + c) * s.window[0] * s.window[1] * s.window[2] + k;
            ry[at] += x.get(at_x) * w.get(at_w), ny[at] += 1;
            rx[size_t(at_x)] += g * w.get(at_w), nx[size_t(at_x)] += 1;
            rw[size_t(at_w)] += g * x.get(at_x), nw[size_t(at_w)] += 1;
          }
      }
  auto compare = [&](const char* what, const Operand& got, const std::vector<double>& want,
                     const std::vector<double>& size) {
    for (int64_t i = 0; i < got.numel(); ++i) {
      if (!CHECK_THAT(
              std::fabs(got.get(i) - want[size_t(i)]) <= allowed(dtype, want[size_t(i)], size[size_t(i)] + 1),
              "conv %s %s x %s w %s groups %ld forms %d %d bias %d: %g, not %g at %ld", what, text_of(dtype),
              text(xs).c_str(), text(ws).c_str(), long(groups), form, other, biased, got.get(i),
              want[size_t(i)], long(i)))
        return;
    }
  };
  fl_launch l = launch();
  args.x = x.view(), args.w = w.view(), args.y = y.view(), args.bias = biased ? &bias : nullptr,
  args.kind = FL_CONV_FORWARD;
  if (ran(chip->op->conv(&l, &args))) compare("forward", y, ry, ny);
  args.x = gx.view(), args.y = gy.view(), args.bias = nullptr, args.kind = FL_CONV_BACKWARD_DATA;
  if (ran(chip->op->conv(&l, &args))) compare("backward data", gx, rx, nx);
  args.x = x.view(), args.w = gw.view(), args.bias = biased ? &gb : nullptr,
  args.kind = FL_CONV_BACKWARD_WEIGHT;
  if (ran(chip->op->conv(&l, &args))) {
    compare("backward weight", gw, rw, nw);
    if (biased) compare("backward bias", gb, rb, nb);
  }
}

// -------------------------------------------------------------------------- pool
void pooling(int dtype, int kind, int spatial) {
  auto any = [](int64_t low, int64_t high) { return low + below(high - low + 1); };
  const bool real = floats(dtype), max = kind == FL_POOL_MAX, adaptive = kind == FL_POOL_ADAPTIVE_AVERAGE;
  fl_pool_args args{};
  args.kind = kind, args.count_padding = int32_t(below(2)),
  args.divisor = kind == FL_POOL_AVERAGE && below(3) == 0 ? 5 : 0;
  Space s;
  Sizes xs{any(1, 2), below(3) ? any(1, 5) : 140}, ys{xs[0], xs[1]};
  for (int i = 0; i < spatial; ++i) {
    int d = 3 - spatial + i;
    s.window[d] = any(1, 3), s.stride[d] = any(1, 3), s.padding[d] = any(0, s.window[d] / 2),
    s.dilation[d] = max ? any(1, 2) : 1;
    int64_t reach = (s.window[d] - 1) * s.dilation[d] + 1;
    s.in[d] = reach + any(0, below(8) ? 6 : 200);
    s.out[d] = adaptive ? any(1, s.in[d]) : (s.in[d] + 2 * s.padding[d] - reach) / s.stride[d] + 1;
    if (adaptive && below(3) == 0) s.out[d] = 1;
    args.kernel[i] = int32_t(s.window[d]), args.stride[i] = int32_t(s.stride[d]),
    args.padding[i] = int32_t(s.padding[d]), args.dilation[i] = int32_t(s.dilation[d]);
    xs.push_back(s.in[d]), ys.push_back(s.out[d]);
  }
  int form = int(below(5)), other = below(2) ? form : int(below(5));
  Operand x = image(dtype, xs, form), y = image(dtype, ys, other), index = image(FL_I64, ys, other),
          gx = image(dtype, xs, other), gy = image(dtype, ys, form);
  x.randomise(), gy.randomise();
  if (max)
    for (int64_t i = 0; i < x.numel(); ++i) {
      if (below(4) == 0) x.set(i, double(below(3)));  // ties
      else if (real && below(25) == 0) x.set(i, below(2) ? NAN : -INFINITY);
    }
  std::vector<double> ry(size_t(y.numel())), rx(size_t(x.numel()));
  std::vector<int64_t> ri(ry.size());
  const int64_t plane = s.in[0] * s.in[1] * s.in[2], positions = s.out[0] * s.out[1] * s.out[2];
  for (int64_t p = 0; p < xs[0] * xs[1]; ++p)
    for (int64_t o = 0; o < positions; ++o) {
      int64_t oi[3] = {o / s.out[2] / s.out[1], o / s.out[2] % s.out[1], o % s.out[2]};
      std::vector<int64_t> seen;
      int64_t counted = 1, list[3][2];
      for (int d = 0; d < 3; ++d) {
        list[d][0] = adaptive ? oi[d] * s.in[d] / s.out[d] : 0;
        list[d][1] = adaptive ? ((oi[d] + 1) * s.in[d] + s.out[d] - 1) / s.out[d] - list[d][0] : s.window[d];
        if (!adaptive && args.count_padding)
          counted *= std::min(oi[d] * s.stride[d] - s.padding[d] + s.window[d], s.in[d] + s.padding[d]) -
                     (oi[d] * s.stride[d] - s.padding[d]);
      }
      for (int64_t a = 0; a < list[0][1]; ++a)
        for (int64_t b = 0; b < list[1][1]; ++b)
          for (int64_t c = 0; c < list[2][1]; ++c) {
            int64_t tap[3] = {a, b, c}, at = 0;
            bool inside = true;
            for (int d = 0; d < 3; ++d) {
              int64_t i = adaptive ? list[d][0] + tap[d]
                                   : oi[d] * s.stride[d] - s.padding[d] + tap[d] * s.dilation[d];
              inside = inside && i >= 0 && i < s.in[d];
              at = at * s.in[d] + i;
            }
            if (inside) seen.push_back(at);
          }
      size_t to = size_t(p * positions + o);
      double g = gy.get(int64_t(to));
      if (max) {
        double best = -INFINITY;
        int64_t where = seen.empty() ? 0 : seen[0];
        for (int64_t at : seen) {
          double v = x.get(p * plane + at);
          if (v > best || std::isnan(v)) best = v, where = at;
        }
        ry[to] = best, ri[to] = where, rx[size_t(p * plane + where)] += g;
      } else {
        double by = double(args.divisor                      ? args.divisor
                           : adaptive || !args.count_padding ? int64_t(seen.size())
                                                             : counted);
        for (int64_t at : seen) ry[to] += x.get(p * plane + at) / by, rx[size_t(p * plane + at)] += g / by;
      }
    }
  fl_launch l = launch();
  args.x = x.view(), args.y = y.view(), args.index = max && below(4) ? &index : nullptr;
  if (!ran(chip->op->pool(&l, &args))) return;
  auto compare = [&](const char* what, const Operand& got, const std::vector<double>& want) {
    for (int64_t i = 0; i < got.numel(); ++i) {
      double v = want[size_t(i)], g = got.get(i);
      bool good = std::isnan(v) || std::isinf(v) ? near(g, v, 0, 0)
                                                 : std::fabs(g - v) <= (real ? allowed(dtype, v, 4) : 0);
      if (!CHECK_THAT(good, "pool %d %s %s x %s y %s forms %d %d: %g, not %g at %ld", kind, what,
                      text_of(dtype), text(xs).c_str(), text(ys).c_str(), form, other, g, v, long(i)))
        return;
    }
  };
  compare("forward", y, ry);
  if (args.index)
    for (int64_t i = 0; i < y.numel(); ++i)
      if (!CHECK_THAT(index.get_int(i) == ri[size_t(i)], "pool index %ld, not %ld", long(index.get_int(i)),
                      long(ri[size_t(i)])))
        break;
  if (!real || (max && !args.index)) return;
  fl_pool_backward_args back{};
  back.grad_x = gx.view(), back.grad_y = gy.view(), back.index = args.index;
  std::copy_n(args.kernel, 3, back.kernel), std::copy_n(args.stride, 3, back.stride),
      std::copy_n(args.padding, 3, back.padding);
  std::copy_n(args.dilation, 3, back.dilation), back.kind = kind, back.count_padding = args.count_padding,
                                                back.divisor = args.divisor;
  if (ran(chip->op->pool_backward(&l, &back))) compare("backward", gx, rx);
}

// --------------------------------------------------------------------- attention
void attention(int dtype) {
  auto any = [](int64_t low, int64_t high) { return low + below(high - low + 1); };
  const int64_t lengths[] = {1, 5, 64, 67, 130}, B = any(1, 2), Hk = any(1, 2), group = any(1, 2),
                H = Hk * group, L = lengths[below(5)], S = lengths[below(5)], E = below(2) ? 16 : any(1, 33),
                Ev = below(2) ? E : any(1, 33);
  const bool causal = below(3) == 0;
  const int masking = int(below(4));  // none, full, broadcast, with rows that see nothing
  const double scale = 0.5;
  auto make = [&](int64_t h, int64_t rows_, int64_t e) {
    Sizes s{B, h, rows_, e};
    switch (below(4)) {
      case 0:
        return Operand(dtype, s, {0, 2, 1, 3});
      case 1:
        return Operand(dtype, s, {0, 1, 3, 2});
      case 2:
        return Operand(dtype, s, {}, 3);
    }
    return Operand(dtype, s);
  };
  int wide = dtype == FL_F64 ? FL_F64 : FL_F32;
  Operand q = make(H, L, E), k = make(Hk, S, E), v = make(Hk, S, Ev), out = make(H, L, Ev),
          go = make(H, L, Ev), gq = make(H, L, E), gk = make(Hk, S, E), gv = make(Hk, S, Ev),
          lse(wide, {B, H, L});
  Operand bias(dtype, {B, H, L, S}, {}, 0, masking == 2 ? 0b110 : 0);
  q.randomise(), k.randomise(), v.randomise(), go.randomise(), bias.randomise();
  if (masking == 3)
    for (int64_t i = 0; i < bias.numel(); ++i)
      if (below(2) || i / S % 3 == 0) bias.set(i, -INFINITY);

  std::vector<double> ro(size_t(out.numel())), rl(size_t(lse.numel())), rq(size_t(q.numel())),
      rk(size_t(k.numel())), rv(size_t(v.numel())), p(size_t(B * H * L * S));
  auto each = [&](auto&& f) {
    for (int64_t b = 0; b < B; ++b)
      for (int64_t h = 0; h < H; ++h)
        for (int64_t i = 0; i < L; ++i) f((b * H + h) * L + i, (b * Hk + h / group) * S, i);
  };
  each([&](int64_t row, int64_t key, int64_t i) {
    double top = -INFINITY, sum = 0;
    double* at = &p[size_t(row * S)];
    for (int64_t j = 0; j < S; ++j) {
      at[j] = 0;
      for (int64_t e = 0; e < E; ++e) at[j] += q.get(row * E + e) * k.get((key + j) * E + e) * scale;
      if (masking) at[j] += bias.get(row * S + j);
      if (causal && j > i) at[j] = -INFINITY;
      top = std::max(top, at[j]);
    }
    for (int64_t j = 0; j < S; ++j) at[j] = top == -INFINITY ? 0 : std::exp(at[j] - top), sum += at[j];
    rl[size_t(row)] = sum == 0 ? -INFINITY : top + std::log(sum);
    for (int64_t j = 0; j < S; ++j) {
      at[j] = sum == 0 ? 0 : at[j] / sum;
      for (int64_t e = 0; e < Ev; ++e) ro[size_t(row * Ev + e)] += at[j] * v.get((key + j) * Ev + e);
    }
  });
  auto compare = [&](const char* what, const Operand& got, const std::vector<double>& want,
                     double tolerance) {
    double size = 1;
    for (double w : want)
      if (!std::isinf(w)) size = std::max(size, std::fabs(w));
    for (int64_t i = 0; i < got.numel(); ++i) {
      if (!CHECK_THAT(
              near(got.get(i), want[size_t(i)], 0, tolerance * size),
              "attention %s %s [%ld, %ld/%ld, %ld, %ld, %ld, %ld] causal %d mask %d: %g, not %g at %ld", what,
              text_of(dtype), long(B), long(H), long(Hk), long(L), long(S), long(E), long(Ev), causal,
              masking, got.get(i), want[size_t(i)], long(i)))
        return;
    }
  };
  double tolerance = dtype == FL_F64 ? 1e-13 : dtype == FL_F32 ? 5e-6 : 2 * epsilon(dtype);
  fl_attention_args args{q.view(), k.view(), v.view(), out.view(), lse.view(), masking ? &bias : nullptr,
                         scale,    causal,   0};
  fl_launch l = launch();
  if (!ran(chip->op->attention(&l, &args))) return;
  compare("out", out, ro, tolerance);
  compare("lse", lse, rl, dtype == FL_F64 ? 1e-13 : 5e-6);

  // delta is taken from the rounded output, as the chip has it.
  each([&](int64_t row, int64_t key, int64_t) {
    double delta = 0;
    for (int64_t e = 0; e < Ev; ++e) delta += go.get(row * Ev + e) * out.get(row * Ev + e);
    for (int64_t j = 0; j < S; ++j) {
      double pj = p[size_t(row * S + j)], dp = 0;
      for (int64_t e = 0; e < Ev; ++e)
        dp += go.get(row * Ev + e) * v.get((key + j) * Ev + e),
            rv[size_t((key + j) * Ev + e)] += pj * go.get(row * Ev + e);
      double ds = pj * (dp - delta) * scale;
      for (int64_t e = 0; e < E; ++e)
        rq[size_t(row * E + e)] += ds * k.get((key + j) * E + e),
            rk[size_t((key + j) * E + e)] += ds * q.get(row * E + e);
    }
  });
  fl_attention_backward_args back{
      q.view(),  k.view(),  v.view(),  out.view(), lse.view(), go.view(), masking ? &bias : nullptr,
      gq.view(), gk.view(), gv.view(), scale,      causal,     0};
  if (!ran(chip->op->attention_backward(&l, &back))) return;
  compare("grad q", gq, rq, tolerance), compare("grad k", gk, rk, tolerance),
      compare("grad v", gv, rv, tolerance);
}

}  // namespace

int main(int argc, char** argv) {
  load_chip(argc > 1 ? argv[1] : FL_TEST_SIM);
  const int kFloats[] = {FL_F32, FL_F64, FL_F16, FL_BF16};
  for (int dtype : kFloats) {
    for (int i = 0; i < 36; ++i) convolution(dtype, 1 + i % 3);
    for (int i = 0; i < 12; ++i) {
      for (int kind : {FL_POOL_MAX, FL_POOL_AVERAGE, FL_POOL_ADAPTIVE_AVERAGE})
        pooling(dtype, kind, 1 + i % 3);
    }
    for (int i = 0; i < 24; ++i) attention(dtype);
  }
  for (int dtype : {FL_U8, FL_I8, FL_I16, FL_I32, FL_I64}) {
    for (int i = 0; i < 6; ++i) pooling(dtype, FL_POOL_MAX, 1 + i % 3);
  }
  return check::result();
}
