// The gemm entry: which of oneDNN and our own kernels takes a product, and what
// is left to do around it (bias, c, epilogue, odd strides, aliased operands).
#include "gemm.h"

#include <algorithm>
#include <cinttypes>

#include "onednn.h"
#include "rows.h"
#include "simd/vector_matrix.h"

namespace sim {
namespace {

constexpr uint32_t kHalf = FL_BIT(FL_F16) | FL_BIT(FL_BF16);
constexpr uint32_t kIntegers = FL_BIT(FL_U8) | FL_BIT(FL_I8) | FL_BIT(FL_U16) | FL_BIT(FL_I16) |
                               FL_BIT(FL_U32) | FL_BIT(FL_I32) | FL_BIT(FL_U64) | FL_BIT(FL_I64);
constexpr uint32_t kGemmDtypes =
    kHalf | FL_BIT(FL_F32) | FL_BIT(FL_F64) | FL_BIT(FL_C64) | FL_BIT(FL_C128) | kIntegers;

// Below this many multiplications oneDNN's call costs more than our kernel loses.
constexpr int64_t kSmall = 48 * 48 * 48;

bool stacks(const Matrix& x, int64_t m) { return x.strides[0] == m * x.strides[1]; }

// A batch that shares b and whose other matrices lie below each other is one
// tall matrix: the Linear layer over [batch, sequence, features].
void stack_batch(Gemm& g, Epilogue* e) {
  if (g.batch == 1 || g.b.strides[0] != 0 || !stacks(g.a, g.m) || !stacks(g.out, g.m)) return;
  if (g.c.data && !stacks(g.c, g.m)) return;
  if (e) {
    if (e->indexed) return;
    for (int i = 0; i < e->n_extra; ++i) {
      if (!stacks(e->extra[i], g.m)) return;
    }
  }
  g.m *= g.batch;
  g.batch = 1;
}

void transpose(Gemm& g, Epilogue* e) {
  std::swap(g.a, g.b);
  std::swap(g.m, g.n);
  auto turn = [](Matrix& x) { std::swap(x.strides[1], x.strides[2]); };
  turn(g.a), turn(g.b), turn(g.out), turn(g.c);
  for (int i = 0; e && i < e->n_extra; ++i) turn(e->extra[i]);
}

// A copy of an operand that the output overwrites.
bool detach(Context& context, Matrix& x, int64_t batch, int64_t rows, int64_t columns, uint8_t dtype) {
  size_t element = dtype_size(dtype);
  char* copy = static_cast<char*>(context.scratch(batch * rows * columns * element));
  if (!copy) return false;
  char* to = copy;
  for (int64_t z = 0; z < batch; ++z) {
    for (int64_t i = 0; i < rows; ++i) {
      const char* from = x.data + (z * x.strides[0] + i * x.strides[1]) * static_cast<int64_t>(element);
      for (int64_t j = 0; j < columns; ++j, to += element) {
        std::memcpy(to, from + j * x.strides[2] * static_cast<int64_t>(element), element);
      }
    }
  }
  x = Matrix(copy, rows * columns, columns, 1);
  return true;
}

bool row_bias(const Gemm& g) {
  return g.c.data && is_one(g.dtype, g.alpha) && is_one(g.dtype, g.beta) &&
         (g.c.strides[2] == 1 || g.n == 1) && (g.c.strides[1] == 0 || g.m == 1) &&
         (g.c.strides[0] == 0 || g.batch == 1);
}

bool in_place(const Gemm& g) {
  return g.c.data == g.out.data && (g.c.strides[0] == g.out.strides[0] || g.batch == 1) &&
         (g.c.strides[1] == g.out.strides[1] || g.m == 1) && (g.c.strides[2] == g.out.strides[2] || g.n == 1);
}

void set_strides(Matmul& m, const Gemm& g) {
  std::copy_n(g.a.strides, 3, m.a_strides);
  std::copy_n(g.b.strides, 3, m.b_strides);
  std::copy_n(g.out.strides, 3, m.out_strides);
}

// Where the other operand has few rows, oneDNN's float kernels read this one where it lies, `count` rows of
// `length` numbers a few columns at a time.  Rows a multiple of half a page apart share so few sets of the
// cache that every number is fetched anew: 80 instead of 170 GFLOPS for 256×768 by 768×3072 (AMD EPYC).  Rows
// copied further apart, which takes 2 % of the product's time, do not.
constexpr int64_t kAliasing = 2048 / sizeof(float);
constexpr int64_t kReadInPlace = 384;  // rows of the other operand; packed from there on
constexpr int64_t kMostSpread = (int64_t{64} << 20) / sizeof(float);

bool spread_rows(Context& context, Matrix& x, int64_t batch, int64_t count, int64_t length, int64_t others,
                 int row) {
  const int64_t apart = x.strides[row], batches = x.strides[0] ? batch : 1;
  if (x.strides[3 - row] != 1 || length == 1 || apart % kAliasing || others > kReadInPlace) return true;
  const int64_t to = length + 16, all = batches * count * to;
  if (count < 64 || others < 8 || all > kMostSpread) return true;
  auto* copy = static_cast<float*>(context.scratch(all * static_cast<int64_t>(sizeof(float))));
  if (!copy) return false;
  const auto* from = reinterpret_cast<const float*>(x.data);
  parallel(batches * count, std::max<int64_t>(1, 65536 / length), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::copy_n(from + i / count * x.strides[0] + i % count * apart, length, copy + i * to);
  });
  x.data = reinterpret_cast<char*>(copy);
  x.strides[row] = to;
  if (x.strides[0]) x.strides[0] = count * to;
  return true;
}

// One pass over the F32 products in `rows`, [batch, m, n] with the given strides.
void finish(Context& context, const Gemm& g, const Epilogue* e, const Matrix& rows) {
  int64_t grain = std::max<int64_t>(1, 16384 / g.n);
  parallel(g.batch * g.m, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t z = i / g.m, m = i % g.m;
      float* row = reinterpret_cast<float*>(rows.data) + z * rows.strides[0] + m * rows.strides[1];
      for (int64_t n0 = 0; n0 < g.n; n0 += kRowSegment) {
        finish_row<float, false>(context, g, e, z, m, n0, std::min<int64_t>(kRowSegment, g.n - n0), row + n0);
      }
    }
  });
}

