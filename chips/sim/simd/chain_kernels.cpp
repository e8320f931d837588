#include "simd/chain_kernels.h"

#include <type_traits>

#include "simd/extremes.h"
#include "simd/half.h"

namespace sim::SIM_ISA {
namespace {

using Register = Vec<float>;  // whatever its type
constexpr int64_t kVector = SIM_VECTOR_BYTES, kTile = 8 * kVector;

// The accumulator travels in the registers of a call, and each step ends in a jump to the next.
#define SIM_TILE \
  Register r0, Register r1, Register r2, Register r3, Register r4, Register r5, Register r6, Register r7
#define SIM_REGISTERS r0, r1, r2, r3, r4, r5, r6, r7
using Run = void (*)(const ChainStep* step, int64_t offset, SIM_TILE);

SIM_INLINE Run run_of(const ChainStep* step) { return reinterpret_cast<Run>(step->run); }
#define SIM_NEXT return run_of(step + 1)(step + 1, offset, SIM_REGISTERS)
#define SIM_EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

SIM_INLINE char* place(const ChainStep* step, int k, int64_t offset) {
  return step->operand[k].data + (offset & step->operand[k].moves);
}
template <class T>
SIM_INLINE Vec<T> typed(Register r) {
  return bit_cast<Vec<T>>(r);
}
template <class T>
SIM_INLINE Vec<T> at(const char* p, int k) {
  return load(reinterpret_cast<const T*>(p + k * kVector));
}
template <class V>
SIM_INLINE Register untyped(V v) {
  return bit_cast<Register>(v);
}

void load_tile(const ChainStep* step, int64_t offset, SIM_TILE) {
  const char* p = place(step, 0, offset);
#define SIM_ONE(k) r##k = at<float>(p, k);
  SIM_EACH(SIM_ONE)
#undef SIM_ONE
  SIM_NEXT;
}
void store_tile(const ChainStep* step, int64_t offset, SIM_TILE) {
  char* p = place(step, 0, offset);
#define SIM_ONE(k) store(reinterpret_cast<float*>(p + k * kVector), r##k);
  SIM_EACH(SIM_ONE)
#undef SIM_ONE
  SIM_NEXT;
}
void end(const ChainStep*, int64_t, Register, Register, Register, Register, Register, Register, Register,
         Register) {}

template <class T, class F>
void unary(const ChainStep* step, int64_t offset, SIM_TILE) {
#define SIM_ONE(k) r##k = untyped(F::of(typed<T>(r##k)));
  SIM_EACH(SIM_ONE)
#undef SIM_ONE
  SIM_NEXT;
}
template <class T, class F>
void left(const ChainStep* step, int64_t offset, SIM_TILE) {
  const char* p = place(step, 0, offset);
#define SIM_ONE(k) r##k = untyped(F::of(typed<T>(r##k), at<T>(p, k)));
  SIM_EACH(SIM_ONE)
#undef SIM_ONE
  SIM_NEXT;
}
template <class T, class F>
void right(const ChainStep* step, int64_t offset, SIM_TILE) {
  const char* p = place(step, 0, offset);
#define SIM_ONE(k) r##k = untyped(F::of(at<T>(p, k), typed<T>(r##k)));
  SIM_EACH(SIM_ONE)
#undef SIM_ONE
  SIM_NEXT;
}
template <class T, class F, Accumulator as>
void ternary(const ChainStep* step, int64_t offset, SIM_TILE) {
  const char *p = place(step, 0, offset), *q = place(step, 1, offset);
#define SIM_ONE(k)                                                                                  \
  r##k = untyped(as == Accumulator::a   ? F::template of<T>(r##k, at<float>(p, k), at<float>(q, k)) \
                 : as == Accumulator::b ? F::template of<T>(at<float>(p, k), r##k, at<float>(q, k)) \
                                        : F::template of<T>(at<float>(p, k), at<float>(q, k), r##k));
  SIM_EACH(SIM_ONE)
#undef SIM_ONE
  SIM_NEXT;
}
// F of the first two operands chooses between the accumulator, which is `yes` or not, and the third.
template <class T, class F, bool yes>
void select_by(const ChainStep* step, int64_t offset, SIM_TILE) {
  const char *p = place(step, 0, offset), *q = place(step, 1, offset), *other = place(step, 2, offset);
#define SIM_ONE(k)                                                                          \
  r##k = untyped(F::of(at<T>(p, k), at<T>(q, k)) ? (yes ? typed<T>(r##k) : at<T>(other, k)) \
                                                 : (yes ? at<T>(other, k) : typed<T>(r##k)));
  SIM_EACH(SIM_ONE)
#undef SIM_ONE
  SIM_NEXT;
}
template <class T, class F>
void extreme(const ChainStep* step, int64_t offset, SIM_TILE) {
  const char* p = place(step, 0, offset);
#define SIM_ONE(k) r##k = untyped(F::of(typed<T>(r##k), at<T>(p, k)) ? at<T>(p, k) : typed<T>(r##k));
  SIM_EACH(SIM_ONE)
#undef SIM_ONE
  SIM_NEXT;
}
template <class T>
void call(const ChainStep* step, int64_t offset, SIM_TILE) {
  auto f = reinterpret_cast<Vec<T> (*)(Vec<T>)>(step->function);
#define SIM_ONE(k) r##k = untyped(f(typed<T>(r##k)));
  SIM_EACH(SIM_ONE)
#undef SIM_ONE
  SIM_NEXT;
}
template <class T>
void call_sigmoid(const ChainStep* step, int64_t offset, SIM_TILE) {
  auto f = reinterpret_cast<Vec<T> (*)(Vec<T>)>(step->function);
#define SIM_ONE(k) r##k = untyped(T(1) / (T(1) + f(-typed<T>(r##k))));
  SIM_EACH(SIM_ONE)
#undef SIM_ONE
  SIM_NEXT;
}

// ------------------------------------------------------------------- operations
#define SIM_V1(name, expression)     \
  struct name {                      \
    template <class V>               \
    static SIM_INLINE auto of(V a) { \
      return expression;             \
    }                                \
  };
#define SIM_V2(name, expression)          \
  struct name {                           \
    template <class V>                    \
    static SIM_INLINE auto of(V a, V b) { \
      return expression;                  \
    }                                     \
  };
SIM_V2(Add, a + b)
SIM_V2(Sub, a - b)
SIM_V2(Mul, a* b)
SIM_V2(Div, a / b)
SIM_V2(And, a& b)
SIM_V2(Or, a | b)
SIM_V2(Xor, a ^ b)
SIM_V2(Greater, a > b)
SIM_V2(GreaterEqual, a >= b)
SIM_V2(Less, a < b)
SIM_V2(LessEqual, a <= b)
SIM_V2(Equal, a == b)
SIM_V2(NotEqual, a != b)
SIM_V2(Max, maximum(a, b))
SIM_V2(Min, minimum(a, b))
// b is a number: a's NaN stays.
SIM_V2(MaxNumber, larger(b, a))
SIM_V2(MinNumber, smaller(b, a))
SIM_V1(Neg, -a)
SIM_V1(Not, ~a)
SIM_V1(Reciprocal, 1 / a)
struct Abs {
  template <class V>
  static SIM_INLINE V of(V a) {
    constexpr bool wide = sizeof(a[0]) == 8;
    using I = std::conditional_t<wide, Vec<int64_t>, Vec<int32_t>>;
    const I sign = splat<std::conditional_t<wide, int64_t, int32_t>>(wide ? INT64_MIN : INT32_MIN);
    return bit_cast<V>(bit_cast<I>(a) & ~sign);
  }
};
template <class T>
using Bits = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;
struct Select {
  template <class T>
  static SIM_INLINE Register of(Register condition, Register yes, Register no) {
    return untyped(bit_cast<Vec<Bits<T>>>(condition) != 0 ? typed<T>(yes) : typed<T>(no));
  }
};
struct MultiplyAdd {
  template <class T>
  static SIM_INLINE Register of(Register a, Register b, Register c) {
    Vec<T> x = typed<T>(a), y = typed<T>(b), z = typed<T>(c);
    for (int i = 0; i < lanes<T>; ++i) x[i] = fused(x[i], y[i], z[i]);
    return untyped(x);
  }
};
#if defined(__AVX512F__)
SIM_INLINE Vec<float> root(Vec<float> v) { return Vec<float>(_mm512_maskz_sqrt_ps(kAll, __m512(v))); }
SIM_INLINE Vec<double> root(Vec<double> v) { return Vec<double>(_mm512_maskz_sqrt_pd(0xff, __m512d(v))); }
#elif defined(__AVX2__)
SIM_INLINE Vec<float> root(Vec<float> v) { return Vec<float>(_mm256_sqrt_ps(__m256(v))); }
SIM_INLINE Vec<double> root(Vec<double> v) { return Vec<double>(_mm256_sqrt_pd(__m256d(v))); }
#else
template <class V>
SIM_INLINE V root(V v) {
  for (size_t i = 0; i < sizeof v / sizeof v[0]; ++i)
    v[i] = sizeof v[0] == 8 ? __builtin_sqrt(v[i]) : __builtin_sqrtf(v[i]);
  return v;
}
#endif
SIM_V1(Sqrt, root(a))
SIM_V1(Rsqrt, 1 / root(a))

// ------------------------------------------------------------------------ tables
ChainStep::Run erased(Run run) { return reinterpret_cast<ChainStep::Run>(run); }

struct Table {
  ChainKernels& k;
  int type;
  template <class T, class F>
  void binary(int opcode) {
    k.op[0][opcode][type] = erased(left<T, F>);
    k.op[1][opcode][type] = erased(right<T, F>);
  }
  template <class T, class F>
  void comparison(int opcode) {
    binary<T, F>(opcode);
    k.select_by[0][opcode][type] = erased(select_by<T, F, true>);
    k.select_by[1][opcode][type] = erased(select_by<T, F, false>);
    k.extreme[opcode][type] = erased(extreme<T, F>);
  }
  template <class T, class F>
  void three(int opcode) {
    k.op[0][opcode][type] = erased(ternary<T, F, Accumulator::a>);
    k.op[1][opcode][type] = erased(ternary<T, F, Accumulator::b>);
    k.op[2][opcode][type] = erased(ternary<T, F, Accumulator::c>);
  }
  template <class T, class F>
  void single(int opcode) {
    k.op[0][opcode][type] = erased(unary<T, F>);
  }
  template <class T>
  void common() {
    binary<T, Add>(FL_OP_ADD), binary<T, Sub>(FL_OP_SUB), binary<T, Mul>(FL_OP_MUL);
    binary<T, Max>(FL_OP_MAX), binary<T, Min>(FL_OP_MIN);
    comparison<T, Greater>(FL_OP_GT), comparison<T, GreaterEqual>(FL_OP_GE), comparison<T, Less>(FL_OP_LT);
    comparison<T, LessEqual>(FL_OP_LE), comparison<T, Equal>(FL_OP_EQ), comparison<T, NotEqual>(FL_OP_NE);
    three<T, Select>(FL_OP_SELECT);
  }
  template <class T, class Unsigned>
  void integer() {
    common<T>();
    // Unsigned: what wraps is defined there.
    binary<Unsigned, Add>(FL_OP_ADD), binary<Unsigned, Sub>(FL_OP_SUB), binary<Unsigned, Mul>(FL_OP_MUL);
    binary<T, And>(FL_OP_AND), binary<T, Or>(FL_OP_OR), binary<T, Xor>(FL_OP_XOR);
    single<Unsigned, Neg>(FL_OP_NEG), single<T, Not>(FL_OP_NOT);
  }
  template <class T>
  void real(void* const* functions) {
    common<T>();
    k.with_number[FL_OP_MAX][type] = erased(left<T, MaxNumber>);
    k.with_number[FL_OP_MIN][type] = erased(left<T, MinNumber>);
    binary<T, Div>(FL_OP_DIV);
    three<T, MultiplyAdd>(FL_OP_FMA);
    single<T, Neg>(FL_OP_NEG), single<T, Abs>(FL_OP_ABS), single<T, Reciprocal>(FL_OP_RECIPROCAL);
    single<T, Sqrt>(FL_OP_SQRT), single<T, Rsqrt>(FL_OP_RSQRT);
#define SIM_CALL(op_, name) \
  if ((k.function[FL_OP_##op_][type] = functions[FL_OP_##op_])) k.op[0][FL_OP_##op_][type] = erased(call<T>);
    SIM_MATH_UNARY(SIM_CALL)
#undef SIM_CALL
    if ((k.function[FL_OP_SIGMOID][type] = functions[FL_OP_EXP]))
      k.op[0][FL_OP_SIGMOID][type] = erased(call_sigmoid<T>);
  }
};

// Does a step read where another writes?
bool in_place(const ChainStep* steps, int n) {
  for (int s = 0; s < n; ++s)
    for (int r = 0; steps[s].run == erased(store_tile) && r < n; ++r)
      for (const auto& operand : steps[r].operand)
        if (steps[r].run != erased(store_tile) && operand.data == steps[s].operand[0].data) return true;
  return false;
}

void run(const ChainStep* steps, int n_steps, int64_t bytes, char* spare) {
  const Register zero{};
  auto tile_at = [&](const ChainStep* first, int64_t offset) {
    run_of(first)(first, offset, zero, zero, zero, zero, zero, zero, zero, zero);
  };
  int64_t offset = 0;
  for (; offset + kTile <= bytes; offset += kTile) tile_at(steps, offset);
  if (offset == bytes) return;
  // The rest: the last whole tile overlaps what is done, unless its operands are gone.
  if (bytes > kTile && !in_place(steps, n_steps)) return tile_at(steps, bytes - kTile);
  // Otherwise it is moved to where a tile fits; operands at one address stay together.
  ChainStep moved[kMostChainSteps];
  const char* from[3 * kMostChainSteps];
  const size_t rest = size_t(bytes - offset);
  int n = 0;
  for (int s = 0; s < n_steps; ++s) {
    moved[s] = steps[s];
    for (auto& operand : moved[s].operand) {
      if (!operand.moves) continue;
      int found = 0;
      while (found < n && from[found] != operand.data) ++found;
      if (found == n) {
        from[n++] = operand.data;
        std::memcpy(spare + found * kTileBytes, operand.data + offset, rest);
      }
      operand = {spare + found * kTileBytes, 0};
    }
  }
  tile_at(moved, 0);
  for (int s = 0; s < n_steps; ++s)
    if (steps[s].run == erased(store_tile) && steps[s].operand[0].moves)
      std::memcpy(steps[s].operand[0].data + offset, moved[s].operand[0].data, rest);
}

}  // namespace

void fill_chain_kernels(ChainKernels& k, const VectorMath& math) {
  Table{k, FL_F32}.real<float>(math.f32);
  Table{k, FL_F64}.real<double>(math.f64);
  Table{k, FL_I32}.integer<int32_t, uint32_t>();
  Table{k, FL_I64}.integer<int64_t, uint64_t>();
  k.load = erased(load_tile), k.store = erased(store_tile), k.end = erased(end);
  k.run = run;
}

}  // namespace sim::SIM_ISA
