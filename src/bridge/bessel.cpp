// Bessel and Airy functions as programs of mandatory opcodes, so that every chip has them.
//
// Near 0 they are power series (Abramowitz and Stegun, Handbook of Mathematical Functions, 9.1, 9.6 and
// 10.4.2), further out modulus and phase or an exponential (9.2, 9.7, 10.4.59) times a polynomial.  The
// tables are Chebyshev interpolants of those smooth parts over the whole range, made with 45 digits and
// written as polynomials in t, which runs from -1 to 1; each is exact to about 1e-17.
#include <ATen/CPUFunctions.h>
#include <ATen/NativeFunctions.h>
#include <ATen/native/UnaryOps.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "bridge/iterator.h"
#include "bridge/ops/programs.h"
#include "program/expansions.h"
#include "program/series.h"

namespace fl::bridge {

using namespace at::native;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kPi = std::numbers::pi;

// J0 / ((z - a)(z - b)) and J1 / (x (z - a)(z - b)), where a and b are the squares of the first two zeros:
// z = x * x = 32 (t + 1).
constexpr double kJ0[] = {0.0011434937743762545,   -0.0021197942894796919,  0.0015636431645931613,
                          -0.00064153906464061231, 0.00016977200714005512,  -3.1573425402235442e-05,
                          4.3669323241805167e-06,  -4.6771280213007451e-07, 3.9988394769487128e-08,
                          -2.7948629678329127e-09, 1.6276296659994082e-10,  -8.0234726019332582e-12,
                          3.4063540255152697e-13,  -1.2482967042743655e-14};
constexpr double kJ1[] = {0.00019498936985895625,  -0.00026975227467163678, 0.00015860016799369858,
                          -5.4080032390855057e-05, 1.2242173653017869e-05,  -1.9890935159142569e-06,
                          2.442522260616395e-07,   -2.3521922545778522e-08, 1.8268548082885016e-09,
                          -1.1696932521783476e-10, 6.2846769852560889e-12,  -2.8755308685588519e-13,
                          1.1384465543068819e-14,  -3.9104228826133377e-16};
// What remains of Y0 and Y1 without the logarithm, and without 1 / x.
constexpr double kY0[] = {-0.38225065445942502,    -0.82843589036045873,    1.6470964788745466,
                          0.14412632369302475,     -1.0775477338215995,     0.67217707834316787,
                          -0.21895747096171628,    0.046367047681375125,    -0.0070257410572709704,
                          0.00080615860596163597,  -7.2795418824541153e-05, 5.3213188103997145e-06,
                          -3.2185078445935923e-07, 1.6390875014077404e-08,  -7.13046146536789e-10,
                          2.6926938054524057e-11,  -8.840112096073101e-13};
constexpr double kY1[] = {
    0.070759858821180049,    -0.24337743079193114,   0.02336757172099348,     0.23507209206669755,
    -0.19639839859930203,    0.078547869222425321,   -0.019628756833117111,   0.0034224907399188495,
    -0.00044381734344201468, 4.4674330126463648e-05, -3.601000022590458e-06,  2.3804930420514178e-07,
    -1.3153147367094951e-08, 6.1696880290669646e-10, -2.4995315461712489e-11, 8.7600011439778534e-13};
// P and x * Q of orders 0 and 1: (8 / x)**2 = (t + 1) / 2.
constexpr double kP0[] = {0.99945727578825194,     -0.0005363673192129672, 6.1374160801094974e-06,
                          -2.0527448261170675e-07, 1.280376144080092e-08,  -1.2121098178951377e-09,
                          1.5500565496632596e-10,  -2.491146535471666e-11, 4.7869958213680282e-12,
                          -1.0157485021065676e-12, 2.4531772967345006e-13, -1.0251790052831013e-13,
                          3.3394522590708093e-14};
constexpr double kQ0[] = {-0.12444091103610816,    0.00054665192794752665,  -1.1817110660715592e-05,
                          5.6849718817537807e-07,  -4.5349736139769986e-08, 5.1462316027056056e-09,
                          -7.5758645307585805e-10, 1.3623497617833053e-10,  -2.8840344824996496e-11,
                          6.9517859157522446e-12,  -1.6783779045026498e-12, 4.6050604703967626e-13,
                          -2.7338449247237154e-13, 1.0185094098694355e-13};
constexpr double kP1[] = {1.0009070262780821,      0.00089880494167051826,  -7.9596946984383008e-06,
                          2.4536766333666931e-07,  -1.4708512991275258e-08, 1.3602969253877949e-09,
                          -1.7131074852941311e-10, 2.72345126828134e-11,    -5.1911580046465481e-12,
                          1.0954826479277623e-12,  -2.6335760672461096e-13, 1.0923713653079462e-13,
                          -3.5455617466606254e-14};
constexpr double kQ1[] = {0.37421499221959181,     -0.00076971670576402918, 1.4569614809339924e-05,
                          -6.6335686566649358e-07, 5.1361068154519318e-08,  -5.7208143975433604e-09,
                          8.3155863215946187e-10,  -1.4842814504504144e-10, 3.1143942213346517e-11,
                          -7.0280113491491644e-12, 1.796964474573459e-12,   -8.412485658069601e-13,
                          2.8960940831153833e-13};
// K exp(x) sqrt(x) beyond 2: 2 / x = (t + 1) / 2.
constexpr double kK0[] = {
    1.2185953385133905,      -0.031071461824889898,   0.0030328918102753206,  -0.0004797690567328844,
    9.9560547420294196e-05,  -2.4735205428489719e-05, 7.0022456457556507e-06, -2.1911673837417864e-06,
    7.4278012321900959e-07,  -2.689759865539584e-07,  1.02954317593912e-07,   -4.1056738724915364e-08,
    1.7047535884249698e-08,  -8.0252056049044764e-09, 3.808399859919043e-09,  -6.6438786318432348e-10,
    4.7575447057763742e-11,  -1.2366923277096287e-09, 8.1339132054641143e-10, 4.3927260002107633e-10,
    -3.1199361296821048e-10, -1.7597528809195706e-10, 1.0926983537268735e-10};
constexpr double kK1[] = {
    1.363151890371342,       0.10334973775386565,    -0.0055667298800745882,  0.00073572415487183854,
    -0.00013959021956272223, 3.2843866502355955e-05, -8.9612073877500253e-06, 2.7300301043527215e-06,
    -9.0670876333713929e-07, 3.2305671988539342e-07, -1.2203186351938403e-07, 4.8154346790854777e-08,
    -1.9817577141591116e-08, 9.2138940202895327e-09, -4.331939985658629e-09,  7.9662427985040938e-10,
    -8.3362271959914559e-11, 1.3615859404460648e-09, -8.9085967109239058e-10, -4.7744112178509504e-10,
    3.3867804167808003e-10,  1.9273808087540517e-10, -1.1931668393112158e-10};
// Ai exp(zeta) x**(1/4) beyond 2, zeta = 2/3 x**(3/2); P and zeta * Q of Ai(-x) beyond 3.
constexpr double kAiry[] = {
    0.27749080246165458,     -0.0041223805958495764,  0.00039865677489458394, -6.4275922768988693e-05,
    1.3671255956557227e-05,  -3.4851094608657497e-06, 1.0121089942839848e-06, -3.2469616124293512e-07,
    1.1275577071064085e-07,  -4.1799468595316718e-08, 1.6367236117824575e-08, -6.6569934039027614e-09,
    2.8166320000272914e-09,  -1.3868474454024882e-09, 6.8185495005610529e-10, -7.9465714295324461e-11,
    -2.1434131696095418e-11, -2.5759572158934331e-10, 1.749196885799203e-10,  9.790281814621758e-11,
    -7.0498914616296675e-11, -3.7435676977887531e-11, 2.375331300539151e-11};
constexpr double kAiryP[] = {
    0.56336443875202402,     -0.00078394056120683578, 3.6061166708339074e-05, -4.1189234315242131e-06,
    7.5321889581433195e-07,  -1.8416339975850358e-07, 5.4878780155965633e-08, -1.887519211337496e-08,
    7.2376064535913571e-09,  -3.0766257770037307e-09, 1.4234256297488817e-09, -4.8652119331357792e-10,
    1.1805701264102898e-10,  -5.5777836275917048e-10, 5.3898774905180392e-10, 5.461258920191258e-10,
    -6.0244510827837798e-10, -5.8822504855726706e-10, 5.7198904782636024e-10, 3.0792239875590133e-10,
    -2.854057934992234e-10,  -8.1261415351960499e-11, 6.9539157338271709e-11};
constexpr double kAiryQ[] = {
    0.038376377765988935,   -0.0007307121569454613,  6.0325930722626237e-05,  -9.3934929405204384e-06,
    2.099706055989022e-06,  -5.9319832228614906e-07, 1.9753407926093604e-07,  -7.4315013353467466e-08,
    3.0775381249956758e-08, -1.3779945419768926e-08, 6.2384243304028602e-09,  -2.8322850499284448e-09,
    2.7711094921343224e-09, -2.4326833418509121e-09, -2.399767040171144e-09,  3.432372377858939e-09,
    5.463567542943852e-09,  -6.3543837322033267e-09, -6.3229803734858795e-09, 7.0046896798262445e-09,
    4.9784950045132974e-09, -5.1557140875188767e-09, -2.2360507808420878e-09, 2.1977682279067092e-09,
    4.6846130696023232e-10, -4.3392587194472698e-10};

// 1 + 1/2 + … + 1/k.
static double harmonic(int k) {
  double sum = 0;
  for (; k > 0; --k) sum += 1.0 / k;
  return sum;
}

// Beyond 8, with the phase's quarter turns taken out of sine and cosine:
// x - pi/4 would lose the fraction of a large x.
struct Waves {
  Expr p, q, plus, minus;  // P, Q; sine + cosine and sine - cosine of x, over sqrt(pi x)
};
template <class P, class Q>
static Waves waves(Expr x, const P& p, const Q& q) {
  Expr ratio = 8.0 / x, t = 2.0 * (ratio * ratio) - 1.0, s = sin(x), c = cos(x), size = rsqrt(x * kPi);
  return {polynomial(t, p), polynomial(t, q) / x, (s + c) * size, (s - c) * size};
}
static Expr near_j0(Expr z) {
  return (z - 5.7831859629467845212) * (z - 30.471262343662086399) * polynomial(z * (1.0 / 32) - 1.0, kJ0);
}
static Expr near_j1(Expr x, Expr z) {
  return x * (z - 14.681970642123893257) * (z - 49.21845632169460367) * polynomial(z * (1.0 / 32) - 1.0, kJ1);
}
static Expr bessel_j0(Expr signed_x) {
  Expr x = abs(signed_x);
  Waves w = waves(x, kP0, kQ0);
  return select(x < 8, near_j0(x * x), w.p * w.plus - w.q * w.minus);
}
static Expr bessel_j1(Expr signed_x) {
  Expr x = abs(signed_x);
  Waves w = waves(x, kP1, kQ1);
  Expr far = w.p * w.minus + w.q * w.plus;
  return select(x < 8, near_j1(signed_x, x * x), select(signed_x < 0, -far, far));
}
static Expr bessel_y0(Expr x) {
  Waves w = waves(x, kP0, kQ0);
  Expr z = x * x, near = polynomial(z * (1.0 / 32) - 1.0, kY0) + 2 / kPi * (log(x) * near_j0(z));
  return select(x < 8, near, w.p * w.minus + w.q * w.plus);
}
static Expr bessel_y1(Expr x) {
  Waves w = waves(x, kP1, kQ1);
  Expr z = x * x,
       near = x * polynomial(z * (1.0 / 32) - 1.0, kY1) + 2 / kPi * (log(x) * near_j1(x, z) - reciprocal(x));
  return select(x == 0, x.like(-kInf), select(x < 8, near, w.q * w.minus - w.p * w.plus));
}

// scaled: times exp(x).
static Expr modified_k0(Expr x, bool scaled) {
  Expr w = x * x * 0.25;
  Expr near =
      bessel_series(w, 0, 13, harmonic) - (log(x * 0.5) + std::numbers::egamma) * plain_series(w, 0, 13);
  Expr far = polynomial(4.0 / x - 1.0, kK0) / sqrt(x);
  return select(x <= 2, scaled ? near * exp(x) : near, scaled ? far : far * exp(-x));
}
static Expr modified_k1(Expr x, bool scaled) {
  Expr w = x * x * 0.25;
  Expr psi =
      bessel_series(w, 1, 13, [](int k) { return harmonic(k) + harmonic(k + 1) - 2 * std::numbers::egamma; });
  Expr near = reciprocal(x) + x * (log(x * 0.5) * 0.5 * plain_series(w, 1, 13) - 0.25 * psi);
  Expr far = polynomial(4.0 / x - 1.0, kK1) / sqrt(x);
  Expr value = select(x <= 2, scaled ? near * exp(x) : near, scaled ? far : far * exp(-x));
  return select(x == 0, x.like(kInf), value);
}
static Expr spherical_j0(Expr x) {
  Expr z = x * x;
  // x**2k (-1)**k / (2k + 1)!
  static const double kSine[] = {
      1, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800.0};
  Expr value = select(abs(x) < 0.5, polynomial(z, kSine), sin(x) / x);
  return select(abs(x) == kInf, x.like(0), value);
}

// Ai in two programs, as one would be too long: from -3 on, and below.
static Expr airy_right(Expr x) {
  // Each solution's terms: times x**3 / ((3k - 1) 3k), times x**3 / (3k (3k + 1)).
  std::vector<double> f{0.35502805388781723926}, g{-0.25881940379280679841};
  for (int k = 1; k < 17; ++k) {
    f.push_back(f.back() / ((3.0 * k - 1) * (3.0 * k)));
    g.push_back(g.back() / (3.0 * k * (3.0 * k + 1)));
  }
  Expr cube = x * x * x, root = sqrt(x), zeta = x * root * (2.0 / 3);
  Expr far = exp(-zeta) / sqrt(root) * polynomial(2 * 2.0 / 3 * 2 * std::numbers::sqrt2 / zeta - 1.0, kAiry);
  Expr value = select(x <= 2, polynomial(cube, f) + x * polynomial(cube, g), far);
  return select(abs(x) == kInf, x.like(kNaN), value);
}
static Expr airy_left(Expr x, Expr right) {
  Expr root = sqrt(-x), zeta = -2.0 * x * root / 3.0, ratio = 2 * std::numbers::sqrt3 / zeta,
       t = 2.0 * (ratio * ratio) - 1.0, s = sin(zeta), c = cos(zeta);
  Expr wave = polynomial(t, kAiryP) * (s + c) - polynomial(t, kAiryQ) / zeta * (c - s);
  return select((x < -3) & (x > -kInf), wave / sqrt(root) * (1 / std::numbers::sqrt2), right);
}
static bool airy(Op& op, at::TensorIteratorBase& iter) {
  static Programs programs;
  if (iter.numel() == 0) return true;
  Call call(op, iter.device(0));
  const Tensor &out = iter.tensor(0), &x = iter.tensor(1);
  uint8_t common = to_dtype(iter.common_dtype()), from = dtype_of(x), to = dtype_of(out);
  Tensor right = at::empty(out.sizes(), out.options().dtype(iter.common_dtype()));
  const fl_program* first = programs.get(key_of(0, common, from), [&](Builder& b) {
    b.store(0, airy_right({&b, b.load(0, from, common)}).v, common);
  });
  if (!call.claims(FL_ENTRY_POINTWISE, FL_OP_SIN, common)) return false;
  call.composed();
  if (!run_program(call, first, {&right}, {&x})) return false;
  const fl_program* second = programs.get(key_of(1, common, from, to), [&](Builder& b) {
    Expr value = airy_left({&b, b.load(0, from, common)}, {&b, b.load(1, common)});
    b.store(0, value.cast(register_type(to)).v, to);
  });
  return run_program(call, second, {&out}, {&x, &right});
}

// clang-format off
STUB(special_bessel_j0_stub, "aten::special_bessel_j0", bessel_j0(x))
STUB(special_bessel_j1_stub, "aten::special_bessel_j1", bessel_j1(x))
STUB(special_bessel_y0_stub, "aten::special_bessel_y0", bessel_y0(x))
STUB(special_bessel_y1_stub, "aten::special_bessel_y1", bessel_y1(x))
STUB(special_modified_bessel_i0_stub, "aten::special_modified_bessel_i0", modified_bessel(x, 0, false))
STUB(special_modified_bessel_i1_stub, "aten::special_modified_bessel_i1", modified_bessel(x, 1, false))
STUB(special_modified_bessel_k0_stub, "aten::special_modified_bessel_k0", modified_k0(x, false))
STUB(special_modified_bessel_k1_stub, "aten::special_modified_bessel_k1", modified_k1(x, false))
STUB(special_scaled_modified_bessel_k0_stub, "aten::special_scaled_modified_bessel_k0", modified_k0(x, true))
STUB(special_scaled_modified_bessel_k1_stub, "aten::special_scaled_modified_bessel_k1", modified_k1(x, true))
STUB(special_spherical_bessel_j0_stub, "aten::special_spherical_bessel_j0", spherical_j0(x))

static void airy_kernel(at::TensorIteratorBase& iter) {
  static Op op("aten::special_airy_ai");
  if (!airy(op, iter))
    run_on_host(op, iter, [](at::TensorIterator& host) { special_airy_ai_stub(at::kCPU, host); });
}
FL_REGISTER_STUB(special_airy_ai_stub, ::fl::bridge::airy_kernel)

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  OUT(special_airy_ai, out) OUT(special_bessel_j0, out) OUT(special_bessel_j1, out)
  OUT(special_bessel_y0, out) OUT(special_bessel_y1, out)
  OUT(special_modified_bessel_i0, out) OUT(special_modified_bessel_i1, out)
  OUT(special_modified_bessel_k0, out) OUT(special_modified_bessel_k1, out)
  OUT(special_scaled_modified_bessel_k0, out) OUT(special_scaled_modified_bessel_k1, out)
  OUT(special_spherical_bessel_j0, out)
}

}  // namespace fl::bridge
// clang-format on
