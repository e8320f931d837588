// Random numbers.  All of them come from Philox blocks that the generator hands
// out, so a seed gives the same numbers on every chip.
#include <ATen/native/UnaryOps.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/bernoulli_native.h>
#include <ATen/ops/cauchy_native.h>
#include <ATen/ops/exponential_native.h>
#include <ATen/ops/geometric_native.h>
#include <ATen/ops/log_normal_native.h>
#include <ATen/ops/multinomial_native.h>
#include <ATen/ops/normal_native.h>
#include <ATen/ops/random_native.h>
#include <ATen/ops/uniform_native.h>

#include <cmath>
#include <limits>

#include "bridge/devices.h"
#include "bridge/ops/random.h"
#include "program/expr.h"
#include "runtime/capture.h"

namespace fl::bridge {
namespace {

// Values are those of each replay, and nobody looks at them: CUDA's own checks are on the device.
bool is_captured(const Tensor& t) { return capture_of(current_stream(t.device().index())) != nullptr; }

// One launch of the random entry.  False: the chip does not claim it for out's dtype.
bool draw(Call& call, const Tensor& out, uint16_t distribution, fl_scalar a, fl_scalar b,
          const Generator& generator) {
  if (!call.claims(FL_ENTRY_RANDOM, distribution, dtype_of(out))) return false;
  if (out.numel() == 0) return true;
  if (C10_UNLIKELY(out.dim() > Space::kDims) && out.is_contiguous())
    return draw(call, out.view({-1}), distribution, a, b, generator);
  Space space(out.sizes());
  if (!space.ok()) return false;
  space.add(call.view(out));
  if (!space.finish(Order::kRows)) return false;
  bool two_words = distribution == FL_RANDOM_BITS64 || distribution == FL_RANDOM_RANGE64 ||
                   distribution == FL_RANDOM_UNIFORM64 || distribution == FL_RANDOM_NORMAL64;
  uint64_t per_block = two_words ? 2 : 4, n = static_cast<uint64_t>(out.numel());
  PhiloxState state = reserve(generator, out.device(), (n + per_block - 1) / per_block);
  fl_random_args args{};
  args.out = *space.tensors();
  args.seed = state.seed;
  args.offset = state.offset;
  args.a = a;
  args.b = b;
  args.distribution = distribution;
  return call.native(call.chip().op.random, args, {&args.out});
}

// The largest number of a half dtype below `high`.
double below(double high, ScalarType dtype) {
  auto step = [&](auto half) {
    half = static_cast<float>(high);
    if (static_cast<float>(half) >= high)
      half.x = static_cast<float>(half) > 0 ? half.x - 1 : half.x == 0 ? 0x8001 : half.x + 1;
    return static_cast<double>(static_cast<float>(half));
  };
  return dtype == at::kHalf ? step(at::Half()) : step(at::BFloat16());
}

// As many words as a double takes, on a chip without doubles: the high word of each number, in F32.
Tensor high_words(Call& call, IntArrayRef sizes, const Tensor& like, Draw kind, double a, double b,
                  const Generator& generator) {
  static Programs programs;
  int64_t n = c10::multiply_integers(sizes), pairs = (n + 1) / 2;
  bool uniform = kind == Draw::kUniform;
  Tensor words = empty_like(like, {pairs, 2, 2}, at::kFloat);
  if (!draw(call, words, FL_RANDOM_UNIFORM32, scalar_f(uniform ? a : 0), scalar_f(uniform ? b : 1),
            generator))
    throw_refused(call, "random", at::kFloat);
  Tensor high = words.select(2, 1);
  if (!uniform) {
    Tensor u = high.select(1, 0), v = high.select(1, 1), normal = empty_like(like, {pairs, 2}, at::kFloat);
    Tensor even = normal.select(1, 0), odd = normal.select(1, 1);
    const fl_program* box_muller = programs.get(0, [](Builder& p) {
      Expr x{&p, p.load(0, FL_F32)}, y{&p, p.load(1, FL_F32)}, mean{&p, p.scalar(0, FL_F32)};
      Expr angle = y * (2 * M_PI), size = sqrt(log(x + 0x1p-24) * -2.0) * Expr{&p, p.scalar(1, FL_F32)};
      p.store(0, (mean + size * cos(angle)).v, FL_F32);
      p.store(1, (mean + size * sin(angle)).v, FL_F32);
    });
    if (!run_program(call, box_muller, {&even, &odd}, {&u, &v}, {scalar_f(a), scalar_f(b)}))
      throw_refused(call, "pointwise", at::kFloat);
    high = normal;
  }
  return high.flatten().narrow(0, 0, n).view(sizes);
}

// from + (random bits mod span); span 0 is 2^64.
void fill_integers(Call& call, const Tensor& out, int64_t from, uint64_t span, const Generator& generator) {
  uint16_t distribution = span && span < (uint64_t{1} << 32) ? FL_RANDOM_RANGE32 : FL_RANDOM_RANGE64;
  fl_scalar a = scalar_i(from), b = scalar_i(static_cast<int64_t>(span));
  if (draw(call, out, distribution, a, b, generator)) return;
  call.composed();
  Tensor source = empty_like(out, out.sizes(), at::kLong);
  if (!draw(call, source, distribution, a, b, generator)) throw_refused(call, "random", at::kLong);
  copy_step(out, source);
}

// out = f(u): `build` gets u in its own type and up to two scalars.
template <class F>
void transform(Call& call, Programs& programs, const Tensor& out, const Tensor& u,
               std::initializer_list<fl_scalar> scalars, F&& build) {
  if (u.scalar_type() == at::kFloat && out.scalar_type() == at::kDouble) {  // a chip without doubles
    Tensor narrow = empty_like(out, out.sizes(), at::kFloat);
    transform(call, programs, narrow, u, scalars, std::forward<F>(build));
    return copy_step(out, narrow);
  }
  uint8_t from = dtype_of(u), to = dtype_of(out);
  const fl_program* program = programs.get(key_of(from, to), [&](Builder& b) {
    b.store(0, b.cast(build(b, b.load(0, from), from), to_register(out.scalar_type())), to);
  });
  if (!run_program(call, program, {&out}, {&u}, scalars)) throw_refused(call, "pointwise", u.scalar_type());
}

// What a stub hands over without an iterator, which would have looked for overlap.
Tensor target(const at::TensorBase& self) {
  at::assert_no_internal_overlap(self);
  return Tensor(self);
}

// --------------------------------------------------------------- stub kernels
void uniform_kernel(at::TensorIteratorBase& iter, double from, double to, Generator generator) {
  static Op op("aten::uniform_");
  Call call(op, iter.device(0));
  fill_real(call, iter.tensor(0), Draw::kUniform, from, to, generator);
}

void normal_kernel(const at::TensorBase& self, double mean, double std, Generator generator) {
  static Op op("aten::normal_");
  Call call(op, self);
  fill_real(call, target(self), Draw::kNormal, mean, std, generator);
}

void random_from_to_kernel(at::TensorIteratorBase& iter, uint64_t range, int64_t base, Generator generator) {
  static Op op("aten::random_.from");
  Call call(op, iter.device(0));
  fill_integers(call, iter.tensor(0), base, range, generator);
}

void random_full_kernel(at::TensorIteratorBase& iter, Generator generator) {
  static Op op("aten::random_.from");
  Call call(op, iter.device(0));
  fill_integers(call, iter.tensor(0), 0, 0, generator);
}

// Every integer that the dtype represents exactly and is not negative.
void random_kernel(at::TensorIteratorBase& iter, Generator generator) {
  static Op op("aten::random_");
  Call call(op, iter.device(0));
  uint64_t span;
  switch (iter.dtype(0)) {
    case at::kBool:
      span = 2;
      break;
    case at::kByte:
      span = uint64_t{1} << 8;
      break;
    case at::kChar:
      span = uint64_t{1} << 7;
      break;
    case at::kShort:
      span = uint64_t{1} << 15;
      break;
    case at::kInt:
      span = uint64_t{1} << 31;
      break;
    case at::kLong:
      span = uint64_t{1} << 63;
      break;
    case at::kUInt16:
      span = uint64_t{1} << 16;
      break;
    case at::kUInt32:
      span = uint64_t{1} << 32;
      break;
    case at::kUInt64:
      span = 0;
      break;
    case at::kBFloat16:
      span = (uint64_t{1} << 8) + 1;
      break;
    case at::kHalf:
      span = (uint64_t{1} << 11) + 1;
      break;
    case at::kFloat:
      span = (uint64_t{1} << 24) + 1;
      break;
    case at::kDouble:
      span = (uint64_t{1} << 53) + 1;
      break;
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "random_ is not implemented for ", c10::toString(iter.dtype(0)));
  }
  fill_integers(call, iter.tensor(0), 0, span, generator);
}

void bernoulli_scalar_kernel(const at::TensorBase& self, double p, Generator generator) {
  static Op op("aten::bernoulli_.float");
  static Programs programs;
  Tensor out = target(self);
  if (self.numel() == 0) return;
  Call call(op, self);
  call.composed();
  Tensor u = draw_like(call, out, Draw::kUniform, generator);
  transform(call, programs, out, u, {scalar_f(p)},
            [](Builder& b, Value v, uint8_t type) { return b.op(FL_OP_LT, v, b.scalar(0, type)); });
}

void bernoulli_tensor_kernel(const at::TensorBase& self, const at::TensorBase& p_in, Generator generator) {
  static Op op("aten::bernoulli_.Tensor");
  static Programs programs;
  Tensor out = target(self), p(p_in);
  if (self.numel() == 0) return;
  Call call(op, self);
  call.composed();
  p = p.to(out.device(), p.scalar_type() == at::kDouble ? real_dtype(call, at::kDouble) : p.scalar_type());
  check_values(op, p, 0, 1, "probabilities must be between 0 and 1");
  Tensor u = draw_like(call, out, Draw::kUniform, generator, p_in.scalar_type());
  if (out.scalar_type() == at::kDouble && real_dtype(call, at::kDouble) != at::kDouble)
    out = empty_like(out, out.sizes(), at::kFloat);  // a chip without doubles
  uint8_t tu = dtype_of(u), tp = dtype_of(p), to = dtype_of(out), type = to_register(p.scalar_type());
  const fl_program* program = programs.get(key_of(tu, tp, to), [&](Builder& b) {
    Value less = b.op(FL_OP_LT, b.load(0, tu, type), b.load(1, tp, type));
    b.store(0, b.cast(less, to_register(out.scalar_type())), to);
  });
  if (!run_program(call, program, {&out}, {&u, &p})) throw_refused(call, "pointwise", p.scalar_type());
  if (out.scalar_type() != self.scalar_type()) copy_step(Tensor(self), out);
}

void exponential_kernel(at::TensorIteratorBase& iter, double lambda, Generator generator) {
  static Op op("aten::exponential_");
  static Programs programs;
  if (iter.numel() == 0) return;
  Call call(op, iter.device(0));
  call.composed();
  Tensor out = iter.tensor(0), u = draw_like(call, out, Draw::kUniform, generator);
  // -log(1 - u) / lambda.  1 - u is never 0; 2^-25 keeps the result from being 0,
  // which would make multinomial divide by it.
  transform(call, programs, out, u, {scalar_f(-1 / lambda), scalar_f(std::ldexp(1.0, -25))},
            [](Builder& b, Value v, uint8_t type) {
              return b.op(FL_OP_MUL,
                          b.op(FL_OP_LOG1P, b.op(FL_OP_NEG, b.op(FL_OP_MAX, v, b.scalar(1, type)))),
                          b.scalar(0, type));
            });
}

void cauchy_kernel(at::TensorIteratorBase& iter, double median, double sigma, Generator generator) {
  static Op op("aten::cauchy_");
  static Programs programs;
  if (iter.numel() == 0) return;
  Call call(op, iter.device(0));
  call.composed();
  Tensor out = iter.tensor(0), u = draw_like(call, out, Draw::kUniform, generator);
  transform(call, programs, out, u, {scalar_f(median), scalar_f(sigma), scalar_f(0.5), scalar_f(M_PI)},
            [](Builder& b, Value v, uint8_t type) {
              Value angle = b.op(FL_OP_MUL, b.op(FL_OP_SUB, v, b.scalar(2, type)), b.scalar(3, type));
              return b.op(FL_OP_ADD, b.scalar(0, type),
                          b.op(FL_OP_MUL, b.scalar(1, type), b.op(FL_OP_TAN, angle)));
            });
}

void log_normal_kernel(at::TensorIteratorBase& iter, double mean, double std, Generator generator) {
  static Op op("aten::log_normal_");
  static Programs programs;
  if (iter.numel() == 0) return;
  Call call(op, iter.device(0));
  call.composed();
  Tensor out = iter.tensor(0), n = draw_like(call, out, Draw::kNormal, generator);
  transform(call, programs, out, n, {scalar_f(mean), scalar_f(std)}, [](Builder& b, Value v, uint8_t type) {
    return b.op(FL_OP_EXP, b.op(FL_OP_ADD, b.scalar(0, type), b.op(FL_OP_MUL, b.scalar(1, type), v)));
  });
}

void geometric_kernel(at::TensorIteratorBase& iter, double p, Generator generator) {
  static Op op("aten::geometric_");
  static Programs programs;
  if (iter.numel() == 0) return;
  Call call(op, iter.device(0));
  call.composed();
  Tensor out = iter.tensor(0), u = draw_like(call, out, Draw::kUniform, generator);
  transform(call, programs, out, u, {scalar_f(1 / std::log1p(-p)), scalar_f(1)},
            [](Builder& b, Value v, uint8_t type) {
              Value trials =
                  b.op(FL_OP_CEIL, b.op(FL_OP_MUL, b.op(FL_OP_LOG1P, b.op(FL_OP_NEG, v)), b.scalar(0, type)));
              return b.op(FL_OP_MAX, trials, b.scalar(1, type));
            });
}

// By the inverse of the cumulative distribution.
void multinomial_kernel(Tensor& result, const Tensor& weights, int64_t n, Generator generator) {
  static Op op("aten::multinomial");
  Tensor w = (weights.dim() == 1 ? weights.unsqueeze(0) : weights).to(at::kFloat);
  check_values(op, w, 0, std::numeric_limits<double>::max(), "probabilities must be finite and not below 0");
  Tensor steps = w.cumsum(-1), total = steps.narrow(1, steps.size(1) - 1, 1);
  TORCH_CHECK(total.numel() == 0 || is_captured(total) || total.min().item().toDouble() > 0,
              "invalid multinomial distribution (sum of probabilities <= 0)");
  Tensor u = at::empty({w.size(0), n}, steps.options()).uniform_(0, 1, generator).mul_(total);
  Tensor index = at::searchsorted(steps, u, false, true).clamp_max_(steps.size(1) - 1);
  result.copy_(index.view(result.sizes()));
}

Tensor& randperm_out(int64_t n, Generator generator, Tensor& out) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  at::native::check_supported_max_int_with_precision(n, out);
  out.resize_({n});
  if (n == 0) return out;
  Tensor keys = at::empty({n}, out.options().dtype(at::kLong)).random_(0, std::nullopt, generator);
  return out.copy_(keys.argsort());
}