// False: oneDNN does not take it, and nothing happened.
bool multiply_onednn(Context& context, Gemm g, const Epilogue* epilogue) {
  Epilogue turned;
  if (g.out.strides[2] != 1 && g.n > 1 && (g.out.strides[1] == 1 || g.m == 1) &&
      !(epilogue && epilogue->indexed)) {
    if (epilogue) turned = *epilogue, epilogue = &turned;
    transpose(g, epilogue ? &turned : nullptr);
  }
  if (g.dtype == FL_F32 && (!spread_rows(context, g.b, g.batch, g.k, g.n, g.m, 1) ||
                            !spread_rows(context, g.a, g.batch, g.k, g.m, g.n, 2)))
    return true;
  Matmul m;
  m.in = g.dtype;
  m.out = g.dtype;
  m.batch = g.batch, m.m = g.m, m.n = g.n, m.k = g.k;
  set_strides(m, g);
  if (!epilogue && (!g.c.data || row_bias(g) || in_place(g))) {
    m.alpha = static_cast<float>(g.alpha.v.f);
    if (row_bias(g)) m.bias = true;
    else if (g.c.data) m.accumulate = static_cast<float>(g.beta.v.f);
    return run_matmul(context, m, g.a.data, g.b.data, g.c.data, g.out.data);
  }
  // The products go where they are finished: into the output where it is F32 and
  // nobody else reads it, to scratch memory otherwise.
  m.out = FL_F32;
  bool own = g.dtype == FL_F32 && g.out.strides[2] == 1 && g.c.data != g.out.data;
  for (int i = 0; epilogue && i < epilogue->n_extra; ++i) own = own && epilogue->extra[i].data != g.out.data;
  Matrix products = g.out;
  if (!own) {
    void* memory = context.scratch(g.batch * g.m * g.n * sizeof(float));
    if (!memory) return true;
    products = Matrix(memory, g.m * g.n, g.n, 1);
  }
  std::copy_n(products.strides, 3, m.out_strides);
  if (!run_matmul(context, m, g.a.data, g.b.data, nullptr, products.data)) return false;
  finish(context, g, epilogue, products);
  return true;
}

// One row times b.  False: b's strides or the dtype are not for this.
template <class A>
bool multiply_vector(Context& context, const Gemm& g, const Epilogue* epilogue) {
  const VectorMatrixKernels& kernels = vector_matrix_kernels();
  const auto element = static_cast<int64_t>(dtype_size(g.dtype));
  const bool rows = g.b.strides[2] == 1 || g.n == 1, columns = g.b.strides[1] == 1 || g.k == 1;
  if (!(rows || columns)) return false;
  // A short row makes the walk along rows jump; then the columns, if they are long.
  const bool by_rows = rows && !(columns && g.n < g.k);
  const VectorMatrix kernel = (by_rows ? kernels.by_rows : kernels.by_columns)[g.dtype];
  const int64_t step = (by_rows ? g.b.strides[1] : g.b.strides[2]) * element;
  auto* x = static_cast<A*>(context.scratch(static_cast<size_t>(g.batch * g.k) * sizeof(A)));
  const Convert convert = find_convert(g.dtype, dtype_of<A>);
  for (int64_t z = 0; z < g.batch; ++z)
    convert(g.a.data + z * g.a.strides[0] * element, g.a.strides[2] * element,
            reinterpret_cast<char*>(x + z * g.k), sizeof(A), g.k);
  const int64_t share = (g.n + 2 * omp_get_max_threads() - 1) / (2 * omp_get_max_threads());
  const int64_t segment = std::clamp<int64_t>((share + 63) / 64 * 64, 64, kRowSegment);
  const int64_t segments = (g.n + segment - 1) / segment;
  constexpr int64_t kGrain = 64 << 10;  // products
  parallel(g.batch * segments, std::max<int64_t>(1, kGrain / (segment * g.k)),
           [&](int64_t begin, int64_t end) {
             A out[kRowSegment];
             for (int64_t i = begin; i < end; ++i) {
               const int64_t z = i / segments, n0 = i % segments * segment, n = std::min(segment, g.n - n0);
               kernel(n, g.k, x + z * g.k, g.b.data + (z * g.b.strides[0] + n0 * g.b.strides[2]) * element,
                      step, out);
               finish_row<A, false>(context, g, epilogue, z, 0, n0, n, out);
             }
           });
  return true;
}

}  // namespace

