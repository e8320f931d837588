// sim's matrix products, convolutions, pooling and attention against plain loops in double.
#include <algorithm>
#include <complex>
#include <numeric>

#include "sim_harness.h"

using namespace sim_test;

namespace {

// A tensor whose dimensions lie in memory in a given order (outermost first), with
// room behind its rows, dimensions that do not vary, or a layout of the harness.
class Operand {
 public:
  Operand(int dtype, Sizes sizes, std::vector<int> order = {}, int64_t pad = 0, unsigned shared = 0,
          Layout layout = Layout::contiguous)
      : sizes_(std::move(sizes)),
        order_(order.empty() ? iota(sizes_.size()) : std::move(order)),
        shared_(shared),
        base_(dtype, base_sizes(pad), layout),
        strides_(sizes_.size()) {
    for (size_t k = 0; k < order_.size(); ++k) {
      size_t d = size_t(order_[k]);
      strides_[d] = shared_ >> d & 1 ? 0 : base_.strides()[k];
    }
    view_ = base_.view();
    view_.sizes = sizes_.data(), view_.strides = strides_.data();
  }
  const fl_tensor& view() const { return view_; }
  const fl_tensor* operator&() const { return &view_; }
  const Sizes& sizes() const { return sizes_; }
  int dtype() const { return base_.dtype(); }
  int64_t numel() const {
    return std::accumulate(sizes_.begin(), sizes_.end(), int64_t{1}, std::multiplies<>());
  }
  int64_t place(int64_t number) const {
    Sizes index(sizes_.size());
    for (size_t d = sizes_.size(); d-- > 0;)
      index[d] = shared_ >> d & 1 ? 0 : number % sizes_[d], number /= sizes_[d];
    int64_t at = 0;
    for (size_t k = 0; k < order_.size(); ++k) at = at * base_.sizes()[k] + index[size_t(order_[k])];
    return at;
  }
  double get(int64_t number) const { return base_.get(place(number)); }
  double get_imag(int64_t number) const { return base_.get_imag(place(number)); }
  int64_t get_int(int64_t number) const { return base_.get_int(place(number)); }
  void set(int64_t number, double v, double imag = 0) { base_.set(place(number), v, imag); }
  void randomise(double size = 1) {
    bool real = floats(dtype()) || dtype() == FL_C64 || dtype() == FL_C128;
    for (int64_t i = 0, n = numel(); i < n; ++i) {
      set(i, real ? uniform(-size, size) : double(below(201) - 100), uniform(-size, size));
    }
  }

