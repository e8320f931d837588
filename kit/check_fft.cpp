// Fourier transforms against the plain sum ([FFT-1]).
#include <cmath>

#include "launches.h"

namespace kit {

namespace {

const real kTurn = 6.283185307179586476925286766559005768L;

struct Transform {
  std::vector<int64_t> sizes;
  int axis = 0;
  bool inverse = false, in_place = false;  // in place: of complex numbers
  real scale = 1;
  Arrangement arrangement{};
};

// Without std::complex's care for infinities.
complex_real product(complex_real a, complex_real b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

void complain(const std::string& what, int64_t place, unsigned d, complex_real got, complex_real want,
              real limit) {
  fail("%s: result %lld of a line is %s, not %s: off by %.3Lg, the limit is %.3Lg", what.c_str(),
       (long long)place, to_text(d, Number::complex(got)).c_str(), to_text(d, Number::complex(want)).c_str(),
       std::abs(got - want), limit);
}

real limit_of(unsigned part, int64_t n, real largest) {
  return (part == FL_F64 ? 1e-14L : 1e-6L) * std::log2(static_cast<real>(std::max<int64_t>(n, 2))) * largest;
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
    const real limit = limit_of(component(d), n, largest);
    for (size_t j = 0; j < places.size(); ++j) {
      complex_real value = got.at(first + places[j] * after).c();
      if (!(std::abs(value - want[j]) <= limit)) return complain(what, places[j], d, value, want[j], limit);
    }
  }
}

// Between `d`, real, of t.sizes, and the half of its spectrum; t.inverse is from that to the real side.
void check_real(Session& session, unsigned d, const Transform& t) {
  const unsigned complex = d == FL_F64 ? FL_C128 : FL_C64;
  const int64_t n = t.sizes.empty() ? 1 : t.sizes[t.axis], half = n / 2 + 1;
  int64_t after = 1;
  for (size_t k = t.axis + 1; k < t.sizes.size(); ++k) after *= t.sizes[k];
  std::vector<int64_t> half_sizes = t.sizes;
  if (!t.sizes.empty()) half_sizes[t.axis] = half;
  Random random(d * 977 + n);
  const std::string what = text("%s of real numbers, axis %d%s, %s", shape_text(t.sizes).c_str(), t.axis,
                                t.inverse ? ", inverse" : "", arrangement_text(t.arrangement).c_str());
  Array in = Array::random(random, t.inverse ? complex : d, t.inverse ? half_sizes : t.sizes, -1, 1);
  Tensor from = session.put(in, t.arrangement.in),
         to = session.output(t.inverse ? d : complex, t.inverse ? t.sizes : half_sizes, t.arrangement.out);
  fl_fft_args args{*from, *to, static_cast<double>(t.scale), t.axis, t.inverse};
  ok(KIT_LAUNCH(fft, &session.launch, &args), "fft");
  const Array got = session.get(to);

  std::vector<complex_real> roots(n), line(n);
  for (int64_t k = 0; k < n; ++k)
    roots[k] =
        std::polar(real(1), (t.inverse ? kTurn : -kTurn) * static_cast<real>(k) / static_cast<real>(n));
  const int64_t results = t.inverse ? n : half, values = t.inverse ? half : n;
  for (int64_t at = 0; at < got.numel(); ++at) {
    if (at / after % results) continue;
    const int64_t source = at / (after * results) * (after * values) + at % after;
    for (int64_t k = 0; k < values; ++k) {
      const Number value = in.at(source + k * after);
      line[k] = t.inverse ? value.c() : complex_real(value.re, 0);
    }
    if (t.inverse) {
      line[0] = line[0].real();
      if (n % 2 == 0) line[n / 2] = line[n / 2].real();
      for (int64_t k = half; k < n; ++k) line[k] = std::conj(line[n - k]);
    }
    std::vector<complex_real> want(results);
    real largest = 0;
    for (int64_t j = 0; j < results; ++j) {
      complex_real value = 0;
      for (int64_t k = 0, w = 0; k < n; ++k, w = (w + j) % n) value += product(line[k], roots[w]);
      want[j] = value * t.scale;
      if (t.inverse) want[j] = want[j].real();
      largest = std::max(largest, std::abs(want[j]));
    }
    for (int64_t j = 0; j < results; ++j) {
      const Number value = got.at(at + j * after);
      const complex_real result = t.inverse ? complex_real(value.re, 0) : value.c();
      const real limit = limit_of(d, n, largest);
      if (!(std::abs(result - want[j]) <= limit)) return complain(what, j, complex, result, want[j], limit);
    }
  }
}

std::vector<unsigned> claimed_dtypes(bool (*of)(unsigned)) {
  std::vector<unsigned> found;
  for (unsigned d : claimed(FL_ENTRY_FFT, FL_ANY))
    if (of(d)) found.push_back(d);
  if (found.empty()) not_applicable("the chip does not claim it");
  return found;
}

KIT_TEST("fft", "every claimed dtype: layouts, axes, scale, in place") {
  Session session;
  for (unsigned d : claimed_dtypes(is_complex))
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
  for (unsigned d : claimed_dtypes(is_complex))
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

KIT_TEST("FFT-1", "real lines and halves of spectra, any length, both directions") {
  Session session;
  for (unsigned d : claimed_dtypes(is_real))
    run_case(dtype_name(d), [&] {
      for (bool inverse : {false, true}) {
        check_real(session, d, {{}, 0, inverse});
        for (int64_t n = 1; n <= 40; ++n) check_real(session, d, {{3, n}, 1, inverse, false, 0.5L});
        for (int64_t n : {97, 100, 127, 194, 256, 360, 509, 512, 1000, 1009, 1018})
          for (int64_t lines : {1, 19}) check_real(session, d, {{lines, n}, 1, inverse});
        for (int64_t n : {2018, 2047, 4096}) check_real(session, d, {{n}, 0, inverse});
        for (Arrangement a : arrangements())
          if (a.in != Layout::broadcast)
            for (int axis : {0, 1, 2}) check_real(session, d, {{5, 12, 9}, axis, inverse, false, 0.5L, a});
        check_real(session, d, {{1024, 5}, 0, inverse});
        check_real(session, d, {{3, 2, 4, 2, 3, 2}, 3, inverse});
      }
    });
}

}  // namespace

}  // namespace kit