// --------------------------------------------------------------------- dropout
std::tuple<Tensor, Tensor> dropout(const Tensor& x, double p, std::optional<bool> train) {
  static Op op("aten::native_dropout");
  static Programs programs;
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  Tensor mask = at::empty_like(x, x.options().dtype(at::kBool));
  if (x.numel() == 0) return {at::empty_like(x), mask};
  Call call(op, x);
  call.composed();
  if (train && !*train) return {x.clone(), mask.fill_(true)};
  Tensor out = at::empty_like(x), u = empty_like(x, x.sizes(), at::kFloat);
  fill_real(call, u, Draw::kUniform, 0, 1, std::nullopt);
  uint8_t memory = dtype_of(x), type = to_register(x.scalar_type());
  const fl_program* program = programs.get(memory, [&](Builder& b) {
    Value keep = b.op(FL_OP_LT, b.load(1, FL_F32), b.scalar(0, FL_F32));
    Value kept = b.op(FL_OP_MUL, b.load(0, memory), b.scalar(1, type));
    b.store(0, b.select(keep, kept, b.scalar(2, type)), memory);
    b.store(1, keep, FL_BOOL);
  });
  fl_scalar scale = scalar_f(p == 1 ? 0 : 1 / (1 - p));
  if (run_program(call, program, {&out, &mask}, {&x, &u}, {scalar_f(1 - p), scale, fl_scalar{}}))
    return {out, mask};
  mask = u < 1 - p;  // the chip does not compute x's dtype
  return {at::where(mask, x * scale.v.f, 0.0).to(x.scalar_type()), mask};
}

