// grid_sampler_2d and 3d with their gradients.
//
// A point of the grid takes a weighted sum of a few of the input's points, its
// taps.  Programs compute their numbers and weights from the grid; then each
// tap is a gather, and for the input's gradient a scatter.
#include <ATen/native/GridSampler.h>

#include "bridge/ops/indexing.h"
#include "bridge/ops/reduction.h"
#include "program/expr.h"

namespace fl::bridge {
namespace {

using Interpolation = at::native::GridSamplerInterpolation;
using Padding = at::native::GridSamplerPadding;

constexpr int kTapsOfProgram = FL_MAX_OUTPUTS;

struct Sampler {
  int axes;  // grid component d moves along dimension axes-1-d of the space
  Interpolation mode;
  Padding padding;
  bool align_corners;

  int taps_of_axis() const {
    return mode == Interpolation::Nearest ? 1 : mode == Interpolation::Bilinear ? 2 : 4;
  }
  int taps() const {
    return axes == 2 ? taps_of_axis() * taps_of_axis() : taps_of_axis() * taps_of_axis() * taps_of_axis();
  }
  template <class... More>
  uint64_t key(More... more) const {
    return key_of(axes, static_cast<int>(mode), static_cast<int>(padding), align_corners, more...);
  }
};

// The formulas of one grid point, in a program whose inputs 0 … axes-1 are the
// grid's components and whose scalars are Problem::scalars.  What several taps
// need is computed once: the builder finds equal instructions.
class Formulas {
 public:
  Formulas(Builder& b, const Sampler& s, uint8_t memory, uint8_t type)
      : b_(b),
        s_(s),
        zero_{&b, b.constant(0, type)},
        one_{&b, b.constant(1, type)},
        half_{&b, b.constant(0.5, type)} {
    for (int d = 0; d < s.axes; ++d) {
      Expr size{&b, b.scalar(d, type)}, c{&b, b.load(d, memory, type)};
      last_[d] = size - one_;
      // The input's points are areas: -1 and 1 are the centres, or the edges, of the outermost.
      scale_[d] = (s.align_corners ? last_[d] : size) * half_;
      Expr away = c + one_;
      // In a plane PyTorch's CPU kernels fuse this, as CUDA's do: among hundreds of points it shows.
      unnormalized_[d] = s.align_corners ? away * scale_[d]
                         : s.axes == 2   ? apply(FL_OP_FMA, away, scale_[d], away.like(-0.5))
                                         : away * scale_[d] - half_;
      span_[d] = s.align_corners ? last_[d] : size;
      at_[d] = s.mode == Interpolation::Bicubic ? unnormalized_[d] : padded(unnormalized_[d], d);
      base_[d] = s.mode == Interpolation::Nearest ? round(at_[d]) : apply(FL_OP_FLOOR, at_[d]);
    }
  }

  // The tap's number among the input's points; 0 where it lies outside.
  Expr number(int tap) {
    Expr sum = axis(0, tap).number * Expr{&b_, b_.scalar(s_.axes, FL_I64)};
    for (int d = 1; d < s_.axes; ++d)
      sum = sum + axis(d, tap).number * Expr{&b_, b_.scalar(s_.axes + d, FL_I64)};
    return select(inside(tap), sum, Expr{&b_, b_.constant(0, FL_I64)});
  }
  // 0 where it lies outside; NaN where the coordinate is and PyTorch's CPU says so.
  Expr weight(int tap) {
    Expr w = factor(0, tap);
    for (int d = 1; d < s_.axes; ++d) w = w * factor(d, tap);
    return select(inside(tap), w, s_.axes == 2 ? w * zero_ : zero_);
  }
  // The derivative of the tap's weight by the grid's component.
  Expr slope(int tap, int component) {
    Expr w = coordinate_slope(component);
    for (int d = 0; d < s_.axes; ++d) w = w * (d == component ? factor_slope(d, tap) : factor(d, tap));
    return select(inside(tap), w, zero_);
  }

 private:
  struct AxisTap {
    Expr number, inside;  // number: 0 where outside
  };

