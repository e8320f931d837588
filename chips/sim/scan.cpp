// Inclusive scans along an axis: sums, products, minima, maxima, log-sums of exponentials.
//
// Everything is computed in int64, double or complex double.  Slices whose
// neighbours lie side by side are scanned together, a row of them at a time;
// others one by one, in blocks through a buffer.  With several threads a long sum is
// cut into chunks: their totals first, then each chunk from where the ones before
// it end.
#include <cmath>
#include <complex>
#include <limits>

#include "slices.h"

namespace sim {
namespace {

using C32 = std::complex<float>;
using C64 = std::complex<double>;

constexpr int64_t kBlock = 1024;         // values that are converted at a time
constexpr int64_t kChunk = 16 * kBlock;  // of a long sum
constexpr int64_t kStrip = 256;          // slices that are scanned together
constexpr int64_t kGrain = 32768;        // values worth a thread

// ------------------------------------------------------- values of a dtype
// Values as A from a dtype and back; a null `through` when no third dtype is between.
template <class A>
struct Values {
  Convert read = nullptr, write = nullptr, narrow = nullptr;
  uint8_t in, out;
  Values(uint8_t in_dtype, uint8_t out_dtype) : in(in_dtype), out(out_dtype) {
    constexpr uint8_t type = std::is_same_v<A, int64_t> ? uint8_t{FL_I64} : uint8_t{FL_F64};
    read = find_convert(in, type), write = find_convert(type, out);
    if (in != out) narrow = find_convert(out, type);
  }
  bool ok() const { return read && write && (in == out || narrow); }
  // `in` is converted to out's dtype before it is scanned.
  void load(const char* from, int64_t stride, A* to, int64_t n) const {
    read(from, stride, reinterpret_cast<char*>(to), sizeof(A), n);
    if (!narrow) return;
    char stored[kBlock * 8];
    const int64_t size = int64_t(dtype_size(out));
    for (int64_t i = 0; i < n; i += kBlock) {
      int64_t m = std::min(kBlock, n - i);
      write(reinterpret_cast<const char*>(to + i), sizeof(A), stored, size, m);
      narrow(stored, size, reinterpret_cast<char*>(to + i), sizeof(A), m);
    }
  }
  void save(const A* from, char* to, int64_t stride, int64_t n) const {
    write(reinterpret_cast<const char*>(from), sizeof(A), to, stride, n);
  }
};

template <>
struct Values<C64> {
  uint8_t dtype;
  Values(uint8_t in, uint8_t out) : dtype(in == out ? out : uint8_t{FL_NONE}) {}
  bool ok() const { return dtype == FL_C64 || dtype == FL_C128; }
  void load(const char* from, int64_t stride, C64* to, int64_t n) const {
    for (int64_t i = 0; i < n; ++i, from += stride)
      to[i] =
          dtype == FL_C64 ? C64(*reinterpret_cast<const C32*>(from)) : *reinterpret_cast<const C64*>(from);
  }
  void save(const C64* from, char* to, int64_t stride, int64_t n) const {
    for (int64_t i = 0; i < n; ++i, to += stride)
      if (dtype == FL_C64) *reinterpret_cast<C32*>(to) = C32(from[i]);
      else *reinterpret_cast<C64*>(to) = from[i];
  }
};

// --------------------------------------------------------------- the scans
template <class A>
bool is_nan(A x) {
  return x != x;
}

// Integers wrap: they are added and multiplied as unsigned ones.
template <class A>
A plus(A a, A b) {
  if constexpr (std::is_same_v<A, int64_t>) return int64_t(uint64_t(a) + uint64_t(b));
  else return a + b;
}
template <class A>
A times(A a, A b) {
  if constexpr (std::is_same_v<A, int64_t>) return int64_t(uint64_t(a) * uint64_t(b));
  else if constexpr (std::is_same_v<A, C64>)
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  else return a * b;
}
inline double log_sum(double a, double b) {
  double high = std::max(a, b), low = std::min(a, b);
  if (is_nan(a) || is_nan(b)) return a + b;
  if (high == low && std::isinf(high)) return high;
  return high + std::log1p(std::exp(low - high));
}

template <class A>
struct Sum {
  static A start() { return A(0); }
  static A step(A a, A x) { return plus(a, x); }
};
template <class A>
struct Product {
  static A start() { return A(1); }
  static A step(A a, A x) { return times(a, x); }
};
struct LogSum {
  static double start() { return -std::numeric_limits<double>::infinity(); }
  static double step(double a, double x) { return log_sum(a, x); }
};
// Does x, met after the best so far, take its place?
template <class A, bool kMax>
struct Best {
  static bool takes(A best, A x) { return is_nan(x) || (!is_nan(best) && (kMax ? x >= best : x <= best)); }
};

// Four at a time, so that what goes from one group to the next is one addition.
template <class A>
A sum_block(A* x, int64_t n, A carry) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    A a = x[i], b = plus(a, x[i + 1]), c = plus(b, x[i + 2]), d = plus(c, x[i + 3]);
    x[i] = plus(carry, a), x[i + 1] = plus(carry, b), x[i + 2] = plus(carry, c);
    x[i + 3] = carry = plus(carry, d);
  }
  for (; i < n; ++i) x[i] = carry = plus(carry, x[i]);
  return carry;
}