void run_gemm(Context& context, const Gemm& gemm, const Epilogue* epilogue) {
  Gemm g = gemm;
  Epilogue e;
  if (epilogue) e = *epilogue;
  stack_batch(g, epilogue ? &e : nullptr);
  if (g.out.data == g.a.data && !detach(context, g.a, g.batch, g.m, g.k, g.dtype)) return;
  if (g.out.data == g.b.data && !detach(context, g.b, g.batch, g.k, g.n, g.dtype)) return;
  const Epilogue* last = epilogue ? &e : nullptr;
  if (g.n == 1 && g.m > 1 && !e.indexed) transpose(g, epilogue ? &e : nullptr);
  if (g.m == 1 && (kHalf | FL_BIT(FL_F32)) & FL_BIT(g.dtype) && multiply_vector<float>(context, g, last))
    return;
  if (g.m == 1 && g.dtype == FL_F64 && multiply_vector<double>(context, g, last)) return;
  bool small = g.m * g.n * g.k <= kSmall;
  if (dnnl_type(g.dtype) != dnnl::memory::data_type::undef && !small && multiply_onednn(context, g, last))
    return;
  multiply_blocked(context, g, last);
}

void claim_gemm(Claims& claims) { claims.push_back({FL_ENTRY_GEMM, FL_ANY, kGemmDtypes}); }

fl_status gemm(const fl_launch* launch, const fl_gemm_args* args) {
  const uint8_t dtype = args->out.dtype;
  if (!(kGemmDtypes & FL_BIT(dtype))) return FL_UNSUPPORTED;
  const fl_tensor* operands[4] = {&args->out, &args->a, &args->b, args->c};
  for (const fl_tensor* t : operands) {
    if (t && (t->ndim != 3 || t->dtype != dtype)) {
      set_error("gemm: a, b, c and out must have 3 dimensions and one dtype");
      return FL_INVALID;
    }
  }
  Gemm g;
  g.dtype = dtype;
  g.batch = args->out.sizes[0], g.m = args->out.sizes[1], g.n = args->out.sizes[2], g.k = args->a.sizes[2];
  if (args->a.sizes[1] != g.m || args->b.sizes[2] != g.n || args->b.sizes[1] != g.k) {
    set_error("gemm: sizes do not agree: a [.., %" PRId64 ", %" PRId64 "], b [.., %" PRId64 ", %" PRId64
              "], out [.., %" PRId64 ", %" PRId64 "]",
              args->a.sizes[1], g.k, args->b.sizes[1], args->b.sizes[2], g.m, g.n);
    return FL_INVALID;
  }
  auto matrix = [](const fl_tensor& t) { return Matrix(Tensor(t)); };
  g.a = matrix(args->a), g.b = matrix(args->b), g.out = matrix(args->out);
  g.alpha = args->alpha;
  if (args->c) g.c = matrix(*args->c), g.beta = args->beta;
  if (!args->epilogue) return submit(launch, "gemm", [g](Context& context) { run_gemm(context, g); });

  const fl_program& program = *args->epilogue;
  Epilogue e;
  e.plan = plan_of(&program);
  if (!e.plan) return FL_UNSUPPORTED;
  for (int i = 0; i < program.n_code; ++i) e.indexed |= program.code[i].op == FL_OP_INDEX;
  e.n_extra = program.n_inputs - 1;
  for (int i = 0; i < e.n_extra; ++i) {
    const fl_tensor& t = args->extra[i];
    e.extra[i] = matrix(t);
    for (int64_t& stride : e.extra[i].strides) stride *= static_cast<int64_t>(dtype_size(t.dtype));
  }
  e.scalars = Scalars(args->scalars, program.n_scalars);
  return submit(launch, "gemm", [g, e](Context& context) { run_gemm(context, g, &e); });
}

}  // namespace sim
