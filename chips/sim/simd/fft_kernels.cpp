#include "simd/fft_kernels.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "simd/lanes.h"

namespace sim::SIM_ISA {
namespace {

template <class A>
struct Complex {
  Vec<A> re, im;
};
template <class A>
SIM_INLINE Complex<A> operator+(Complex<A> a, Complex<A> b) {
  return {a.re + b.re, a.im + b.im};
}
template <class A>
SIM_INLINE Complex<A> operator-(Complex<A> a, Complex<A> b) {
  return {a.re - b.re, a.im - b.im};
}
template <class A>
SIM_INLINE Complex<A> times(Complex<A> a, Vec<A> re, Vec<A> im) {
  return {a.re * re - a.im * im, a.re * im + a.im * re};
}
// a × -i
template <class A>
SIM_INLINE Complex<A> turned(Complex<A> a) {
  return {a.im, -a.re};
}
template <class A>
SIM_INLINE Complex<A> load_value(const A* p) {
  return {load(p), load(p + lanes<A>)};
}
template <class A>
SIM_INLINE void store_value(A* p, Complex<A> c) {
  store(p, c.re), store(p + lanes<A>, c.im);
}

// ------------------------------------------------------------------ butterflies
constexpr double kTurn = 6.283185307179586476925286766559;

template <class A>
SIM_INLINE void butterfly4(Complex<A>& a, Complex<A>& b, Complex<A>& c, Complex<A>& d) {
  Complex<A> s = a + c, t = a - c, u = b + d, v = turned(b - d);
  a = s + u, b = t + v, c = s - u, d = t - v;
}

template <class A, int R>
SIM_INLINE void butterfly(Complex<A>* c) {
  if constexpr (R == 2) {
    Complex<A> t = c[1];
    c[1] = c[0] - t, c[0] = c[0] + t;
  } else if constexpr (R == 4) {
    butterfly4(c[0], c[1], c[2], c[3]);
  } else if constexpr (R == 8) {
    butterfly4(c[0], c[2], c[4], c[6]);
    butterfly4(c[1], c[3], c[5], c[7]);
    const Vec<A> half = splat(A(0.70710678118654752440));
    Complex<A> t1 = {(c[3].re + c[3].im) * half, (c[3].im - c[3].re) * half};
    Complex<A> t2 = turned(c[5]);
    Complex<A> t3 = {(c[7].im - c[7].re) * half, -(c[7].re + c[7].im) * half};
    Complex<A> e0 = c[0], e1 = c[2], e2 = c[4], e3 = c[6], o0 = c[1];
    c[0] = e0 + o0, c[4] = e0 - o0;
    c[1] = e1 + t1, c[5] = e1 - t1;
    c[2] = e2 + t2, c[6] = e2 - t2;
    c[3] = e3 + t3, c[7] = e3 - t3;
  } else {
    constexpr int H = R / 2;
    Complex<A> sum[H], difference[H], first = c[0];
#pragma GCC unroll 8
    for (int j = 1; j <= H; ++j)
      sum[j - 1] = c[j] + c[R - j], difference[j - 1] = c[j] - c[R - j], c[0] = c[0] + sum[j - 1];
#pragma GCC unroll 8
    for (int k = 1; k <= H; ++k) {
      Complex<A> even = first, odd{};
#pragma GCC unroll 8
      for (int j = 1; j <= H; ++j) {
        const double angle = kTurn * ((j * k) % R) / R;
        const Vec<A> cosine = splat(A(__builtin_cos(angle))), sine = splat(A(__builtin_sin(angle)));
        even.re += sum[j - 1].re * cosine, even.im += sum[j - 1].im * cosine;
        odd.re += difference[j - 1].re * sine, odd.im += difference[j - 1].im * sine;
      }
      c[k] = even + turned(odd), c[R - k] = even - turned(odd);
    }
  }
}

template <class A, int R, bool kTwiddles>
SIM_INLINE void pass_block(const A* x, A* y, int64_t across, int64_t s, const A* w) {
  constexpr int64_t V = 2 * lanes<A>;
  Vec<A> re[R], im[R];
  if constexpr (kTwiddles)
    for (int j = 1; j < R; ++j) re[j] = splat(w[2 * j - 2]), im[j] = splat(w[2 * j - 1]);
  for (int64_t q = 0; q < s; ++q) {
    Complex<A> c[R];
#pragma GCC unroll 16
    for (int k = 0; k < R; ++k) c[k] = load_value(x + q * V + k * across);
    butterfly<A, R>(c);
    store_value(y + q * V, c[0]);
#pragma GCC unroll 16
    for (int j = 1; j < R; ++j) {
      if constexpr (kTwiddles) c[j] = times(c[j], re[j], im[j]);
      store_value(y + (q + j * s) * V, c[j]);
    }
  }
}

template <class A, int R>
void pass_of(const FftPass<A>& pass, const A* x, A* y) {
  constexpr int64_t V = 2 * lanes<A>;
  const int64_t s = pass.stride, m = pass.m, across = s * m * V;
  pass_block<A, R, false>(x, y, across, s, nullptr);
  for (int64_t p = 1; p < m; ++p)
    pass_block<A, R, true>(x + s * p * V, y + s * R * p * V, across, s, pass.twiddles + p * (R - 1) * 2);
}

// Any odd radix.
template <class A>
void pass_odd(const FftPass<A>& pass, const A* x, A* y) {
  constexpr int64_t V = 2 * lanes<A>;
  const int64_t s = pass.stride, m = pass.m, across = s * m * V;
  const int r = int(pass.radix), half = r / 2;
  Complex<A> sum[kMaxFftRadix / 2 + 1], difference[kMaxFftRadix / 2 + 1];
  for (int64_t p = 0; p < m; ++p) {
    const A* w = pass.twiddles + p * (r - 1) * 2;
    for (int64_t q = 0; q < s; ++q) {
      const A* from = x + (q + s * p) * V;
      A* to = y + (q + s * r * p) * V;
      Complex<A> first = load_value(from), all = first;
      for (int j = 1; j <= half; ++j) {
        Complex<A> a = load_value(from + j * across), b = load_value(from + (r - j) * across);
        sum[j] = a + b, difference[j] = a - b, all = all + sum[j];
      }
      store_value(to, all);
      for (int k = 1; k <= half; ++k) {
        Complex<A> even = first, odd{};
        for (int j = 1, at = k; j <= half; ++j) {
          const Vec<A> cosine = splat(pass.roots[2 * at]), sine = splat(-pass.roots[2 * at + 1]);
          even.re += sum[j].re * cosine, even.im += sum[j].im * cosine;
          odd.re += difference[j].re * sine, odd.im += difference[j].im * sine;
          if ((at += k) >= r) at -= r;
        }
        const A *wk = w + 2 * (k - 1), *wr = w + 2 * (r - k - 1);
        store_value(to + k * s * V, times(even + turned(odd), splat(wk[0]), splat(wk[1])));
        store_value(to + (r - k) * s * V, times(even - turned(odd), splat(wr[0]), splat(wr[1])));
      }
    }
  }
}

template <class A>
A* transform(const FftPass<A>* passes, int n_passes, A* x, A* y) {
  for (int i = 0; i < n_passes; ++i) {
    const FftPass<A>& pass = passes[i];
    switch (pass.radix) {
      case 2:
        pass_of<A, 2>(pass, x, y);
        break;
      case 3:
        pass_of<A, 3>(pass, x, y);
        break;
      case 4:
        pass_of<A, 4>(pass, x, y);
        break;
      case 5:
        pass_of<A, 5>(pass, x, y);
        break;
      case 7:
        pass_of<A, 7>(pass, x, y);
        break;
      case 8:
        pass_of<A, 8>(pass, x, y);
        break;
      default:
        pass_odd<A>(pass, x, y);
    }
    std::swap(x, y);
  }
  return x;
}

// ------------------------------------------------------------------- in and out
template <class A>
struct Shuffle {
  using Index = std::conditional_t<sizeof(A) == 4, int32_t, int64_t>;
  typedef Index Mask __attribute__((vector_size(SIM_VECTOR_BYTES)));
  template <class F, int... I>
  static SIM_INLINE constexpr Mask mask(F f, std::integer_sequence<int, I...>) {
    return Mask{Index(f(I))...};
  }
  template <class F>
  static SIM_INLINE constexpr Mask mask(F f) {
    return mask(f, std::make_integer_sequence<int, lanes<A>>());
  }
};

// A square of lanes × lanes numbers; at distance K blocks change places.
template <class A, int K>
SIM_INLINE void transpose(Vec<A>* rows) {
  constexpr int W = lanes<A>;
  constexpr auto low = Shuffle<A>::mask([](int l) { return l & K ? W + l - K : l; });
  constexpr auto high = Shuffle<A>::mask([](int l) { return l & K ? W + l : l + K; });
#pragma GCC unroll 16
  for (int i = 0; i < W; ++i)
    if (!(i & K)) {
      Vec<A> a = rows[i], b = rows[i + K];
      rows[i] = __builtin_shuffle(a, b, low), rows[i + K] = __builtin_shuffle(a, b, high);
    }
  if constexpr (K > 1) transpose<A, K / 2>(rows);
}

template <class A>
bool side_by_side(const char* const* lines) {
  for (int l = 1; l < lanes<A>; ++l)
    if (lines[l] != lines[0] + l * int64_t(2 * sizeof(A))) return false;
  return true;
}

template <class A>
void load_lines(const char* const* lines, int64_t step, int64_t n, bool swap, A* to) {
  constexpr int W = lanes<A>, V = 2 * W;
  int64_t i = 0;
  const int re = swap ? W : 0, im = W - re;
  if (step == int64_t(2 * sizeof(A))) {
    for (; i + W / 2 <= n; i += W / 2) {
      Vec<A> rows[W];
#pragma GCC unroll 16
      for (int l = 0; l < W; ++l) rows[l] = load(reinterpret_cast<const A*>(lines[l]) + 2 * i);
      transpose<A, W / 2>(rows);
#pragma GCC unroll 16
      for (int k = 0; k < W / 2; ++k) {
        store(to + (i + k) * V + re, rows[2 * k]);
        store(to + (i + k) * V + im, rows[2 * k + 1]);
      }
    }
  } else if (side_by_side<A>(lines)) {
    constexpr auto even = Shuffle<A>::mask([](int l) { return 2 * l; });
    constexpr auto odd = Shuffle<A>::mask([](int l) { return 2 * l + 1; });
    for (; i < n; ++i) {
      const A* from = reinterpret_cast<const A*>(lines[0] + i * step);
      Vec<A> a = load(from), b = load(from + W);
      store(to + i * V + re, Vec<A>(__builtin_shuffle(a, b, even)));
      store(to + i * V + im, Vec<A>(__builtin_shuffle(a, b, odd)));
    }
  }
  for (; i < n; ++i)
    for (int l = 0; l < W; ++l) {
      const A* from = reinterpret_cast<const A*>(lines[l] + i * step);
      to[i * V + re + l] = from[0], to[i * V + im + l] = from[1];
    }
}

template <class A>
void store_lines(const A* from, char* const* lines, int count, int64_t step, int64_t n, bool swap, A scale) {
  constexpr int W = lanes<A>, V = 2 * W;
  int64_t i = 0;
  const int re = swap ? W : 0, im = W - re;
  const Vec<A> factor = splat(scale);
  if (step == int64_t(2 * sizeof(A))) {
    for (; i + W / 2 <= n; i += W / 2) {
      Vec<A> rows[W];
#pragma GCC unroll 16
      for (int k = 0; k < W / 2; ++k) {
        rows[2 * k] = load(from + (i + k) * V + re) * factor;
        rows[2 * k + 1] = load(from + (i + k) * V + im) * factor;
      }
      transpose<A, W / 2>(rows);
#pragma GCC unroll 16
      for (int l = 0; l < W; ++l)
        if (l < count) store(reinterpret_cast<A*>(lines[l]) + 2 * i, rows[l]);
    }
  } else if (count == W && side_by_side<A>(lines)) {
    constexpr auto low = Shuffle<A>::mask([](int l) { return l & 1 ? W + l / 2 : l / 2; });
    constexpr auto high = Shuffle<A>::mask([](int l) { return (l & 1 ? W + l / 2 : l / 2) + W / 2; });
    for (; i < n; ++i) {
      A* to = reinterpret_cast<A*>(lines[0] + i * step);
      Vec<A> a = load(from + i * V + re) * factor, b = load(from + i * V + im) * factor;
      store(to, Vec<A>(__builtin_shuffle(a, b, low)));
      store(to + W, Vec<A>(__builtin_shuffle(a, b, high)));
    }
  }
  for (; i < n; ++i)
    for (int l = 0; l < count; ++l) {
      A* to = reinterpret_cast<A*>(lines[l] + i * step);
      to[0] = from[i * V + re + l] * scale, to[1] = from[i * V + im + l] * scale;
    }
}

// ------------------------------------------------------------------ real lines
// Whether number i of the lines is one vector.
template <class A>
bool numbers_side_by_side(const char* const* lines) {
  for (int l = 1; l < lanes<A>; ++l)
    if (lines[l] != lines[0] + l * int64_t(sizeof(A))) return false;
  return true;
}

template <class A>
void load_real(const char* const* lines, int64_t step, int64_t n, bool pairs, A* to) {
  constexpr int W = lanes<A>, V = 2 * W;
  if (pairs && step == int64_t(sizeof(A))) {
    load_lines<A>(lines, 2 * step, n, false, to);
    return;
  }
  const int64_t stride = pairs ? 2 * step : step;
  const bool whole = numbers_side_by_side<A>(lines);
  for (int64_t i = 0; i < n; ++i, to += V)
    for (int part = 0; part < 2; ++part) {
      A* place = to + part * W;
      const int64_t from = i * stride + part * step;
      if (part && !pairs) store(place, splat(A(0)));
      else if (whole) store(place, load(reinterpret_cast<const A*>(lines[0] + from)));
      else
        for (int l = 0; l < W; ++l) place[l] = *reinterpret_cast<const A*>(lines[l] + from);
    }
}

template <class A>
void store_real(const A* from, char* const* lines, int count, int64_t step, int64_t n, bool pairs, A scale) {
  constexpr int W = lanes<A>, V = 2 * W;
  if (pairs && step == int64_t(sizeof(A))) {
    store_lines<A>(from, lines, count, 2 * step, n, true, scale);
    return;
  }
  const int64_t stride = pairs ? 2 * step : step;
  const bool whole = count == W && numbers_side_by_side<A>(lines);
  const Vec<A> factor = splat(scale);
  for (int64_t i = 0; i < n; ++i, from += V)
    for (int part = 0; part < (pairs ? 2 : 1); ++part) {
      const A* place = from + (1 - part) * W;
      const int64_t to = i * stride + part * step;
      if (whole) store(reinterpret_cast<A*>(lines[0] + to), Vec<A>(load(place) * factor));
      else
        for (int l = 0; l < count; ++l) *reinterpret_cast<A*>(lines[l] + to) = place[l] * scale;
    }
}

// Value i of a buffer, as V: of all lanes, or one number where one line is a buffer of its own.
template <class V>
struct Parts {
  V re, im;
};
template <class V, class A>
SIM_INLINE Parts<V> parts_at(const A* x, int64_t i) {
  x += i * int64_t(sizeof(Parts<V>) / sizeof(A));
  Parts<V> c;  // part by part: as a whole it would pass through the stack
  __builtin_memcpy(&c.re, x, sizeof(V));
  __builtin_memcpy(&c.im, x + sizeof(V) / sizeof(A), sizeof(V));
  return c;
}
template <class V, class A>
SIM_INLINE void put_parts(A* x, int64_t i, V re, V im) {
  x += i * int64_t(sizeof(Parts<V>) / sizeof(A));
  __builtin_memcpy(x, &re, sizeof(V));
  __builtin_memcpy(x + sizeof(V) / sizeof(A), &im, sizeof(V));
}

template <class A, class V>
void split(A* x, const A* roots, int64_t n) {
  const Parts<V> first = parts_at<V>(x, 0);
  const V sum = first.re + first.im, difference = first.re - first.im;
  put_parts<V>(x, 0, sum + sum, V{});
  put_parts<V>(x, n, difference + difference, V{});
  for (int64_t k = 1; 2 * k <= n; ++k) {
    const Parts<V> a = parts_at<V>(x, k), b = parts_at<V>(x, n - k);
    const A wr = roots[2 * k], wi = roots[2 * k + 1];
    const V er = a.re + b.re, ei = a.im - b.im, dr = a.im + b.im, di = b.re - a.re;
    const V tr = dr * wr - di * wi, ti = dr * wi + di * wr;
    put_parts<V>(x, k, er + tr, ei + ti);
    put_parts<V>(x, n - k, er - tr, ti - ei);
  }
}

template <class A, class V>
void join(A* x, const A* roots, int64_t n) {
  auto put = [&](int64_t i, V re, V im) { put_parts<V>(x, i, im, re); };
  const Parts<V> first = parts_at<V>(x, 0);
  if (n % 2) {
    put(0, first.re, V{});
    for (int64_t k = 1; 2 * k < n; ++k) {
      const Parts<V> a = parts_at<V>(x, k);
      put(k, a.re, a.im), put(n - k, a.re, -a.im);
    }
    return;
  }
  const int64_t m = n / 2;
  const Parts<V> last = parts_at<V>(x, m);
  put(0, first.re + last.re, first.re - last.re);
  for (int64_t k = 1; 2 * k <= m; ++k) {
    const Parts<V> a = parts_at<V>(x, k), b = parts_at<V>(x, m - k);
    const A wr = roots[2 * k], wi = roots[2 * k + 1];
    const V er = a.re + b.re, ei = a.im - b.im, dr = a.re - b.re, di = a.im + b.im;
    // i × conj w × (a - conj b)
    const V tr = dr * wi - di * wr, ti = dr * wr + di * wi;
    put(k, er + tr, ei + ti);
    put(m - k, er - tr, ti - ei);
  }
}

// --------------------------------------------------------------------- products
template <class A>
void multiply(A* x, const A* factors, int64_t n) {
  for (int64_t i = 0; i < n; ++i, x += 2 * lanes<A>)
    store_value(x, times(load_value(x), splat(factors[2 * i]), splat(factors[2 * i + 1])));
}

template <class A>
void twiddle(A* x, int64_t n, int64_t block, const A* outer, const A* inner, int64_t width) {
  for (int64_t a = 0; a * block < n; ++a) {
    const Vec<A> re = load(outer + 2 * a * width), im = load(outer + (2 * a + 1) * width);
    const int64_t count = std::min(block, n - a * block);
    for (int64_t b = 0; b < count; ++b, x += 2 * lanes<A>) {
      Complex<A> w = {load(inner + 2 * b * width), load(inner + (2 * b + 1) * width)};
      w = times(w, re, im);
      store_value(x, times(load_value(x), w.re, w.im));
    }
  }
}

template <class A>
void multiply_line(const A* from, const A* factors, A* to, int64_t n, A scale) {
  for (int64_t i = 0; i < n; ++i) {
    A re = from[2 * i], im = from[2 * i + 1], fre = factors[2 * i] * scale, fim = factors[2 * i + 1] * scale;
    to[2 * i] = re * fre - im * fim, to[2 * i + 1] = re * fim + im * fre;
  }
}

template <class A>
constexpr FftKernels<A> kKernels = {lanes<A>,        load_lines<A>,    store_lines<A>,  load_real<A>,
                                    store_real<A>,   split<A, Vec<A>>, join<A, Vec<A>>, split<A, A>,
                                    join<A, A>,      transform<A>,     multiply<A>,     twiddle<A>,
                                    multiply_line<A>};

}  // namespace

const FftKernels<float>& fft_kernels(float) { return kKernels<float>; }
const FftKernels<double>& fft_kernels(double) { return kKernels<double>; }

}  // namespace sim::SIM_ISA
