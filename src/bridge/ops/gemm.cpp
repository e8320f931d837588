// Matrix products: mm, addmm, bmm, baddbmm (each with out_dtype too), addmv, addbmm, dot, vdot.
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/addbmm_native.h>
#include <ATen/ops/addmv_meta.h>
#include <ATen/ops/mv_native.h>

#include "bridge/devices.h"
#include "bridge/ops/programs.h"

namespace fl::bridge {

Tensor gemm_operand(const Tensor& t) {
  Tensor plain = t.resolve_conj().resolve_neg();
  int64_t n = plain.dim();
  auto unit = [&](int64_t d) { return plain.stride(d) == 1 || plain.size(d) == 1; };
  return n < 2 || unit(n - 1) || unit(n - 2) ? plain : plain.contiguous();
}

bool allows_tf32(at::Float32Op of) {
  auto allowed = [](at::Float32Op op) {
    return at::globalContext().float32Precision(at::Float32Backend::CUDA, op) == at::Float32Precision::TF32;
  };
  return !at::NoTF32Guard::should_disable_tf32() && allowed(at::Float32Op::MATMUL) &&
         (of == at::Float32Op::MATMUL || allowed(of));
}

namespace {

// [B, M, N] over a matrix, a batch of them, or a vector made a row or a column.
struct Matrix {
  int64_t sizes[3], strides[3];
  fl_tensor view;
  Matrix(const fl_tensor& t, int64_t b, int64_t m, int64_t n, int64_t sb, int64_t sm, int64_t sn)
      : sizes{b, m, n}, strides{sb, sm, sn}, view{t.data, sizes, strides, 3, t.dtype, 0, 0} {}
  Matrix(const Matrix&) = delete;
};
Matrix matrix(const fl_tensor& t) {
  const int64_t *n = t.sizes, *s = t.strides;
  return t.ndim == 2 ? Matrix(t, 1, n[0], n[1], 0, s[0], s[1])
                     : Matrix(t, n[0], n[1], n[2], s[0], s[1], s[2]);
}
// `t` broadcast to [B, M, N].
Matrix broadcast(const fl_tensor& t, int64_t batch, int64_t m, int64_t n) {
  int64_t strides[3] = {0, 0, 0};
  for (int d = 0; d < t.ndim; ++d)
    if (t.sizes[d] != 1) strides[3 - t.ndim + d] = t.strides[d];
  return Matrix(t, batch, m, n, strides[0], strides[1], strides[2]);
}

bool same_place(const Tensor& a, const Tensor& b) {
  return a.const_data_ptr() == b.const_data_ptr() && a.sizes() == b.sizes() && a.strides() == b.strides();
}
bool may_overlap(const Tensor& a, const Tensor& b) {
  return a.is_alias_of(b) && at::get_overlap_status(a, b) != at::MemOverlapStatus::No;
}

const at::Scalar kOne(1), kZero(0);

// out = alpha × a·b + beta × c, all of one dtype, shapes checked.  False: the chip cannot.
bool multiply(Call& call, const Tensor& a, const Tensor& b, const Tensor& out, const Tensor* c = nullptr,
              const at::Scalar& beta = kZero, const at::Scalar& alpha = kOne) {
  if (out.numel() == 0) return true;
  if (c && beta.equal(0)) c = nullptr;
  if (a.size(-1) == 0) {
    call.composed();
    if (c)
      at::mul_out(const_cast<Tensor&>(out), c->expand(out.sizes()),
                  at::scalar_tensor(beta, c->options().device(at::kCPU)));
    else fill_step(out, 0);
    return true;
  }
  ScalarType dtype = out.scalar_type();
  if (!call.claims(FL_ENTRY_GEMM, FL_ANY, to_dtype(dtype))) {
    if (!at::isReducedFloatingType(dtype) || !call.claims(FL_ENTRY_GEMM, FL_ANY, FL_F32)) return false;
    call.composed();
    Tensor wide = empty_like(out, out.sizes(), at::kFloat);
    std::optional<Tensor> wide_c = c ? std::optional(c->to(at::kFloat)) : std::nullopt;
    if (!multiply(call, a.to(at::kFloat), b.to(at::kFloat), wide, given(wide_c), beta, alpha)) return false;
    const_cast<Tensor&>(out).copy_(wide);
    return true;
  }

  Tensor left = gemm_operand(a), right = gemm_operand(b), plain_c;
  if (c) {
    plain_c = c->resolve_conj().resolve_neg();
    if (may_overlap(plain_c, out) && !same_place(plain_c, out)) plain_c = plain_c.clone();
  }
  Tensor to = out;
  if (out.is_conj() || out.is_neg() || !gemm_operand(out).is_same(out) || may_overlap(left, out) ||
      may_overlap(right, out))
    to = empty_like(out, out.sizes(), dtype);

  Matrix ma = matrix(call.view(left)), mb = matrix(call.view(right)), mo = matrix(call.view(to));
  Matrix mc =
      c ? broadcast(call.view(plain_c), mo.sizes[0], mo.sizes[1], mo.sizes[2]) : Matrix({}, 0, 0, 0, 0, 0, 0);
  uint8_t type = to_register(dtype);
  fl_gemm_args args{ma.view,
                    mb.view,
                    mo.view,
                    c ? &mc.view : nullptr,
                    to_scalar(alpha, type),
                    to_scalar(c ? beta : kZero, type),
                    nullptr,
                    nullptr,
                    nullptr};
  call.is_product(at::Float32Op::MATMUL);
  if (!call.native(call.chip().op.gemm, args, {&ma.view, &mb.view, &mo.view})) return false;
  if (!to.is_same(out)) const_cast<Tensor&>(out).copy_(to);
  return true;
}

void check_dtypes(const char* x, const Tensor& a, const char* y, const Tensor& b) {
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "expected ", x, " and ", y,
              " to have the same dtype, but got: ", c10::toString(a.scalar_type()),
              " != ", c10::toString(b.scalar_type()));
}

void check_mm(const Tensor& a, const Tensor& b) {
  TORCH_CHECK(a.dim() == 2, "self must be a matrix");
  TORCH_CHECK(b.dim() == 2, "mat2 must be a matrix");
  TORCH_CHECK(a.size(1) == b.size(0), "mat1 and mat2 shapes cannot be multiplied (", a.size(0), "x",
              a.size(1), " and ", b.size(0), "x", b.size(1), ")");
  check_dtypes("m1", a, "m2", b);
}

void check_bmm(const Tensor& a, const Tensor& b) {
  TORCH_CHECK(a.dim() == 3, "batch1 must be a 3D tensor");
  TORCH_CHECK(b.dim() == 3, "batch2 must be a 3D tensor");
  TORCH_CHECK(a.size(0) == b.size(0) && a.size(2) == b.size(1),
              "Expected size for first two dimensions of batch2 tensor to be: [", a.size(0), ", ", a.size(2),
              "] but got: [", b.size(0), ", ", b.size(1), "].");
  check_dtypes("batch1", a, "batch2", b);
}

void check_out(const Tensor& out, const Tensor& like, IntArrayRef sizes) {
  TORCH_CHECK(out.scalar_type() == like.scalar_type(), "Expected out tensor to have dtype ", like.dtype(),
              ", but got ", out.dtype(), " instead");
  at::native::resize_output(out, sizes);
}

void check_broadcast(const Tensor& c, IntArrayRef sizes) {
  if (c.sizes() != sizes && !at::is_expandable_to(c.sizes(), sizes))
    c.expand(sizes);  // raises PyTorch's text
}

Tensor mm(const Tensor& a, const Tensor& b) {
  static Op op("aten::mm");
  check_devices(op, {&a, &b});
  check_mm(a, b);
  Tensor out = empty_like(a, {a.size(0), b.size(1)}, a.scalar_type());
  Call call(op, a);
  if (multiply(call, a, b, out)) return out;
  return fallback<ATEN_OP(mm)>(a, b);
}

Tensor& mm_out(const Tensor& a, const Tensor& b, Tensor& out) {
  static Op op("aten::mm.out");
  check_devices(op, {&a, &b});
  check_mm(a, b);
  check_out(out, a, {a.size(0), b.size(1)});
  Call call(op, a);
  if (multiply(call, a, b, out)) return out;
  return fallback<ATEN_OP2(mm, out)>(a, b, out);
}

void check_addmm(const Tensor& c, const Tensor& a, const Tensor& b) {
  TORCH_CHECK(a.dim() == 2, "mat1 must be a matrix, got ", a.dim(), "-D tensor");
  TORCH_CHECK(b.dim() == 2, "mat2 must be a matrix, got ", b.dim(), "-D tensor");
  TORCH_CHECK(a.size(1) == b.size(0), "mat1 and mat2 shapes cannot be multiplied (", a.size(0), "x",
              a.size(1), " and ", b.size(0), "x", b.size(1), ")");
  check_dtypes("mat1", a, "mat2", b);
  TORCH_CHECK(c.scalar_type() == b.scalar_type(), "self and mat2 must have the same dtype, but got ",
              c10::toString(c.scalar_type()), " and ", c10::toString(b.scalar_type()));
  check_broadcast(c, {a.size(0), b.size(1)});
}

Tensor addmm(const Tensor& c, const Tensor& a, const Tensor& b, const at::Scalar& beta,
             const at::Scalar& alpha) {
  static Op op("aten::addmm");
  check_devices(op, {&c, &a, &b});
  check_addmm(c, a, b);
  Tensor out = empty_like(a, {a.size(0), b.size(1)}, a.scalar_type());
  Call call(op, a);
  if (multiply(call, a, b, out, &c, beta, alpha)) return out;
  return fallback<ATEN_OP(addmm)>(c, a, b, beta, alpha);
}

Tensor& addmm_out(const Tensor& c, const Tensor& a, const Tensor& b, const at::Scalar& beta,
                  const at::Scalar& alpha, Tensor& out) {
  static Op op("aten::addmm.out");
  check_devices(op, {&c, &a, &b});
  check_addmm(c, a, b);
  check_out(out, a, {a.size(0), b.size(1)});
  Call call(op, a);
  if (multiply(call, a, b, out, &c, beta, alpha)) return out;
  return fallback<ATEN_OP2(addmm, out)>(c, a, b, beta, alpha, out);
}

Tensor bmm(const Tensor& a, const Tensor& b) {
  static Op op("aten::bmm");
  check_devices(op, {&a, &b});
  check_bmm(a, b);
  Tensor out = empty_like(a, {a.size(0), a.size(1), b.size(2)}, a.scalar_type());
  Call call(op, a);
  if (multiply(call, a, b, out)) return out;
  return fallback<ATEN_OP(bmm)>(a, b);
}

Tensor& bmm_out(const Tensor& a, const Tensor& b, Tensor& out) {
  static Op op("aten::bmm.out");
  check_devices(op, {&a, &b});
  check_bmm(a, b);
  check_out(out, a, {a.size(0), a.size(1), b.size(2)});
  Call call(op, a);
  if (multiply(call, a, b, out)) return out;
  return fallback<ATEN_OP2(bmm, out)>(a, b, out);
}

void check_baddbmm(const Tensor& c, const Tensor& a, const Tensor& b) {
  check_bmm(a, b);
  TORCH_CHECK(c.scalar_type() == a.scalar_type(), "Input dtypes must be the same, got: input ",
              c10::toString(c.scalar_type()), ", batch1: ", c10::toString(a.scalar_type()),
              ", batch2: ", c10::toString(b.scalar_type()));
  check_broadcast(c, {a.size(0), a.size(1), b.size(2)});
}

Tensor baddbmm(const Tensor& c, const Tensor& a, const Tensor& b, const at::Scalar& beta,
               const at::Scalar& alpha) {
  static Op op("aten::baddbmm");
  check_devices(op, {&c, &a, &b});
  check_baddbmm(c, a, b);
  Tensor out = empty_like(a, {a.size(0), a.size(1), b.size(2)}, a.scalar_type());
  Call call(op, a);
  if (multiply(call, a, b, out, &c, beta, alpha)) return out;
  return fallback<ATEN_OP(baddbmm)>(c, a, b, beta, alpha);
}

Tensor& baddbmm_out(const Tensor& c, const Tensor& a, const Tensor& b, const at::Scalar& beta,
                    const at::Scalar& alpha, Tensor& out) {
  static Op op("aten::baddbmm.out");
  check_devices(op, {&c, &a, &b});
  check_baddbmm(c, a, b);
  check_out(out, a, {a.size(0), a.size(1), b.size(2)});
  Call call(op, a);
  if (multiply(call, a, b, out, &c, beta, alpha)) return out;
  return fallback<ATEN_OP2(baddbmm, out)>(c, a, b, beta, alpha, out);
}

Tensor& addmv_out(const Tensor& c, const Tensor& a, const Tensor& vector, const at::Scalar& beta,
                  const at::Scalar& alpha, Tensor& out) {
  static Op op("aten::addmv.out");
  check_devices(op, {&c, &a, &vector});
  Into<at::meta::structured_addmv> shape(out);
  shape.meta(c, a, vector, beta, alpha);
  check_dtypes("mat", a, "vec", vector);
  Call call(op, a);
  Tensor column = out.unsqueeze(1), c_column = c.dim() ? c.unsqueeze(1) : c;
  if (c.scalar_type() == a.scalar_type() &&
      multiply(call, a, vector.unsqueeze(1), column, &c_column, beta, alpha))
    return out;
  return fallback<ATEN_OP2(addmv, out)>(c, a, vector, beta, alpha, out);
}

// PyTorch's makes a result through the dispatcher, and views of three operands.
Tensor mv(const Tensor& a, const Tensor& vector) {
  static Op op("aten::mv");
  check_devices(op, {&a, &vector});
  Call call(op, a);
  uint8_t dtype = dtype_of(a);
  if (a.dim() != 2 || vector.dim() != 1 || a.size(1) != vector.size(0) || a.numel() == 0 ||
      a.scalar_type() != vector.scalar_type() || !gemm_operand(a).is_same(a) || vector.is_conj() ||
      vector.is_neg() || !call.claims(FL_ENTRY_GEMM, FL_ANY, dtype))
    return at::native::mv(a, vector);
  Tensor out = empty_like(a, {a.size(0)}, a.scalar_type());
  fl_tensor v = call.view(vector), o = call.view(out);
  Matrix ma = matrix(call.view(a)), mb(v, 1, v.sizes[0], 1, 0, v.strides[0], 1),
         mo(o, 1, o.sizes[0], 1, 0, o.strides[0], 1);
  uint8_t type = to_register(a.scalar_type());
  fl_gemm_args args{ma.view, mb.view, mo.view, nullptr, to_scalar(kOne, type), to_scalar(kZero, type),
                    nullptr, nullptr, nullptr};
  call.is_product(at::Float32Op::MATMUL);
  if (call.native(call.chip().op.gemm, args, {&ma.view, &mb.view, &mo.view})) return out;
  return at::native::mv(a, vector);
}

void check_dot(const char* name, const Tensor& a, const Tensor& b) {
  TORCH_CHECK(a.dim() == 1 && b.dim() == 1, "1D tensors expected, but got ", a.dim(), "D and ", b.dim(),
              "D tensors");
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), name,
              " : expected both vectors to have same dtype, but found ", c10::toString(a.scalar_type()),
              " and ", c10::toString(b.scalar_type()));
  TORCH_CHECK(a.numel() == b.numel(), "inconsistent tensor size, expected tensor [", a.numel(), "] and src [",
              b.numel(), "] to have the same number of elements, but got ", a.numel(), " and ", b.numel(),
              " elements respectively");
}