 private:
  static std::vector<int> iota(size_t n) {
    std::vector<int> v(n);
    std::iota(v.begin(), v.end(), 0);
    return v;
  }
  Sizes base_sizes(int64_t pad) const {
    Sizes s;
    for (int d : order_) s.push_back(shared_ >> d & 1 ? 1 : sizes_[size_t(d)]);
    s.back() += pad;
    return s;
  }
  Sizes sizes_;
  std::vector<int> order_;
  unsigned shared_;
  Tensor base_;
  Sizes strides_;
  fl_tensor view_;
};

bool is_complex(int dtype) { return dtype == FL_C64 || dtype == FL_C128; }
bool is_double(int dtype) { return dtype == FL_F64 || dtype == FL_C128; }

// What n additions of values up to `size` may be off by, after one rounding of `value`.
double allowed(int dtype, double value, double size) {
  double sums = (is_double(dtype) ? 1e-14 : 2e-6) * size;
  return sums + (is_complex(dtype) ? 0 : 1.1 * epsilon(dtype) * std::fabs(value)) +
         (dtype == FL_F16 ? 1e-7 : 0);
}

// -------------------------------------------------------------------------- gemm
enum Form { rows, columns, padded, padded_columns, batch_inside, shared, odd, backwards };
Operand matrix(int dtype, const Sizes& s, int form) {
  switch (form) {
    case columns:
      return Operand(dtype, s, {0, 2, 1});
    case padded:
      return Operand(dtype, s, {0, 1, 2}, 3);
    case padded_columns:
      return Operand(dtype, s, {0, 2, 1}, 5);
    case batch_inside:
      return Operand(dtype, s, {1, 0, 2});
    case shared:
      return Operand(dtype, s, {0, 1, 2}, 0, 1);
    case odd:
      return Operand(dtype, s, {0, 1, 2}, 1, 0, Layout::stepped);
    case backwards:
      return Operand(dtype, s, {0, 1, 2}, 0, 0, Layout::reversed);
  }
  return Operand(dtype, s);
}

int register_of(int dtype) {
  if (dtype == FL_F64 || is_complex(dtype)) return dtype;
  return floats(dtype) ? FL_F32 : FL_I64;
}

// result + extra, at least 0 where that is ordered.
const Program& add_program(int dtype) {
  static std::vector<std::pair<int, Program>> made;
  for (auto& [d, p] : made)
    if (d == dtype) return p;
  made.reserve(32);
  int r = register_of(dtype);
  std::vector<fl_instr> code{instr(FL_OP_LOAD, r, r, 0), instr(FL_OP_LOAD, r, dtype, 1),
                             instr(FL_OP_ADD, r, 0, 0, 1)};
  if (!is_complex(dtype))
    code.push_back(instr(FL_OP_SUB, r, 0, 0, 0)), code.push_back(instr(FL_OP_MAX, r, 0, 2, 3));
  code.push_back(instr(FL_OP_STORE, r, dtype, uint16_t(code.size() - 1), 0));
  return made.emplace_back(dtype, Program(code, 2, 1)).second;
}

struct Product {
  int dtype;
  int64_t batch, m, n, k;
  int a, b, out;  // forms
  int c;          // 0 none, 1 row, 2 column, 3 full, 4 the output itself, 5 one number
  double alpha, beta;
  bool epilogue;
};

void check_product(const Product& p) {
  Operand a = matrix(p.dtype, {p.batch, p.m, p.k}, p.a), b = matrix(p.dtype, {p.batch, p.k, p.n}, p.b),
          out = matrix(p.dtype, {p.batch, p.m, p.n}, p.out);
  Operand c(p.dtype, {p.batch, p.m, p.n}, {}, 0,
            p.c == 1   ? 3
            : p.c == 2 ? 5
            : p.c == 5 ? 7
                       : 0,
            p.c == 3 && p.beta != 1 ? Layout::stepped : Layout::contiguous);
  Operand extra(p.dtype, {p.batch, p.m, p.n}, {}, 0, p.alpha == 1 ? 3 : 0);
  a.randomise(), b.randomise(), c.randomise(), extra.randomise();
  for (int64_t i = 0; i < out.numel(); ++i) out.set(i, NAN, NAN);  // not read without c
  Operand before(p.dtype, {p.batch, p.m, p.n});
  before.randomise();
  if (p.c == 4)
    for (int64_t i = 0; i < out.numel(); ++i)
      out.set(i, before.get(i), is_complex(p.dtype) ? before.get_imag(i) : 0);
  const Operand& added = p.c == 4 ? before : c;

  fl_gemm_args args{};
  args.a = a.view(), args.b = b.view(), args.out = out.view();
  bool integer = !floats(p.dtype) && !is_complex(p.dtype);
  if (integer) args.alpha.v.i = int64_t(p.alpha), args.beta.v.i = int64_t(p.beta);
  else args.alpha = {{p.alpha}, 0.0}, args.beta = {{p.beta}, 0.0};
  args.c = p.c == 0 ? nullptr : p.c == 4 ? &out : &c;
  if (p.epilogue) args.epilogue = &add_program(p.dtype), args.extra = &extra;
  fl_launch l = launch();
  if (!ran(chip->op->gemm(&l, &args))) return;

  // Read once: the loops below ask for each element many times.
  auto numbers = [&](const Operand& o) {
    std::vector<std::complex<double>> v(size_t(o.numel()));
    for (int64_t i = 0; !integer && i < o.numel(); ++i)
      v[size_t(i)] = {o.get(i), is_complex(p.dtype) ? o.get_imag(i) : 0};
    return v;
  };
  auto integers = [&](const Operand& o) {
    std::vector<uint64_t> v(size_t(o.numel()));
    for (int64_t i = 0; integer && i < o.numel(); ++i) v[size_t(i)] = uint64_t(o.get_int(i));
    return v;
  };
  const auto na = numbers(a), nb = numbers(b);
  const auto ia = integers(a), ib = integers(b);
  for (int64_t z = 0; z < p.batch; ++z)
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        int64_t at = (z * p.m + i) * p.n + j;
        bool good = true;
        double got = out.get(at), want = 0;
        if (integer) {
          uint64_t sum = 0;
          for (int64_t k = 0; k < p.k; ++k) {
            sum += ia[size_t((z * p.m + i) * p.k + k)] * ib[size_t((z * p.k + k) * p.n + j)];
          }
          sum *= uint64_t(int64_t(p.alpha));
          if (p.c) sum += uint64_t(int64_t(p.beta)) * uint64_t(added.get_int(at));
          if (p.epilogue) sum = uint64_t(std::max<int64_t>(0, int64_t(sum + uint64_t(extra.get_int(at)))));
          int64_t stored = out.get_int(at), narrowed = int64_t(sum);
          good = std::memcmp(&stored, &narrowed, bytes_of(p.dtype)) == 0;  // the low bytes
          got = double(stored), want = double(narrowed);
        } else {
          std::complex<double> sum = 0;
          double size = 0;
          bool imaginary = is_complex(p.dtype);
          for (int64_t k = 0; k < p.k; ++k) {
            const auto &u = na[size_t((z * p.m + i) * p.k + k)], &v = nb[size_t((z * p.k + k) * p.n + j)];
            sum += imaginary ? u * v : u.real() * v.real();
            size += std::fabs(u.real() * v.real()) + std::fabs(u.imag() * v.imag());
          }
          sum *= p.alpha, size *= std::fabs(p.alpha);
          auto value = [&](const Operand& o) {
            return std::complex<double>(o.get(at), imaginary ? o.get_imag(at) : 0);
          };
          if (p.c) sum += p.beta * value(added), size += std::abs(p.beta * value(added));
          if (p.epilogue) {
            sum += value(extra), size += std::abs(value(extra));
            if (!imaginary) sum = std::max(0.0, sum.real());
          }
          want = sum.real();
          good = std::fabs(got - want) <= allowed(p.dtype, want, size + 1);
          if (imaginary)
            good = good && std::fabs(out.get_imag(at) - sum.imag()) <= allowed(p.dtype, want, size + 1);
        }
        if (!CHECK_THAT(good,
                        "gemm %s [%ld, %ld, %ld, %ld] forms %d %d %d c %d alpha %g beta %g epilogue %d: %g, "
                        "not %g at %ld",
                        text_of(p.dtype), long(p.batch), long(p.m), long(p.n), long(p.k), p.a, p.b, p.out,
                        p.c, p.alpha, p.beta, p.epilogue, got, want, long(at))) {
          return;
        }
      }
}