Tensor dropout_backward(const Tensor& grad, const Tensor& mask, double scale) {
  static Op op("aten::native_dropout_backward");
  check_devices(op, {&grad, &mask});
  static Programs programs;
  if (!at::isFloatingType(grad.scalar_type())) return grad.mul(mask).mul(scale);  // promotes integers
  Tensor out = at::empty_like(grad);
  Call call(op, grad);
  uint8_t memory = dtype_of(grad), type = to_register(grad.scalar_type());
  const fl_program* program = programs.get(memory, [&](Builder& b) {
    Value g = b.op(FL_OP_MUL, b.load(0, memory), b.scalar(0, type));
    b.store(0, b.select(b.load(1, FL_BOOL), g, b.scalar(1, type)), memory);
  });
  if (run_program(call, program, {&out}, {&grad, &mask}, {scalar_f(scale), fl_scalar{}})) return out;
  return fallback<ATEN_OP(native_dropout_backward)>(grad, mask, scale);
}

Tensor& bernoulli_out(const Tensor& p, Generator generator, Tensor& out) {
  static Op op("aten::bernoulli.out");
  if (p.device() != out.device()) throw_mixed_devices(op, p.device(), out.device());
  return at::native::bernoulli_out(p, generator, out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace n = at::native;
  using T = Tensor;
  using G = Generator;
  m.impl("uniform_", n::uniform_);
  m.impl("normal_", n::normal_);
  m.impl("normal.Tensor_float", static_cast<T (*)(const T&, double, G)>(n::normal));
  m.impl("normal.Tensor_float_out", static_cast<T& (*)(const T&, double, G, T&)>(n::normal_out));
  m.impl("normal.float_Tensor", static_cast<T (*)(double, const T&, G)>(n::normal));
  m.impl("normal.float_Tensor_out", static_cast<T& (*)(double, const T&, G, T&)>(n::normal_out));
  m.impl("normal.Tensor_Tensor", static_cast<T (*)(const T&, const T&, G)>(n::normal));
  m.impl("normal.Tensor_Tensor_out", static_cast<T& (*)(const T&, const T&, G, T&)>(n::normal_out));
  m.impl("random_", static_cast<T& (*)(T&, G)>(n::random_));
  m.impl("random_.to", static_cast<T& (*)(T&, int64_t, G)>(n::random_));
  m.impl("random_.from", static_cast<T& (*)(T&, int64_t, std::optional<int64_t>, G)>(n::random_));
  m.impl("bernoulli_.float", static_cast<T& (*)(T&, double, G)>(n::bernoulli_));
  m.impl("bernoulli_.Tensor", static_cast<T& (*)(T&, const T&, G)>(n::bernoulli_));
  m.impl("bernoulli.out", bernoulli_out);
  m.impl("exponential_", n::exponential_);
  m.impl("cauchy_", n::cauchy_);
  m.impl("log_normal_", n::log_normal_);
  m.impl("geometric_", n::geometric_);
  m.impl("multinomial", n::multinomial);
  m.impl("multinomial.out", n::multinomial_out);
  m.impl("randperm.generator_out", randperm_out);
  m.impl("native_dropout", dropout);
  m.impl("native_dropout_backward", dropout_backward);
}

}  // namespace