Tensor dot(const Tensor& a, const Tensor& b) {
  static Op op("aten::dot");
  check_devices(op, {&a, &b});
  check_dot("dot", a, b);
  Tensor out = empty_like(a, {}, a.scalar_type());
  Call call(op, a);
  if (multiply(call, a.unsqueeze(0), b.unsqueeze(1), out.view({1, 1}))) return out;
  return fallback<ATEN_OP(dot)>(a, b);
}

Tensor vdot(const Tensor& a, const Tensor& b) {
  static Op op("aten::vdot");
  check_devices(op, {&a, &b});
  check_dot("vdot", a, b);
  Tensor out = empty_like(a, {}, a.scalar_type());
  Call call(op, a);
  if (multiply(call, a.conj().unsqueeze(0), b.unsqueeze(1), out.view({1, 1}))) return out;
  return fallback<ATEN_OP(vdot)>(a, b);
}

// ------------------------------------------- out_dtype: halves multiplied into float32, as on CUDA
void check_out_dtype(const Tensor& a, ScalarType to) {
  TORCH_CHECK(to == a.scalar_type() || (to == at::kFloat && at::isReducedFloatingType(a.scalar_type())),
              "out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs, but got ",
              c10::toString(to), " for ", c10::toString(a.scalar_type()));
}
void check_out_dtype(const Tensor& a, ScalarType to, const Tensor& out) {
  TORCH_CHECK(to == out.scalar_type(),
              "out_dtype must be the same as the dtype of the provided out tensor, but got ",
              c10::toString(to), " and ", c10::toString(out.scalar_type()));
  check_out_dtype(a, to);
}
void check_added(const char* other, const Tensor& c, const Tensor& a, ScalarType to) {
  TORCH_CHECK(c.scalar_type() == to || c.scalar_type() == a.scalar_type(),
              "self dtype must match either out_dtype or ", other, " dtype, but got ",
              c10::toString(c.scalar_type()), " for ", c10::toString(to), " and ",
              c10::toString(a.scalar_type()));
}