void products() {
  const int dtypes[] = {FL_F32, FL_F64, FL_F16, FL_BF16, FL_I8,  FL_U8,
                        FL_I16, FL_I32, FL_I64, FL_C64,  FL_C128};
  const int64_t shapes[][4] = {{1, 1, 1, 1},    {3, 5, 7, 3},     {2, 33, 17, 70},   {1, 1, 100, 90},
                               {2, 100, 1, 40}, {1, 70, 130, 65}, {1, 31, 300, 270}, {2, 64, 64, 64}};
  for (int dtype : dtypes) {
    for (const auto& s : shapes) {
      for (int repeat = 0; repeat < 8; ++repeat) {
        auto pick = [](std::initializer_list<int> forms) {
          return forms.begin()[below(int64_t(forms.size()))];
        };
        Product p{dtype,
                  s[0],
                  s[1],
                  s[2],
                  s[3],
                  pick({rows, columns, padded, padded_columns, batch_inside, shared, odd, backwards}),
                  pick({rows, columns, padded, padded_columns, batch_inside, shared, odd, backwards}),
                  pick({rows, columns, padded, batch_inside, odd}),
                  int(below(6)),
                  double(below(2) + 1),
                  double(below(2) + 1),
                  below(3) == 0};
        check_product(p);
      }
    }
  }
}

// An output that is an operand, a program that reads positions, and what is refused.
void product_rules() {
  Operand a(FL_F32, {1, 70, 70}), b(FL_F32, {1, 70, 70}), copy(FL_F32, {1, 70, 70}), out(FL_F32, {1, 70, 70});
  a.randomise(), b.randomise();
  fl_gemm_args args{};
  args.a = a.view(), args.b = b.view(), args.out = out.view(), args.alpha.v.f = 1;
  fl_launch l = launch();
  if (!ran(chip->op->gemm(&l, &args))) return;
  args.out = a.view();
  if (!ran(chip->op->gemm(&l, &args))) return;
  for (int64_t i = 0; i < a.numel(); ++i) CHECK(near(a.get(i), out.get(i), 1e-5, 1e-5));

  const Program position({instr(FL_OP_INDEX, FL_I64, 0, 1), instr(FL_OP_CAST, FL_F32, FL_I64, 0),
                          instr(FL_OP_LOAD, FL_F32, FL_F32, 0), instr(FL_OP_SUB, FL_F32, 0, 1, 2),
                          instr(FL_OP_ADD, FL_F32, 0, 3, 2), instr(FL_OP_STORE, FL_F32, FL_F32, 4, 0)},
                         1, 1);
  for (int form : {int(rows), int(columns)}) {
    Operand place = matrix(FL_F32, {1, 70, 70}, form);
    args.a = b.view(), args.out = place.view(), args.epilogue = &position;
    if (!ran(chip->op->gemm(&l, &args))) return;
    for (int64_t i = 0; i < place.numel(); ++i) CHECK(near(place.get(i), double(i / 70), 1e-5, 1e-4));
  }
  args.epilogue = nullptr;
  Operand wrong(FL_F32, {1, 71, 70});
  args.b = wrong.view();
  CHECK(chip->op->gemm(&l, &args) == FL_INVALID);
  Operand flags(FL_BOOL, {1, 70, 70});
  args.a = args.b = args.out = flags.view();
  CHECK(chip->op->gemm(&l, &args) == FL_UNSUPPORTED);
}

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
  products();
  product_rules();
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
