// Attention, forward and backward ([ATT-1]), and the multi-tensor program.
#include <cmath>

#include "fast.h"
#include "launches.h"

namespace kit {

namespace {

struct Attention {
  int64_t B = 2, H = 4, Hk = 2, L = 7, S = 9, E = 8, Ev = 6;
  bool causal = false, bias = false, mask_row = false;
  Layout layout = Layout::contiguous;
};

void check(Session& session, unsigned d, const Attention& r, bool backward) {
  Random random(d + r.L);
  unsigned s = statistic_type(d);
  const double scale = 0.3;
  Array q = Array::random(random, d, {r.B, r.H, r.L, r.E}, -1, 1),
        k = Array::random(random, d, {r.B, r.Hk, r.S, r.E}, -1, 1);
  Array v = Array::random(random, d, {r.B, r.Hk, r.S, r.Ev}, -1, 1),
        bias = Array::random(random, d, {1, r.H, r.L, r.S}, -1, 1);
  Array g = Array::random(random, d, {r.B, r.H, r.L, r.Ev}, -1, 1);
  if (r.mask_row)
    for (int64_t i = 0; i < bias.numel(); ++i)
      if (i / r.S % r.L == 2 || (i % r.S) % 3 == 1) bias.set(i, Number::floating(-kInfinity));
  std::vector<real> queries = reals(q), keys = reals(k), values = reals(v), biases = reals(bias),
                    grads = reals(g);
  std::vector<real> out(g.numel()), lse(r.B * r.H * r.L), gq(q.numel()), gk(k.numel()), gv(v.numel());
  for (int64_t row = 0; row < r.B * r.H * r.L; ++row) {
    int64_t b = row / (r.H * r.L), h = row / r.L % r.H, l = row % r.L,
            kv = (b * r.Hk + h / (r.H / r.Hk)) * r.S;
    std::vector<real> p(r.S);
    real top = -kInfinity, sum = 0;
    for (int64_t j = 0; j < r.S; ++j) {
      real dot = 0;
      for (int64_t e = 0; e < r.E; ++e) dot += queries[row * r.E + e] * keys[(kv + j) * r.E + e];
      p[j] = dot * scale + (r.bias ? biases[(h * r.L + l) * r.S + j] : 0);
      if (r.causal && j > l) p[j] = -kInfinity;
      top = std::max(top, p[j]);
    }
    bool none = std::isinf(top);
    for (real& x : p) x = none ? 0 : std::exp(x - top), sum += x;
    lse[row] = none ? -kInfinity : top + std::log(sum);
    for (real& x : p) x = none ? 0 : x / sum;
    real delta = 0;
    std::vector<real> dp(r.S);
    for (int64_t j = 0; j < r.S; ++j)
      for (int64_t e = 0; e < r.Ev; ++e) {
        out[row * r.Ev + e] += p[j] * values[(kv + j) * r.Ev + e];
        gv[(kv + j) * r.Ev + e] += p[j] * grads[row * r.Ev + e];
        dp[j] += grads[row * r.Ev + e] * values[(kv + j) * r.Ev + e];
      }
    for (int64_t j = 0; j < r.S; ++j) delta += p[j] * dp[j];
    for (int64_t j = 0; j < r.S; ++j)
      for (int64_t e = 0; e < r.E; ++e) {
        gq[row * r.E + e] += scale * p[j] * (dp[j] - delta) * keys[(kv + j) * r.E + e];
        gk[(kv + j) * r.E + e] += scale * p[j] * (dp[j] - delta) * queries[row * r.E + e];
      }
  }
  std::string what =
      text("H %lld/%lld, L %lld, S %lld%s%s, %s", (long long)r.H, (long long)r.Hk, (long long)r.L,
           (long long)r.S, r.causal ? ", causal" : "", r.bias ? ", bias" : "", layout_name(r.layout));
  Tensor tq = session.put(q, r.layout), tk = session.put(k, r.layout), tv = session.put(v, r.layout),
         tb = session.put(bias);
  fl_tensor bias_view = *tb;
  std::vector<int64_t> bias_sizes = {r.B, r.H, r.L, r.S}, bias_strides = tb.strides;
  bias_strides[0] = 0;
  bias_view.sizes = bias_sizes.data(), bias_view.strides = bias_strides.data();
  if (!backward) {
    Tensor to = session.output(d, g.sizes, r.layout), tl = session.output(s, {r.B, r.H, r.L});
    fl_attention_args args{*tq, *tk, *tv, *to, *tl, r.bias ? &bias_view : nullptr, scale, r.causal, 0};
    ok(KIT_LAUNCH(attention, &session.launch, &args), "attention");
    expect_near(session, to, out, what);
    expect_near(session, tl, lse, "lse, " + what);
    return;
  }
  Array o(d, g.sizes), l(s, {r.B, r.H, r.L});
  for (int64_t i = 0; i < o.numel(); ++i) o.set(i, Number::floating(out[i]));
  for (int64_t i = 0; i < l.numel(); ++i) l.set(i, Number::floating(lse[i]));
  Tensor to = session.put(o), tl = session.put(l), tg = session.put(g, r.layout);
  Tensor tgq = session.output(d, q.sizes, r.layout), tgk = session.output(d, k.sizes),
         tgv = session.output(d, v.sizes, r.layout);
  fl_attention_backward_args args{*tq,  *tk,  *tv,  *to,   *tl,      *tg, r.bias ? &bias_view : nullptr,
                                  *tgq, *tgk, *tgv, scale, r.causal, 0};
  ok(KIT_LAUNCH(attention_backward, &session.launch, &args), "attention_backward");
  expect_near(session, tgq, gq, "grad_q, " + what);
  expect_near(session, tgk, gk, "grad_k, " + what);
  expect_near(session, tgv, gv, "grad_v, " + what);
}

void each(unsigned entry, bool backward) {
  Session session;
  for (unsigned d : claimed_or_skip(entry, FL_ANY))
    run_case(dtype_name(d), [&] {
      Attention plain, causal, biased, square, last, long_one, grouped;
      causal.causal = true, biased.bias = true;
      square.S = square.L, square.causal = true, square.Hk = 4;
      last.layout = Layout::transposed, last.bias = true;
      grouped.Hk = 1, grouped.layout = Layout::padded;
      long_one.L = 70, long_one.S = 150, long_one.E = long_one.Ev = 64, long_one.causal = true;
      for (const Attention& r : {plain, causal, biased, square, last, long_one, grouped})
        check(session, d, r, backward);
    });
}

KIT_TEST("attention", "every claimed dtype: grouped heads, causal, bias, layouts; lse") {
  each(FL_ENTRY_ATTENTION, false);
}
KIT_TEST("attention_backward", "the gradients of q, k and v") { each(FL_ENTRY_ATTENTION_BACKWARD, true); }

KIT_TEST("ATT-1", "a row whose keys are all masked gives zeros, and lse -inf") {
  Session session;
  for (unsigned d : claimed_or_skip(FL_ENTRY_ATTENTION, FL_ANY))
    run_case(dtype_name(d), [&] {
      Attention r;
      r.bias = r.mask_row = true;
      check(session, d, r, false);
      if (chip().claims(FL_ENTRY_ATTENTION_BACKWARD, FL_ANY, d)) check(session, d, r, true);
    });
}

KIT_TEST("multi_tensor", "one program over many tensors of different shapes, with shared and own scalars") {
  Session session;
  for (unsigned d : claimed_or_skip(FL_ENTRY_MULTI_TENSOR, FL_ANY))
    run_case(dtype_name(d), [&] {
      Random random(d);
      uint8_t memory = static_cast<uint8_t>(d), t = static_cast<uint8_t>(register_type(d));
      // p, m = p - rate × m × own, m × decay, in place
      fl::Builder b;
      fl::Value p = b.load(0, memory), m = b.load(1, memory);
      b.store(0, b.op(FL_OP_SUB, p, b.op(FL_OP_MUL, b.op(FL_OP_MUL, m, b.scalar(0, t)), b.scalar(2, t))),
              memory);
      b.store(1, b.op(FL_OP_MUL, m, b.scalar(1, t)), memory);
      const std::vector<std::vector<int64_t>> shapes = {{1}, {7}, {33, 65}, {2, 3, 4}, {70001}, {}, {100}};
      std::vector<Array> ps, ms;
      std::vector<Tensor> tensors;
      std::vector<fl_tensor> views;
      std::vector<fl_scalar> own;
      for (size_t i = 0; i < shapes.size(); ++i) {
        ps.push_back(Array::random(random, d, shapes[i])), ms.push_back(Array::random(random, d, shapes[i]));
        tensors.push_back(session.put(ps[i], i % 2 ? Layout::transposed : Layout::contiguous));
        tensors.push_back(session.put(ms[i]));
        own.push_back(scalar(t, Number::floating(0.125L * static_cast<real>(i + 1))));
      }
      for (Tensor& x : tensors) views.push_back(*x);
      fl_scalar shared[2] = {scalar(t, Number::floating(0.5L)), scalar(t, Number::floating(0.75L))};
      fl_multi_tensor_args args{
          b.finish(), views.data(), views.data(), shared, own.data(), static_cast<int32_t>(shapes.size()), 1};
      ok(KIT_LAUNCH(multi_tensor, &session.launch, &args), "multi_tensor");
      for (size_t i = 0; i < shapes.size(); ++i) {
        std::vector<real> new_p, new_m;
        for (int64_t k = 0; k < ps[i].numel(); ++k) {
          new_p.push_back(ps[i].at(k).re - ms[i].at(k).re * 0.5L * (0.125L * static_cast<real>(i + 1)));
          new_m.push_back(ms[i].at(k).re * 0.75L);
        }
        expect_near(session, tensors[2 * i], new_p, text("item %zu, p", i));
        expect_near(session, tensors[2 * i + 1], new_m, text("item %zu, m", i));
      }
    });
}

}  // namespace

}  // namespace kit