template <class A>
struct Scan {
  Slices<3> slices;  // out, in, index
  Values<A> values;
  int64_t in_stride, out_stride;

  Scan(const Tensor& in, const Tensor& out, const Tensor& index, int axis)
      : slices({&out, &in, &index}, axis),
        values(in.dtype, out.dtype),
        in_stride(slices.along[1]),
        out_stride(slices.along[0]) {}

  template <class F>
  void each(F&& one, int64_t width) const {
    const int64_t inner = slices.space.inner_size(), strips = (inner + width - 1) / width;
    const int64_t cost = std::max<int64_t>(1, slices.length * std::min(width, inner));
    parallel(slices.count() / inner * strips, std::max<int64_t>(1, kGrain / cost), [&](int64_t b, int64_t e) {
      for (int64_t i = b; i < e; ++i) {
        Cursor<3> cursor(slices.space, i / strips, 1);
        const int64_t first = i % strips * width;
        char* at[3];
        for (int k = 0; k < 3; ++k)
          at[k] = slices.data[k] + cursor.offset[k] + first * slices.space.inner_stride(k);
        one(at, std::min(width, inner - first));
      }
    });
  }

  template <class Op>
  void run() const {
    if (slices.side_by_side()) return each([&](char** at, int64_t n) { together<Op>(at, n); }, kStrip);
    each([&](char** at, int64_t) { alone<Op>(at, 0, slices.length, Op::start()); }, 1);
  }
  template <class Op>
  A alone(char** at, int64_t begin, int64_t end, A carry) const {
    A x[kBlock];
    for (int64_t i = begin; i < end; i += kBlock) {
      const int64_t n = std::min(kBlock, end - i);
      values.load(at[1] + i * in_stride, in_stride, x, n);
      if constexpr (std::is_same_v<Op, Sum<A>>) carry = sum_block(x, n, carry);
      else
        for (int64_t j = 0; j < n; ++j) x[j] = carry = Op::step(carry, x[j]);
      values.save(x, at[0] + i * out_stride, out_stride, n);
    }
    return carry;
  }
  template <class Op>
  void together(char** at, int64_t n) const {
    A x[kStrip], carry[kStrip];
    std::fill(carry, carry + n, Op::start());
    for (int64_t i = 0; i < slices.length; ++i) {
      values.load(at[1] + i * in_stride, slices.space.inner_stride(1), x, n);
      for (int64_t j = 0; j < n; ++j) carry[j] = Op::step(carry[j], x[j]);
      values.save(carry, at[0] + i * out_stride, slices.space.inner_stride(0), n);
    }
  }

  // Sums of few and long slices: each is cut.
  void sum(Context& context) const {
    const int64_t n = slices.length, chunks = (n + kChunk - 1) / kChunk;
    if (slices.side_by_side() || slices.count() > 4 || chunks < 4 || omp_get_max_threads() == 1)
      return run<Sum<A>>();
    A* totals = static_cast<A*>(context.scratch(size_t(chunks) * sizeof(A)));
    Cursor<3> cursor(slices.space);
    for (int64_t s = 0; s < slices.count(); ++s, cursor.advance(1)) {
      char* at[3];
      for (int k = 0; k < 3; ++k) at[k] = slices.data[k] + cursor.offset[k];
      parallel(chunks - 1, 1, [&](int64_t b, int64_t e) {
        for (int64_t c = b; c < e; ++c) totals[c + 1] = total(at[1], c * kChunk, (c + 1) * kChunk);
      });
      totals[0] = A(0);
      for (int64_t c = 1; c < chunks; ++c) totals[c] = plus(totals[c - 1], totals[c]);
      parallel(chunks, 1, [&](int64_t b, int64_t e) {
        for (int64_t c = b; c < e; ++c)
          alone<Sum<A>>(at, c * kChunk, std::min(n, (c + 1) * kChunk), totals[c]);
      });
    }
  }
  A total(const char* in, int64_t begin, int64_t end) const {
    A x[kBlock], a{}, b{}, c{}, d{};
    for (int64_t i = begin; i < end; i += kBlock) {
      const int64_t n = std::min(kBlock, end - i);
      values.load(in + i * in_stride, in_stride, x, n);
      int64_t j = 0;
      for (; j + 4 <= n; j += 4) {
        a = plus(a, x[j]), b = plus(b, x[j + 1]);
        c = plus(c, x[j + 2]), d = plus(d, x[j + 3]);
      }
      for (; j < n; ++j) a = plus(a, x[j]);
    }
    return plus(plus(a, b), plus(c, d));
  }