  int digit(int tap, int d) const {
    for (; d > 0; --d) tap /= s_.taps_of_axis();
    return tap % s_.taps_of_axis();
  }
  struct Mirror {
    Expr from_low, even, value;
  };
  Mirror mirrored(Expr x, int d) {
    Mirror m;
    double low = s_.align_corners ? 0 : -0.5;
    m.from_low = s_.align_corners ? x : x + half_;
    Expr away = abs(m.from_low), extra = apply(FL_OP_REM_TRUNC, away, span_[d]);
    Expr flips = apply(FL_OP_FLOOR, away / span_[d]), pairs = apply(FL_OP_FLOOR, flips * half_);
    m.even = flips - (pairs + pairs) == zero_;
    m.value = select(m.even, extra, span_[d] - extra);
    if (low != 0) m.value = m.value + low;
    // A single point is its own mirror image.
    else m.value = select(span_[d] == zero_, zero_, m.value);
    return m;
  }
  Expr padded(Expr x, int d) {
    if (s_.padding == Padding::Zeros) return x;
    if (s_.padding == Padding::Reflection) x = mirrored(x, d).value;
    return apply(FL_OP_FMIN, apply(FL_OP_FMAX, x, zero_), last_[d]);  // NaN goes to 0
  }
  Expr coordinate_slope(int d) {
    if (s_.padding == Padding::Zeros || s_.mode == Interpolation::Bicubic) return scale_[d];
    Expr x = unnormalized_[d], slope = scale_[d];
    if (s_.padding == Padding::Reflection) {
      Mirror m = mirrored(x, d);
      slope = select((m.from_low < zero_) ^ m.even, slope, -slope);
      slope = select(span_[d] == zero_, zero_, slope);
      x = m.value;
    }
    return select((x <= zero_) | (x >= last_[d]), zero_, slope);
  }

  AxisTap axis(int d, int tap) {
    int k = digit(tap, d);
    Expr p = base_[d];
    if (s_.mode == Interpolation::Bilinear && k) p = p + one_;
    if (s_.mode == Interpolation::Bicubic) p = trunc(padded(p + (k - 1), d));
    Expr inside = (p >= zero_) & (p <= last_[d]);
    return {select(inside, p, zero_).cast(FL_I64), inside};
  }
  Expr inside(int tap) {
    Expr all = axis(0, tap).inside;
    for (int d = 1; d < s_.axes; ++d) all = all & axis(d, tap).inside;
    return all;
  }

  // How far tap k of the axis is from the point, for the cubic: 0 <= x <= 2.
  Expr distance(int d, int k) {
    Expr t = at_[d] - base_[d];
    return k == 0 ? t + one_ : k == 1 ? t : k == 2 ? one_ - t : 2 - t;
  }
  Expr factor(int d, int tap) {
    int k = digit(tap, d);
    if (s_.mode == Interpolation::Nearest) return one_;
    Expr t = at_[d] - base_[d];
    if (s_.mode == Interpolation::Bilinear) return k ? t : one_ - t;
    Expr x = distance(d, k);
    if (k == 1 || k == 2) return ((kA + 2) * x - (kA + 3)) * x * x + one_;
    return ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA;
  }
  Expr factor_slope(int d, int tap) {
    int k = digit(tap, d);
    if (s_.mode == Interpolation::Bilinear) return k ? one_ : -one_;
    Expr x = distance(d, k);
    Expr slope =
        k == 1 || k == 2 ? (3 * (kA + 2) * x - 2 * (kA + 3)) * x : (3 * kA * x - 10 * kA) * x + 8 * kA;
    return k < 2 ? slope : -slope;
  }

  static constexpr double kA = -0.75;
  Builder& b_;
  const Sampler& s_;
  Expr zero_, one_, half_;
  Expr last_[3], span_[3], scale_[3], unnormalized_[3], at_[3], base_[3];
};

struct Problem {
  Sampler sampler;
  ScalarType type;                   // what is computed in: F32 for halves, in which a coordinate has no room
  Tensor grid;                       // [N, P, axes]
  int64_t points, inputs;            // P, and how many points the input has
  std::array<fl_scalar, 6> scalars;  // sizes, then strides, of the components' axes
  // Of each tap, [taps, N, P].
  Tensor numbers, weights;

