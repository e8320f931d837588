// _foreach_ operators: one launch for lists that are uniform (one device, one
// floating dtype, equal shapes item by item); else PyTorch's loop over tensors.
#include <ATen/native/ForeachUtils.h>
#include <ATen/NativeFunctions.h>

#include "bridge/alpha.h"
#include "bridge/ops/multi_tensor.h"

namespace fl::bridge {
namespace {

using at::Scalar;
using at::TensorList;
using Scalars = c10::ArrayRef<Scalar>;
// in: the lists; s: shared scalars, then those of an item.
using BuildItem = Value (*)(Builder&, const Value* in, const Value* s);

struct ForeachOp {
  Op op;
  BuildItem build;
  bool in_dtype;  // numbers are rounded to a half dtype first, as alpha and a summand are
  bool is_power;
  Programs programs;
  ForeachOp(const char* name, BuildItem build, bool in_dtype = false, bool is_power = false)
      : op(name), build(build), in_dtype(in_dtype), is_power(is_power) {}
};

bool takes(const Tensor& t, const Tensor& lead) {
  return t.device() == lead.device() && t.scalar_type() == lead.scalar_type() && t.layout() == at::kStrided &&
         !t.is_conj() && !t.is_neg();
}

// `broadcast`: one 0-d tensor that every item sees after the lists.
bool uniform(TensorList self, c10::ArrayRef<TensorList> others, const Tensor* broadcast) {
  if (self.empty() || !is_fl(self[0])) return false;
  const Tensor& lead = self[0];
  if (!at::isFloatingType(lead.scalar_type()) && !at::isComplexType(lead.scalar_type())) return false;
  for (TensorList list : others)
    if (list.size() != self.size()) return false;
  for (size_t i = 0; i < self.size(); ++i) {
    if (!takes(self[i], lead) || !self[i].is_non_overlapping_and_dense()) return false;
    for (TensorList list : others)
      if (!takes(list[i], lead) || list[i].sizes() != self[i].sizes()) return false;
  }
  return !broadcast || (takes(*broadcast, lead) && broadcast->numel() == 1);
}

// Complex numbers promote; booleans are refused by some operators.
bool plain(Scalars scalars, ScalarType dtype) {
  for (const Scalar& s : scalars)
    if (s.isBoolean() || (s.isComplex() && !at::isComplexType(dtype))) return false;
  return true;
}

// at::pow has formulas of its own for these exponents, which are not the general one's results bit by bit.
bool has_formula(Scalars exponents) {
  static constexpr double known[] = {0, 1, 2, 3, 0.5, -0.5, -1};
  return std::any_of(exponents.begin(), exponents.end(), [](const Scalar& s) {
    return !s.isComplex() && std::find(std::begin(known), std::end(known), s.toDouble()) != std::end(known);
  });
}

// Runs `f` into `out` (self itself: in place).  False: not uniform, or the chip cannot.
bool run(ForeachOp& f, TensorList out, TensorList self, c10::ArrayRef<TensorList> others, Scalars shared = {},
         std::optional<Scalars> per_item = {}, const Tensor* broadcast = nullptr) {
  if (!uniform(self, others, broadcast)) return false;
  if (per_item && per_item->size() != self.size()) return false;
  ScalarType dtype = self[0].scalar_type();
  if (!plain(shared, dtype) || (per_item && !plain(*per_item, dtype))) return false;
  if (f.is_power && (has_formula(shared) || (per_item && has_formula(*per_item)))) return false;
  uint8_t memory = to_dtype(dtype), type = to_register(dtype);
  int n_inputs = static_cast<int>(1 + others.size() + (broadcast ? 1 : 0));
  int n_scalars = static_cast<int>(shared.size() + (per_item ? 1 : 0));
  const fl_program* program = f.programs.get(key_of(memory, n_inputs, n_scalars), [&](Builder& b) {
    Value in[4], s[3];
    for (int i = 0; i < n_inputs; ++i) in[i] = b.load(i, memory);
    for (int i = 0; i < n_scalars; ++i) s[i] = b.scalar(i, type);
    b.store(0, f.build(b, in, s), memory);
  });
  auto number = [&](const Scalar& s) { return to_scalar(f.in_dtype ? in_dtype(s, dtype) : s, type); };
  Call call(f.op, self[0]);
  MultiTensor items(call, self.size());
  for (size_t i = 0; i < self.size(); ++i) {
    const Tensor* to = &out[i];
    const Tensor* from[4] = {&self[i]};
    int n = 1;
    for (TensorList list : others) from[n++] = &list[i];
    if (broadcast) from[n++] = broadcast;
    fl_scalar scalar;
    if (per_item) scalar = number((*per_item)[i]);
    if (!items.add(to, c10::ArrayRef<const Tensor*>(from, n), {&scalar, per_item ? size_t{1} : size_t{0}}))
      return false;
  }
  fl_scalar common[2];
  for (size_t k = 0; k < shared.size(); ++k) common[k] = number(shared[k]);
  return items.run(program, {common, shared.size()});
}

std::vector<Tensor> like(TensorList self) {
  std::vector<Tensor> out;
  out.reserve(self.size());
  for (const Tensor& t : self) out.push_back(at::empty_like(t));
  return out;
}

// Of the two forms of an operator: `run` fills the outputs, or the slow one does.
#define FOREACH(name, slow, parameters, arguments, ...)                          \
  std::vector<Tensor> name parameters {                                          \
    if (!self.empty() && is_fl(self[0])) {                                       \
      std::vector<Tensor> out = like(self);                                      \
      if (run(name##_op, out, self, __VA_ARGS__)) return out;                    \
    }                                                                            \
    return at::native::slow arguments;                                           \
  }                                                                              \
  void name##_ parameters {                                                      \
    if (!run(name##_op, self, self, __VA_ARGS__)) at::native::slow##_ arguments; \
  }

#define FOREACH_UNARY(name, opcode)                                                                   \
  ForeachOp name##_op("aten::_foreach_" #name,                                                        \
                      [](Builder& b, const Value* in, const Value*) { return b.op(opcode, in[0]); }); \
  FOREACH(name, foreach_tensor_##name##_slow, (TensorList self), (self), {})

// Of a value and an equal bound the value itself: -0 stays.
Value by_number(Builder& b, uint16_t opcode, Value x, Value number) {
  Value result = b.op(opcode, x, number);
  bool bound = opcode == FL_OP_MAX || opcode == FL_OP_MIN;
  return bound ? b.select(b.op(FL_OP_EQ, x, number), x, result) : result;
}

// name.Scalar and name.ScalarList
#define FOREACH_BINARY(name, slow, opcode, in_dtype)                                                 \
  ForeachOp name##_scalar_op(                                                                        \
      "aten::_foreach_" #name ".Scalar",                                                             \
      [](Builder& b, const Value* in, const Value* s) { return by_number(b, opcode, in[0], s[0]); }, \
      in_dtype, opcode == FL_OP_POW);                                                                \
  ForeachOp name##_scalarlist_op(                                                                    \
      "aten::_foreach_" #name ".ScalarList",                                                         \
      [](Builder& b, const Value* in, const Value* s) { return by_number(b, opcode, in[0], s[0]); }, \
      in_dtype, opcode == FL_OP_POW);                                                                \
  FOREACH(name##_scalar, foreach_tensor_##slow##_scalar_kernel_slow,                                 \
          (TensorList self, const Scalar& scalar), (self, scalar), {}, scalar)                       \
  FOREACH(name##_scalarlist, foreach_tensor_##slow##_scalarlist_kernel_slow,                         \
          (TensorList self, Scalars scalars), (self, scalars), {}, {}, scalars)
#define FOREACH_BINARY_LIST(name, slow, opcode)                                                             \
  ForeachOp name##_list_op("aten::_foreach_" #name ".List", [](Builder& b, const Value* in, const Value*) { \
    return b.op(opcode, in[0], in[1]);                                                                      \
  });                                                                                                       \
  FOREACH(name##_list, foreach_tensor_##slow##_list_kernel_slow, (TensorList self, TensorList other),       \
          (self, other), other)
#define FOREACH_BINARY_LIST_ALPHA(name)                                \
  ForeachOp name##_alpha_op(                                           \
      "aten::_foreach_" #name ".List",                                 \
      [](Builder& b, const Value* in, const Value* s) {                \
        return b.op(name##_code, in[0], b.op(FL_OP_MUL, in[1], s[0])); \
      },                                                               \
      true);                                                           \
  FOREACH(name##_alpha, foreach_tensor_##name##_list_kernel_slow,      \
          (TensorList self, TensorList other, const Scalar& alpha), (self, other, alpha), other, alpha)
#define FOREACH_TENSOR(name)                                                                                 \
  ForeachOp name##_tensor_op(                                                                                \
      "aten::_foreach_" #name ".Tensor",                                                                     \
      [](Builder& b, const Value* in, const Value*) { return b.op(name##_code, in[0], in[1]); });            \
  FOREACH(name##_tensor, foreach_tensor_##name##_tensor_kernel_slow, (TensorList self, const Tensor& other), \
          (self, other), {}, {}, {}, &other)

constexpr uint16_t add_code = FL_OP_ADD, sub_code = FL_OP_SUB, mul_code = FL_OP_MUL, div_code = FL_OP_DIV;

FOREACH_BINARY(add, add, FL_OP_ADD, true)
FOREACH_BINARY(sub, sub, FL_OP_SUB, true)
FOREACH_BINARY(mul, mul, FL_OP_MUL, false)
FOREACH_BINARY(div, div, FL_OP_DIV, false)
FOREACH_BINARY(maximum, clamp_min, FL_OP_MAX, false)
FOREACH_BINARY(minimum, clamp_max, FL_OP_MIN, false)
FOREACH_BINARY(pow, pow, FL_OP_POW, false)
FOREACH_BINARY_LIST_ALPHA(add)
FOREACH_BINARY_LIST_ALPHA(sub)
FOREACH_BINARY_LIST(mul, mul, FL_OP_MUL)
FOREACH_BINARY_LIST(div, div, FL_OP_DIV)
FOREACH_BINARY_LIST(maximum, clamp_min, FL_OP_MAX)
FOREACH_BINARY_LIST(minimum, clamp_max, FL_OP_MIN)
FOREACH_BINARY_LIST(pow, pow, FL_OP_POW)
FOREACH_TENSOR(mul)
FOREACH_TENSOR(div)

FOREACH_UNARY(sqrt, FL_OP_SQRT)
FOREACH_UNARY(rsqrt, FL_OP_RSQRT)
FOREACH_UNARY(neg, FL_OP_NEG)
FOREACH_UNARY(reciprocal, FL_OP_RECIPROCAL)
FOREACH_UNARY(exp, FL_OP_EXP)
FOREACH_UNARY(log, FL_OP_LOG)
FOREACH_UNARY(sigmoid, FL_OP_SIGMOID)
FOREACH_UNARY(tanh, FL_OP_TANH)

// x + value·a·b and x + value·a/b
template <uint16_t kOpcode>
Value add_scaled(Builder& b, const Value* in, const Value* s) {
  return b.op(FL_OP_ADD, in[0], b.op(kOpcode, b.op(FL_OP_MUL, s[0], in[1]), in[2]));
}
#define FOREACH_TERNARY(name, opcode)                                                                      \
  ForeachOp name##_scalar_op("aten::_foreach_" #name ".Scalar", add_scaled<opcode>);                       \
  ForeachOp name##_scalarlist_op("aten::_foreach_" #name ".ScalarList", add_scaled<opcode>);               \
  FOREACH(name##_scalar, foreach_tensor_##name##_scalar_slow,                                              \
          (TensorList self, TensorList a, TensorList b, const Scalar& value), (self, a, b, value), {a, b}, \
          value)                                                                                           \
  FOREACH(name##_scalarlist, foreach_tensor_##name##_scalarlist_slow,                                      \
          (TensorList self, TensorList a, TensorList b, Scalars values), (self, a, b, values), {a, b}, {}, \
          values)
FOREACH_TERNARY(addcmul, FL_OP_MUL)
FOREACH_TERNARY(addcdiv, FL_OP_DIV)

// From the end that is nearer, as at::lerp does.
ForeachOp lerp_near_op("aten::_foreach_lerp.Scalar", [](Builder& b, const Value* in, const Value* s) {
  return b.op(FL_OP_ADD, in[0], b.op(FL_OP_MUL, s[0], b.op(FL_OP_SUB, in[1], in[0])));
});
ForeachOp lerp_far_op("aten::_foreach_lerp.Scalar", [](Builder& b, const Value* in, const Value* s) {
  return b.op(FL_OP_SUB, in[1], b.op(FL_OP_MUL, b.op(FL_OP_SUB, in[1], in[0]), s[0]));
});
bool lerp_into(TensorList out, TensorList self, TensorList end, const Scalar& weight) {
  if (weight.isComplex() || self.empty()) return false;
  double w = weight.toDouble();
  // 1 - w of the weight as at::lerp has it.
  uint8_t type = to_register(self[0].scalar_type());
  if (type == FL_F32 || type == FL_C64) w = static_cast<float>(w);
  return std::abs(w) < 0.5 ? run(lerp_near_op, out, self, end, Scalar(w))
                           : run(lerp_far_op, out, self, end, Scalar(1 - w));
}
std::vector<Tensor> lerp(TensorList self, TensorList end, const Scalar& weight) {
  if (!self.empty() && is_fl(self[0])) {
    std::vector<Tensor> out = like(self);
    if (lerp_into(out, self, end, weight)) return out;
  }
  return at::native::foreach_tensor_lerp_list_kernel_slow(self, end, weight);
}
void lerp_(TensorList self, TensorList end, const Scalar& weight) {
  if (!lerp_into(self, self, end, weight))
    at::native::foreach_tensor_lerp_list_kernel_slow_(self, end, weight);
}

// ---------------------------------------------------------------- zero, copy
void zero_(TensorList self) {
  static Op op("aten::_foreach_zero_");
  static Programs programs;
  if (uniform(self, {}, nullptr)) {
    uint8_t memory = to_dtype(self[0].scalar_type()), type = to_register(self[0].scalar_type());
    const fl_program* program =
        programs.get(memory, [&](Builder& b) { b.store(0, b.scalar(0, type), memory); });
    Call call(op, self[0]);
    MultiTensor items(call, self.size());
    bool done = true;
    for (const Tensor& t : self) done = done && items.add({&t}, {});
    fl_scalar zero{};
    if (done && items.run(program, zero)) return;
  }
  at::native::foreach_tensor_zero_slow_(self);
}

// Between fl tensors of two dtypes at most; host tensors go one by one.
void copy_(TensorList self, TensorList source, bool non_blocking) {
  static Op op("aten::_foreach_copy_");
  static Programs programs;
  bool fits = self.size() == source.size() && !self.empty() && is_fl(self[0]);
  for (size_t i = 0; fits && i < self.size(); ++i)
    fits = takes(self[i], self[0]) && takes(source[i], source[0]) && source[i].device() == self[0].device() &&
           self[i].sizes() == source[i].sizes() && self[i].is_non_overlapping_and_dense();
  uint8_t to = fits ? dtype_of(self[0]) : uint8_t{FL_NONE},
          from = fits ? dtype_of(source[0]) : uint8_t{FL_NONE};
  if (fits && register_type(to) != FL_NONE && register_type(from) != FL_NONE) {
    const fl_program* program = programs.get(
        key_of(to, from), [&](Builder& b) { b.store(0, b.cast(b.load(0, from), register_type(to)), to); });
    Call call(op, self[0]);
    MultiTensor items(call, self.size());
    bool done = true;
    for (size_t i = 0; done && i < self.size(); ++i) done = items.add({&self[i]}, {&source[i]});
    if (done && items.run(program)) return;
  }
  at::native::foreach_tensor_copy_list_kernel_slow_(self, source, non_blocking);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
#define FL_BOTH(schema, overload, name) \
  m.impl("_foreach_" #schema overload, name), m.impl("_foreach_" #schema "_" overload, name##_);
  FL_BOTH(add, ".List", add_alpha)
  FL_BOTH(sub, ".List", sub_alpha)
#define FL_SCALARS(name) \
  FL_BOTH(name, ".Scalar", name##_scalar) FL_BOTH(name, ".ScalarList", name##_scalarlist)
#define FL_LISTS(name) FL_BOTH(name, ".List", name##_list) FL_SCALARS(name)
  // clang-format off
  FL_SCALARS(add) FL_SCALARS(sub) FL_LISTS(mul) FL_LISTS(div) FL_LISTS(maximum) FL_LISTS(minimum) FL_LISTS(pow)
  FL_BOTH(mul, ".Tensor", mul_tensor) FL_BOTH(div, ".Tensor", div_tensor)
  FL_BOTH(sqrt, "", sqrt) FL_BOTH(rsqrt, "", rsqrt) FL_BOTH(neg, "", neg) FL_BOTH(reciprocal, "", reciprocal)
  FL_BOTH(exp, "", exp) FL_BOTH(log, "", log) FL_BOTH(sigmoid, "", sigmoid) FL_BOTH(tanh, "", tanh)
  FL_SCALARS(addcmul) FL_SCALARS(addcdiv) FL_BOTH(lerp, ".Scalar", lerp)
      // clang-format on
      m.impl("_foreach_zero_", zero_);
  m.impl("_foreach_copy_", copy_);
}

}  // namespace
}  // namespace fl::bridge