// Widening is exact: nothing is rounded before the result is.
Tensor mm_dtype(const Tensor& a, const Tensor& b, ScalarType to) {
  check_mm(a, b), check_out_dtype(a, to);
  return at::mm(a.to(to), b.to(to));
}
Tensor& mm_dtype_out(const Tensor& a, const Tensor& b, ScalarType to, Tensor& out) {
  check_mm(a, b), check_out_dtype(a, to, out);
  return at::mm_out(out, a.to(to), b.to(to));
}
Tensor bmm_dtype(const Tensor& a, const Tensor& b, ScalarType to) {
  check_bmm(a, b), check_out_dtype(a, to);
  return at::bmm(a.to(to), b.to(to));
}
Tensor& bmm_dtype_out(const Tensor& a, const Tensor& b, ScalarType to, Tensor& out) {
  check_bmm(a, b), check_out_dtype(a, to, out);
  return at::bmm_out(out, a.to(to), b.to(to));
}
Tensor addmm_dtype(const Tensor& c, const Tensor& a, const Tensor& b, ScalarType to, const at::Scalar& beta,
                   const at::Scalar& alpha) {
  check_dtypes("mat1", a, "mat2", b), check_out_dtype(a, to), check_added("mat1", c, a, to);
  return at::addmm(c.to(to), a.to(to), b.to(to), beta, alpha);
}
Tensor& addmm_dtype_out(const Tensor& c, const Tensor& a, const Tensor& b, ScalarType to,
                        const at::Scalar& beta, const at::Scalar& alpha, Tensor& out) {
  check_dtypes("mat1", a, "mat2", b), check_out_dtype(a, to, out), check_added("mat1", c, a, to);
  return at::addmm_out(out, c.to(to), a.to(to), b.to(to), beta, alpha);
}
Tensor baddbmm_dtype(const Tensor& c, const Tensor& a, const Tensor& b, ScalarType to, const at::Scalar& beta,
                     const at::Scalar& alpha) {
  check_bmm(a, b), check_out_dtype(a, to), check_added("batch1", c, a, to);
  return at::baddbmm(c.to(to), a.to(to), b.to(to), beta, alpha);
}
Tensor& baddbmm_dtype_out(const Tensor& c, const Tensor& a, const Tensor& b, ScalarType to,
                          const at::Scalar& beta, const at::Scalar& alpha, Tensor& out) {
  check_bmm(a, b), check_out_dtype(a, to, out), check_added("batch1", c, a, to);
  return at::baddbmm_out(out, c.to(to), a.to(to), b.to(to), beta, alpha);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("mm.dtype", mm_dtype);
  m.impl("mm.dtype_out", mm_dtype_out);
  m.impl("bmm.dtype", bmm_dtype);
  m.impl("bmm.dtype_out", bmm_dtype_out);
  m.impl("addmm.dtype", addmm_dtype);
  m.impl("addmm.dtype_out", addmm_dtype_out);
  m.impl("baddbmm.dtype", baddbmm_dtype);
  m.impl("baddbmm.dtype_out", baddbmm_dtype_out);
  m.impl("mm", mm);
  m.impl("mm.out", mm_out);
  m.impl("addmm", addmm);
  m.impl("addmm.out", addmm_out);
  m.impl("bmm", bmm);
  m.impl("bmm.out", bmm_out);
  m.impl("baddbmm", baddbmm);
  m.impl("baddbmm.out", baddbmm_out);
  m.impl("addmv.out", addmv_out);
  m.impl("mv", mv);
  m.impl("dot", dot);
  m.impl("vdot", vdot);
  // PyTorch's own loops over addmm_: device-neutral.
  m.impl("addbmm", at::native::addbmm);
  m.impl("addbmm_", at::native::addbmm_);
  m.impl("addbmm.out", at::native::addbmm_out);
}

}  // namespace
}  // namespace fl::bridge