void fill_real(Call& call, const Tensor& out, Draw kind, double a, double b, const Generator& generator) {
  bool uniform = kind == Draw::kUniform, f64 = out.scalar_type() == at::kDouble;
  uint16_t narrow = uniform ? FL_RANDOM_UNIFORM32 : FL_RANDOM_NORMAL32;
  uint16_t wide = uniform ? FL_RANDOM_UNIFORM64 : FL_RANDOM_NORMAL64;
  if ((f64 || out.scalar_type() == at::kFloat) &&
      draw(call, out, f64 ? wide : narrow, scalar_f(a), scalar_f(b), generator))
    return;
  call.composed();
  if (f64) return copy_step(out, high_words(call, out.sizes(), out, kind, a, b, generator));
  Tensor source = empty_like(out, out.sizes(), at::kFloat);
  if (!draw(call, source, narrow, scalar_f(a), scalar_f(b), generator))
    throw_refused(call, "random", at::kFloat);
  static Programs programs;
  if (uniform && at::isReducedFloatingType(out.scalar_type()) && b > a) {  // rounding must not reach `high`
    const fl_program* clamp = programs.get(dtype_of(out), [&](Builder& p) {
      p.store(0, p.op(FL_OP_MIN, p.load(0, FL_F32), p.scalar(0, FL_F32)), dtype_of(out));
    });
    if (run_program(call, clamp, {&out}, {&source}, {scalar_f(below(b, out.scalar_type()))})) return;
  }
  copy_step(out, source);
}

