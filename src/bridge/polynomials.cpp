// Orthogonal polynomials of a degree that varies from point to point.
#include <ATen/CPUFunctions.h>
#include <ATen/native/BinaryOps.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "bridge/iterator.h"
#include "bridge/ops/programs.h"

namespace fl::bridge {

using namespace at::native;

constexpr double kInf = std::numeric_limits<double>::infinity();

// The degree as PyTorch reads it: truncated; what is not finite is negative, and gives 0.
static Expr degree(Expr n) { return select(abs(n) < 0x1p63, trunc(n), n.like(-1)); }
static Expr is_odd(Expr n) { return n - 2.0 * apply(FL_OP_FLOOR, n * 0.5) != 0; }

// Chebyshev's four kinds by trigonometry within [-1, 1] and hyperbolic functions
// outside (Abramowitz and Stegun 22.3.15): any degree at the same price.  With x = cos a, T = cos(n a),
// U = sin((n + 1) a) / sin a, V = cos((n + 1/2) a) / cos(a / 2), W = sin((n + 1/2) a) / sin(a / 2);
// V and W change places where x changes sign.
enum Kind { kT, kU, kV, kW };
static Expr chebyshev(Kind kind, Expr x, Expr raw_degree) {
  Expr n = degree(raw_degree), odd = is_odd(n), one = x.like(1), size = abs(x), negative = x < 0;
  Expr shift = n + (kind == kT ? 0.0 : kind == kU ? 1.0 : 0.5);
  auto part = [&](Expr angle) { return kind == kU ? angle : angle * 0.5; };
  auto trigonometric = [&](Expr angle) {
    uint16_t f = kind == kU || kind == kW ? FL_OP_SIN : FL_OP_COS;
    return kind == kT ? cos(n * angle) : apply(f, shift * angle) / apply(f, part(angle));
  };
  // By exponentials whose product overflows where the polynomial does, not before.
  auto hyperbolic = [&](Expr many, Expr angle, bool as_sine) {
    Expr few = kind == kT ? angle.like(std::numbers::ln2) : part(angle), size = exp(many - few);
    if (kind == kT) return size * (exp(many * -2.0) + 1.0);
    return as_sine ? size * expm1(many * -2.0) / expm1(few * -2.0)
                   : size * (exp(many * -2.0) + 1.0) / (exp(few * -2.0) + 1.0);
  };
  Expr inside = trigonometric(apply(FL_OP_ACOS, x));
  Expr h = apply(FL_OP_ACOSH, size), right = hyperbolic(shift * h, h, kind != kV), left = right;
  if (kind == kV || kind == kW) left = hyperbolic(shift * h, h, kind == kV);
  Expr outside = select(negative, select(odd, -left, left), right);
  // PyTorch's recurrence goes on from an infinite number to NaN.
  Expr nan = x.like(std::numeric_limits<double>::quiet_NaN()), infinity = x.like(kInf);
  Expr before = hyperbolic((shift - 2.0) * h, h, kind != kV);
  outside = select(before == kInf, nan, outside);
  outside = select(size == kInf, select(n == 1, x, select(n == 2, infinity, nan)), outside);
  // At -1 and 1: 1, n + 1 or 2n + 1.
  Expr most = kind == kU ? n + 1.0 : 2.0 * n + 1.0, at_right = one, at_left = one;
  if (kind == kU || kind == kW) at_right = most;
  if (kind == kU || kind == kV) at_left = most;
  Expr border = select(negative, select(odd, -at_left, at_left), at_right);
  Expr value = select(size == 1, border, select(size < 1, inside, outside));
  return select(n < 0, x.like(0), select(n == 0, one, value));
}
static Expr shifted(Kind kind, Expr x, Expr n) { return chebyshev(kind, 2.0 * x - 1.0, n); }

// The others by their recurrence, kSteps degrees a program.
enum Family { kHermiteH, kHermiteHe, kLaguerre, kLegendre };
constexpr int kSteps = 15;

static Expr first_degree(Family family, Expr x) {
  return family == kHermiteH ? x + x : family == kLaguerre ? 1.0 - x : x;
}
// Degree k + 1 from q of degree k and p of degree k - 1 (Abramowitz and Stegun 22.7).
// Fused as in PyTorch's CPU kernels: near a zero of the polynomial it shows.
static Expr next_degree(Family family, Expr x, Expr k, Expr q, Expr p) {
  auto combined = [&](Expr a, Expr b) { return apply(FL_OP_FMA, a, q, -(b * p)); };
  switch (family) {
    case kHermiteH:
      return combined(x + x, k + k);
    case kHermiteHe:
      return combined(x, k);
    case kLaguerre:
      return combined(k + k + (1.0 - x), k) / (k + 1.0);
    default:
      return combined((k + k + 1.0) * x, k) / (k + 1.0);
  }
}
static Expr finished(Family family, Expr x, Expr n, Expr q) {
  Expr one = x.like(1);
  Expr value = select(n < 0, x.like(0), select(n == 0, one, q));
  // PyTorch's own limits.
  if (family == kHermiteH || family == kHermiteHe)
    return select(n > (x.type() == FL_F64 ? 512 : 128), x.like(std::numeric_limits<double>::quiet_NaN()),
                  value);
  if (family == kLaguerre) return select((x == 0) & (n >= 0), one, value);
  return select((abs(x) == 1) & (n >= 0), select((x < 0) & is_odd(n), -one, one), value);
}

// Reads the highest degree, which says how many programs there are.
static double highest_degree(const Tensor& degrees) {
  Tensor n =
      degrees.scalar_type() == at::kUInt64 ? degrees.view(at::kLong) : degrees;  // as the register reads it
  double most = n.max().item<double>();
  // What no int64 holds has no degree, as on the CPU.
  return std::abs(most) < 0x1p63 ? most : at::where(n.abs() < 0x1p63, n, -1).max().item<double>();
}

static bool recurrence(Op& op, Family family, at::TensorIteratorBase& iter) {
  static Programs programs;
  if (iter.numel() == 0) return true;
  Call call(op, iter.device(0));
  ScalarType dtype = iter.common_dtype();
  uint8_t common = to_dtype(dtype), type = to_register(dtype);
  if (!call.claims(FL_ENTRY_POINTWISE, FL_OP_DIV, type)) return false;
  call.composed();
  const Tensor& out = iter.tensor(0);
  Tensor x = iter.tensor(1), n = iter.tensor(2);
  double most = highest_degree(n);
  if (family == kHermiteH || family == kHermiteHe) most = std::min(most, 512.0);
  if (!is_fl(x)) x = x.to(out.device(), dtype);
  if (!is_fl(n)) n = n.to(out.device(), dtype);
  uint8_t tx = dtype_of(x), tn = dtype_of(n), to = dtype_of(out);
  Tensor p, q;
  for (int64_t k = 1;; k += kSteps) {
    bool begins = k == 1, ends = static_cast<double>(k + kSteps) >= most;
    if (begins && !ends) {
      p = at::empty(out.sizes(), out.options().dtype(dtype));
      q = at::empty_like(p);
    }
    const fl_program* program =
        programs.get(key_of(family, begins, ends, common, tx, tn, to), [&](Builder& b) {
          Expr vx{&b, b.load(0, tx, type)}, vn = degree({&b, b.load(1, tn, type)});
          Expr vp = begins ? vx.like(1) : Expr{&b, b.load(2, common)};
          Expr vq = begins ? first_degree(family, vx) : Expr{&b, b.load(3, common)};
          Expr start{&b, b.scalar(0, type)};
          for (int i = 0; i < kSteps; ++i) {
            Expr step = start + i, more = step < vn, r = next_degree(family, vx, step, vq, vp);
            vp = select(more, vq, vp), vq = select(more, r, vq);
          }
          if (ends) {
            b.store(0, finished(family, vx, vn, vq).cast(register_type(to)).v, to);
          } else {
            b.store(0, vp.v, common);
            b.store(1, vq.v, common);
          }
        });
    fl_scalar start = scalar_f(static_cast<double>(k));
    bool done = begins && ends ? run_program(call, program, {&out}, {&x, &n}, {start})
                : begins       ? run_program(call, program, {&p, &q}, {&x, &n}, {start})
                : ends         ? run_program(call, program, {&out}, {&x, &n, &p, &q}, {start})
                               : run_program(call, program, {&p, &q}, {&x, &n, &p, &q}, {start});
    if (!done) return false;
    if (ends) return true;
  }
}

// clang-format off
STUB(chebyshev_polynomial_t_stub, "aten::special_chebyshev_polynomial_t", chebyshev(kT, x, y))
STUB(chebyshev_polynomial_u_stub, "aten::special_chebyshev_polynomial_u", chebyshev(kU, x, y))
STUB(chebyshev_polynomial_v_stub, "aten::special_chebyshev_polynomial_v", chebyshev(kV, x, y))
STUB(chebyshev_polynomial_w_stub, "aten::special_chebyshev_polynomial_w", chebyshev(kW, x, y))
STUB(shifted_chebyshev_polynomial_t_stub, "aten::special_shifted_chebyshev_polynomial_t", shifted(kT, x, y))
STUB(shifted_chebyshev_polynomial_u_stub, "aten::special_shifted_chebyshev_polynomial_u", shifted(kU, x, y))
STUB(shifted_chebyshev_polynomial_v_stub, "aten::special_shifted_chebyshev_polynomial_v", shifted(kV, x, y))
STUB(shifted_chebyshev_polynomial_w_stub, "aten::special_shifted_chebyshev_polynomial_w", shifted(kW, x, y))

#define RECURRENCE(stub, name, family)                                                                   \
  namespace stub##_fl {                                                                                  \
  static Op op(name);                                                                                    \
  constexpr auto kernel = [](auto& iter) {                                                               \
    if (!recurrence(op, family, iter))                                                                   \
      run_on_host(op, iter, [](at::TensorIterator& host) { at::native::stub(at::kCPU, host); });         \
  };                                                                                                     \
  }                                                                                                      \
  FL_REGISTER_STUB(stub, ::fl::bridge::stub##_fl::kernel)
RECURRENCE(hermite_polynomial_h_stub, "aten::special_hermite_polynomial_h", kHermiteH)
RECURRENCE(hermite_polynomial_he_stub, "aten::special_hermite_polynomial_he", kHermiteHe)
RECURRENCE(laguerre_polynomial_l_stub, "aten::special_laguerre_polynomial_l", kLaguerre)
RECURRENCE(legendre_polynomial_p_stub, "aten::special_legendre_polynomial_p", kLegendre)

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  OUT(special_chebyshev_polynomial_t, out) OUT(special_chebyshev_polynomial_u, out)
  OUT(special_chebyshev_polynomial_v, out) OUT(special_chebyshev_polynomial_w, out)
  OUT(special_hermite_polynomial_h, out) OUT(special_hermite_polynomial_he, out)
  OUT(special_laguerre_polynomial_l, out) OUT(special_legendre_polynomial_p, out)
  OUT(special_shifted_chebyshev_polynomial_t, out) OUT(special_shifted_chebyshev_polynomial_u, out)
  OUT(special_shifted_chebyshev_polynomial_v, out) OUT(special_shifted_chebyshev_polynomial_w, out)
}

}  // namespace fl::bridge
// clang-format on