  // Minima and maxima: with each value its position.
  template <bool kMax>
  void best() const {
    if (slices.side_by_side()) each([&](char** at, int64_t n) { best_together<kMax>(at, n); }, kStrip);
    else each([&](char** at, int64_t) { best_alone<kMax>(at); }, 1);
  }
  template <bool kMax>
  void best_alone(char** at) const {
    A x[kBlock], best{};
    int64_t where = 0;
    for (int64_t i = 0; i < slices.length; i += kBlock) {
      const int64_t n = std::min(kBlock, slices.length - i);
      values.load(at[1] + i * in_stride, in_stride, x, n);
      if (i == 0) best = x[0];
      char* index = slices.data[2] ? at[2] + i * slices.along[2] : nullptr;
      for (int64_t j = 0; j < n; ++j) {
        // Seldom the case in a long slice: one comparison finds that out, NaN included.
        const bool stays = kMax ? x[j] < best : x[j] > best;
        if (!stays && Best<A, kMax>::takes(best, x[j])) best = x[j], where = i + j;
        x[j] = best;
        if (index) *reinterpret_cast<int64_t*>(index + j * slices.along[2]) = where;
      }
      values.save(x, at[0] + i * out_stride, out_stride, n);
    }
  }
  template <bool kMax>
  void best_together(char** at, int64_t n) const {
    A x[kStrip], best[kStrip];
    int64_t where[kStrip] = {};
    const int64_t step = slices.space.inner_stride(2);
    for (int64_t i = 0; i < slices.length; ++i) {
      values.load(at[1] + i * in_stride, slices.space.inner_stride(1), x, n);
      if (i == 0) std::copy(x, x + n, best);
      for (int64_t j = 0; j < n; ++j) {
        const bool takes = Best<A, kMax>::takes(best[j], x[j]);
        best[j] = takes ? x[j] : best[j], where[j] = takes ? i : where[j];
      }
      values.save(best, at[0] + i * out_stride, slices.space.inner_stride(0), n);
      if (!slices.data[2]) continue;
      char* index = at[2] + i * slices.along[2];
      for (int64_t j = 0; j < n; ++j) *reinterpret_cast<int64_t*>(index + j * step) = where[j];
    }
  }
};

template <class A>
void scan_as(Context& context, const Tensor& in, const Tensor& out, const Tensor& index, int axis, int kind) {
  Scan<A> scan(in, out, index, axis);
  switch (kind) {
    case FL_SCAN_SUM:
      return scan.sum(context);
    case FL_SCAN_PROD:
      return scan.template run<Product<A>>();
    case FL_SCAN_MIN:
      if constexpr (!std::is_same_v<A, C64>) scan.template best<false>();
      return;
    case FL_SCAN_MAX:
      if constexpr (!std::is_same_v<A, C64>) scan.template best<true>();
      return;
    default:
      if constexpr (std::is_same_v<A, double>) scan.template run<LogSum>();
  }
}

constexpr uint32_t kSigned = FL_BIT(FL_BOOL) | FL_BIT(FL_U8) | FL_BIT(FL_I8) | FL_BIT(FL_I16) |
                             FL_BIT(FL_I32) | FL_BIT(FL_I64) | FL_BIT(FL_U16) | FL_BIT(FL_U32);
// U64 is held as I64: its sums and products are right, its order is not.
constexpr uint32_t kIntegers = kSigned | FL_BIT(FL_U64);
constexpr uint32_t kComplex = FL_BIT(FL_C64) | FL_BIT(FL_C128);
constexpr uint32_t kKinds[FL_SCAN_COUNT] = {kIntegers | kFloats | kComplex, kIntegers | kFloats | kComplex,
                                            kSigned | kFloats, kSigned | kFloats, kFloats};

}  // namespace

fl_status scan(const fl_launch* launch, const fl_scan_args* args) {
  const uint8_t in = args->in.dtype, out = args->out.dtype;
  if (args->kind < 0 || args->kind >= FL_SCAN_COUNT || !(kKinds[args->kind] >> out & 1))
    return FL_UNSUPPORTED;
  if (!valid_axis("scan", args->in, args->axis)) return FL_INVALID;
  const bool integer = kIntegers >> out & 1, complex = kComplex >> out & 1;
  if (!(integer   ? Values<int64_t>(in, out).ok()
        : complex ? Values<C64>(in, out).ok()
                  : Values<double>(in, out).ok()))
    return FL_UNSUPPORTED;
  return submit(launch, "scan",
                [in = Tensor(args->in), out = Tensor(args->out), index = optional(args->index),
                 axis = args->axis, kind = args->kind, integer, complex](Context& c) {
                  integer   ? scan_as<int64_t>(c, in, out, index, axis, kind)
                  : complex ? scan_as<C64>(c, in, out, index, axis, kind)
                            : scan_as<double>(c, in, out, index, axis, kind);
                });
}

void claim_scan(Claims& claims) {
  for (uint16_t kind = 0; kind < FL_SCAN_COUNT; ++kind) claims.push_back({FL_ENTRY_SCAN, kind, kKinds[kind]});
}

}  // namespace sim