void check_values(const Op& op, const Tensor& values, double low, double high, const char* rule) {
  if (values.numel() == 0 || is_captured(values)) return;
  auto [least, most] = at::aminmax(values);
  Tensor ends = at::stack({least, most}).to(at::kCPU).to(at::kDouble);
  for (int i = 0; i < 2; ++i) {
    const double value = ends.const_data_ptr<double>()[i];
    TORCH_CHECK(value >= low && value <= high, op.name, ": ", rule, ", but there is ", value, " in ",
                values.scalar_type(), values.sizes(), " on ", values.device());
  }
}

ScalarType real_dtype(const Call& call, ScalarType out) {
  bool wide = out == at::kDouble && call.claims(FL_ENTRY_RANDOM, FL_RANDOM_UNIFORM64, FL_F64) &&
              call.claims(FL_ENTRY_RANDOM, FL_RANDOM_NORMAL64, FL_F64) &&
              call.claims(FL_ENTRY_POINTWISE, FL_OP_LOG, FL_F64);
  return wide ? at::kDouble : at::kFloat;
}

Tensor draw_like(Call& call, const Tensor& out, Draw kind, const Generator& generator, ScalarType wanted) {
  double a = 0, b = 1;  // uniform from 0 to 1, normal of mean 0 and deviation 1
  ScalarType dtype = real_dtype(call, wanted);
  if (wanted == at::kDouble && dtype == at::kFloat)
    return high_words(call, out.sizes(), out, kind, a, b, generator);
  Tensor numbers = empty_like(out, out.sizes(), dtype);
  fill_real(call, numbers, kind, a, b, generator);
  return numbers;
}
Tensor draw_like(Call& call, const Tensor& out, Draw kind, const Generator& generator) {
  return draw_like(call, out, kind, generator, out.scalar_type());
}

