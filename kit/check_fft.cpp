// Fourier transforms against the plain sum ([FFT-1]).
#include <cmath>

#include "launches.h"

namespace kit {

namespace {

const real kTurn = 6.283185307179586476925286766559005768L;

struct Transform {
  std::vector<int64_t> sizes;
  int axis = 0;
  bool inverse = false, in_place = false;
  real scale = 1;
  Arrangement arrangement{};
};

// Without std::complex's care for infinities.
complex_real product(complex_real a, complex_real b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

void check(Session& session, unsigned d, const Transform& t) {
  const int64_t n = t.sizes.empty() ? 1 : t.sizes[t.axis];
  int64_t after = 1;
  for (size_t k = t.axis + 1; k < t.sizes.size(); ++k) after *= t.sizes[k];
  Random random(d * 977 + n);
  Array in = Array::random(random, d, t.sizes, -1, 1);
  Tensor from = session.put(in, t.arrangement.in);
  Tensor other = t.in_place ? Tensor() : session.output(d, t.sizes, t.arrangement.out);
  Tensor& to = t.in_place ? from : other;
  fl_fft_args args{*from, *to, static_cast<double>(t.scale), t.axis, t.inverse};
  std::string what =
      text("%s, axis %d%s%s, %s", shape_text(t.sizes).c_str(), t.axis, t.inverse ? ", inverse" : "",
           t.in_place ? ", in place" : "", arrangement_text(t.arrangement).c_str());
  ok(KIT_LAUNCH(fft, &session.launch, &args), "fft");
  Array got = session.get(to);

  std::vector<complex_real> roots(n), line(n);
  for (int64_t k = 0; k < n; ++k)
    roots[k] =
        std::polar(real(1), (t.inverse ? kTurn : -kTurn) * static_cast<real>(k) / static_cast<real>(n));
  // Of long lines a few results are compared, and what size the results have is estimated.
  const bool whole = n * in.numel() <= 1000000;
  for (int64_t first = 0; first < in.numel(); ++first) {
    if (first / after % n) continue;
    real sum = 0;
    for (int64_t k = 0; k < n; ++k) line[k] = in.at(first + k * after).c(), sum += std::norm(line[k]);
    std::vector<int64_t> places;
    if (whole)
      for (int64_t j = 0; j < n; ++j) places.push_back(j);
    else
      for (int j = 0; j < 12; ++j) places.push_back(j < 2 ? j * (n - 1) : random.between(0, n - 1));
    std::vector<complex_real> want;
    real largest = whole ? 0 : std::sqrt(sum) * std::abs(t.scale);
    for (int64_t j : places) {
      complex_real value = 0;
      for (int64_t k = 0, at = 0; k < n; ++k, at = (at + j) % n) value += product(line[k], roots[at]);
      want.push_back(value * t.scale);
      largest = std::max(largest, std::abs(want.back()));
    }
    const real limit = (component(d) == FL_F64 ? 1e-14L : 1e-6L) *
                       std::log2(static_cast<real>(std::max<int64_t>(n, 2))) * largest;
    for (size_t j = 0; j < places.size(); ++j) {
      complex_real value = got.at(first + places[j] * after).c();
      if (!(std::abs(value - want[j]) <= limit)) {
        fail("%s: result %lld of a line is %s, not %s: off by %.3Lg, the limit is %.3Lg", what.c_str(),
             (long long)places[j], to_text(d, Number::complex(value)).c_str(),
             to_text(d, Number::complex(want[j])).c_str(), std::abs(value - want[j]), limit);
        return;
      }
    }
  }
}

std::vector<unsigned> claimed_dtypes() {
  std::vector<unsigned> found = claimed(FL_ENTRY_FFT, FL_ANY);
  if (found.empty()) not_applicable("the chip does not claim it");
  return found;
}

KIT_TEST("fft", "every claimed dtype: layouts, axes, scale, in place") {
  Session session;
  for (unsigned d : claimed_dtypes())
    run_case(dtype_name(d), [&] {
      check(session, d, {{}});
      check(session, d, {{1}});
      check(session, d, {{1, 5, 1}, 2});
      for (Arrangement a : arrangements())
        if (a.in != Layout::broadcast)
          for (int axis : {0, 1, 2}) check(session, d, {{5, 12, 9}, axis, axis == 1, false, 0.5L, a});
      for (int64_t n : {6, 13, 40})
        for (bool inverse : {false, true}) check(session, d, {{19, n, 17}, 1, inverse, true, 1.5L});
      check(session, d, {{3, 2, 4, 2, 3, 2}, 3, true});
    });
}

KIT_TEST("FFT-1", "any length, both directions, near the plain sum") {
  Session session;
  for (unsigned d : claimed_dtypes())
    run_case(dtype_name(d), [&] {
      for (int64_t n = 1; n <= 70; ++n) check(session, d, {{3, n}, 1, n % 2 == 0});
      for (int64_t n :
           {97, 100, 121, 127, 128, 210, 211, 243, 256, 289, 360, 509, 512, 625, 1000, 1009, 1024})
        for (int64_t lines : {1, 37})
          check(session, d, {{lines, n}, 1, n % 3 == 0, false, 1 / std::sqrt(real(n))});
      for (int64_t n : {2 * 1009, 4096, 10007, 30030, 65536, 3 * 65537, 1 << 18})
        for (bool inverse : {false, true}) check(session, d, {{n}, 0, inverse});
      check(session, d, {{5, 8192}, 1});
      check(session, d, {{8192, 5}, 0, true});
      check(session, d, {{4, 9973}, 1, true, true});
    });
}

}  // namespace

}  // namespace kit