  uint8_t type_code() const { return to_dtype(type); }
  int64_t batches() const { return grid.size(0); }
  // [N, 1, P]
  Tensor number(int tap) const { return numbers.select(0, tap).unsqueeze(1); }
  Tensor weight(int tap) const { return weights.select(0, tap).unsqueeze(1); }
};

// A program over the grid's points [N, P]: from the components, and what else it reads.
bool over_grid(Call& call, const Problem& p, const fl_program* program, const std::vector<Tensor>& outputs,
               const std::vector<Tensor>& more = {}) {
  Space space({p.batches(), p.points});
  for (const Tensor& t : outputs) space.add(call.view(t));
  for (int d = 0; d < p.sampler.axes; ++d) space.add(call.view(p.grid.select(2, d)));
  for (const Tensor& t : more) space.add(call.view(t));
  space.finish();
  return pointwise(call, program, space, static_cast<int>(outputs.size()), p.scalars.data());
}

// Numbers and weights of all taps.  False: the chip cannot.
bool compute_taps(Call& call, Problem& p) {
  static Programs programs;
  const Sampler& s = p.sampler;
  ScalarType index_type = p.inputs < std::numeric_limits<int32_t>::max() ? at::kInt : at::kLong;
  p.numbers = empty_like(p.grid, {s.taps(), p.batches(), p.points}, index_type);
  p.weights = empty_like(p.grid, {s.taps(), p.batches(), p.points}, p.type);
  uint8_t memory = dtype_of(p.grid), type = p.type_code(), index = to_dtype(index_type);
  for (bool weighs : {false, true})
    for (int first = 0; first < s.taps(); first += kTapsOfProgram) {
      int n = std::min(kTapsOfProgram, s.taps() - first);
      const fl_program* program = programs.get(s.key(memory, type, index, weighs, first), [&](Builder& b) {
        Formulas f(b, s, memory, type);
        for (int k = 0; k < n; ++k)
          if (weighs) b.store(k, f.weight(first + k).v, type);
          else b.store(k, f.number(first + k).v, index);
      });
      std::vector<Tensor> outputs;
      for (int k = 0; k < n; ++k) outputs.push_back((weighs ? p.weights : p.numbers).select(0, first + k));
      if (!over_grid(call, p, program, outputs)) return false;
    }
  return true;
}

std::optional<Problem> problem_of(Call& call, const Tensor& input, const Tensor& grid, int64_t mode,
                                  int64_t padding, bool align_corners) {
  Problem p;
  int axes = static_cast<int>(input.dim()) - 2;
  p.sampler = {axes, static_cast<Interpolation>(mode), static_cast<Padding>(padding), align_corners};
  p.type = at::isReducedFloatingType(input.scalar_type()) ? at::kFloat : input.scalar_type();
  p.points = grid.numel() / (grid.size(0) * grid.size(-1));
  p.grid = grid.reshape({grid.size(0), p.points, axes});
  p.inputs = 1;
  for (int d = 0; d < axes; ++d) {
    p.scalars[static_cast<size_t>(d)] = scalar_f(static_cast<double>(input.size(-1 - d)));
    p.scalars[static_cast<size_t>(axes + d)] = scalar_i(p.inputs);
    p.inputs *= input.size(-1 - d);
  }
  if (!compute_taps(call, p)) return std::nullopt;
  return p;
}

// picked [N, C, P] = a tap's points of planes [N, C, X].
bool pick(Call& call, const Problem& p, const Tensor& planes, int tap, const Tensor& picked) {
  Tensor number = p.number(tap);
  return gather_into(call, picked, planes.narrow(2, 0, 1), {&number}, {{p.inputs, planes.stride(2)}});
}

// x × w, where an input's infinity does not count if w is 0: it may lie outside.
Expr weighted(Expr x, Expr w) { return select(w == 0, w, x * w); }

// to = [sum +] the picked points, weighted.
bool sum_taps(Call& call, const Problem& p, const Tensor* sum, const std::vector<Tensor>& picked, int first,
              const Tensor& to) {
  static Programs programs;
  uint8_t type = p.type_code(), memory = dtype_of(to);
  int n = static_cast<int>(picked.size()), base = sum ? 1 : 0;
  const fl_program* program = programs.get(key_of(type, memory, n, base), [&](Builder& b) {
    auto load = [&](int i) { return Expr{&b, b.load(i, type)}; };
    Expr total = sum ? load(0) : weighted(load(0), load(n));
    for (int k = base ? 0 : 1; k < n; ++k) total = total + weighted(load(base + k), load(base + n + k));
    b.store(0, total.v, memory);
  });
  Space space(to.sizes());
  space.add(call.view(to));
  if (sum) space.add(call.view(*sum));
  for (const Tensor& t : picked) space.add(call.view(t));
  for (int k = 0; k < n; ++k) space.add(call.view(p.weight(first + k)));
  space.finish();
  return pointwise(call, program, space, 1);
}

bool sample(Call& call, const Problem& p, const Tensor& input, const Tensor& out) {
  Tensor planes = input.to(p.type).flatten(2), target = out.view({out.size(0), out.size(1), p.points}), sum;
  std::vector<Tensor> picked;
  for (int first = 0; first < p.sampler.taps();) {
    // A program reads the sum, points and weights: eight at most.
    int n = std::min(sum.defined() ? 3 : 4, p.sampler.taps() - first);
    picked.resize(static_cast<size_t>(n));
    for (int k = 0; k < n; ++k) {
      Tensor& t = picked[static_cast<size_t>(k)];
      if (!t.defined()) t = empty_like(out, target.sizes(), p.type);
      if (!pick(call, p, planes, first + k, t)) return false;
    }
    bool last = first + n == p.sampler.taps();
    Tensor to = last ? target : sum.defined() ? sum : empty_like(out, target.sizes(), p.type);
    if (!sum_taps(call, p, sum.defined() ? &sum : nullptr, picked, first, to)) return false;
    sum = to;
    first += n;
  }
  return true;
}

// to [N, C, X] = the sum of weight × grad over the taps that are there.
bool scatter_gradient(Call& call, const Problem& p, const Tensor& grad, const Tensor& to) {
  static Programs programs;
  uint8_t type = p.type_code();
  if (!call.claims(FL_ENTRY_SCATTER, FL_SCATTER_ADD, type)) return false;
  const fl_program* product = programs.get(key_of(type), [&](Builder& b) {
    b.store(0, weighted(Expr{&b, b.load(0, type)}, Expr{&b, b.load(1, type)}).v, type);
  });
  fill_step(to, 0);
  Tensor first = to.narrow(2, 0, 1), part = empty_like(grad, grad.sizes(), p.type);
  for (int t = 0; t < p.sampler.taps(); ++t) {
    Tensor weight = p.weight(t), number = p.number(t);
    if (!run_program(call, product, {&part}, {&grad, &weight}) ||
        !scatter_into(call, FL_SCATTER_ADD, first, part, {&number}, {{p.inputs, to.stride(2)}}))
      return false;
  }
  return true;
}

// The gradient by the grid: each tap's value times grad, over the channels, by the weight's slope.
bool grid_gradient(Call& call, const Problem& p, const Tensor& planes, const Tensor& grad, const Tensor& to) {
  static Programs programs, products;
  const Sampler& s = p.sampler;
  uint8_t memory = dtype_of(p.grid), type = p.type_code();
  const fl_program* product = products.get(
      key_of(type), [&](Builder& b) { b.store(0, b.op(FL_OP_MUL, b.load(0, type), b.load(1, type)), type); });
  Tensor dots = empty_like(grad, {s.taps(), p.batches(), p.points}, p.type);
  Tensor picked = empty_like(grad, grad.sizes(), p.type);
  for (int t = 0; t < s.taps(); ++t) {
    Tensor dot = dots.select(0, t);
    if (!pick(call, p, planes, t, picked) ||
        !reduce(call, {FL_REDUCE_SUM, type, product}, mask_of(1, 3), {&picked, &grad}, {&dot}))
      return false;
  }
  for (int d = 0; d < s.axes; ++d) {
    Tensor result = to.select(2, d);
    for (int at = 0; at < s.taps(); at += kTapsOfProgram) {
      int n = std::min(kTapsOfProgram, s.taps() - at);
      const fl_program* program = programs.get(s.key(memory, type, d, at), [&](Builder& b) {
        Formulas f(b, s, memory, type);
        // A slope is 0 outside, where the value is that of another point.
        auto term = [&](int k) { return weighted(Expr{&b, b.load(s.axes + k, type)}, f.slope(at + k, d)); };
        Expr sum = term(0);
        for (int k = 1; k < n; ++k) sum = sum + term(k);
        if (at) sum = sum + Expr{&b, b.load(s.axes + n, type)};
        b.store(0, sum.v, type);
      });
      std::vector<Tensor> more;
      for (int k = 0; k < n; ++k) more.push_back(dots.select(0, at + k));
      if (at) more.push_back(result);
      if (!over_grid(call, p, program, {result}, more)) return false;
    }
  }
  return true;
}

void check(const Tensor& input, const Tensor& grid, int64_t mode, int64_t padding, int axes) {
  at::native::check_grid_sampler_common(input, grid);
  if (axes == 2) at::native::check_grid_sampler_2d(input, grid);
  else at::native::check_grid_sampler_3d(input, grid, mode);
  TORCH_CHECK(mode >= 0 && mode <= 2 && padding >= 0 && padding <= 2,
              "grid_sampler(): no interpolation mode ", mode, " or padding mode ", padding);
  TORCH_CHECK(input.scalar_type() == grid.scalar_type(),
              "grid_sampler(): expected input and grid to have the ", "same dtype, but got ",
              input.scalar_type(), " and ", grid.scalar_type());
}

template <int axes>
Tensor forward(const Tensor& input, const Tensor& grid, int64_t mode, int64_t padding, bool align_corners) {
  static Op op(axes == 2 ? "aten::grid_sampler_2d" : "aten::grid_sampler_3d");
  check(input, grid, mode, padding, axes);
  at::DimVector sizes{input.size(0), input.size(1)};
  for (int64_t d = 1; d <= axes; ++d) sizes.push_back(grid.size(d));
  Tensor out = at::empty(sizes, input.options());
  if (out.numel() == 0) return out;
  Call call(op, input);
  call.composed();
  auto p = problem_of(call, input, grid, mode, padding, align_corners);
  if (p && sample(call, *p, input, out)) return out;
  if constexpr (axes == 2)
    return fallback<ATEN_OP(grid_sampler_2d)>(input, grid, mode, padding, align_corners);
  else return fallback<ATEN_OP(grid_sampler_3d)>(input, grid, mode, padding, align_corners);
}

template <int axes>
std::tuple<Tensor, Tensor> backward(const Tensor& grad, const Tensor& input, const Tensor& grid, int64_t mode,
                                    int64_t padding, bool align_corners, std::array<bool, 2> wanted) {
  static Op op(axes == 2 ? "aten::grid_sampler_2d_backward" : "aten::grid_sampler_3d_backward");
  check(input, grid, mode, padding, axes);
  Tensor grad_input, grad_grid = at::empty(grid.sizes(), grid.options());
  if (wanted[0]) grad_input = at::empty(input.sizes(), input.options());
  Call call(op, input);
  bool slopes = wanted[1] && static_cast<Interpolation>(mode) != Interpolation::Nearest;
  if (grad.numel() == 0) {
    grad_grid.zero_();
    if (wanted[0]) grad_input.zero_();
    return {grad_input, grad_grid};
  }
  auto run = [&] {
    auto p = problem_of(call, input, grid, mode, padding, align_corners);
    if (!p) return false;
    Tensor planes = grad.to(p->type).flatten(2);
    if (wanted[0]) {
      Tensor target = grad_input.view({input.size(0), input.size(1), p->inputs});
      Tensor to = p->type == input.scalar_type() ? target : empty_like(target, target.sizes(), p->type);
      if (!scatter_gradient(call, *p, planes, to)) return false;
      if (!to.is_same(target)) copy_step(target, to);
    }
    if (!slopes) {
      fill_step(grad_grid, 0);
      return true;
    }
    Tensor to = p->type == grid.scalar_type() ? grad_grid.view(p->grid.sizes())
                                              : empty_like(grid, p->grid.sizes(), p->type);
    if (!grid_gradient(call, *p, input.to(p->type).flatten(2), planes, to)) return false;
    if (p->type != grid.scalar_type()) copy_step(grad_grid, to.view(grid.sizes()));
    return true;
  };
  call.composed();
  if (run()) return {grad_input, grad_grid};
  if constexpr (axes == 2)
    return fallback<ATEN_OP(grid_sampler_2d_backward)>(grad, input, grid, mode, padding, align_corners,
                                                       wanted);
  else
    return fallback<ATEN_OP(grid_sampler_3d_backward)>(grad, input, grid, mode, padding, align_corners,
                                                       wanted);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("grid_sampler_2d", forward<2>);
  m.impl("grid_sampler_3d", forward<3>);
  m.impl("grid_sampler_2d_backward", backward<2>);
  m.impl("grid_sampler_3d_backward", backward<3>);
}

}  // namespace
}  // namespace fl::bridge