// clang-format off
#define FL_RANDOM_KERNELS(X)                            \
  X(uniform_stub, uniform_kernel)                       \
  X(normal_stub, normal_kernel)                         \
  X(random_from_to_stub, random_from_to_kernel)         \
  X(random_full_64_bits_range_stub, random_full_kernel) \
  X(random_stub, random_kernel)                         \
  X(bernoulli_scalar_stub, bernoulli_scalar_kernel)     \
  X(bernoulli_tensor_stub, bernoulli_tensor_kernel)     \
  X(exponential_stub, exponential_kernel)               \
  X(cauchy_stub, cauchy_kernel)                         \
  X(log_normal_stub, log_normal_kernel)                 \
  X(geometric_stub, geometric_kernel)                   \
  X(multinomial_with_replacement_stub, multinomial_kernel)
// clang-format on
// The stubs' names must be looked up in their own namespace.
#define FL_RANDOM_POINTER(stub, kernel) constexpr auto* stub##_fl = &kernel;
FL_RANDOM_KERNELS(FL_RANDOM_POINTER)
}  // namespace fl::bridge

namespace at::native {
#define FL_RANDOM_REGISTER(stub, kernel) REGISTER_PRIVATEUSE1_DISPATCH(stub, fl::bridge::stub##_fl)
FL_RANDOM_KERNELS(FL_RANDOM_REGISTER)
}  // namespace at::native
