// Programs written as formulas: x / (1 + exp(-x)).
//
// An Expr is a Value with its Builder; operators append instructions.  Numbers
// become literals of the other operand's type.
#pragma once

#include <initializer_list>

#include "program/program.h"

namespace fl {

struct Expr {
  Builder* b = nullptr;
  Value v{};
  uint8_t type() const { return v.type; }
  bool is_complex() const { return v.type == FL_C64 || v.type == FL_C128; }
  bool is_real() const { return v.type == FL_F32 || v.type == FL_F64; }
  Expr like(double literal) const { return {b, b->constant(literal, v.type)}; }
  Expr cast(uint8_t to) const { return {b, b->cast(v, to)}; }
};

inline Expr apply(uint16_t op, Expr a) { return {a.b, a.b->op(op, a.v)}; }
inline Expr apply(uint16_t op, Expr a, Expr c) { return {a.b, a.b->op(op, a.v, c.v)}; }
inline Expr apply(uint16_t op, Expr a, Expr c, Expr d) { return {a.b, a.b->op(op, a.v, c.v, d.v)}; }
inline Expr select(Expr condition, Expr yes, Expr no) {
  return {yes.b, yes.b->select(condition.v, yes.v, no.v)};
}

#define FL_EXPR_BINARY(name, opcode)                                                 \
  inline Expr name(Expr a, Expr c) { return apply(FL_OP_##opcode, a, c); }           \
  inline Expr name(Expr a, double c) { return apply(FL_OP_##opcode, a, a.like(c)); } \
  inline Expr name(double a, Expr c) { return apply(FL_OP_##opcode, c.like(a), c); }
FL_EXPR_BINARY(operator+, ADD)
FL_EXPR_BINARY(operator-, SUB)
FL_EXPR_BINARY(operator*, MUL)
FL_EXPR_BINARY(operator/, DIV)
FL_EXPR_BINARY(operator==, EQ)
FL_EXPR_BINARY(operator!=, NE)
FL_EXPR_BINARY(operator<, LT)
FL_EXPR_BINARY(operator<=, LE)
FL_EXPR_BINARY(operator>, GT)
FL_EXPR_BINARY(operator>=, GE)
FL_EXPR_BINARY(operator&, AND)
FL_EXPR_BINARY(operator|, OR)
FL_EXPR_BINARY(operator^, XOR)
FL_EXPR_BINARY(max, MAX)
FL_EXPR_BINARY(min, MIN)
FL_EXPR_BINARY(pow, POW)
#undef FL_EXPR_BINARY

#define FL_EXPR_UNARY(name, opcode) \
  inline Expr name(Expr a) { return apply(FL_OP_##opcode, a); }
FL_EXPR_UNARY(operator-, NEG)
FL_EXPR_UNARY(operator!, NOT)
FL_EXPR_UNARY(abs, ABS)
FL_EXPR_UNARY(sign, SIGN)
FL_EXPR_UNARY(trunc, TRUNC)
FL_EXPR_UNARY(round, ROUND)
FL_EXPR_UNARY(sqrt, SQRT)
FL_EXPR_UNARY(rsqrt, RSQRT)
FL_EXPR_UNARY(reciprocal, RECIPROCAL)
FL_EXPR_UNARY(exp, EXP)
FL_EXPR_UNARY(exp2, EXP2)
FL_EXPR_UNARY(expm1, EXPM1)
FL_EXPR_UNARY(log, LOG)
FL_EXPR_UNARY(log2, LOG2)
FL_EXPR_UNARY(log1p, LOG1P)
FL_EXPR_UNARY(sin, SIN)
FL_EXPR_UNARY(cos, COS)
FL_EXPR_UNARY(tanh, TANH)
FL_EXPR_UNARY(sigmoid, SIGMOID)
FL_EXPR_UNARY(erf, ERF)
FL_EXPR_UNARY(conj_, CONJ)
#undef FL_EXPR_UNARY

inline Expr conj(Expr a) { return a.is_complex() ? conj_(a) : a; }
inline Expr is_nan(Expr a) { return a != a; }
// MAX and MIN with a number: of equal values x itself, so that -0 stays.  NaN stays.
inline Expr at_least(Expr x, Expr low) { return select(x < low, low, x); }
inline Expr at_most(Expr x, Expr high) { return select(x > high, high, x); }
inline Expr nonzero(Expr a) { return a.type() == FL_BOOL ? a : a != 0; }

}  // namespace fl
