// [GEM-n] and every claimed dtype of gemm.
#include <cmath>

#include "launches.h"

namespace kit {

namespace {

enum Order { kRows, kColumns, kPadded };  // which of the last two strides is 1
const char* const kOrders[] = {"row-major", "column-major", "padded rows"};

struct Request {
  unsigned dtype = FL_F32;
  int64_t B = 2, M = 5, N = 7, K = 9;
  Order a = kRows, b = kRows, out = kRows;
  bool shared_b = false;  // stride 0 over B
  int c = 0;              // 1: [B, M, N]; 2: a row, broadcast; 3: one element
  real alpha = 1, beta = 0;
  bool epilogue = false;
};

Layout layout(Order order) { return order == kPadded ? Layout::padded : Layout::contiguous; }

// A [B, R, C] array on the device; kColumns stores each matrix transposed.
Tensor put_matrix(Session& session, const Array& array, Order order) {
  if (order != kColumns) return session.put(array, layout(order));
  Array turned(array.dtype, {array.sizes[0], array.sizes[2], array.sizes[1]});
  for (int64_t i = 0; i < array.numel(); ++i) {
    std::vector<int64_t> at = coordinates(i, array.sizes);
    turned.set((at[0] * turned.sizes[1] + at[2]) * turned.sizes[2] + at[1], array.at(i));
  }
  Tensor t = session.put(turned);
  std::swap(t.sizes[1], t.sizes[2]);
  std::swap(t.strides[1], t.strides[2]);
  return t;
}

void check(Session& session, const Request& r) {
  Random random(r.M * 100 + r.N + r.dtype);
  unsigned wide = register_type(r.dtype) == FL_I32 ? static_cast<unsigned>(r.dtype) : register_type(r.dtype);
  Array a = Array::random(random, r.dtype, {r.B, r.M, r.K}, -3, 3);
  Array b = Array::random(random, r.dtype, {r.shared_b ? 1 : r.B, r.K, r.N}, -3, 3);
  std::vector<int64_t> sizes = {r.B, r.M, r.N};
  Array c = Array::random(random, r.dtype,
                          r.c == 2   ? std::vector<int64_t>{1, 1, r.N}
                          : r.c == 3 ? std::vector<int64_t>{1, 1, 1}
                                     : sizes,
                          -3, 3);
  Array extra = Array::random(random, r.dtype, {1, 1, r.N}, -3, 3);
  Tensor ta = put_matrix(session, a, r.a), tb = put_matrix(session, b, r.b), tc = session.put(c),
         te = session.put(extra);
  Tensor out = put_matrix(
      session,
      [&] {  // NaN where floats are: what out held is not read
        Array old(r.dtype, sizes);
        for (int64_t i = 0; i < old.numel(); ++i) old.set(i, {77, NAN, 0});
        return old;
      }(),
      r.out);
  auto broadcast = [&](Tensor& t) {
    for (int d = 0; d < 3; ++d)
      if (t.sizes[d] == 1 && sizes[d] != 1) t.strides[d] = 0;
    t.sizes = sizes;
  };
  if (r.shared_b) tb.strides[0] = 0, tb.sizes[0] = r.B;
  broadcast(tc);
  fl_tensor c_view = *tc, extra_view{};
  fl_gemm_args args{};
  args.a = *ta, args.b = *tb, args.out = *out;
  args.c = r.c ? &c_view : nullptr;
  args.alpha = scalar(r.dtype, {static_cast<int64_t>(r.alpha), r.alpha, 0});
  args.beta = scalar(r.dtype, {static_cast<int64_t>(r.beta), r.beta, 0});
  fl_scalar scalars[1] = {scalar(wide, Number::floating(0.25L))};
  if (r.epilogue) {  // max(x + extra, x × 0.25)
    fl::Builder p;
    uint8_t w = static_cast<uint8_t>(wide);
    fl::Value x = p.load(0, w), e = p.load(1, static_cast<uint8_t>(r.dtype), w);
    p.store(0, p.op(FL_OP_MAX, p.op(FL_OP_ADD, x, e), p.op(FL_OP_MUL, x, p.scalar(0, w))),
            static_cast<uint8_t>(r.dtype));
    args.epilogue = p.finish();
    broadcast(te);
    extra_view = *te;
    args.extra = &extra_view;
    args.scalars = scalars;
  }
  ok(KIT_LAUNCH(gemm, &session.launch, &args), "gemm");
  // The kit checks gaps before it turns the sizes back.
  std::vector<Number> want;
  real reach = 0;
  for (int64_t i = 0; i < product(sizes); ++i) {
    std::vector<int64_t> at = coordinates(i, sizes);
    complex_real sum = 0;
    real size = 0;
    uint64_t integer = 0;
    for (int64_t k = 0; k < r.K; ++k) {
      Number x = a.at((at[0] * r.M + at[1]) * r.K + k),
             y = b.at(((r.shared_b ? 0 : at[0]) * r.K + k) * r.N + at[2]);
      integer += static_cast<uint64_t>(x.i) * static_cast<uint64_t>(y.i);
      sum += x.c() * y.c();
      size += std::abs(x.c() * y.c());
    }
    Number add = r.c ? c.at(broadcast_index(at, c.sizes)) : Number();
    Number v{static_cast<int64_t>(integer * static_cast<uint64_t>(static_cast<int64_t>(r.alpha)) +
                                  static_cast<uint64_t>(add.i) *
                                      static_cast<uint64_t>(static_cast<int64_t>(r.beta))),
             0, 0};
    if (!is_integer(r.dtype)) v = Number::complex(r.alpha * sum + (r.c ? r.beta * add.c() : 0));
    if (r.epilogue) v.re = std::max(v.re + extra.at(at[2]).re, v.re * 0.25L);
    want.push_back(v);
    reach = std::max(reach, size * std::fabs(r.alpha) + std::abs(add.c()) * std::fabs(r.beta));
  }
  Tolerance t;
  if (!is_integer(r.dtype)) {
    bool narrow = r.dtype == FL_F16 || r.dtype == FL_BF16;
    t.absolute = reach * (component(r.dtype) == FL_F64 ? 1e-14L : 1e-6L);
    t.ulps = narrow ? 0.51L : 1;  // rounded once
  }
  expect_close(session.get(out), want, t,
               text("%s [%lld, %lld, %lld] × [%lld, %lld], a %s, b %s, out %s", dtype_name(r.dtype),
                    (long long)r.B, (long long)r.M, (long long)r.K, (long long)r.K, (long long)r.N,
                    kOrders[r.a], kOrders[r.b], kOrders[r.out]));
}

KIT_TEST("gemm", "every claimed dtype agrees with the reference: shapes, alpha, beta, c, shared matrices") {
  Session session;
  for (unsigned d : claimed(FL_ENTRY_GEMM, FL_ANY))
    run_case(dtype_name(d), [&] {
      for (auto [B, M, N, K] : {std::array<int64_t, 4>{1, 1, 1, 1},
                                {1, 33, 65, 129},
                                {3, 1, 17, 31},
                                {2, 17, 1, 8},
                                {4, 5, 6, 1},
                                {1, 130, 70, 40},
                                {70, 2, 3, 4}}) {
        Request r;
        r.dtype = d, r.B = B, r.M = M, r.N = N, r.K = K;
        check(session, r);
        r.alpha = 2, r.beta = -3, r.c = 1;
        check(session, r);
        r.shared_b = true, r.c = 2;
        check(session, r);
      }
    });
}

KIT_TEST("GEM-1",
         "one of the last two strides is 1, all others are arbitrary; c has any strides, 0 included") {
  Session session;
  for (unsigned d : claimed(FL_ENTRY_GEMM, FL_ANY))
    for (Order a : {kRows, kColumns, kPadded})
      for (Order b : {kRows, kColumns, kPadded})
        run_case(text("%s, a %s, b %s", dtype_name(d), kOrders[a], kOrders[b]), [&] {
          for (Order out : {kRows, kColumns, kPadded})
            for (int c : {0, 2, 3}) {
              Request r;
              r.dtype = d, r.M = 19, r.N = 23, r.K = 37, r.a = a, r.b = b, r.out = out, r.c = c,
              r.beta = c ? 2 : 0;
              check(session, r);
            }
        });
}

KIT_TEST("GEM-2", "F16 and BF16 accumulate in F32; the result is rounded once, after the epilogue") {
  Session session;
  for (unsigned d : claimed(FL_ENTRY_GEMM, FL_ANY)) {
    if (!is_real(d)) continue;
    run_case(text("%s, with an epilogue", dtype_name(d)), [&] {
      for (Order out : {kRows, kColumns}) {
        Request r;
        r.dtype = d, r.M = 21, r.N = 34, r.K = 400, r.out = out, r.epilogue = true;
        check(session, r);
        r.c = 1, r.beta = 0.5L, r.alpha = 0.125L;
        check(session, r);
      }
    });
    run_case(text("%s, a long sum", dtype_name(d)), [&] {
      Request r;
      r.dtype = d, r.B = 1, r.M = 3, r.N = 5, r.K = 20000, r.alpha = 1.0L / 256;
      check(session, r);
    });
  }
}

}  // namespace

}  // namespace kit
