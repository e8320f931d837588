// Gamma, Dirichlet, Poisson and binomial numbers.  Samplers by rejection run a fixed number of rounds over
// all elements, so that nothing waits for the device; what no round accepts (less than one in 10^7) becomes a
// number near the mean.  A number not accepted yet is NaN.
#include <cmath>
#include <limits>

#include "bridge/ops/random.h"
#include "program/expr.h"

namespace fl::bridge {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// The programs of a sampler: one for each step and type.
class Steps {
 public:
  Steps(Call& call, Programs& programs, ScalarType dtype)
      : call_(call), programs_(programs), type_(to_dtype(dtype)) {}
  uint8_t type() const { return type_; }

  // outputs[i] = build's i-th value over the inputs, all of the sampler's type.
  template <size_t N, class F>  // std::array<Expr, N>(const Expr* in)
  void run(int step, const std::array<const Tensor*, N>& outputs, std::initializer_list<const Tensor*> inputs,
           F&& build) {
    const fl_program* program = programs_.get(key_of(step, type_), [&](Builder& b) {
      Expr in[FL_MAX_INPUTS];
      for (size_t i = 0; i < inputs.size(); ++i) in[i] = {&b, b.load(static_cast<int>(i), type_)};
      auto values = build(in);
      for (size_t i = 0; i < N; ++i) b.store(static_cast<int>(i), values[i].v, type_);
    });
    bool done = false;
    if constexpr (N == 1) done = run_program(call_, program, {outputs[0]}, inputs);
    else done = run_program(call_, program, {outputs[0], outputs[1], outputs[2]}, inputs);
    if (!done) throw_refused(call_, "pointwise", to_scalar_type(type_));
  }
  template <class F>  // Expr(const Expr* in)
  void run(int step, const Tensor& output, std::initializer_list<const Tensor*> inputs, F&& build) {
    run<1>(step, {&output}, inputs, [&](const Expr* in) { return std::array<Expr, 1>{build(in)}; });
  }

