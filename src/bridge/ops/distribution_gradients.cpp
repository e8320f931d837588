// How a gamma or Dirichlet number moves with its parameter: -(dF/da) / (dF/dx) of the distribution function
// F. M. Jankowiak and F. Obermeyer, Pathwise derivatives beyond the reparameterization trick, ICML 2018:
// series near the ends, expansions about the mean, and fitted rational functions between them, with the
// numbers that PyTorch uses on every device.  Computed in F64 where the chip has it, as on the CPU.
#include <algorithm>
#include <limits>

#include "program/expr.h"
#include "bridge/ops/programs.h"

namespace fl::bridge {
namespace {

Expr digamma(Expr x) { return apply(FL_OP_DIGAMMA, x); }
Expr zero_if_nan(Expr x) { return select(is_nan(x), x.like(0), x); }
Expr power_minus_3_2(Expr x) { return rsqrt(x) / x; }

template <size_t N>
Expr polynomial(Expr x, const double (&coefficients)[N]) {
  Expr sum = x.like(coefficients[N - 1]);
  for (size_t i = N - 1; i-- > 0;) sum = sum * x + coefficients[i];
  return sum;
}

// ------------------------------------------------------------------- gamma
Expr gamma_small_x(Expr a, Expr x) {
  Expr first = reciprocal(a), second = first * first, term = x.like(1);
  for (int i = 1; i <= 5; ++i) {
    Expr next = a + i;
    term = term * x * (-1.0 / i);
    first = first + term / next;
    second = second + term / (next * next);
  }
  // The powers of x in F and its density cancel but for one.
  return zero_if_nan(x * exp(x) * ((digamma(a) - log(x)) * first + second));
}

Expr gamma_near_mean(Expr a, Expr x) {
  Expr square = a * a, b = a * (a * 12.0 + 1.0) * 24.0 + 1.0;
  Expr c = square * 1440.0 + x * (53.0 - x * 120.0) * 6.0 - x * x * 65.0 / a + a * (x * 3600.0 + 107.0);
  return b * c / (square * square * 1244160.0);
}

Expr gamma_off_mean(Expr a, Expr x) {
  Expr ratio = log(x / a), away = a - x, root = sqrt(a * 8.0);
  Expr saddle = power_minus_3_2(-away - a * ratio);
  Expr slope = root / away + select(x < a, -saddle, saddle);
  Expr term = ratio * slope - sqrt(2.0 / a) * (a + x) / (away * away);
  Expr stirling = (reciprocal(a * 24.0) + 1.0) / (a * 12.0) + 1.0;
  return -stirling * x * term / root;
}

Expr gamma_between(Expr a, Expr x) {
  // In log(x/a), for each power of log(a): numerator, then denominator.
  static constexpr double kFit[2][4][3] = {{{0.16009398, 0.53487893, 0.040121004},
                                            {-0.094634809, 0.1298071, -0.0065914022},
                                            {0.025146376, 0.065735949, -0.0026286047},
                                            {-0.0030648343, -0.0015649758, -0.0013441777}},
                                           {{1, 0.16639465, 0.017050642},
                                            {0.32668115, 0.020070113, -0.0021309326},
                                            {0.10406089, -0.0035938915, 0.00085092367},
                                            {0.0014179084, -0.00058392623, -1.5247877e-07}}};
  Expr u = log(x / a), v = log(a);
  auto fit = [&](const double (&rows)[4][3]) {
    Expr sum = polynomial(u, rows[3]);
    for (int i = 2; i >= 0; --i) sum = sum * v + polynomial(u, rows[i]);
    return sum;
  };
  return exp(fit(kFit[0]) / fit(kFit[1]));
}

Expr gamma_gradient(Expr a, Expr x) {
  Expr near = (a * 0.9 <= x) & (x <= a * 1.1);
  Expr large = select(near, gamma_near_mean(a, x), gamma_off_mean(a, x));
  return select(x < 0.8, gamma_small_x(a, x), select(a > 8, large, gamma_between(a, x)));
}

// --------------------------------------------------------------- Dirichlet
// Each component is a beta number x with parameters a and b = total - a.
struct Beta {
  Expr x, a, total, b;
};

Expr beta_low(const Beta& p) {
  Expr factor = digamma(p.a) - digamma(p.total) - log(p.x), term = p.x.like(1), inverse = reciprocal(p.a);
  Expr sum = inverse * (factor + inverse);
  for (int i = 1; i <= 10; ++i) {
    term = term * (double(i) - p.b) * p.x * (1.0 / i);
    inverse = reciprocal(p.a + i);
    sum = sum + term * inverse * (factor + inverse);
  }
  return zero_if_nan(p.x * pow(1.0 - p.x, -p.b) * sum);
}

Expr beta_high(const Beta& p) {
  Expr y = 1.0 - p.x, factor = digamma(p.total) - digamma(p.a), term = y.like(1), product = y.like(1);
  Expr derivative = y.like(0), sum = factor / p.b;
  for (int i = 1; i <= 8; ++i) {
    Expr next = p.a - i;
    term = term * y * (-1.0 / i);
    derivative = derivative * next + product;
    product = product * next;
    sum = sum + term / (p.b + i) * (derivative + factor * product);
  }
  return zero_if_nan(pow(p.x, 1.0 - p.a) * sum);
}

Expr beta_near_mean(const Beta& p) {
  Expr x = p.x, a = p.a, b = p.b, y = 1.0 - x, b2 = b * b;
  Expr sum = (b * 135.0 - 11.0) * y * 8.0;
  sum = sum * a + (b * y * 1620.0 - x * 455.0 + 453.0) * b;
  sum = sum * a + (b * 180.0 - x * 90.0 + 59.0) * b2 * 3.0;
  sum = sum * a + ((b * 27.0 + 16.0) * x * 20.0 + 43.0) * b2 * b;
  sum = sum * a + x * b2 * b2 * 47.0;
  Expr above = (a * 12.0 + 1.0) * (b * 12.0 + 1.0) / (p.total * p.total);
  return above / y * sum / (a * a * a * b2 * (p.total * 12.0 + 1.0) * 12960.0);
}

Expr beta_off_mean(const Beta& p, Expr mean) {
  Expr x = p.x, a = p.a, b = p.b, t = p.total, y = 1.0 - x, away = b * x - a * y;
  auto stirling = [](Expr z) { return reciprocal(z * 12.0) + reciprocal(z * z * 288.0) + 1.0; };
  Expr scale = x * rsqrt(a * b * 2.0 / t) * stirling(a) * stirling(b) / stirling(t);
  Expr first = (a * a * y * 2.0 + a * b * y + x * b * b) / (sqrt(a * 2.0 / b) * t * sqrt(t) * away * away);
  Expr below = log(a / (t * x));
  Expr saddle = power_minus_3_2(b * log(b / (t * y)) + a * below);
  Expr second = below * 0.5 * (sqrt(a * b * 8.0 / t) / away + select(x < mean, saddle, -saddle));
  return scale * (first - second);
}

Expr beta_middle(const Beta& p) {
  Expr mean = p.a / p.total, deviation = sqrt(p.a * p.b / (p.total + 1.0)) / p.total;
  return select(abs(p.x - mean) <= deviation * 0.1, beta_near_mean(p), beta_off_mean(p, mean));
}

Expr beta_between(const Beta& p) {
  // In log(total) - log(a) + log(x), for each power of log(x) and of log(a) - log(x).
  static constexpr double kFit[2][3][3][4] = {
      {{{1.003668233, -0.01061107488, -0.0657888334, 0.01201642863},
        {0.6336835991, -0.3557432599, 0.05486251648, -0.001465281033},
        {-0.03276231906, 0.004474107445, 0.002429354597, -0.0001557569013}},
       {{0.221950385, -0.3187676331, 0.01799915743, 0.01074823814},
        {-0.2951249643, 0.06219954479, 0.01535556598, 0.001550077057},
        {0.02155310298, 0.004170831599, 0.001292462449, 6.976601077e-05}},
       {{-0.05980841433, 0.008441916499, 0.01085618172, 0.002319392565},
        {0.02911413504, 0.01400243777, -0.002721828457, 0.000751041181},
        {0.005900514878, -0.001936558688, -9.495446725e-06, 5.385558597e-05}}},
      {{{1, -0.02924021934, -0.04438342661, 0.007285809825},
        {0.6357567472, -0.3473456711, 0.05454656494, -0.002407477521},
        {-0.03301322327, 0.004845219414, 0.00231480583, -0.0002307248149}},
       {{0.5925320577, -0.1757678135, 0.01505928619, 0.000564515273},
        {0.1014815858, -0.06589186703, 0.01272886114, -0.0007316646956},
        {-0.007258481865, 0.001096195486, 0.0003934994223, -4.12701925e-05}},
       {{0.06469649321, -0.0236701437, 0.002902096474, -5.896963079e-05},
        {0.001925008108, -0.002869809258, 0.0008000589141, -6.063713228e-05},
        {-0.0003477407336, 6.959756487e-05, 1.097287507e-05, -1.650964693e-06}}}};
  Expr u = log(p.x), v = log(p.a) - u, w = log(p.total) - v;
  auto fit = [&](const double (&table)[3][3][4]) {
    Expr sum{};
    for (int i = 2; i >= 0; --i) {
      Expr row = polynomial(w, table[i][2]);
      for (int j = 1; j >= 0; --j) row = row * v + polynomial(w, table[i][j]);
      sum = i == 2 ? row : sum * u + row;
    }
    return sum;
  };
  return fit(kFit[0]) / fit(kFit[1]) * p.x * (digamma(p.total) - digamma(p.a)) / p.b;
}

// ------------------------------------------------------------------ operators
ScalarType computed_in(const Call& call) {
  return call.claims(FL_ENTRY_POINTWISE, FL_OP_DIGAMMA, FL_F64) ? at::kDouble : at::kFloat;
}
bool computable(const Call& call, ScalarType dtype) {
  return at::isFloatingType(dtype) &&
         call.claims(FL_ENTRY_POINTWISE, FL_OP_DIGAMMA, to_register(computed_in(call)));
}

Tensor standard_gamma_grad(const Tensor& self, const Tensor& output) {
  static Op op("aten::_standard_gamma_grad");
  static Programs programs;
  Call call(op, self);
  if (!computable(call, self.scalar_type())) return fallback<ATEN_OP(_standard_gamma_grad)>(self, output);
  at::DimVector sizes = at::infer_size_dimvector(self.sizes(), output.sizes());
  Tensor out = sizes == self.sizes() ? at::empty_like(self) : at::empty(sizes, self.options());
  const uint8_t type = to_dtype(computed_in(call)), ta = dtype_of(self), tx = dtype_of(output);
  const fl_program* program = programs.get(key_of(ta, tx, type), [&](Builder& b) {
    b.store(0, gamma_gradient({&b, b.load(0, ta, type)}, {&b, b.load(1, tx, type)}).v, ta);
  });
  if (!run_program(call, program, {&out}, {&self, &output}))
    throw_refused(call, "pointwise", self.scalar_type());
  return out;
}

// One program would be too long: each fills in its part of the plane.
Tensor dirichlet_grad(const Tensor& x, const Tensor& alpha, const Tensor& total) {
  static Op op("aten::_dirichlet_grad");
  static Programs programs;
  Call call(op, x);
  if (!computable(call, x.scalar_type())) return fallback<ATEN_OP(_dirichlet_grad)>(x, alpha, total);
  const ScalarType dtype = computed_in(call);
  const uint8_t type = to_dtype(dtype), memory = dtype_of(x), ta = dtype_of(alpha), tt = dtype_of(total);
  Tensor out = at::empty_like(x), value = dtype == x.scalar_type() ? out : empty_like(x, x.sizes(), dtype);
  if (out.numel() == 0) return out;
  call.composed();
  enum Part { kBetween, kMiddle, kHigh, kLow, kParts };
  for (int part = kBetween; part < kParts; ++part) {
    const bool last = part == kParts - 1;
    const fl_program* program = programs.get(key_of(memory, ta, tt, type, part), [&](Builder& b) {
      Beta p{{&b, b.load(0, memory, type)}, {&b, b.load(1, ta, type)}, {&b, b.load(2, tt, type)}, {}};
      p.b = p.total - p.a;
      Expr spread = p.total * p.x * (1.0 - p.x), v{};
      if (part == kBetween) {
        v = beta_between(p);
      } else {
        Expr before{&b, b.load(3, type)};
        if (part == kMiddle) v = select((p.a > 6) & (p.b > 6), beta_middle(p), before);
        if (part == kHigh) v = select((p.x >= 0.5) & (spread < 0.75), beta_high(p), before);
        if (part == kLow) v = select((p.x <= 0.5) & (spread < 2.5), beta_low(p), before);
      }
      b.store(0, v.v, last ? memory : type);
    });
    const Tensor& to = last ? out : value;
    if (!(part == kBetween ? run_program(call, program, {&to}, {&x, &alpha, &total})
                           : run_program(call, program, {&to}, {&x, &alpha, &total, &value})))
      throw_refused(call, "pointwise", x.scalar_type());
  }
  return out;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_standard_gamma_grad", standard_gamma_grad);
  m.impl("_dirichlet_grad", dirichlet_grad);
}

}  // namespace
}  // namespace fl::bridge
