// sim's matrix products against plain loops in double.
#include <complex>

#include "sim_operand.h"

using namespace sim_test;

namespace {

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

}  // namespace

int main(int argc, char** argv) {
  load_chip(argc > 1 ? argv[1] : FL_TEST_SIM);
  products();
  product_rules();
  return check::result();
}
