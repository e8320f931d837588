#include "onednn.h"

#include <omp.h>

#include <cstring>

namespace sim {

using dnnl::memory;

const dnnl::engine& dnnl_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

memory::data_type dnnl_type(uint8_t dtype) {
  switch (dtype) {
    case FL_F16:
      return memory::data_type::f16;
    case FL_BF16:
      return memory::data_type::bf16;
    case FL_F32:
      return memory::data_type::f32;
    default:
      return memory::data_type::undef;
  }
}

SmallTeam::SmallTeam(bool small) {
  if (!small || omp_get_max_threads() == 1) return;
  threads_ = omp_get_max_threads();
  omp_set_num_threads(1);
}
SmallTeam::~SmallTeam() {
  if (threads_) omp_set_num_threads(threads_);
}

void Primitive::bind(int argument, const memory::desc& desc) {
  memory_.emplace_back(desc, dnnl_engine(), nullptr);
  arguments_.push_back({argument, memory_.back().get()});
}

void Primitive::set(int argument, const void* data) {
  for (dnnl_exec_arg_t& a : arguments_) {
    if (a.arg == argument) {
      dnnl_memory_set_data_handle(a.memory, const_cast<void*>(data));
      return;
    }
  }
}

bool Primitive::run(Context& context, const char* what) {
  thread_local dnnl::stream stream(dnnl_engine());
  if (scratch_) {
    void* pad = context.scratch(scratch_);
    if (!pad) return false;
    set(DNNL_ARG_SCRATCHPAD, pad);
  }
  dnnl_status_t status = dnnl_primitive_execute(primitive_.get(), stream.get(),
                                                static_cast<int>(arguments_.size()), arguments_.data());
  if (status != dnnl_success) {
    context.fail(status == dnnl_out_of_memory ? FL_OUT_OF_MEMORY : FL_FAILED,
                 "%s: oneDNN failed with status %d", what, static_cast<int>(status));
    return false;
  }
  return true;
}

namespace {

// oneDNN knows a matrix by its two strides; those of dimensions of size 1 mean
// nothing and would hide a layout that it has a kernel for.  False: stride 0,
// negative or overlapping, which it does not take.
bool plain_strides(int64_t rows, int64_t columns, int64_t batch, const int64_t* from, bool broadcast,
                   int64_t* to) {
  int64_t row = from[1], column = from[2];
  if (columns == 1 && rows == 1) row = column = 1;
  else if (columns == 1) column = 1;
  else if (rows == 1) row = column == 1 ? columns : 1;
  if (rows > 1 && columns > 1) {
    bool row_major = column == 1 && row >= columns, column_major = row == 1 && column >= rows;
    if (!row_major && !column_major) return false;
  }
  if (row < 1 || column < 1) return false;
  int64_t z = from[0], extent = (rows - 1) * row + (columns - 1) * column + 1;
  if (batch == 1 || (broadcast && z == 0)) z = extent;
  else if (z < extent) return false;
  to[0] = z;
  to[1] = row;
  to[2] = column;
  return true;
}

memory::desc matrix_desc(uint8_t dtype, int64_t batch, int64_t rows, int64_t columns, bool batched,
                         const int64_t* s) {
  if (!batched) return memory::desc({rows, columns}, dnnl_type(dtype), memory::dims{s[1], s[2]});
  return memory::desc({batch, rows, columns}, dnnl_type(dtype), memory::dims{s[0], s[1], s[2]});
}

void make_matmul(Primitive& p, const Matmul& m, const int64_t* a, const int64_t* b, const int64_t* out) {
  bool batched = m.batch > 1;
  int64_t a_batch = m.a_strides[0] == 0 ? 1 : m.batch, b_batch = m.b_strides[0] == 0 ? 1 : m.batch;
  memory::desc a_desc = matrix_desc(m.in, a_batch, m.m, m.k, batched, a);
  memory::desc b_desc = matrix_desc(m.in, b_batch, m.k, m.n, batched, b);
  memory::desc out_desc = matrix_desc(m.out, m.batch, m.m, m.n, batched, out);
  memory::dims bias_dims = batched ? memory::dims{1, 1, m.n} : memory::dims{1, m.n};
  memory::desc bias_desc = m.bias ? memory::desc(bias_dims, dnnl_type(m.out),
                                                 batched ? memory::dims{m.n, m.n, 1} : memory::dims{m.n, 1})
                                  : memory::desc();
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops ops;
  if (m.alpha != 1) ops.append_eltwise(dnnl::algorithm::eltwise_linear, m.alpha, 0);
  if (m.accumulate != 0) ops.append_sum(m.accumulate);
  attr.set_post_ops(ops);
  dnnl::matmul::primitive_desc desc(dnnl_engine(), a_desc, b_desc, bias_desc, out_desc, attr,
                                    /*allow_empty=*/true);
  if (!desc || std::strstr(desc.impl_info_str(), "ref")) return;
  p.make(desc);
  p.bind(DNNL_ARG_SRC, a_desc);
  p.bind(DNNL_ARG_WEIGHTS, b_desc);
  if (m.bias) p.bind(DNNL_ARG_BIAS, bias_desc);
  p.bind(DNNL_ARG_DST, out_desc);
}

}  // namespace

bool run_matmul(Context& context, const Matmul& m, const void* a, const void* b, const void* bias,
                void* out) {
  thread_local PrimitiveCache<Primitive> cache;
  int64_t as[3], bs[3], os[3];
  if (!plain_strides(m.m, m.k, m.batch, m.a_strides, true, as) ||
      !plain_strides(m.k, m.n, m.batch, m.b_strides, true, bs) ||
      !plain_strides(m.m, m.n, m.batch, m.out_strides, false, os)) {
    return false;
  }
  PrimitiveKey key;
  key.add(m.in | m.out << 8 | m.bias << 16 | (m.a_strides[0] == 0) << 17 | (m.b_strides[0] == 0) << 18);
  int64_t sizes[4] = {m.batch, m.m, m.n, m.k};
  key.add(sizes, 4);
  key.add(as, 3);
  key.add(bs, 3);
  key.add(os, 3);
  float numbers[2] = {m.alpha, m.accumulate};
  int64_t word;
  std::memcpy(&word, numbers, sizeof word);
  key.add(word);
  SmallTeam team(m.batch * m.m * m.n * m.k <= kSmallTeamWork);
  Primitive& p = cache.get(key, [&](Primitive& fresh) {
    // What oneDNN refuses stays unusable, and our own kernels take it, each time.
    try {
      make_matmul(fresh, m, as, bs, os);
    } catch (const dnnl::error&) {
      fresh = Primitive();
    }
  });
  if (!p.usable()) return false;
  p.set(DNNL_ARG_SRC, a);
  p.set(DNNL_ARG_WEIGHTS, b);
  if (m.bias) p.set(DNNL_ARG_BIAS, bias);
  p.set(DNNL_ARG_DST, out);
  p.run(context, "gemm");
  return true;
}

}  // namespace sim