 private:
  Call& call_;
  Programs& programs_;
  uint8_t type_;
};

double smallest(uint8_t type) {
  return type == FL_F64 ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
}
Expr floor(Expr x) { return apply(FL_OP_FLOOR, x); }

// ------------------------------------------------------------------- gamma
// G. Marsaglia and W. W. Tsang, A simple method for generating gamma variables, ACM TOMS 26(3), 2000: at
// least 95% of a round's numbers are accepted.  Below 1: gamma(a + 1) × U**(1/a).
constexpr int kGammaRounds = 8;

Tensor gamma_numbers(Call& call, const Tensor& alpha, const Tensor& like, const Generator& generator) {
  static Programs programs;
  Steps steps(call, programs, alpha.scalar_type());
  Tensor value = empty_like(alpha, like.sizes(), alpha.scalar_type());
  auto mean = [](Expr a) { return select(a < 1, a + 1.0, a) - 1.0 / 3; };
  auto round = [&](Expr a, Expr normal, Expr u) {
    Expr d = mean(a), w = normal * rsqrt(d * 9.0), v = w * (w * (w + 3.0) + 3.0);  // (1 + w)**3 - 1
    Expr bound = normal * normal * 0.5 + d * (log1p(w) * 3.0 - v);
    return select((w > -1) & (log(1.0 - u) < bound), d * (v + 1.0), a.like(kNaN));
  };
  for (int i = 0; i < kGammaRounds; ++i) {
    Tensor normal = draw_like(call, like, Draw::kNormal, generator);
    Tensor u = draw_like(call, like, Draw::kUniform, generator);
    if (i == 0)
      steps.run(0, value, {&alpha, &normal, &u}, [&](const Expr* in) { return round(in[0], in[1], in[2]); });
    else
      steps.run(1, value, {&alpha, &normal, &u, &value},
                [&](const Expr* in) { return select(is_nan(in[3]), round(in[0], in[1], in[2]), in[3]); });
  }
  Tensor u = draw_like(call, like, Draw::kUniform, generator);
  steps.run(2, value, {&alpha, &u, &value}, [&](const Expr* in) {
    Expr a = in[0], x = select(is_nan(in[2]), mean(a), in[2]);
    Expr small = x * exp(log(1.0 - in[1]) / a);
    x = select(a < 1, select(a == 0, a, small), x);
    return max(x, smallest(steps.type()));
  });
  return value;
}

Tensor standard_gamma(const Tensor& self, Generator generator) {
  static Op op("aten::_standard_gamma");
  Tensor out = at::empty_like(self);
  if (self.numel() == 0) return out;
  Call call(op, self);
  call.composed();
  copy_step(out, gamma_numbers(call, self.to(real_dtype(call, self.scalar_type())), out, generator));
  return out;
}

Tensor dirichlet(const Tensor& self, Generator generator) {
  static Op op("aten::_sample_dirichlet");
  Tensor out = at::empty_like(self);
  if (self.numel() == 0) return out;
  Call call(op, self);
  call.composed();
  Tensor gamma = gamma_numbers(call, self.to(real_dtype(call, self.scalar_type())), out, generator);
  gamma.div_(gamma.sum(-1, true));
  double epsilon = gamma.scalar_type() == at::kDouble ? 0x1p-53 : 0x1p-24;
  gamma.clamp_(smallest(dtype_of(gamma)), 1 - epsilon);
  copy_step(out, gamma);
  return out;
}

// -------------------------------------------------------- counts, by search
// The least count whose distribution function reaches u, from the first probability and the ratio of each to
// the one before.
struct Search {
  Expr probability, sum, count;
  template <class Ratio>  // Expr(int k): of k + 1 to k
  void run(Expr u, int from, int to, Ratio&& ratio) {
    for (int k = from; k < to; ++k) {
      count = count + (u > sum).cast(u.type());
      probability = probability * ratio(k);
      sum = sum + probability;
    }
  }
};
// Below 1 by more than the rounding of a sum of probabilities.
Expr below_one(Expr u) { return min(u, u.type() == FL_F64 ? 1 - 0x1p-48 : 1 - 0x1p-21); }

// -------------------------------------------------- counts, by rejection
// (1 + d) log(1 + d) - d: near 0 its terms would cancel.
Expr deviance(Expr d) {
  Expr sum = d.like(1.0 / (14 * 13));
  for (int n = 13; n >= 2; --n) sum = 1.0 / (n * (n - 1)) - sum * d;
  return select(abs(d) < 0.2, d * d * sum, (d + 1.0) * log1p(d) - d);
}
// log k! - log(sqrt(2 pi k) (k/e)**k), for k > 0.
Expr stirling_error(Expr k) {
  Expr r = reciprocal(k), z = r * r;
  return r * (1.0 / 12 - z * (1.0 / 360 - z * (1.0 / 1260 - z * (1.0 / 1680))));
}
// C. Loader, Fast and accurate computation of binomial probabilities, 2000: no large numbers cancel.
Expr log_poisson(Expr k, Expr rate) {
  Expr value = log(k * (2 * M_PI)) * -0.5 - stirling_error(k) - rate * deviance((k - rate) / rate);
  return select(k == 0, -rate, value);
}
// Without what does not depend on k.
Expr log_binomial(Expr k, Expr n, Expr p, Expr log_p, Expr log_q) {
  Expr rest = n - k, mean = n * p, other = n - mean;
  Expr value = log(k * rest / n) * -0.5 - stirling_error(k) - stirling_error(rest) -
               mean * deviance((k - mean) / mean) - other * deviance((rest - other) / other);
  double ends = 0.5 * std::log(2 * M_PI);  // at 0 and n one of the factorials is 1
  Expr at_0 = n * log_q + ends - stirling_error(n), at_n = n * log_p + ends - stirling_error(n);
  return select(k <= 0, at_0, select(rest <= 0, at_n, value));
}
// The proposal of both samplers: k, and what V has to stay below.
struct Proposal {
  Expr k, us, scale;
  Proposal(Expr u, Expr a, Expr b, Expr shift)
      : k(floor((a * 2.0 / (0.5 - abs(u)) + b) * u + shift)), us(0.5 - abs(u)), scale(a / (us * us) + b) {}
  // at_once: the region without a logarithm.
  Expr decide(Expr v, Expr at_once, Expr log_factor, Expr log_target, Expr possible) const {
    Expr good = possible & ((us >= 0.013) | (v <= us)) & (log(v) + log_factor - log(scale) <= log_target);
    return select(((us >= 0.07) & (v <= at_once)) | good, k, k.like(kNaN));
  }
};
constexpr int kCountRounds = 12;  // a round accepts at least 3 of 4

// W. Hörmann, The transformed rejection method for generating Poisson random variables, Insurance:
// Mathematics and Economics 12, 1993 (PTRS), from 10 on; below by search.
Tensor poisson(const Tensor& self, Generator generator) {
  static Op op("aten::poisson");
  static Programs programs;
  Tensor out = at::empty_like(self);
  if (self.numel() == 0) return out;
  Call call(op, self);
  call.composed();
  Tensor rate = self.to(real_dtype(call, self.scalar_type()));
  check_values(op, rate, 0, std::numeric_limits<double>::infinity(), "rates must not be below 0");
  Steps steps(call, programs, rate.scalar_type());
  Tensor value = empty_like(rate, out.sizes(), rate.scalar_type());
  Tensor u = draw_like(call, out, Draw::kUniform, generator), v;
  steps.run(0, value, {&rate, &u}, [](const Expr* in) {
    Expr small = min(in[0], 10.0), first = exp(-small);
    Search search{first, first, small.like(0)};
    search.run(below_one(in[1]), 0, 32, [&](int k) { return small * (1.0 / (k + 1)); });
    return select((in[0] >= 0) & (in[0] < 10), search.count, in[0].like(kNaN));
  });
  for (int i = 0; i < kCountRounds; ++i) {
    u = draw_like(call, out, Draw::kUniform, generator);
    v = draw_like(call, out, Draw::kUniform, generator);
    steps.run(1, value, {&rate, &u, &v, &value}, [](const Expr* in) {
      Expr rate = max(in[0], 10.0), b = sqrt(rate) * 2.53 + 0.931, a = b * 0.02483 - 0.059;
      Expr log_factor = log(1.1239 + 1.1328 / (b - 3.4));
      Proposal proposal(in[1] - 0.5, a, b, rate + 0.43);
      Expr k = proposal.k;
      Expr next =
          proposal.decide(1.0 - in[2], 0.9277 - 3.6224 / (b - 2.0), log_factor, log_poisson(k, rate), k >= 0);
      return select(is_nan(in[3]), next, in[3]);
    });
  }
  steps.run(2, value, {&rate, &value}, [](const Expr* in) {
    return select(in[0] >= 0, select(is_nan(in[1]), floor(in[0]), in[1]), in[0].like(kNaN));
  });
  copy_step(out, value);
  return out;
}

// W. Hörmann, The generation of binomial random variates, Journal of Statistical Computation and Simulation
// 46, 1993 (BTRS), where the mean is 10 or more; below by search.  A probability above 1/2 counts the
// failures.
Tensor binomial(const Tensor& count_in, const Tensor& prob_in, Generator generator) {
  static Op op("aten::binomial");
  static Programs programs;
  at::DimVector sizes = at::infer_size_dimvector(count_in.sizes(), prob_in.sizes());
  Tensor out = at::empty(sizes, count_in.options());
  if (out.numel() == 0) return out;
  Call call(op, count_in);
  call.view(prob_in);  // on the same device
  call.composed();
  ScalarType dtype = real_dtype(call, count_in.scalar_type());
  Tensor count = count_in.to(dtype), prob = prob_in.to(dtype);
  Steps steps(call, programs, dtype);
  auto make = [&] { return empty_like(count, sizes, dtype); };
  Tensor value = make(), probability = make(), sum = make();
  Tensor u = draw_like(call, out, Draw::kUniform, generator), v;
  auto rarer = [](Expr p) { return min(p, 1.0 - p); };
  // Both halves of the search: one program would be too long.
  constexpr int kHalf = 17;
  auto search = [&](int from, Search& s, const Expr* in) {
    Expr odds = rarer(in[1]) / (1.0 - rarer(in[1]));
    s.run(below_one(in[2]), from, from + kHalf,
          [&](int k) { return (in[0] - double(k)) * odds * (1.0 / (k + 1)); });
    return std::array<Expr, 3>{s.count, s.probability, s.sum};
  };
  steps.run<3>(0, {&value, &probability, &sum}, {&count, &prob, &u}, [&](const Expr* in) {
    Expr first = exp(in[0] * log1p(-rarer(in[1])));
    Search s{first, first, first.like(0)};
    return search(0, s, in);
  });
  steps.run<3>(1, {&value, &probability, &sum}, {&count, &prob, &u, &value, &probability, &sum},
               [&](const Expr* in) {
                 Search s{in[4], in[5], in[3]};
                 auto found = search(kHalf, s, in);
                 found[0] = select(in[0] * rarer(in[1]) < 10, min(found[0], in[0]), in[0].like(kNaN));
                 return found;
               });
  Tensor& most = sum;  // of the probability, its logarithm: the search is over
  auto log_probability = [&](const Expr* in, Expr k) {
    Expr p = rarer(in[1]);
    return log_binomial(k, in[0], p, log(p), log1p(-p));
  };
  steps.run(4, most, {&count, &prob},
            [&](const Expr* in) { return log_probability(in, floor((in[0] + 1.0) * rarer(in[1]))); });
  for (int i = 0; i < kCountRounds; ++i) {
    u = draw_like(call, out, Draw::kUniform, generator);
    v = draw_like(call, out, Draw::kUniform, generator);
    steps.run(2, value, {&count, &prob, &u, &v, &value, &most}, [&](const Expr* in) {
      Expr n = in[0], p = rarer(in[1]), mean = max(n * p, 10.0), deviation = sqrt(mean * (1.0 - p));
      Expr b = deviation * 2.53 + 1.15, a = b * 0.0248 - 0.0873 + p * 0.01;
      Proposal proposal(in[2] - 0.5, a, b, mean + 0.5);
      Expr k = proposal.k, log_factor = log((5.1 / b + 2.83) * deviation);
      Expr target = log_probability(in, k) - in[5];
      Expr next = proposal.decide(1.0 - in[3], 0.92 - 4.2 / b, log_factor, target, (k >= 0) & (k <= n));
      return select(is_nan(in[4]), next, in[4]);
    });
  }
  steps.run(3, value, {&count, &prob, &value}, [&](const Expr* in) {
    Expr n = in[0], p = in[1], k = select(is_nan(in[2]), floor(n * rarer(p)), in[2]);
    k = select(p > 0.5, n - k, k);
    k = select((n <= 0) | (p <= 0), n.like(0), select(p >= 1, n, k));
    return select(is_nan(n) | is_nan(p), n.like(kNaN), k);
  });
  copy_step(out, value);
  return out;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_standard_gamma", standard_gamma);
  m.impl("_sample_dirichlet", dirichlet);
  m.impl("poisson", poisson);
  m.impl("binomial", binomial);
}

}  // namespace
}  // namespace fl::bridge
